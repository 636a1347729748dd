"""The law of actions: however a process dies and wherever time stands, each publish sets its action
off once, and each moment at most once.

A naive model has the ids that were published and stored, each with what the action has to have made
of it, and the moments that have passed. The process dies between two steps, with a step that the
disk never got, or with runs that wait; web hooks answer, fail and are forgotten with the process.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.action_definitions import ActionDeed, ActionDefinition, ActionTrigger
from sow.core.definitions import ACTION_RUNS, AUDIT, Topic
from sow.engine.action_runs import ActionRuns
from sow.engine.engine import Engine
from tests.cases import all_cases
from tests.effort import examples
from tests.laws.harness import ORDERS, SECOND, World
from tests.sessions.commands.test_actions import Hook

EVERY_S = 10
MADE_OF = '{"id":"{{AMPS_SOW_KEY}}","d":{{AMPS_DATA}}}'
MADE = Topic("made", "json", keys=("/id",))
TICKS = Topic("ticks", "json", keys=("/id",), retain=True)
ON_PUBLISH = ActionDefinition(
    ActionTrigger("publish-message", "copy", topic="orders"),
    (
        ActionDeed("publish-message", topic="made", data=MADE_OF),
        ActionDeed("webhook", url="http://hook/", retries=1),
        ActionDeed("publish-message", topic="made", data=MADE_OF[:-1] + ',"called":1}'),
    ),
)
ON_SCHEDULE = ActionDefinition(
    ActionTrigger("schedule", "tick", every=f"{EVERY_S}s"),
    (ActionDeed("publish-message", topic="ticks", data='{"id":1}'),),
)


class Run:
    """A world with the actions, and what is known of it."""

    def __init__(self):
        self.world = World(
            ORDERS, MADE, TICKS, AUDIT, ACTION_RUNS, actions=(ON_PUBLISH, ON_SCHEDULE)
        )
        Hook(self.world)
        self.number = 0
        self.stored = []
        self.failed = 0
        """Runs whose web hook was given up."""
        self.tries = {}
        self.moments = 0
        """Those that have to have been run by now."""
        self.seen_us = self.world.now
        self.world.settle()

    def publish(self, count):
        bodies = []
        for _ in range(count):
            self.number += 1
            bodies.append({"id": self.number})
        self.world.publish("orders", *bodies)
        self.stored += bodies

    def pass_time(self):
        """Moments that are behind have run: all together once, where the process was away."""
        self.moments += self.world.now // (EVERY_S * SECOND) > self.seen_us // (EVERY_S * SECOND)
        self.seen_us = self.world.now

    def wait(self, seconds):
        for _ in range(seconds):
            self.world.advance(SECOND)
            self.pass_time()

    def answer(self, is_well):
        if self.world.hook.calls:
            call = self.world.hook.answer(self.world, "" if is_well else "down")
            failures = self.tries.get(call.run, 0)
            self.tries[call.run] = failures + (not is_well)
            self.failed += not is_well and self.tries[call.run] == 2
            self.world.advance(0)

    def kill(self, is_in_flight, away_s):
        if is_in_flight:
            self.world.engine.publish("orders", [b'{"id":-1}'], self.world.now)
            self.world.engine.advance(self.world.now)
        self.world = self.world.restart(start_us=self.world.now + away_s * SECOND)
        Hook(self.world)
        self.tries.clear()  # they are of a process
        self.world.settle()
        self.world.advance(0)
        self.pass_time()

    def compare(self):
        self.world.check()
        table = self.world.engine.topics["ticks"].records.table
        ticks = [e for e in self.world.journal.read(0) if e.topic == "ticks"]
        assert sum(map(len, ticks)) == self.moments, "a moment was missed, or counted twice"
        assert bool(table.slots) == bool(self.moments)

    def drain(self):
        for _ in range(len(self.stored) * 3 + 3):
            self.wait(3)
            self.answer(True)
        made = self.world.records("made")
        called = [one["id"] for one in made if "called" in one]
        assert [one["d"] for one in made] == self.stored, "a publish set off nothing, or twice"
        assert len(called) == len(self.stored) - self.failed
        publishes = sum(len(one) for one in self.world.journal.read(0) if one.topic == "made")
        assert publishes == len(self.stored) * 2 - self.failed, "a deed was done again"
        assert not self.world.executor.actions.runs.waiting


acts = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.sampled_from([1, 3, 11])),
    st.tuples(st.just("answer"), st.booleans()),
    st.tuples(st.just("kill"), st.booleans(), st.sampled_from([0, 4, 35])),
)


@examples(60)
@given(st.lists(acts, max_size=20))
def test_each_cause_sets_its_action_off_once_whatever_dies(taken):
    run = Run()
    for act, *values in taken:
        getattr(run, act)(*values)
        run.compare()
    run.drain()


def _forgets_the_end(monkeypatch):
    """Runs that have ended stay stored."""
    monkeypatch.setattr(Engine, "remove", lambda *_: 0)


def _forgets_the_deed(monkeypatch):
    """What is stored of a run is its beginning."""
    monkeypatch.setattr(ActionRuns, "go_on", lambda *_: None)


def _forgets_the_moment(monkeypatch):
    """When a schedule ran last is in memory alone."""
    monkeypatch.setattr(ActionRuns, "note_schedule", lambda *_: None)


@all_cases("plant", [_forgets_the_end, _forgets_the_deed, _forgets_the_moment])
def test_a_bug_is_found(plant):
    with pytest.MonkeyPatch.context() as monkeypatch:
        plant(monkeypatch)
        with pytest.raises(AssertionError):
            _lived()


def _lived():
    run = Run()
    for act, *values in (("publish", 2), ("wait", 3), ("answer", True), ("kill", False, 35)):
        getattr(run, act)(*values)
        run.compare()
    run.drain()


def test_the_same_life_without_a_bug_is_fine():
    _lived()
