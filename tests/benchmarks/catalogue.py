"""The catalogue: every benchmark by its name, in the order in which they run."""

from collections.abc import Callable, Iterator

from tests.benchmarks import ingest, queries
from tests.benchmarks.calculations import calculations
from tests.benchmarks.conflation import conflation
from tests.benchmarks.copies import copies
from tests.benchmarks.fan_out import fan_out
from tests.benchmarks.filters import filters
from tests.benchmarks.followers import followers
from tests.benchmarks.measure import Figure
from tests.benchmarks.memory import memory
from tests.benchmarks.publisher import client_publisher
from tests.benchmarks.restart import restart
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.snapshot import snapshot
from tests.benchmarks.stalls import stalls

Benchmark = Callable[[Sizes], Iterator[Figure]]

CATALOGUE: dict[str, Benchmark] = {
    "ingest": ingest.over_websocket,
    "ingest-engine": ingest.in_engine,
    "ingest-client": client_publisher,
    "fan-out": fan_out,
    "filters": filters,
    "calculations": calculations,
    "queries": queries.in_engine,
    "queries-http": queries.over_http,
    "queries-updates": queries.under_updates,
    "restart": restart,
    "memory": memory,
    "conflation": conflation,
    "copies": copies,
    "snapshot": snapshot,
    "followers": followers,
    "stalls": stalls,
}
