"""Lifetimes against a naive model: what has one goes at its end, and nothing else does."""

from itertools import pairwise
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES, WRITES_BEFORE, Topic
from sow.sessions.commands.commit_plan import StagedRows, read
from sow.sessions.commands.staged_writes import StagedWrites
from sow.store.memory import Table
from sow.store.protocols import Slice, numbers
from sow.topic import expirations
from sow.topic.expirations import Expirations
from tests.laws.harness import SECOND, World

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
        mock.patch.object(expirations, "ENTRIES_MIN", 2),
        mock.patch.object(expirations, "EXPIRED_AT_ONCE", 3),
        mock.patch.object(expirations, "SIFTED_FACTOR", 1),
    ):
        for kind, some, number in history:
            getattr(both, kind)(some, number)
        both.wait([], 60)


def test_entries_that_are_out_of_date_do_not_pile_up():
    both = Both()
    for _ in range(100):
        both.put([f"r{number}" for number in range(100)], 40)
        both.now += 1
        assert len(both.expirations) < 2 * expirations.ENTRIES_MIN
        both.expirations.check()


def test_however_many_expire_at_once_few_are_taken_in_one_go():
    both, many = Both(), 5 * expirations.EXPIRED_AT_ONCE
    both.put([f"r{number}" for number in range(many)], 1)
    both.now += 1
    for left in range(many - expirations.EXPIRED_AT_ONCE, -1, -expirations.EXPIRED_AT_ONCE):
        both.drop(both.expirations.take(both.now), 0)
        assert len(both.table) == left
    assert both.expirations.due_us() is None


def test_entries_out_of_date_are_passed_over_a_few_at_a_time():
    both, many = Both(), 3 * expirations.EXPIRED_AT_ONCE
    names = [f"r{number}" for number in range(many)]
    both.put(names, 1)
    both.put(names, 5)
    both.now += 1
    for left in (2, 1, 0):
        assert both.expirations.take(both.now) == []
        assert len(both.expirations) == many + left * expirations.EXPIRED_AT_ONCE


def test_many_records_in_the_first_request_to_an_empty_topic_expire():
    world = World(EXPIRING)
    many = 3 * expirations.ENTRIES_MIN
    world.publish("t", *({"id": number} for number in range(many)), expires_s=2)
    world.advance(SECOND)
    assert len(world.records("t")) == many
    world.advance(SECOND)
    assert world.records("t") == []


def test_lifetimes_of_a_batch_write_end():
    topic = Topic("t", "json", keys=("/id",), expires=True, expiration_us=2 * SECOND)
    world = World(topic, WRITES, WRITES_BEFORE)
    many = 3 * expirations.ENTRIES_MIN
    rows = StagedRows(["publish"] * many, [None] * many, [b'{"id":%d}' % at for at in range(many)])
    step = read(world.engine.topics["t"].records, rows)
    StagedWrites(world.engine).apply("w", 1, "t", [step], world.now)
    world.settle()
    assert len(world.records("t")) == many
    world.advance(2 * SECOND)
    assert world.records("t") == []


def test_lifetimes_are_taken_over_a_few_at_a_time():
    both, many = Both(), 3 * expirations.RESTORED_AT_ONCE
    for lifetime in range(1, 11):
        both.put([f"r{number}" for number in range(many) if number % 10 == lifetime - 1], lifetime)
    both.drop(["r0", "r1"], 0)
    restored = Expirations(both.table)
    taken_over = []
    for _ in restored.restore():
        taken_over.append(len(restored))
    steps = [after - before for before, after in pairwise(taken_over)]
    assert max(steps) <= expirations.RESTORED_AT_ONCE
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
