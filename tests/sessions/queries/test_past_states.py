"""The past of topics: what a query of a conflated topic, a view or an order was answered."""

import itertools
import json
from dataclasses import replace

import pytest

from sow.core.cooperative import RESTS, run_to_completion
from sow.core.definitions import CONFIGURATIONS, ConflatedTopic, Limits, Topic, View
from sow.errors import Busy, NotKept, TooLarge
from sow.protocol.wire import read_frame
from sow.query import Query
from sow.sessions.queries import past_states as module
from sow.sessions.queries import replay_starts
from tests.laws.harness import MS, ORDERS, SECOND, SLOW, SlowDisk, World

SUMS = View("sums", "json", ("orders",), ("/symbol AS /symbol", "SUM(/n) AS /n"), ("/symbol",))
BRIEF = Topic("brief", "json", keys=("/id",), durability="transient")
BRIEF_C = ConflatedTopic("brief-C", "json", "brief")
TOPICS = (ORDERS, BRIEF, SLOW, BRIEF_C, SUMS, CONFIGURATIONS)


def lived(cls=World, **more):
    """Two updates of a record and a new one, each within an open window."""
    world = cls(*TOPICS, **more)
    world.engine.configurations.note(True)
    for document in ({"id": 1, "symbol": "A", "n": 1}, {"id": 1, "symbol": "B", "n": 2}):
        world.publish("orders", document)
        world.advance(1_500 * MS)
    world.publish("orders", {"id": 1, "symbol": "B", "n": 3}, {"id": 2, "symbol": "A", "n": 4})
    world.advance(500 * MS)
    return world


def asked(world, topic, **more):
    """The documents of an answer, and the bookmark that it names."""
    lines = world.client().say(c="sow", cid="1", t=topic, **more)
    failed = [line for line in lines if line.get("status") == "failure"]
    if failed:
        return failed[0]
    return [line["d"] for line in lines if line["c"] == "sow"], lines[-1]["bm"]


@pytest.mark.parametrize(
    ("topic", "as_of", "expected", "place"),
    [
        ("orders-C", "1", [], "0.1000000000"),
        ("orders-C", "2", [(1, 1)], "1.1001500000"),
        ("orders-C", "4", [(1, 2)], "2.1003000000"),
        ("orders-C", "now", [(1, 2)], "2.1003500000"),
        ("orders", "2", [(1, 2)], "2"),
        ("sums", "1", [("A", 1)], "1.1000000000"),
        ("sums", "4", [("B", 3), ("A", 4)], "4.1003000000"),
        ("orders-C", 2, [(1, 1)], "1.1001500000"),
    ],
)
def test_a_bookmark_is_the_time_of_its_change(topic, as_of, expected, place):
    found, bookmark = asked(lived(), topic, as_of=as_of)
    assert [(one.get("id", one["symbol"]), one["n"]) for one in found] == expected
    assert bookmark == place, "what had been sent by then, and the time"


def test_windows_that_have_ended_by_a_time_are_released():
    world = lived()
    time = "1970-01-01T00:16:41"
    assert asked(world, "orders-C", as_of=time)[0] == [{"id": 1, "symbol": "A", "n": 1}]
    assert asked(world, "orders-C", opts="as_of=1970-01-01T00:16:40.999999Z")[0] == []


def test_a_place_in_what_a_conflated_topic_has_sent_is_the_moment_behind_that():
    world = lived()
    assert asked(world, "orders-C", as_of="1.1001000000")[0] == [{"id": 1, "symbol": "A", "n": 1}]
    assert asked(world, "orders-C", as_of="1.1000999999")[0] == []
    shown, bookmark = asked(world, "orders-C", opts="")
    world.advance(2 * SECOND)
    world.publish("orders", {"id": 1, "symbol": "A", "n": 9})
    world.advance(2 * SECOND)
    assert asked(world, "orders-C", as_of=bookmark)[0] == shown


def test_inside_a_change_of_several_records_it_is_the_state_before_it():
    world = lived()
    for topic in ("orders", "orders-C", "sums"):
        inside, before = asked(world, topic, as_of="3"), asked(world, topic, as_of="2")
        if topic != "orders-C":
            assert inside[0] == before[0]
        assert inside[1].partition(".")[0] == "2"
    assert asked(world, "orders-C", as_of="3")[0] == [{"id": 1, "symbol": "B", "n": 2}]


def test_an_order_a_page_a_filter_and_groups_are_of_then():
    world = lived()
    world.advance(2 * SECOND)
    for _ in range(3):
        world.publish("orders", {"id": 2, "symbol": "A", "n": 9})
        world.advance(2 * SECOND)
    ordered = asked(world, "orders-C", order_by="/n DESC", top_n=1, opts="as_of=5")
    assert ordered == ([{"id": 2, "symbol": "A", "n": 4}], "4.1005500000")
    assert asked(world, "orders-C", filter="/n = 4", as_of="5")[0] == ordered[0]
    grouped = asked(
        world, "orders-C", projection="COUNT(1) AS /c,SUM(/n) AS /n,/symbol", grouping="/symbol",
        as_of="5",
    )  # fmt: skip
    assert grouped == ([{"c": 1, "n": 3, "symbol": "B"}, {"c": 1, "n": 4, "symbol": "A"}], "5")


@pytest.mark.parametrize(
    ("asked_for", "says"),
    [
        ({"t": "brief-C", "as_of": "1"}, "brief-C is made of brief, which has no log"),
        ({"t": "brief", "as_of": "1"}, "brief has no log"),
        ({"t": "^or", "as_of": "1"}, "a past state is of one topic; name it"),
        ({"t": "orders-C", "as_of": "99"}, "bookmark 99 is not kept"),
        ({"t": "orders-C", "as_of": "2199-01-01T00:00:00Z"}, "is in the future"),
        ({"t": "orders-C", "as_of": "[1:2]"}, "is a range"),
        ({"t": "orders-C", "as_of": " "}, "option as_of is empty"),
        ({"t": "orders-C", "bm": "1"}, "give as_of for an earlier one"),
    ],
)
def test_what_has_no_past_says_why(asked_for, says):
    assert says in asked(lived(), **{"topic": asked_for.pop("t"), **asked_for})["detail"]


def test_a_subscription_without_records_does_not_begin_in_the_past():
    (refused,) = lived().client().say(c="subscribe", t="orders", opts="as_of=1")
    assert "subscribe has no state to begin with" in refused["detail"]


def test_a_refusal_names_the_oldest_and_the_newest_moment():
    world = lived()
    refused = asked(world, "orders-C", as_of="99")
    assert (refused["oldest"]["bookmark"], refused["newest"]["bookmark"]) == ("0", "4")
    assert refused["newest"]["time"] == "1970-01-01T00:16:43.500000Z"


def test_what_is_on_its_way_to_the_disk_is_part_of_the_past():
    world = lived(SlowDisk)
    world.held = True
    world.say_later("orders", {"id": 3, "symbol": "C", "n": 7})
    past = world.executor.subscriptions.past
    for topic, count in (("orders", 3), ("sums", 3)):
        found = run_to_completion(past.query(topic, "5", Query()))
        assert (len(found.rows), found.bookmark) == (count, 5)


def test_a_topic_that_was_not_there_yet_is_refused():
    world = lived()
    configuration = replace(world.configuration, topics=(*TOPICS, replace(SLOW, name="new")))
    world.advance(1)
    world.executor.reconfigure(configuration, world.now)
    world.settle()
    assert "there was no topic new at that moment" in asked(world, "new", as_of="2")["detail"]
    assert len(asked(world, "new", as_of="now")[0]) == 2


class TestRetention:
    """Of a log without its beginning only what is certain is answered."""

    def kept(self, oldest):
        world = lived()
        world.publish("orders", {"id": 3, "symbol": "C", "n": 5})
        world.advance(3 * SECOND)
        world.publish("orders", {"id": 1, "symbol": "B", "n": 6})
        world.advance(3 * SECOND)
        world.journal.trim(0, oldest, beyond=True)
        return world

    def test_what_has_not_changed_since_is_known(self):
        world = self.kept(oldest=3)
        found, bookmark = asked(world, "orders-C", as_of="6")
        assert ([document["n"] for document in found], bookmark) == ([3, 4, 5], "5.1006500000")
        found, _ = asked(world, "sums", as_of="now")
        assert {document["n"] for document in found} == {4, 5, 6}

    def test_what_the_log_does_not_say_is_refused(self):
        world = self.kept(oldest=3)
        refused = asked(world, "orders-C", as_of="4")
        assert "the log no longer has what it was" in refused["detail"]
        assert asked(world, "orders-C", as_of="1")["oldest"]["bookmark"] == "2"

    @pytest.mark.parametrize("topic", ["orders", "orders-C", "sums"])
    @pytest.mark.parametrize(("before", "oldest"), [(1, 6), (3, 5)])
    def test_whenever_retention_removes_something_no_answer_is_otherwise(
        self, monkeypatch, topic, before, oldest
    ):
        monkeypatch.setattr(replay_starts, "FEW", 0)
        whole, steps = self.taken(topic, before, before, at=0)
        assert whole is not None or before > 1
        for at in range(steps + 1):
            assert self.taken(topic, before, oldest, at)[0] in (whole, None)

    def taken(self, topic, before, oldest, at):
        """The answer of a log from `before` on of which the part before `oldest` goes at a step, or
        None where it is refused, and the number of steps."""
        world, answer = self.kept(before), None
        steps = world.executor.subscriptions.past.query(topic, "5", Query())
        for number in itertools.count():
            if number == at:
                world.journal.trim(0, oldest, beyond=True)
            try:
                next(steps)
            except NotKept as error:
                assert {*error.fields()} == {"oldest", "newest"}  # noqa: PT017
                break
            except StopIteration as over:
                answer = over.value.bookmark, over.value.place, over.value.rows.bodies.part(0, 99)
                break
        return answer, number


class TestTheLine:
    """One state is computed at a time, by all who wait."""

    def test_who_comes_later_waits_and_helps(self):
        world = lived()
        past = world.executor.subscriptions.past
        first = past.query("orders-C", "4", Query())
        second = past.query("orders-C", "2", Query())
        next(first)
        found = run_to_completion(second)
        assert found.bookmark == 2
        assert run_to_completion(first).bookmark == 4

    def test_all_who_wait_have_the_time_of_one(self):
        past, taken = lived().executor.subscriptions.past, []

        def work():
            for _ in range(20):
                taken.append(1)
                yield
            return 7

        first, *others = [past.in_line(work()) for _ in range(9)]
        next(first)
        assert {next(other) for other in others} == {RESTS}
        begun = len(taken)
        for _ in range(3):
            next(first)
            assert {next(other) for other in others} == {RESTS}
        assert len(taken) == begun + 3, "who waits takes no step beside the first"
        assert {next(other) for other in others} == {RESTS}
        assert len(taken) == begun + 4, "but one where the first does not go on"
        assert [run_to_completion(other) for other in reversed(others)] == [7] * 8

    def test_who_leaves_takes_nothing_with_it(self):
        world = lived()
        past = world.executor.subscriptions.past
        first = past.query("orders-C", "4", Query())
        second = past.query("orders-C", "2", Query())
        next(first), next(second)
        first.close()
        assert run_to_completion(second).bookmark == 2
        assert run_to_completion(past.query("sums", "4", Query())).bookmark == 4

    @pytest.mark.parametrize("topic", ["orders-C", "sums"])
    def test_who_leaves_half_way_leaves_nothing_to_be_freed_at_once(self, monkeypatch, topic):
        world = lived()
        past, replays = world.executor.subscriptions.past, []
        made = past.replay

        def noted(*named, **more):
            replays.append(made(*named, **more))
            return replays[-1]

        monkeypatch.setattr(past, "replay", noted)
        for at in range(9):
            steps = past.query(topic, "4", Query())
            for _ in range(at + 1):
                next(steps, None)
            steps.close()
            world.advance(MS)
        assert len(replays) > 3
        for replay in replays:
            tables = [one.records.table for one in replay.engine.topics.values()]
            assert not any(body for table in tables for body in table.bodies)

    @pytest.mark.parametrize("line", [{"c": "sow", "as_of": "now"}, {"c": "subscribe", "bm": "0"}])
    def test_nothing_is_computed_for_a_client_that_has_gone_for_good(self, line):
        world = lived()
        session = world.client().session
        commands = read_frame(json.dumps({**line, "t": "orders-C"}).encode())
        steps = world.executor.carry_out(session, commands, lambda: world.now)
        next(steps)
        session.connected = False
        assert len([*steps]) < 2
        assert not world.executor.subscriptions.past._line
        world.settle()
        world.check()

    def test_few_may_wait(self, monkeypatch):
        monkeypatch.setattr(module, "AS_OF_WAITING_MAX", 0)
        past = lived().executor.subscriptions.past
        first = past.query("orders-C", "4", Query())
        next(first)
        with pytest.raises(Busy, match="try later"):
            next(past.query("orders-C", "2", Query()))

    def test_an_error_is_for_who_asked(self):
        world = lived(limits=Limits(snapshot_bytes_max=1))
        world.delete("orders", "1 = 1")
        world.advance(2 * SECOND)
        past = world.executor.subscriptions.past
        first = past.query("orders-C", "4", Query())
        second = past.bodies(world.engine.topic("orders"), 4, 2**63)
        next(first)
        assert len(run_to_completion(second)) == 2
        with pytest.raises(TooLarge, match="choose another moment"):
            run_to_completion(first)
