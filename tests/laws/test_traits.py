"""Filters that read more of a message than its fields: the same result in every place."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic, Topic
from sow.core.keys import sow_key
from sow.expressions import Trait, compile_filter
from sow.history.snapshot import Snapshot
from sow.history.snapshot_as_of import narrowed
from sow.query import Query
from tests.effort import examples
from tests.expressions import naive
from tests.history.reading import extent, log_rows
from tests.laws.harness import ORDERS, SECOND, World

START_S = 1_000
RECORDS = [{"id": at, "symbol": "AB"[at % 2], "note": "x" * at} for at in range(6)]
EVENTS = Topic("event-.*", "json", keys=("/id",), pattern="event-.*")


def world_with(*conditions):
    copies = [
        ConflatedTopic(f"copy-{at}", "json", "orders", SECOND, filter=condition)
        for at, condition in enumerate(conditions)
    ]
    return World(ORDERS, *copies)


def publish_all(world, topic="orders"):
    for record in RECORDS:
        world.publish(topic, record)
        world.advance(SECOND)


def line(header):
    return json.dumps(header).encode()


def ids(data):
    return sorted(document["id"] for _, document in data)


def requested_of_log(world, condition):
    records = world.engine.topics["orders"].records
    part = extent(world.journal, 0, None, 100, {"orders": records})
    rows = log_rows(world.journal, part, {"orders": records}, condition)
    return sorted(json.loads(body)["id"] for some in rows if some for body in some.bodies)


def requested_as_of(world, condition):
    topic = world.engine.topics["orders"]
    answer = world.engine.queries.at_once("orders", Query())

    rows = Snapshot.take(topic.records, answer.slots)
    left = run_to_completion(narrowed(rows, condition, None))
    return sorted(json.loads(body)["id"] for body in left.bodies.part(0, len(left)))


SIZE = len(json.dumps(RECORDS[3], separators=(",", ":")))
STEADY = {
    f"MESSAGE_SIZE() > {SIZE}": [4, 5],
    "TOPIC_NAME() = 'orders' AND /id > 2": [3, 4, 5],
    "TOPIC_NAME() LIKE '-C$'": [],
    "AMPS_INSTANCE_NAME() = 'test' AND /id < 2": [0, 1],
    f"/symbol = 'A' AND MESSAGE_SIZE() <= {SIZE}": [0, 2],
    f"/symbol = 'B' OR MESSAGE_SIZE() > {SIZE}": [1, 3, 4, 5],
    f"LAST_UPDATED() >= {START_S + 2} AND /id < 5": [2, 3, 4],
    "LENGTH(SOW_KEY()) > 5 AND /id = 1": [1],
}


@pytest.mark.parametrize(("condition", "found"), STEADY.items())
def test_a_filter_says_the_same_wherever_it_stands(condition, found):
    world = world_with(condition)
    plain, leaving, conflated = world.client(), world.client(), world.client()
    plain.say(c="subscribe", t="orders", filter=condition)
    leaving.say(c="sow_and_subscribe", t="orders", filter=condition, opts="oof")
    conflated.say(c="subscribe", t="orders", filter=condition, opts="conflation=100ms")
    publish_all(world)
    asking = world.client()
    asking.say(c="sow", t="orders", filter=condition)
    assert ids(plain.data()) == ids(leaving.data()) == ids(conflated.data()) == found
    for command, more in (
        ("sow", {}),
        ("sow", {"t": "^ord"}),
        ("sow_and_subscribe", {}),
        ("subscribe", {"bm": "0"}),
        ("sow", {"t": "copy-0", "filter": "1 = 1"}),
    ):
        client = world.client()
        client.execute(line({"c": command, "t": "orders", "filter": condition} | more))
        assert ids(client.data()) == found, (command, more)
    compiled = world.engine.filter(condition)
    assert requested_of_log(world, compiled) == requested_as_of(world, compiled) == found
    # Made again of what is stored, the copy is the same.
    again = world.restart()
    assert [record["id"] for record in again.records("copy-0")] == found
    world.delete("orders", condition)
    assert [one["id"] for one in world.records("orders")] == [
        at for at in range(6) if at not in found
    ]
    world.check()


def test_a_sow_key_finds_its_record_everywhere():
    world = world_with()
    publish_all(world)
    key = world.sow_key("orders", "3")
    for condition in (f"SOW_KEY() = '{key}'", f"SOW_KEY() = {key}", f"SOW_KEY() IN ('1', '{key}')"):
        client = world.client()
        client.execute(line({"c": "sow_and_subscribe", "t": "orders", "filter": condition}))
        world.publish("orders", *RECORDS)
        assert ids(client.data()) == [3, 3]


def test_records_without_fields_have_traits_and_so_have_topics_of_patterns():
    world = World(Topic("raw", "binary"), EVENTS)
    for key, body in (("a", b"x"), ("b", b"longer")):
        world.engine.publish("raw", [body], world.now, key=key)
    world.settle()
    client = world.client()
    lines = client.say(c="sow", t="raw", filter="MESSAGE_SIZE() > 3 AND SOW_KEY() = 'b'")
    assert [line["k"] for line in lines if line["c"] == "sow"] == ["b"]
    world.publish("event-a", {"id": 1})
    client.say(c="sow_and_subscribe", t="^event", filter="TOPIC_NAME() = 'event-b'")
    world.publish("event-b", {"id": 2})
    world.publish("event-a", {"id": 3})
    assert ids(client.data()) == [2]


TESTS = [
    "/a = 1", "/a > 1", "/a IN (0, 2) OR /b = 'x'", "/b = 'x'", "NOT /a = 2", "/a IS NULL",
    "MESSAGE_SIZE() > 16", "MESSAGE_SIZE() < /a * 10", "TOPIC_NAME() = 'orders'", "SOW_KEY() % 2",
    "LAST_UPDATED() > 1002", "LAST_UPDATED() BETWEEN 1001 AND 1003", "LENGTH(SOW_KEY()) > 19",
    "IF(/b = 'x', MESSAGE_SIZE() > 16, LAST_UPDATED() > 1001)",
]  # fmt: skip
FILTERS = st.recursive(
    st.sampled_from(TESTS),
    lambda inner: st.builds("({}) {} ({})".format, inner, st.sampled_from(["AND", "OR"]), inner),
    max_leaves=3,
)
CHANGES = st.lists(
    st.one_of(
        st.tuples(
            st.integers(0, 3),
            st.fixed_dictionaries({}, optional={"a": st.integers(0, 2), "b": st.just("x")}),
        ),
        st.integers(0, 3),
        st.just("wait"),
    ),
    max_size=12,
)


class Mirror:
    """The state of a client that applies its lines."""

    def __init__(self, world, command, condition, **more):
        self.client, self.held = world.client(), {}
        self.client.execute(line({"c": command, "t": "orders", "filter": condition} | more))

    def now(self):
        for kind, document in self.client.data():
            if kind in ("match", "deleted"):
                assert document["id"] in self.held, "a removal of a record that was not sent"
                del self.held[document["id"]]
            else:
                self.held.setdefault(document["id"], {}).update(document)
        return self.held


def naively(world, condition):
    """The records that pass a filter, by the naive reading of it."""
    table, found = world.engine.topics["orders"].records.table, {}
    for identity, slot in table.slots.items():
        document = json.loads(table.bodies[slot])
        known = {
            Trait.SOW_KEY: str(sow_key("orders", identity)),
            Trait.TOPIC_NAME: "orders",
            Trait.MESSAGE_SIZE: len(table.bodies[slot]),
            Trait.LAST_UPDATED: int(table.ts_us[slot]) / SECOND,
        }
        fields = {path: document.get(path.steps[0]) for path in condition.paths}
        if naive.truth(condition.expression, known | fields) is True:
            found[document["id"]] = document
    return found


@examples(18)
@given(FILTERS, CHANGES, CHANGES)
def test_whatever_the_filter_all_followers_hold_what_the_naive_reading_finds(text, before, after):
    world = world_with(text)
    condition = world.engine.filter(text)
    mirrors = []
    for changes in (before, after):
        for command in ("sow_and_subscribe", "sow_and_delta_subscribe"):
            for opts in ("oof", "oof,conflation=100ms"):
                mirrors.append(Mirror(world, command, text, opts=opts))
        for change in changes:
            match change:
                case int():
                    world.delete("orders", f"/id = {change}")
                case (at, fields):
                    world.publish("orders", {"id": at} | fields)
                case "wait":
                    world.advance(SECOND)
        world.advance(SECOND)
        found = naively(world, condition)
        for mirror in mirrors:
            assert mirror.now().keys() == found.keys()
        requested = Mirror(world, "sow", text)
        assert requested.now() == found
        assert {one["id"]: one for one in world.records("copy-0")} == found
    world.check()


# Of one moment.


def test_a_client_with_oof_is_notified_as_the_time_of_records_changes():
    world = world_with()
    world.publish("orders", {"id": 1}, {"id": 2})
    early, later = world.client(), world.client()
    for client, opts in ((early, "oof"), (later, "oof,conflation=100ms")):
        client.execute(
            line(
                {
                    "c": "sow_and_subscribe",
                    "t": "orders",
                    "filter": f"LAST_UPDATED() < {START_S + 2}",
                    "opts": opts,
                }
            )
        )
        assert ids(client.data()) == [1, 2]
    world.advance(SECOND)
    world.publish("orders", {"id": 1, "v": 1}, {"id": 3})
    world.advance(SECOND)
    world.publish("orders", {"id": 1, "v": 2}, {"id": 4})
    world.delete("orders", "/id = 2")
    world.advance(SECOND)
    assert early.data() == [
        ("p", {"id": 1, "v": 1}),
        ("p", {"id": 3}),
        ("match", {"id": 1, "v": 2}),
        ("deleted", {"id": 2}),
    ]
    assert sorted(later.data(), key=str)[-3:] == [
        ("match", {"id": 1, "v": 2}),
        ("p", {"id": 1, "v": 1}),
        ("p", {"id": 3}),
    ]
    world.check()


def test_deltas_go_to_clients_that_were_sent_the_whole():
    world = world_with()
    world.publish("orders", {"id": 1, "px": 1})
    client = world.client()
    client.say(c="sow_and_delta_subscribe", t="orders", filter=f"LAST_UPDATED() >= {START_S + 1}")
    world.advance(SECOND)
    world.publish("orders", {"id": 1, "px": 2})
    world.publish("orders", {"id": 1, "px": 3})
    assert client.data() == [("p", {"id": 1, "px": 2}), ("p", {"id": 1, "px": 3})]
    world.publish("orders", {"id": 1, "px": 3, "more": 1})
    assert client.data() == [("p", {"id": 1, "more": 1})]


def test_a_bookmark_is_known_of_changes_and_null_in_a_query():
    world = world_with()
    world.publish("orders", {"id": 1})
    client = world.client()
    null = {"filter": "BOOKMARK() IS NULL", "t": "orders"}
    client.execute(line({"c": "sow_and_subscribe", "opts": "oof"} | null))
    assert client.data() == [("sow", {"id": 1})]
    world.publish("orders", {"id": 1, "v": 1}, {"id": 2})
    assert client.data() == [("match", {"id": 1, "v": 1})]
    after = world.client()
    after.execute(line({"c": "subscribe", "t": "orders", "filter": "BOOKMARK() > 2"}))
    world.publish("orders", {"id": 9})
    assert ids(after.data()) == [9]
    after.execute(line({"c": "subscribe", "t": "orders", "filter": "BOOKMARK() = 2", "bm": "0"}))
    assert ids(after.data()) == [1]


def test_another_filter_of_the_moment_removes_and_adds_its_difference():
    world = world_with()
    world.publish("orders", {"id": 1})
    world.advance(SECOND)
    world.publish("orders", {"id": 2})
    client = world.client()
    first = client.say(
        c="sow_and_subscribe", t="orders", filter=f"LAST_UPDATED() < {START_S + 1}", opts="oof"
    )
    name = next(line["s"] for line in first if line["c"] == "group_begin")
    assert short_ids(first) == [("sow", 1)]
    second = client.say(
        c="sow_and_subscribe",
        t="orders",
        s=name,
        filter=f"LAST_UPDATED() >= {START_S + 1}",
        opts="oof,replace",
    )
    assert sorted(short_ids(second)) == [("match", 1), ("sow", 2)]
    world.publish("orders", {"id": 1, "v": 1})
    assert client.data() == [("p", {"id": 1, "v": 1})]
    world.check()


def short_ids(lines):
    return [
        (line.get("reason", line["c"]), line["d"]["id"])
        for line in lines
        if isinstance(line.get("d"), dict)
    ]


# The time.


def test_all_records_of_an_answer_see_the_time_at_which_it_began():
    world = world_with()
    publish_all(world)
    client = world.client()
    now_s = START_S + 6
    lines = client.say(c="sow", t="orders", filter="LAST_UPDATED() > UNIX_TIMESTAMP() - 3")
    assert sorted(one[1] for one in short_ids(lines)) == [4, 5]
    assert [line["matches"] for line in lines if "matches" in line] in ([2], [])
    world.publish("orders", {"id": 7, "expires": now_s + 5}, {"id": 8, "expires": now_s + 1})
    world.advance(2 * SECOND)
    lines = client.say(c="sow", t="orders", filter="/expires < UNIX_TIMESTAMP()")
    assert short_ids(lines) == [("sow", 8)]
    world.delete("orders", "/expires < UNIX_TIMESTAMP()")
    assert 8 not in [record["id"] for record in world.records("orders")]


def test_the_time_of_a_query_is_a_number_that_a_column_answers():
    world = world_with()
    world.publish("orders", *({"id": at, "at": at} for at in range(2000)))
    condition = world.engine.filter("/at > UNIX_TIMESTAMP() + 999.5")
    answer = world.engine.queries.at_once("orders", Query(filter=condition))
    assert (answer.matches, answer.index) == (0, "memo(/at)")
    condition = world.engine.filter("/at >= UNIX_TIMESTAMP()")
    assert world.engine.queries.at_once("orders", Query(filter=condition)).matches == 1000


def test_in_a_subscription_the_time_is_that_of_the_message_then_and_in_a_replay():
    world = world_with()
    live = world.client()
    condition = f"UNIX_TIMESTAMP() < {START_S + 2}"
    live.say(c="subscribe", t="orders", filter=condition)
    publish_all(world)
    assert ids(live.data()) == [0, 1]
    live.execute(line({"c": "subscribe", "t": "orders", "filter": condition, "bm": "0"}))
    assert ids(live.data()) == [0, 1]


def test_who_changes_to_a_filter_of_the_time_is_answered_as_of_one_moment():
    world = world_with()
    world.publish("orders", {"id": 1, "until": START_S - 1}, {"id": 2, "until": START_S + 9})
    client = world.client()
    header = {"c": "sow_and_subscribe", "t": "orders"}
    first = client.say(**header, filter="/id = 1")
    name = next(line["s"] for line in first if line["c"] == "group_begin")
    until = "/until > UNIX_TIMESTAMP()"
    second = client.say(**header, s=name, filter=until, opts="replace")
    assert short_ids(second) == [("sow", 2)]
    world.advance(SECOND)
    world.publish("orders", {"id": 3, "until": START_S}, {"id": 4, "until": START_S + 2})
    assert ids(client.data()) == [4]


@pytest.mark.parametrize("command", ["subscribe", "sow_and_subscribe"])
def test_a_client_with_oof_cannot_read_the_time(command):
    world = world_with()
    client = world.client()
    condition = "/id > 0 AND TODAY() > 5"
    [ack] = client.say(c=command, t="orders", filter=condition, opts="oof", cid="1")
    assert (ack["status"], ack["position"]) == ("failure", 12)
    assert "cannot read the time" in ack["detail"]
    assert ack["expected"]


# Fields that are made.


def test_fields_are_made_of_the_message_that_caused_the_update():
    copy = ConflatedTopic(
        "copy",
        "json",
        "orders",
        SECOND,
        enrichment=(
            "TOPIC_NAME() AS /from/topic",
            "AMPS_INSTANCE_NAME() AS /from/server",
            "SOW_KEY() AS /key",
            "MESSAGE_SIZE() AS /size HINT SET_CURRENT",
            "/size * 2 AS /twice",
            "BOOKMARK() AS /bookmark",
            "LAST_UPDATED() AS /updated",
            "UNIX_TIMESTAMP() AS /now",
        ),
    )
    world = World(ORDERS, copy)
    client = world.client()
    client.say(c="subscribe", t="copy", opts="oof")
    world.publish("orders", {"id": 1})
    world.advance(SECOND)
    made = {
        "id": 1,
        "from": {"topic": "orders", "server": "test"},
        "key": world.sow_key("orders", "1"),
        "size": 8,
        "twice": 16,
        "bookmark": "1",
        "updated": 1000.0,
        "now": 1000.0,
    }
    assert client.data() == [("p", made)]
    # What is made again after a restart is the same.
    world.advance(SECOND)
    assert world.restart().records("copy") == [made]


def test_a_topic_makes_fields_of_the_message_as_it_came():
    made = Topic(
        "made",
        "json",
        keys=("/id",),
        preprocessing=("CONCAT(TOPIC_NAME(), '-', MESSAGE_SIZE(), '-', /n) AS /id",),
        enrichment=(
            "SOW_KEY() AS /key",
            "AMPS_INSTANCE_NAME() AS /server",
            "UNIX_TIMESTAMP() AS /received",
            "LAST_UPDATED() AS /updated",
        ),
    )
    world = World(made)
    world.publish("made", {"n": 1})
    world.advance(SECOND)
    world.publish("made", {"n": 1}, {"n": 2})
    world.advance(SECOND)
    world.publish("made", {"n": 2}, delta=True)
    table = world.engine.topics["made"].records.table
    expected = [
        {
            "n": at,
            "id": f"made-7-{at}",
            "key": table.sow_key(at - 1),
            "server": "test",
            "received": START_S + 1.0 + (at == 2),
            "updated": START_S + 1.0 + (at == 2),
        }
        for at in (1, 2)
    ]
    assert world.records("made") == expected
    # The log holds the computed values: nothing is evaluated again.
    world.advance(SECOND)
    assert world.restart().records("made") == expected


def test_a_filter_over_nothing_but_the_message_is_compiled_once():
    world = world_with()
    assert world.engine.filter("MESSAGE_SIZE() > 5") is world.engine.filter("MESSAGE_SIZE() > 5")
    assert compile_filter("MESSAGE_SIZE() > 5").paths == ()
