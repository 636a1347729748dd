"""What an operator does with a shared log: which part of it goes, and what is compared."""

from types import SimpleNamespace

import pytest

from sow.errors import ClientError, NoQuorum, StoreError
from sow.server.loop.log_checkpoint import LogMark, checkpoint_of
from sow.server.loop.log_operations import LogOperations
from sow.server.loop.log_writer import encode_group
from sow.shared_log.entry import EntryKind, Lead, LogChain, LogEnvelope, parts_of
from sow.store.protocols import LogEntry
from tests.server.stand_ins import stepped
from tests.shared_log.files import FileLog

LEAD = Lead("a", "http://a", 1_000_000, log="0123456789abcdef")


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
