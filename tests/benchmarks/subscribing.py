"""Subscribing: what a subscription costs whose filter names a field that no other one names.

After each one comes an update, so that what its field needs of the topic is really made. The floor
is the same with filters that all name one field.
"""

from collections.abc import Callable, Iterator

from tests.benchmarks.engines import EngineDriver
from tests.benchmarks.measure import Figure, cpu_seconds
from tests.benchmarks.records import configuration, every_order, framed, updates
from tests.benchmarks.sizes import Sizes

COUNT = 1000
KEYS = 1000


def subscribing(sizes: Sizes) -> Iterator[Figure]:
    """Subscriptions of sessions of their own, the last of them no dearer than the first."""
    count = min(COUNT, sizes.keys)
    ours, floor = [], []
    for _ in range(sizes.repetitions):
        ours.append(_each_ms(count, lambda k: f"/field{k} = 'nothing'"))
        floor.append(_each_ms(count, lambda k: f"/symbol = 'nothing{k}'"))
    yield Figure(
        "subscribing", f"{count} distinct paths", "ms", ours, floor, "one path, own values"
    )


def _each_ms(count: int, written: Callable[[int], str]) -> float:
    keys = min(KEYS, count)
    driver = EngineDriver(configuration())
    driver.load(every_order(keys))
    frames = framed(updates(count, keys), 1)
    without = EngineDriver(configuration())
    without.load(every_order(keys))

    def subscribed() -> None:
        for number, frame in enumerate(frames):
            driver.subscribe(written(number))
            driver.publish((frame,))

    updates_s = cpu_seconds(lambda: without.publish(frames))
    return (cpu_seconds(subscribed) - updates_s) * 1e3 / count
