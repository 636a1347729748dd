"""Views of several topics: their rows are what SQL gives, after every step of any history.

The reference is sqlite3, of the standard library: the same joins and the same groups over the
current records. And a client that has followed a view from the beginning holds its rows.
"""

import json
import sqlite3
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sow.core.definitions import ConflatedTopic, Join, Limits, Topic, View
from sow.errors import Full, Stopped
from sow.topic.views.join_state import PLACE_BYTES
from tests.effort import examples
from tests.laws.harness import SECOND, World
from tests.laws.window_reader import WindowReader

ORDERS = Topic("orders", "json", keys=("/id",), expires=True)
QUOTES = Topic("quotes", "json", keys=("/id",))
RATINGS = Topic("ratings", "json", keys=("/id",))
JOINED = {
    "pair": (("orders", "sym", "quotes", "sym"),),
    "chain": (("orders", "sym", "quotes", "sym"), ("quotes", "src", "ratings", "src")),
    "star": (("orders", "sym", "quotes", "sym"), ("orders", "src", "ratings", "src")),
}
FIELDS = {
    "orders": ("id", "sym", "src", "qty"),
    "quotes": ("id", "sym", "src", "px"),
    "ratings": ("id", "src", "grade"),
}


OF_ORDER = ("[quotes]./px AS /last", "GROUP_CONCAT([orders]./id) AS /ids")
"""Results that depend on the order of rows, which SQL does not define: the same after a restart."""


def view(name, shape, types, by="[quotes]./src", more=()):
    joins = tuple(
        Join(left, f"/{one}", right, f"/{other}", kind)
        for (left, one, right, other), kind in zip(JOINED[shape], types, strict=False)
    )
    topics = tuple(
        dict.fromkeys(topic for join in joins for topic in (join.left_topic, join.right_topic))
    )
    return View(
        name,
        "json",
        topics,
        (
            f"{by} AS /by",
            "COUNT(1) AS /n",
            "COUNT([orders]./id) AS /orders",
            "SUM([orders]./qty) AS /qty",
            "SUM([orders]./qty * [quotes]./px) AS /worth",
            "MAX([quotes]./px) AS /px",
            *more,
        ),
        (by,),
        joins=joins,
    )


def expected(world, definition):
    """The rows of a view by SQL: by what they are grouped by."""
    database = sqlite3.connect(":memory:")
    for name, fields in FIELDS.items():
        columns = ", ".join(
            f"{field} {'INT' if field in ('qty', 'px') else 'TEXT'}" for field in fields
        )
        database.execute(f"CREATE TABLE {name} ({columns})")
        for body in documents(world, name) if name in world.engine.topics else ():
            row = [body.get(field) if body.get(field) != "" else None for field in fields]
            marks = ", ".join("?" for _ in fields)
            database.execute(f"INSERT INTO {name} VALUES ({marks})", row)
    tables = definition.joins[0].left_topic
    for join in definition.joins:
        kind = {"left": "LEFT", "inner": "INNER", "full": "FULL"}[join.type]
        on = f"{join.left_topic}.{join.left_field[1:]} = {join.right_topic}.{join.right_field[1:]}"
        tables += f" {kind} JOIN {join.right_topic} ON {on}"
    by = definition.grouping[0].replace("[", "").replace("]./", ".")
    sql = (
        f"SELECT {by}, COUNT(*), COUNT(orders.id), SUM(orders.qty), SUM(orders.qty * quotes.px), "
        f"MAX(quotes.px) FROM {tables} GROUP BY {by}"
    )
    names = ("by", "n", "orders", "qty", "worth", "px")
    found = [dict(zip(names, row, strict=True)) for row in database.execute(sql)]
    return {row["by"]: row for row in found}


def held(world, name):
    """The rows of a view, by what they are grouped by."""
    return {row.get("by"): {"by": None, **row} for row in documents(world, name)}


SYM, SRC = st.sampled_from(["A", "B", "", None]), st.sampled_from(["x", "y", None])
NUMBER = st.integers(0, 9)
DOCUMENTS = {
    "orders": st.builds(
        lambda number, sym, src, qty: {"id": f"o{number}", "sym": sym, "src": src, "qty": qty},
        st.integers(0, 4), SYM, SRC, NUMBER,
    ),
    "quotes": st.builds(
        lambda number, sym, src, px: {"id": f"q{number}", "sym": sym, "src": src, "px": px},
        st.integers(0, 3), SYM, SRC, NUMBER,
    ),
    "ratings": st.builds(
        lambda number, src, grade: {"id": f"r{number}", "src": src, "grade": grade},
        st.integers(0, 2), SRC, st.sampled_from("ABC"),
    ),
}  # fmt: skip
CHANGES = st.sampled_from(sorted(DOCUMENTS)).flatmap(
    lambda name: st.tuples(st.just(name), st.lists(DOCUMENTS[name], min_size=1, max_size=4))
)
TYPES = st.lists(st.sampled_from(["left", "inner", "full"]), min_size=2, max_size=2)


def documents(world, name):
    """The records of a topic."""
    table = world.engine.topics[name].records.table
    return [json.loads(table.bodies[slot]) for slot in table.live().tolist()]


class JoinedViews(RuleBasedStateMachine):
    """Three topics, a view of each shape of join, and a view over one of them."""

    @initialize(types=TYPES)
    def begin(self, types):
        views = [view(shape, shape, types, more=OF_ORDER) for shape in JOINED]
        # Of a topic and of a view of it: a diamond.
        self.diamond = View(
            "diamond",
            "json",
            ("quotes", "pair"),
            ("[quotes]./src AS /by", "SUM([quotes]./px) AS /px", "MAX([pair]./px) AS /most"),
            ("[quotes]./src",),
            joins=(Join("quotes", "/src", "pair", "/by"),),
        )
        self.topics = (ORDERS, QUOTES, RATINGS, *views, self.diamond)
        self.world = World(*self.topics)
        self.views = views
        self.follow()

    def follow(self):
        """Follow all views again; a new follower gets the current rows."""
        self.told = {one.name: {} for one in (*self.views, self.diamond)}
        self.clients = {name: self.world.client() for name in self.told}
        for name, client in self.clients.items():
            self.hear(name, client.say(c="sow_and_subscribe", t=name, opts="oof"))

    def hear(self, name, lines):
        rows = self.told[name]
        for line in lines:
            if line["c"] in ("sow", "p"):
                rows[line["k"]] = line["d"]
            elif line["c"] == "oof":
                del rows[line["k"]]

    @rule(change=CHANGES)
    def publish(self, change):
        name, documents = change
        self.world.publish(name, *documents)

    @rule(name=st.sampled_from(sorted(DOCUMENTS)), last=st.integers(0, 4))
    def delete(self, name, last):
        self.world.delete(name, f"/id = '{name[0]}{last}'")

    @rule(document=DOCUMENTS["orders"])
    def lapse(self, document):
        self.world.publish("orders", document, expires_s=1)
        self.world.advance(2 * SECOND)

    @rule()
    def restart(self):
        rows = {name: held(self.world, name) for name in self.told}
        self.world = self.world.restart(*self.topics)
        self.follow()
        assert rows == {name: held(self.world, name) for name in self.told}

    @rule(types=TYPES)
    def reload(self, types):
        """Other joins, of the same rows' names."""
        self.views = [view(shape, shape, types, more=OF_ORDER) for shape in JOINED]
        self.topics = (ORDERS, QUOTES, RATINGS, *self.views, self.diamond)
        configuration = replace(self.world.configuration, topics=self.topics)
        self.world.executor.reconfigure(configuration, self.world.now)
        self.world.configuration = configuration
        self.world.settle()

    @invariant()
    def rows_are_what_sql_gives(self):
        for one in self.views:
            rows = held(self.world, one.name)
            for row in rows.values():
                del row["last"], row["ids"]
            assert rows == expected(self.world, one)

    @invariant()
    def a_diamond_shows_no_state_that_never_was(self):
        pair = held(self.world, "pair")
        for by, row in held(self.world, "diamond").items():
            most = pair.get(by, {}).get("px") if by is not None else None
            assert row["most"] == most

    @invariant()
    def who_follows_holds_the_rows(self):
        for name, rows in self.told.items():
            self.hear(name, self.clients[name].lines())
            there = sorted(map(json.dumps, documents(self.world, name)))
            assert sorted(map(json.dumps, rows.values())) == there

    def teardown(self):
        if hasattr(self, "world"):
            self.world.engine.check()


JoinedViews.TestCase.settings = examples(6, stateful_step_count=12)
TestJoinedViews = JoinedViews.TestCase


def hub(count, fan_out_max=10**6):
    """So many orders of one symbol, and its quote."""
    world = World(ORDERS, QUOTES, view("pair", "pair", ["left"]))
    world.engine.adopt(replace(world.configuration, limits=Limits(join_fan_out_max=fan_out_max)))
    for start in range(0, count, 1000):
        orders = [{"id": f"o{start + at}", "sym": "A", "qty": 1} for at in range(min(count, 1000))]
        world.publish("orders", *orders)
    world.advance(0)
    return world


def test_a_change_of_very_many_rows_is_sent_whole_after_short_steps():
    """Nothing blocks: between two steps others publish, and are notified; no one sees half."""
    count = 4000
    world = hub(count)
    client = world.client()
    client.say(c="sow_and_subscribe", t="pair")
    world.engine.publish("quotes", [b'{"id":"q","sym":"A","src":"x","px":2}'], world.now)
    steps = 0
    while True:
        steps += 1
        world.settle()
        if world.engine.due_us() is None:
            break
        if steps == 2:
            world.engine.publish("orders", [b'{"id":"more","sym":"A","qty":1}'], world.now)
        world.engine.advance(world.now)
    assert steps > count / 1000
    told = [line["d"]["worth"] for line in client.lines() if line["c"] == "p" and "by" in line["d"]]
    assert told == [2 * count, 2 * (count + 1)], "one moment, and then the next"
    assert held(world, "pair")["x"]["orders"] == count + 1


def test_a_view_that_would_join_too_much_stops_and_says_so_and_a_reload_makes_it_again():
    world, said = hub(50, fan_out_max=20), []
    world.engine.on_stopped(said.append)
    assert held(world, "pair")[None]["n"] == 50
    world.publish("quotes", {"id": "q", "sym": "A", "src": "x", "px": 2})
    assert len(documents(world, "quotes")) == 1, "what was published is kept"
    assert held(world, "pair") == {}
    assert len(said) == 1
    ack = world.client().say(c="sow", t="pair")[-1]
    assert ack["status"] == "failure"
    assert "the view pair has stopped: a change of the record 'q' of quotes" in ack["detail"]
    with pytest.raises(Stopped, match="Limits/JoinFanOut"):
        world.engine.topic("pair")
    world.publish("quotes", {"id": "q", "sym": "B", "src": "x", "px": 2})
    world.engine.check()
    larger = replace(world.configuration, limits=Limits(join_fan_out_max=100))
    world.executor.reconfigure(larger, world.now)
    world.configuration = larger
    world.advance(0)
    world.publish("quotes", {"id": "q", "sym": "A", "src": "x", "px": 3})
    assert held(world, "pair")["x"]["worth"] == 150
    world.engine.check()


def test_what_is_made_of_a_view_that_has_stopped_is_refused_with_its_reason():
    """Without the rows that have gone, the others would be no answer either."""
    copy = ConflatedTopic("pair-C", "json", "pair", interval_us=SECOND)
    over = View("over", "json", ("pair-C",), ("/g AS /g", "COUNT(1) AS /n"), ("/g",))
    tight, wide = (Limits(join_fan_out_max=most) for most in (20, 100))
    world = World(ORDERS, QUOTES, view("pair", "pair", ["left"]), copy, over)
    world.engine.adopt(replace(world.configuration, limits=tight))
    world.publish("quotes", {"id": "q", "sym": "A", "px": 2})
    world.publish("orders", *[{"id": f"o{at}", "sym": "A", "qty": 1} for at in range(50)])
    world.advance(SECOND)
    world.publish("quotes", {"id": "q", "sym": "A", "px": 3})
    world.advance(SECOND)
    for name in ("pair", "pair-C", "over"):
        ack = world.client().say(c="sow", t=name)[-1]
        assert (ack["status"], ack["reason"]) == ("failure", "stopped")
        assert ack["detail"].startswith("the view pair has stopped: ")
    commands = "sow", "subscribe", "sow_and_subscribe", "delta_subscribe", "sow_and_delta_subscribe"
    for command in commands:
        for pattern in ("^pair$", "^(over|quotes)$"):
            ack = world.client().say(c=command, t=pattern, cid="1")[-1]
            assert (ack["status"], ack["reason"]) == ("failure", "stopped"), (command, pattern)
            name = "pair" if "pair" in pattern else "over"
            told = f"'{pattern}' takes in the topic {name}, and the view pair has stopped: "
            assert ack["detail"].startswith(told)
        ack = world.client().say(c=command, t="^(orders|quotes)$", cid="1")[-1]
        assert ack.get("status", "success") == "success"
    world.executor.reconfigure(replace(world.configuration, limits=wide), world.now)
    world.settle()
    world.advance(2 * SECOND)
    assert [row["n"] for row in world.records("over")] == [1]
    world.engine.check()


def test_a_view_that_would_join_too_much_from_the_start_has_no_rows_and_stops_nothing_else():
    one = view("pair", "pair", ["left"])
    world = World(ORDERS, QUOTES)
    world.publish("orders", {"id": "o", "sym": "A", "qty": 1})
    world.publish("quotes", *[{"id": f"q{at}", "sym": "A", "px": 2} for at in range(30)])
    configuration = replace(
        world.configuration, topics=(ORDERS, QUOTES, one), limits=Limits(join_fan_out_max=20)
    )
    said = []
    world.engine.on_stopped(said.append)
    world.executor.reconfigure(configuration, world.now)
    world.settle()
    assert "the record 'o' of orders concerns more than 20 joined rows" in said[0]
    assert held(world, "pair") == {}
    world.publish("orders", {"id": "p", "sym": "A", "qty": 1})
    world.engine.check()


def test_a_server_starts_with_a_view_that_would_join_too_much():
    world = World(ORDERS, QUOTES)
    world.publish("orders", {"id": "o", "sym": "A", "qty": 1})
    world.publish("quotes", *[{"id": f"q{at}", "sym": "A", "px": 2} for at in range(30)])
    world.configuration = replace(world.configuration, limits=Limits(join_fan_out_max=20))
    again, said = world.restart(ORDERS, QUOTES, view("pair", "pair", ["left"])), []
    again.engine.on_stopped(said.append)
    again.settle()
    assert len(said) == 1
    again.publish("orders", {"id": "p", "sym": "A", "qty": 1})
    assert (len(documents(again, "orders")), held(again, "pair")) == (2, {})
    ack = again.client().say(c="sow_and_subscribe", t="pair")[-1]
    assert (ack["status"], ack["reason"]) == ("failure", "stopped")


def test_joins_of_one_moment_are_those_of_all_that_has_changed_in_it():
    """Records of both sides that change in one turn, from one value to another and back."""
    world = World(ORDERS, QUOTES, view("pair", "pair", ["full"]))
    world.publish("orders", {"id": "o", "sym": "A", "qty": 1})
    world.engine.publish("quotes", [b'{"id":"q","sym":"A","px":5}'], world.now)
    world.engine.publish("orders", [b'{"id":"o","sym":"B","qty":2}'], world.now)
    world.engine.publish("quotes", [b'{"id":"q","sym":"B","px":6}'], world.now)
    world.engine.publish("orders", [b'{"id":"p","sym":"A","qty":3}'], world.now)
    world.settle()
    assert held(world, "pair") == expected(world, view("pair", "pair", ["full"]))
    assert held(world, "pair")[None]["worth"] == 12


def test_groups_whose_rows_begin_with_one_record_stand_by_their_sow_keys():
    """For queries, their pages, live windows, copies and views over them; also after a restart."""
    grouped = view("pair", "pair", ["full"], "[quotes]./src")
    copy = ConflatedTopic("copy", "json", "pair", interval_us=SECOND)
    over = View("over", "json", ("pair",), ("GROUP_CONCAT(/by) AS /all",), ("/none",))
    world = World(ORDERS, QUOTES, grouped, copy, over)
    windows = [
        WindowReader(world.client(), name, order_by, top_n=4, skip_n=1)
        for name, order_by in (("pair", None), ("pair", "/n"), ("copy", None))
    ]
    for window in windows:
        window.begin()
    sources = [{"id": f"q{at}", "sym": "A", "src": f"s{at}", "px": 1} for at in range(6)]
    world.publish("quotes", *sources)  # nothing before them is there: all stand at one place
    world.publish("orders", {"id": "o1", "sym": "A"}, {"id": "o2", "sym": "B"})
    world.publish("quotes", {"id": "q6", "sym": "B", "src": "s5"}, {"id": "q2", "sym": "A"})

    def keys(world, name, **more):
        lines = world.client().say(c="sow", t=name, **more)
        return [(int(line["k"]), line["d"].get("by")) for line in lines if line["c"] == "sow"]

    for again in (world, world.restart()):
        again.advance(2 * SECOND)
        found = keys(again, "pair")
        assert found == sorted(found)
        assert len(found) == 6
        assert keys(again, "copy") == keys(again, "pair", order_by="/none") == found
        assert keys(again, "pair", top_n=2, skip_n=2) == found[2:4]
        (row,) = documents(again, "over")
        assert row["all"] == "s0,s1,s3,s4,s5", "of one place: in the order of the texts themselves"
    for window in windows:
        window.read()
        window.check(world)


def test_what_a_join_keeps_counts_as_memory_until_it_goes():
    grouped = view("pair", "pair", ["left"])
    world = World(ORDERS, QUOTES, grouped)
    world.publish("orders", *[{"id": f"o{at}", "sym": f"S{at}"} for at in range(50)])
    kept = world.engine.topics["pair"].view.producer.kept_bytes
    assert kept == 50 * (PLACE_BYTES + len("S0")) + 40
    world.check()
    limits = Limits(memory_bytes_max=world.engine.capacity.used_bytes)
    world.engine.adopt(replace(world.configuration, limits=limits))
    with pytest.raises(Full):
        world.publish("orders", {"id": "more"})
    world.executor.reconfigure(replace(world.configuration, topics=(ORDERS, QUOTES)), world.now)
    world.check()
    world.delete("orders", "1 = 1")
    world.advance(SECOND)  # in which what was kept of its groups is forgotten
    assert world.engine.capacity.used_bytes == 0
    world = World(ORDERS, QUOTES, grouped)
    world.publish("orders", {"id": "o1", "sym": "A"}, {"id": "o2", "sym": "A"})
    world.publish("quotes", {"id": "q1", "sym": "A", "src": "x"})
    for name in ("orders", "quotes"):
        world.delete(name, "1 = 1")
    assert world.engine.capacity.used_bytes == 0, "deleting everything leaves nothing"
    world.check()


def test_a_view_that_is_always_behind_delays_no_one_for_ever():
    """Neither others nor a view over it, which is notified of one moment after the other."""
    by_desk = View("symbols", "json", ("orders",), ("/sym", "SUM(/qty) AS /n"), ("/sym",))
    over = View("over", "json", ("pair",), ("SUM(/worth) AS /worth",), ("/none",))
    world = World(ORDERS, QUOTES, view("pair", "pair", ["left"]), over, by_desk)
    count = 5000
    for start in range(0, count, 500):
        orders = [{"id": f"o{start + at}", "sym": "A", "qty": 1} for at in range(500)]
        world.publish("orders", *orders)
    world.advance(0)
    worth = []
    for px in range(1, 60):
        body = b'{"id":"q","sym":"A","src":"x","px":%d}' % px
        world.engine.publish("quotes", [body], world.now)
        world.engine.publish("orders", [b'{"id":"o","sym":"B","qty":%d}' % px], world.now)
        world.engine.advance(world.now)
        world.settle()  # less than it takes, and then there is more to do
        assert world.engine.topics["pair"].view.is_dirty
        assert documents(world, "symbols")[1] == {"sym": "B", "n": px}
        worth.append(documents(world, "over")[0]["worth"] or 0)
    assert len({*worth}) > 5
    assert all(one % count == 0 and one // count < 60 for one in worth), "no state that never was"
    world.advance(0)
    assert documents(world, "over") == [{"worth": 59 * count}]
    world.check()
