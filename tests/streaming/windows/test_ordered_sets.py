"""Ordered sets: shared, found by their bound, filled again when they are short."""

from random import Random

import pytest

from sow.core.definitions import View
from sow.streaming.windows import ordered_sets
from sow.streaming.windows.ordered_sets import TO_THE_END, WindowHead
from tests.laws.harness import ORDERS, SECOND, SLOW, World
from tests.laws.window_reader import WindowReader


def reader_of(world, **requested):
    reader = WindowReader(world.client(), "orders", "/px", **{"top_n": 2, **requested})
    reader.begin()
    return reader


def sets_of(world):
    (router,) = [world.engine.topics["orders"].router]
    return [*router._ordered.values()]


def test_windows_of_one_filter_and_order_share_one_set():
    world = World()
    world.publish("orders", *[{"id": at, "px": at} for at in range(9)])
    readers = [reader_of(world), reader_of(world, skip_n=3), reader_of(world, filter="/px > 2")]
    assert len(sets_of(world)) == 2
    world.publish("orders", {"id": 20, "px": 3.5})
    for reader in readers:
        reader.read()
        reader.check(world)
        reader.client.say(c="unsubscribe", s="all")
    assert sets_of(world) == []
    assert "/px" not in map(str, world.engine.topics["orders"].records.watched.paths)


def test_only_windows_that_show_another_stretch_are_read(monkeypatch):
    world = World()
    world.publish("orders", *[{"id": at, "px": at} for at in range(9)])
    readers = [reader_of(world, skip_n=first) for first in (0, 2, 4)]
    read, rows = [], ordered_sets.OrderedSet.rows
    monkeypatch.setattr(
        ordered_sets.OrderedSet,
        "rows",
        lambda ordered, first, last: read.append(first) or rows(ordered, first, last),
    )
    for px, expected in ((3, {2}), (4.5, {2, 4}), (0.5, {0, 2, 4}), (99, {0, 2, 4})):
        read.clear()
        world.publish("orders", {"id": 3, "px": px})
        assert set(read) == expected, px
        for reader in readers:
            reader.read()
            reader.check(world)


def test_what_ranks_after_the_bound_concerns_no_window(monkeypatch):
    monkeypatch.setattr(ordered_sets, "SPARE_MIN", 2)
    world = World()
    world.publish("orders", *[{"id": at, "px": at} for at in range(20)])
    reader = reader_of(world)
    (ordered,) = sets_of(world)
    assert len(ordered.head) == 4
    for px in (50, "text", 3.5, [9]):
        world.publish("orders", {"id": 99, "px": px})
    assert len(ordered.head) == 4
    assert reader.client.lines() == []


@pytest.mark.parametrize("order_by", [None, "/none"])
def test_what_was_published_long_ago_and_passes_the_filter_now_stands_where_it_was_born(
    monkeypatch, order_by
):
    monkeypatch.setattr(ordered_sets, "SPARE_MIN", 0)
    world = World()
    world.publish("orders", *[{"id": at, "px": at % 2} for at in range(20)])
    reader = WindowReader(world.client(), "orders", order_by, top_n=3, filter="/px = 1")
    reader.begin()
    (ordered,) = sets_of(world)
    assert not ordered.head.complete
    for number in (2, 18, 0, 1):
        world.publish("orders", {"id": number, "px": (number + 1) % 2})
        reader.read()
        reader.check(world)
        world.check()


@pytest.mark.parametrize("condition", [None, "/px < 50"])
def test_what_enters_and_leaves_in_one_batch_has_left(monkeypatch, condition):
    monkeypatch.setattr(ordered_sets, "SPARE_MIN", 2)
    world = World()
    world.publish("orders", *[{"id": at, "px": at} for at in range(20)])
    reader = reader_of(world, filter=condition)
    world.publish("orders", *[{"id": 19, "px": px} for px in (-1, 99)], {"id": 18, "px": -2})
    reader.read()
    reader.check(world)
    assert [document["id"] for _, document in reader.held] == [18, 0]


def test_a_small_set_that_is_short_is_filled_at_the_end_of_the_turn(monkeypatch):
    monkeypatch.setattr(ordered_sets, "SPARE_MIN", 2)
    world = World()
    world.publish("orders", *[{"id": at, "px": at} for at in range(20)])
    reader = reader_of(world)
    world.delete("orders", "/id < 15")
    reader.read()
    reader.check(world)
    assert [document["id"] for _, document in reader.held] == [15, 16]


def test_a_large_set_is_filled_in_steps_and_rests(monkeypatch):
    """Between two fills of a large topic there is a pause; then one turn says what has come."""
    monkeypatch.setattr(ordered_sets, "SPARE_MIN", 2)
    monkeypatch.setattr(ordered_sets, "FILLED_AT_ONCE", 0)
    world = World()
    world.publish("orders", *[{"id": at, "px": at} for at in range(40)])
    reader = reader_of(world)
    world.delete("orders", "/id < 15")
    assert reader.client.lines() == [], "not before the head is known again"
    world.advance(0)
    reader.read()
    reader.check(world)
    world.delete("orders", "/id < 30")
    world.advance(ordered_sets.REFILL_US_MIN - 1)
    assert reader.client.lines() == []
    world.advance(1)
    reader.read()
    reader.check(world)
    assert reader.turns == 2
    world.advance(SECOND)
    assert reader.client.lines() == []
    assert world.due_us() is None


def parameters_of(world, monkeypatch):
    """What windows ask of the engine: how many records, by how many terms. (A reader that checks
    what it holds asks for two.)"""
    requested, answering = [], world.engine.queries.answering

    def noted(name, query, *more):
        if query.top_n != 2:
            requested.append((query.top_n, len(query.order_by)))
        return answering(name, query, *more)

    monkeypatch.setattr(world.engine.queries, "answering", noted)
    return requested


def test_who_scrolls_within_what_is_known_has_nothing_sorted(monkeypatch):
    """Though nobody else looks at it, and the old window has gone when the new one comes."""
    monkeypatch.setattr(ordered_sets, "SPARE_MIN", 4)
    world = World()
    world.publish("orders", *[{"id": at, "px": at} for at in range(40)])
    readers = [reader_of(world), reader_of(world, filter="/px < 30")]
    requested = parameters_of(world, monkeypatch)
    for reader in readers:
        for skip_n in (2, 4, 0):
            world.publish("orders", {"id": 30, "px": skip_n + 0.5}, {"id": 1, "px": -skip_n})
            reader.scroll(skip_n=skip_n)
            reader.check(world)
    assert requested == [(0, 0)] * 6, "only counted"
    requested.clear()
    readers[0].scroll(skip_n=20)
    readers[0].check(world)
    assert requested == [(26, 1)], "beyond it the query runs"
    another = reader_of(world, skip_n=18)
    another.check(world)
    assert requested[1:] == [(0, 0)], "and who opens a window has it from those that look there"
    world.check()


def test_what_leaves_while_it_is_counted_has_the_order_requested_again(monkeypatch):
    monkeypatch.setattr(ordered_sets, "SPARE_MIN", 2)
    monkeypatch.setattr(ordered_sets, "FILLED_AT_ONCE", 0)
    world = World()
    world.publish("orders", *[{"id": at, "px": at} for at in range(40)])
    reader = reader_of(world)
    answering, requested = world.engine.queries.answering, []

    def leaving(name, query, *more):
        requested.append(query.top_n)
        if query.top_n == 0:
            world.engine.remove(world.engine.topics["orders"], ["0", "1", "2"], "delete", world.now)
        return answering(name, query, *more)

    monkeypatch.setattr(world.engine.queries, "answering", leaving)
    client = reader.client
    said = client.say(**{**reader.command(s=reader.name, opts=("replace",)), "skip_n": 1})
    shown = [line["d"]["id"] for line in said if line["c"] == "sow"]
    assert requested == [0, 5]
    assert (shown, [line["c"] for line in said].count("oof")) == ([4, 5], 2)


def entry(rank, name):
    return ((2, rank), ord(name[0]), name)


def head_of(*ranks, complete=False):
    head = WindowHead()
    head.fill([entry(rank, name) for name, rank in zip("abcdefgh", ranks, strict=False)], complete)
    return head


def names(head):
    return "".join(one[-1] for one in head.order)


def test_it_knows_of_nothing_before_it_is_filled():
    head = WindowHead()
    assert head.put(entry(1, "a")) is None
    assert len(head) == 0


def test_what_ranks_after_its_bound_is_not_looked_at():
    head = head_of(1, 2, 3)
    assert head.put(entry(4, "x")) is None
    assert head.put(entry(2.5, "x")) == (2, TO_THE_END)
    assert names(head) == "abxc"


def test_what_leaves_is_not_replaced_and_the_bound_stays():
    head = head_of(1, 2, 3)
    assert head.drop("c") == (2, TO_THE_END)
    assert head.put(entry(2.9, "x")) == (2, TO_THE_END), (
        "nothing stands between what is left and the bound"
    )
    assert head.put(entry(3.1, "y")) is None
    assert names(head) == "abx"


def test_the_places_that_are_concerned_are_sent():
    head = head_of(1, 2, 3)
    assert head.put(entry(2, "b")) == (1, 1), "changed in its place"
    assert head.put(entry(2.5, "a")) == (0, 1), "from where it stood"
    assert head.put(entry(0, "c")) == (0, 2), "to where it stands"
    assert names(head) == "cba"
    assert head.put(entry(9, "c")) == (0, TO_THE_END), "all behind it stand elsewhere"
    assert head.drop("z") is None


def test_a_complete_one_takes_whatever_comes_until_it_is_cut():
    head = head_of(1, 2, complete=True)
    for rank, name in enumerate("wxyz", start=5):
        head.put(entry(rank, name))
    head.cut(3)
    assert names(head) == "abwxyz", "not much longer than it should be"
    head.cut(2)
    assert names(head) == "ab"
    assert not head.complete
    assert head.put(entry(5, "w")) is None


def test_it_is_a_beginning_of_the_order_whatever_happens():
    random, head, there = Random(1), WindowHead(), {}
    head.fill([], complete=True)
    for _ in range(2000):
        name, rank = random.choice("abcdefghijkl"), random.randint(0, 30)
        if random.random() < 0.3:
            there.pop(name, None)
            head.drop(name)
        else:
            there[name] = entry(rank, name)
            head.put(there[name])
        head.cut(2)
        order = sorted(there.values())
        assert head.order == order[: len(head)]
        if head.complete or len(head) < 2:
            head.fill(order[:3], complete=len(order) < 3)
        head.check()


BY_SYMBOL = View(
    "view", "json", ("orders",), ("/symbol AS /symbol", "SUM(/px) AS /px"), ("/symbol",)
)


@pytest.mark.parametrize("topic", ["orders", "orders-C", "view"])
def test_a_turn_names_the_newest_of_its_changes_whatever_their_order(topic):
    world = World(ORDERS, SLOW, BY_SYMBOL)
    client = world.client()
    client.say(c="sow_and_subscribe", t=topic, order_by="/px", top_n=9, opts="live")
    world.publish("orders", *[{"id": at, "px": at, "symbol": at} for at in (1, 2, 1)])
    world.advance(2 * SECOND)
    (turn,) = [line for line in client.lines() if line["c"] == "turn_end"]
    assert turn["bm"] == str(world.engine.seq)
