"""Law: which row of a view is the newest is a function of the records there are. A view of the
configuration, a question of the same text and a calculation from the records agree on it, over
topics, conflated topics, views and joins, whatever was reloaded, killed and turned over within one
batch."""

import json
from dataclasses import replace

from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sow.core.definitions import ConflatedTopic, Join, Topic, View
from sow.core.keys import key_text
from tests.effort import examples
from tests.laws.harness import SECOND, World

T, U = Topic("t", "json", keys=("/id",)), Topic("u", "json", keys=("/id",))
COPY = ConflatedTopic("t-C", "json", "t", interval_us=SECOND)
DESKS = View("desks", "json", ("t",), ("/desk", "/book", "COUNT(1) AS /n"), ("/desk", "/book"))
SLOW = ConflatedTopic("desks-C", "json", "desks", interval_us=SECOND)
BOOKS = View("books", "json", ("desks-C",), ("/book", "SUM(/n) AS /n"), ("/book",))
MET = View(
    "met", "json", ("t", "u"), ("[u]./book AS /book", "COUNT(1) AS /n"), ("[u]./book",),
    joins=(Join("t", "/desk", "u", "/desk"),),
)  # fmt: skip
MADE_OF = {"desks": "desk", "books": "book", "met": "book", "t-C": "id", "desks-C": "desk"}
"""The field of the newest row that a view over each of these reads."""
BELOW = (T, U, COPY, DESKS, SLOW, BOOKS, MET)


def over(name, asks):
    """A view over a topic, all of whose rows are one group."""
    last = (f"/{MADE_OF[name]} AS /last",) if asks else ()
    return View(f"{name}-last", "json", (name,), ("COUNT(1) AS /count", *last), ("/none",))


def ages(world, name):
    """By record of a topic the number of the newest record that it is made of."""
    topic = world.engine.topics[name]
    definition, table = topic.definition, topic.records.table
    if isinstance(definition, ConflatedTopic):
        found = ages(world, definition.underlying)
        return {identity: found[identity] for identity in table.slots}
    if isinstance(definition, Topic):
        return {identity: int(table.seqs[slot]) for identity, slot in table.slots.items()}
    found = {}
    for key, age in members(world, definition):
        found[key] = max(age, found.get(key, 0))
    return found


def members(world, view):
    """By record, or pair of them, of what a view is made of: the key of its group, and its age."""
    first = documents(world, view.underlyings[0])
    if not view.joins:
        for document, age in first:
            yield "\x1f".join(text(document, path) for path in view.grouping), age
        return
    others = documents(world, view.underlyings[1])
    for document, age in first:
        met = [one for one in others if text(document, "/desk") == text(one[0], "/desk") != ""]
        for other, its_age in met or [({}, 0)]:
            yield text(other, "/book"), max(age, its_age)


def documents(world, name):
    table, found = world.engine.topics[name].records.table, ages(world, name)
    return [
        (json.loads(table.bodies[slot]), found[identity]) for identity, slot in table.slots.items()
    ]


def text(document, path):
    return key_text(document.get(path[1:])) or ""


DOCUMENT = st.fixed_dictionaries(
    {"id": st.integers(0, 5)},
    optional={
        "desk": st.sampled_from(["a", "b", "", None, 5, "5"]),
        "book": st.sampled_from(["x", "y", "z"]),
    },
)
NAMES = st.lists(st.sampled_from(sorted(MADE_OF)), max_size=5, unique=True)


class Newest(RuleBasedStateMachine):
    """Topics below, and views over them; some of these read the newest row."""

    def __init__(self):
        super().__init__()
        self.world = World(*BELOW)

    @rule(name=st.sampled_from("tu"), documents=st.lists(DOCUMENT, min_size=1, max_size=8))
    def publish(self, name, documents):
        self.world.publish(name, *documents)

    @rule(name=st.sampled_from("tu"), condition=st.sampled_from(["/id < 3", "/desk = 'a'"]))
    def delete(self, name, condition):
        self.world.delete(name, condition)

    @rule()
    def restart(self):
        self.world = self.world.restart()

    @rule(names=NAMES, asking=st.booleans())
    def reload(self, names, asking):
        topics = (*BELOW, *(over(name, asking) for name in names))
        configuration = replace(self.world.configuration, topics=topics)
        self.world.executor.reconfigure(configuration, self.world.now)
        self.world.configuration = configuration
        self.world.settle()

    @invariant()
    def all_agree(self):
        self.world.advance(2 * SECOND)
        self.world.check()
        for view in self.world.configuration.topics[len(BELOW) :]:
            (of,) = view.underlyings
            table, found = self.world.engine.topics[of].records.table, ages(self.world, of)
            rows = self.world.records(view.name)
            requested = f"projection=[{','.join(view.projection)}],grouping=[/none]"
            lines = self.world.client().say(c="sow", t=of, opts=requested)
            assert [line["d"] for line in lines if line["c"] == "sow"] == rows, view.name
            if len(view.projection) < 2:
                continue
            newest = max(found.values(), default=0)
            last = [
                json.loads(table.bodies[slot]).get(MADE_OF[of])
                for key, slot in table.slots.items()
                if found[key] == newest
            ]
            assert all(row["last"] in last for row in rows)
            for key, slot in table.slots.items():
                assert table.newest[slot] == found[key], (view.name, key)


Newest.TestCase.settings = examples(
    8, stateful_step_count=12, deadline=None, phases=[Phase.generate]
)
test_the_law_of_what_is_newest = Newest.TestCase


def test_rows_that_are_as_new_as_their_last_change_stay_so_when_a_view_first_reads_it():
    counted = over("desks", asks=False)
    world = World(T, DESKS, counted)
    for number, desk in enumerate("abbc"):
        world.publish("t", {"id": number, "desk": desk})
    world.publish("t", {"id": 1, "desk": "a"})  # which leaves b with an older one
    asking = over("desks", asks=True)
    configuration = replace(world.configuration, topics=(T, DESKS, asking))
    world.executor.reconfigure(configuration, world.now)
    world.settle()
    lines = world.client().say(c="sow", t="desks", opts="projection=[/desk],grouping=[/none]")
    assert [line["d"] for line in lines if line["c"] == "sow"] == [{"desk": "a"}]
    assert [row["last"] for row in world.records(asking.name)] == ["a"]
    world.check()
