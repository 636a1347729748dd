"""The catalogue: every benchmark by its name, in the order in which they run."""

from collections.abc import Callable, Iterator

from tests.benchmarks import ingest, queries, restart
from tests.benchmarks.calculations import calculations
from tests.benchmarks.conflation import conflation
from tests.benchmarks.copies import copies
from tests.benchmarks.fan_out import fan_out
from tests.benchmarks.filters import filters
from tests.benchmarks.followers import followers
from tests.benchmarks.footprint import footprint
from tests.benchmarks.large_messages import large_messages
from tests.benchmarks.low_rates import low_rates
from tests.benchmarks.measure import Figure
from tests.benchmarks.memory import memory
from tests.benchmarks.message_types import message_types
from tests.benchmarks.past import past
from tests.benchmarks.patterns import patterns
from tests.benchmarks.publisher import client_publisher
from tests.benchmarks.rights import rights
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.snapshot import snapshot
from tests.benchmarks.stalls import stalls
from tests.benchmarks.subscribing import subscribing
from tests.benchmarks.ticks import ticks
from tests.benchmarks.views import served, views
from tests.benchmarks.windows import windows

Benchmark = Callable[[Sizes], Iterator[Figure]]

CATALOGUE: dict[str, Benchmark] = {
    "ingest": ingest.over_websocket,
    "ingest-engine": ingest.in_engine,
    "ingest-numbered": ingest.numbered,
    "series": ingest.series,
    "ingest-client": client_publisher,
    "low-rates": low_rates,
    "large-messages": large_messages,
    "fan-out": fan_out,
    "rights": rights,
    "filters": filters,
    "subscribing": subscribing,
    "views": views,
    "views-served": served,
    "windows": windows,
    "calculations": calculations,
    "message-types": message_types,
    "queries": queries.in_engine,
    "queries-http": queries.over_http,
    "queries-updates": queries.under_updates,
    "restart": restart.restart,
    "restart-growth": restart.growth,
    "restart-view": restart.with_view,
    "memory": memory,
    "patterns": patterns,
    "conflation": conflation,
    "copies": copies,
    "past": past,
    "snapshot": snapshot,
    "followers": followers,
    "footprint": footprint,
    "ticks": ticks,
    "stalls": stalls,
}
