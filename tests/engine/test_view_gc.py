"""Groups of views that have gone are forgotten some at a time."""

from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Join, Limits, Topic, View
from sow.engine import view_gc as module
from sow.engine.topic_changes import TopicChanges
from sow.engine.view_gc import ViewGc
from sow.sessions.queries import aggregations
from tests.laws.harness import World

T = Topic("orders", "json", keys=("/id",))
VIEW = View("each", "json", ("orders",), ("/id", "SUM(/qty) AS /qty"), ("/id",))
EACH = "projection=[/id],grouping=[/id]"


@pytest.fixture
def world(monkeypatch):
    """One of nine groups, of which four are forgotten in a step."""
    monkeypatch.setattr(module, "KEPT_AT_ONCE", 4)
    world = World(T, VIEW)
    world.publish("orders", *[{"id": number, "qty": 1} for number in range(9)])
    return world


def steps(world):
    """How many there are after each step."""
    left = []
    while world.engine.view_gc.due_us() is not None:
        world.engine.view_gc.advance(0)
        left.append(sum(map(len, world.engine.view_gc._waiting)))
    world.check()
    return left


def test_those_of_a_subscription_that_has_ended(world):
    client = world.client()
    client.say(c="sow_and_subscribe", t="orders", opts=EACH)
    client.execute(b'{"c":"unsubscribe","s":"all"}')
    assert steps(world) == [5, 1, 0]


def test_those_of_a_view_that_was_changed_or_removed(world):
    engine = world.engine
    run_to_completion(TopicChanges(engine).change_view(engine.topics["each"], VIEW))
    assert steps(world) == [5, 1, 0]
    world.settle()
    assert len(world.records("each")) == 9
    run_to_completion(TopicChanges(engine).remove_copies("each", lambda _topic: None))
    assert steps(world) == [5, 1, 0]


def test_those_of_a_view_that_became_too_large_or_that_nobody_waits_for(world, monkeypatch):
    monkeypatch.setattr(aggregations, "GROUPS_MAX", 8)
    (ack,) = world.client().say(c="sow_and_subscribe", t="orders", opts=EACH, cid="1")
    assert "more than 8 groups" in ack["detail"]
    assert sum(steps(world)) > 0


def test_they_fall_due_until_none_is_left(world):
    client = world.client()
    client.say(c="sow_and_subscribe", t="orders", opts=EACH)
    client.execute(b'{"c":"unsubscribe","s":"all"}')
    assert world.due_us() == 0
    world.settle()
    world.advance(1)
    assert world.engine.view_gc.due_us() is None


def test_nothing_is_forgotten_of_nothing():
    forgetting = ViewGc()
    forgetting.advance(0)
    assert forgetting.due_us() is None


def test_those_of_a_view_that_has_stopped_and_what_its_join_kept():
    joined = View(
        "pair", "json", ("orders", "quotes"),
        ("[orders]./id AS /id", "COUNT(1) AS /n"), ("[orders]./id",),
        joins=(Join("orders", "/sym", "quotes", "/sym"),),
    )  # fmt: skip
    world = World(T, Topic("quotes", "json", keys=("/id",)), joined)
    world.engine.adopt(replace(world.configuration, limits=Limits(join_fan_out_max=5)))
    world.publish("orders", *[{"id": number, "sym": "A"} for number in range(9)])
    world.publish("quotes", {"id": 1, "sym": "A"})
    assert world.engine.topics["pair"].view.stopped
    kept = [*world.engine.topics["pair"].view.kept()]
    assert sum(map(len, kept)) > 0
    world.advance(0)
    assert sum(map(len, kept)) == 0
    world.check()
