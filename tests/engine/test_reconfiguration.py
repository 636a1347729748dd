"""Another configuration for a running engine: what changes, what stays, what is refused."""

import json
from dataclasses import replace

import pytest

from sow.core.definitions import (
    Configuration,
    ConflatedTopic,
    History,
    Limits,
    Series,
    SessionSettings,
    Topic,
    View,
    stored,
)
from sow.engine import reconfiguration
from sow.engine.reconfiguration import check_names, without_place
from sow.errors import ConfigError, TooLarge
from tests.engine.making import COPIES as DESK_COPIES
from tests.engine.making import DESKS as DESK_TOPICS
from tests.engine.making import ORDERS as KEYED
from tests.engine.making import SLOW as KEYED_SLOW
from tests.engine.making import catalog, put
from tests.laws.harness import MS, ORDERS, SECOND, SLOW, World

DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/[0-9]$")
COPIES = ConflatedTopic("copies", "json", "desks", interval_us=SECOND, topic_format="%n-C")
FAST = ConflatedTopic("orders-F", "json", "orders", interval_us=100 * MS)


@pytest.fixture
def world():
    return World(ORDERS, SLOW, DESKS, COPIES)


@pytest.fixture
def client(world):
    return world.client()


def reconfigure(world, *topics, **more):
    configuration = replace(world.configuration, topics=topics, **more)
    changes = world.executor.reconfigure(configuration, world.now)
    world.settle()
    return changes


def test_nothing_changes_by_itself(world):
    assert reconfigure(world, ORDERS, SLOW, DESKS, COPIES) == []


def test_another_history_of_a_topic_or_of_a_pattern(world):
    history = History(60 * SECOND, SECOND)
    changes = reconfigure(
        world, replace(ORDERS, history=history), SLOW, replace(DESKS, history=history), COPIES
    )
    assert changes == ["History of orders changed", "History of desks changed"]
    assert world.engine.topics["orders"].definition.history == history
    assert reconfigure(world, ORDERS, SLOW, DESKS, COPIES)[0] == "History of orders changed"


def test_a_line_that_moved_is_no_change(world):
    assert reconfigure(world, replace(ORDERS, line=99), SLOW, DESKS, COPIES) == []


def test_a_conflated_topic_that_is_added_begins_full(world, client):
    world.publish("orders", {"id": 1})
    client.say(c="subscribe", t="^orders")
    assert reconfigure(world, ORDERS, SLOW, DESKS, COPIES, FAST) == [
        "conflated topic orders-F added"
    ]
    assert world.records("orders-F") == [{"id": 1}]
    assert [(line["t"], line["c"]) for line in client.lines()] == [("orders-F", "p")]
    world.publish("orders", {"id": 1, "px": 2})
    world.advance(200 * MS)
    assert world.records("orders-F") == [{"id": 1, "px": 2}]


def test_a_conflated_topic_that_is_removed_ends_its_subscriptions(world, client):
    client.say(c="subscribe", t="orders-C")
    assert reconfigure(world, ORDERS, DESKS, COPIES) == ["conflated topic orders-C removed"]
    (line,) = client.lines()
    assert (line["c"], line["reason"]) == ("unsubscribed", "REMOVAL")
    assert "orders-C" not in world.engine.topics
    world.publish("orders", {"id": 1})
    world.advance(5 * SECOND)


@pytest.mark.parametrize("pace", ["", "conflation=1s", "conflation=auto"])
@pytest.mark.parametrize("command", ["sow_and_subscribe", "sow_and_delta_subscribe", "subscribe"])
def test_a_topic_that_is_removed_takes_its_records_along(world, client, command, pace):
    world.publish("orders", {"id": 1, "px": 1})
    world.advance(2 * SECOND)
    client.say(c=command, t="^orders", opts=f"oof,{pace}".rstrip(","))
    world.publish("orders", {"id": 1, "px": 2})
    world.advance(3 * SECOND)
    client.lines()
    world.publish("orders", {"id": 2, "px": 2})
    world.advance(1100 * MS)
    reconfigure(world, ORDERS, DESKS, COPIES)
    world.advance(2 * SECOND)
    left = {("orders-C", 1): 0}
    for line in client.lines():
        place = line["t"], line["d"]["id"]
        if line["c"] == "oof":
            assert (line["reason"], line["d"]["px"]) == ("deleted", 2)
            del left[place]
        else:
            left[place] = line["d"]
    assert left.keys() == {("orders", 2)}
    world.publish("orders", {"id": 3})
    world.advance(2 * SECOND)
    assert [line["t"] for line in client.lines()] == ["orders"]


def test_a_removed_topic_sends_nothing_of_its_records_without_oof(world, client):
    world.publish("orders", {"id": 1})
    world.advance(2 * SECOND)
    client.say(c="sow_and_subscribe", t="^orders", opts="conflation=1s")
    world.publish("orders", {"id": 2})
    world.advance(1100 * MS)
    client.lines()
    reconfigure(world, ORDERS, DESKS, COPIES)
    world.advance(2 * SECOND)
    assert client.lines() == []


def test_the_last_words_of_a_removed_topic_come_before_its_end(world, client):
    world.publish("orders", {"id": 1})
    world.advance(2 * SECOND)
    client.say(c="sow_and_subscribe", t="orders-C", opts="oof")
    reconfigure(world, ORDERS, DESKS, COPIES)
    assert [line["c"] for line in client.lines()] == ["oof", "unsubscribed"]


def test_a_new_interval_holds_from_now_on(world):
    world.publish("orders", {"id": 1, "px": 1})
    world.advance(500 * MS)
    assert reconfigure(world, ORDERS, replace(SLOW, interval_us=3 * SECOND), DESKS, COPIES) == [
        "interval of orders-C changed"
    ]
    world.advance(2900 * MS)
    assert world.records("orders-C") == []
    world.advance(200 * MS)
    assert world.records("orders-C") == [{"id": 1, "px": 1}]


def test_another_schedule(world):
    reconfigure(world, ORDERS, replace(SLOW, schedule="tick"), DESKS, COPIES)
    world.advance(900 * MS)
    world.publish("orders", {"id": 1})
    world.advance(100 * MS)
    assert world.records("orders-C") == [{"id": 1}]


def test_another_filter_brings_in_and_takes_out_its_records(world, client):
    world.publish("orders", {"id": 1, "px": 1}, {"id": 2, "px": 9})
    world.advance(2 * SECOND)
    reconfigure(world, ORDERS, replace(SLOW, filter="/px > 5"), DESKS, COPIES)
    client.say(c="sow_and_subscribe", t="orders-C", opts="oof")
    world.advance(2 * SECOND)
    assert world.records("orders-C") == [{"id": 2, "px": 9}]
    assert client.data() == [("match", {"id": 1, "px": 1})]
    reconfigure(world, ORDERS, replace(SLOW, filter="/px < 5"), DESKS, COPIES)
    world.advance(2 * SECOND)
    assert world.records("orders-C") == [{"id": 1, "px": 1}]
    world.check()


def test_copies_of_a_pattern_change_together(world):
    world.publish("/desk/1", {"id": 1, "px": 1})
    changed = replace(COPIES, interval_us=100 * MS, filter="/px > 0")
    assert len(reconfigure(world, ORDERS, SLOW, DESKS, changed)) == 2
    world.publish("/desk/2", {"id": 2, "px": 2}, {"id": 3, "px": 0})
    world.advance(200 * MS)
    assert world.records("/desk/1-C") == [{"id": 1, "px": 1}]
    assert world.records("/desk/2-C") == [{"id": 2, "px": 2}]


def test_copies_of_a_pattern_are_removed_and_added_together(world):
    world.publish("/desk/1", {"id": 1})
    reconfigure(world, ORDERS, SLOW, DESKS)
    assert "/desk/1-C" not in world.engine.topics
    reconfigure(world, ORDERS, SLOW, DESKS, replace(COPIES, topic_format="%n-slow"))
    assert world.records("/desk/1-slow") == [{"id": 1}]
    world.publish("/desk/2", {"id": 2})
    assert "/desk/2-slow" in world.engine.topics


def test_indexes_come_and_go(world, client):
    world.publish("orders", {"id": 1, "a": "x"}, {"id": 2, "a": "y"})
    changed = replace(ORDERS, hash_indexes=(("/a",),))
    assert reconfigure(world, changed, SLOW, DESKS, COPIES) == ["indexes of orders changed"]
    world.publish("orders", {"id": 3, "a": "y"})
    lines = client.say(c="sow", t="orders", filter="/a = 'y'")
    assert [line["d"]["id"] for line in lines if line["c"] == "sow"] == [2, 3]
    assert len(world.engine.topics["orders"].records.indexes.hashes) == 1
    world.check()


def test_another_back_pressure_policy(world):
    reconfigure(world, replace(ORDERS, conflation_policy="always"), SLOW, DESKS, COPIES)
    client = world.client()
    client.say(c="subscribe", t="orders")
    world.publish("orders", {"id": 1, "px": 1}, {"id": 1, "px": 2})
    assert client.data() == [("p", {"id": 1, "px": 2})]


def test_settings_hold_for_what_begins_from_now_on(world):
    changes = reconfigure(
        world, ORDERS, SLOW, DESKS, COPIES,
        sessions=SessionSettings(queue_messages_max=3), limits=Limits(subscriptions_max=1),
        environment="test", colour="green",
    )  # fmt: skip
    assert changes == [
        "environment changed", "colour changed", "sessions changed", "limits changed",
    ]  # fmt: skip
    assert world.engine.configuration.environment == "test"
    client = world.client()
    assert client.session.settings.queue_messages_max == 3
    client.say(c="subscribe", t="orders")
    assert client.say(c="subscribe", t="orders", cid="2")[0]["reason"] == "too large"


@pytest.mark.parametrize(
    ("topics", "more", "why"),
    [
        ((SLOW, DESKS, COPIES), {}, "topic orders cannot be removed"),
        ((ORDERS, SLOW, DESKS, COPIES, Topic("new", "json")), {}, "topic new cannot be added"),
        (
            (replace(ORDERS, keys=("/x",)), SLOW, DESKS, COPIES),
            {},
            "Key of topic orders cannot be changed",
        ),
        (
            (ORDERS, replace(SLOW, message_type="fix"), DESKS, COPIES),
            {},
            "MessageType of conflated topic",
        ),
        (
            (ORDERS, SLOW, DESKS, COPIES),
            {"port": 1, "host": "::1"},
            "^Listen cannot be changed while the server runs: nothing",
        ),
    ],
)
def test_what_needs_a_restart_is_refused_and_nothing_is_changed(world, topics, more, why):
    with pytest.raises(ConfigError, match=why):
        reconfigure(world, *topics, FAST, **more)
    assert "orders-F" not in world.engine.topics
    assert world.engine.configuration is world.configuration


BY_DESK = View("by-desk", "json", ("orders",), ("/desk",), ("/desk",))


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (FAST, replace(BY_DESK, name=FAST.name), "^conflated topic orders-F cannot become a view:"),
        (BY_DESK, replace(BY_DESK, engine="spark"), "^Engine of view by-desk cannot be changed:"),
        (
            replace(BY_DESK, engine="spark"),
            replace(BY_DESK, engine="spark", filter="/qty > 1"),
            "^Filter of view by-desk cannot be changed:",
        ),
    ],
)
def test_a_refusal_names_what_the_writer_of_the_file_has_written(before, after, why):
    world = World(ORDERS, stored(before))
    with pytest.raises(ConfigError, match=why):
        reconfigure(world, ORDERS, stored(after))


def test_every_setting_is_called_as_in_the_file():
    assert all(map(reconfiguration.ROOT.filling, reconfiguration.UNCHANGING))


def test_a_copy_that_would_take_the_name_of_a_topic_is_refused(world):
    world.publish("/desk/1", {"id": 1})
    taking = ConflatedTopic("/desk/1", "json", "orders")
    with pytest.raises(ConfigError, match=r"topic /desk/1 would lose its 1 records .*allow-loss"):
        reconfigure(world, ORDERS, SLOW, DESKS, COPIES, taking)
    assert world.records("/desk/1") == [{"id": 1}]


def test_a_format_that_would_take_the_name_of_a_topic_is_refused_whether_it_copies_or_not():
    wide = replace(DESKS, pattern="^/desk/")
    world = World(wide)
    world.publish("/desk/1-C", {"id": 1})
    with pytest.raises(ConfigError, match="topic /desk/1-C would lose its 1 records"):
        reconfigure(world, wide, COPIES)


def test_a_copy_whose_name_is_taken_is_refused(world):
    world.publish("/desk/1", {"id": 1})
    other = replace(COPIES, name="others")
    with pytest.raises(ConfigError, match="what the copy of /desk/1 would be called"):
        reconfigure(world, ORDERS, SLOW, DESKS, COPIES, other)


def test_a_merger_that_cannot_be_loaded_changes_nothing(world):
    bad = replace(ORDERS, merger="no.such:thing")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        reconfigure(world, bad, SLOW, DESKS, COPIES, FAST)
    assert "orders-F" not in world.engine.topics


def test_pending_output_of_a_removed_topic_is_sent_when_its_subscription_is_replaced(world):
    world.publish("/desk/1", {"id": 1})
    world.advance(2 * SECOND)
    client, opts = world.client(), "conflation=1s,oof"
    *_, end = client.say(c="sow_and_subscribe", t="^/desk/1", opts=opts)
    reconfigure(world, ORDERS, SLOW, DESKS)
    opts += ",replace"
    lines = client.say(c="sow_and_subscribe", t="^/desk/1", opts=opts, s=end["s"])
    assert [(line["c"], line.get("t")) for line in lines] == [
        ("oof", "/desk/1-C"),
        ("group_begin", None),
        ("group_end", None),
    ]
    world.advance(5 * SECOND)
    assert client.lines() == []


def test_a_definition_that_would_take_a_name_is_refused():
    made, _ = catalog(KEYED, DESK_TOPICS, Topic("/desk/1-C", "json", keys=("/id",)))
    with pytest.raises(ConfigError, match="there is a topic of this name already"):
        check_names(made, replace(KEYED_SLOW, name="orders"))
    with pytest.raises(ConfigError, match="what the copy of /desk/1 would be called"):
        check_names(made, DESK_COPIES)
    check_names(made, DESK_COPIES, leaving=[made.topics["/desk/1-C"]])


def test_topics_that_another_configuration_has_no_place_for():
    made, _ = catalog(KEYED, DESK_TOPICS)
    for name in ("/desk/1", "/desk/2"):
        made.enter(made.publishable(name))
    put(made.topics["/desk/2"], {"id": 1})
    fewer = Configuration("test", (KEYED, DESK_TOPICS), limits=Limits(pattern_topics_max=1))
    assert [topic.name for topic in without_place(made, fewer)] == ["/desk/1"]
    made.enter(made.publishable("/desk/2-C"))
    for definition, name, taker in (
        (replace(KEYED_SLOW, name="/desk/2"), "/desk/2", "a conflated topic"),
        (DESK_COPIES, "/desk/2-C", f"a copy of {DESK_COPIES.name}"),
    ):
        named = Configuration("test", (KEYED, DESK_TOPICS, definition))
        assert {topic.name: why for topic, why in without_place(made, named).items()} == {
            name: f"{name} is the name of {taker} now"
        }


LONG = " AND ".join(f"/id > {at}" for at in range(9))
SHORT_FILTERS = Limits(filter_bytes_max=20)


@pytest.mark.parametrize("before", [Limits(), SHORT_FILTERS])
@pytest.mark.parametrize(
    "definition",
    [
        replace(FAST, filter=LONG),
        View("view", "json", ("orders",), ("/id AS /id",), ("/id",), filter=LONG),
    ],
)
def test_a_filter_beyond_the_new_limits_is_refused_before_anything_changes(definition, before):
    world = World(ORDERS, SLOW, limits=before)
    topics, configuration = set(world.engine.topics), world.engine.configuration
    added = ConflatedTopic("orders-A", "json", "orders", interval_us=SECOND)
    with pytest.raises(TooLarge, match="limit is 20"):
        reconfigure(world, ORDERS, SLOW, added, definition, limits=SHORT_FILTERS)
    assert set(world.engine.topics) == topics
    assert world.engine.configuration is configuration
    changes = reconfigure(
        world, ORDERS, SLOW, added, definition, limits=Limits(filter_bytes_max=999)
    )
    assert len(changes) == 3
    with pytest.raises(TooLarge) as refused:
        reconfigure(world, ORDERS, SLOW, added, definition, limits=SHORT_FILTERS)
    assert f"{definition.name}: the filter has" in refused.value.detail
    assert world.engine.configuration.limits.filter_bytes_max == 999


def test_other_limits_of_filters_hold_for_filters_that_were_compiled_before():
    world = World(ORDERS)
    client = world.client()
    for limits, status in ((SHORT_FILTERS, "failure"), (Limits(), "success")) * 2:
        reconfigure(world, ORDERS, limits=limits)
        assert client.say(c="sow", t="orders", filter=LONG, cid="q")[0]["status"] == status


PRICES = Topic("prices", "json", keys=("/id",), series=Series(events_max=5))


def test_another_retain_lets_go_what_it_excludes_and_a_series_stays_one():
    world = World(PRICES)
    for number in range(9):
        world.publish("prices", {"id": 1, "n": number})
    events = world.engine.topic("prices").records.events
    assert reconfigure(world, replace(PRICES, series=Series(2))) == ["Retain of prices changed"]
    assert [json.loads(event.body)["n"] for event in events.last("1", 9)] == [7, 8]
    world.publish("prices", {"id": 1, "n": 9})
    assert events.count == 2
    world.check()
    for other in (ORDERS, replace(PRICES, series=None)):
        with pytest.raises(ConfigError, match="cannot be"):
            reconfigure(world, other)
