"""Ledger: moments, numbers and groups."""

import pytest

from sow.engine.wal import CommitSequencer
from sow.store.protocols import LogEntry


def publish(ledger, count=1, account=False):
    seqs = ledger.numbers(count, account)
    bodies = [b"{}"] * count
    ledger.write(LogEntry("publish", "t", seqs[0], ledger.now_us, None, bodies, 0, account))
    return list(seqs)


def test_time_never_goes_back():
    ledger = CommitSequencer()
    assert [ledger.moment(now_us) for now_us in (5, 3, 7)] == [5, 5, 7]


def test_no_time_of_arrival_is_given_twice_and_what_is_logged_later_has_no_earlier_one():
    ledger = CommitSequencer()
    found = [*ledger.arrivals(3, 5), *ledger.arrivals(2, 6), *ledger.arrivals(1, 20)]
    assert found == [5, 6, 7, 8, 9, 20]
    assert (len(ledger.arrivals(0, 0)), ledger.moment(3)) == (0, 20)


def test_times_of_arrival_go_on_after_the_newest_moment_of_another_life():
    ledger = CommitSequencer()
    ledger.moment(9)
    ledger.begin_after(17)
    assert [*ledger.arrivals(2, 4)] == [10, 11]


def test_numbers_are_dense_and_accounts_take_none():
    ledger = CommitSequencer()
    assert publish(ledger, 3) == [1, 2, 3]
    assert publish(ledger, 2, account=True) == [3, 3]
    assert publish(ledger) == [4]
    ledger.check()


def test_numbers_go_on_after_those_of_another_life():
    ledger = CommitSequencer()
    ledger.begin_after(17)
    assert publish(ledger) == [18]


def test_entries_are_on_their_way_until_their_group_is_released():
    ledger = CommitSequencer()
    publish(ledger)
    publish(ledger, account=True)
    first = ledger.close()
    publish(ledger, 2)
    assert [entry.seq for entry in ledger.in_flight()] == [1, 2]
    ledger.release(first)
    assert [entry.seq for entry in ledger.in_flight()] == [2]
    assert (first.number, ledger.released, ledger.open.number) == (1, 1, 2)
    ledger.check()


def test_groups_without_entries_are_released_in_their_order_too():
    ledger = CommitSequencer()
    empty, other = ledger.close(), ledger.close()
    with pytest.raises(AssertionError):
        ledger.release(other)
    ledger.release(empty)
    ledger.release(other)
    assert ledger.released == 2


def test_a_hole_in_the_log_is_found_out():
    ledger = CommitSequencer()
    publish(ledger)
    ledger.numbers(1, False)
    publish(ledger)
    with pytest.raises(AssertionError, match="a hole"):
        ledger.check()


def test_it_knows_what_has_changed_and_is_not_durable_and_up_to_where_all_is():
    ledger = CommitSequencer()
    assert ledger.durable_seq == 0
    publish(ledger, 2)
    ledger.note("t", "one")
    first = ledger.close()
    ledger.note("t", "two")
    ledger.note("other", "three")
    publish(ledger)
    assert [*ledger.changes_in_flight("t")] == ["one", "two"]
    assert (ledger.seq, ledger.durable_seq) == (3, 0)
    ledger.release(first)
    assert ([*ledger.changes_in_flight("t")], ledger.durable_seq) == (["two"], 2)
    second = ledger.close()
    assert [*ledger.changes_in_flight("other")] == ["three"]
    ledger.release(second)
    assert ([*ledger.changes_in_flight("t")], ledger.durable_seq) == ([], 3)
    ledger.check()
