"""Queries beside an atomic change read what there was, and views what has been published."""

import json
from dataclasses import replace
from random import Random

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES, WRITES_BEFORE, Join, View
from sow.query import Query, answering
from sow.sessions.commands.commit_plan import StagedRows
from sow.sessions.commands.record_ops import at_hand
from sow.sessions.commands.staged_writes import StagedWrites
from sow.sessions.queries.query_results import execute_query
from tests.engine.test_atomic_change import COPY, OTHER, begin, held, made, sent
from tests.laws.harness import ORDERS, SECOND, World


@pytest.fixture(autouse=True)
def _one_at_once(monkeypatch):
    monkeypatch.setattr("sow.sessions.commands.commit_plan.STORED_AT_ONCE", 1)


@pytest.fixture
def _read_on(monkeypatch):
    """Queries do not wait for any change."""
    monkeypatch.setattr("sow.sessions.commands.staged_writes.WAITED_ROWS_MAX", 0)
    monkeypatch.setattr("sow.sessions.commands.staged_writes.ROWS_OF_A_COPY", 10**6)


QUERIES = [
    {},
    {"filter": "/v = 1"},
    {"filter": "/v > 0", "order_by": "/v DESC,/id"},
    {"filter": "/id = 2"},
    {"filter": "/id = '05' OR /name LIKE 'a'"},
    {"order_by": "/name", "opts": "top_n=3"},
    {"keys": True},
]


def chosen(chance):
    return {
        "id": chance.randrange(12),
        "v": chance.choice([0, 1, 2, "1", "05", None]),
        "name": chance.choice(["ab", "cd", "a", ""]),
    }


def answers(world, keys):
    """What queries say of a topic: records, and the bookmark that they are as of."""
    found = []
    for one in QUERIES:
        client = world.client()
        given = {**one, "keys": keys} if "keys" in one else one
        lines = client.say(c="sow", t="orders", **given)
        ends = [line.get("bm") for line in lines if line["c"] == "group_end"]
        found.append(([line["d"] for line in lines if line["c"] == "sow"], ends))
    over_http = run_to_completion(execute_query(world.engine, "orders", Query()))
    found.append(
        ([body for some in over_http.rows.messages() for body in some], over_http.bookmark)
    )
    run_to_completion(at_hand(world.engine, "orders", reads_before=True))
    table = world.engine.queries.shown("orders")[0].table
    slots = [table.find(key) for key in keys.split(",")]
    return [*found, [slot is not None and table.bodies[slot] for slot in slots]]


def without_bookmarks(found):
    return [rows for rows, _ in found[:-1]], found[-1]


def random_batch(world, chance):
    """A batch of all operations, or one that replaces the topic, on its way."""
    operations, replaces = ["publish", "delta", "delete"], chance.random() < 0.3
    given = [
        ("publish" if replaces else chance.choice(operations), chosen(chance)) for _ in range(9)
    ]
    rows = StagedRows(
        [operation for operation, _ in given],
        [None] * len(given),
        [json.dumps(document).encode() for _, document in given],
    )
    writes = StagedWrites(world.engine)
    steps, _ = writes.read(writes.topic("orders"), rows)
    return writes.applying("w", 1, "orders", steps, world.now, replaces)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.usefixtures("_read_on")
def test_queries_read_what_there_was_until_all_is_there(seed):
    chance = Random(seed)
    orders = replace(ORDERS, hash_indexes=(("/v",),), indexes=("/name",))
    world = World(orders, COPY, OTHER, WRITES, WRITES_BEFORE)
    for _ in range(3):
        world.publish("orders", *[chosen(chance) for _ in range(6)])
        world.delete("orders", f"/id = {chance.randrange(12)}")
    records = world.engine.topics["orders"].records
    keys = ",".join(records.table.sow_keys([0, 1, 2], records.table.identities[:3]))
    if chance.random() < 0.7:
        answers(world, keys)  # columns are there, and keys
    before, seq = answers(world, keys), world.engine.seq
    applying = random_batch(world, chance)
    follower = world.client()
    follower.say(c="subscribe", t="orders")
    seen, late = 0, []
    for _ in applying:
        world.settle()
        if world.engine.atomic.topic is not None and chance.random() < 0.3:
            now = answers(world, keys)
            assert now == before or len(late) or records.table._gone is None
            late += [] if now == before else [now]
        if world.engine.seq > seq and chance.random() < 0.5:
            world.publish("other", {"id": seen})
        seen += 1
        if chance.random() < 0.1:
            world.check()
    world.settle()
    assert seen > 3
    after = answers(world, keys)
    assert all(without_bookmarks(now) == without_bookmarks(after) for now in late)
    assert after == answers(world.restart(), keys)
    assert records.table._gone is None
    world.check()


@pytest.mark.usefixtures("_read_on")
def test_a_query_that_has_begun_is_answered_by_one_state():
    world = World(ORDERS, WRITES, WRITES_BEFORE)
    world.publish("orders", {"id": 1}, {"id": 2})
    writes, queries = StagedWrites(world.engine), world.engine.queries
    bodies = [json.dumps({"id": number, "v": 1}).encode() for number in range(6)]
    rows = StagedRows(["publish"] * 6, [None] * 6, bodies)
    filtered = Query(filter=world.engine.filter("/v = 1"))
    for end in range(12):
        steps, _ = writes.read(writes.topic("orders"), rows)
        applying = writes.applying("w", end, "orders", steps, world.now)
        answering = queries.answering("orders", filtered, reads_before=True)
        over = None
        for _ in range(end):
            next(applying, None)
            try:
                next(answering)
            except StopIteration as ended:
                over = ended.value
                break
        if over is None:
            over = run_to_completion(answering)
        shown, seq = queries.shown("orders")
        assert over.matches in (0, 6)
        assert len(shown.table) in (2, 6)
        assert seq <= world.engine.seq
        run_to_completion(applying)
        world.settle()


def test_few_rows_are_waited_for_and_the_records_not_copied():
    world = made()
    applying = begin(world)
    assert world.engine.atomic.readable(world.engine.topics["orders"]) is None
    assert run_to_completion(applying) == 4


@pytest.mark.usefixtures("_read_on")
def test_a_query_does_not_wait_where_many_other_topics_change(monkeypatch):
    monkeypatch.setattr("sow.sessions.queries.query_planning.TAKEN_AT_ONCE", 1)

    def slowly(indexes, query):
        yield
        return (yield from answering(indexes, query))

    monkeypatch.setattr("sow.engine.queries.answering", slowly)
    world = made()
    world.publish("orders", {"id": 9})
    applying = begin(world, *range(10, 30))

    def others():
        world.publish("other", {"id": 1})
        world.publish("lives", {"id": 1})
        next(applying)

    lines = world.client().say_in_steps(others, c="sow", t="orders")
    assert held(lines) == [9]
    assert lines[-1]["bm"] == "1"
    assert world.engine.atomic.topic is not None, "it is under way"
    run_to_completion(applying)


@pytest.mark.parametrize("upto", ["begun", "numbered", "half"])
def test_a_view_shows_meanwhile_what_was_published_before(upto, monkeypatch):
    monkeypatch.setattr("sow.engine.views.ROWS_AT_ONCE", 1)
    monkeypatch.setattr("sow.topic.views.view.RELEASED_AT_ONCE", 1)
    each = View("each", "json", ("orders",), ("/id", "MAX(/v) AS /v"), ("/id",))
    above = View("above", "json", ("each",), ("COUNT(/id) AS /n", "/v"), ("/v",))
    world = made(each, above)
    bodies = [b'{"id":%d,"v":0}' % number for number in range(9)]
    world.engine.publish("orders", bodies, world.now)
    applying = begin(world, upto=upto)
    for name, shown in (("each", 9), ("above", 1)):
        asked = execute_query(world.engine, name, Query())
        assert len(run_to_completion(asked).rows) == shown
    assert world.records("above") == [{"n": 9, "v": 0}]
    run_to_completion(applying)
    world.settle()
    world.check()


def test_a_query_of_a_view_has_what_was_acknowledged_beside_a_change_of_another_topic():
    joins = (Join("orders", "/id", "other", "/id"),)
    fields = ("[other]./v AS /v", "COUNT([orders]./id) AS /n")
    joined = View("joined", "json", ("orders", "other"), fields, ("[other]./v",), joins=joins)
    world = made(joined)
    world.publish("orders", {"id": 1})
    applying = begin(world, 1, 2, 3, 4)
    world.publish("other", {"id": 1, "v": 1})
    asked = execute_query(world.engine, "joined", Query())
    assert len(run_to_completion(asked).rows) == 2
    assert [row for row in world.records("joined") if row.get("v") == 1] == [{"v": 1, "n": 1}]
    run_to_completion(applying)
    world.settle()
    world.check()


@pytest.mark.usefixtures("_read_on")
def test_a_view_that_waits_for_a_publish_shows_it_before_a_long_change_of_the_topic(monkeypatch):
    monkeypatch.setattr("sow.engine.bulk_publish.SLICE_ROWS", 1)
    each = View("each", "json", ("orders",), ("/id", "MAX(/v) AS /v"), ("/id",))
    world = made(each)
    topic, bodies = world.engine.topics["orders"], [b'{"id":%d}' % number for number in (7, 8)]
    read = [world.engine.read(topic, [body], now_us=world.now) for body in bodies]
    publishing = world.engine.publications.carry_out("orders", read, world.now)
    next(publishing)
    world.publish("orders", {"id": 9})
    applying = begin(world, upto="numbered")
    asked = execute_query(world.engine, "each", Query())
    assert len(run_to_completion(asked).rows) == 2, "half of a publish, which has to wait"
    run_to_completion(applying)
    run_to_completion(publishing)
    world.settle()
    assert len(world.records("each")) == 7
    world.check()


BEGUN = [
    {"c": "subscribe"},
    {"c": "subscribe", "filter": "/v > 0"},
    {"c": "subscribe", "opts": "conflation=100ms"},
    {"c": "sow_and_subscribe"},
    {"c": "sow_and_subscribe", "filter": "/v > 0", "opts": "oof"},
    {"c": "sow_and_subscribe", "order_by": "/name", "opts": "conflation=100ms"},
    {"c": "sow_and_delta_subscribe"},
    {"c": "sow_and_delta_subscribe", "filter": "/v > 0", "opts": "oof"},
    {"c": "subscribe", "bm": "0"},
    {"c": "delta_subscribe", "bm": "0"},
    {"c": "sow_and_subscribe", "opts": "as_of=3"},
]


def told(lines):
    """What a client is told of records, without what depends on when it came."""
    return [
        (line["c"], line["k"], line.get("bm"), line.get("d"))
        for line in lines
        if line["c"] in ("sow", "p", "oof")
    ]


@pytest.mark.parametrize("at", [0, 1, 4])
@pytest.mark.parametrize("command", BEGUN, ids=str)
@pytest.mark.usefixtures("_read_on")
def test_a_subscription_begins_while_rows_are_stored(command, at):
    """It waits for no step of the change, and is told what one is that began before it."""
    world = World(ORDERS, OTHER, WRITES, WRITES_BEFORE)
    for number in range(4):
        world.publish("orders", {"id": number, "v": number % 2, "name": "before"})
    command = {"t": "orders", "cid": "1", "a": "processed,completed", **command}
    first = world.client()
    expected = first.say(**command)
    world.advance(SECOND)
    writes, topic = StagedWrites(world.engine), world.engine.topics["orders"]
    documents = [{"id": number, "v": number % 2} for number in (2, 3, 4, 5, 4, 2)]
    bodies = [json.dumps(document).encode() for document in documents]
    rows = StagedRows(["publish"] * 6, [None] * 6, bodies)
    steps, _ = writes.read(writes.topic("orders"), rows)
    applying = writes.applying("w", 1, "orders", steps, world.now)
    while not world.engine.atomic.shows_before(topic):
        next(applying)
    for _ in range(at):
        next(applying)
    world.settle()
    assert world.engine.atomic.topic is topic
    stored, client = topic.records.table.seqs.max(), world.client()
    lines = client.say(**command)
    past = held(world.client().say(c="sow", t="orders", opts="as_of=4"))
    assert past == [0, 1, 2, 3]
    assert topic.records.table.seqs.max() == stored, "a step of the change was taken for it"
    assert any(line.get("a") == "processed" for line in lines)
    world.publish("other", {"id": 1})
    lines += client.say(c="sow", t="other")
    assert lines[-2]["d"] == {"id": 1}, "its client is not kept waiting"
    world.check()
    run_to_completion(applying)
    world.settle()
    lines += client.lines()
    world.advance(SECOND)
    world.publish("orders", {"id": 0, "v": 1}, {"id": 1, "v": 0})
    world.advance(SECOND)
    world.check()
    lines = [line for line in lines + client.lines() if line.get("t") != "other"]
    assert told(lines) == told(expected + first.lines())
    assert sum(line.get("a") == "completed" for line in lines) == 1
    assert held(client.say(c="sow", t="orders")) == [0, 1, 2, 3, 4, 5]


def folded(lines):
    """What a client holds that has kept what it was sent."""
    holds = {}
    for line in lines:
        if line["c"] == "oof":
            holds.pop(line["k"], None)
        elif line["c"] in ("sow", "p"):
            holds[line["k"]] = line["d"]
    return holds


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.usefixtures("_read_on")
def test_who_comes_at_any_step_holds_in_the_end_what_there_is(seed):
    chance = Random(seed)
    world = World(ORDERS, OTHER, WRITES, WRITES_BEFORE)
    for _ in range(3):
        world.publish("orders", *[chosen(chance) for _ in range(4)])
    applying, clients = random_batch(world, chance), []
    for _ in applying:
        if chance.random() < 0.5:
            world.settle()
        if chance.random() < 0.4:
            more = {"filter": chance.choice(["/v > 0", "/v = '05' OR /id = 2"])}
            more |= {"opts": chance.choice(["oof", "oof,conflation=100ms"])}
            more = more if chance.random() < 0.7 else {"opts": "oof"}
            client = world.client()
            lines = client.say(c="sow_and_subscribe", t="orders", **more)
            clients.append((client, lines, more))
        if chance.random() < 0.2:
            world.publish("other", {"id": 1})
        if clients and chance.random() < 0.1:
            world.executor.sessions.close(clients.pop()[0].session)
        world.check()
    for client, lines, _ in clients:
        world.settle()
        lines += client.lines()
    world.publish("orders", chosen(chance))
    world.delete("orders", f"/id = {chance.randrange(12)}")
    world.advance(SECOND)
    for client, lines, more in clients:
        there = world.client().say(c="sow", t="orders", **{k: more[k] for k in more if k != "opts"})
        assert folded(lines + client.lines()) == folded(there), more
    world.check()


@pytest.mark.usefixtures("_read_on")
def test_where_the_log_is_read_for_many_others_wait(monkeypatch):
    monkeypatch.setattr("sow.sessions.queries.query_planning.REPLAYS_MAX", 1)
    world = made()
    world.client().say(c="subscribe", t="orders", bm="0", opts="pause")  # which reads nothing
    applying = begin(world)
    lines = world.client().say(c="sow_and_subscribe", t="orders")
    assert (held(lines), [number for _, number in sent(lines)]) == ([], [1, 2, 3, 4])
    assert world.engine.atomic.topic is not None
    assert held(world.client().say(c="sow_and_subscribe", t="orders")) == [1, 2, 3, 4]
    assert world.engine.atomic.topic is None, "the steps were taken"
    run_to_completion(applying)
    world.check()
