"""The law of views: after any history the rows equal a recomputation, bit for bit, and a client
that has followed from the beginning holds them."""

import json
from dataclasses import replace

import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sow.core.definitions import ConflatedTopic, Join, Limits, Topic, View
from sow.errors import Full
from sow.store.memory import RECORD_BYTES
from sow.topic.views.groups import GROUP_BYTES
from tests.effort import examples
from tests.laws.harness import SECOND, World
from tests.topic.views.recomputation import Field, recomputed, shown

T = Topic("t", "json", keys=("/id",), expires=True, delta_null="remove")
FIELDS = (
    Field("desk", None, "/desk"),
    Field("n", "COUNT", "1"),
    Field("qty", "SUM", "/qty"),
    Field("avg", "AVG", "/qty"),
    Field("low", "MIN", "/px"),
    Field("high", "MAX", "/px"),
    Field("books", "GROUP_CONCAT", "/book"),
    Field("book", "UNIQUE", "/book"),
    Field("last", None, "/book"),
)
COUNTED = (
    Field("all", "SUM", "/n"), Field("qty", "SUM", "/qty"), Field("desks", "COUNT", "/n"),
    Field("last", None, "/desk"),
)  # fmt: skip


def view(name, of, fields, by=("/desk",), **more):
    return View(name, "json", (of,), tuple(map(str, fields)), by, **more)


DESKS = view("desks", "t", FIELDS)
BIG = view("big", "t", FIELDS, filter="/qty > 2")
TOTAL = view("total", "desks", COUNTED, ("/nothing",))
VIEWS = (DESKS, BIG, TOTAL)
"""Those that go by nothing that takes time."""
SLOW = ConflatedTopic("t-C", "json", "t", interval_us=SECOND)
SLOWLY = view("slowly", "t-C", FIELDS)
TOPICS = (T, DESKS, BIG, TOTAL, SLOW, SLOWLY)

DESK = st.sampled_from(["a", "b", "", None, 5, "5", 2.5])
QTY = st.one_of(
    st.integers(-3, 9), st.floats(-1e6, 1e6, allow_nan=False), st.sampled_from([0.1, 1e16, "x"])
)
DOCUMENT = st.fixed_dictionaries(
    {"id": st.integers(0, 6)},
    optional={
        "desk": DESK,
        "qty": QTY,
        "px": st.one_of(st.none(), st.integers(0, 9)),
        "book": st.sampled_from(["x", "y", "z"]),
    },
)


class Views(RuleBasedStateMachine):
    """A topic, its views, and a client that follows each of them."""

    def __init__(self):
        super().__init__()
        self.world = World(*TOPICS)
        self.topics = TOPICS
        self.follow()

    def follow(self):
        self.held = {one.name: {} for one in self.topics if isinstance(one, View)}
        self.clients = {name: self.world.client() for name in self.held}
        for name, client in self.clients.items():
            self.apply(name, client.say(c="sow_and_subscribe", t=name, opts="oof"))

    def apply(self, name, lines):
        held = self.held[name]
        for line in lines:
            if line["c"] in ("sow", "p"):
                held[line["k"]] = line["d"]
            elif line["c"] == "oof":
                del held[line["k"]]

    @rule(documents=st.lists(DOCUMENT, min_size=1, max_size=5))
    def publish(self, documents):
        self.world.publish("t", *documents)

    @rule(document=DOCUMENT, lost=st.sampled_from(["qty", "desk", "px"]))
    def merge(self, document, lost):
        self.world.publish("t", document | {lost: None}, delta=True)

    @rule(document=DOCUMENT)
    def expiring(self, document):
        self.world.publish("t", document, expires_s=0.5)

    @rule(condition=st.sampled_from(["/qty < 3", "/desk = 'a'", "/id > 2", "1 = 1"]))
    def delete(self, condition):
        self.world.delete("t", condition)

    @rule(by_us=st.sampled_from([SECOND // 4, SECOND]))
    def wait(self, by_us):
        self.world.advance(by_us)

    @rule()
    def restart(self):
        topics = self.world.engine.topics
        there = [one.name for one in VIEWS if one.name in topics]
        before = {name: [*shown(topics[name]).items()] for name in there}
        self.world = self.world.restart(*self.topics)
        self.follow()
        for name, rows in before.items():
            assert json.dumps([*shown(self.world.engine.topics[name]).items()]) == json.dumps(rows)

    @rule(topics=st.sampled_from([
        TOPICS,
        (T, replace(DESKS, filter="/qty > 0"), TOTAL),
        (T, DESKS, view("more", "desks", COUNTED, ("/book",)), SLOW, SLOWLY),
    ]))  # fmt: skip
    def reload(self, topics):
        configuration = replace(self.world.configuration, topics=topics)
        self.world.executor.reconfigure(configuration, self.world.now)
        self.world.configuration, self.topics = configuration, topics
        self.world.settle()
        for name in [*self.held]:
            if name not in self.world.engine.topics:
                del self.held[name]

    @invariant()
    def the_rows_are_a_recomputation(self):
        for one in self.topics:
            if not isinstance(one, View):
                continue
            fields = COUNTED if one.name in ("total", "more") else FIELDS
            (of,) = one.underlyings
            topics = self.world.engine.topics
            wanted = recomputed(topics[of], fields, one.grouping, one.filter)
            rows = shown(topics[one.name])
            assert json.dumps(rows) == json.dumps(wanted), one.name
            assert len(topics[one.name].view.groups) == len(rows)

    @invariant()
    def who_follows_holds_the_rows(self):
        for name, held in self.held.items():
            self.apply(name, self.clients[name].lines())
            topic = self.world.engine.topics[name]
            rows = {topic.records.sow_key_of(key): row for key, row in shown(topic).items()}
            assert held == rows, name

    @invariant()
    def every_part_is_whole(self):
        self.world.check()


# Failures are reported unshrunk: shrinking, with a restart among the rules, takes minutes.
Views.TestCase.settings = examples(
    15, stateful_step_count=15, deadline=None, phases=[Phase.generate]
)
test_the_law_of_views = Views.TestCase


def test_a_view_of_a_view_goes_by_where_the_rows_stand_now():
    """Not by their order of arrival, which is unknown after a restart: also if an unchanged row
    gets another place."""
    kinds = View("kinds", "json", ("t",), ("/desk", "MAX(/one) AS /one"), ("/desk",))
    listed = View("listed", "json", ("kinds",), ("GROUP_CONCAT(/desk) AS /desks",), ("/one",))
    join = (Join("kinds", "/one", "u", "/one"),)
    joined = View(
        "joined", "json", ("kinds", "u"), ("GROUP_CONCAT([kinds]./desk) AS /desks",),
        ("[u]./one",), joins=join,
    )  # fmt: skip
    world = World(T, Topic("u", "json", keys=("/one",)), kinds, listed, joined)
    world.publish("u", {"one": 1})
    for document, wanted in (
        ({"id": 1, "desk": "a", "one": 1}, "a"),
        ({"id": 2, "desk": "b", "one": 1}, "a,b"),
        ({"id": 3, "desk": "a", "one": 1}, "a,b"),
        ({"id": 1, "desk": "c", "one": 1}, "c,b,a"),
        ({"id": 2, "desk": "a", "one": 1}, "c,a"),
    ):
        world.publish("t", document)
        assert world.records("listed") == world.records("joined") == [{"desks": wanted}]
        again = world.restart()
        assert again.records("listed") == again.records("joined") == [{"desks": wanted}]
    world.delete("t", "1 = 1")
    assert world.records("listed") == world.records("joined") == []
    world.check()


NEWEST = View("desks", "json", ("t",), ("/desk", "SUM(/qty) AS /qty"), ("/desk",))
LATEST = View("latest", "json", ("desks",), ("/desk AS /last", "COUNT(1) AS /n"), ("/none",))
PAIRED = View(
    "paired", "json", ("u", "desks"), ("[desks]./desk AS /last",), ("[u]./none",),
    joins=(Join("u", "/none", "desks", "/none"),), null_equivalency=True,
)  # fmt: skip
SLOWED = ConflatedTopic("desks-C", "json", "desks", interval_us=SECOND)
OVER_SLOWED = View("slowed", "json", ("desks-C",), ("/desk AS /last",), ("/none",))
ASKING = (LATEST, PAIRED, SLOWED, OVER_SLOWED)


@pytest.mark.parametrize("is_added", [False, True], ids=["from the start", "by a reload"])
def test_of_the_rows_of_a_view_that_is_the_newest_which_has_the_newest_record(is_added):
    """Among the current ones: removed ones are unknown after a restart."""
    u = Topic("u", "json", keys=("/id",))
    world = World(T, u, NEWEST, *(() if is_added else ASKING))
    world.publish("u", {"id": 1})
    world.publish("t", {"id": 1, "desk": "a", "qty": 1})
    if is_added:
        configuration = replace(world.configuration, topics=(T, u, NEWEST, *ASKING))
        world.executor.reconfigure(configuration, world.now)
        world.configuration = configuration
        world.settle()

    def last(world):
        world.advance(2 * SECOND)
        world.check()
        found = {world.records(name)[0]["last"] for name in ("latest", "paired", "slowed")}
        opts, client = "projection=[/desk AS /last],grouping=[/none]", world.client()
        for command in ("sow", "sow_and_subscribe"):
            lines = client.say(c=command, t="desks", opts=opts)
            found |= {line["d"]["last"] for line in lines if line["c"] == "sow"}
        assert len(found) == 1
        return found.pop()

    for documents, wanted in (
        ([{"id": 2, "desk": "b", "qty": 2}], "b"),
        ([{"id": 3, "desk": "a", "qty": 0}], "a"),  # no row is another one
        ([{"id": 4, "desk": "b", "qty": 1}], "b"),
        ([{"id": 4, "desk": "c", "qty": 1}], "c"),  # and of b an older one is left
        ([{"id": 3, "desk": "a", "qty": 5}, {"id": 2, "desk": "b", "qty": 2}], "b"),
    ):
        world.publish("t", *documents)
        assert last(world) == last(world.restart()) == wanted
    for gone, wanted in ((2, "a"), (3, "c"), (4, "a")):
        world.delete("t", f"/id = {gone}")
        assert last(world) == last(world.restart()) == wanted


HISTORY = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 5), "desk": st.sampled_from("abc"), "qty": st.integers(0, 3)}
    ),
    min_size=1,
    max_size=12,
)


@examples(15, deadline=None)
@given(HISTORY, st.data())
def test_cutting_batches_differently_changes_only_what_is_in_between(history, data):
    """However messages are batched, rows and their order are the same in the end; and a follower
    that gets fewer states gets none that would not occur if each message came alone."""
    size = data.draw(st.integers(2, len(history) + 1))
    ends, told = [], []
    for step in (1, size):
        world = World(T, NEWEST, LATEST)
        client = world.client()
        client.say(c="sow_and_subscribe", t="^(desks|latest)$")
        for start in range(0, len(history), step):
            world.publish("t", *history[start : start + step])
        ends.append([world.records(name) for name in ("desks", "latest")])
        told.append([json.dumps(line["d"]) for line in client.lines() if line["c"] == "p"])
        world.check()
    assert ends[0] == ends[1]
    assert {*told[1]} <= {*told[0]}
    assert len(told[1]) <= len(told[0])


def test_what_is_kept_of_groups_counts_as_memory_until_it_goes():
    world = World(T, NEWEST, LATEST)
    world.publish("t", *[{"id": at, "desk": f"d{at}", "qty": at} for at in range(50)])
    view, records = world.engine.topics["desks"].view, world.engine.topics["t"].records.table
    kept = view.groups.kept_bytes
    assert kept > 50 * GROUP_BYTES
    limit_bytes = world.engine.capacity.used_bytes
    assert limit_bytes > kept + 2 * (records.bytes + 50 * RECORD_BYTES)
    limits = Limits(memory_bytes_max=limit_bytes)
    world.engine.adopt(replace(world.configuration, limits=limits))
    with pytest.raises(Full, match="records and views take"):
        world.publish("t", {"id": 50, "desk": "d0"})
    world.publish("t", {"id": 7, "desk": "d9", "qty": 1})
    assert view.groups.kept_bytes == kept - GROUP_BYTES - view.groups.keeping.group_bytes - 2
    world.executor.reconfigure(replace(world.configuration, topics=(T,)), world.now)
    world.advance(SECOND)
    world.check()
    assert world.engine.capacity.used_bytes == records.bytes + 50 * RECORD_BYTES
    world.delete("t", "1 = 1")
    assert world.engine.capacity.used_bytes == 0
