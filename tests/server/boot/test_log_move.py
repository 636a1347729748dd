"""A local log becomes a shared one and back: nothing is lost, under the same name and bookmarks."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sow.core.definitions import SharedLogSettings
from sow.errors import LogEnded, LogUnanswered, StoreError
from sow.server.boot import log_copy, log_move
from sow.server.boot.app import Server
from sow.server.boot.log_move import HeldIn, move_in, move_out
from sow.server.loop import log_checkpoint
from sow.server.loop.log_checkpoint import CHECKPOINT_FILE
from sow.server.loop.log_writer import encode_group
from sow.shared_log.entry import ChainState, EntryKind, LogGroup, Reload
from sow.store.backup import BackupWriter, FrameReader, StoredBackup
from sow.store.protocols import LogEntry
from sow.store.restoring import restore
from tests.server.boot.log_nodes import WAIT_S, Client, Node, node_configuration
from tests.server.boot.servers import publish, records
from tests.shared_log.files import FileLog

pytestmark = [pytest.mark.edge, pytest.mark.usefixtures("steady")]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Parts of a backup are small, and places are kept often."""
    monkeypatch.setattr(log_move, "PIECE_BYTES", 200)
    monkeypatch.setattr(log_copy, "PAUSE_S_MAX", 1.0)
    monkeypatch.setattr(log_checkpoint, "KEPT_S", 0.02)


@pytest.fixture
def shared(tmp_path):
    log = FileLog(tmp_path / "log")
    yield log
    log.close()


def local(config):
    """A server without a shared log on the directory of a node."""
    alone = replace(config, shared_log=SharedLogSettings())
    return Server(alone, Path(config.data_directory), names=lambda: ["here"])


async def published(config, *numbers):
    """What a local server has in the end, and the name of its log."""
    server = local(config)
    await server.start()
    for number in numbers:
        await publish(server, number)
    found = records(server), server.engine.seq, server.runtime.journal.log_id
    await server.stop()
    return found


async def noded(config, shared, wanted, *numbers):
    """The same of a node that leads, once it has the records that are wanted."""
    node = Node(config, shared)
    try:
        await node.start()
        await node.until(lambda: not node.follows and len(records(node.server)) == wanted)
        for number in numbers:
            await publish(node.server, number)
        server = node.server
        found = records(server), server.engine.seq, server.runtime.journal.log_id
        if numbers:
            newest = server.engine.seq
            await node.until(lambda: node.member._keeper.kept.bookmark == newest)
        return found
    finally:
        await node.end()


def test_a_local_log_is_shared_and_local_again_and_nothing_is_lost(tmp_path, shared):
    async def play():
        config, other = (node_configuration(name, tmp_path) for name in "ab")
        opened = lambda _: Client(shared)  # noqa: E731
        before = await published(config, *range(5))
        assert await move_in(config, opened) == 5
        # This node goes on with what it has, another one with what the log begins with.
        after = await noded(config, shared, 5)
        assert after == before
        assert await noded(other, shared, 5, 5, 6) == (
            [str(number) for number in range(7)],
            7,
            before[2],
        )
        # What was written since then is not in the first directory.
        with pytest.raises(StoreError, match=r"ends at bookmark 5, and .* on up to 7"):
            await move_out(config, opened)
        assert await move_out(other, opened) == 7
        assert not (Path(other.data_directory) / CHECKPOINT_FILE).exists()
        assert (await published(other, 7))[0] == [str(number) for number in range(8)]
        with pytest.raises(LogEnded, match="node b has taken its content"):
            await noded(config, shared, 7)
        with pytest.raises(StoreError, match=r"has no log-checkpoint.json"):
            await move_out(other, opened)

    asyncio.run(play())


def test_who_has_missed_a_reload_lacks_its_bookmark():
    held = HeldIn(SimpleNamespace(last_seq=1, accounts=list), "a")
    number = encode_group([LogEntry("publish", "reload", 2, 5, None, [b""], 0)])
    reload = Reload("f", "", number).encode()
    held.take(LogGroup(EntryKind.RELOAD, reload, 5, 1, ChainState()))
    with pytest.raises(StoreError, match="goes on up to 2"):
        held.check()


def test_a_move_that_was_interrupted_is_made_again(tmp_path, shared):
    async def play():
        config, other = (node_configuration(name, tmp_path) for name in "ab")
        before = await published(config, *range(5))

        class Breaks(Client):
            """A client whose engine takes so many blocks."""

            def __init__(self, shared, blocks):
                super().__init__(shared)
                self._left, self._append = blocks, shared.append
                self.append = self._some

            async def _some(self, block):
                self._left -= 1
                if self._left < 0:
                    await asyncio.Event().wait()
                return await self._append(block)

        moving = asyncio.create_task(move_in(config, lambda _: Breaks(shared, 5)))
        async with asyncio.timeout(WAIT_S):
            while shared.newest < 5:
                await asyncio.sleep(0.01)
        moving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await moving
        with pytest.raises(StoreError, match=r"not moved whole|without its end"):
            await noded(other, shared, 5)
        assert await move_in(config, lambda _: Client(shared)) == 5
        assert await noded(other, shared, 5) == before
        assert await move_in(config, lambda _: Client(shared)) == 5  # it is there already
        await noded(other, shared, 5, 5)
        with pytest.raises(StoreError, match="is not empty"):
            await move_in(config, lambda _: Client(shared))

    asyncio.run(play())


def test_nothing_is_moved_while_a_node_leads_or_from_a_directory_in_use(tmp_path, shared):
    async def play():
        config, other = (node_configuration(name, tmp_path) for name in "ab")
        await published(other, 1)
        node = Node(config, shared)
        await node.start()
        try:
            with pytest.raises(StoreError, match=r"node a leads|another|is not empty"):
                await move_in(other, lambda _: Client(shared))
            with pytest.raises(StoreError, match=r"in use|another process"):
                await move_out(config, lambda _: Client(shared))
        finally:
            await node.end()
        missing = replace(config, data_directory=str(tmp_path / "none"))
        with pytest.raises(StoreError, match="is not there"):
            await move_in(missing, lambda _: Client(shared))

    asyncio.run(play())


def test_a_cluster_is_restored_from_a_backup_under_another_name(tmp_path, shared):
    async def play():
        config, other = (node_configuration(name, tmp_path) for name in "ab")
        before = await published(config, *range(3))
        with (
            log_move.stopped_store(Path(config.data_directory)) as store,
            BackupWriter(tmp_path / "backup") as writer,
        ):
            reader = FrameReader(writer.take)
            for frame in log_move.frames(store, 1, "1"):
                reader.feed(frame)
        restored = replace(config, data_directory=str(tmp_path / "restored"))
        restore(StoredBackup(tmp_path / "backup"), tmp_path / "restored", now_us=10**15)
        bookmark = await move_in(restored, lambda _: Client(shared))
        first = await noded(restored, shared, 3)
        assert first == await noded(other, shared, 3)
        assert first[:2] == (before[0], bookmark)
        assert first[2] != before[2]

    asyncio.run(play())


def test_a_move_that_was_killed_behind_its_last_entry_is_made_again(tmp_path, shared, monkeypatch):
    class Killed(Exception):
        pass

    async def dies(work, name):
        """As if the process had been killed at a call."""

        def dead(*_given, **_more):
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(*name, dead)
            with pytest.raises(Killed):
                await work

    async def play():
        config, other = (node_configuration(name, tmp_path) for name in "ab")
        opened = lambda _: Client(shared)  # noqa: E731
        before = await published(config, *range(5))
        await dies(move_in(config, opened), (log_move, "write_checkpoint"))
        newest = shared.newest
        assert await move_in(config, opened) == 5
        assert shared.newest <= newest + 2  # it leads, and appends nothing more
        assert await noded(other, shared, 5) == before
        assert await noded(config, shared, 5, 5) == ([*map(str, range(6))], 6, before[2])
        await dies(move_out(config, opened), (Path, "unlink"))
        with pytest.raises(StoreError, match="node a has taken the content"):
            await move_out(other, opened)
        assert await move_out(config, opened) == 6
        assert (await published(config))[:2] == ([*map(str, range(6))], 6)

    asyncio.run(play())


def test_an_engine_that_does_not_answer_is_not_waited_for_in_silence(tmp_path, monkeypatch):
    monkeypatch.setattr(log_move, "UNANSWERED_S_MAX", 0.05)

    class Away(Client):
        def __init__(self):
            self.last = self._fails

        async def _fails(self):
            raise LogUnanswered("no connection within 1 s")

    async def play():
        config = node_configuration("a", tmp_path)
        await published(config, 1)
        with pytest.raises(StoreError, match="does not answer: no connection within 1 s"):
            await move_in(config, lambda _: Away())

    asyncio.run(play())
