"""Requests that take many steps are one turn to live windows, and nobody is held back for long."""

import itertools
import json

import pytest

from sow.core.cooperative import RESTS, run_to_completion
from sow.core.definitions import View
from sow.engine import bulk_publish, output
from sow.engine.output import HELD_US_MAX
from sow.protocol.publish_batching import read_frames
from sow.query import Query
from sow.sessions.queries.query_results import execute_query
from tests.laws.harness import ORDERS, World
from tests.laws.window_reader import WindowReader


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 2)
    world = World()
    world.publish("orders", *[{"id": at, "px": at} for at in range(9)])
    return world


def reader_of(world, topic="orders", **more):
    reader = WindowReader(world.client(), topic, "/px DESC", **{"top_n": 3, **more})
    reader.begin()
    return reader


def steps_of(world, *documents):
    """The steps of a publish that is carried out a slice at a time."""
    engine, topic = world.engine, world.engine.publishable("orders")
    bodies = [b'{"id":%d,"px":%d}' % document for document in documents]
    read = [
        engine.read(topic, bodies[at : at + 2], now_us=world.now) for at in range(0, len(bodies), 2)
    ]
    return engine.publications.carry_out("orders", read, world.now)


def answered(world, name):
    """The rows of a query, after the steps that it takes and no others."""
    answer = run_to_completion(world.engine.queries.answering(name, Query()))
    bodies = world.engine.topics[name].records.table.bodies
    return [json.loads(bodies[slot]) for slot in answer.slots]


def test_a_publish_in_slices_is_sent_when_its_last_one_is_there(world):
    reader, other = reader_of(world), world.client()
    other.say(c="subscribe", t="orders")
    sent = 0
    for _ in steps_of(world, (0, 10), (1, 11), (2, 12), (3, 13), (4, 14)):
        world.settle()
        assert reader.client.lines() == []
        sent += len(other.lines())
        world.check()
    world.settle()
    assert sent, "who follows each change is sent as it comes"
    reader.read()
    reader.check(world)
    assert reader.turns == 1


def test_a_frame_of_many_commands_is_one_turn(world):
    reader, client = reader_of(world), world.client()
    publish = b'{"c":"publish","t":"orders","d":{"id":%d,"px":%d}}'
    delete = b'{"c":"sow_delete","t":"orders","filter":"/id = %d"}'
    pairs = [(publish % (at, 20 + at), delete % (at + 1)) for at in range(0, 6, 2)]
    frame = b"\n".join(line for pair in pairs for line in pair)
    for _ in world.executor.carry_out(client.session, read_frames([frame]), lambda: world.now):
        world.settle()
        assert reader.client.lines() == []
    world.settle()
    reader.read()
    reader.check(world)
    assert reader.turns == 1


def test_a_delete_of_many_is_one_turn(world, monkeypatch):
    monkeypatch.setattr("sow.engine.bulk_delete.RECORDS_AT_ONCE", 1)
    reader = reader_of(world)
    client = world.client()
    client.say_in_steps(world.settle, c="sow_delete", t="orders", filter="/id > 3", cid="1")
    reader.read()
    reader.check(world)
    assert reader.turns == 1


def test_a_cancelled_request_holds_nothing_back(world):
    reader = reader_of(world)
    steps = steps_of(world, (0, 10), (1, 11), (2, 12))
    next(steps)
    world.settle()
    steps.close()
    world.settle()
    world.check()
    reader.read()
    reader.check(world)


def test_a_request_that_takes_very_long_is_sent_in_parts(world):
    reader = reader_of(world)
    steps = steps_of(world, (0, 10), (1, 11), (2, 12))
    next(steps)
    world.settle()
    assert reader.client.lines() == []
    world.advance(HELD_US_MAX - 1)
    assert reader.client.lines() == []
    world.advance(1)
    reader.read()
    reader.check(world)
    steps.close()


def test_requests_that_overlap_hold_nothing_back_longer_than_one(monkeypatch):
    """Of publishers that never pause, one is always under way."""
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 2)
    count = View("count", "json", ("orders",), ("COUNT(/id) AS /n", "/px"), ("/px",))
    above = View("above", "json", ("count",), ("SUM(/n) AS /n", "/px"), ("/px",))
    world = World(ORDERS, count, above)
    reader, ended, steps = reader_of(world), [], None
    for number in range(9):
        following = steps_of(world, *[(at, at) for at in range(3 * number, 3 * number + 3)])
        next(following)
        if steps is not None:
            run_to_completion(steps)
            ended.append(world.now)
        world.settle()
        world.advance(HELD_US_MAX * 2 // 5)
        world.settle()
        old = 3 * sum(at <= world.now - HELD_US_MAX for at in ended)
        for name in ("count", "above"):
            assert sum(row["n"] for row in answered(world, name)) >= old
        reader.read()
        assert max([row["px"] for _, row in reader.held], default=-1) >= old - 1
        world.check()
        steps = following


def test_a_request_after_a_pause_is_one_turn_as_well(world):
    reader = reader_of(world)
    world.advance(2 * HELD_US_MAX)
    for _ in steps_of(world, (0, 10), (1, 11), (2, 12)):
        world.settle()
        assert reader.client.lines() == []
    world.settle()
    reader.read()
    assert reader.turns == 1


def test_a_query_of_a_view_has_what_its_own_frame_has_published_before(monkeypatch):
    monkeypatch.setattr("sow.sessions.commands.executor.TOGETHER_MAX", 2)
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 2)
    count = View("count", "json", ("orders",), ("COUNT(/id) AS /n", "/px"), ("/px",))
    world = World(ORDERS, count)
    rows = [b'{"id":%d,"px":1}' % at for at in range(5)]
    head = b'{"c":"publish","t":"orders","n":5,"cid":"1"}'
    lines = world.client().send(b"\n".join([head, *rows, b'{"c":"sow","t":"count"}']))
    assert [line["d"] for line in lines if line["c"] == "sow"] == [{"n": 5, "px": 1}]
    world.check()


def test_a_request_that_changes_another_topic_holds_nothing_back(world):
    copied = reader_of(world, topic="orders-C")
    steps = steps_of(world, (0, 10), (1, 11), (2, 12))
    next(steps)
    world.advance(2 * HELD_US_MAX)
    copied.read()
    copied.check(world)
    steps.close()


def test_an_interval_that_ends_meanwhile_waits_for_the_end(world):
    reader = reader_of(world, opts=("conflation=100ms",))
    steps = steps_of(world, (0, 10), (1, 11), (2, 12))
    next(steps)
    world.settle()
    world.advance(200_000)
    assert reader.client.lines() == []
    for _ in steps:
        world.settle()
    world.settle()
    reader.read()
    reader.check(world)
    assert reader.turns == 1


# Queries of views that requests of others hold back.

COUNT = View("count", "json", ("orders",), ("COUNT(/id) AS /n", "/px"), ("/px",))
ABOVE = View("above", "json", ("count",), ("MAX(/n) AS /n", "/px"), ("/px",))


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setattr(bulk_publish, "SLICE_ROWS", 2)
    return World(ORDERS, COUNT, ABOVE)


def asked(world, name):
    """The steps of a query, which return what a view counts by price."""
    found = yield from execute_query(world.engine, name, Query())
    rows = map(json.loads, found.rows.part(0, len(found.rows)).bodies)
    return {row["px"]: row["n"] for row in rows}


def until_it_rests(steps):
    """What steps return, or RESTS."""
    try:
        while not next(steps):
            pass
    except StopIteration as over:
        return over.value
    return RESTS


@pytest.mark.parametrize("name", ["count", "above"])
def test_a_query_of_a_view_has_what_was_acknowledged_while_others_publish(counted, name):
    slow = steps_of(counted, (0, 1), (1, 1), (2, 1), (3, 1), (4, 1))
    next(slow)
    counted.publish("orders", {"id": 9, "px": 9})
    query = asked(counted, name)
    assert until_it_rests(query) is RESTS
    run_to_completion(slow)
    assert until_it_rests(query) == {1: 5, 9: 1}, "nor does it show half of the other publish"
    counted.check()


def test_a_query_of_a_view_waits_for_no_publish_longer_than_the_view(counted):
    slow = steps_of(counted, (0, 1), (1, 1), (2, 1), (3, 1), (4, 1))
    next(slow)
    counted.publish("orders", {"id": 9, "px": 9})
    query = asked(counted, "count")
    counted.advance(HELD_US_MAX - 1)
    assert until_it_rests(query) is RESTS
    counted.advance(1)
    assert until_it_rests(query) == {1: 2, 9: 1}
    slow.close()


def test_a_query_of_a_view_waits_for_nobody_where_nothing_was_acknowledged(counted):
    counted.publish("orders", {"id": 9, "px": 9})
    slow = steps_of(counted, (0, 1), (1, 1), (2, 1), (3, 1), (4, 1))
    next(slow)
    counted.settle()
    assert until_it_rests(asked(counted, "above")) == {9: 1}
    slow.close()


def test_a_query_that_nobody_goes_on_beside_has_the_rows_that_there_are(counted):
    slow = steps_of(counted, (0, 1), (1, 1), (2, 1))
    next(slow)
    counted.publish("orders", {"id": 9, "px": 9})
    assert run_to_completion(asked(counted, "count")) == {}
    slow.close()


def test_frames_that_publish_and_then_query_do_not_wait_for_each_other(counted, monkeypatch):
    monkeypatch.setattr("sow.sessions.commands.executor.TOGETHER_MAX", 2)
    clients, frames = [counted.client(), counted.client()], []
    for at, client in enumerate(clients):
        rows = [b'{"id":%d,"px":1}' % (5 * at + number) for number in range(5)]
        lines = b'{"c":"publish","t":"orders","n":5,"cid":"1"}', *rows, b'{"c":"sow","t":"count"}'
        reads = read_frames([b"\n".join(lines)])
        frames.append(counted.executor.carry_out(client.session, reads, lambda: counted.now))
    for _ in itertools.islice(itertools.zip_longest(*frames), 50):
        counted.settle()
    counted.settle()
    found = [
        [line["d"]["n"] for line in client.lines() if line["c"] == "sow"] for client in clients
    ]
    assert found == [[10], [10]]
    counted.check()


@pytest.mark.parametrize("between", [[b'{"c":"heartbeat"}'], []], ids=["apart", "alike"])
def test_a_query_of_a_view_has_what_a_frame_that_goes_on_has_acknowledged(
    counted, between, monkeypatch
):
    monkeypatch.setattr("sow.sessions.commands.executor.TOGETHER_MAX", 2)
    rows, client = [b'{"id":%d,"px":1}' % at for at in range(5)], counted.client()
    head = b'{"c":"publish","t":"orders","n":%d,"cid":"%d"}'
    lines = [head % (1, 1), b'{"id":9,"px":9}', *between, head % (5, 2), *rows]
    reads = read_frames([b"\n".join(lines)])
    frame = counted.executor.carry_out(client.session, reads, lambda: counted.now)
    while not any(line["c"] == "ack" for line in client.lines()):
        next(frame)
        counted.settle()
    query = asked(counted, "count")
    assert until_it_rests(query) is RESTS
    run_to_completion(frame)
    assert until_it_rests(query) == {1: 5, 9: 1}


def test_a_large_publish_begins_after_queries_that_wait_for_one(counted):
    slow = steps_of(counted, (0, 1), (1, 1), (2, 1))
    next(slow)
    counted.publish("orders", {"id": 9, "px": 9})
    query, large = asked(counted, "count"), steps_of(counted, (5, 5), (6, 5), (7, 5))
    assert until_it_rests(query) is RESTS
    assert until_it_rests(large) is RESTS
    counted.publish("orders", {"id": 10, "px": 9})
    assert counted.engine.seq == 4, "a small one does not wait"
    run_to_completion(slow)
    assert until_it_rests(query) == {1: 3, 9: 2}
    run_to_completion(large)
    counted.settle()
    assert len(counted.records("orders")) == 8
    counted.check()


def test_a_flush_hands_out_so_much_and_the_next_one_the_rest(monkeypatch):
    monkeypatch.setattr(output, "HANDED_OUT_AT_ONCE", 3)
    world = World()
    clients = [world.client() for _ in range(8)]
    for at, client in enumerate(clients):
        client.say(c="subscribe", t="orders", opts=f"select=[/id,/f{at}]")
    world.engine.publish("orders", [b'{"id":1}'], world.now)
    counts = []
    while world.engine.has_work:
        world.settle_once()
        counts.append(sum(len(client.sent()) for client in clients))
    assert counts == [3, 3, 2]
