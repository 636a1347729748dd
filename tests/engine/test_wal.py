"""Ledger: moments, numbers and groups."""

import pytest

from sow.engine.wal import CommitSequencer
from sow.store.protocols import LogEntry


def publish(sequencer, count=1, account=False):
    seqs = sequencer.numbers(count, account)
    bodies = [b"{}"] * count
    sequencer.write(LogEntry("publish", "t", seqs[0], sequencer.now_us, None, bodies, 0, account))
    return list(seqs)


def test_time_never_goes_back():
    sequencer = CommitSequencer()
    assert [sequencer.moment(now_us) for now_us in (5, 3, 7)] == [5, 5, 7]


def test_no_time_of_arrival_is_given_twice_and_what_is_logged_later_has_no_earlier_one():
    sequencer = CommitSequencer()
    found = [*sequencer.arrivals(3, 5), *sequencer.arrivals(2, 6), *sequencer.arrivals(1, 20)]
    assert found == [5, 6, 7, 8, 9, 20]
    assert (len(sequencer.arrivals(0, 0)), sequencer.moment(3)) == (0, 20)


def test_times_of_arrival_go_on_after_the_newest_moment_of_another_life():
    sequencer = CommitSequencer()
    sequencer.moment(9)
    sequencer.begin_after(17)
    assert [*sequencer.arrivals(2, 4)] == [10, 11]


def test_numbers_are_dense_and_accounts_take_none():
    sequencer = CommitSequencer()
    assert publish(sequencer, 3) == [1, 2, 3]
    assert publish(sequencer, 2, account=True) == [3, 3]
    assert publish(sequencer) == [4]
    sequencer.check()


def test_numbers_go_on_after_those_of_another_life():
    sequencer = CommitSequencer()
    sequencer.begin_after(17)
    assert publish(sequencer) == [18]


def test_entries_are_on_their_way_until_their_group_is_released():
    sequencer = CommitSequencer()
    publish(sequencer)
    publish(sequencer, account=True)
    first = sequencer.close()
    publish(sequencer, 2)
    assert [entry.seq for entry in sequencer.in_flight()] == [1, 2]
    sequencer.release(first)
    assert [entry.seq for entry in sequencer.in_flight()] == [2]
    assert (first.number, sequencer.released, sequencer.open.number) == (1, 1, 2)
    sequencer.check()


def test_groups_without_entries_are_released_in_their_order_too():
    sequencer = CommitSequencer()
    empty, other = sequencer.close(), sequencer.close()
    with pytest.raises(AssertionError):
        sequencer.release(other)
    sequencer.release(empty)
    sequencer.release(other)
    assert sequencer.released == 2


def test_a_hole_in_the_log_is_found_out():
    sequencer = CommitSequencer()
    publish(sequencer)
    sequencer.numbers(1, False)
    publish(sequencer)
    with pytest.raises(AssertionError, match="a hole"):
        sequencer.check()


def test_it_knows_what_has_changed_and_is_not_durable_and_up_to_where_all_is():
    sequencer = CommitSequencer()
    assert sequencer.durable_seq == 0
    publish(sequencer, 2)
    sequencer.note("t", "one")
    first = sequencer.close()
    sequencer.note("t", "two")
    sequencer.note("other", "three")
    publish(sequencer)
    assert [*sequencer.changes_in_flight("t")] == ["one", "two"]
    assert (sequencer.seq, sequencer.durable_seq) == (3, 0)
    sequencer.release(first)
    assert ([*sequencer.changes_in_flight("t")], sequencer.durable_seq) == (["two"], 2)
    second = sequencer.close()
    assert [*sequencer.changes_in_flight("other")] == ["three"]
    sequencer.release(second)
    assert ([*sequencer.changes_in_flight("t")], sequencer.durable_seq) == ([], 3)
    sequencer.check()
