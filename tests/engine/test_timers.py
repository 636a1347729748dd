"""Timers: what is due is done once, at its time, in the order in which it was added."""

from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES, WRITES_BEFORE, Topic
from sow.engine import timers
from sow.engine.timers import Deadline, Expirations, Timers
from sow.sessions.commands.commit_plan import StagedRows, read
from sow.sessions.commands.staged_writes import StagedWrites
from sow.store.memory import Table
from sow.store.protocols import Slice, numbers
from tests.laws.harness import SECOND, World


class Item:
    """Something that is due when it says; `act` is called with it and the time, if it has one."""

    def __init__(self, due_us=None, act=None):
        self.at_us = due_us
        self.act = act

    def due_us(self):
        return self.at_us

    def advance(self, now_us):
        return self.act(self, now_us)


def made(*dues_us):
    """Timers with an item for each time, and what has been done, as (item, time)."""
    timers, done, items = Timers(), [], [Item(due_us) for due_us in dues_us]

    def act(item, now_us):
        done.append((items.index(item), now_us))
        item.at_us = None

    for item in items:
        item.act = act
        timers.add(item)
    return timers, items, done


def test_things_are_done_when_they_are_due_each_once():
    timers, _, done = made(30, 10)
    assert timers.due_us() == 10
    run_to_completion(timers.run(9))
    run_to_completion(timers.run(10))
    run_to_completion(timers.run(40))
    run_to_completion(timers.run(50))
    assert done == [(1, 10), (0, 40)]
    assert timers.due_us() is None
    timers.check()


def test_at_the_same_time_the_first_to_be_added_goes_first():
    timers, _, done = made(10, 10, 10)
    run_to_completion(timers.run(10))
    assert [item for item, _ in done] == [0, 1, 2]


def test_what_is_late_is_done_in_the_order_in_which_it_was_due():
    timers, items, done = made(10, 15)

    def act(item, now_us):
        done.append((item.at_us, now_us))
        item.at_us += 2 if item.at_us % 2 else 4  # the second one is due again at 17

    for item in items:
        item.act = act
    run_to_completion(timers.run(17))
    assert [due_us for due_us, _ in done] == [10, 14, 15, 17]
    timers.check()


def test_what_is_due_earlier_than_it_was_is_noted():
    timers, items, done = made(30, None)
    items[0].at_us, items[1].at_us = 20, 25
    timers.note(items[0])
    timers.expect(items[1])
    timers.check()
    assert timers.due_us() == 20
    run_to_completion(timers.run(25))
    assert done == [(0, 25), (1, 25)]


def test_what_is_due_later_than_it_was_waits():
    timers, items, done = made(10)
    items[0].at_us = 20
    run_to_completion(timers.run(10))
    assert (done, timers.due_us()) == ([], 20)
    timers.check()


def test_what_is_due_again_at_once_waits_its_turn():
    timers, items, done = made(10, 10)

    def again(_item, now_us):
        done.append((0, now_us))

    items[0].act = again
    run_to_completion(timers.run(10))
    assert [item for item, _ in done] == [0, 1]
    assert timers.due_us() == 10


def test_what_is_removed_is_not_waited_for():
    timers, items, done = made(10)
    timers.remove(items[0])
    timers.note(items[0])
    run_to_completion(timers.run(99))
    assert (done, timers.due_us()) == ([], None)
    timers.check()


def test_something_that_is_due_and_was_not_noted_is_found_out():
    timers, items, _ = made(None)
    items[0].at_us = 5
    with pytest.raises(AssertionError, match="due unnoticed"):
        timers.check()


def test_between_two_steps_others_are_noted_and_what_was_done_waits():
    timers, items, done = made(10, 10, None)

    def again(_item, now_us):
        done.append((0, now_us))

    items[0].act = again
    items[1].act = lambda _item, now_us: done.append((1, now_us))
    steps = timers.run(10)
    next(steps)
    timers.note(items[0])
    timers.expect(items[0])
    items[2].at_us = 5
    timers.note(items[2])
    timers.check()
    for _ in steps:
        timers.check()
    assert [item for item, _ in done] == [0, 2, 1], "none of them twice"
    assert timers.due_us() == 10


def test_a_run_that_is_given_up_forgets_nothing():
    timers, _, done = made(10, 10)
    steps = timers.run(10)
    next(steps)
    steps.close()
    timers.check()
    run_to_completion(timers.run(10))
    assert [item for item, _ in done] == [0, 1]


def test_what_fails_is_not_tried_again_until_it_is_noted():
    timers, items, done = made(10, 10)

    def fail(_item, _now_us):
        raise ValueError("no")

    items[0].act = fail
    with pytest.raises(ValueError, match="no"):
        run_to_completion(timers.run(10))
    run_to_completion(timers.run(10))
    assert (done, timers.due_us()) == ([(1, 10)], None)


def test_what_is_removed_while_others_are_done_is_forgotten():
    timers, items, _ = made(10, 10)
    steps = timers.run(10)
    next(steps)
    items[0].at_us = 10
    timers.remove(items[0])
    run_to_completion(steps)
    timers.check()
    assert timers.due_us() is None


def test_what_was_done_is_waited_for_again_some_at_a_time(monkeypatch):
    monkeypatch.setattr("sow.engine.timers.NOTED_AT_ONCE", 2)
    timers, items, done = made(*[10] * 7)
    steps = timers.run(10)
    for item in items:
        next(steps)
        item.at_us = 20
    assert timers.due_us() is None, "until the run is over"
    waiting = []
    for _ in steps:
        timers.check()
        waiting.append(len(timers._noted))
    assert waiting == [2, 4, 6]
    timers.check()
    assert (len(done), timers.due_us()) == (7, 20)


def test_what_is_added_beside_another_one_goes_right_after_it():
    timers, items, done = made(10, 10)
    beside = Item(10)
    items.append(beside)

    def act(item, now_us):
        done.append((items.index(item), now_us))
        item.at_us = None

    beside.act = act
    timers.add(beside, beside=items[0])
    run_to_completion(timers.run(10))
    assert [item for item, _ in done] == [0, 2, 1]


def test_what_comes_of_an_item_is_handed_on():
    timers, given = Timers(), []
    item = Item(10, lambda item, now_us: timers.remove(item) or now_us)
    timers.add(item, lambda *given_on: given.append(given_on))
    run_to_completion(timers.run(12))
    run_to_completion(timers.run(13))
    assert given == [(item, 12)]


def test_long_work_takes_a_step_now_and_the_others_as_they_fall_due():
    timers, done = Timers(), []

    def work(count):
        for step in range(count):
            if step:
                yield
            done.append(step)

    assert not timers.go_on(work(1))
    assert timers.go_on(work(3))
    assert (done, timers.due_us()) == ([0, 0], 0)
    for _ in range(2):
        run_to_completion(timers.run(1))
    assert (done, timers.due_us()) == ([0, 0, 1, 2], None)


def test_a_deadline_acts_when_it_is_due():
    timers, done = Timers(), []
    deadline = Deadline(lambda: 10, lambda: timers.remove(deadline) or done.append("over"))
    timers.add(deadline)
    for now_us in (9, 10, 11):
        run_to_completion(timers.run(now_us))
    assert done == ["over"]


EXPIRING = Topic("t", "json", keys=("/id",), expires=True)

names = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12)
lifetimes = st.sampled_from([0, 1, 2, 3, 5, 40])
steps = st.one_of(
    st.tuples(st.sampled_from(["put", "touch"]), names, lifetimes),
    st.tuples(st.just("drop"), names, st.just(0)),
    st.tuples(st.just("wait"), st.just([]), st.integers(min_value=1, max_value=6)),
    st.tuples(st.just("restart"), st.just([]), st.just(0)),
)


def table():
    return Table(None)


class Both:
    """A table with its expirations, and dictionaries that say what ought to be."""

    def __init__(self):
        self.now = 0
        self.seq = 0
        self.table = table()
        self.expirations = Expirations(self.table)
        self.model = {}

    def put(self, names, lifetime):
        expires = self.now + lifetime if lifetime else 0
        count = len(names)
        seqs = range(self.seq + 1, self.seq + 1 + count)
        self.seq += count
        self.table.put(names, [b"x"] * count, seqs, [self.now] * count, expires)
        self.expirations.add(names, expires)
        self.model |= dict.fromkeys(names, expires)

    def touch(self, names, lifetime):
        """Each keeps its time; those that are new get one together."""
        expires = self.now + lifetime if lifetime else 0
        count = len(names)
        seqs = range(self.seq + 1, self.seq + 1 + count)
        self.seq += count
        expiries = self.table.expiries(names, expires)
        self.table.put(names, [b"y"] * count, seqs, [self.now] * count, expiries)
        self.expirations.add(names, expiries)
        self.model = dict.fromkeys(names, expires) | self.model

    def drop(self, names, _):
        self.table.drop(names)
        for name in names:
            self.model.pop(name, None)

    def wait(self, _, by):
        for _ in range(by):
            self.now += 1
            ended = {name for name, at in self.model.items() if at and at <= self.now}
            taken = []
            while (due := self.expirations.due_us()) is not None and due <= self.now:
                some = self.expirations.take(self.now)
                self.drop(some, 0)
                taken += some
                self.expirations.check()
            assert len(taken) == len(set(taken))
            assert set(taken) == ended, f"at {self.now}"
            ends = [at for at in self.model.values() if at]
            due = self.expirations.due_us()
            assert not ends or (due is not None and due <= min(ends))

    def restart(self, *_):
        part, self.table = self.table.slice(0, 1000), table()
        self.table.restore(part)
        self.table.settle()
        self.expirations = Expirations(self.table)
        run_to_completion(self.expirations.restore())


@given(st.lists(steps, max_size=60))
def test_what_has_a_lifetime_goes_at_its_end_and_nothing_else_does(history):
    both = Both()
    with (
        mock.patch.object(timers, "ENTRIES_MIN", 2),
        mock.patch.object(timers, "EXPIRED_AT_ONCE", 3),
        mock.patch.object(timers, "SIFTED_FACTOR", 1),
    ):
        for kind, some, number in history:
            getattr(both, kind)(some, number)
        both.wait([], 60)


def test_entries_that_are_out_of_date_do_not_pile_up():
    both = Both()
    for _ in range(100):
        both.put([f"r{number}" for number in range(100)], 40)
        both.now += 1
        assert len(both.expirations) < 2 * timers.ENTRIES_MIN
        both.expirations.check()


def test_however_many_expire_at_once_few_are_taken_in_one_go():
    both, many = Both(), 5 * timers.EXPIRED_AT_ONCE
    both.put([f"r{number}" for number in range(many)], 1)
    both.now += 1
    for left in range(many - timers.EXPIRED_AT_ONCE, -1, -timers.EXPIRED_AT_ONCE):
        both.drop(both.expirations.take(both.now), 0)
        assert len(both.table) == left
    assert both.expirations.due_us() is None


def test_entries_out_of_date_are_passed_over_a_few_at_a_time():
    both, many = Both(), 3 * timers.EXPIRED_AT_ONCE
    names = [f"r{number}" for number in range(many)]
    both.put(names, 1)
    both.put(names, 5)
    both.now += 1
    for left in (2, 1, 0):
        assert both.expirations.take(both.now) == []
        assert len(both.expirations) == many + left * timers.EXPIRED_AT_ONCE


def test_many_records_in_the_first_request_to_an_empty_topic_expire():
    world = World(EXPIRING)
    many = 3 * timers.ENTRIES_MIN
    world.publish("t", *({"id": number} for number in range(many)), expires_s=2)
    world.advance(SECOND)
    assert len(world.records("t")) == many
    world.advance(SECOND)
    assert world.records("t") == []


def test_lifetimes_of_a_batch_write_end():
    topic = Topic("t", "json", keys=("/id",), expires=True, expiration_us=2 * SECOND)
    world = World(topic, WRITES, WRITES_BEFORE)
    many = 3 * timers.ENTRIES_MIN
    rows = StagedRows(["publish"] * many, [None] * many, [b'{"id":%d}' % at for at in range(many)])
    step = read(world.engine.topics["t"].records, rows)
    StagedWrites(world.engine).apply("w", 1, "t", [step], world.now)
    world.settle()
    assert len(world.records("t")) == many
    world.advance(2 * SECOND)
    assert world.records("t") == []


def test_lifetimes_are_taken_over_a_few_at_a_time():
    both, many = Both(), 3 * timers.RESTORED_AT_ONCE
    for lifetime in range(1, 11):
        both.put([f"r{number}" for number in range(many) if number % 10 == lifetime - 1], lifetime)
    both.drop(["r0", "r1"], 0)
    restored = Expirations(both.table)
    taken_over = []
    for _ in restored.restore():
        taken_over.append(len(restored))
    steps = [after - before for before, after in pairwise(taken_over)]
    assert max(steps) <= timers.RESTORED_AT_ONCE
    assert len(restored) == many - 2
    restored.check()


def test_an_older_state_in_a_checkpoint_does_not_lend_its_lifetime_to_a_newer_one():
    """A checkpoint is cut piece by piece: a record that moves meanwhile is in it twice."""
    restored = table()
    restored.restore(Slice(["a"], [b"1"], numbers([1]), numbers([10]), numbers([1]), numbers([99])))
    restored.restore(Slice(["a"], [b"2"], numbers([2]), numbers([20]), numbers([1]), numbers([0])))
    expiring = Expirations(restored)
    run_to_completion(expiring.restore())
    assert expiring.take(1000) == []
