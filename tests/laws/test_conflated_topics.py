"""Conflated topics end to end, under a clock moved by hand (docs/semantics.md, Rules 1 to 3)."""

import json

import pytest

from sow.core.definitions import ConflatedTopic, Merge, Topic
from tests.laws.harness import MS, ORDERS, SECOND, SLOW, SparkWorld, World
from tests.laws.tables import play

FAST = ConflatedTopic("orders-F", "json", "orders", interval_us=100 * MS)
BIG = ConflatedTopic("big", "json", "orders", interval_us=SECOND, filter="/px > 5")
CHAIN = ConflatedTopic("chain", "json", "orders-C", interval_us=2 * SECOND)
BIG_ONES = """
    topic  orders  Key=/id
    copy   big     of orders  Interval=1s  Filter="/px > 5"
"""


@pytest.fixture(params=[World, SparkWorld], ids=["embedded", "spark"])
def make(request):
    """A world whose conflated topics are run by one engine or the other."""
    return request.param


@pytest.fixture
def world(make):
    return make(ORDERS, SLOW, FAST, BIG, CHAIN)


@pytest.fixture
def follower(world):
    client = world.client()
    client.say(c="sow_and_subscribe", t="orders-C", opts="oof")
    return client


def test_an_update_appears_one_interval_later(make):
    play(
        """
        at 0.0       sow_and_subscribe orders-C
        at 0.0       publish  {"id":1}
        at 0.999999  said     nothing
        at 1.0       said     p {"id":1}
        """,
        make,
    )


def test_a_burst_becomes_its_last_update(world, follower):
    for px in range(30):
        world.publish("orders", {"id": 1, "px": px})
        world.advance(5 * MS)
    world.advance(SECOND)
    assert follower.data() == [("p", {"id": 1, "px": 29})]


def test_each_key_has_its_own_window(make):
    play(
        """
        at 0.0  sow_and_subscribe orders-C
        at 0.0  publish  {"id":1}
        at 0.5  publish  {"id":2}
        at 1.0  said     p {"id":1}
        at 1.5  said     p {"id":2}
        at 5.0  said     nothing
        """,
        make,
    )


def test_a_copy_is_queried_like_any_topic(world):
    world.publish("orders", {"id": 1, "symbol": "A"}, {"id": 2, "symbol": "B"})
    world.advance(SECOND)
    client = world.client()
    client.say(c="sow", t="orders-C", filter="/symbol = 'B'")
    assert world.records("orders-C") == world.records("orders")


def test_a_copy_keeps_the_sow_keys(world):
    world.publish("orders", {"id": 1})
    world.advance(SECOND)
    assert world.sow_key("orders-C", "1") == world.sow_key("orders", "1")


def test_a_delete_leaves_at_the_end_of_the_window(make):
    play(
        """
        at 0.0  sow_and_subscribe orders-C  opts=oof
        at 0.0  publish     {"id":1}
        at 1.0  said        p {"id":1}
        at 1.0  sow_delete  filter="/id = 1"
        at 1.5  late: sow orders-C
        at 1.5  late: said  sow {"id":1}
        at 2.0  said        deleted {"id":1}
        at 2.5  late: sow orders-C
        at 2.5  late: said  nothing
        """,
        make,
    )


def test_a_record_that_stops_matching_leaves_with_its_new_state(make):
    play(
        f"""{BIG_ONES}
        at 0.0  sow_and_subscribe big  opts=oof
        at 0.0  publish  {{"id":1,"px":9}}
        at 1.0  said     p {{"id":1,"px":9}}
        at 1.0  publish  {{"id":1,"px":1}}
        at 2.0  said     match {{"id":1,"px":1}}
        """,
        make,
    )


def test_a_record_that_came_and_went_is_never_seen(make):
    play(
        f"""{BIG_ONES}
        at 0.0  sow_and_subscribe big  opts=oof
        at 0.0  publish  {{"id":1,"px":9}}
        at 0.5  publish  {{"id":1,"px":1}}
        at 2.5  said     nothing
        at 2.5  late: sow big
        at 2.5  late: said  nothing
        """,
        make,
    )


def test_deleted_and_published_again_in_one_window_is_one_update(make):
    play(
        """
        at 0.0  sow_and_subscribe orders-C  opts=oof
        at 0.0  publish     {"id":1,"px":1}
        at 1.0  said        p {"id":1,"px":1}
        at 1.0  sow_delete  filter="/id = 1"
        at 1.4  publish     {"id":1,"px":2}
        at 2.0  said        p {"id":1,"px":2}
        """,
        make,
    )


def test_delays_of_a_chain_add_up(world):
    world.publish("orders", {"id": 1})
    world.advance(3 * SECOND - 1)
    assert world.records("chain") == []
    world.advance(1)
    assert world.records("chain") == [{"id": 1}]


def test_a_removal_passes_down_a_chain(world):
    world.publish("orders", {"id": 1})
    world.advance(3 * SECOND)
    world.delete("orders", "/id = 1")
    world.advance(3 * SECOND)
    assert world.records("chain") == []


def test_expiry_in_the_underlying_topic_reaches_the_copy(make):
    topic = Topic("t", "json", keys=("/id",), expires=True, expiration_us=5 * SECOND)
    world = make(topic, ConflatedTopic("t-C", "json", "t", interval_us=SECOND))
    client = world.client()
    client.say(c="sow_and_subscribe", t="t-C", opts="oof")
    world.publish("t", {"id": 1})
    world.advance(6 * SECOND)
    assert client.data() == [("p", {"id": 1}), ("expired", {"id": 1})]


def test_the_snapshot_never_waits_for_the_timer(world):
    world.publish("orders", {"id": 1})
    world.advance(SECOND)
    world.publish("orders", {"id": 1, "px": 2})
    client = world.client()
    lines = client.say(c="sow_and_subscribe", t="orders-C")
    assert [line["c"] for line in lines] == ["group_begin", "sow", "group_end"]


def test_after_one_quiet_interval_every_copy_equals_its_original(world):
    for number in range(60):  # a key's next update comes after 0.6 s, within an interval
        world.publish("orders", {"id": number % 11, "px": number % 9})
        if number % 7 == 0:
            world.delete("orders", f"/id = {number % 13}")
        world.advance(57 * MS)
    world.advance(3 * SECOND)
    everything = {document["id"]: document for document in world.records("orders")}
    for name in ("orders-C", "orders-F", "chain"):
        assert {document["id"]: document for document in world.records(name)} == everything
    big = {key: document for key, document in everything.items() if document["px"] > 5}
    assert {document["id"]: document for document in world.records("big")} == big
    world.check()


def test_a_restart_finds_the_copies_as_full_as_the_original(world):
    world.publish("orders", {"id": 1, "px": 9}, {"id": 2, "px": 1})
    again = world.restart()
    assert again.records("orders-C") == again.records("orders")
    assert again.records("big") == [{"id": 1, "px": 9}]


def test_enrichment_computes_fields_of_what_enters_the_copy(make):
    copy = ConflatedTopic(
        "mid",
        "json",
        "orders",
        interval_us=SECOND,
        enrichment=("(/bid + /ask) / 2.0 AS /mid HINT OPTIONAL",),
    )
    world = make(ORDERS, copy)
    world.publish("orders", {"id": 1, "bid": 1, "ask": 2}, {"id": 2, "bid": 1})
    world.advance(2 * SECOND)
    assert world.records("mid") == [{"id": 1, "bid": 1, "ask": 2, "mid": 1.5}, {"id": 2, "bid": 1}]
    assert world.restart().records("mid") == world.records("mid")
    assert world.records("orders")[0] == {"id": 1, "bid": 1, "ask": 2}


def test_merges_fold_what_falls_into_one_window(make):
    merges = (Merge("/qty", "sum"), Merge("/n", "count"), Merge("/low", "min"))
    copy = ConflatedTopic("sums", "json", "orders", interval_us=SECOND, merges=merges)
    world = make(ORDERS, copy)
    for qty in (1, 2, 3):
        world.publish("orders", {"id": 1, "qty": qty, "low": 5 - qty})
        world.advance(100 * MS)
    world.advance(SECOND)
    world.publish("orders", {"id": 1, "qty": 10, "low": 9})
    client = world.client()
    client.say(c="subscribe", t="sums")
    assert world.records("sums") == [{"id": 1, "qty": 6, "low": 2, "n": 3}]
    world.advance(2 * SECOND)
    assert client.data() == [("p", {"id": 1, "qty": 10, "low": 9, "n": 1})]


def test_a_count_is_of_updates_whatever_their_fields_say(make):
    merges = (Merge("/n", "count"),)
    copy = ConflatedTopic(
        "counts", "json", "orders", interval_us=SECOND, merges=merges, filter="/n > 1"
    )
    world = make(ORDERS, copy)
    client = world.client()
    client.say(c="sow_and_subscribe", t="counts", opts="oof")
    for n in (30, 10, 20):
        world.publish("orders", {"id": 1, "n": n})
        world.advance(100 * MS)
    world.advance(2 * SECOND)
    assert world.records("counts") == [{"id": 1, "n": 3}]
    world.publish("orders", {"id": 1, "n": 40})
    world.advance(2 * SECOND)
    assert world.records("counts") == [{"id": 1, "n": 1}]
    world.publish("orders", {"id": 1, "n": 1})
    world.advance(2 * SECOND)
    assert client.data()[-1] == ("match", {"id": 1, "n": 1})
    world.publish("orders", {"id": 2, "n": 50})
    assert world.restart().records("counts") == [{"id": 2, "n": 1}]


FRAMES_A_SECOND_MAX = 50
"""What gathering of 20 ms comes to."""


def test_a_session_gets_few_frames_however_many_records_are_due():
    world = World(ORDERS, SLOW)
    client = world.client()
    client.say(c="subscribe", t="orders-C")
    frames, ages_ms, count = 0, [], 1000
    for at_ms in range(3 * count):
        world.publish("orders", {"id": at_ms % count, "at": at_ms})
        world.advance(MS)
        for frame in client.raw():
            lines = [json.loads(line) for line in frame.split(b"\n")]
            ages_ms += [at_ms + 1 - line["d"]["at"] for line in lines]
            frames += at_ms >= 2 * count
    assert len(ages_ms) > count
    assert max(ages_ms) <= 1020
    assert frames <= FRAMES_A_SECOND_MAX


def test_what_comes_together_is_one_frame_and_late_by_nothing():
    world = World(ORDERS, SLOW)
    client = world.client()
    client.say(c="subscribe", t="orders-C")
    world.advance(13 * MS)
    for second in range(5):
        world.publish("orders", *({"id": key, "at": second} for key in range(100)))
        world.advance(SECOND - 1)
        assert client.raw() == []
        world.advance(1)
        (frame,) = client.raw()
        assert frame.count(b'"c":"p"') == 100
        world.advance(7 * MS)
