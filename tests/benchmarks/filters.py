"""Filters: what many different subscriptions add to ingest in the engine.

Equality filters that nothing ever matches are the price of finding that out; those that a fifth of
the records match are that and the making of their lines. Then filters of every form of which each
matches hardly a record, in frames of one and of a hundred: what all of them add to an update.
"""

from collections.abc import Callable, Iterator, Sequence

from tests.benchmarks.engines import EngineDriver
from tests.benchmarks.measure import Figure, cpu_seconds, in_turn, seconds
from tests.benchmarks.records import (
    PRICE_MAX,
    REGIONS,
    SYMBOLS,
    configuration,
    every_order,
    framed,
    updates,
)
from tests.benchmarks.sizes import Sizes

FRAME = 100
CASES = {"matched by nothing": "nowhere", "each by 1 record in 5000": "S"}
FORMS: dict[str, Callable[[int], str]] = {
    "ranges": lambda k: "/px BETWEEN {0:.3f} AND {0:.3f}".format(k * PRICE_MAX / SYMBOLS),
    "bounds": lambda k: f"/px > {PRICE_MAX - k / 1e5}",
    "LIKE": lambda k: f"/symbol LIKE '^S0*{10 * k}$'",
    "OR": lambda k: f"/symbol = 'S{10 * k}' OR /px > {PRICE_MAX - k / 1e6}",
    "AND": lambda k: f"/region = '{REGIONS[k % len(REGIONS)]}' AND {FORMS['ranges'](k)}",
}
"""The k-th filter of a form. It matches one record in 5000 or none, so that what is measured is the
finding and not the making of lines."""
FRAME_SIZES = (1, 100)


def filters(sizes: Sizes) -> Iterator[Figure]:
    """Ingest with the subscriptions; the floor is ingest without."""
    yield from equality_filters(sizes)
    yield from distinct_filters(sizes)


def equality_filters(sizes: Sizes) -> Iterator[Figure]:
    """The rate of large frames beside equality filters."""
    bodies = updates(sizes.messages, sizes.keys)
    frames = framed(bodies, FRAME)
    count = sizes.filters[0]
    for case, prefix in CASES.items():
        without, beside = _driver(sizes), _driver(sizes)
        for number in range(count):
            beside.subscribe(f"/symbol = '{prefix}{number}'")
        ours, floor = in_turn(
            sizes.repetitions, _rate(beside, frames, bodies), _rate(without, frames, bodies)
        )
        yield Figure(
            "equality filters",
            f"{count}, {case}",
            "messages/s",
            ours,
            floor,
            "ingest with none",
        )


def distinct_filters(sizes: Sizes) -> Iterator[Figure]:
    """The processor's time for an update beside filters of each form, and of all."""
    bodies = updates(sizes.singles // 4, sizes.keys)
    without = _driver(sizes)
    mixed = list(FORMS.values())
    forms = FORMS | {"mixed": lambda k: mixed[k % len(mixed)](k)}
    for count in sizes.filters:
        for form, written in forms.items():
            beside = _driver(sizes)
            for number in range(count):
                beside.subscribe(written(number))
            for size in FRAME_SIZES:
                frames = framed(bodies, size)
                ours, floor = in_turn(
                    sizes.repetitions,
                    _cpu_us(beside, frames, bodies),
                    _cpu_us(without, frames, bodies),
                )
                case = f"{count} {form}, frames of {size}"
                yield Figure("distinct filters", case, "µs/update", ours, floor, "ingest with none")


def _driver(sizes: Sizes) -> EngineDriver:
    driver = EngineDriver(configuration(index=True))
    driver.load(every_order(sizes.keys))
    return driver


def _rate(
    driver: EngineDriver, frames: Sequence[bytes], bodies: Sequence[bytes]
) -> Callable[[], float]:
    return lambda: len(bodies) / seconds(lambda: driver.publish(frames))


def _cpu_us(
    driver: EngineDriver, frames: Sequence[bytes], bodies: Sequence[bytes]
) -> Callable[[], float]:
    return lambda: cpu_seconds(lambda: driver.publish(frames)) * 1e6 / len(bodies)
