"""The journal and the checkpoint in memory keep the promises of those on disk."""

import pytest

from sow.errors import DiskFull, StoreError
from sow.store.protocols import LogEntry
from tests.store.entries import group, part, publish, records
from tests.store.in_memory import MemoryCheckpoint, MemoryJournal


def test_what_was_appended_is_read_from_any_record_on():
    journal = MemoryJournal()
    journal.append([publish(1, b"a", b"b"), publish(3, b"c")])
    assert (journal.first_seq, journal.last_seq) == (1, 3)
    assert records(journal.read(0)) == records([publish(1, b"a", b"b"), publish(3, b"c")])
    assert [entry.seq for entry in journal.read(1)] == [1, 3]  # the entry that holds record 2
    assert [entry.seq for entry in journal.read(2)] == [3]
    assert list(journal.read(3)) == []


def test_a_gap_in_the_numbers_is_a_fault():
    journal = MemoryJournal()
    with pytest.raises(AssertionError, match="does not follow"):
        journal.append([publish(2, b"a")])


def test_what_is_read_is_no_part_of_what_is_kept():
    journal = MemoryJournal()
    bodies = [b"a"]
    journal.append([LogEntry("publish", "t", 1, 0, ["k"], bodies)])
    bodies.append(b"b")
    (read,) = journal.read(0)
    read.bodies.append(b"c")
    assert [entry.bodies for entry in journal.read(0)] == [[b"a"]]


def test_a_full_disk_takes_what_the_reserve_has_and_no_more():
    journal = MemoryJournal()
    journal.full, journal.reserve_bytes = True, 10
    assert not journal.has_room()
    assert journal.is_strained()
    journal.append([LogEntry("delete", "t", 1, 0, ["12345678"], [])])
    assert (journal.takes(2), journal.takes(3)) == (True, False)
    with pytest.raises(DiskFull):
        journal.append([LogEntry("delete", "t", 2, 0, ["123"], [])])
    assert journal.last_seq == 1


def test_a_group_that_is_refused_leaves_nothing():
    def refuse(entries):
        raise StoreError("no")

    journal = MemoryJournal(before_append=refuse)
    with pytest.raises(StoreError):
        journal.append([publish(1, b"a")])
    assert (journal.last_seq, journal.size_bytes, list(journal.read(0))) == (0, 0, [])


def test_retention_drops_the_oldest_and_keeps_what_is_needed():
    journal = MemoryJournal(retention_bytes=250)
    for seq in range(1, 6):
        journal.append(group(seq, 1))
    assert not journal.trim(now_us=0, keep_from_seq=2)
    assert journal.first_seq == 2
    journal.trim(now_us=0, keep_from_seq=99)
    assert journal.first_seq == 4
    with pytest.raises(StoreError, match="record 3 is no longer kept; the oldest is 4"):
        list(journal.read(2))


def test_retention_by_age_keeps_what_is_exactly_so_old():
    journal = MemoryJournal(retention_age_us=10)
    journal.append([publish(1, b"a", ts_us=100), publish(2, b"b", ts_us=101)])
    journal.trim(now_us=110, keep_from_seq=99)
    assert journal.first_seq == 1
    journal.trim(now_us=111, keep_from_seq=99)
    assert journal.first_seq == 2


def test_accounts_take_no_numbers_and_only_their_last_state_is_kept():
    journal = MemoryJournal()
    assert journal.accounts() is None
    one = LogEntry("publish", "w", 0, 0, ["a", "b"], [b"1", b"2"], account=True)
    again = LogEntry("publish", "w", 0, 0, ["a"], [b"3"], account=True)
    gone = LogEntry("delete", "w", 0, 0, ["b"], [], account=True)
    journal.append([one, publish(1, b"x"), again, gone])
    assert journal.last_seq == 1
    assert [entry.topic for entry in journal.read(0)] == ["orders"]
    assert [(entry.identities, entry.bodies) for entry in journal.accounts()] == [(["a"], [b"3"])]


def test_a_checkpoint_is_whole_or_the_one_before():
    checkpoint = MemoryCheckpoint()
    assert (checkpoint.seq, list(checkpoint.load())) == (0, [])
    checkpoint.write(5, [part(1, 2), part(3, 1)])

    def fails():
        yield part(9, 1)
        raise StoreError("no")

    with pytest.raises(StoreError):
        checkpoint.write(9, fails())
    assert checkpoint.seq == 5
    assert list(checkpoint.load()) == [part(1, 2), part(3, 1)]
