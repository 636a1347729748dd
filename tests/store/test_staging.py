"""Staged chunks: bounded by the disk's room, by writer and by time, whoever stages for ever."""

from types import SimpleNamespace

import pytest

from sow.errors import DiskFull, StoreError
from sow.store import staging
from sow.store.environment import RESERVE_BYTES
from sow.store.staging import ABANDONED_US, BATCH_KEPT_US, PAGE_BYTES, Attempt, StagedBatch, Staging

MB = 1024**2
ATTEMPT = Attempt(0, "a")
CHUNK = bytes(MB - 4)


class Disk:
    """A disk of 10 GB on which everything that is not staged leaves so much free."""

    def __init__(self, free_bytes=100 * MB + RESERVE_BYTES):
        self.free_bytes = free_bytes
        self.staging = None

    def __call__(self, _path):
        staged = 0 if self.staging is None else self.staging.size_bytes
        return SimpleNamespace(
            f_bavail=max(0, self.free_bytes - staged), f_frsize=1, f_blocks=10 * 1024 * MB
        )


@pytest.fixture
def disk():
    return Disk()


@pytest.fixture
def made(tmp_path, disk):
    disk.staging = Staging(tmp_path / "staging", 0, disk)
    return disk.staging


def fill(store, writer, chunks=1000, now_us=0, epoch=0):
    """Stage megabytes until it is refused; how many were taken, and what was said."""
    for number in range(chunks):
        try:
            store.put(StagedBatch(writer, epoch, "t"), ATTEMPT, number, CHUNK, now_us)
        except DiskFull as error:
            return number, error.detail
    return chunks, ""


def test_all_may_take_a_quarter_of_the_room_and_each_writer_half_of_that(made):
    count, said = fill(made, "a")
    assert count == 12
    assert "the writer has staged" in said
    assert fill(made, "b")[0] == 12
    count, said = fill(made, "c")
    assert count == 1
    assert "of the disk" in said
    assert made.size_bytes == 25 * MB
    assert made.get(StagedBatch("a", 0, "t"), ATTEMPT, 0) == CHUNK


def test_what_is_dropped_makes_room_and_so_does_a_chunk_that_is_sent_again(made):
    fill(made, "a")
    made.put(StagedBatch("a", 0, "t"), ATTEMPT, 3, b"less", 0)
    assert made.size_bytes == 11 * MB + PAGE_BYTES
    made.drop("a", 0, "t")
    assert made.size_bytes == 0
    assert made.get(StagedBatch("a", 0, "t"), ATTEMPT, 0) is None
    assert fill(made, "a")[0] == 12


def test_the_reserve_is_left_alone_but_for_a_little_that_deletes_may_have(made, disk):
    disk.free_bytes = RESERVE_BYTES
    made.put(StagedBatch("a", 0, "t"), ATTEMPT, 0, b"delete")
    assert fill(made, "b")[0] == RESERVE_BYTES // 4 // 2 // MB


def test_abandoned_batches_go_when_others_need_the_room_the_longest_idle_first(made):
    fill(made, "a", now_us=0)
    fill(made, "b", now_us=1000)
    assert fill(made, "c", now_us=ABANDONED_US)[0] == 1
    assert fill(made, "c", now_us=ABANDONED_US + 1)[0] == 12
    assert made.get(StagedBatch("a", 0, "t"), ATTEMPT, 0) is None
    assert made.get(StagedBatch("b", 0, "t"), ATTEMPT, 0) == CHUNK


def test_a_batch_goes_after_a_day_without_a_chunk(made):
    made.put(StagedBatch("a", 0, "t"), ATTEMPT, 0, b"x", 0)
    made.put(StagedBatch("b", 0, "t"), ATTEMPT, 0, b"x", 0)
    made.put(StagedBatch("b", 0, "t"), ATTEMPT, 1, b"x", 1000)
    assert made.sweep(BATCH_KEPT_US) == 0
    assert made.sweep(BATCH_KEPT_US + 1) == 1
    assert made.get(StagedBatch("b", 0, "t"), ATTEMPT, 0) == b"x"
    assert made.sweep(BATCH_KEPT_US + 1001) == 1
    assert made.size_bytes == 0


def test_a_start_counts_what_is_there_and_gives_it_another_day(tmp_path, disk, made):
    fill(made, "a")
    batch = made._path(StagedBatch("a", 0, "t"), ATTEMPT, 0).parent
    (batch / "0-half-0.1234abcd").write_bytes(CHUNK)
    (tmp_path / "staging" / ".dropped" / "sub").mkdir(parents=True)
    disk.staging = again = Staging(tmp_path / "staging", BATCH_KEPT_US * 365, disk)
    assert again.size_bytes == 12 * MB
    assert fill(again, "a", now_us=BATCH_KEPT_US * 365, epoch=1)[0] == 0
    assert again.sweep(BATCH_KEPT_US * 366) == 0
    assert again.get(StagedBatch("a", 0, "t"), ATTEMPT, 11) == CHUNK
    assert again.sweep(BATCH_KEPT_US * 366 + 1) == 1
    assert list((tmp_path / "staging").iterdir()) == []


def test_chunks_are_bounded_in_number(made, monkeypatch):
    monkeypatch.setattr(staging, "CHUNKS_MAX", 3)
    for number in range(3):
        made.put(StagedBatch("a", number, "t"), ATTEMPT, 0, b"x")
    with pytest.raises(DiskFull, match="3 chunks"):
        made.put(StagedBatch("a", 0, "t"), ATTEMPT, 1, b"x")


def test_a_chunk_that_cannot_be_written_takes_no_room(made, monkeypatch):
    def refuse(_path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(staging, "rewrite", refuse)
    with pytest.raises(DiskFull, match="cannot be written"):
        made.put(StagedBatch("a", 0, "t"), ATTEMPT, 0, b"x")
    assert made.size_bytes == 0


def test_a_chunk_whose_batch_is_dropped_meanwhile_is_refused(made, monkeypatch):
    write = staging.rewrite

    def dropping(path):
        made.drop("a", 0, "t")
        return write(path)

    monkeypatch.setattr(staging, "rewrite", dropping)
    with pytest.raises(StoreError, match="dropped meanwhile") as caught:
        made.put(StagedBatch("a", 0, "t"), ATTEMPT, 0, b"x")
    assert caught.value.status == 409
    assert made.size_bytes == 0
