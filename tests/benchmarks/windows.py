"""Live windows: what a hundred of them add to publishing, and how soon one is scrolled.

Windows of fifty rows on ten orders, over records of which each update draws all that they are
ordered by anew: so some updates move a row of a window, and most are compared with bounds alone.
The floor is the same server and the same updates with nobody following.
"""

from collections.abc import Iterator, Sequence

from tests.benchmarks.engines import EngineDriver
from tests.benchmarks.measure import Figure, cpu_seconds
from tests.benchmarks.records import configuration, every_order, framed, updates
from tests.benchmarks.sizes import Sizes

ORDERS = (
    "/px", "/px DESC", "/qty DESC, /px", "/symbol", "/symbol DESC, /px", "/region, /px DESC",
    "/ts", "/ts DESC", "/acct, /qty", "/px * /qty DESC",
)  # fmt: skip
EACH = 10
ROWS = 50
SCROLLS = 10


def windows(sizes: Sizes) -> Iterator[Figure]:
    """Microseconds of an update with windows and without, and of a scroll beside its query."""
    windowed, alone = followed(sizes), _loaded(sizes)
    ours, floor = [], []
    for turn in range(sizes.repetitions):
        frames = framed(updates(sizes.messages, sizes.records, seed=turn), 100)
        for driver, taken in ((windowed, ours), (alone, floor)):
            taken.append(_spent_s(driver, frames) * 1e6 / sizes.messages)
    yield Figure("windows", "an update with 100 of them", "us", ours, floor, "nobody follows")
    yield Figure("windows", "a scroll", "ms", *_scrolled(windowed, sizes), "its query")


def followed(sizes: Sizes) -> EngineDriver:
    """An engine with all records and all windows."""
    driver = _loaded(sizes)
    for order_by in ORDERS:
        for page in range(EACH if sizes.name != "tiny" else 1):
            driver.ask(_command(order_by, ROWS * page))
    return driver


def _loaded(sizes: Sizes) -> EngineDriver:
    driver = EngineDriver(configuration(durable=False))
    driver.load(every_order(sizes.records))
    return driver


def _spent_s(driver: EngineDriver, frames: Sequence[bytes]) -> float:
    return cpu_seconds(lambda: driver.publish(frames))


def _command(order_by: str, skip_n: int, more: str = "") -> bytes:
    page = b'"order_by":"%b","top_n":%d,"skip_n":%d' % (order_by.encode(), ROWS, skip_n)
    return b'{"c":"sow_and_subscribe","t":"orders","opts":"live%b",%b}' % (more.encode(), page)


def _scrolled(driver: EngineDriver, sizes: Sizes) -> tuple[list[float], list[float]]:
    session = driver.ask(_command("/px", 0))
    (name,) = driver.executor.subscriptions.of(session)
    ours, floor = [], []
    for turn in range(sizes.repetitions * SCROLLS):
        scroll = _command("/px", turn % EACH, ",replace")[:-1] + b',"s":"%b"}' % name.encode()
        query = b'{"c":"sow","t":"orders","order_by":"/px","top_n":%d}' % (ROWS + turn % EACH)
        ours.append(cpu_seconds(lambda line=scroll: driver.ask(line, session)) * 1e3)
        floor.append(cpu_seconds(lambda line=query: driver.ask(line)) * 1e3)
    return ours, floor
