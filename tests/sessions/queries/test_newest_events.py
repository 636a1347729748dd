"""The newest events of series are looked at in short steps, and are those of the last one."""

import json
from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Series, Topic
from sow.errors import TooLarge
from sow.protocol.wire import read_frame
from sow.query import Query
from sow.sessions.queries import newest_events
from sow.sessions.queries.newest_events import NewestEvents, read_events
from sow.topic.series import TopicEvents
from tests.effort import lines_run
from tests.laws.harness import ORDERS, World

DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/", series=Series())


@pytest.fixture
def looked_at(monkeypatch):
    """How many events each step has looked at: the last number is of the present one."""
    counts, last = [0], TopicEvents.last

    def counted(events, identity, count):
        found = last(events, identity, count)
        counts[-1] += len(found)
        return found

    monkeypatch.setattr(newest_events, "EVENTS_AT_ONCE", 20)
    monkeypatch.setattr(TopicEvents, "last", counted)
    return counts


def test_newest_events_are_looked_at_some_at_a_time_however_many_a_record_has(
    monkeypatch, looked_at
):
    world = World(replace(ORDERS, series=Series()))
    for number in range(12):
        world.publish("orders", *({"id": id_, "px": number} for id_ in range(30)))
    records = world.engine.topic("orders").records
    condition = world.engine.filter("/px > 7")
    results = []

    def finding():
        events = NewestEvents(world.engine, 10)
        with world.engine.on_changes(events.note):
            yield from events.look("orders", Query(filter=condition))
            results.append(events.snapshot(records))

    for at, _ in enumerate(finding()):
        looked_at.append(0)
        if at < 40:
            world.publish("orders", {"id": at % 30, "px": 100 + at}, {"id": 40 + at, "px": 8})
    assert max(looked_at) <= 100, "at most some times what comes meanwhile"
    assert len(looked_at) > 20
    run_to_completion(finding())
    query = Query(filter=condition)
    read = []

    def reading():
        read.append((yield from read_events(world.engine, "orders", query, 10)))

    assert sum(1 for _ in reading()) > 20
    rows = read[0].rows
    assert rows.part(0, len(rows)) == results[-1].part(0, len(rows))
    monkeypatch.setattr(newest_events, "READ_EVENTS_MAX", 100)
    with pytest.raises(TooLarge, match="over 100, the most"):
        run_to_completion(read_events(world.engine, "orders", query, 10))
    some, same = (sorted(found.bodies.part(0, len(found))) for found in results)
    assert some == same
    assert len(some) > 30 * 4


def answering(world, fields):
    """The steps of a client's sow_and_subscribe."""
    text = json.dumps({"c": "sow_and_subscribe", **fields})
    session = world.client().session
    return world.executor.carry_out(session, read_frame(text.encode()), lambda: world.now)


def test_no_step_takes_longer_however_many_events_there_are():
    most = []
    for count in (500, 2_000):
        world = World(replace(ORDERS, series=Series()))
        for number in range(3):
            world.publish("orders", *({"id": id_, "px": number} for id_ in range(count)))
        most.append(max(lines_run(answering(world, {"t": "orders", "opts": "last=3"}))))
    assert most[1] < 1.2 * most[0]


def test_topics_of_a_pattern_are_not_looked_at_again_for_a_change(looked_at):
    """A topic that changes until the last one was looked at has its changes, and no more, to be
    looked at again."""
    world, client = World(DESKS), None
    for number in range(4):
        world.publish("/desk/1", *({"id": id_, "n": number} for id_ in range(100)))
    for desk in range(2, 60):
        world.publish(f"/desk/{desk}", {"id": 0, "n": 0})
    client = world.client()
    text = json.dumps({"c": "sow_and_subscribe", "t": "^/desk/", "opts": "last=3"})
    commands = read_frame(text.encode())
    count = 100
    for _ in world.executor.carry_out(client.session, commands, lambda: world.now):
        looked_at.append(0)
        count += 1
        world.publish("/desk/1", {"id": 5, "n": count})
        if count % 9 == 0:
            world.publish(f"/desk/{count}", {"id": 0, "n": count})
    world.settle()
    assert len(looked_at) > 20
    assert max(looked_at) <= 100, str(looked_at)
    held = {}
    for line in client.lines():
        if line["c"] in ("sow", "p"):
            held.setdefault(line["t"], []).append((line["d"]["id"], line["d"]["n"]))
    assert [n for id_, n in held["/desk/1"] if id_ == 5][-3:] == [count - 2, count - 1, count]
    assert held.keys() == {name for name in world.engine.topics if name.startswith("/desk/")}
