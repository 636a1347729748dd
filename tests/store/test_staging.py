"""Staged chunks: bounded by the disk's room, by writer and by time, whoever stages for ever."""

from types import SimpleNamespace

import pytest

from sow.errors import Damaged, DiskFull, StoreError
from sow.store import staging
from sow.store.environment import RESERVE_BYTES
from sow.store.journal import LmdbJournal
from sow.store.layout import HEADER_BYTES, LOAD_PART, seal
from sow.store.protocols import LogEntry
from sow.store.staging import (
    ABANDONED_US,
    BATCH_KEPT_US,
    PAGE_BYTES,
    Attempt,
    StagedBatch,
    Staging,
    part_key,
)
from tests.store.entries import group, records

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


def loaded(journal, name, parts=3, size=100_000):
    """Write parts of ten records ahead of the log; what is there of the load."""
    for number in range(parts):
        journal.loads.put(name, group(10 * number + 1, 10, size // 10, ts_us=0))
    return journal.loads.load(name)


def link(journal, load):
    entry = LogEntry("publish", "orders", journal.last_seq + 1, 5, None, (), load=load)
    journal.append([entry])


def seqs(journal):
    return [r[2] for r in records(journal.read(journal.first_seq - 1))]


def test_a_load_outlives_the_process_if_it_is_in_the_log_and_else_is_removed(tmp_path):
    journal = LmdbJournal(tmp_path / "j")
    link(journal, loaded(journal, "kept"))
    empty_bytes = journal.size_bytes
    loaded(journal, "begun")
    assert journal.size_bytes > empty_bytes + 300_000
    journal.close()
    journal = LmdbJournal(tmp_path / "j")
    assert (journal.last_seq, seqs(journal)) == (30, list(range(1, 31)))
    while journal.trim(0, 1):
        pass
    assert journal.size_bytes <= empty_bytes
    assert journal.loads.load("begun").parts == 0
    assert seqs(journal) == list(range(1, 31))
    journal.close()


def test_what_of_the_log_is_trimmed_takes_its_load_with_it_a_little_at_a_time(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(staging, "PARTS_REMOVED_AT_ONCE", 2)
    journal = LmdbJournal(tmp_path / "j", retention_bytes=0)
    journal.append(group(1, 10))
    link(journal, loaded(journal, "old", 5))
    link(journal, loaded(journal, "new", 5))
    steps = 1
    while journal.trim(0, 61):
        steps += 1
    assert steps == 5
    assert (journal.first_seq, seqs(journal)) == (61, list(range(61, 111)))
    assert journal.size_bytes < 700_000
    journal.close()
    journal = LmdbJournal(tmp_path / "j", retention_bytes=0)
    while journal.trim(0, 111):
        journal.close()  # each step is the last of a life
        journal = LmdbJournal(tmp_path / "j", retention_bytes=0)
    assert journal.size_bytes < 50_000
    assert journal.moment() == (110, [])
    journal.close()


def test_an_open_reader_keeps_a_load_that_it_has_not_read(tmp_path):
    journal = LmdbJournal(tmp_path / "j", retention_bytes=0)
    link(journal, loaded(journal, "l"))
    reader = journal.read(0)
    assert len(next(reader)) == 10
    journal.append(group(31, 10))
    journal.trim(0, 41)
    assert [entry.seq for entry in reader] == [11, 21, 31]
    while journal.trim(0, 41):
        pass
    assert journal.first_seq == 41
    journal.close()


@pytest.mark.parametrize("harm", ["missing", "another", "bytes"])
def test_a_load_that_is_not_as_it_was_written_is_damage(tmp_path, harm):
    journal = LmdbJournal(tmp_path / "j")
    link(journal, loaded(journal, "l"))
    with journal._env.read() as txn:
        block = txn.get(part_key("l", 1))
    other = {"missing": None, "another": b"", "bytes": block[:-1] + b"?"}[harm]
    if harm == "another":
        other, _ = seal(LOAD_PART, block[HEADER_BYTES:], seq=11, count=10, chain=7)
    journal._env.write(
        lambda txn: (
            txn.delete(part_key("l", 1)) if other is None else txn.put(part_key("l", 1), other)
        )
    )
    reader = journal.read(0)
    assert next(reader).seq == 1
    with pytest.raises(Damaged, match="part 1 of a load"):
        list(reader)
    journal.close()
