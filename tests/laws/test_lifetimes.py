"""Lifetimes against a plain model: a publish sets the lifetime of a record, a delta without one
leaves it as it is, and a restart finds each as it was."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import WRITES, WRITES_BEFORE, ConflatedTopic, Topic
from sow.engine.recovery.redo import stored_slices
from sow.sessions.commands.commit_plan import StagedRows
from sow.sessions.commands.staged_writes import StagedWrites
from tests.laws.harness import MS, SECOND, World

LIVES_5_S = Topic("t", "json", keys=("/id",), expires=True, expiration_us=5 * SECOND)
AS_SENT = Topic("t", "json", keys=("/id",), expires=True)
COPY = ConflatedTopic("t-C", "json", "t", interval_us=SECOND)

EPOCHS = itertools.count()
"""A batch of an epoch that was applied is passed over, whatever is in it."""


def commit(world, *rows):
    """A staged batch of (operation, id)."""
    writes, topic = StagedWrites(world.engine), world.engine.topics["t"]
    operations = [operation for operation, _ in rows]
    bodies = [b'{"id":%d,"n":%d}' % (one, at) for at, (_, one) in enumerate(rows)]
    steps, _ = writes.read(topic, StagedRows(operations, [None] * len(rows), bodies))
    writes.apply("w", next(EPOCHS), "t", steps, world.now)
    world.settle()


def checkpoint(world):
    world.checkpoints["t"].write(world.engine.seq, stored_slices(world.engine.catalog, "t", 2))


def lifetimes(world):
    """When each record of t expires, by its id."""
    table = world.engine.topics["t"].records.table
    times = [0] * len(table.bodies) if table.expires_us is None else table.expires_us
    return {name: int(times[slot]) for name, slot in table.slots.items()}


class Both:
    """A world, and what ought to be in it."""

    def __init__(self, topic):
        self.topic = topic
        self.world = World(topic, COPY, WRITES, WRITES_BEFORE)
        self.ends = {}

    def end(self, lifetime_s):
        if lifetime_s is None:
            lifetime_s = (self.topic.expiration_us or 0) // SECOND
        return self.world.now + lifetime_s * SECOND if lifetime_s else 0

    def publish(self, ids, lifetime_s):
        self.world.publish("t", *({"id": one} for one in ids), expires_s=lifetime_s)
        self.ends |= dict.fromkeys(map(str, ids), self.end(lifetime_s))

    def delta(self, ids, lifetime_s):
        documents = ({"id": one, "d": self.world.engine.seq} for one in ids)
        self.world.publish("t", *documents, expires_s=lifetime_s, delta=True)
        for one in map(str, ids):
            if lifetime_s is not None or one not in self.ends:
                self.ends[one] = self.end(lifetime_s)

    def commit(self, rows, _):
        commit(self.world, *rows)
        for operation, one in rows:
            if operation == "delete":
                self.ends.pop(str(one), None)
            elif operation == "publish" or str(one) not in self.ends:
                self.ends[str(one)] = self.end(None)

    def delete(self, ids, _):
        self.world.delete("t", f"/id = {ids[0]}")
        self.ends.pop(str(ids[0]), None)

    def checkpoint(self, *_):
        checkpoint(self.world)

    def restart(self, *_):
        self.world = self.world.restart()

    def wait(self, _, by_s):
        self.world.advance((by_s or 1) * SECOND)
        self.ends = {one: at for one, at in self.ends.items() if not at or at > self.world.now}

    def check(self):
        assert lifetimes(self.world) == self.ends
        self.world.check()


ids = st.lists(st.integers(0, 4), min_size=1, max_size=6)
rows = st.lists(
    st.tuples(st.sampled_from(["publish", "delta", "delta", "delete"]), st.integers(0, 4)),
    min_size=1, max_size=8,
)  # fmt: skip
lifetime = st.sampled_from([None, None, 0, 1, 3, 20])
acts = st.one_of(
    st.tuples(st.sampled_from(["publish", "delta", "delta", "delete"]), ids, lifetime),
    st.tuples(st.just("commit"), rows, st.none()),
    st.tuples(st.sampled_from(["wait", "restart", "checkpoint"]), st.none(), lifetime),
)


@given(st.sampled_from([LIVES_5_S, AS_SENT]), st.lists(acts, max_size=25))
def test_every_way_to_write_leaves_the_lifetimes_that_the_model_has(topic, history):
    both = Both(topic)
    for act, some, number in history:
        getattr(both, act)(some, number)
        both.check()
    both.restart()
    both.check()


@pytest.mark.parametrize("topic", [LIVES_5_S, AS_SENT])
def test_a_delta_leaves_the_lifetime_and_a_publish_sets_it_again(topic):
    world = World(topic)
    world.publish("t", {"id": 1}, {"id": 2}, {"id": 3}, expires_s=2)
    world.publish("t", {"id": 1, "px": 1}, expires_s=5, delta=True)
    world.publish("t", {"id": 2, "px": 2}, delta=True)
    world.publish("t", {"id": 3})
    world.advance(3 * SECOND)
    assert [record["id"] for record in world.records("t")] == [1, 3]


def test_a_lifetime_of_0_is_for_ever():
    world = World(LIVES_5_S)
    world.publish("t", {"id": 1}, expires_s=0)
    world.publish("t", {"id": 2}, {"id": 3})
    world.publish("t", {"id": 3, "px": 1}, expires_s=0, delta=True)
    world.advance(60 * SECOND)
    assert [record["id"] for record in world.records("t")] == [1, 3]


def test_a_topic_whose_records_stay_takes_a_lifetime_of_0():
    world = World(Topic("t", "json", keys=("/id",)))
    (ack,) = world.client().say(c="publish", t="t", d={"id": 1}, x=0, a="processed", cid="1")
    assert ack["status"] == "success"


def test_a_delta_of_many_slices_leaves_the_lifetime_of_each_record():
    world, many = World(AS_SENT), 3000
    for part in (0, 1):
        some = ({"id": at} for at in range(part, many, 2))
        world.publish("t", *some, expires_s=10 + part)
    before = lifetimes(world)
    world.advance(SECOND)
    world.publish("t", *({"id": at, "d": 1} for at in range(many)), delta=True)
    assert lifetimes(world) == before
    assert lifetimes(world.restart()) == before


def test_a_copy_loses_a_record_when_its_lifetime_ends_whatever_deltas_came():
    world = World(AS_SENT, COPY)
    client = world.client()
    client.say(c="subscribe", t="t-C", opts="oof")
    world.publish("t", {"id": 1}, expires_s=3)
    for _ in range(5):
        world.advance(500 * MS)
        world.publish("t", {"id": 1, "at": world.now}, delta=True)
    world.advance(2 * SECOND)
    assert client.lines()[-1]["reason"] == "expired"
    assert world.records("t-C") == []
