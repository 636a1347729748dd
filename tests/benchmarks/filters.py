"""Filters: what a thousand different equality subscriptions add to ingest in the engine.

Once with filters that nothing ever matches, which is the price of finding that out, and once
with filters that a fifth of the records match, which is that and the making of their lines.
"""

from collections.abc import Callable, Iterator, Sequence

from tests.benchmarks.engines import EngineDriver
from tests.benchmarks.measure import Figure, in_turn, seconds
from tests.benchmarks.records import configuration, every_order, framed, updates
from tests.benchmarks.sizes import Sizes

FRAME = 100
CASES = {"matched by nothing": "nowhere", "each by 1 record in 5000": "S"}


def filters(sizes: Sizes) -> Iterator[Figure]:
    """Ingest with the subscriptions; the floor is ingest without."""
    bodies = updates(sizes.messages, sizes.keys)
    frames = framed(bodies, FRAME)
    for case, prefix in CASES.items():
        without, beside = _driver(sizes), _driver(sizes)
        for number in range(sizes.filters):
            beside.subscribe(f"/symbol = '{prefix}{number}'")
        ours, floor = in_turn(
            sizes.repetitions, _rate(beside, frames, bodies), _rate(without, frames, bodies)
        )
        yield Figure(
            "equality filters",
            f"{sizes.filters}, {case}",
            "messages/s",
            ours,
            floor,
            "ingest with none",
        )


def _driver(sizes: Sizes) -> EngineDriver:
    driver = EngineDriver(configuration(index=True))
    driver.load(every_order(sizes.keys))
    return driver


def _rate(
    driver: EngineDriver, frames: Sequence[bytes], bodies: Sequence[bytes]
) -> Callable[[], float]:
    return lambda: len(bodies) / seconds(lambda: driver.publish(frames))
