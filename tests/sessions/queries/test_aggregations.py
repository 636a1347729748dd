"""Law: what an aggregation tells is what a view of the same projection, grouping and filter holds;
asked once, followed, or followed in deltas. What is made for a client goes with it."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic, Join, Topic, View
from sow.core.paths import parse_path
from sow.engine.topic_changes import TopicChanges
from sow.history.snapshot import Snapshot
from sow.protocol.wire import read_frame
from sow.sessions.queries.aggregations import ViewInputSnapshot
from sow.sessions.subscriptions import subscriptions
from tests.cases import all_cases
from tests.effort import examples
from tests.laws.harness import SECOND, World, short

T = Topic("orders", "json", keys=("/id",), expires=True)
FIELDS = ("/desk", "SUM(/qty) AS /qty", "MAX(/px) AS /px", "COUNT(1) AS /n", "/book")
REQUESTED = f"projection=[{','.join(FIELDS)}],grouping=[/desk]"
VIEW = View("desks", "json", ("orders",), FIELDS, ("/desk",), key_domain="orders")
BIG = View("big", "json", ("orders",), FIELDS, ("/desk",), filter="/qty > 2", key_domain="orders")
COPY = ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND)
DOCUMENT = st.fixed_dictionaries(
    {"id": st.integers(0, 6)},
    optional={
        "desk": st.sampled_from(["a", "b", "", None, 5]),
        "qty": st.one_of(st.integers(-3, 9), st.sampled_from([0.1, 1e16, "x"])),
        "px": st.integers(0, 9),
        "book": st.sampled_from(["x", "y"]),
    },
)


def rows_of(world, name):
    """The rows of a view, by their SowKeys."""
    records = world.engine.topics[name].records
    table = records.table
    return {
        records.sow_key_of(key): json.loads(table.bodies[slot]) for key, slot in table.slots.items()
    }


def answer(client, **requested):
    """The rows of an answer, by their SowKeys."""
    return held_by(client.say(c="sow", t="orders", **requested))


def held_by(lines, held=None):
    """The rows that a client holds after these lines, by their SowKeys."""
    held = {} if held is None else held
    for line in lines:
        if line["c"] in ("p", "sow"):
            held[line["k"]] = line["d"]
        elif line["c"] == "oof":
            held.pop(line["k"])
    return held


def rows(client, **requested):
    """The rows of an answer, in order."""
    lines = client.say(**({"c": "sow", "t": "orders"} | requested))
    return [line["d"] for line in lines if line["c"] == "sow"]


def followed(client, **requested):
    """A subscription's name and its first rows, by their SowKeys."""
    lines = client.say(**({"c": "sow_and_subscribe", "t": "orders", "cid": "1"} | requested))
    return next(line["s"] for line in lines if line["c"] == "ack"), held_by(lines)


class Aggregated(RuleBasedStateMachine):
    """A topic with two views, and clients that ask for the same."""

    def __init__(self):
        super().__init__()
        self.world = World(T, VIEW, BIG)
        self.client = self.world.client()
        self.held = {}
        for name, command, more in (
            ("desks", "sow_and_subscribe", {"opts": f"oof,{REQUESTED}"}),
            ("desks", "sow_and_subscribe", {"opts": f"oof,{REQUESTED}"}),
            ("big", "sow_and_subscribe", {"opts": f"oof,{REQUESTED}", "filter": "/qty > 2"}),
            ("desks", "sow_and_delta_subscribe", {"opts": f"oof,{REQUESTED}"}),
        ):
            lines = self.client.say(c=command, t="orders", cid="1", **more)
            (ack,) = (line for line in lines if line["c"] == "ack")
            self.held[ack["s"]] = (name, "delta" in command, {})

    @rule(documents=st.lists(DOCUMENT, min_size=1, max_size=5))
    def publish(self, documents):
        self.world.publish("orders", *documents)

    @rule(document=DOCUMENT)
    def expiring(self, document):
        self.world.publish("orders", document, expires_s=0.5)

    @rule(condition=st.sampled_from(["/qty < 3", "/desk = 'a'", "/id > 2", "1 = 1"]))
    def delete(self, condition):
        self.world.delete("orders", condition)

    @rule()
    def wait(self):
        self.world.advance(SECOND)

    @invariant()
    def who_asks_is_sent_what_a_view_holds(self):
        client = self.world.client()
        assert answer(client, opts=REQUESTED) == rows_of(self.world, "desks")
        assert answer(client, opts=REQUESTED, filter="/qty > 2") == rows_of(self.world, "big")

    @invariant()
    def who_follows_holds_what_a_view_holds(self):
        for line in self.client.lines():
            _, by_deltas, held = self.held[line["s"]]
            if line["c"] in ("p", "sow"):
                assert line["t"] == "orders"
                before = held.get(line["k"], {}) if by_deltas else {}
                held[line["k"]] = before | line["d"]
            elif line["c"] == "oof":
                held.pop(line["k"])
        for name, _, held in self.held.values():
            assert held == rows_of(self.world, name)

    @invariant()
    def equal_ones_share_a_view(self):
        topics = self.world.engine.catalog
        assert sum(not topic.is_listed and not topic.is_system for topic in topics) == 2
        self.world.check()

    def teardown(self):
        self.client.say(c="unsubscribe", s="all")
        self.world.advance(SECOND)
        self.world.check()
        topics = {topic.name for topic in self.world.engine.catalog if not topic.is_system}
        assert topics == {"orders", "desks", "big"}
        assert len(self.world.engine.topics["orders"].router.listeners) == 2


Aggregated.TestCase.settings = examples(6, stateful_step_count=12)
test_the_law_of_aggregations = pytest.mark.filterwarnings("ignore")(Aggregated.TestCase)


# Single cases.


def world_with(*documents, topics=(T,)):
    world = World(*topics)
    world.publish("orders", *documents)
    return world, world.client()


DESKS = [{"id": n, "desk": "abc"[n % 3], "qty": n} for n in range(9)]
QTY = "projection=[SUM(/qty) AS /qty,/desk],grouping=[/desk]"


def private(world):
    """How many views there are that clients have made."""
    topics = world.engine.catalog
    return sum(not topic.is_listed and not topic.is_system for topic in topics)


def test_rows_are_ordered_and_paged_as_records_are():
    _, client = world_with(*DESKS)
    found = rows(client, opts=QTY, order_by="/qty DESC", top_n=2)
    assert found == [{"qty": 15, "desk": "c"}, {"qty": 12, "desk": "b"}]


def test_records_that_are_grouped_can_be_named_by_their_keys():
    world, client = world_with(*DESKS)
    some = [client.say(c="sow", t="orders", filter=f"/id = {at}")[1]["k"] for at in (1, 4, 5)]
    condition = f"SOW_KEY() IN ('{some[0]}', '{some[1]}', '{some[2]}')"
    for command in ("sow", "sow_and_subscribe"):
        found = rows(client, c=command, opts=QTY, filter=condition)
        assert found == [{"qty": 5, "desk": "b"}, {"qty": 5, "desk": "c"}]
    world.publish("orders", {"id": 3, "desk": "b", "qty": 1}, {"id": 4, "desk": "b", "qty": 1})
    assert client.data() == [("p", {"qty": 2, "desk": "b"})]


def test_rows_that_are_asked_for_once_name_the_moment_that_they_are_as_of():
    world = World(T)
    world.publish("orders", *[{"id": number, "desk": "a"} for number in range(600)])

    def meanwhile():
        world.engine.publish("orders", [b'{"id":600,"desk":"a"}'], world.now)

    opts = "projection=[COUNT(/id) AS /n,/desk],grouping=[/desk]"
    lines = world.client().say_in_steps(meanwhile, c="sow", t="orders", opts=opts)
    assert [line["d"]["n"] for line in lines if line["c"] == "sow"] == [600]
    assert lines[-1]["bm"] == "600"
    assert world.engine.seq > 600


def test_without_order_they_stand_as_their_first_records_do():
    world, client = world_with(*DESKS)
    world.delete("orders", "/id = 0")
    assert [row["desk"] for row in rows(client, opts=QTY)] == ["b", "c", "a"]


def test_projection_and_grouping_may_be_fields_of_the_line():
    _, client = world_with(*DESKS)
    fields = {"projection": "COUNT(1) AS /n, MAX(/qty) AS /q", "grouping": "/nothing"}
    assert rows(client, **fields) == [{"n": 9, "q": 8}]


def test_updates_of_rows_are_conflated_as_those_of_records_are():
    world, client = world_with(*DESKS)
    client.say(c="sow_and_subscribe", t="orders", opts=f"conflation=1s,{QTY}")
    for qty in range(3):
        world.publish("orders", {"id": 0, "desk": "a", "qty": qty})
        assert client.data() == []
    world.advance(SECOND)
    assert client.data() == [("p", {"qty": 11, "desk": "a"})]


def test_of_a_transaction_in_one_frame_a_query_knows():
    _, client = world_with(*DESKS)
    client.say(c="sow_and_subscribe", t="orders", opts=QTY)
    frame = [
        {"c": "publish", "t": "orders", "d": {"id": 0, "desk": "a", "qty": 100}},
        {"c": "sow", "t": "orders", "opts": QTY, "filter": "/desk = 'a'"},
        {"c": "sow", "t": "orders", "opts": QTY},
    ]
    lines = client.send("\n".join(map(json.dumps, frame)).encode())
    found = [line["d"] for line in lines if line["c"] == "sow"]
    assert found[0] == found[1] == {"qty": 109, "desk": "a"}


def test_what_is_published_while_rows_are_made_is_not_in_an_answer_and_is_sent_to_who_follows():
    world, client = world_with(*DESKS)
    more = iter(range(1000))

    def publish():
        world.publish("orders", {"id": 0, "desk": "a", "qty": next(more)})

    lines = client.say_in_steps(publish, c="sow", t="orders", opts=QTY)
    (row,) = [line["d"] for line in lines if line["c"] == "sow" and line["d"]["desk"] == "a"]
    assert row["qty"] == 9
    lines = client.say_in_steps(publish, c="sow_and_subscribe", t="orders", opts=QTY)
    rows = [line["d"] for line in lines if line["c"] in ("sow", "p") and line["d"]["desk"] == "a"]
    assert rows[-1]["qty"] == 9 + next(more) - 1


def test_who_waits_for_a_view_fills_it_whoever_gives_up():
    world, client = world_with(*[{"id": n, "desk": "a", "qty": 1} for n in range(900)])
    requested = world.executor.subscriptions.aggregations
    question = requested.question(one_command(QTY))
    first, second = (requested.followed(question, name) for name in "ab")
    next(first)
    next(second)
    first.close()
    share = drive(second)
    assert [*rows_of(world, share.topic.name).values()] == [{"qty": 900, "desk": "a"}]
    assert private(world) == 1
    share.let_go()
    share.let_go()
    assert private(world) == 0
    assert client.say(c="heartbeat")
    world.check()


def one_command(opts, name="sow_and_subscribe", **more):
    """A command as it is read."""
    frame = json.dumps({"c": name, "t": "orders", "opts": opts, **more}).encode()
    (command,) = read_frame(frame)
    return command


def drive(steps):
    while True:
        try:
            next(steps)
        except StopIteration as over:
            return over.value


def test_nobody_is_left_of_a_view_that_is_given_up_while_it_is_filled():
    world, _ = world_with(*DESKS)
    requested = world.executor.subscriptions.aggregations
    steps = requested.followed(requested.question(one_command(QTY)), "a")
    next(steps)
    steps.close()
    once = requested.computed(requested.question(one_command(QTY, "sow")), "a", lambda rows: None)
    next(once)
    next(once)
    once.close()
    assert not world.engine.topics["orders"].router.listeners
    assert private(world) == 0
    world.check()


def test_a_session_that_goes_takes_its_views_along():
    world, client = world_with(*DESKS)
    client.say(c="sow_and_subscribe", t="orders", opts=QTY)
    assert private(world) == 1
    world.executor.sessions.close(client.session)
    assert private(world) == 0
    world.check()


def test_a_view_ends_with_the_topic_that_it_is_made_of():
    world, client = world_with(*DESKS, topics=(T, COPY))
    world.advance(SECOND)
    client.say(c="sow_and_subscribe", t="orders-C", opts=f"oof,{QTY}", cid="1")
    configuration = replace(world.configuration, topics=(T,))
    world.executor.reconfigure(configuration, world.now)
    world.configuration = configuration
    lines = client.lines()
    assert [line["c"] for line in lines][-1] == "unsubscribed"
    assert private(world) == 0
    world.check()


def test_a_subscription_may_be_replaced_by_another_aggregation():
    world, client = world_with(*DESKS)
    name, held = followed(client, opts=f"oof,{QTY}")
    world.publish("orders", {"id": 9, "desk": "a", "qty": 1})
    lines = client.lines() + client.say(
        c="sow_and_subscribe", t="orders", opts=f"oof,replace,{QTY}", s=name, filter="/qty > 6"
    )
    held_by(lines, held)
    assert [*held.values()] == [{"qty": 7, "desk": "b"}, {"qty": 8, "desk": "c"}]
    assert private(world) == 1
    world.publish("orders", {"id": 9, "desk": "a", "qty": 8})
    assert client.data() == [("p", {"qty": 8, "desk": "a"})]
    client.say(c="unsubscribe", s=name)
    assert private(world) == 0
    world.check()


@all_cases(
    ("requested", "words"),
    [
        ({"opts": "projection=[/desk]"}, "projection needs grouping"),
        ({"opts": "grouping=[/desk]"}, "grouping needs projection"),
        ({"opts": f"select=[/a],{QTY}"}, "select do not go together"),
        ({"opts": QTY, "keys": "1"}, r"keys name records.*such as SOW_KEY\(\) IN \('1', '2'\)"),
        ({"opts": QTY, "t": "ord.*"}, "is a pattern, and an aggregation is of one topic"),
        ({"opts": QTY, "t": "order"}, "did you mean orders"),
        ({"opts": QTY, "t": "plain"}, "stores no records"),
        ({"opts": QTY, "t": "raw"}, "cannot be made field by field"),
        ({"opts": QTY, "c": "subscribe"}, "use sow_and_subscribe"),
        ({"opts": QTY, "c": "delta_subscribe"}, "use sow_and_delta_subscribe"),
        ({"opts": "projection=[SUM(/a)],grouping=[/b]"}, r"write SUM\(/a\) AS /name"),
        ({"opts": "projection=[SUM(/a) AS /x"}, "has no closing"),
        ({"opts": QTY, "filter": "LAST_UPDATED() > 1", "c": "sow_and_subscribe"}, "LAST_UPDATED"),
        ({"opts": QTY, "filter": "UNIX_TIMESTAMP() > 1", "c": "sow_and_subscribe"}, "the time"),
        ({"opts": f"projection=[{','.join(['/a'] * 300)}],grouping=[/b]"}, "256 are the most"),
        ({"projection": f"'{'x' * 70_000}' AS /a", "grouping": "/b"}, "the limit is 65536"),
        ({"opts": QTY, "t": "fix", "projection": "1 AS /a/b"}, "has no place for /a/b"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(requested, words):
    plain, raw = Topic("plain", "json", keys=("/id",), retain=False), Topic("raw", "binary")
    world, client = world_with(*DESKS, topics=(T, plain, raw, Topic("fix", "nvfix", keys=("/i",))))
    (ack,) = client.say(**({"c": "sow", "t": "orders", "cid": "1"} | requested))
    assert ack["status"] == "failure"
    assert re.search(words, ack["detail"]), ack
    assert private(world) == 0


def test_a_query_may_ask_for_the_time_and_for_what_changes_with_each_message():
    _, client = world_with(*DESKS)
    for condition in ("UNIX_TIMESTAMP() > 1", "LAST_UPDATED() > 1"):
        assert len(rows(client, opts=QTY, filter=condition)) == 3


def test_a_session_may_have_so_many(monkeypatch):
    monkeypatch.setattr(subscriptions, "FOLLOWED_MAX", 2)
    world, client = world_with(*DESKS)
    for limit in range(3):
        lines = client.say(
            c="sow_and_subscribe", t="orders", opts=QTY, filter=f"/qty > {limit}", cid="1"
        )
    assert "configure a View" in lines[-1]["detail"]
    assert private(world) == 2


def test_nobody_finds_a_view_that_was_made_for_another_one():
    world, client = world_with(*DESKS)
    client.say(c="sow_and_subscribe", t="orders", opts=QTY)
    other = world.client()
    other.say(c="subscribe", t="ord.*")
    other.say(c="subscribe", t="orders")
    world.publish("orders", {"id": 0, "desk": "a", "qty": 5})
    assert other.data() == [("p", {"id": 0, "desk": "a", "qty": 5})] * 2
    assert len(rows(other, t="ord.*")) == 9
    name = next(topic.name for topic in world.engine.catalog if not topic.is_listed)
    assert str(name) + "" == "orders"
    assert world.engine.topic("orders") is not world.engine.topic(name)


def test_an_aggregation_may_be_replaced_by_the_records_and_they_by_it():
    world, client = world_with(*DESKS)
    name, held = followed(client, opts=f"oof,{QTY}")
    replacing = {"c": "sow_and_subscribe", "t": "orders", "s": name}
    held_by(client.say(**replacing, opts="oof,replace"), held)
    assert [*held.values()] == DESKS
    assert private(world) == 0
    held_by(client.say(**replacing, opts=f"oof,replace,{QTY}"), held)
    assert {row["desk"]: row["qty"] for row in held.values()} == {"a": 9, "b": 12, "c": 15}
    assert private(world) == 1
    world.publish("orders", {"id": 0, "desk": "a", "qty": 1})
    held_by(client.lines(), held)
    assert {row["desk"]: row["qty"] for row in held.values()} == {"a": 10, "b": 12, "c": 15}
    world.check()


def test_groups_of_the_rows_of_a_view_are_requested_for_too():
    world, client = world_with(*DESKS, topics=(T, VIEW))
    requested = {"projection": "SUM(/n) AS /n, COUNT(1) AS /desks", "grouping": "/none"}
    assert rows(client, c="sow_and_subscribe", t="desks", **requested) == [{"n": 9, "desks": 3}]
    world.publish("orders", {"id": 9, "desk": "d"}, {"id": 10, "desk": "d"})
    assert client.data() == [("p", {"n": 11, "desks": 4})]
    world.check()


def test_rows_that_stand_in_one_place_are_grouped_alike_by_who_asks_and_who_follows():
    legs = Topic("legs", "json", keys=("/id",))
    fields = ("[legs]./region AS /region", "COUNT(1) AS /n")
    joins = (Join("orders", "/id", "legs", "/order"),)
    view = View("j", "json", ("orders", "legs"), fields, ("[legs]./region",), joins)
    world = World(T, legs, view)
    world.publish("orders", {"id": 1})
    world.publish("legs", *[{"id": at, "order": 1, "region": at} for at in "bcadfe"])
    client = world.client()
    requested = {
        "t": "j",
        "opts": "projection=[GROUP_CONCAT(/region) AS /regions],grouping=[/none]",
    }
    rows = [short(client.say(c=kind, **requested)) for kind in ("sow", "sow_and_subscribe", "sow")]
    assert rows == [[("sow", {"regions": "a,b,c,d,e,f"})]] * 3


def test_a_topic_of_a_pattern_that_is_given_up_ends_what_is_made_of_it():
    pattern = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
    world = World(pattern)
    world.publish("/desk/1", {"id": 1, "desk": "a", "qty": 1})
    client = world.client()
    client.say(c="sow_and_subscribe", t="/desk/1", opts=f"oof,{QTY}")
    end_topic = world.executor.subscriptions.end_topic
    run_to_completion(TopicChanges(world.engine).give_up(world.engine.topic("/desk/1"), end_topic))
    world.settle()
    assert [line["c"] for line in client.lines()][-1] == "unsubscribed"
    assert private(world) == 0
    world.check()


def test_a_live_window_keeps_to_the_first_rows():
    world, client = world_with(*DESKS)
    requested = {"c": "sow_and_subscribe", "t": "orders", "order_by": "/qty DESC", "top_n": 2}
    name, first = followed(client, **requested, opts=f"live,positions,{QTY}")
    held = [row["desk"] for row in first.values()]
    assert held == ["c", "b"]
    world.publish("orders", {"id": 0, "desk": "a", "qty": 100})
    for line in client.lines():
        if line["c"] == "oof":
            held.remove(line["d"]["desk"])
        elif line["c"] == "p":
            held.insert(line["at"], line["d"]["desk"])
    assert held == ["a", "c"]
    requested |= {"skip_n": 1, "s": name}
    client.say(**requested, opts=f"live,positions,replace,{QTY}")
    assert private(world) == 1
    client.say(c="unsubscribe", s=name)
    assert private(world) == 0
    world.check()


def test_records_are_rows_as_they_were_whatever_becomes_of_them():
    world = World(Topic("orders", "json", keys=("/id",)))
    world.publish("orders", *({"id": n, "v": n * 10} for n in range(600)))
    records = world.engine.topic("orders").records
    snapshot = Snapshot.take(records, records.table.live())
    world.delete("orders", "/id < 500")
    world.publish("orders", {"id": 599, "v": 0})
    rows = ViewInputSnapshot(snapshot, [parse_path("/v")])
    found = list(rows.rows())
    assert sum(map(len, found)) == 600
    assert [value for some in found for value in some.news[0]] == [n * 10 for n in range(600)]
    assert [*found[1].borns] == [*found[1].identities] == list(range(250, 500))
    taken = []
    for _ in rows.filling(taken.append):
        pass
    assert len(taken) == len(found)
    assert rows.underlyings == (records,)
    assert (rows.on_batch(None), rows.is_behind, list(rows.work())) == ((), False, [])
    rows.stop()
