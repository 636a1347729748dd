"""Replacing: what is said is what differs from what the session holds."""

import pytest

from sow.definitions import Topic
from tests.core.harness import SECOND, World, short


@pytest.fixture
def world():
    world = World()
    world.publish("orders", *({"id": number, "px": number} for number in range(4)))
    return world


def replaced(world, client, text, **more):
    (name,) = client.subscriptions
    said = client.say(c="sow_and_subscribe", t="orders", filter=text, s=name, **more)
    assert list(client.subscriptions) == [name]
    world.check()
    return sorted(short(said), key=str)


def test_another_filter_says_what_has_left_and_what_has_entered(world):
    client = world.client()
    client.say(c="sow_and_subscribe", t="orders", filter="/px < 2", opts="oof")
    assert replaced(world, client, "/px > 0 AND /px < 3", opts="oof,replace") == [
        ("match", {"id": 0, "px": 0}),
        ("sow", {"id": 2, "px": 2}),
    ]


def test_what_waits_in_a_window_is_told_as_it_stands(world):
    client = world.client()
    client.say(c="sow_and_subscribe", t="orders", filter="/px < 2", opts="conflation=1s")
    world.publish("orders", {"id": 1, "px": 1, "n": 1})
    said = replaced(world, client, "/px < 3", opts="conflation=1s,replace")
    assert said == [("sow", {"id": 1, "px": 1, "n": 1}), ("sow", {"id": 2, "px": 2})]
    world.advance(2 * SECOND)
    assert client.data() == []


def test_what_speaks_against_it_is_found_before_anything_is_changed(world):
    client = world.client()
    client.say(c="subscribe", t="orders", filter="/px < 2")
    (name,) = client.subscriptions
    refused = client.say(c="subscribe", t="orders", filter="/px <", s=name, opts="replace", cid="1")
    assert refused[0]["status"] == "failure"
    world.publish("orders", {"id": 1, "px": 0})
    assert client.data() == [("p", {"id": 1, "px": 0})]


def test_a_pattern_is_replaced_with_what_its_topics_have_not_been_met_for():
    world = World(Topic("desks", "json", keys=("/id",), pattern="^/desk/"))
    for number in range(3):
        world.publish(f"/desk/{number}", {"id": 1, "px": number})
    client = world.client()
    client.say(c="sow_and_subscribe", t="^/desk/", filter="/px < 2", opts="oof")
    (name,) = client.subscriptions
    said = client.say(
        c="sow_and_subscribe", t="^/desk/", filter="/px > 0", s=name, opts="oof,replace"
    )
    told = [(line["c"], line["t"]) for line in said if line["c"] in ("oof", "sow")]
    assert told == [("oof", "/desk/0"), ("sow", "/desk/2")]
    world.publish("/desk/1", {"id": 1, "px": 0})
    assert [(line["c"], line["t"]) for line in client.lines()] == [("oof", "/desk/1")]
    world.check()


def test_a_pattern_of_very_many_topics_is_not_replaced(monkeypatch):
    monkeypatch.setattr("sow.requests.replacing.TOPICS_MAX", 2)
    world = World(Topic("desks", "json", keys=("/id",), pattern="^/desk/"))
    for number in range(3):
        world.publish(f"/desk/{number}", {"id": 1})
    client = world.client()
    client.say(c="subscribe", t="^/desk/")
    (name,) = client.subscriptions
    (ack,) = client.say(c="subscribe", t="^/desk/1", s=name, opts="replace", cid="1")
    assert (ack["reason"], list(client.subscriptions)) == ("too large", [name])
    assert "unsubscribe, and subscribe anew" in ack["detail"]
    world.check()
