"""Commands on queues: consuming, acknowledging, sessions that go and return, and all that is
refused."""

import json

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import LEASES, Configuration, QueueSettings, Topic
from sow.engine.following import FollowingEngine
from sow.errors import ClientError, InvalidTopic, NotPrimary, UnknownTopic
from sow.protocol.publish_batching import read_frames
from sow.protocol.replies import LINES, EventEncoding
from sow.sessions.commands import queue_commands
from sow.sessions.commands.executor import Executor
from sow.sessions.commands.queue_commands import bookmarks_in
from tests.cases import all_cases
from tests.executing import execute_all
from tests.laws.guarding import reading, rights
from tests.laws.harness import ORDERS, SECOND, World
from tests.store.in_memory import MemoryJournal

JOBS = Topic(
    "jobs",
    "json",
    conflation_policy="off",
    queue=QueueSettings("orders", subscription_backlog_max=5),
)
ONCE = Topic(
    "once",
    "json",
    conflation_policy="off",
    queue=QueueSettings("orders", "at-most-once", subscription_backlog_max=2),
)


@pytest.fixture
def world():
    return World(ORDERS, JOBS, ONCE, LEASES)


def consumer(world, backlog=None, **more):
    client = world.client()
    opts = {} if backlog is None else {"opts": f"max_backlog={backlog}"}
    client.begun = client.say(c="subscribe", cid="s", t="jobs", **opts, **more)
    return client


def bookmarks(lines):
    return [line["bm"] for line in lines if line["c"] == "p"]


def ack(client, *bms, **more):
    return client.say(c="sow_delete", cid="d", t="jobs", bm=[*bms], **more)


def test_a_subscription_gets_messages_as_lines_of_the_queue_after_its_ack(world):
    bookmark = world.publish("orders", {"id": 1})
    first, line = consumer(world).begun
    assert (first["c"], first["status"], first["s"]) == ("ack", "success", "f1")
    assert "ignored" not in first
    assert line == {
        "c": "p",
        "s": "f1",
        "t": "jobs",
        "k": world.sow_key("orders", "1"),
        "d": {"id": 1},
        "bm": str(bookmark),
        "deliveries": 1,
    }


@all_cases(("backlog", "count"), [(None, 1), (3, 3), (99, 5)])
def test_it_has_one_message_at_a_time_or_as_many_as_it_asks_for_up_to_the_queues(backlog, count):
    world = World(ORDERS, JOBS, LEASES)
    world.publish("orders", *({"id": number} for number in range(9)))
    client = consumer(world, backlog)
    got = bookmarks(client.begun)
    assert len(got) == count
    following = ack(client, got[0])
    assert following[0]["acknowledged"] == 1
    assert len(bookmarks(following)) == 1


def test_only_the_holder_acknowledges_and_only_while_the_lease_lasts(world):
    bookmark = str(world.publish("orders", {"id": 1}))
    one, other = consumer(world), consumer(world)
    assert bookmarks(one.begun) == [bookmark]
    assert ack(other, bookmark)[0]["acknowledged"] == 0
    world.advance(30 * SECOND)
    assert [line["deliveries"] for line in other.lines()] == [2]
    assert ack(one, bookmark)[0]["acknowledged"] == 0
    assert ack(other, bookmark, bookmark)[0]["acknowledged"] == 1
    assert ack(other, bookmark)[0]["acknowledged"] == 0
    world.check()


@all_cases("bms", ["17,18", ["17", "18"], [" 17", "18 "]])
def test_bookmarks_are_a_list_or_a_text_with_commas(bms):
    assert bookmarks_in(bms if isinstance(bms, str) else ",".join(bms)) == [17, 18]


@all_cases("text", ["", "x", "1,", "-1", "1.5", "١", "9" * 19])
def test_what_is_no_bookmark_is_refused(text):
    with pytest.raises(ClientError, match="names no messages"):
        bookmarks_in(text)


def test_one_command_names_no_more_than_a_consumer_may_hold():
    assert len(bookmarks_in(",".join(["17"] * 10_000))) == 10_000
    with pytest.raises(ClientError, match=r"more than 10,000 messages"):
        bookmarks_in(",".join(["17"] * 10_001))


def test_many_are_acknowledged_in_steps(world, monkeypatch):
    monkeypatch.setattr(queue_commands, "GIVEN_AT_ONCE", 2)
    client = consumer(world, 5)
    world.publish("orders", *({"id": number} for number in range(5)))
    steps = []
    named = ",".join(bookmarks(client.lines()))
    held = world.executor.queues.find("jobs").queue.messages
    (line,) = client.say_in_steps(
        lambda: steps.append(len(held)), c="sow_delete", cid="d", t="jobs", bm=named
    )
    assert (line["acknowledged"], steps) == (5, [3, 1])


def test_a_cancel_gives_back_without_counting_the_delivery(world):
    bookmark = str(world.publish("orders", {"id": 1}))
    client = consumer(world)
    lines = ack(client, bookmark, opts="cancel")
    assert lines[0]["cancelled"] == 1
    assert [line["deliveries"] for line in lines[1:]] == [1]


def test_when_a_subscription_or_its_session_ends_what_it_holds_goes_to_others(world):
    world.publish("orders", {"id": 1})
    one, other = consumer(world), consumer(world)
    one.say(c="unsubscribe", s="f1")
    assert [line["deliveries"] for line in other.lines()] == [1]
    world.executor.sessions.close(other.session)
    assert [line["deliveries"] for line in consumer(world).begun[1:]] == [2]
    world.check()


def test_a_session_that_is_kept_keeps_its_messages_and_gets_no_more_until_it_returns(world):
    first = str(world.publish("orders", {"id": 1}))
    client = world.client()
    name = client.say(c="logon", cid="l", client="c")[0]["session"]
    client.say(c="subscribe", t="jobs", opts="max_backlog=2")
    assert world.executor.sessions.drop(client.session, world.now)
    other = consumer(world)
    assert bookmarks(other.begun) == []
    ack(other, *bookmarks(other.begun)) if bookmarks(other.begun) else None
    world.executor.sessions.close(other.session)
    second = str(world.publish("orders", {"id": 2}))
    world.settle()
    back = world.client()
    lines = back.say(c="logon", cid="l", session=name, seen=1)
    assert lines[0]["resumed"] is True
    assert second in bookmarks([*lines, *back.lines()])
    assert ack(back, first)[0]["acknowledged"] == 1


def test_a_session_whose_new_rights_were_applied_goes_on(world):
    client = consumer(world)
    client.session.hold_back()
    world.publish("orders", {"id": 1})
    assert bookmarks(client.lines()) == []
    run_to_completion(world.executor.settle(client.session))
    world.settle()
    assert len(bookmarks(client.lines())) == 1


def test_a_kept_session_that_ends_gives_its_messages_back(world):
    world.publish("orders", {"id": 1})
    client = world.client()
    client.say(c="logon", client="c")
    client.say(c="subscribe", t="jobs")
    world.executor.sessions.drop(client.session, world.now)
    world.executor.sessions.close(client.session, "expired")
    assert len(bookmarks(consumer(world).begun)) == 1


def test_at_most_once_a_session_gets_messages_only_while_it_reads(world):
    world.publish("orders", *({"id": number} for number in range(9)))
    client = world.client()
    client.execute(json.dumps({"c": "subscribe", "t": "once", "opts": "max_backlog=2"}).encode())
    left = len(world.records("once"))
    assert left >= 9 - 3
    got = bookmarks(client.lines())
    for _ in range(9):
        world.advance(SECOND // 10)
        got += bookmarks(client.lines())
    assert len(got) == len(set(got)) == 9
    assert world.records("once") == []


def test_sow_shows_what_nobody_has_with_filters_and_orders(world):
    world.publish("orders", *({"id": number} for number in range(4)))
    consumer(world, 2)
    lines = world.client().say(
        c="sow", cid="q", t="jobs", filter="/id > 1", order_by="/id DESC", top_n=9, a="completed"
    )
    assert [line["d"]["id"] for line in lines if line["c"] == "sow"] == [3, 2]
    assert lines[-1]["matches"] == 2


def test_a_subscription_to_a_pattern_passes_queues_over(world):
    client = world.client()
    client.say(c="subscribe", t="^(orders|jobs)$")
    world.publish("orders", {"id": 1})
    assert [line["t"] for line in client.lines()] == ["orders"]
    lines = client.say(c="sow", t="^(orders|jobs)$")
    assert [line["t"] for line in lines if line["c"] == "sow"] == ["orders"]


@all_cases(("line", "said"), [
        ({"c": "publish", "d": {}}, "publish there"),
        ({"c": "delta_publish", "d": {}}, "publish there"),
        ({"c": "sow_and_subscribe"}, "sow_and_subscribe is not for queues"),
        ({"c": "delta_subscribe"}, "delta_subscribe is not for queues"),
        ({"c": "sow_and_delta_subscribe"}, "sow_and_delta_subscribe is not for queues"),
        ({"c": "subscribe", "filter": "/id = 1"}, "takes no filter"),
        ({"c": "subscribe", "opts": "oof"}, "takes no oof"),
        ({"c": "subscribe", "opts": "conflation=1s"}, "takes no conflation"),
        ({"c": "subscribe", "select": "+/id"}, "takes no select"),
        ({"c": "subscribe", "bm": "0"}, "leave out bm"),
        ({"c": "subscribe", "s": "f1"}, "the server names subscriptions"),
        ({"c": "subscribe", "opts": "max_backlog=0"}, "must be a whole number of messages"),
        ({"c": "subscribe", "opts": "max_backlog=x"}, "must be a whole number of messages"),
        ({"c": "sow", "as_of": "0"}, "takes no as_of"),
        ({"c": "sow", "projection": "COUNT(1) AS /n", "grouping": "/id"}, "takes no projection"),
        ({"c": "sow_delete", "filter": "1=1"}, "takes no filter; name messages by bm"),
        ({"c": "sow_delete", "keys": "1"}, "takes no keys; name messages by bm"),
        ({"c": "sow_delete", "d": {"id": 1}}, "takes no d; name messages by bm"),
        ({"c": "sow_delete"}, "name the messages that you acknowledge by bm"),
        ({"c": "sow_delete", "bm": "x"}, "names no messages"),
    ])  # fmt: skip
def test_everything_else_is_refused_by_name(line, said):
    world = World(ORDERS, JOBS, LEASES)
    (answer,) = world.client().say(cid="1", t="jobs", **line)
    assert (answer["status"], said in answer["detail"]) == ("failure", True), answer


@all_cases(
    "line",
    [
        {"c": "subscribe"},
        {"c": "sow"},
        {"c": "sow_delete", "bm": "1"},
    ],
)
def test_who_follows_gives_nothing_out_and_says_who_does(line):
    following = FollowingEngine(Configuration("test", (ORDERS, JOBS)), "http://primary:1")
    executor = Executor(following, MemoryJournal(), lambda: "name")
    session = executor.sessions.open(LINES, 0)
    execute_all(executor, session, read_frames([json.dumps({"t": "jobs", **line}).encode()]), 0)
    said = b"".join(session.lines)
    assert b'"reason":"not primary"' in said
    assert b"http://primary:1" in said
    with pytest.raises(NotPrimary, match="given out, acknowledged and shown there alone"):
        executor.queues.find("jobs")


def test_nothing_of_another_topic_is_acknowledged(world):
    for more in ({"bm": "1"}, {"filter": "1=1", "opts": "cancel"}):
        (answer,) = world.client().say(c="sow_delete", cid="1", t="orders", **more)
        assert "orders is no queue" in answer["detail"]
    with pytest.raises(InvalidTopic, match="orders is no queue, so nothing of it is leased"):
        world.executor.queues.find("orders")
    with pytest.raises(UnknownTopic):
        world.executor.queues.find("nope")


def test_events_acknowledge_nothing_so_no_stream_takes_messages(world):
    world.publish("orders", {"id": 1})
    session = world.executor.sessions.open(EventEncoding("log"), world.now)
    command = json.dumps({"c": "subscribe", "cid": "1", "t": "jobs"}).encode()
    execute_all(world.executor, session, read_frames([command]), world.now)
    world.settle()
    assert b"acknowledges nothing" in session.pull(world.engine.sequencer.released, world.now)
    assert len(bookmarks(consumer(world).begun)) == 1


def test_who_may_read_a_part_of_the_messages_takes_none(world):
    client = world.client()
    world.executor.sessions.entitle(client.session, rights(reading("jobs", filter="/id = 1")))
    (answer,) = client.say(c="subscribe", cid="1", t="jobs")
    assert (answer["status"], "taken whole" in answer["detail"]) == ("failure", True)
