"""A failure in the lines of one subscriber concerns that subscriber: the publish succeeds, others
are notified, and the failing subscription ends with a reason. A failure in the state of a conflated
topic or a view stops that topic."""

from dataclasses import replace

import pytest

from sow.core.definitions import ConflatedTopic, Merge, SessionSettings, Topic, View
from sow.sessions import subscriptions
from sow.sessions.subscriptions import FAILURE, FAILURE_DETAIL
from sow.streaming.predicate_index import PredicateIndex
from sow.topic.batch import Batch
from sow.topic.conflated_topic import ConflatedCopy
from sow.topic.fields import ComputedFields
from sow.topic.queue_policy import CachedMerger
from sow.topic.rendering import Renderer
from sow.topic.views.groups import RowGroups
from sow.topic.views.view import RowWriter
from tests.laws.harness import SECOND, World, short

ORDERS = Topic("orders", "json", keys=("/id",))
BAD = '{"id":1,"note":"breaks"}'


@pytest.fixture
def world():
    found = World(ORDERS, ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND))
    found.failures = []
    return found


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    """A renderer that fails on selected fields of some records."""
    shown = Renderer.shown

    def failing(self, shape, bodies):
        if shape.select is not None and any(b"breaks" in body for body in bodies):
            raise ZeroDivisionError("planted\n\tbug " + 1000 * "x")
        return shown(self, shape, bodies)

    monkeypatch.setattr(Renderer, "shown", failing)


def ends(lines):
    return [(line["reason"], line["detail"]) for line in lines if line["c"] == "unsubscribed"]


WAYS = [
    {},
    {"filter": "/id = 1"},
    {"filter": "/id > 0"},
    {"opts": "select=[/id],oof"},
    {"opts": "select=[/id],conflation=1s"},
    {"opts": "select=[/id],conflation=auto"},
    {"t": "^ord.*s$"},
]


@pytest.mark.parametrize("requested", WAYS)
def test_who_cannot_be_sent_is_ended_alone(world, requested):
    failing, twin, other = world.client(), world.client(), world.client()
    for client in (failing, twin):
        client.say(c="subscribe", **{"t": "orders", "opts": "select=[/id]"} | requested)
    other.say(c="subscribe", t="orders")
    publisher = world.client()
    (ack,) = publisher.say(c="publish", t="orders", cid="1", d={"id": 1, "note": "breaks"})
    assert ack["status"] == "success"
    world.advance(2 * SECOND)
    for client in (failing, twin):
        assert ends(client.lines()) == [(FAILURE, FAILURE_DETAIL)]
        assert client.subscriptions == {}
    assert short(other.lines()) == [("p", {"id": 1, "note": "breaks"})]
    # Equal subscriptions are one, unless each has its client's pace.
    assert len(world.failures) == (2 if "auto" in requested.get("opts", "") else 1)
    said = len(world.failures)
    assert "ZeroDivisionError: planted bug xxx" in world.failures[0]
    assert "test_failures.py:" in world.failures[0]
    assert len(world.failures[0]) < 250
    assert world.records("orders-C") == [{"id": 1, "note": "breaks"}]
    # The next subscriber gets through, and so does the one that was ended.
    failing.say(c="subscribe", **{"t": "orders", "opts": "select=[/id]"} | requested)
    world.publish("orders", {"id": 1, "note": "fine"})
    world.advance(2 * SECOND)
    assert short(failing.lines()) == [("p", {"id": 1})]
    assert len(world.failures) == said
    world.check()


def test_lines_from_before_the_failure_are_sent(world):
    client = world.client()
    client.say(c="sow_and_subscribe", t="orders", opts="select=[/id],oof", filter="/id > 0")
    world.publish("orders", {"id": 2}, {"id": 1, "note": "breaks"}, {"id": 3})
    world.advance(0)
    lines = client.lines()
    assert [line.get("d") for line in lines if line["c"] in ("p", "unsubscribed")] == [
        {"id": 2},
        None,
    ]
    world.check()


def test_of_many_some_are_ended_at_a_time(world, monkeypatch):
    monkeypatch.setattr(subscriptions, "ENDED_AT_ONCE", 2)
    clients = [world.client() for _ in range(5)]
    for client in clients:
        client.say(c="subscribe", t="orders", opts="select=[/id]")
    world.publish("orders", {"id": 1, "note": "breaks"})
    world.engine.advance(world.now)
    assert sum(not client.subscriptions for client in clients) == 2
    world.advance(0)
    assert not any(client.subscriptions for client in clients)
    world.advance(2 * SECOND)
    assert world.due_us() is None
    world.check()


@pytest.mark.parametrize("filler", [0, 2000])
def test_a_response_that_cannot_be_encoded_is_an_error(world, filler):
    world.publish("orders", {"id": 1, "note": "breaks"}, *({"id": n} for n in range(2, filler)))
    client, other = world.client(), world.client()
    lines = client.say(c="sow", t="orders", opts="select=[/id]", cid="1")
    said = [line.get("detail", line.get("reason", "")) for line in lines]
    assert any("its log says why" in one for one in said)
    assert len(world.failures) == 1
    assert len(short(other.say(c="sow", t="orders"))) == max(1, filler - 1)
    world.check()


def test_a_replay_that_cannot_be_sent_is_ended(world):
    world.publish("orders", {"id": 1, "note": "breaks"})
    client = world.client()
    lines = client.say(c="subscribe", t="orders", opts="select=[/id]", bm="0")
    assert ends(lines) == [(FAILURE, FAILURE_DETAIL)]
    assert client.subscriptions == {}
    assert client.say(c="heartbeat")
    world.check()


def test_a_queue_that_cannot_be_folded_ends_its_session_alone(monkeypatch):
    def failing(self, current, new):
        raise ZeroDivisionError("planted")

    merged = Topic("orders", "json", keys=("/id",), merges=(Merge("/qty", "sum"),))
    world = World(merged, sessions=SessionSettings(queue_messages_max=2))
    world.failures = []
    slow, reader = world.client(), world.client()
    for client in (slow, reader):
        client.say(c="subscribe", t="orders")
    monkeypatch.setattr(CachedMerger, "merge", failing)
    heard = []
    for qty in range(5):
        world.publish("orders", {"id": 1, "qty": qty})
        heard += short(reader.lines())
    assert [document["qty"] for _, document in heard] == [0, 1, 2, 3, 4]
    (line,) = slow.lines()
    assert line["c"] == "close"
    assert "its log says why" in line["reason"]
    assert "planted" in world.failures[0]
    world.check()


COPY = ConflatedTopic("copy", "json", "orders", interval_us=SECOND)
WELL = replace(COPY, name="well", filter="/id > 0")
VIEW = View("view", "json", ("orders",), ("/id AS /id", "COUNT(1) AS /n"), ("/id",))
STOPS = {
    "filter": (replace(COPY, filter="/qty > 1"), Batch, "new_focus"),
    "merge": (replace(COPY, merges=(Merge("/qty", "sum"),)), CachedMerger, "merge"),
    "single": (replace(COPY, merges=(Merge("/n", "count"),)), CachedMerger, "single"),
    "fields": (replace(COPY, enrichment=("/qty * 2 AS /twice",)), ComputedFields, "body"),
    "groups": (replace(VIEW, name="copy"), RowGroups, "take"),
    "rows": (replace(VIEW, name="copy"), RowWriter, "__call__"),
}
"""What may fail of a topic that is made of another one, and where."""


@pytest.mark.parametrize("what", STOPS)
def test_a_topic_that_cannot_be_made_stops_alone_until_a_reload(what, monkeypatch):
    definition, owner, name = STOPS[what]
    world = World(ORDERS, definition, WELL)
    world.failures = []
    world.publish("orders", *[{"id": 1, "qty": qty} for qty in (2, 3)], {"id": 2, "qty": 5})
    world.advance(2 * SECOND)
    follower, other, publisher = world.client(), world.client(), world.client()
    follower.say(c="sow_and_subscribe", t="copy", opts="oof")
    other.say(c="subscribe", t="well")
    with monkeypatch.context() as planted:
        real = getattr(owner, name)

        def failing(self, *arguments, **more):
            if what == "filter" and (not arguments[0] or arguments[0].text != definition.filter):
                return real(self, *arguments, **more)
            raise ZeroDivisionError("planted")

        planted.setattr(owner, name, failing)
        (ack,) = publisher.say(c="publish", t="orders", cid="1", d={"id": 1, "qty": 7})
        assert ack["status"] == "success", "the publisher does not notice"
        world.publish("orders", {"id": 1, "qty": 8})
        world.advance(2 * SECOND)
        world.publish("orders", {"id": 3, "qty": 9})
        world.advance(2 * SECOND)
    told = follower.lines()
    assert {(line["c"], line.get("reason")) for line in told} == {("oof", "deleted")}
    assert len(told) == 2, "rows that are outdated are removed, and followers are notified"
    assert short(other.lines()) == [("p", {"id": 1, "qty": 8}), ("p", {"id": 3, "qty": 9})]
    (said,) = world.failures
    assert "copy has stopped" in said
    assert "ZeroDivisionError: planted (test_failures.py" in said
    (ack,) = world.client().say(c="sow", t="copy")
    assert (ack["status"], ack["reason"], ack["detail"]) == ("failure", "stopped", said)
    assert len(world.records("orders")) == 3
    world.check()
    (done,) = world.executor.reconfigure(world.configuration, world.now)
    assert done.endswith("of copy made again")
    world.settle()
    world.advance(2 * SECOND)
    assert [row["id"] for row in world.records("copy")] == [1, 2, 3], "a reload makes it again"
    assert sorted(line["d"]["id"] for line in follower.lines()) == [1, 2, 3]
    world.publish("orders", {"id": 4, "qty": 9})
    world.advance(2 * SECOND)
    assert len(world.records("copy")) == 4
    assert len(world.failures) == 1
    world.check()


def test_a_server_starts_with_a_copy_that_it_fails_on(monkeypatch):
    world = World(ORDERS, replace(COPY, filter="/qty > 1"), WELL)
    world.publish("orders", {"id": 1, "qty": 2})
    with monkeypatch.context() as planted:
        planted.setattr(ConflatedCopy, "_wanted", broken)
        again = world.restart()
        again.failures = []
        again.advance(0)
    assert len(again.failures) == 2
    again.publish("orders", {"id": 2, "qty": 2})
    assert len(again.records("orders")) == 2
    again.check()


def broken(*_arguments):
    raise ZeroDivisionError("planted")


def test_of_many_copies_one_stops_that_the_index_cannot_find(monkeypatch):
    """Each is then evaluated by itself, and only the one that fails stops."""
    some = [replace(COPY, name=f"copy-{at}", filter=f"/qty = {at}") for at in range(20)]
    world = World(ORDERS, *some)
    world.failures = []
    real = Batch.is_in_focus

    def failing(self, condition, at):
        return broken() if condition.text == "/qty = 3" else real(self, condition, at)

    monkeypatch.setattr(PredicateIndex, "find", broken)
    monkeypatch.setattr(Batch, "is_in_focus", failing)
    monkeypatch.setattr(Batch, "new_focus", lambda batch, condition: [failing(batch, condition, 0)])
    world.publish("orders", {"id": 1, "qty": 4})
    world.advance(2 * SECOND)
    assert len(world.failures) == 1
    assert "copy-3 has stopped" in world.failures[0]
    assert [len(world.records(f"copy-{at}")) for at in (2, 4)] == [0, 1]
    world.check()
