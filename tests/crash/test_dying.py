"""Death at every step of a start, a removal and a repair: the next one goes on from what it left.

A child process does the work and ends itself at its n-th call that changes the disk, for every n
there is: no clean-up, as after SIGKILL. Then the work is done again, whole.
"""

import os
import shutil
from pathlib import Path

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Configuration, Topic
from sow.engine.engine import Engine
from sow.engine.recovery.redo import stored_slices
from sow.server.boot.bootstrap import ServerBootstrap
from sow.server.boot.quarantine import REMOVED
from sow.store import repair
from sow.store.manifest import COPY_FILE, MANIFEST_FILE

ORDERS = Topic("orders", "json", keys=("/id",))
TRADES = Topic("trades", "json", keys=("/id",))
BODIES = [b'{"id": %d, "pad": "%s"}' % (number, b"x" * 300) for number in range(60)]
STEPS = (("rename", os), ("fsync", os), ("mkdir", os), ("truncate", os), ("unlink", os))
STEPS_MAX = 200
DIED = 9

pytestmark = pytest.mark.edge


def opened(path, *topics, allow_loss=False):
    configuration = Configuration("test", topics)
    opening = ServerBootstrap(
        configuration, path, lambda: Engine(configuration), 1_000_000, allow_loss=allow_loss
    )
    try:
        run_to_completion(opening.open(lambda entries: entries))
    except BaseException:
        opening.close()
        raise
    return opening


def start(path, *topics, allow_loss=False):
    opened(path, *topics, allow_loss=allow_loss).close()


def records(path, *topics):
    """The bodies of each topic."""
    opening = opened(path, *topics)
    found = {}
    for topic in topics:
        table = opening.engine.topics[topic.name].records.table
        found[topic.name] = [bytes(table.bodies[slot]) for slot in table.live().tolist()]
    opening.close()
    return found


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data"
    opening = opened(path, ORDERS, TRADES)
    for name in ("orders", "trades"):
        opening.engine.publish(name, BODIES, 1)
    opening.journal.append(opening.engine.flush().entries)
    slices = stored_slices(opening.engine.catalog, "trades", 7)
    opening.checkpoints["trades"].write(opening.engine.seq, slices)
    opening.close()
    return path


def dies(work, at):
    """Whether a child that does the work died at its n-th step; False when it was done before."""
    child = os.fork()
    if not child:
        try:
            _count_down(at)
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, DIED), code
    return code == DIED


def _count_down(left):
    def counted(original):
        def call(*arguments, **options):
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(DIED)
            return original(*arguments, **options)

        return call

    for name, owner in STEPS:
        setattr(owner, name, counted(getattr(owner, name)))


def at_every_step(data, work):
    """Do the work in a copy of the data, dying at each step; the copies, one after the other."""
    for at in range(STEPS_MAX):
        copy = data.with_name(f"copy{at}")
        shutil.copytree(data, copy)
        died = dies(lambda copy=copy: work(copy), at)
        yield copy
        shutil.rmtree(copy)
        if not died:
            assert at > 2
            return
    raise AssertionError("the work never ends")


def test_a_first_start(tmp_path):
    (tmp_path / "data").mkdir()
    for copy in at_every_step(tmp_path / "data", lambda path: start(path, ORDERS)):
        assert records(copy, ORDERS) == {"orders": []}


def test_a_directory_that_is_taken_over(data):
    for name in (MANIFEST_FILE, COPY_FILE):
        (data / name).unlink()
    for copy in at_every_step(data, lambda path: start(path, ORDERS, TRADES)):
        assert records(copy, ORDERS, TRADES) == {"orders": BODIES, "trades": BODIES}


def test_a_topic_more(data):
    new = Topic("new", "json", keys=("/id",))
    for copy in at_every_step(data, lambda path: start(path, ORDERS, TRADES, new)):
        assert records(copy, ORDERS, TRADES) == {"orders": BODIES, "trades": BODIES}


def test_a_removal(data):
    for copy in at_every_step(data, lambda path: start(path, ORDERS, allow_loss=True)):
        start(copy, ORDERS, allow_loss=True)
        assert records(copy, ORDERS) == {"orders": BODIES}
        written = [path.read_bytes().splitlines() for path in copy.glob(f"{REMOVED}/*/*.ndjson")]
        assert BODIES in written
        assert [path.name for path in copy.glob(f"{REMOVED}/*/*.sow")] == ["trades.json.sow"]
        assert records(copy, ORDERS, TRADES) == {"orders": BODIES, "trades": []}


@pytest.mark.parametrize("name", ["journal", "trades.json.sow", MANIFEST_FILE])
def test_a_repair(data, name):
    if name == MANIFEST_FILE:
        for copy_name in (MANIFEST_FILE, COPY_FILE):
            (data / copy_name).write_bytes(b"{")
    else:
        file = data / name / "data.mdb" if name == "journal" else data / name
        content = file.read_bytes()
        file.write_bytes(content.replace(b"\xde\xc0\xef\xbe", b"\xde\xc0\xef\xbf", 1))

    def mend(path):
        assert repair.main([str(path), str(path / name), "--after", "120"]) == 0

    for copy in at_every_step(data, mend):
        mend(copy)
        if name == MANIFEST_FILE or not Path(copy / "trades.json.sow").exists():
            assert list(copy.glob("*.damaged-*"))
        assert records(copy, ORDERS, TRADES) == {"orders": BODIES, "trades": BODIES}
