"""Overflow: when a queue is folded again, and how long its client may take."""

import pytest

from sow.core.definitions import SessionSettings
from sow.streaming.outbox.outbox import Outbox
from sow.streaming.outbox.overflow import (
    BURST_FACTOR,
    FOLDED_TOGETHER,
    GIVEN_UP_MAX,
    PATIENCE_US,
    ConflationBudget,
    Overflow,
)


@pytest.fixture
def outbox():
    return Outbox(SessionSettings(queue_messages_max=10, queue_bytes_max=100))


@pytest.fixture
def overflow(outbox):
    return Overflow(outbox.queue, SessionSettings(queue_messages_max=10, queue_bytes_max=100))


def test_time_counts_from_the_first_call_after_a_pause(overflow):
    assert not overflow.lasts_too_long(5)
    assert not overflow.lasts_too_long(5 + PATIENCE_US)
    assert overflow.lasts_too_long(6 + PATIENCE_US)
    overflow.pause()
    assert not overflow.lasts_too_long(6 + PATIENCE_US)


def test_what_was_folded_is_worth_it_again_when_it_has_grown_or_was_empty(outbox, overflow):
    assert overflow.is_worth_folding
    overflow.note_folded(is_full=False)
    outbox.push(b"x", 1, 0, 0)
    assert not overflow.is_worth_folding, "a tenth of the bound, and not more"
    outbox.push(b"x", 1, 0, 0)
    assert overflow.is_worth_folding
    overflow.note_folded(is_full=False)
    overflow.end()
    assert overflow.is_worth_folding
    assert not overflow.is_noted


def test_a_burst_is_excessive_over_so_many_times_the_bound(outbox, overflow):
    outbox.push(b"x" * BURST_FACTOR * 100, 1, 0, 0)
    assert not overflow.is_excessive
    outbox.push(b"x", 1, 0, 0)
    assert overflow.is_excessive


def test_only_the_last_times_and_the_first_topics_are_remembered(overflow):
    for at in range(GIVEN_UP_MAX + 1):
        overflow.note_given_up(at, [f"topic {number}" for number in range(20)], 3)
    assert overflow.dropped == 3 * (GIVEN_UP_MAX + 1)
    assert [one.at_us for one in overflow.given_up] == [*range(1, GIVEN_UP_MAX + 1)]
    last = overflow.given_up[-1]
    assert (len(last.topics), last.subscriptions, last.lines) == (GIVEN_UP_MAX, 20, 3)


class Debtor:
    """Owes so many steps."""

    def __init__(self, steps):
        self.steps = steps

    @property
    def backlogged(self):
        return self.steps > 0

    def fold(self):
        self.steps -= 1


def test_so_much_is_allowed_in_a_step_whoever_asks():
    conflation_budget = ConflationBudget()
    assert conflation_budget.allowed(1, FOLDED_TOGETHER - 10) == FOLDED_TOGETHER - 10
    assert conflation_budget.allowed(1, 50) == 10
    assert conflation_budget.allowed(1, 50) == 0
    assert conflation_budget.allowed(2, 50) == 50, "the next step"


def test_what_is_owed_is_worked_off_one_beside_the_other():
    conflation_budget, folded = ConflationBudget(), []
    debtors = [Debtor(2), Debtor(0), Debtor(3)]

    def fold(one):
        folded.append(debtors.index(one))
        one.fold()

    for one in debtors:
        conflation_budget.note(one, fold)
    assert conflation_budget.must_work_off()
    assert len(list(conflation_budget.work_off())) == 5
    assert folded == [0, 2, 0, 2, 2]
    assert not conflation_budget.must_work_off()


def test_who_owes_nothing_any_more_holds_nobody_up():
    conflation_budget = ConflationBudget()
    debtor = Debtor(5)
    conflation_budget.note(debtor, Debtor.fold)
    debtor.steps = 0
    assert not conflation_budget.must_work_off()
    assert list(conflation_budget.work_off()) == []
