"""Copies: what many conflated copies of one topic add to ingest in the engine.

Time is simulated: 100,000 updates of 1,000 keys a second. Nobody follows the copies, so what is
measured is deciding what passes, keeping windows and holding what they let go. The floor is the
same ingest with one copy of the same kind.
"""

from collections.abc import Callable, Iterator

from tests.benchmarks.engines import EngineDriver
from tests.benchmarks.measure import Figure, cpu_seconds, in_turn
from tests.benchmarks.records import every_order, framed, updates
from tests.benchmarks.sizes import Sizes

KEYS = 1000
UPDATE_US = 10
COUNTS = (10, 100)
FRAME_SIZES = (1, 100)
HALF = "<Filter>/px &gt; 500</Filter>"
PART = "<Filter>/px BETWEEN {} AND {}</Filter>"
Kind = Callable[[int], str]
"""The interval and the filter of the k-th copy."""
KINDS: dict[str, Kind] = {
    "no filter, one interval": lambda _: "<Interval>100ms</Interval>",
    "one filter, one interval": lambda _: f"<Interval>100ms</Interval>{HALF}",
    "one filter, own intervals": lambda k: f"<Interval>{100 + 10 * k}ms</Interval>{HALF}",
    "own filters, one interval": lambda k: (
        f"<Interval>100ms</Interval>{PART.format(10 * k, 10 * k + 10)}"
    ),
}


def copies(sizes: Sizes) -> Iterator[Figure]:
    """The processor's time for an update with so many copies."""
    keys = min(KEYS, sizes.keys)
    for name, kind in KINDS.items():
        for size in FRAME_SIZES:
            bodies = updates(sizes.singles if size == 1 else sizes.messages // 2, keys)
            frames = framed(bodies, size)
            floor, *counted = in_turn(
                sizes.repetitions,
                *(_cpu_us(kind, count, keys, frames, size) for count in (1, *COUNTS)),
            )
            for count, ours in zip(COUNTS, counted, strict=True):
                case = f"{count} with {name}, frames of {size}"
                yield Figure("copies", case, "µs/update", ours, floor, "one copy")


def configuration(kind: Kind, count: int) -> str:
    """The XML of a server with one topic and so many copies of it."""
    copies = "".join(
        f"<ConflatedTopic><Name>orders-{k}</Name><MessageType>json</MessageType>"
        f"<UnderlyingTopic>orders</UnderlyingTopic>{kind(k)}</ConflatedTopic>"
        for k in range(count)
    )
    return f"""<SOWConfig><Name>bench</Name><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/order/id</Key></Topic>{copies}
</SOW></SOWConfig>"""


def _cpu_us(
    kind: Kind, count: int, keys: int, frames: list[bytes], size: int
) -> Callable[[], float]:
    driver = EngineDriver(configuration(kind, count))
    driver.load(every_order(keys))

    def measure() -> float:
        work_s = cpu_seconds(lambda: driver.publish(frames, size * UPDATE_US))
        return work_s * 1e6 / (len(frames) * size)

    return measure
