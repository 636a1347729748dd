"""Another configuration for a running engine: what changes, what stays, what is refused."""

import json
import sys
from dataclasses import fields, replace
from random import Random

import numpy as np
import pytest

from sow import indexes
from sow.core.cooperative import run_to_completion
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
from sow.core.paths import value_at
from sow.engine import reconfiguration
from sow.engine.reconfiguration import check_names, without_place
from sow.engine.running_topics import CopyTopic
from sow.errors import ConfigError, InvalidTopic, TooLarge
from sow.topic import conflated_topic
from sow.topic import records as records_module
from tests.cases import all_cases
from tests.effort import seeds
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
    )  # fmt: skip
    assert changes == ["sessions changed", "limits changed"]
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


@all_cases("kind", [Topic, ConflatedTopic, View])
def test_every_field_of_a_definition_is_called_as_in_the_file(kind):
    section = reconfiguration.SECTION.child(kind.__name__)
    without = [one.name for one in fields(kind) if not section.filling(one.name)]
    assert set(without) <= {"line", "view"}
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


@pytest.fixture
def small_steps(monkeypatch):
    for module in (conflated_topic, indexes):
        monkeypatch.setattr(module, "STEP_ROWS", 2)
    monkeypatch.setattr(indexes, "STEP_NOTES_MAX", 2)


def change_something(world, random):
    """What clients may do between two steps; never a step of the engine's own time."""
    topic, at = random.choice(["orders", "/desk/1", "/desk/2"]), random.randrange(12)
    if random.random() < 0.3:
        found = world.engine.topics.get(topic)
        slot = None if found is None else found.records.table.slots.get(str(at))
        if slot is not None:
            run_to_completion(world.engine.removal(topic, np.array([slot]), world.now))
    else:
        world.publish(topic, {"id": at, "px": random.randrange(9), "a": random.randrange(3)})
    world.settle()


@all_cases("seed", seeds(15))
def test_whatever_changes_between_its_steps_a_reload_ends_as_if_it_had_been_one(seed, small_steps):
    random = Random(seed)
    world = World(ORDERS, SLOW, DESKS)
    for _ in range(30):
        change_something(world, random)
    world.advance(2 * SECOND)
    topics = (
        replace(ORDERS, hash_indexes=(("/a",),), indexes=("/px",)),
        replace(SLOW, filter="/px > 3"),
        replace(DESKS, hash_indexes=(("/a", "/px"),)),
        COPIES,
        replace(FAST, filter="/px < 6"),
    )
    for _ in world.executor.reconfiguration(replace(world.configuration, topics=topics), world.now):
        for _ in range(random.randrange(3)):
            change_something(world, random)
        if random.random() < 0.2:
            world.advance(random.randrange(SECOND))
        world.check()
    assert world.engine.configuration.topics == topics
    world.check()
    world.advance(3 * SECOND)
    for copy in (topic for topic in world.engine.topics.values() if isinstance(topic, CopyTopic)):
        condition = copy.copy.condition
        wanted = [
            one
            for one in world.records(copy.underlying)
            if condition is None or condition.holds([value_at(one, p) for p in condition.paths])
        ]
        assert sorted(world.records(copy.name), key=str) == sorted(wanted, key=str)
    assert {name for name in world.engine.topics if name.startswith("/desk/1")} in (
        {"/desk/1", "/desk/1-C"}, set(),
    )  # fmt: skip


def test_a_conflated_topic_cannot_be_queried_before_it_is_full(world, client, small_steps):
    world.publish("orders", *[{"id": at} for at in range(5)])
    topics = (ORDERS, SLOW, DESKS, COPIES, FAST)
    steps = world.executor.reconfiguration(replace(world.configuration, topics=topics), world.now)
    next(steps)
    (refused,) = client.say(c="sow", t="orders-F", cid="1")
    assert refused["status"] == "failure"
    world.publish("orders", {"id": 0, "px": 1}, {"id": 9})
    run_to_completion(steps)
    held = [record["id"] for record in world.records("orders-F")]
    assert held == [0, 1, 2, 3, 4, 9], "in the order of their first publication"
    assert world.records("orders-F")[0] == {"id": 0, "px": 1}


def test_names_are_kept_for_the_copies_that_are_being_filled(small_steps):
    every = replace(DESKS, pattern="^/desk/")
    world = World(ORDERS, every)
    world.publish("orders", {"id": 1}, {"id": 2}, {"id": 3})
    world.publish("/desk/1", {"id": 1}, {"id": 2}, {"id": 3})
    first = replace(SLOW, name="/desk/first")
    steps = world.executor.reconfiguration(
        replace(world.configuration, topics=(ORDERS, every, first, COPIES)), world.now
    )
    next(steps)
    for name in ("/desk/first", "/desk/1-C"):
        with pytest.raises(InvalidTopic):
            world.publish(name, {"id": 1})
    world.publish("/desk/2", {"id": 1})
    assert "/desk/2-C" in world.engine.topics, "a topic that comes meanwhile has its copy at once"
    run_to_completion(steps)
    assert len(world.records("/desk/1-C")) == len(world.records("/desk/first")) == 3
    world.check()


def test_new_indexes_serve_when_they_are_complete_and_the_old_ones_until_then(world, small_steps):
    world.publish("orders", *[{"id": at, "a": at % 2} for at in range(6)])
    changed = replace(ORDERS, hash_indexes=(("/a",),), indexes=("/px",))
    records = world.engine.topics["orders"].records
    before = records.indexes
    steps = world.executor.reconfiguration(
        replace(world.configuration, topics=(changed, SLOW, DESKS, COPIES)), world.now
    )
    next(steps)
    world.publish("orders", {"id": 1, "a": 7})
    assert records.indexes is before
    records.check()
    run_to_completion(steps)
    assert [str(path) for path in records.indexes.watched] == ["/a"]
    records.check()


def test_a_reload_that_ends_with_the_server_leaves_what_there_was(world, small_steps):
    world.publish("orders", *[{"id": at, "a": at % 2} for at in range(6)])
    changed = replace(ORDERS, hash_indexes=(("/a",),))
    for topics in ((changed, SLOW, DESKS, COPIES), (ORDERS, SLOW, DESKS, COPIES, FAST)):
        steps = world.executor.reconfiguration(
            replace(world.configuration, topics=topics), world.now
        )
        next(steps)
        steps.close()
        world.publish("orders", {"id": 1, "a": 9})
        assert "orders-F" not in world.engine.topics
        assert world.configuration.topics == world.engine.configuration.topics
        world.check()


ROWS = View("orders-V", "json", ("orders",), ("/id", "MAX(/px) AS /px"), ("/id",))


@pytest.mark.parametrize("added", [FAST, ROWS], ids=["conflated topic", "view"])
def test_what_a_topic_begins_with_is_sent_in_steps_and_is_of_one_moment(world, added, monkeypatch):
    monkeypatch.setattr(records_module, "INTRODUCED_AT_ONCE", 2)
    world.publish("orders", *({"id": number, "px": 0} for number in range(9)))
    followers = [world.client() for _ in range(3)]
    followers[0].say(c="subscribe", t="^orders-[FV]", opts="oof")
    followers[1].say(c="subscribe", t="^orders-[FV]", opts="conflation=1s")
    configuration = replace(world.configuration, topics=(ORDERS, SLOW, DESKS, COPIES, added))
    requested = False
    steps = world.executor.reconfiguration(configuration, world.now)
    for step, _ in enumerate(steps, 1):
        world.publish("orders", {"id": step % 9, "px": step})
        if world.engine.atomic.topic is not None and not requested and step % 2:
            requested = True
            followers[2].execute(b'{"c":"sow_and_subscribe","t":"orders-[FV]"}')
            assert world.engine.atomic.topic is None, "who asks takes the steps that are left"
        world.engine.check()
    assert requested
    world.advance(3 * SECOND)
    for follower in followers:
        held = {}
        for line in follower.lines():
            if line.get("t") == added.name:
                assert held.get(line["d"]["id"]) != line["d"], "a repeat"
                held[line["d"]["id"]] = line["d"]
        assert sorted(held.items()) == [(one["id"], one) for one in by_id(world, added.name)]


def by_id(world, topic):
    return sorted(world.records(topic), key=lambda one: one["id"])


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


# Of very many definitions.


def copied(count, **more):
    """So many conflated topics, each with a filter of its own."""
    return [replace(SLOW, name=f"c{at}", filter=f"/px > {at}", **more) for at in range(count)]


def longest_step(before, after):
    """The most calls in one step of a reload from these conflated topics to those."""
    world, counts = World(ORDERS, *before), [0]
    configuration = replace(world.configuration, topics=(ORDERS, *after))

    def count(_frame, event, _argument):
        counts[-1] += event == "call" or event == "c_call"

    sys.setprofile(count)
    try:
        for _ in world.executor.reconfiguration(configuration, world.now):
            counts.append(0)
    finally:
        sys.setprofile(None)
    assert len(world.engine.topics) == 1 + len(after)
    return max(counts)


@pytest.mark.parametrize(
    ("before", "after", "calls_max"),
    [
        (copied, lambda count: [replace(one, line=9) for one in copied(count)], 8),
        (copied, lambda count: copied(count, interval_us=9), 12),
        (copied, lambda _count: [], 10),
        (lambda _count: [], copied, 32),
    ],
    ids=["none is different", "other intervals", "removed", "added"],
)
def test_no_step_of_a_reload_is_long_however_many_definitions_there_are(before, after, calls_max):
    few, many = 100, 300
    more = longest_step(before(many), after(many)) - longest_step(before(few), after(few))
    assert more / (many - few) <= calls_max, "calls for each definition in the longest step"


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
