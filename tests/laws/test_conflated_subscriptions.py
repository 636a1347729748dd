"""Subscriptions conflated in time: windows, focus, late joining, the client's own pace."""

import json
from dataclasses import replace

import pytest

from sow.core.definitions import Topic
from tests.laws.harness import MS, SECOND, World, short
from tests.laws.tables import play


@pytest.fixture
def world():
    return World()


@pytest.fixture
def client(world):
    return world.client()


def test_each_record_comes_once_an_interval_with_its_newest_state():
    play("""
    at 0.0  subscribe orders  opts=conflation=1s
    at 0.0  publish  {"id":1,"px":0}
    at 0.1  publish  {"id":1,"px":1}
    at 0.5  publish  {"id":1,"px":2}
    at 1.0  said     p {"id":1,"px":2}
    at 1.5  publish  {"id":1,"px":3}
    at 2.5  said     p {"id":1,"px":3}
    at 9.0  said     nothing
    """)


def test_a_snapshot_does_not_wait(world, client):
    world.publish("orders", {"id": 1})
    assert short(client.say(c="sow_and_subscribe", t="orders", opts="conflation=10s")) == [
        ("sow", {"id": 1})
    ]


def test_the_window_opens_with_the_first_update_and_is_not_prolonged():
    play("""
    at 0.0    subscribe orders  opts=conflation=1s
    at 0.303  publish  {"id":1,"px":1}
    at 1.203  publish  {"id":1,"px":2}
    at 1.303  said     nothing
    at 1.303  said     p {"id":1,"px":2}
    """)


def test_conflation_none_is_no_conflation(world, client):
    client.say(c="subscribe", t="orders", opts="conflation=none")
    world.publish("orders", {"id": 1})
    assert client.data() == [("p", {"id": 1})]


def test_a_record_that_came_and_went_in_one_window_is_not_mentioned():
    play("""
    at 0.0  sow_and_subscribe orders  opts=conflation=1s,oof filter="/px > 1"
    at 0.0  publish  {"id":1,"px":5}
    at 0.4  publish  {"id":1,"px":0}
    at 3.0  said     nothing
    """)


def test_a_record_that_left_and_came_back_in_one_window_is_no_oof():
    play("""
    at 0.0  publish  {"id":1,"px":5}
    at 0.0  sow_and_subscribe orders  opts=conflation=1s,oof filter="/px > 1"
    at 0.0  said     sow {"id":1,"px":5}
    at 0.2  publish  {"id":1,"px":0}
    at 0.6  publish  {"id":1,"px":7}
    at 1.2  said     p {"id":1,"px":7}
    """)


def test_a_record_that_left_is_an_oof_at_the_end_of_its_window():
    play("""
    at 0.0  publish  {"id":1,"px":5}
    at 0.0  sow_and_subscribe orders  opts=conflation=1s,oof filter="/px > 1"
    at 0.0  said     sow {"id":1,"px":5}
    at 0.2  publish  {"id":1,"px":3}
    at 0.6  publish  {"id":1,"px":0}
    at 1.2  said     match {"id":1,"px":0}
    """)


def test_time_and_bookmark_are_those_of_the_first_update_and_all_else_of_the_newest(world, client):
    client.say(c="subscribe", t="orders", opts="conflation=1s,timestamp")
    world.publish("orders", {"id": 1, "px": 1})
    world.advance(500 * MS)
    world.publish("orders", {"id": 1, "px": 2})
    world.advance(SECOND)
    (line,) = client.lines()
    assert line["ts"].endswith(":40.000000Z")
    assert (line["bm"], line["d"]["px"]) == ("1", 2), "what the line stands for begins there"


def test_equal_conflated_subscriptions_share_one_feed_and_one_frame(world):
    clients = [world.client() for _ in range(3)]
    names = {
        client.say(c="subscribe", t="orders", opts="conflation=1s", cid="1")[0]["s"]
        for client in clients
    }
    assert len(names) == 1
    world.publish("orders", {"id": 1})
    world.advance(2 * SECOND)
    frames = [client.first_frame for client in clients]
    assert frames[0] is frames[1] is frames[2]


def test_who_joins_in_the_middle_of_a_window_is_not_sent_what_its_snapshot_held():
    play("""
    at 0.0  early: sow_and_subscribe orders  opts=conflation=1s
    at 0.2  publish  {"id":1,"px":1} {"id":2,"px":1}
    at 0.4  late: sow_and_subscribe orders  opts=conflation=1s
    at 0.4  late: said   sow {"id":1,"px":1}  sow {"id":2,"px":1}
    at 0.6  publish  {"id":2,"px":2}
    at 1.2  early: said  p {"id":1,"px":1}  p {"id":2,"px":2}
    at 1.2  late: said   p {"id":2,"px":2}
    """)


def test_who_joins_in_the_middle_of_a_window_is_sent_of_what_it_holds_and_others_never_saw():
    play("""
    at 0.0  early: sow_and_subscribe orders  opts=conflation=1s,oof
    at 0.2  publish     {"id":1,"px":1}
    at 0.4  late: sow_and_subscribe orders  opts=conflation=1s,oof
    at 0.4  late: said  sow {"id":1,"px":1}
    at 0.6  sow_delete  filter="/id = 1"
    at 1.2  late: said  deleted {"id":1,"px":1}
    at 5.0  publish     {"id":2}
    at 6.0  early: said  p {"id":2}
    at 6.0  late: said   p {"id":2}
    """)


def test_who_joins_in_the_middle_is_sent_the_delta_of_the_window():
    play("""
    at 0.0  publish  {"id":1,"a":1,"b":1}
    at 0.0  early: sow_and_delta_subscribe orders  opts=conflation=1s
    at 0.0  early: said  sow {"id":1,"a":1,"b":1}
    at 0.2  publish  {"id":1,"a":2,"b":1}
    at 0.4  late: sow_and_delta_subscribe orders  opts=conflation=1s
    at 0.4  late: said   sow {"id":1,"a":2,"b":1}
    at 0.6  publish  {"id":1,"a":2,"b":2}
    at 1.2  early: said  delta {"id":1,"a":2,"b":2}
    at 1.2  late: said   delta {"id":1,"a":2,"b":2}
    """)


def test_conflation_by_another_key_keeps_the_newest_of_each(world, client):
    client.say(c="subscribe", t="orders", opts="conflation=1s,conflation_key=[/symbol]")
    world.publish("orders", {"id": 1, "symbol": "A"}, {"id": 2, "symbol": "A"})
    world.publish("orders", {"id": 3, "symbol": "B"})
    world.advance(2 * SECOND)
    assert [document["id"] for _, document in client.data()] == [2, 3]


@pytest.mark.parametrize("opts", ["oof,", ""])
def test_another_key_goes_with_neither_oof_nor_deltas(world, client, opts):
    command = "subscribe" if opts else "delta_subscribe"
    (ack,) = client.say(
        c=command, t="orders", opts=f"{opts}conflation=1s,conflation_key=[/symbol]", cid="1"
    )
    assert "conflation_key" in ack["detail"]
    assert client.say(c=command, t="orders", opts=f"{opts}conflation=1s,conflation_key=/id") == []


def test_the_topics_own_key_as_conflation_key_takes_deletes(world, client):
    world.publish("orders", {"id": 1})
    client.say(c="sow_and_subscribe", t="orders", opts="oof,conflation=1s,conflation_key=/id")
    world.delete("orders", "/id = 1")
    world.advance(2 * SECOND)
    assert client.data() == [("deleted", {"id": 1})]


def test_a_topic_with_another_key_that_comes_later_is_conflated_by_record():
    world = World(
        Topic("a", "json", keys=("/id",)),
        Topic("as", "json", keys=("/name",), pattern="^/a/"),
    )
    client = world.client()
    client.say(c="subscribe", t="a", opts="oof,conflation=1s,conflation_key=/id", cid="1")
    client.say(c="subscribe", t="^/?a", opts="oof,conflation=1s,conflation_key=/id", cid="2")
    world.publish("/a/1", {"name": "x", "id": 1}, {"name": "y", "id": 1})
    world.advance(2 * SECOND)
    world.delete("/a/1", "/name = 'x'")
    world.advance(2 * SECOND)
    assert [(k, d["name"]) for k, d in client.data()] == [("p", "x"), ("p", "y"), ("deleted", "x")]


def test_auto_gives_a_client_that_keeps_up_everything(world, client):
    client.say(c="subscribe", t="orders", opts="conflation=auto")
    for px in range(3):
        world.publish("orders", {"id": 1, "px": px})
        assert client.data() == [("p", {"id": 1, "px": px})]


def test_auto_gives_a_client_that_does_not_the_newest_once_it_reads(world, client):
    client.say(c="subscribe", t="orders", opts="conflation=auto")
    for px in range(50):
        world.publish("orders", {"id": px % 2, "px": px})
    assert client.session.outbox.message_count == 1
    first, *rest = client.data()
    assert first == ("p", {"id": 0, "px": 0})
    assert sorted(document["px"] for _, document in rest) == [48, 49]


def test_the_last_one_out_takes_the_feed_along(world, client):
    name = client.say(c="subscribe", t="orders", opts="conflation=1s", cid="1")[0]["s"]
    world.publish("orders", {"id": 1})
    client.say(c="unsubscribe", s=name)
    world.advance(5 * SECOND)
    assert client.lines() == []
    assert list(world.engine.topics["orders"].router.feeds()) == []


def test_a_conflated_subscription_of_a_conflated_topic_adds_their_delays(world, client):
    client.say(c="subscribe", t="orders-C", opts="conflation=1s")
    world.publish("orders", {"id": 1})
    world.advance(1990 * MS)
    assert client.data() == []
    world.advance(60 * MS)
    assert client.data() == [("p", {"id": 1})]


def test_a_thousand_keys_are_one_frame_at_their_release(world, client):
    client.say(c="subscribe", t="orders", opts="conflation=1s")
    for _ in range(3):
        world.publish("orders", *({"id": i} for i in range(1000)))
    world.advance(2 * SECOND)
    (frame,) = client.raw()
    assert len({json.loads(line)["d"]["id"] for line in frame.split(b"\n")}) == 1000


def test_a_conflation_key_that_is_the_topics_own_goes_with_deletes_and_oof(world):
    client = world.client()
    client.say(c="sow_and_subscribe", t="orders", opts="oof,conflation=1s,conflation_key=[/id]")
    world.publish("orders", {"id": 1}, {"id": 2})
    world.advance(2 * SECOND)
    assert len(client.data()) == 2
    world.delete("orders", "/id = 1")
    world.advance(2 * SECOND)
    assert client.data() == [("deleted", {"id": 1})]


def test_messages_that_lack_the_conflation_key_are_not_the_same(world):
    client = world.client()
    client.say(c="subscribe", t="orders", opts="conflation=1s,conflation_key=[/symbol]")
    world.publish(
        "orders",
        {"id": 1, "n": 1},
        {"id": 2, "symbol": None},
        {"id": 3, "symbol": "None"},
        {"id": 1, "n": 2},
    )
    world.advance(2 * SECOND)
    assert sorted(document["id"] for _, document in client.data()) == [1, 2, 3]


def test_a_full_queue_keeps_to_the_conflation_key(world):
    client = world.client()
    client.say(c="subscribe", t="orders", opts="conflation=100ms,conflation_key=[/symbol]")
    for n, symbol in enumerate("ABAB"):
        world.publish("orders", {"id": 1, "symbol": symbol, "n": n})
        world.advance(SECOND)
    client.session.conflate(world.now)
    world.check()
    assert [(d["symbol"], d["n"]) for _, d in client.data()] == [("A", 2), ("B", 3)]


@pytest.mark.parametrize("name", ["subscribe", "sow_and_subscribe"])
def test_a_late_joiner_gets_what_a_copy_releases_of_earlier_changes(world, client, name):
    first, opts = world.client(), "conflation=5s"
    first.say(c="sow_and_subscribe", t="orders-C", opts=opts)
    world.publish("orders", {"id": 1, "px": 1})
    world.advance(1100 * MS)
    world.publish("orders", {"id": 1, "px": 2})
    client.say(c=name, t="orders-C", opts=opts)
    world.advance(10 * SECOND)
    assert client.data() == first.data() == [("p", {"id": 1, "px": 2})]


def test_a_late_joiner_is_notified_that_a_copy_is_removed(world, client):
    first, opts = world.client(), "conflation=5s,oof"
    first.say(c="sow_and_subscribe", t="orders.*", opts=opts)
    world.publish("orders", {"id": 1})
    world.advance(1100 * MS)
    client.say(c="sow_and_subscribe", t="orders.*", opts=opts)
    configuration = replace(world.configuration, topics=world.configuration.topics[:1])
    world.executor.reconfigure(configuration, world.now)
    world.advance(10 * SECOND)
    assert client.data() == [("deleted", {"id": 1})]
