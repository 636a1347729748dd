"""Snapshots, live updates and out-of-focus messages, line by line."""

import json

import pytest

from sow.core.definitions import SessionSettings, Topic
from sow.expressions import compile_filter
from sow.sessions.queries.query_results import UnreadQuota
from sow.sessions.subscriptions.subscribe import SEARCH_COST_MAX
from tests.laws.harness import MS, ORDERS, SECOND, World, short


@pytest.fixture
def world():
    return World()


@pytest.fixture
def client(world):
    return world.client()


def kinds(lines):
    return [line["c"] for line in lines]


def test_a_query_answers_with_a_group(world, client):
    world.publish("orders", {"id": 1}, {"id": 2})
    lines = client.say(c="sow", t="orders", cid="q", a="processed,completed")
    assert kinds(lines) == ["ack", "group_begin", "sow", "sow", "group_end", "ack"]
    assert (lines[-1]["matches"], lines[-1]["returned"]) == (2, 2)
    assert len({line["s"] for line in lines}) == 1


@pytest.mark.parametrize("more", [{}, {"projection": "SUM(/id) AS /sum", "grouping": "/id"}])
def test_a_query_of_another_moment_is_refused_and_not_answered_with_the_present(
    world, client, more
):
    world.publish("orders", {"id": 1}, {"id": 2})
    ack = client.say(c="sow", t="orders", cid="q", bm="1", **more)[0]
    assert (ack["status"], ack["reason"]) == ("failure", "invalid bookmark")
    assert "give as_of" in ack["detail"]
    lines = client.say(c="sow", t="orders", cid="q", bm="now", **more)
    assert "sow" in kinds(lines)


def test_a_query_is_filtered_ordered_and_paged(world, client):
    world.publish("orders", *({"id": i, "px": i % 5} for i in range(10)))
    lines = client.say(
        c="sow", t="orders", filter="/px > 1", order_by="/px DESC,/id", top_n=2, skip_n=1
    )
    assert [document["id"] for _, document in short(lines)] == [9, 3]


def test_a_subscription_says_only_what_comes_after_it(world, client):
    world.publish("orders", {"id": 1})
    client.say(c="subscribe", t="orders")
    world.publish("orders", {"id": 2})
    assert client.data() == [("p", {"id": 2})]


def test_a_snapshot_and_what_follows_have_no_gap_and_no_repeat(world, client):
    world.publish("orders", {"id": 1})
    other = world.client()
    for line in ({"c": "publish", "t": "orders", "d": {"id": 2}},):
        other.say(**line)
    lines = client.say(c="sow_and_subscribe", t="orders")
    world.publish("orders", {"id": 3})
    assert [d["id"] for _, d in short(lines) + client.data()] == [1, 2, 3]


def test_joining_a_feed_in_the_middle_of_a_group_repeats_nothing(world):
    first, second = world.client(), world.client()
    first.say(c="sow_and_subscribe", t="orders")
    lines = second.send(
        b'{"c":"publish","t":"orders","d":{"id":1}}\n'
        b'{"c":"sow_and_subscribe","t":"orders"}\n'
        b'{"c":"publish","t":"orders","d":{"id":2}}'
    )
    world.publish("orders", {"id": 3})
    assert short(lines) + second.data() == [
        ("sow", {"id": 1}),
        ("p", {"id": 2}),
        ("p", {"id": 3}),
    ]
    assert [d["id"] for _, d in first.data()] == [1, 2, 3]


def test_a_group_end_carries_the_bookmark_of_the_state(world, client):
    bookmark = world.publish("orders", {"id": 1})
    (end,) = [x for x in client.say(c="sow_and_subscribe", t="orders") if x["c"] == "group_end"]
    assert end["bm"] == str(bookmark)


def test_updates_carry_key_and_bookmark(world, client):
    client.say(c="subscribe", t="orders")
    world.publish("orders", {"id": 7})
    (line,) = client.lines()
    assert line["k"] == world.sow_key("orders", "7")
    assert line["bm"] == "1"


def test_equal_subscriptions_share_the_bytes_of_their_frames(world):
    first, second = world.client(), world.client()
    for client in (first, second):
        client.say(c="subscribe", t="orders", filter="/px > 1")
    world.publish("orders", {"id": 1, "px": 5})
    assert first.first_frame is second.first_frame


def test_the_same_subscription_twice_in_a_session_has_two_names(world, client):
    names = {client.say(c="subscribe", t="orders", cid="1")[0]["s"] for _ in range(2)}
    world.publish("orders", {"id": 1})
    assert {line["s"] for line in client.lines()} == names
    assert len(names) == 2


def test_a_filter_lets_only_matching_records_through(world, client):
    client.say(c="subscribe", t="orders", filter="/symbol = 'A'")
    world.publish("orders", {"id": 1, "symbol": "A"}, {"id": 2, "symbol": "B"})
    assert client.data() == [("p", {"id": 1, "symbol": "A"})]


def test_unsubscribe_ends_the_updates(world, client):
    name = client.say(c="subscribe", t="orders", cid="1")[0]["s"]
    client.say(c="unsubscribe", s=name)
    world.publish("orders", {"id": 1})
    assert client.lines() == []


def test_unsubscribing_hands_out_what_came_before(world, client):
    name = client.say(c="subscribe", t="orders", cid="1")[0]["s"]
    lines = client.send(
        b'{"c":"publish","t":"orders","d":{"id":1}}\n'
        + json.dumps({"c": "unsubscribe", "s": name, "cid": "u"}).encode()
    )
    assert sorted(kinds(lines)) == ["ack", "p"]


@pytest.mark.parametrize("name", ["nope", "f99,all"])
def test_unsubscribing_from_nothing_is_refused(client, name):
    (ack,) = client.say(c="unsubscribe", s=name)
    assert ack["reason"] == "subscription does not exist"


def test_unsubscribe_all(world, client):
    for _ in range(3):
        client.say(c="subscribe", t="orders")
    client.say(c="unsubscribe", s="all")
    world.publish("orders", {"id": 1})
    assert client.lines() == []
    assert list(world.engine.topics["orders"].router.feeds()) == []


def test_a_large_snapshot_is_made_as_it_is_pulled(world, client):
    world.publish("orders", *({"id": i} for i in range(1700)))
    frames = client.session.outbox
    client.session.outbox.pull(0)
    lines = client.say(c="sow_and_subscribe", t="orders")
    assert [d["id"] for _, d in short(lines)] == list(range(1700))
    assert frames.message_count == 0


def test_a_large_snapshot_is_of_one_moment(world):
    world.publish("orders", *({"id": i, "v": 1} for i in range(1200)))
    client = world.client()
    for command in ({"c": "sow", "t": "orders"},):
        from sow.protocol.wire import read_frame

        for parsed in read_frame(json.dumps(command).encode()):
            world.executor.execute(client.session, parsed, world.now)
    world.engine.publish("orders", [b'{"id":1100,"v":2}'], world.now)
    world.settle()
    assert {document["v"] for _, document in client.data()} == {1}


# Out of focus.


def follow(world, client, **more):
    client.say(c="sow_and_subscribe", t="orders", opts="oof", filter="/px > 5", **more)


def test_oof_match_carries_the_new_state(world, client):
    world.publish("orders", {"id": 1, "px": 9})
    follow(world, client)
    world.publish("orders", {"id": 1, "px": 1})
    assert client.data() == [("match", {"id": 1, "px": 1})]


def test_oof_deleted_carries_the_last_state(world, client):
    world.publish("orders", {"id": 1, "px": 9})
    follow(world, client)
    world.delete("orders", "/id = 1")
    assert client.data() == [("deleted", {"id": 1, "px": 9})]


def test_oof_expired_carries_the_last_state():
    world = World(Topic("t", "json", keys=("/id",), expires=True, expiration_us=SECOND))
    client = world.client()
    world.publish("t", {"id": 1})
    client.say(c="sow_and_subscribe", t="t", opts="oof")
    world.advance(SECOND)
    assert client.data() == [("expired", {"id": 1})]


def test_no_oof_of_a_record_that_never_matched(world, client):
    world.publish("orders", {"id": 1, "px": 1})
    follow(world, client)
    world.publish("orders", {"id": 1, "px": 2})
    world.delete("orders", "/id = 1")
    assert client.data() == []


def test_coming_into_focus_is_an_update(world, client):
    world.publish("orders", {"id": 1, "px": 1})
    follow(world, client)
    world.publish("orders", {"id": 1, "px": 6})
    assert client.data() == [("p", {"id": 1, "px": 6})]


def test_in_and_out_within_one_batch_are_said_in_order(world, client):
    follow(world, client)
    world.publish("orders", {"id": 1, "px": 6}, {"id": 1, "px": 1}, {"id": 1, "px": 7})
    assert [kind for kind, _ in client.data()] == ["p", "match", "p"]


def test_without_oof_leaving_is_silent(world, client):
    client.say(c="subscribe", t="orders", filter="/px > 5")
    world.publish("orders", {"id": 1, "px": 6}, {"id": 1, "px": 1})
    world.delete("orders", "1=1")
    assert client.data() == [("p", {"id": 1, "px": 6})]


# Acks and refusals.


def test_a_command_with_a_cid_is_acknowledged(client):
    assert kinds(client.say(c="flush", cid="1")) == ["ack"]


def test_a_command_without_a_cid_is_not(client):
    assert client.say(c="flush") == []


@pytest.mark.parametrize("kind", ["processed", "persisted", "completed"])
@pytest.mark.parametrize("command", ["logon", "sow", "subscribe", "sow_and_subscribe", "flush"])
def test_every_kind_of_ack_comes_for_every_command(client, command, kind):
    lines = client.say(c=command, t="orders", cid="1", a=kind)
    assert [line["a"] for line in lines if line["c"] == "ack"] == [kind]


def test_a_failure_is_acknowledged_requested_for_or_not(client):
    (ack,) = client.say(c="sow", t="nope")
    assert (ack["status"], ack["reason"]) == ("failure", "invalid topic")


def test_a_broken_filter_is_refused_with_its_position(client):
    (ack,) = client.say(c="subscribe", t="orders", filter="/px >", cid="1")
    assert (ack["reason"], ack["position"]) == ("bad filter", 5)


def test_one_bad_line_does_not_cost_its_neighbours(world, client):
    lines = client.send(
        b'{"c":"publish","t":"orders","d":{"id":1},"cid":"1"}\nnonsense\n'
        b'{"c":"publish","t":"orders","d":{"id":2},"cid":"2"}'
    )
    assert [line["status"] for line in lines] == ["success", "failure", "success"]
    assert len(world.records("orders")) == 2


def test_nothing_leaves_before_it_is_durable(world, client):
    client.say(c="subscribe", t="orders")
    world.engine.publish("orders", [b'{"id":1}'], world.now)
    group = world.engine.flush()
    assert client.raw() == []
    world.engine.sequencer.release(group)
    assert len(client.raw()) == 1


def slow_world(**settings):
    world = World(ORDERS, sessions=SessionSettings(**settings))
    clients = world.client(), world.client()
    for client in clients:
        client.say(c="subscribe", t="orders")
    return world, *clients


def test_a_client_that_does_not_read_for_a_second_is_sent_why_and_others_do_not_notice():
    world, stuck, lively = slow_world(queue_messages_max=10)
    heard = 0
    for number in range(30):
        world.publish("orders", {"id": number})
        world.advance(100 * MS)
        heard += len(lively.data())
    (line,) = stuck.lines()
    assert (line["c"], heard) == ("close", 30)
    assert stuck.session.outbox.message_count == 0
    world.check()


def test_a_burst_that_is_read_away_is_no_reason_to_give_a_client_up():
    world, reader, _ = slow_world(queue_messages_max=10)
    for number in range(20):
        world.publish("orders", *({"id": number * 100 + n} for n in range(100)))
        world.advance(900 * MS)
        assert len(reader.data()) == 100
    assert reader.session.ended is None


def test_a_queue_far_over_its_bytes_gets_no_patience():
    world, stuck, _ = slow_world(queue_bytes_max=1000)
    world.publish("orders", {"id": 1, "pad": "x" * 5000})
    assert stuck.session.ended is not None


def test_the_filters_of_a_session_are_bounded_in_all(world, monkeypatch):
    monkeypatch.setattr("sow.sessions.subscriptions.subscribe.FILTER_CHARS_MAX", 30)
    client = world.client()
    subscribe = {"c": "subscribe", "t": "orders", "cid": "1"}
    first = client.say(**subscribe | {"filter": "/id = 1000000000"})[-1]
    refused = client.say(**subscribe | {"filter": "/id = 2000000000"})[-1]
    assert (first["status"], refused["status"], refused["reason"]) == (
        "success",
        "failure",
        "too large",
    )
    replace = subscribe | {"s": first["s"], "opts": "replace"}
    assert (
        client.say(**replace | {"filter": "/id = 30000000000000000000"})[-1]["status"] == "success"
    )
    assert client.say(**replace | {"filter": "/id = 4" + "0" * 30})[-1]["reason"] == "too large"
    client.say(c="unsubscribe", s=first["s"], cid="1")
    assert client.say(**subscribe | {"filter": "/id = 1000000000"})[-1]["status"] == "success"


def test_what_searches_for_a_sessions_patterns_cost_is_bounded_in_all(world, monkeypatch):
    """A thousand patterns that RE2 is slow with had a text of 1,000 characters take 13 s."""
    monkeypatch.setattr("sow.sessions.subscriptions.subscribe.SEARCH_COST_MAX", 1000)
    client = world.client()
    slow, more, simple = "/a LIKE 'a[ab]{20}c'", "/a LIKE 'b[ab]{20}c'", "/a LIKE '^a.*b'"
    subscribe = {"c": "subscribe", "t": "orders", "cid": "1"}
    first = client.say(**subscribe, filter=slow)[-1]
    assert first["status"] == "success"
    for command in ("subscribe", "sow_and_subscribe"):
        refused = client.say(**subscribe | {"c": command}, filter=more)[-1]
        assert (refused["status"], refused["reason"]) == ("failure", "too large")
        assert "1000 is the most" in refused["detail"]
        assert "fewer classes" in refused["detail"]
    assert client.say(**subscribe, filter=simple)[-1]["status"] == "success"
    assert client.say(**subscribe, filter="/a = 'b'")[-1]["status"] == "success"
    replace = subscribe | {"s": first["s"], "opts": "replace"}
    assert client.say(**replace, filter=more)[-1]["status"] == "success"


def test_five_thousand_simple_patterns_of_a_session_are_no_matter():
    cost = compile_filter("/symbol LIKE '^[A-Z]{2}77.*(USD|EUR)$'").search_cost
    assert 5_000 * cost < SEARCH_COST_MAX


def test_the_fields_that_filters_have_read_of_every_message_are_bounded(world, monkeypatch):
    monkeypatch.setattr("sow.topic.fields.WATCHED_MAX", 4)
    first, second = world.client(), world.client()
    follow = {"c": "subscribe", "t": "orders", "cid": "1"}
    # The index on /symbol is one of the four.
    assert first.say(**follow, filter="/a = 1 AND /b = 1 AND /c = 1")[-1]["status"] == "success"
    for command in ("subscribe", "sow_and_subscribe"):
        ack = second.say(**follow | {"c": command}, filter="/a = 1 AND /d = 1")[-1]
        assert (ack["status"], ack["reason"]) == ("failure", "too large")
    assert second.say(**follow, filter="/c = 2")[-1]["status"] == "success"
    assert second.say(c="sow", t="orders", cid="2", filter="/d = 1")[0]["status"] == "success"
    first.say(c="unsubscribe", s="all")
    assert second.say(**follow, filter="/a = 1 AND /d = 1")[-1]["status"] == "success"


def test_a_field_that_is_read_already_makes_no_new_reader(world, client):
    topic = world.engine.topics["orders"].records
    client.say(c="subscribe", t="orders", filter="/px = 1")
    paths = topic.watched.paths
    other = client.say(c="subscribe", t="orders", filter="/px = 2", cid="1")[-1]["s"]
    client.say(c="unsubscribe", s=other)
    assert topic.watched.paths is paths


LONG = "z" * 1000


@pytest.mark.parametrize(
    "command",
    [
        {"c": "sow", "t": LONG},
        {"c": "sow", "t": f"{LONG}.*"},
        {"c": "subscribe", "t": f"({LONG}"},
        {"c": "publish", "t": LONG, "d": {"id": 1}},
        {"c": "publish", "t": "orders", "d": {"id": [LONG]}},
        {"c": "publish", "t": "orders", "d": LONG},
        {"c": "publish", "t": "orders", "d": {"id": 1}, "k": LONG},
        {"c": "sow", "t": "orders", "filter": LONG},
        {"c": "sow", "t": "orders", "filter": f"/a = '{LONG}"},
        {"c": "sow", "t": "orders", "filter": f"{LONG}(/a)"},
        {"c": "sow", "t": "orders", "filter": f"/a LIKE '({LONG}'"},
        {"c": "sow", "t": "orders", "filter": f"/{LONG} /{LONG}"},
        {"c": "sow", "t": "orders", "order_by": LONG},
        {"c": "sow", "t": "orders", "order_by": f"/{LONG} {LONG}"},
        {"c": "sow", "t": "orders", "select": LONG},
        {"c": "sow", "t": "orders", "select": f"$.{LONG}"},
        {"c": "sow", "t": "orders", "select": f"$.{LONG[:900]}[*]"},
        {"c": "subscribe", "t": "orders", "opts": f"conflation=1s,conflation_key=[{LONG}]"},
        {"c": "subscribe", "t": "orders", "bm": LONG},
        {"c": "subscribe", "t": "orders", "s": LONG, "opts": "replace"},
        {"c": "unsubscribe", "s": LONG},
    ],
)
def test_a_refusal_repeats_little_of_what_was_sent(world, client, command):
    (ack,) = client.say(**command, cid="1")
    assert ack["status"] == "failure"
    assert "z" * 101 not in json.dumps(ack)


def test_an_order_and_a_select_list_name_so_many_fields_at_most(world, client):
    order = ",".join(f"/k{n}" for n in range(33))
    select = ",".join(f"/k{n}" for n in range(1001))
    for field in ({"order_by": order}, {"select": select}):
        assert client.say(c="sow", t="orders", cid="1", **field)[0]["reason"] == "too large"


SOW = b'{"c":"sow","t":"orders","cid":"q"}'


def test_answers_that_nobody_reads_are_bounded_for_a_session_and_for_all(world, monkeypatch):
    for room in ("sow.sessions.queries.query_planning", "sow.history.snapshot"):
        monkeypatch.setattr(f"{room}.ANSWER_CHUNK_ROWS", 1)
    world.publish("orders", *({"id": number} for number in range(4)))
    unread = world.executor.subscriptions.planner.unread = UnreadQuota(rows_max=14)
    first, second, third, fourth = (world.client() for _ in range(4))
    first.execute(SOW + b"\n" + SOW)
    assert unread.rows == 4
    lines = first.lines()
    # One answer is always given; a second one has to wait until there is room for it.
    assert [line["d"]["id"] for line in lines if line["c"] == "sow"] == [0, 1, 2, 3]
    assert (lines[-1]["status"], lines[-1]["reason"]) == ("failure", "busy")
    assert unread.rows == 0
    for client in (first, second, third, fourth):
        client.execute(SOW)
    assert unread.rows == 12
    assert fourth.lines()[-1]["reason"] == "busy"
    first.lines()
    world.executor.sessions.close(second.session)
    third.session.end("slow", world.now)
    assert unread.rows == 0
    assert kinds(fourth.say(c="sow", t="orders")).count("sow") == 4
