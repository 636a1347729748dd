"""Replacing: what is said is what differs from what the session holds."""

import json
import random
from dataclasses import replace
from itertools import groupby

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic, Topic
from sow.protocol.publish_batching import read_frames
from sow.streaming import conflated_channel
from sow.topic.rendering import Renderer
from tests.cases import all_cases
from tests.effort import seeds
from tests.laws.harness import SECOND, World, short


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


def test_what_waits_in_a_window_is_sent_as_it_stands(world):
    client = world.client()
    client.say(c="sow_and_subscribe", t="orders", filter="/px < 2", opts="conflation=1s")
    world.publish("orders", {"id": 1, "px": 1, "n": 1})
    said = replaced(world, client, "/px < 3", opts="conflation=1s,replace")
    assert said == [("sow", {"id": 1, "px": 1, "n": 1}), ("sow", {"id": 2, "px": 2})]
    world.advance(2 * SECOND)
    assert client.data() == []


def test_what_waits_for_an_idle_client_is_sent_once(world, monkeypatch):
    monkeypatch.setattr(conflated_channel, "RELEASED_AT_ONCE", 1)
    client = world.client()
    opts = "oof,conflation=auto"
    client.say(c="sow_and_subscribe", t="orders", filter="/px < 2", opts=opts)
    for document in ({"id": 9, "px": 0}, {"id": 9, "px": 5}, {"id": 0, "px": 7}):
        # No turn ends: the client is idle, and its channel holds a record that came and went.
        world.engine.publish("orders", [json.dumps(document).encode()], world.now)
    said = replaced(world, client, "/px = 1", opts=f"{opts},replace")
    assert said == [("match", {"id": 0, "px": 7})]


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
    monkeypatch.setattr("sow.sessions.subscriptions.replace_subscription.TOPICS_MAX", 2)
    world = World(Topic("desks", "json", keys=("/id",), pattern="^/desk/"))
    for number in range(3):
        world.publish(f"/desk/{number}", {"id": 1})
    client = world.client()
    client.say(c="subscribe", t="^/desk/")
    (name,) = client.subscriptions
    (ack,) = client.say(c="subscribe", t="^/desk/1", s=name, opts="replace", cid="1")
    assert (ack["reason"], list(client.subscriptions)) == ("too large", [name])
    assert "unsubscribe, and subscribe again" in ack["detail"]
    world.check()


def begun(client, **command):
    """The steps of a command that has been taken up to its first one."""
    steps = client.world.executor.carry_out(
        client.session, read_frames([json.dumps(command).encode()]), lambda: client.world.now
    )
    next(steps)
    return steps


def test_a_replacement_that_its_client_gives_up_changes_nothing(world):
    client = world.client()
    client.say(c="subscribe", t="orders", filter="/px < 2")
    (name,) = client.subscriptions
    steps = begun(client, c="subscribe", t="orders", filter="/px > 2", s=name, opts="replace")
    steps.close()
    world.publish("orders", {"id": 1, "px": 1, "n": 1})
    assert client.data() == [("p", {"id": 1, "px": 1, "n": 1})]
    world.check()


def test_a_subscription_that_ends_meanwhile_is_not_replaced(world):
    client = world.client()
    client.say(c="subscribe", t="orders")
    (name,) = client.subscriptions
    steps = begun(client, c="subscribe", t="orders", s=name, opts="replace", cid="1")
    world.executor.subscriptions.give_up(client.session, name)
    run_to_completion(steps)
    world.settle()
    assert client.lines()[-1]["reason"] == "subscription does not exist"
    world.check()


def test_topics_that_come_and_go_meanwhile_are_those_of_the_moment():
    world = World(Topic("desks", "json", keys=("/id",), pattern="^/desk/"))
    world.publish("/desk/1", {"id": 1, "px": 1})
    client = world.client()
    client.say(c="sow_and_subscribe", t="^/desk/", opts="oof")
    (name,) = client.subscriptions
    command = {"c": "sow_and_subscribe", "t": "^/desk/", "s": name, "filter": "/px > 1"}
    steps = begun(client, **command, opts="oof,replace")
    world.publish("/desk/2", {"id": 1, "px": 2})
    run_to_completion(steps)
    world.settle()
    told = [(line["c"], line["t"]) for line in client.lines() if "d" in line]
    # The new topic was told of before the moment, by the subscription that was there.
    assert told == [("p", "/desk/2"), ("oof", "/desk/1")]
    world.publish("/desk/2", {"id": 1, "px": 1})
    assert [(line["c"], line["t"]) for line in client.lines()] == [("oof", "/desk/2")]
    world.check()


def test_no_step_words_many_records(world, monkeypatch):
    monkeypatch.setattr("sow.sessions.subscriptions.replace_subscription.ANSWER_CHUNK_ROWS", 10)
    for module in ("subscriptions.subscription_diff", "queries.query_results"):
        monkeypatch.setattr(f"sow.sessions.{module}.ANSWER_CHUNK_ROWS", 10)
    monkeypatch.setattr("sow.history.snapshot.ANSWER_CHUNK_ROWS", 10)
    worded = []
    lines = Renderer.lines
    monkeypatch.setattr(
        Renderer, "lines", lambda self, kind, shape, columns, head=b"": (
            worded.append(len(columns.bodies)) or lines(self, kind, shape, columns, head)
        )
    )  # fmt: skip
    world.publish("orders", *({"id": number, "px": number} for number in range(100, 400)))
    client = world.client()
    client.say(c="sow_and_subscribe", t="orders", filter="/px < 300", opts="oof")
    (name,) = client.subscriptions
    worded.clear()
    frame = {"c": "sow_and_subscribe", "t": "orders", "filter": "/px > 200", "s": name}
    client.execute(json.dumps({**frame, "opts": "oof,replace"}).encode())
    assert worded == []  # nothing before the client takes it
    said = [line["c"] for line in client.lines()]
    assert (said.count("oof"), said.count("sow")) == (105, 100)
    assert max(worded) <= 10


def test_an_answer_that_nobody_would_read_is_refused_before_anything_is_changed(world, monkeypatch):
    monkeypatch.setattr("sow.sessions.subscriptions.replace_subscription.ANSWER_CHUNK_ROWS", 0)
    client = world.client()
    client.say(c="subscribe", t="orders", filter="/px < 2")
    (name,) = client.subscriptions
    world.executor.subscriptions.planner.unread.count(client.session.id, 4_000_000)
    frame = {"c": "sow_and_subscribe", "t": "orders", "s": name, "opts": "replace", "cid": "1"}
    (refused,) = client.say(**frame)
    assert refused["status"] == "failure"
    world.publish("orders", {"id": 1, "px": 0})
    assert client.data() == [("p", {"id": 1, "px": 0})]


def test_what_the_log_has_sent_of_and_is_gone_is_not_looked_for(world):
    world.delete("orders", "/px = 0")
    client, paced = world.client(), "conflation=1s"
    client.say(c="subscribe", t="orders", bm="0", opts=paced, filter="BOOKMARK() > 0")
    (name,) = client.subscriptions
    client.say(c="subscribe", t="orders", filter="/px > 1", s=name, opts=f"{paced},replace")
    world.advance(2 * SECOND)
    client.lines()
    world.publish("orders", {"id": 0, "px": 2})
    world.advance(2 * SECOND)
    assert client.data() == [("p", {"id": 0, "px": 2})]
    world.check()


class Scene:
    """A conflated subscription, what is done around it, and how it is replaced."""

    COPIES = (
        Topic("orders", "json", keys=("/id",)),
        ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND // 4),
    )
    WAYS = (
        ("orders", "sow_and_subscribe", "conflation=1s,oof"),
        ("orders", "sow_and_subscribe", "conflation=1s"),
        ("orders", "sow_and_delta_subscribe", "conflation=1s,oof"),
        ("orders", "subscribe", "conflation=1s,oof"),
        ("orders", "sow_and_subscribe", "conflation=auto,oof"),
        ("orders", "sow_and_subscribe", "conflation=1s,conflation_key=[/k]"),
        ("orders-C", "sow_and_subscribe", "conflation=1s,oof"),
        ("^orders", "sow_and_subscribe", "conflation=1s,oof"),
    )

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.world, self.lines = World(*self.COPIES), []
        self.topic, self.kind, self.opts = self.WAYS[seed % len(self.WAYS)]
        self.change(*((self.chance.randrange(40), self.chance.randrange(9)) for _ in range(30)))
        self.other, self.client = self.world.client(), self.world.client()
        command = {"c": self.kind, "t": self.topic, "filter": "/px < 7", "opts": self.opts}
        self.other.say(**command)
        for _ in range(20):
            self.do(self.any())
        self.lines += self.client.say(**command)
        (self.name,) = self.client.subscriptions
        for _ in range(20):
            self.do(self.any())

    def any(self):
        """Something that may happen, so that it can be done again in another world."""
        kind = self.chance.random()
        if kind < 0.6:
            return "change", (self.chance.randrange(40), self.chance.randrange(9))
        if kind < 0.8:
            return "delete", self.chance.randrange(40)
        return ("advance", self.chance.randrange(SECOND // 2)) if kind < 0.9 else ("read", None)

    def change(self, *pairs):
        documents = ({"id": one, "px": px, "k": one * px % 13} for one, px in pairs)
        self.world.publish("orders", *documents)

    def do(self, done):
        kind, what = done
        if kind == "change":
            self.change(what)
        elif kind == "delete":
            self.world.delete("orders", f"/id = {what}")
        elif kind == "advance":
            self.world.advance(what)
        else:
            self.lines += self.client.lines()

    def replacing(self):
        more = {"filter": "/px > 3", "opts": f"{self.opts},replace", "s": self.name}
        return begun(self.client, c=self.kind, t=self.topic, **more)

    def over(self):
        """All that has been said in the end; lines of one turn have no order."""
        self.world.settle()
        for _ in range(3):
            self.lines += self.client.lines()
            self.world.advance(2 * SECOND)
        self.world.check()
        runs = groupby(self.lines, key=lambda line: line.get("bm"))
        lines = [line for _, run in runs for line in sorted(run, key=str)]
        # The time in a bookmark is that of the engine, which stands still between two changes.
        return [{**line, "bm": line.get("bm", "").partition(".")[0]} for line in lines]


@all_cases("seed", seeds(24))
def test_what_happens_between_the_steps_of_a_replacement_is_as_if_it_came_before(monkeypatch, seed):
    monkeypatch.setattr("sow.sessions.subscriptions.pending_updates.NOTED_AT_ONCE", 2)
    scene, meanwhile = Scene(seed), []
    chance = random.Random(-seed)
    (old,) = scene.client.subscriptions.values()
    steps = scene.replacing()
    while scene.client.subscriptions[scene.name] is old:
        if not meanwhile or chance.random() < 0.4:
            meanwhile.append(scene.any())
            scene.do(meanwhile[-1])
        next(steps, None)
    run_to_completion(steps)
    monkeypatch.setattr("sow.sessions.subscriptions.pending_updates.NOTED_AT_ONCE", 10**6)
    naive = Scene(seed)
    for done in meanwhile:
        naive.do(done)
    run_to_completion(naive.replacing())
    assert scene.over() == naive.over()


@pytest.mark.parametrize("ends", ["client", "topic", "unsubscribed", "given up", "replaced"])
def test_what_ends_between_the_steps_of_a_replacement(monkeypatch, ends):
    monkeypatch.setattr("sow.sessions.subscriptions.pending_updates.NOTED_AT_ONCE", 2)
    for steps_before in range(1, 8):
        scene = Scene(6)
        (old,) = scene.client.subscriptions.values()
        steps = scene.replacing()
        for _ in range(steps_before):
            next(steps)
        assert scene.client.subscriptions[scene.name] is old
        if ends == "client":
            steps.close()
            scene.world.executor.subscriptions.end_all(scene.client.session)
        elif ends == "unsubscribed":
            scene.lines += scene.client.say(c="unsubscribe", s=scene.name)
        elif ends == "given up":
            steps.close()
        elif ends == "topic":
            left = replace(scene.world.configuration, topics=Scene.COPIES[:1])
            scene.world.executor.reconfigure(left, scene.world.now)
        else:
            run_to_completion(scene.replacing())
        run_to_completion(steps)
        scene.over()
        assert scene.world.engine._change_listeners == old.channel._noting == ()
