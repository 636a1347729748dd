"""The place of a node in the log: what is written of it, and when it counts.

What an operator does with a shared log: which part of it goes, and what is compared.
"""

import errno
import os
from types import SimpleNamespace

import msgspec
import pytest

from sow.errors import ClientError, DiskFull, NoQuorum, StateDiffers, StoreError
from sow.server.loop.log_checkpoint import (
    CHECKPOINT_FILE,
    MARK_FILE,
    CheckpointKeeper,
    LogMark,
    LogOperations,
    check_trusted,
    checkpoint_of,
    checkpoint_said,
    mark_differing,
    mark_of,
    read_checkpoint,
    write_checkpoint,
)
from sow.server.loop.log_writer import encode_group
from sow.shared_log.entry import ChainState, EntryKind, Lead, LogChain, LogEnvelope, parts_of
from sow.store.protocols import LogEntry
from tests.server.stand_ins import stepped
from tests.shared_log.files import FileLog

LEAD = Lead("a", "http://a", 1_000_000, "f", log="0123456789abcdef")
STATE = ChainState(17, b"h" * 16, 3, 99, LEAD)


class Driver:
    def __init__(self):
        self.state, self.asked = STATE, []

    def place(self, durable_seq):
        self.asked.append(durable_seq)
        return self.state


class Runtime:
    """A server whose journal has records up to `seq`."""

    def __init__(self, seq):
        self.journal, self.seq, self.last_seq = self, seq, seq
        self.failure = None

    async def durable(self):
        self.last_seq += 1  # what came meanwhile is not before the place
        if self.failure is not None:
            raise self.failure


def test_a_directory_that_is_marked_is_refused_with_what_to_do(tmp_path, monkeypatch):
    directory = tmp_path / "of a"
    directory.mkdir()
    check_trusted(directory)
    mark_differing(directory, "why")
    with pytest.raises(StateDiffers) as refused:
        check_trusted(directory)
    assert f"run mv '{directory}' '{directory}.differs' and start" in refused.value.detail
    assert (directory / MARK_FILE).read_text() == "why\n"
    mark_differing(directory, "again")
    # Killed in between, or without room: it is marked from the first moment on.
    (directory / MARK_FILE).unlink()

    def refuses(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuses)
    with pytest.raises(StoreError, match="No space left on device"):
        mark_differing(directory, "why")
    with pytest.raises(StateDiffers):
        check_trusted(directory)


def test_a_place_is_read_as_it_was_written(tmp_path):
    assert read_checkpoint(tmp_path) is None
    found = checkpoint_of(STATE, 12)
    write_checkpoint(tmp_path, found)
    assert read_checkpoint(tmp_path) == found
    assert (found.state, found.log, found.bookmark) == (STATE, LEAD.log, 12)
    assert mark_of(found) == LogMark("12", 17)
    assert mark_of(None) == LogMark("0", 0)
    assert checkpoint_of(ChainState(), 0) is None  # nobody has led yet


@pytest.mark.parametrize(
    "wrong",
    [
        {"hash": "00"},
        {"hash": "x" * 32},
        {"lead": {}},
        {"lead": {**LEAD._asdict(), "lease_us": 0}},
        {"position": 0},
        {"term": 0},
        {"position": -1},
    ],
)
def test_what_is_no_place_is_none(tmp_path, wrong):
    document = {**msgspec.to_builtins(checkpoint_of(STATE, 12)), **wrong}
    (tmp_path / CHECKPOINT_FILE).write_bytes(msgspec.json.encode(document))
    assert read_checkpoint(tmp_path) is None
    assert checkpoint_said(msgspec.json.encode({"checkpoint": document})) is None


def test_a_status_without_a_place_has_none():
    for text in (b'{"checkpoint":null}', b"{}", b"<html>", b"\xff"):
        assert checkpoint_said(text) is None
    found = checkpoint_of(STATE, 12)
    assert checkpoint_said(msgspec.json.encode({"checkpoint": found, "more": 1})) == found


@stepped
async def test_a_place_is_written_once_all_before_it_is_durable_and_never_goes_back(tmp_path):
    driver, runtime = Driver(), Runtime(12)
    keeper = CheckpointKeeper(driver, tmp_path)
    assert keeper.kept is None
    runtime.failure = DiskFull("no room")
    with pytest.raises(DiskFull):
        await keeper.keep(runtime)
    assert read_checkpoint(tmp_path) is None
    runtime.failure, runtime.last_seq = None, 12
    await keeper.keep(runtime)
    assert keeper.kept == read_checkpoint(tmp_path) == checkpoint_of(STATE, 12)
    assert driver.asked == [12, 12]
    driver.state = STATE._replace(position=16)
    await keeper.keep(runtime)
    assert keeper.kept.position == 17
    assert CheckpointKeeper(driver, tmp_path).kept == keeper.kept


class Log:
    """A log with a lead, a void block, and a group for each record of `sizes` bytes."""

    def __init__(self, path, *sizes):
        self.shared, self.chain, self.ends = FileLog(path), LogChain(), []
        self.sizes = sizes

    async def fill(self):
        await self.put(EntryKind.LEAD, LEAD.encode(), 1)
        await self.shared.append(b"void")
        for seq, size in enumerate(self.sizes, 1):
            entry = LogEntry("publish", "orders", seq, seq, ["k"], [b"x" * size])
            for part, goes_on in parts_of(encode_group([entry])):
                await self.put(EntryKind.RECORDS, part, 1, goes_on)
            self.ends.append(self.chain.settled)
        await self.put(EntryKind.BEAT, b"", 1)
        return self

    async def put(self, kind, content, term, goes_on=False):
        entry = LogEnvelope(kind, term, 1, self.chain.state.hash, bytes(16), content, goes_on)
        block = entry.encode()[0]
        self.chain.take(await self.shared.append(block), block)
        while self.chain.state.position < self.shared.newest:  # void ones
            self.chain.take(self.shared.newest, b"void")

    def operations(self, kept=None):
        driver = SimpleNamespace(lead=LEAD, node=SimpleNamespace(chain=self.chain))
        place = None if kept is None else checkpoint_of(self.ends[kept - 1], kept)
        return LogOperations(self.shared, driver, SimpleNamespace(kept=place))


def test_who_steps_down_already_says_so():
    driver = SimpleNamespace(step_down=lambda: False, lost_lead=lambda: NoQuorum("it steps down"))
    with pytest.raises(NoQuorum, match="it steps down"):
        LogOperations(None, driver, None).step_down()


@pytest.fixture
def opened(request):
    """Makes a log that is closed at the end."""

    async def make(path, *sizes):
        log = Log(path, *sizes)
        request.addfinalizer(log.shared.close)
        return await log.fill()

    return make


@stepped
async def test_what_goes_ends_with_the_last_group_before_the_bookmark_as_a_whole(tmp_path, opened):
    log = await opened(tmp_path / "log", 10, 3 * 1024**2, 10, 10)
    first, large, third, _ = log.ends
    assert large.position > first.position + 2
    operations = log.operations(kept=4)
    for before, last in ((1, None), (2, first), (3, large), (4, third), (4, third)):
        found = await operations.trim(before, {})
        if last is not None:
            # The last entry before the bookmark stays: a node that begins there looks for it.
            assert found == {"before": str(before), "position": last.position}
            assert log.shared._blocks[0].position == last.position


@stepped
async def test_nothing_goes_that_a_node_needs_neither_by_bookmark_nor_by_position(tmp_path, opened):
    log = await opened(tmp_path / "log", 10, 10, 10)
    operations = log.operations(kept=3)
    with pytest.raises(ClientError, match="http://b, and ends at bookmark 1") as refused:
        await operations.trim(3, {"http://b": LogMark("1", log.ends[0].position)})
    assert refused.value.reason == "beyond the oldest checkpoint"
    # Accounts have no bookmark of their own: who has the record before may not have them.
    found = await operations.trim(3, {"http://b": LogMark("2", log.ends[0].position)})
    assert found["position"] == log.ends[0].position
    with pytest.raises(ClientError, match="ends at bookmark 0"):
        await log.operations().trim(2, {})


@stepped
async def test_reading_again_begins_with_what_is_left_and_ends_in_what_is_known(tmp_path, opened):
    log = await opened(tmp_path / "log", 10, 10, 10)
    operations = log.operations(kept=3)
    found = await operations.verify()
    assert (found["first"], found["groups"], found["void"]) == (1, 3, 1)
    assert (found["last"], found["hash"]) == (
        log.chain.settled.position,
        log.chain.settled.hash.hex(),
    )
    await operations.trim(3, {})
    left = log.shared._blocks[0].position
    found = await operations.verify()
    assert (found["first"], found["groups"]) == (left + 1, 1)
    blocks = log.shared._blocks
    blocks[-1], blocks[-2] = (
        blocks[-1]._replace(block=blocks[-2].block),
        blocks[-2]._replace(block=blocks[-1].block),
    )
    with pytest.raises(StoreError, match="does not lead to the entry at position") as refused:
        await operations.verify()
    assert refused.value.reason == "log differs"
