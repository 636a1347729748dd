"""The place of a node in the log: what is written of it, and when it counts."""

import errno
import os

import msgspec
import pytest

from sow.errors import DiskFull, StateDiffers, StoreError
from sow.server.loop.log_checkpoint import (
    CHECKPOINT_FILE,
    MARK_FILE,
    CheckpointKeeper,
    LogMark,
    check_trusted,
    checkpoint_of,
    checkpoint_said,
    mark_differing,
    mark_of,
    read_checkpoint,
    write_checkpoint,
)
from sow.shared_log.entry import ChainState, Lead
from tests.server.stand_ins import stepped

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
