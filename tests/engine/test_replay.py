"""Processing the log again: at each moment the topics are as they were."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.definitions import CONFIGURATIONS, ConflatedTopic, Topic, View
from sow.engine.configurations import noted
from sow.engine.replay import (
    HeldRecords,
    InForceSince,
    Moment,
    Reach,
    Replay,
    StartingState,
)
from sow.errors import TooLarge, UnknownTopic
from sow.sessions.queries import replay_starts
from sow.sessions.queries.replay_starts import open_windows
from tests.laws.harness import MS, ORDERS, SECOND, SLOW, World

DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/[0-9]$")
DESKS_C = ConflatedTopic("desks-C", "json", "desks", interval_us=SECOND, topic_format="%n-C")
ABOVE = ConflatedTopic("above", "json", "orders-C", interval_us=SECOND // 2, filter="/n > 2")
TICK = ConflatedTopic("tick", "json", "orders", interval_us=SECOND, schedule="tick")
SUMS = View("sums", "json", ("orders",), ("/symbol AS /symbol", "SUM(/n) AS /n"), ("/symbol",))
OVER = View("over", "json", ("orders-C",), ("/symbol AS /symbol", "COUNT(1) AS /n"), ("/symbol",))
TOPICS = (ORDERS, DESKS, SLOW, DESKS_C, ABOVE, TICK, SUMS, OVER)
ASKED = ("orders-C", "/desk/1-C", "above", "tick", "sums", "over")

acts = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("orders", "/desk/1")), st.integers(0, 3), st.integers(0, 5)),
        st.tuples(st.just("delete"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 1500), st.just(0)),
    ),
    max_size=12,
)


def shown(engine, name):
    """The records of a topic in their order, with bookmarks and times; None: there is none."""
    topic = engine.topics.get(name)
    if topic is None:
        return None
    table = topic.records.table
    return [
        (table.identities[slot], table.bodies[slot], int(table.seqs[slot]), int(table.ts_us[slot]))
        for slot in table.live().tolist()
    ]


def moment(world):
    return Moment(world.engine.seq, world.now)


def live(world, act):
    kind, first, second = act
    if kind == "wait":
        world.advance(first * MS)
    elif kind == "delete":
        world.delete("orders", f"/id = {first}")
    else:
        world.publish(kind, {"id": first, "symbol": "AB"[second % 2], "n": second})
    world.advance(1)
    world.settle()


def history(world):
    return [InForceSince(world.engine.configuration)]


@given(acts)
def test_topics_are_as_they_were_at_each_moment(acts):
    world, then = World(*TOPICS), []
    for act in acts:
        live(world, act)
        then.append((moment(world), {name: shown(world.engine, name) for name in ASKED}))
    again = Replay(history(world), ASKED, world.journal)
    for at, found in then:
        run_to_completion(again.advance(at))
        assert {name: shown(again.engine, name) for name in ASKED} == found
        again.engine.check()


def in_short(batch):
    changes = batch.changes
    return changes.identities, changes.news, changes.reason, changes.seqs, changes.ts_us


@pytest.mark.parametrize("name", ["orders-C", "above", "tick", "sums", "over"])
def test_what_a_topic_sent_is_sent_again_in_the_same_batches(name):
    world, said = World(*TOPICS), []
    engine, route = world.engine, world.engine.route

    def routing(topic, batch):
        if topic.name == name:
            said.append(in_short(batch))
        route(topic, batch)

    engine.route, engine.views._route = routing, routing
    for at in range(40):
        live(world, ("orders", at % 3, at % 6))
        live(world, ("wait", 77, 0))
    live(world, ("delete", 1, 0))
    live(world, ("wait", 2_000, 0))
    sent = []
    again = Replay(
        history(world),
        (name,),
        world.journal,
        sent=lambda topic, batch: sent.append(in_short(batch)) if topic.name == name else None,
    )
    run_to_completion(again.advance(moment(world)))
    assert sent == said != []


def test_it_reads_no_more_than_it_is_told_to_and_goes_on_from_there():
    world = World(ORDERS, SLOW)
    world.publish("orders", {"id": 1}, {"id": 2}, {"id": 3})
    world.advance(2 * SECOND)
    again = Replay(history(world), ("orders-C",), world.journal)
    run_to_completion(again.advance(Moment(2, world.now)))
    assert [one[0] for one in shown(again.engine, "orders-C")] == ["1", "2"]
    assert (again.seq, again.now_us) == (2, world.now)
    run_to_completion(again.advance(Moment(3, world.now)))
    assert [one[0] for one in shown(again.engine, "orders")] == ["1", "2", "3"]


def test_a_state_stays_as_it_is_while_time_goes_on():
    world = World(ORDERS, SLOW)
    world.publish("orders", {"id": 1, "n": 1})
    world.advance(2 * SECOND)
    first = moment(world)
    world.publish("orders", {"id": 1, "n": 2})
    world.advance(2 * SECOND)
    again = Replay(history(world), ("orders-C",), world.journal)
    run_to_completion(again.advance(first))
    then = run_to_completion(again.state("orders-C"))
    run_to_completion(again.advance(moment(world)))
    assert json.loads(then.bodies.part(0, 1)[0])["n"] == 1
    run_to_completion(again.emptying())
    assert json.loads(then.bodies.part(0, 1)[0])["n"] == 1


def test_a_change_in_slices_is_one_turn():
    """A view is released at the end of the change, not at that of a slice."""
    world = World(ORDERS, SUMS)
    world.publish("orders", *({"id": id_, "symbol": "A", "n": 1} for id_ in range(600)))
    assert len([*world.journal.read(0)]) > 1
    sent = []
    again = Replay(
        history(world),
        ("sums",),
        world.journal,
        sent=lambda topic, batch: sent.append((topic.name, len(batch))),
    )
    run_to_completion(again.advance(moment(world)))
    assert [name for name, _ in sent].count("sums") == 1
    assert shown(again.engine, "sums") == shown(world.engine, "sums")


def test_only_what_is_in_reach_is_processed_and_costs_memory():
    reach = Reach([World(*TOPICS).configuration], ("above",))
    assert reach.definitions == {"above", "orders-C", "orders"}
    assert reach.sources == {"orders"}
    assert reach.lag_us == 2 * (SECOND + SECOND // 2)
    of_copy = Reach([World(*TOPICS).configuration], ("/desk/1-C",))
    assert (of_copy.definitions, of_copy.sources) == ({"desks", "desks-C"}, {"/desk/1"})
    of_pattern = Reach([World(*TOPICS).configuration], ("desks-C",))
    assert of_pattern.topics is None


def test_memory_is_bounded():
    world = World(ORDERS, SLOW)
    for id_ in range(5):
        world.publish("orders", {"id": id_, "text": "x" * 100})
    again = Replay(history(world), ("orders-C",), world.journal, bytes_max=1_000)
    with pytest.raises(TooLarge, match="more than 1000 bytes"):
        run_to_completion(again.advance(moment(world)))


def test_it_begins_with_records_that_there_were():
    world = World(ORDERS, DESKS, SLOW, DESKS_C)
    world.publish("orders", {"id": 1, "n": 1}, {"id": 2, "n": 2})
    world.publish("/desk/1", {"id": 7})
    table = world.engine.topics["orders"].records.table
    desk = world.engine.topics["/desk/1"].records.table.slice(0, 1)
    named = replace(desk, identities=[f"/desk/1\x1e{desk.identities[0]}"])
    records = {
        "orders": HeldRecords(3, [table.slice(0, 2)]),
        "desks": HeldRecords(3, [named]),
    }
    state = StartingState(3, world.now, records)
    world.advance(2 * SECOND)
    world.publish("orders", {"id": 1, "n": 3})
    world.advance(2 * SECOND)
    world.journal.trim(0, 4, beyond=True)
    again = Replay(history(world), ("orders-C", "/desk/1-C"), world.journal, state)
    run_to_completion(again.advance(moment(world)))
    for name in ("orders-C", "/desk/1-C"):
        assert shown(again.engine, name) == shown(world.engine, name)


def test_a_reload_counts_from_its_place_on_and_a_topic_is_there_from_then_on():
    world = World(ORDERS, CONFIGURATIONS)
    world.engine.configurations.note(True)
    world.publish("orders", {"id": 1, "n": 1})
    world.advance(1)
    before = moment(world)
    configuration = replace(world.configuration, topics=(ORDERS, SLOW, CONFIGURATIONS))
    world.advance(SECOND)
    world.executor.reconfigure(configuration, world.now)
    world.settle()
    world.advance(2 * SECOND)
    again = Replay(world.engine.configurations.all(), ("orders-C",), world.journal)
    run_to_completion(again.advance(before))
    with pytest.raises(UnknownTopic):
        again.topic("orders-C")
    run_to_completion(again.advance(moment(world)))
    assert shown(again.engine, "orders-C") == shown(world.engine, "orders-C")
    assert again.configuration.topics[1] == replace(SLOW, line=0)


class TestStarts:
    MADE = ("orders-C", "over")

    def lived(self, wait_us, windows=True, topics=None):
        """A world whose process ends while a window is open, and the next one, of other topics."""
        first = World(ORDERS, SLOW, OVER, CONFIGURATIONS)
        first.engine.configurations.note(True)
        first.publish("orders", {"id": 1, "symbol": "A", "n": 1})
        first.advance(2 * SECOND)
        first.publish("orders", {"id": 1, "symbol": "B", "n": 2}, {"id": 2, "symbol": "A", "n": 3})
        first.advance(300 * MS)
        first.clock.advance(wait_us)

        class Next(World):
            before = None

            def windows(self):
                history = noted(self.journal.accounts()) if windows else ()
                steps = open_windows(history, self.configuration, self.journal, self.now)
                self.before = run_to_completion(steps)
                return self.before and self.before.catalog

        second = Next(
            *(topics or first.configuration.topics),
            journal=first.journal,
            checkpoints=first.checkpoints,
            start_us=first.now,
        )
        second.engine.sequencer.moment(second.now)
        second.engine.configurations.note(True, goes_on=second.before is not None)
        second.settle()
        return second

    def values(self, world):
        return [json.loads(body)["n"] for _, body, *_ in shown(world.engine, "orders-C")]

    def test_windows_that_were_open_go_on(self):
        world = self.lived(wait_us=100 * MS)
        assert self.values(world) == [1]
        assert [json.loads(one[1]) for one in shown(world.engine, "over")] == [
            {"symbol": "A", "n": 1}
        ]
        world.advance(600 * MS - 1)
        assert self.values(world) == [1]
        world.advance(1)
        assert self.values(world) == [2, 3]
        world.check()

    @pytest.mark.parametrize(
        ("topics", "values"),
        [
            ((ORDERS, SLOW, TICK), [1]),
            ((replace(ORDERS, hash_indexes=()), replace(SLOW, hash_indexes=(("/n",),))), [1]),
            ((ORDERS, replace(SLOW, conflation_policy="off"), OVER), [1]),
            ((ORDERS, replace(SLOW, interval_us=2 * SECOND)), [2, 3]),
            ((ORDERS, replace(SLOW, filter="/n > 2")), [3]),
            ((ORDERS, replace(SLOW, schedule="tick")), [2, 3]),
            ((ORDERS, replace(SLOW, enrichment=("/n + 0 AS /n",))), [2, 3]),
        ],
    )
    def test_those_go_on_whose_topic_is_made_as_before(self, topics, values):
        world = self.lived(100 * MS, topics=(*topics, CONFIGURATIONS))
        assert self.values(world) == values, "it begins with all that was acknowledged, else"
        history = world.engine.configurations.all()
        for wait_us in (1, 300 * MS, 400 * MS, 2 * SECOND):
            world.advance(wait_us)
            again = Replay(history, ("orders-C",), world.journal)
            run_to_completion(again.advance(moment(world)))
            assert shown(again.engine, "orders-C") == shown(world.engine, "orders-C")
        wanted = [3] if topics[1].filter else [2, 3]
        assert self.values(world) == wanted
        world.check()

    def test_of_those_that_are_one_copy_each_goes_on_by_itself(self):
        beside = replace(SLOW, name="beside")
        world = self.lived(100 * MS, topics=(ORDERS, SLOW, beside, CONFIGURATIONS))
        assert self.values(world) == [1]
        assert [json.loads(one[1])["n"] for one in shown(world.engine, "beside")] == [2, 3]
        world.advance(SECOND)
        assert self.values(world) == [2, 3]
        world.check()

    def test_windows_that_have_ended_meanwhile_are_released(self):
        assert self.values(self.lived(wait_us=SECOND)) == [2, 3]

    def test_they_end_where_the_log_does_not_say_how_it_was(self, monkeypatch):
        assert self.values(self.lived(wait_us=0, windows=False)) == [2, 3]
        monkeypatch.setattr(replay_starts, "GONE_ON_MAX", 2)
        assert self.values(self.lived(wait_us=0)) == [2, 3]

    def test_a_start_that_has_ended_windows_counts_though_the_clock_was_set_back(self):
        world = self.lived(wait_us=0, windows=False)
        history, then_us = noted(world.journal.accounts()), world.now - 100 * MS
        steps = open_windows(history, world.configuration, world.journal, then_us)
        engine = run_to_completion(steps)
        assert shown(engine, "orders-C") == shown(world.engine, "orders-C")

    @pytest.mark.parametrize("windows", [True, False])
    def test_the_past_of_a_start_is_what_it_was(self, windows):
        world, then = self.lived(100 * MS, windows), []
        for wait_us in (1, 300 * MS, 300 * MS, SECOND):
            world.advance(wait_us)
            then.append(
                (moment(world), shown(world.engine, "orders-C"), shown(world.engine, "over"))
            )
        history = world.engine.configurations.all()
        again = Replay(history, ("orders-C", "over"), world.journal)
        for at, *found in then:
            run_to_completion(again.advance(at))
            assert [shown(again.engine, name) for name in ("orders-C", "over")] == found


def test_a_reload_that_another_machine_has_noted_is_one_here():
    world = World(ORDERS, SLOW)
    world.publish("orders", {"id": 1, "n": 1})
    slower = replace(SLOW, interval_us=2 * SECOND)
    other = replace(world.configuration, port=9, topics=(ORDERS, slower))
    history = [InForceSince(world.configuration), InForceSince(other, 1, world.now, False)]
    replay = Replay(history, {"orders-C"}, world.journal)
    run_to_completion(replay.advance(moment(world)))
    assert replay.topic("orders-C").definition.interval_us == 2 * SECOND
