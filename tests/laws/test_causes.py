"""The law of causes: whatever writes to a topic, each publish is one message of its queue and sets
each action off once, beside views, conflated topics, lifetimes, reloads, and deaths of the process.

A naive model has the records with the ends of their lifetimes, and lists what each write has to
cause. Writes are publishes, deltas, deletes by filter and staged batches, one of which a death may
cut short, or which comes twice. Actions come and go by reloads. At the end the queue, with what was
acknowledged, has to have every publish in order, and the log every run of an action.
"""

import json
from contextlib import nullcontext, suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.action_definitions import ActionDeed, ActionDefinition, ActionTrigger
from sow.core.definitions import (
    ACTION_RUNS,
    AUDIT,
    LEASES,
    WRITES,
    WRITES_BEFORE,
    ConflatedTopic,
    QueueSettings,
    Topic,
    View,
)
from sow.engine.queues import ReceivingConsumer
from sow.engine.running_topics import SourceTopic
from sow.sessions.commands import actions
from sow.sessions.commands.commit_plan import StagedRows
from sow.sessions.commands.staged_writes import EpochPassed, EpochReused, StagedWrites
from tests.cases import all_cases
from tests.effort import examples
from tests.laws.harness import ORDERS, SECOND, World

LIFETIME_US = 40 * SECOND
SHORT = replace(ORDERS, expires=True, expiration_us=LIFETIME_US)
MADE, LEFT, GONE, OLD = (
    Topic(name, "json", keys=("/n",), retain=False) for name in ("made", "left", "gone", "old")
)
JOBS = Topic(
    "jobs", "json", conflation_policy="off", queue=QueueSettings("orders", lease_us=5 * SECOND)
)
TOPICS = (
    SHORT,
    View("sums", "json", ("orders",), ("/g AS /g", "COUNT(/id) AS /c"), ("/g",)),
    ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND),
    *(JOBS, MADE, LEFT, GONE, OLD, LEASES, WRITES, WRITES_BEFORE, AUDIT, ACTION_RUNS),
)  # fmt: skip


def action(kind, into, **more):
    deed = ActionDeed("publish-message", topic=into.name, data='{"n":1,"d":{{AMPS_DATA}}}')
    return ActionDefinition(ActionTrigger(kind, into.name, topic="orders", **more), (deed,))


ACTIONS = (
    action("publish-message", MADE),
    action("oof-message", LEFT, filter="/open = 1", type="match"),
    action("oof-message", GONE, type="delete"),
    action("sow-expire-message", OLD),
)


class Run:
    """A world, and what its writes have to have caused."""

    def __init__(self):
        self.world = World(*TOPICS, actions=ACTIONS)
        self.writes = StagedWrites(self.world.engine)
        self.epoch = 0
        self.state = {}
        """By id: the record, and when it expires."""
        self.published, self.acknowledged = [], []
        self.caused = {topic.name: [] for topic in (MADE, LEFT, GONE, OLD)}
        self.is_cut = False
        """A batch was cut short, and what left its focus by its last steps sets off nothing."""

    def settle(self):
        self.world.settle()
        self.world.advance(0)
        self.world.check()

    def cause(self, topic, document):
        if self.world.configuration.actions:
            self.caused[topic.name].append(document)

    # What the model makes of a write.

    def put(self, document, is_delta=False):
        old, ends_us = self.state.get(document["id"], (None, 0))
        new = {**old, **document} if is_delta and old else document
        if not (is_delta and old):
            ends_us = self.world.now + LIFETIME_US
        if old and old.get("open") == 1 and new.get("open") != 1:
            self.cause(LEFT, new)
        self.state[document["id"]] = new, ends_us
        self.published.append(new)
        self.cause(MADE, new)

    def remove(self, id_):
        if id_ in self.state:
            self.cause(GONE, self.state.pop(id_)[0])

    # What happens.

    def publish(self, documents):
        for one in documents:
            self.put(one)
        self.world.publish("orders", *documents)

    def delta(self, documents):
        some = [{name: one[name] for name in one if name != "x"} for one in documents]
        for one in some:
            self.put(one, is_delta=True)
        self.world.publish("orders", *some, delta=True)

    def delete(self, id_):
        self.settle()
        self.remove(id_)
        self.world.delete("orders", f"/id = {id_}")

    def stage(self, rows, is_twice, steps_max):
        self.settle()
        self.epoch += 1
        before = self.state.copy(), [*self.published], {k: [*v] for k, v in self.caused.items()}
        for operation, document in rows:
            if operation == "delete":
                self.remove(document["id"])
            else:
                self.put(document, operation == "delta")
        bodies = [json.dumps(one, separators=(",", ":")).encode() for _, one in rows]
        staged = StagedRows([one for one, _ in rows], [None] * len(rows), bodies)
        steps, _ = self.writes.read(self.writes.topic("orders"), staged)
        now = self.world.now
        if steps_max is None:
            self.writes.apply("w", self.epoch, "orders", steps, now)
            if is_twice:
                with suppress(EpochPassed, EpochReused):
                    self.writes.apply("w", self.epoch, "orders", steps, now)
        else:
            for count, _ in enumerate(self.writes.applying("w", self.epoch, "orders", steps, now)):
                if count >= steps_max:
                    break
            if is_twice:
                self.world.settle()
            self.kill(0, is_in_flight=False)
            messages = self.world.executor.queues.find("jobs").queue.messages
            self.is_cut = True
            if len(messages) + len(self.acknowledged) < len(self.published):
                self.state, self.published, self.caused = before
        self.settle()

    def lease(self, count):
        self.settle()
        queue, got = self.world.executor.queues.find("jobs"), []
        consumer = ReceivingConsumer(count, lambda _: "a", got.extend)
        queue.join(consumer, self.world.now)
        queue.leave(consumer)
        for one in got[1:]:
            assert queue.acknowledge([one.bookmark], one.lease, self.world.now) == 1
            self.acknowledged.append(json.loads(one.body))
        queue.settle(self.world.now)
        self.settle()

    def wait(self, seconds):
        self.settle()
        self.world.advance(seconds * SECOND)
        ends = sorted((ends_us, id_) for id_, (_, ends_us) in self.state.items())
        for ends_us, id_ in ends:
            if ends_us <= self.world.now:
                self.cause(OLD, self.state.pop(id_)[0])

    def reload(self):
        self.settle()
        there = () if self.world.configuration.actions else ACTIONS
        configuration = replace(self.world.configuration, actions=there)
        self.world.executor.reconfigure(configuration, self.world.now)
        self.world.configuration = configuration

    def kill(self, away_s, is_in_flight):
        if is_in_flight:
            self.world.settle()
            self.world.engine.publish("orders", [b'{"id":99}'], self.world.now)
        self.world = self.world.restart(start_us=self.world.now + away_s * SECOND)
        self.writes = StagedWrites(self.world.engine)
        self.wait(0)

    def compare(self):
        self.wait(3)
        messages = self.world.executor.queues.find("jobs").queue.messages
        bodies = [self.world.engine.topics["jobs"].records.body(messages[at].identity)
                  for at in sorted(messages)]  # fmt: skip
        assert in_any_order([*self.acknowledged, *map(json.loads, bodies)]) == in_any_order(
            self.published
        )
        made = {name: [] for name in self.caused}
        for entry in self.world.journal.read(0):
            if entry.topic in made:
                made[entry.topic] += [json.loads(one)["d"] for one in entry.bodies]
        assert made["made"] == self.caused["made"]
        for name in ("old",) if self.is_cut else ("old", "gone", "left"):
            assert in_any_order(made[name]) == in_any_order(self.caused[name]), name


def in_any_order(documents):
    return sorted(json.dumps(one, sort_keys=True) for one in documents)


ids = st.integers(0, 4)
document = st.builds(
    lambda id_, open_, x: {"id": id_, "open": open_, "x": x, "g": id_ % 2},
    ids, st.sampled_from([0, 1]), st.integers(0, 9),
)  # fmt: skip
documents = st.lists(document, min_size=1, max_size=3, unique_by=lambda one: one["id"])
row = st.tuples(st.sampled_from(["publish", "delta", "delete"]), document)
rows = st.lists(row, min_size=1, max_size=5)
acts = st.one_of(
    st.tuples(st.just("publish"), documents),
    st.tuples(st.just("delta"), documents),
    st.tuples(st.just("delete"), ids),
    st.tuples(st.just("stage"), rows, st.booleans(), st.none() | st.integers(0, 12)),
    st.tuples(st.just("lease"), st.integers(1, 3)),
    st.tuples(st.just("wait"), st.sampled_from([1, 20, 45])),
    st.tuples(st.just("reload")),
    st.tuples(st.just("kill"), st.sampled_from([0, 50]), st.booleans()),
)


@examples(20)
@given(st.lists(acts, max_size=10))
def test_each_publish_is_one_message_and_sets_each_action_off_once(taken):
    lived(taken)


def lived(taken):
    run = Run()
    for name, *arguments in taken:
        getattr(run, name)(*arguments)
    run.compare()


ONE = {"id": 1, "open": 1, "x": 1, "g": 1}
LIFE = (
    ("publish", [ONE, {**ONE, "id": 2}]),
    ("stage", [("delta", {"id": 1, "open": 0}), ("publish", {**ONE, "id": 3})], True, None),
    ("delete", 1),
    ("kill", 0, True),
    ("wait", 45),
)


def _forgets_the_last_message(monkeypatch):
    """Of several messages the last one is none of a queue."""
    enqueue = SourceTopic.enqueue
    monkeypatch.setattr(
        SourceTopic,
        "enqueue",
        lambda self, names, bodies, seqs, now_us: enqueue(
            self, names[:1], bodies[:1], seqs[:1], now_us
        ),
    )


def _takes_an_expiry_for_a_delete(monkeypatch):
    """A record that has expired was deleted, to actions."""
    monkeypatch.setattr(actions, "TYPES", {**actions.TYPES, "expired": "delete"})


@all_cases("plant", [_forgets_the_last_message, _takes_an_expiry_for_a_delete, None])
def test_a_bug_is_found(plant):
    with pytest.MonkeyPatch.context() as monkeypatch:
        if plant is not None:
            plant(monkeypatch)
        with nullcontext() if plant is None else pytest.raises(AssertionError):
            lived(LIFE)
