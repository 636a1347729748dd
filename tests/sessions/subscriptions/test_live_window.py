"""Opening and scrolling live windows, and what is refused with a sentence."""

import json

import pytest

from sow.config import loads
from sow.core.definitions import ConflatedTopic, Topic
from sow.sessions.subscriptions import live_window
from sow.streaming.windows import WINDOW_END_MAX
from tests.laws.harness import SECOND, World
from tests.laws.window_reader import WindowReader


@pytest.fixture
def world():
    world = World(
        Topic("orders", "json", keys=("/id",), expires=True),
        Topic("passing", "json", keys=("/id",), retain=False),
        ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND),
    )
    world.publish("orders", *[{"id": at, "px": at % 7} for at in range(30)])
    return world


def reader_of(world, topic="orders", order_by="/px", **requested):
    reader = WindowReader(world.client(), topic, order_by, **{"top_n": 4, **requested})
    reader.begin()
    return reader


def test_the_answer_is_the_querys_and_counts_what_matches(world):
    client = world.client()
    *_, ack = client.say(
        c="sow_and_subscribe",
        t="orders",
        order_by="/px",
        top_n=4,
        skip_n=28,
        a="completed",
        cid="1",
    )
    assert (ack["matches"], ack["returned"]) == (30, 2)


def test_skip_n_makes_a_window_and_top_n_alone_limits_the_snapshot(world):
    paged, limited = world.client(), world.client()
    paged.say(c="sow_and_subscribe", t="orders", order_by="/px", top_n=2, skip_n=0)
    limited.say(c="sow_and_subscribe", t="orders", order_by="/px", top_n=2)
    world.publish("orders", {"id": 50, "px": 100})
    assert paged.data() == []
    assert limited.data() == [("p", {"id": 50, "px": 100})]


def test_why_a_record_has_left_is_said(world):
    reader = reader_of(world, order_by="/id", top_n=3)
    world.publish("orders", {"id": -1}, expires_s=1)
    world.delete("orders", "/id = 0")
    world.advance(2 * SECOND)
    world.publish("orders", {"id": 0.5})
    assert [word for word, _ in reader.client.data() if word not in ("p", "sow")] == [
        "match", "deleted", "expired", "match"
    ]  # fmt: skip


def test_scrolling_reports_the_difference_only(world):
    reader = reader_of(world, top_n=6)
    assert reader.scroll(skip_n=2) == 2 + 2, "two leave, two come"
    reader.check(world)
    reader.scroll(filter="/px > 3", skip_n=0, top_n=3)
    reader.check(world)
    reader.scroll(select="/id")
    reader.check(world)
    world.publish("orders", {"id": 4, "px": 3.5})
    reader.read()
    reader.check(world)
    world.check()


def test_a_window_that_is_scrolled_while_others_publish_is_of_one_moment(world):
    reader = reader_of(world, skip_n=1)
    reader.scroll(lambda: world.publish("orders", {"id": 7, "px": -9}), skip_n=0)
    reader.read()
    reader.check(world)


def test_a_request_is_one_turn(world):
    reader = reader_of(world)
    world.publish("orders", *[{"id": at, "px": 7 - at} for at in range(8)])
    reader.read()
    reader.check(world)
    assert reader.turns == 1


REFUSED = [
    ({"opts": "live"}, "needs top_n"),
    ({"opts": "positions"}, "positions are places in a live window"),
    ({"opts": "live", "top_n": 3, "keys": "1"}, "leave out keys"),
    ({"opts": "live", "top_n": 3, "t": "orders.*"}, "is a pattern"),
    ({"opts": "live", "top_n": 3, "t": "passing"}, "keeps no records"),
    ({"opts": "live", "top_n": WINDOW_END_MAX, "skip_n": 1}, "reaches up to"),
    ({"opts": "live", "top_n": 3, "filter": "/px < UNIX_TIMESTAMP()"}, "a live window"),
    ({"opts": "live", "top_n": 3, "filter": "BOOKMARK() > '1'"}, "BOOKMARK()"),
    ({"opts": "live,conflation=1s,conflation_key=[/px]", "top_n": 3}, "conflation_key"),
    ({"opts": "live", "top_n": 3, "order_by": "/px +"}, "order_by"),
]


@pytest.mark.parametrize(("requested", "said"), REFUSED)
def test_what_no_window_can_do_is_refused_with_a_sentence(world, requested, said):
    client = world.client()
    (ack,) = client.say(**{"c": "sow_and_subscribe", "t": "orders", "cid": "1", **requested})
    assert ack["status"] == "failure"
    assert said in ack["detail"]
    assert not client.subscriptions
    world.check()


@pytest.mark.parametrize("opts", ["live", "positions"])
def test_a_window_begins_with_its_records(world, opts):
    (ack,) = world.client().say(c="subscribe", t="orders", cid="1", opts=opts)
    assert "sow_and_subscribe" in ack["detail"]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"order_by": "/id"}, "keeps its order, which is /px"),
        ({"t": "orders-C"}, "stays over its topic"),
        ({"opts": "replace", "skip_n": None}, "write top_n"),
        ({"c": "subscribe", "opts": "replace", "order_by": "", "top_n": None}, "is a live window"),
    ],
)
def test_what_is_no_scrolling_is_refused_and_the_window_goes_on(world, other, said):
    reader = reader_of(world)
    command = {**reader.command(opts=("replace",)), "s": reader.name, **other}
    command = {name: value for name, value in command.items() if value not in (None, "")}
    if "skip_n" in other:
        del command["top_n"]
    (ack,) = reader.client.say(**command)
    assert said in ack["detail"], ack
    world.publish("orders", {"id": 60, "px": -1})
    reader.read()
    reader.check(world)


def test_a_subscription_that_is_none_is_not_replaced_by_a_window(world):
    client = world.client()
    name = client.say(c="sow_and_subscribe", t="orders", cid="1")[0]["s"]
    reader = WindowReader(client, "orders", "/px")
    (ack,) = client.say(**reader.command(opts=("replace",), s=name))
    assert "only a live window can be replaced by one" in ack["detail"]


def test_a_session_has_so_many_windows_and_a_topic_so_many_orders(world, monkeypatch):
    monkeypatch.setattr(live_window, "WINDOWS_MAX", 2)
    client, readers = world.client(), []
    for _ in range(2):
        readers.append(WindowReader(client, "orders", "/px"))
        assert client.say(**readers[-1].command())[0]["status"] == "success"
    (ack,) = client.say(**readers[0].command())
    assert "2 live windows" in ack["detail"]
    monkeypatch.setattr("sow.streaming.router.ORDERED_MAX", 1)
    (ack,) = world.client().say(**WindowReader(client, "orders", "/id").command())
    assert "as many as a topic may have" in ack["detail"]


def test_a_restart_answers_as_before(world):
    reader = reader_of(world)
    again = world.restart()
    other = reader_of(again)
    assert other.held == reader.held


def test_a_topic_that_goes_ends_its_windows(world):
    world.advance(2 * SECOND)
    reader = reader_of(world, topic="orders-C")
    world.executor.reconfigure(
        world.configuration.__class__("test", world.configuration.topics[:-1]), world.now
    )
    world.settle()
    words = [line.get("reason", line["c"]) for line in reader.client.lines()]
    assert words == ["deleted"] * 4 + ["turn_end", "REMOVAL"]
    world.check()


@pytest.mark.parametrize(("count", "size"), [(700, 10), (20, 60_000)])
def test_a_long_answer_is_worded_as_the_client_takes_it(world, count, size):
    world.delete("orders", "1 = 1")
    for at in range(count):
        world.engine.publish("orders", [b'{"id":%d,"s":"%b"}' % (at, b"x" * size)], world.now)
    world.settle()
    reader = WindowReader(world.client(), "orders", "/id DESC", top_n=count - 5)
    reader.client.execute(json.dumps(reader.command()).encode())
    world.publish("orders", {"id": count, "s": "later"})
    frames = reader.client.raw()
    assert max(map(len, frames)) < 2 * 256 * 1024
    reader.room = reader.top_n
    reader.release_others(json.loads(line) for frame in frames for line in frame.split(b"\n"))
    reader.check(world)
    reader.scroll(skip_n=3)
    reader.check(world)
    world.check()


DESKS = """<SOWConfig><Name>t</Name><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
<Durability>transient</Durability></Topic>
<View><Name>desks</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
<Projection><Field>/desk</Field><Field>SUM(/qty) AS /qty</Field></Projection>
<Grouping><Field>/desk</Field></Grouping></View></SOW></SOWConfig>"""


def test_the_first_rows_of_a_view_stay_in_order():
    world = World(*loads(DESKS).configuration.topics)
    orders = [{"id": at, "desk": f"d{at % 7}", "qty": at} for at in range(30)]
    world.publish("orders", *orders)
    reader = reader_of(world, topic="desks", order_by="/qty DESC", top_n=3)
    world.publish("orders", {"id": 1, "desk": "d0", "qty": 500}, {"id": 2, "desk": "d1", "qty": 9})
    reader.read()
    reader.check(world)
    assert reader.turns == 1
    for condition in ("/id < 10", "1 = 1"):
        world.delete("orders", condition)
        reader.read()
        reader.check(world)
    world.check()
