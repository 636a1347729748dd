"""Views are released in order, whole, and some rows at a time; what has gone is freed in steps."""

import gc
import json
from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic, Join, Limits, Topic, View
from sow.engine.output import HELD_US_MAX
from sow.engine.topic_changes import TopicChanges
from sow.errors import ConfigError, InvalidTopic
from sow.sessions.queries import aggregations
from sow.topic import views
from sow.topic.views import SingleSource, ViewGc
from tests.engine.making import ORDERS, catalog
from tests.laws.harness import SECOND, World, short

SUMS = View("sums", "json", ("orders",), ("/desk", "SUM(/qty) AS /qty"), ("/desk",))
LAST = View("last", "json", ("sums",), ("/qty", "/desk"), ("/qty",))


def test_a_view_reports_its_newest_row_where_one_above_needs_it():
    alone, _ = catalog(ORDERS, SUMS)
    assert not alone.topics["sums"].view.reports_newest
    both, _ = catalog(ORDERS, SUMS, LAST)
    assert both.topics["sums"].view.reports_newest
    assert not both.topics["last"].view.reports_newest
    assert alone.view_maker.require_newest(LAST) == [alone.topics["sums"]]


def test_a_view_stands_above_those_that_it_is_made_of():
    made, _ = catalog(ORDERS, SUMS, LAST)
    below, above = made.topics["sums"].view, made.topics["last"].view
    assert below.rank < above.rank
    assert above.sources == {"orders", "sums"}


@pytest.mark.parametrize("grouping", ["/id", "/same"])
def test_views_have_no_more_objects_than_reported(grouping):
    names = ["sum", "min", "count_distinct", "group_concat", "stddev_pop", "any"]
    fields = (grouping, *[f"{name.upper()}(/{name}) AS /{name}" for name in names], "/bare")
    world = World(ORDERS, View("v", "json", ("orders",), fields, (grouping,)))
    world.publish("orders", {"id": -1})
    view_objects_max, count = world.engine.catalog.view_maker.objects_max, 1_000
    before = view_objects_max()
    gc.collect()
    there = len(gc.get_objects())
    world.publish(
        "orders",
        *[{"id": at, "bare": at, **dict.fromkeys(names, at + 0.5)} for at in range(count)],
    )
    gc.collect()
    come = len(gc.get_objects()) - there
    assert come <= view_objects_max() - before <= 40 * come + 100 * count
    run_to_completion(TopicChanges(world.engine).remove_copies("v", lambda _topic: None))
    while world.engine.views.gc.due_us() is not None:
        world.engine.views.gc.advance(0)
    assert view_objects_max() == 0, "groups are forgotten without the collector"


T = Topic("t", "json", keys=("/id",))
DESKS = View("desks", "json", ("t",), ("/desk", "SUM(/qty) AS /qty"), ("/desk",))
TOTAL = View("total", "json", ("desks",), ("SUM(/qty) AS /qty",), ("/none",))
SLOW = ConflatedTopic("desks-C", "json", "desks", interval_us=SECOND)


@pytest.fixture
def world():
    return World(T, DESKS, TOTAL, SLOW)


@pytest.fixture
def follow(world):
    """Follows a topic; returns what has been said since the last call."""

    def begin(topic, **more):
        client = world.client()
        client.say(c="sow_and_subscribe", t=topic, opts="oof", **more)
        return lambda: short(client.lines())

    return begin


def test_one_request_is_one_turn(world, follow):
    sent = follow("desks")
    world.publish("t", {"id": 1, "desk": "a", "qty": 1}, {"id": 2, "desk": "a", "qty": 2})
    assert sent() == [("p", {"desk": "a", "qty": 3})]


def test_a_view_of_a_view_comes_after_it_in_the_same_turn(world, follow):
    sent = follow("^(desks|total)$")
    world.publish("t", {"id": 1, "desk": "a", "qty": 1}, {"id": 2, "desk": "b", "qty": 2})
    assert [row for _, row in sent()] == [
        {"desk": "a", "qty": 1}, {"desk": "b", "qty": 2}, {"qty": 3}
    ]  # fmt: skip


def test_a_view_of_a_view_waits_until_all_of_it_was_sent(world, follow):
    sent = follow("total")
    world.publish("t", *[{"id": at, "desk": at, "qty": 1} for at in range(300)])
    assert sent() == [("p", {"qty": 300})]


def test_very_many_rows_are_sent_some_at_a_time_and_all_in_the_end(world, follow):
    sent = follow("total")
    world.publish("t", *[{"id": at, "desk": at, "qty": 1} for at in range(1300)])
    assert len(world.records("desks")) < 1300
    assert not world.records("total"), "not before all of what it is made of"
    assert world.engine.due_us() <= world.now, "in turn with what others want"
    world.advance(0)
    assert len(world.records("desks")) == 1300
    assert sent() == [("p", {"qty": 1300})]
    world.check()


def test_a_view_can_be_conflated_queried_and_followed_by_deltas(world, follow):
    sent, delta = follow("desks-C"), world.client()
    world.publish("t", {"id": 1, "desk": "a", "qty": 1})
    delta.say(c="sow_and_delta_subscribe", t="desks", opts="oof,send_keys")
    world.publish("t", {"id": 2, "desk": "a", "qty": 2})
    assert short(delta.lines()) == [("p", {"desk": "a", "qty": 3})]
    world.advance(2 * SECOND)
    assert sent() == [("p", {"desk": "a", "qty": 3})]
    (row,) = [line["d"] for line in world.client().say(c="sow", t="desks", filter="/desk = 'a'")
              if line["c"] == "sow"]  # fmt: skip
    assert row == {"desk": "a", "qty": 3}


def test_nothing_is_published_to_a_view(world):
    for call in (
        lambda: world.engine.publish("desks", [b"{}"], world.now),
        lambda: run_to_completion(world.engine.removal("desks", [], world.now)),
    ):
        with pytest.raises(InvalidTopic, match=r"desks is a view, made of t; .* t"):
            call()


def large(world, count=600):
    """A publish of several slices, and the steps that it takes."""
    topic = world.engine.publishable("t")
    bodies = [json.dumps({"id": at, "desk": "a", "qty": 1}).encode() for at in range(count)]
    read = [
        world.engine.read(topic, bodies[at : at + 250], now_us=world.now)
        for at in range(0, count, 250)
    ]
    return world.engine.publications.carry_out("t", read, world.now)


def test_a_publish_in_slices_is_one_turn(world, follow):
    sent = follow("desks")
    for _ in large(world):
        world.settle()
        assert sent() == []
    world.settle()
    assert sent() == [("p", {"desk": "a", "qty": 600})]


def test_a_long_one_is_waited_for_no_longer_than_a_second(world, follow):
    sent, steps = follow("desks"), large(world)
    while "t" not in world.engine.publications.names_under_way():
        next(steps)
    world.settle()
    world.clock.advance(HELD_US_MAX)
    world.engine.sequencer.moment(world.now)
    world.settle()
    ((_, row),) = sent()
    assert 0 < row["qty"] < 600
    run_to_completion(steps)
    world.settle()
    assert sent() == [("p", {"desk": "a", "qty": 600})]


def test_one_that_stands_still_is_waited_for_no_longer_either(world, follow):
    """Though nothing else happens: whoever waits for it falls due."""
    sent, steps = follow("desks"), large(world)
    while "t" not in world.engine.publications.names_under_way():
        next(steps)
    world.settle()
    assert sent() == []
    world.check()
    world.advance(HELD_US_MAX)
    ((_, row),) = sent()
    assert 0 < row["qty"] < 600
    run_to_completion(steps)
    world.settle()
    assert sent() == [("p", {"desk": "a", "qty": 600})]


def test_a_view_that_waits_for_a_commit_gets_nothing_until_it_begins(world):
    """What it has not been given yet, it cannot take back."""
    engine, topic = world.engine, world.engine.publishable("t")
    world.publish("t", {"id": 1, "desk": "a", "qty": 1})

    def work(topic):
        for at in range(3):
            engine.put(
                topic,
                engine.read(topic, [b'{"id":1,"desk":"b","qty":%d}' % at], now_us=world.now),
                world.now,
            )
            yield

    books = replace(BOOKS, grouping=("/desk",))
    adding = TopicChanges(engine).add_private(books, engine.catalog.usage)
    is_requested = False
    for _ in engine.atomic.carry_out(lambda: topic, work):
        if engine.atomic.concerns(["t"]):
            is_requested = True
            next(adding)
    assert is_requested
    view = run_to_completion(adding)
    assert [json.loads(body) for body in view.records.table.bodies] == [{"book": None, "n": 1}]
    world.check()


def test_half_of_a_commit_is_never_sent_however_long_it_takes(world, follow):
    sent, engine = follow("desks"), world.engine

    def work(topic):
        for at in range(3):
            body = json.dumps({"id": at, "desk": "a", "qty": 1}).encode()
            engine.put(topic, engine.read(topic, [body], now_us=world.now), world.now)
            yield

    for _ in engine.atomic.carry_out(lambda: engine.publishable("t"), work):
        if engine.atomic.concerns(["t"]):
            world.clock.advance(2 * HELD_US_MAX)
            engine.sequencer.moment(world.now)
            world.settle()
            assert sent() == []
    world.settle()
    assert sent() == [("p", {"desk": "a", "qty": 3})]


def test_a_view_of_a_type_of_its_own(world):
    text = replace(DESKS, message_type="nvfix", name="text")
    reconfigure(world, T, DESKS, TOTAL, SLOW, text)
    world.publish("t", {"id": 1, "desk": "a", "qty": 2.5})
    table = world.engine.topics["text"].records.table
    assert table.bodies == [b"desk=a\x01qty=2.5\x01"]


def test_a_row_keeps_its_place_and_never_goes_back_over_a_restart(world):
    world.publish("t", {"id": 1, "desk": "b", "qty": 1}, {"id": 2, "desk": "a", "qty": 0.1})
    world.publish("t", {"id": 3, "desk": "a", "qty": 0.2})
    world.delete("t", "/id = 3")
    before = world.records("desks"), world.engine.topics["desks"].records.table.seqs.tolist()
    again = world.restart()
    again.check()
    assert again.records("desks") == before[0] == [
        {"desk": "b", "qty": 1}, {"desk": "a", "qty": 0.1}
    ]  # fmt: skip
    after = again.engine.topics["desks"].records.table.seqs.tolist()
    assert all(new >= old for old, new in zip(before[1], after, strict=False))
    assert again.records("total") == [{"qty": 1.1}]


def test_a_copy_of_a_view_stands_as_the_view_does_before_a_restart_and_after(world):
    """And so does one of a topic: its records come in the order in which windows end."""
    copy = ConflatedTopic("t-C", "json", "t", interval_us=SECOND, filter="/qty > 0")
    slower = ConflatedTopic("desks-CC", "json", "desks-C", interval_us=SECOND)
    reconfigure(world, T, DESKS, TOTAL, SLOW, copy, slower)
    names = ("t", "t-C", "desks", "desks-C", "desks-CC")

    def orders(world):
        world.advance(4 * SECOND)
        world.check()
        return {name: [next(iter(row.values())) for row in world.records(name)] for name in names}

    world.publish("t", {"id": 1, "desk": "a", "qty": 0}, {"id": 2, "desk": "b", "qty": 1})
    world.publish("t", {"id": 3, "desk": "c", "qty": 1}, {"id": 4, "desk": "a", "qty": 1})
    world.advance(4 * SECOND)
    world.delete("t", "/id = 1")
    found = orders(world)
    assert found["desks"] == found["desks-C"] == found["desks-CC"] == ["b", "c", "a"]
    world.publish("t", {"id": 5, "desk": "b", "qty": 0}, {"id": 1, "desk": "d", "qty": 0})
    world.delete("t", "/id = 2")
    world.advance(4 * SECOND)
    world.publish("t", {"id": 1, "desk": "d", "qty": 1}, {"id": 6, "desk": "a", "qty": 1})
    world.publish("t", {"id": 5, "desk": "b", "qty": 2})
    found = orders(world)
    assert found["t-C"] == [3, 4, 5, 1, 6]
    assert found["desks"] == found["desks-C"] == found["desks-CC"] == ["c", "a", "b", "d"]
    assert orders(world.restart()) == found


def test_deleting_everything_leaves_nothing(world):
    world.publish("t", *[{"id": at, "desk": str(at), "qty": at} for at in range(40)])
    world.delete("t", "1 = 1")
    for name in ("desks", "total"):
        assert len(world.engine.topics[name].view.groups) == 0
        assert not world.records(name)
    world.advance(2 * SECOND)
    assert world.engine.capacity.used_bytes == 0
    world.check()


def reconfigure(world, *topics):
    configuration = replace(world.configuration, topics=topics)
    changes = world.executor.reconfigure(configuration, world.now)
    world.configuration = configuration
    world.settle()
    world.check()
    return changes


BOOKS = View("books", "json", ("t",), ("/book", "COUNT(1) AS /n"), ("/book",))


def test_a_view_that_is_added_begins_full_and_goes_on(world, follow):
    world.publish("t", {"id": 1, "book": "x"})
    sent = follow("^(total|books)$")
    sent()
    assert reconfigure(world, T, DESKS, TOTAL, SLOW, BOOKS) == ["view books added"]
    assert sent() == [("p", {"book": "x", "n": 1})]
    world.publish("t", {"id": 2, "book": "x"})
    assert ("p", {"book": "x", "n": 2}) in sent()


def test_a_view_that_is_added_looks_only_at_what_indexes_find_for_its_filter(world, monkeypatch):
    """Of a thousand views of a client each would look at all records."""
    monkeypatch.setattr(views, "LOOKED_AT_MAX", 100)
    looked_at, rows_in = [], SingleSource._rows_in
    monkeypatch.setattr(
        SingleSource, "_rows_in", lambda one, slots: looked_at.extend(slots) or rows_in(one, slots)
    )
    world.publish("t", *({"id": number, "book": f"b{number % 20}"} for number in range(200)))
    one = replace(BOOKS, filter="/book = 'b7' AND /id > 0")
    reconfigure(world, T, DESKS, TOTAL, SLOW, one)
    assert len(looked_at) == 10
    assert world.client().say(c="sow", t="books")[1]["d"] == {"book": "b7", "n": 10}


def test_a_view_that_is_removed_takes_its_rows_along(world, follow):
    world.publish("t", {"id": 1, "desk": "a", "qty": 1})
    sent = follow("total")
    assert reconfigure(world, T, DESKS) == [
        "conflated topic desks-C removed", "view total removed"
    ]  # fmt: skip
    assert sent()[0] == ("deleted", {"qty": 1})
    world.publish("t", {"id": 2, "desk": "a", "qty": 1})
    assert world.records("desks") == [{"desk": "a", "qty": 2}]


def test_a_view_that_goes_in_steps_makes_no_rows_meanwhile(world, follow):
    world.publish("t", *[{"id": at, "desk": at, "qty": 1} for at in range(900)])
    sent = follow("desks")
    sent()
    for name in ("desks-C", "total"):
        run_to_completion(TopicChanges(world.engine).remove_copies(name, lambda _topic: None))
    reload = TopicChanges(world.engine).remove_copies("desks", lambda _topic: None)
    next(reload)
    world.publish("t", {"id": 1, "desk": 1, "qty": 5}, {"id": 899, "desk": 899, "qty": 5})
    for _ in reload:
        world.settle()
    assert {kind for kind, _ in sent()} == {"deleted"}
    assert "desks" not in world.engine.topics


def test_a_view_that_is_changed_reports_what_differs(world, follow):
    world.publish("t", {"id": 1, "desk": "a", "qty": 1}, {"id": 2, "desk": "b", "qty": 5})
    sent = follow("desks")
    sent()
    more = replace(DESKS, filter="/qty > 2", projection=(*DESKS.projection, "MAX(/qty) AS /max"))
    assert reconfigure(world, T, more, TOTAL, SLOW) == ["rows of desks changed"]
    assert sent() == [
        ("p", {"desk": "b", "qty": 5, "max": 5}), ("match", {"desk": "a", "qty": 1})
    ]  # fmt: skip
    assert world.records("total") == [{"qty": 5}]


def test_a_row_that_a_reload_takes_away_and_an_update_brings_back_is_sent_as_it_is(world, follow):
    world.publish("t", *[{"id": at, "desk": str(at), "qty": 1} for at in range(600)])
    sent = follow("desks")
    sent()
    fewer = replace(DESKS, filter="/qty > 2")
    configuration = replace(world.configuration, topics=(T, fewer, TOTAL, SLOW))
    world.executor.reconfigure(configuration, world.now)
    world.publish("t", {"id": 599, "desk": "599", "qty": 5})
    world.advance(0)
    assert [said for said in sent() if said[0] == "p"] == [("p", {"desk": "599", "qty": 5})]
    assert world.records("desks") == [{"desk": "599", "qty": 5}]
    world.check()


def test_what_a_reload_cannot_change_is_refused_by_name(world):
    for other, said in (
        (replace(DESKS, key_domain="d"), "KeyDomain of view desks cannot be changed"),
        (replace(DESKS, grouping=("/book",)), "Grouping of view desks cannot be changed"),
        (
            replace(DESKS, projection=("SUM(/qty) AS /qty",)),
            "where view desks projects what it groups by .* cannot be changed",
        ),
    ):
        with pytest.raises(ConfigError, match=said):
            reconfigure(world, T, other, TOTAL, SLOW)


BASE = Topic("orders", "json", keys=("/id",))
VIEW = View("each", "json", ("orders",), ("/id", "SUM(/qty) AS /qty"), ("/id",))
EACH = "projection=[/id],grouping=[/id]"


@pytest.fixture
def nine(monkeypatch):
    """One of nine groups, of which four are forgotten in a step."""
    monkeypatch.setattr(views, "KEPT_AT_ONCE", 4)
    nine = World(BASE, VIEW)
    nine.publish("orders", *[{"id": number, "qty": 1} for number in range(9)])
    return nine


def steps(nine):
    """How many there are after each step."""
    left = []
    while nine.engine.views.gc.due_us() is not None:
        nine.engine.views.gc.advance(0)
        left.append(sum(map(len, nine.engine.views.gc._waiting)))
    nine.check()
    return left


def test_those_of_a_subscription_that_has_ended(nine):
    client = nine.client()
    client.say(c="sow_and_subscribe", t="orders", opts=EACH)
    client.execute(b'{"c":"unsubscribe","s":"all"}')
    assert steps(nine) == [5, 1, 0]


def test_those_of_a_view_that_was_changed_or_removed(nine):
    engine = nine.engine
    run_to_completion(TopicChanges(engine).change_view(engine.topics["each"], VIEW))
    assert steps(nine) == [5, 1, 0]
    nine.settle()
    assert len(nine.records("each")) == 9
    run_to_completion(TopicChanges(engine).remove_copies("each", lambda _topic: None))
    assert steps(nine) == [5, 1, 0]


def test_those_of_a_view_that_became_too_large_or_that_nobody_waits_for(nine, monkeypatch):
    monkeypatch.setattr(aggregations, "VIEW_BYTES", Limits().group_memory_bytes_max // 4)
    (ack,) = nine.client().say(c="sow_and_subscribe", t="orders", opts=EACH, cid="1")
    assert ack["reason"] == "group memory"
    assert sum(steps(nine)) > 0


def test_they_fall_due_until_none_is_left(nine):
    client = nine.client()
    client.say(c="sow_and_subscribe", t="orders", opts=EACH)
    client.execute(b'{"c":"unsubscribe","s":"all"}')
    assert nine.due_us() == 0
    nine.settle()
    nine.advance(1)
    assert nine.engine.views.gc.due_us() is None


def test_nothing_is_forgotten_of_nothing():
    forgetting = ViewGc()
    forgetting.advance(0)
    assert forgetting.due_us() is None


def test_those_of_a_view_that_has_stopped_and_what_its_join_kept():
    joined = View(
        "pair", "json", ("orders", "quotes"),
        ("[orders]./id AS /id", "COUNT(1) AS /n"), ("[orders]./id",),
        joins=(Join("orders", "/sym", "quotes", "/sym"),),
    )  # fmt: skip
    nine = World(BASE, Topic("quotes", "json", keys=("/id",)), joined)
    nine.engine.adopt(replace(nine.configuration, limits=Limits(join_fan_out_max=5)))
    nine.publish("orders", *[{"id": number, "sym": "A"} for number in range(9)])
    nine.publish("quotes", {"id": 1, "sym": "A"})
    assert nine.engine.topics["pair"].view.stopped
    kept = [*nine.engine.topics["pair"].view.kept()]
    assert sum(map(len, kept)) > 0
    nine.advance(0)
    assert sum(map(len, kept)) == 0
    nine.check()
