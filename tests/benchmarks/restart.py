"""Restart: from starting the process to listening, with everything back in memory.

Once from a checkpoint with a tail of the journal after it, once from the journal alone. The
floor is LMDB handing over all values of the same file, with nothing made of them. Then what a
record costs where there are more of them: the floor is a record of the smallest topic. And with a
view of them: the floor is to start without.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import lmdb

from sow.core.definitions import Topic, with_system_topics
from sow.engine.recovery.redo import stored_slices
from sow.store.directory import DataDirectory, file_name
from tests.benchmarks.engines import EngineDriver
from tests.benchmarks.measure import Figure, in_turn, seconds
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.records import HASH_INDEX, configuration, every_order, parts, updates
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.views import BY_ACCOUNT, ENDING

FRAME = 1000
TAIL_SHARE = 10
"""The journal's tail after the checkpoint is this part of the records."""
VIEWED_SHARE = 5
"""Records that a view is made of anew are this part of all: it is the ratio that is looked for."""
STARTS = 2
"""Of each size: it is the processor's time that counts, and loading millions takes a minute."""
LEAST_S = 1e-3
MORE_INDEXES = "<HashIndex><Key>/acct</Key></HashIndex><Index>/px</Index>"
XML = configuration(index=True).replace(HASH_INDEX, HASH_INDEX + MORE_INDEXES)


def restart(sizes: Sizes) -> Iterator[Figure]:
    """One persistent topic with two hash indexes and a memo column."""
    yield _restarted(sizes, "checkpoint and tail", checkpointed=True)
    yield _restarted(sizes, "journal only", checkpointed=False)


def growth(sizes: Sizes) -> Iterator[Figure]:
    """The processor's time for each record of larger and larger topics, from a checkpoint."""
    first, *others = sizes.restarts
    starts = min(STARTS, sizes.repetitions)
    floor = _each_us(first, starts)
    for records in others:
        case = f"{records} records, checkpoint and tail"
        ours = _each_us(records, starts)
        yield Figure("restart growth", case, "µs/record", ours, floor, f"{first} records")


def _each_us(records: int, starts: int) -> list[float]:
    with TemporaryDirectory(prefix="sow-bench-") as path:
        full, empty = Path(path) / "full", Path(path) / "empty"
        fill(full, records, checkpointed=True)
        nothing_s = started_cpu_s(empty)
        each_s = [started_cpu_s(full) - nothing_s for _ in range(starts)]
    # A handful of records is less than what one start differs from another by.
    return [max(LEAST_S, one_s) * 1e6 / records for one_s in each_s]


def with_view(sizes: Sizes) -> Iterator[Figure]:
    """The processor's time to start with a view, which is made of the records anew; the floor is to
    start without one."""
    records = sizes.records // VIEWED_SHARE
    viewed = XML.replace(ENDING, BY_ACCOUNT + ENDING)
    with TemporaryDirectory(prefix="sow-bench-") as path:
        full, empty = Path(path) / "full", Path(path) / "empty"
        fill(full, records, checkpointed=True)
        nothing_s = started_cpu_s(empty)
        floor, ours = in_turn(
            min(STARTS, sizes.repetitions),
            lambda: max(LEAST_S, started_cpu_s(full) - nothing_s),
            lambda: max(LEAST_S, started_cpu_s(full, viewed) - nothing_s),
        )
    case = f"{records} records, five aggregates of 1,000 groups"
    yield Figure("restart with a view", case, "s", ours, floor, "no view")


def started_cpu_s(data: Path, xml: str = XML) -> float:
    """The processor's time from the start of a process to its ready line."""
    with ServerProcess(xml, data) as server:
        return server.cpu_s


def _restarted(sizes: Sizes, case: str, checkpointed: bool) -> Figure:
    with TemporaryDirectory(prefix="sow-bench-") as path:
        full, empty = Path(path) / "full", Path(path) / "empty"
        file = fill(full, sizes.records, checkpointed)
        ours, floor, nothing = in_turn(
            sizes.repetitions,
            lambda: started_s(full),
            lambda: seconds(lambda: read_values(file)),
            lambda: started_s(empty),
        )
    return Figure(
        "restart",
        f"{sizes.records} records, {case}",
        "s",
        ours,
        floor,
        "reading the values",
        note=f"of which {median(nothing):.2f} s to start with no data",
    )


def started_s(data: Path) -> float:
    """From the start of the process to its ready line."""
    server = ServerProcess(XML, data)
    taken_s = seconds(server.__enter__)
    server.__exit__(None, None, None)
    return taken_s


def read_values(path: Path) -> int:
    """Read every value of an LMDB file; returns their bytes."""
    with (
        lmdb.open(
            str(path), subdir=path.is_dir(), readonly=True, lock=False, map_size=1 << 40
        ) as environment,
        environment.begin() as txn,
    ):
        return sum(len(value) for _, value in txn.cursor())


def fill(path: Path, records: int, checkpointed: bool) -> Path:
    """Make a data directory; returns the file in it that holds most of the records."""
    driver = EngineDriver(XML)
    (topic,) = driver.engine.configuration.topics
    assert isinstance(topic, Topic)
    directory = DataDirectory(path)
    # A server's own topics are checkpointed as well, when its log has grown as much.
    own = [
        directory.checkpoint(one)
        for one in with_system_topics(driver.engine.configuration).topics
        if isinstance(one, Topic) and one.system
    ]
    settings = driver.engine.configuration.journal
    journal, checkpoint = directory.journal(settings), directory.checkpoint(topic)

    def publish(bodies: Sequence[bytes]) -> None:
        for part in parts(bodies, FRAME):
            driver.now_us += 1000
            driver.engine.publish("orders", part, driver.now_us)
            group = driver.engine.flush()
            journal.append(group.entries)
            driver.engine.sequencer.release(group)

    publish(every_order(records))
    if checkpointed:
        catalog = driver.engine.catalog
        checkpoint.write(driver.engine.seq, stored_slices(catalog, "orders", FRAME))
        for one in own:
            one.write(driver.engine.seq, ())
    publish(updates(records // TAIL_SHARE, records))
    for closing in (*own, checkpoint, journal, directory):
        closing.close()
    return path / (file_name(topic) if checkpointed else settings.directory)
