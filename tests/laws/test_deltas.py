"""Delta publish and delta subscriptions (docs/semantics.md, Rules 8 and 11)."""

import json

import pytest

from sow.core.definitions import ConflatedTopic, Topic
from tests.laws.harness import MS, ORDERS, SECOND, World


@pytest.fixture
def world():
    return World()


@pytest.fixture
def client(world):
    return world.client()


def delta(world, topic, *documents):
    bodies = [json.dumps(document).encode() for document in documents]
    bookmark = world.engine.publish(topic, bodies, world.now, delta=True)
    world.settle()
    return bookmark


def said(lines):
    """Record lines as (kind, is a delta, document)."""
    return [
        (line.get("reason", line["c"]), line.get("delta", False), line["d"])
        for line in lines
        if line["c"] in ("sow", "p", "oof")
    ]


def test_a_delta_is_merged_path_by_path(world):
    world.publish("orders", {"id": 1, "leg": {"px": 1, "qty": 5}, "tags": [1, 2]})
    delta(world, "orders", {"id": 1, "leg": {"px": 2}, "tags": [3], "note": "x"})
    assert world.records("orders") == [
        {"id": 1, "leg": {"px": 2, "qty": 5}, "tags": [3], "note": "x"}
    ]


def test_a_delta_for_no_record_is_a_publish(world):
    delta(world, "orders", {"id": 9, "px": 1})
    assert world.records("orders") == [{"id": 9, "px": 1}]


def test_deltas_of_one_record_in_one_batch_build_on_each_other(world):
    delta(world, "orders", {"id": 1, "a": 1}, {"id": 1, "b": 2}, {"id": 1, "a": 3})
    assert world.records("orders") == [{"id": 1, "a": 3, "b": 2}]


@pytest.mark.parametrize(
    ("meaning", "left"),
    [("ignore", {"id": 1, "a": 1}), ("set", {"id": 1, "a": None}), ("remove", {"id": 1})],
)
def test_what_a_null_does_is_configured(meaning, left):
    world = World(Topic("orders", "json", keys=("/id",), delta_null=meaning))
    world.publish("orders", {"id": 1, "a": 1})
    delta(world, "orders", {"id": 1, "a": None})
    assert world.records("orders") == [left]


@pytest.mark.parametrize(
    ("meaning", "left"),
    [
        ("ignore", {"id": 1, "n": {"y": 2}, "e": {}, "l": [None]}),
        ("set", {"id": 1, "a": None, "n": {"x": None, "y": 2}, "e": {"x": None}, "l": [None]}),
        ("remove", {"id": 1, "n": {"y": 2}, "e": {}, "l": [None]}),
    ],
)
def test_what_a_null_does_does_not_depend_on_what_was_there(meaning, left):
    world = World(Topic("orders", "json", keys=("/id",), delta_null=meaning))
    document = {"id": 1, "a": None, "n": {"x": None, "y": 2}, "e": {"x": None}, "l": [None]}
    for _ in range(2):
        delta(world, "orders", document)
        assert world.records("orders") == [left]
    world.delete("orders", "/id = 1")
    delta(world, "orders", document, document)
    assert world.records("orders") == [left]


def test_a_delta_that_becomes_a_record_is_stored_byte_for_byte(world):
    body = b'{"id":1, "px":1.10, "big":123456789012345678901234567890}'
    world.engine.publish("orders", [body], world.now, delta=True)
    assert world.engine.topics["orders"].records.table.bodies[0] == body


def test_the_log_and_a_restart_hold_the_merged_record(world):
    world.publish("orders", {"id": 1, "a": 1})
    delta(world, "orders", {"id": 1, "b": 2})
    assert world.restart().records("orders") == [{"id": 1, "a": 1, "b": 2}]


def test_indexes_see_the_merged_record(world, client):
    world.publish("orders", {"id": 1, "symbol": "A"})
    delta(world, "orders", {"id": 1, "symbol": "B"})
    assert client.say(c="sow", t="orders", filter="/symbol = 'A'")[1]["c"] == "group_end"
    assert len(client.say(c="sow", t="orders", filter="/symbol = 'B'")) == 3


@pytest.mark.parametrize(
    ("message_type", "key", "old", "update", "new"),
    [
        ("nvfix", "/id", b"id=1\x01a=1\x01b=2\x01", b"id=1\x01b=3\x01", b"id=1\x01a=1\x01b=3\x01"),
        ("fix", "/1", b"1=x\x0155=A\x0144=1\x01", b"1=x\x0144=2\x01", b"1=x\x0155=A\x0144=2\x01"),
        ("bflat", "/id", b"\x0aidA\x09aB", b"", b""),
        ("string", "", b"old", b"new", b"new"),
        ("int64", "", b"1", b"2", b"2"),
    ],
)
def test_deltas_of_every_kind_of_message(message_type, key, old, update, new):
    topic = Topic("t", message_type, keys=(key,) if key else ())
    world = World(topic)
    if message_type == "bflat":
        kind = world.engine.topics["t"].records.message_type
        old = kind.encode({"id": 1, "a": 1, "b": 2.5})
        update, new = kind.encode({"id": 1, "a": 7}), kind.encode({"id": 1, "a": 7, "b": 2.5})
    explicit = None if key else "k"
    world.engine.publish("t", [old], world.now, key=explicit)
    world.engine.publish("t", [update], world.now, key=explicit, delta=True)
    table = world.engine.topics["t"].records.table
    assert [table.bodies[slot] for slot in table.live()] == [new]


def test_what_is_new_comes_whole_and_what_changes_as_a_delta(world, client):
    world.publish("orders", {"id": 1, "px": 1, "qty": 5})
    first = client.say(c="sow_and_delta_subscribe", t="orders")
    world.publish("orders", {"id": 1, "px": 2, "qty": 5}, {"id": 2, "px": 9})
    assert said(first) == [("sow", False, {"id": 1, "px": 1, "qty": 5})]
    assert said(client.lines()) == [
        ("p", True, {"id": 1, "px": 2}),
        ("p", False, {"id": 2, "px": 9}),
    ]


def test_a_delta_subscription_without_snapshot_gets_each_record_whole_once(world, client):
    world.publish("orders", {"id": 1, "px": 1, "qty": 5})
    client.say(c="delta_subscribe", t="orders")
    world.publish("orders", {"id": 1, "px": 2, "qty": 5})
    world.publish("orders", {"id": 1, "px": 3, "qty": 5})
    assert said(client.lines()) == [
        ("p", False, {"id": 1, "px": 2, "qty": 5}),
        ("p", True, {"id": 1, "px": 3}),
    ]


def test_a_session_that_comes_later_is_not_given_deltas_of_what_it_does_not_hold(world):
    early, late = world.client(), world.client()
    early.say(c="delta_subscribe", t="orders")
    world.publish("orders", {"id": 1, "px": 1})
    late.say(c="delta_subscribe", t="orders")
    world.publish("orders", {"id": 1, "px": 2})
    assert said(early.lines())[-1] == ("p", True, {"id": 1, "px": 2})
    assert said(late.lines()) == [("p", False, {"id": 1, "px": 2})]


def test_a_record_that_loses_a_field_comes_whole(world, client):
    world.publish("orders", {"id": 1, "px": 1, "qty": 5})
    client.say(c="sow_and_delta_subscribe", t="orders")
    world.publish("orders", {"id": 1, "px": 1})
    assert said(client.lines()) == [("p", False, {"id": 1, "px": 1})]


def test_a_publish_that_changes_nothing_says_the_keys(world, client):
    world.publish("orders", {"id": 1, "px": 1})
    client.say(c="sow_and_delta_subscribe", t="orders")
    world.publish("orders", {"id": 1, "px": 1})
    assert said(client.lines()) == [("p", True, {"id": 1})]


def test_no_empties_says_nothing_of_it(world, client):
    world.publish("orders", {"id": 1, "px": 1})
    client.say(c="sow_and_delta_subscribe", t="orders", opts="no_empties")
    world.publish("orders", {"id": 1, "px": 1})
    world.publish("orders", {"id": 1, "px": 2})
    assert said(client.lines()) == [("p", True, {"id": 1, "px": 2})]


def test_no_empties_counts_selected_fields_only(world, client):
    world.publish("orders", {"id": 1, "px": 1, "qty": 1})
    client.say(c="sow_and_delta_subscribe", t="orders", opts="no_empties,select=[/id,/px]")
    world.publish("orders", {"id": 1, "px": 1, "qty": 2})
    world.publish("orders", {"id": 1, "px": 2, "qty": 2})
    assert said(client.lines()) == [("p", True, {"id": 1, "px": 2})]


def test_no_empties_is_silent_when_an_unselected_field_goes_away(world, client):
    world.publish("orders", {"id": 1, "px": 1, "legs": [1]})
    client.say(c="sow_and_delta_subscribe", t="orders", opts="no_empties,select=[/id,/px]")
    world.publish("orders", {"id": 1, "px": 1})
    assert client.lines() == []


def test_no_empties_knows_messages_without_fields_that_did_not_change():
    world = World(Topic("t", "string"))
    client = world.client()
    client.say(c="sow_and_delta_subscribe", t="t", opts="no_empties")
    for body in (b"a", b"a", b"b"):
        world.engine.publish("t", [body], world.now, key="k")
        world.settle()
    assert said(client.lines()) == [("p", False, "a"), ("p", False, "b")]


@pytest.mark.parametrize("opts", ["", "conflation=1s", "conflation=auto"])
@pytest.mark.parametrize("gone", [{"w": 7}, {"w": None}, {"w": [1]}, {"w": {}}, {}])
def test_a_field_that_is_gone_below_a_selected_one_is_not_kept(world, client, gone, opts):
    world.publish("orders", {"id": 1, "w": {"x": {"z": 2}, "u": 1}, "n": 0})
    requested = {"t": "orders", "select": "/id,/w/x"}
    client.say(c="sow_and_delta_subscribe", opts=opts, **requested)
    world.publish("orders", {"id": 1, "n": 0, **gone})
    world.advance(2 * SECOND)
    (line,) = client.lines()
    assert "delta" not in line
    assert said([line]) == [("p", False, client.say(c="sow", **requested)[1]["d"])]


def test_a_field_that_is_not_selected_may_go_without_a_whole_record(world, client):
    world.publish("orders", {"id": 1, "px": 1, "legs": [1]})
    client.say(c="sow_and_delta_subscribe", t="orders", select="/id,/px")
    world.publish("orders", {"id": 1, "px": 2})
    assert said(client.lines()) == [("p", True, {"id": 1, "px": 2})]


def test_deltas_of_different_select_lists_do_not_mix(world):
    clients = {select: world.client() for select in (None, "/id,/px", "/px", "-/px")}
    world.publish("orders", {"id": 1, "px": 1, "q": 1})
    for select, client in clients.items():
        more = {} if select is None else {"select": select}
        client.say(c="sow_and_delta_subscribe", t="orders", **more)
    world.publish("orders", {"id": 1, "px": 2, "q": 2})
    assert [said(client.lines()) for client in clients.values()] == [
        [("p", True, {"id": 1, "px": 2, "q": 2})],
        [("p", True, {"id": 1, "px": 2})],
        [("p", True, {"px": 2})],
        [("p", True, {"id": 1, "q": 2})],
    ]


def test_a_key_below_an_array_is_sent_with_the_array():
    world = World(Topic("t", "json", keys=("/legs/id[0]",)))
    client = world.client()
    world.publish("t", {"legs": [{"id": 1}, {"id": 2}], "px": 1})
    client.say(c="sow_and_delta_subscribe", t="t")
    world.publish("t", {"legs": [{"id": 1}, {"id": 2}], "px": 2})
    assert said(client.lines()) == [("p", True, {"legs": [{"id": 1}, {"id": 2}], "px": 2})]


def test_what_comes_back_into_focus_comes_whole(world, client):
    world.publish("orders", {"id": 1, "px": 5, "q": 1})
    client.say(c="sow_and_delta_subscribe", t="orders", filter="/px > 1", opts="oof")
    world.publish("orders", {"id": 1, "px": 0, "q": 1})
    world.publish("orders", {"id": 1, "px": 9, "q": 1})
    assert said(client.lines()) == [
        ("match", False, {"id": 1, "px": 0, "q": 1}),
        ("p", False, {"id": 1, "px": 9, "q": 1}),
    ]


def test_a_record_deleted_and_published_again_comes_whole(world, client):
    world.publish("orders", {"id": 1, "px": 5, "q": 1})
    client.say(c="sow_and_delta_subscribe", t="orders")
    world.delete("orders", "/id = 1")
    world.publish("orders", {"id": 1, "px": 5, "q": 1})
    assert said(client.lines()) == [("p", False, {"id": 1, "px": 5, "q": 1})]


def test_a_conflated_delta_is_the_merge_of_all_deltas_of_the_window(world, client):
    """The worked example: four updates, and one of them reverts another."""
    world.publish("orders", {"id": 99, "status": "open", "notes": "none", "qty": 10, "px": 1})
    client.say(c="sow_and_delta_subscribe", t="orders", opts="conflation=1s")
    for changed in (
        {"status": "pending"},
        {"notes": "call back"},
        {"status": "open"},
        {"notes": "none"},
    ):
        delta(world, "orders", {"id": 99, **changed})
        world.advance(100 * MS)
    assert client.lines() == []
    world.advance(SECOND)
    (line,) = client.lines()
    assert line["d"] == {"id": 99, "status": "open", "notes": "none"}
    assert line["delta"] is True


def test_deltas_of_a_conflated_topic(world, client):
    world.publish("orders", {"id": 1, "px": 1, "q": 1})
    world.advance(2 * SECOND)
    client.say(c="sow_and_delta_subscribe", t="orders-C")
    for px in (2, 3, 4):
        world.publish("orders", {"id": 1, "px": px, "q": 1})
    world.advance(2 * SECOND)
    assert said(client.lines()) == [("p", True, {"id": 1, "px": 4})]


def test_messages_without_fields_always_come_whole():
    world = World(Topic("t", "string"), ConflatedTopic("t-C", "string", "t"))
    client = world.client()
    client.say(c="sow_and_delta_subscribe", t="t")
    for body in (b"a", b"ab"):
        world.engine.publish("t", [body], world.now, key="k")
        world.settle()
    assert said(client.lines()) == [("p", False, "a"), ("p", False, "ab")]


def test_a_delta_subscription_of_fix_messages():
    world = World(Topic("t", "nvfix", keys=("/id",)), ORDERS)
    client = world.client()
    client.say(c="sow_and_delta_subscribe", t="t")
    for body in (b"id=1\x01a=1\x01b=1\x01", b"id=1\x01a=1\x01b=2\x01"):
        world.engine.publish("t", [body], world.now)
        world.settle()
    assert said(client.lines())[-1] == ("p", True, "id=1\x01b=2\x01")


def test_a_record_of_xml_that_changes_its_root_is_sent_whole_whatever_is_selected():
    pages = Topic("pages", "xml")
    world = World(pages)
    client = world.client()
    publish = {"c": "publish", "t": "pages", "k": "1"}
    client.say(c="sow_and_delta_subscribe", t="pages", select="/r")
    held = []
    for body in ("<r><a>1</a></r>", "<s><a>2</a></s>", "<r><a>1</a></r>", "<r><a>1</a><b/></r>"):
        for line in world.client().say(**publish, d=body):
            assert line["status"] == "success"
        held += said(client.lines())
    assert held == [
        ("p", False, "<r><a>1</a></r>"),
        ("p", False, "<s/>"),
        ("p", False, "<r><a>1</a></r>"),
        ("p", True, "<r><b/></r>"),
    ]
