"""Conflation: what one update costs the conflation core, in and out, at a given interval.

Time is simulated: updates arrive at 100,000 a second in batches of 100, over 10,000 keys. The
floor puts the same batches into a dictionary and never takes anything out.
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random

from conflated_topics import FocusedConflator, PerKey
from tests.benchmarks.measure import Figure, in_turn, seconds
from tests.benchmarks.sizes import Sizes

KEYS = 10_000
BATCH = 100
BATCH_US = 1000
INTERVALS_MS = (100, 1000)

Batches = Sequence[tuple[list[str], list[bytes]]]


def conflation(sizes: Sizes) -> Iterator[Figure]:
    """One conflated topic without a filter."""
    draw = Random(1)
    names = [str(key) for key in range(KEYS)]
    batches = [
        ([names[draw.randrange(KEYS)] for _ in range(BATCH)], [b"%d" % at] * BATCH)
        for at in range(sizes.conflated_updates // BATCH)
    ]
    count = len(batches) * BATCH
    for interval_ms in INTERVALS_MS:
        ours, floor = in_turn(
            sizes.repetitions,
            _each_us(conflated(batches, interval_ms), count),
            _each_us(lambda: put(batches), count),
        )
        yield Figure("conflation", f"{interval_ms} ms", "µs/update", ours, floor, "dict.update")


def _each_us(work: Callable[[], None], count: int) -> Callable[[], float]:
    return lambda: 1e6 * seconds(work) / count


def conflated(batches: Batches, interval_ms: int) -> Callable[[], None]:
    """Offer all batches and take what falls due, as an engine does."""

    def run() -> None:
        topic: FocusedConflator[str, bytes] = FocusedConflator(
            PerKey(interval_ms * 1000), set().__contains__
        )
        now_us = 0
        for keys, values in batches:
            now_us += BATCH_US
            topic.offer(keys, values, now_us, None)
            due_us = topic.due_us()
            if due_us is not None and due_us <= now_us:
                topic.take(now_us)

    return run


def put(batches: Batches) -> None:
    """The floor."""
    pending: dict[str, bytes] = {}
    for keys, values in batches:
        pending.update(zip(keys, values, strict=True))
