"""Two engines compared by what they say, record by record: each difference is found and placed."""

import random
from collections import defaultdict, deque
from dataclasses import replace
from itertools import zip_longest

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic, View
from sow.engine import rehearsal
from sow.engine.rehearsal import NEW, OLD, OutputComparison, RecordLines, Rehearsal, SaidLine
from sow.engine.replay import InForceSince, Moment, Replay
from tests.laws.harness import MS, ORDERS, SECOND, SLOW, World

TOTALS = View("totals", "json", ("orders",), ("/desk", "SUM(/qty) AS /qty"), ("/desk",))


def conflated(**more):
    return ConflatedTopic("orders-C", "json", "orders", **{"interval_us": SECOND, **more})


def tell(engine, sent):
    """Report all that an engine routes, as a replay does."""
    route = engine.route

    def route_and_tell(topic, batch):
        route(topic, batch)
        sent(topic, batch)

    engine.route = engine.views._route = route_and_tell


class Rehearsed:
    """Two worlds of other topics, to which the same happens."""

    def __init__(self, old=(SLOW,), new=(SLOW,), wanted=None, **more):
        self.worlds = [World(ORDERS, *old), World(ORDERS, *new)]
        self.comparison = OutputComparison(wanted, **more)
        for side, world in zip((OLD, NEW), self.worlds, strict=True):
            tell(world.engine, self.comparison.listening(side, world.clock.now_us))

    def both(self, act):
        for world in self.worlds:
            act(world)
            world.settle()

    def publish(self, *documents):
        self.both(lambda world: world.publish("orders", *documents))

    def delete(self, condition):
        self.both(lambda world: world.delete("orders", condition))

    def advance(self, by_us):
        self.both(lambda world: world.advance(by_us))

    def found(self):
        engines = [world.engine for world in self.worlds]
        return {one.name: one for one in run_to_completion(self.comparison.finished(engines))}

    def of(self, name="orders-C"):
        return self.found()[name]


def a_day(rehearsed):
    """Updates of three records, a delete, and pauses in which windows end."""
    for round_ in range(4):
        for number in range(3):
            rehearsed.publish({"id": number, "qty": round_, "desk": number % 2})
            rehearsed.advance(300 * MS)
    rehearsed.delete("/id = 1")
    rehearsed.advance(2 * SECOND)


def bodies(first):
    return [None if one is None else one.body for one in first.lines]


def test_equal_configurations_say_the_same_whatever_happens():
    rehearsed = Rehearsed(old=(SLOW, TOTALS), new=(SLOW, TOTALS), times=True)
    a_day(rehearsed)
    found = rehearsed.found()
    assert [one.differs for one in found.values()] == [False, False]
    assert found["orders-C"].kinds == ("conflated", "conflated")
    assert found["orders-C"].compared == 3
    assert found["orders-C"].lines[OLD] == found["orders-C"].lines[NEW] > 3
    assert found["totals"].lines[OLD] > 5
    assert rehearsed.comparison._waiting == 0


def test_a_filter_makes_a_difference_for_the_records_that_it_concerns():
    rehearsed = Rehearsed(new=(conflated(filter="/qty < 2"),))
    rehearsed.publish({"id": 1, "qty": 1}, {"id": 2, "qty": 1}, {"id": 3, "qty": 5})
    rehearsed.advance(2 * SECOND)
    rehearsed.publish({"id": 2, "qty": 3})
    rehearsed.advance(2 * SECOND)
    two, three = rehearsed.of().differing
    assert (two.lines, two.first.number) == ((2, 2), 2)
    assert [one.reason for one in two.first.lines] == [None, "match"]
    assert two.ends == (b'{"id":2,"qty":3}', None)
    assert (three.lines, three.first.number) == ((1, 0), 1)
    assert bodies(three.first) == [b'{"id":3,"qty":5}', None]
    assert three.ends == (b'{"id":3,"qty":5}', None)


def test_an_interval_matters_only_where_it_merges_something_else():
    rehearsed = Rehearsed(new=(conflated(interval_us=3 * SECOND),))
    rehearsed.publish({"id": 1, "qty": 1}, {"id": 2, "qty": 1})
    rehearsed.advance(1500 * MS)
    rehearsed.publish({"id": 2, "qty": 2})
    rehearsed.advance(10 * SECOND)
    (two,) = rehearsed.of().differing
    assert (two.lines, two.ends) == ((2, 1), None)
    assert bodies(two.first) == [b'{"id":2,"qty":1}', b'{"id":2,"qty":2}']


def test_times_count_on_request():
    for times in (False, True):
        rehearsed = Rehearsed(new=(conflated(interval_us=3 * SECOND),), times=times)
        rehearsed.publish({"id": 1, "qty": 1})
        rehearsed.advance(10 * SECOND)
        assert rehearsed.of().differs == times
    (one,) = rehearsed.of().differing
    assert [line.at_us for line in one.first.lines] == [1_001 * SECOND, 1_003 * SECOND]


def test_the_order_among_the_records_counts_where_each_says_the_same():
    rehearsed = Rehearsed()
    for ids, world in zip(((1, 2), (2, 1)), rehearsed.worlds, strict=True):
        world.publish("orders", *({"id": number, "qty": 1} for number in ids))
        world.advance(2 * SECOND)
    found = rehearsed.of()
    assert (found.is_reordered, found.differing, found.differs) == (True, [], True)


def test_a_topic_of_one_side_only_is_named_and_counts():
    other = ConflatedTopic("other-C", "json", "orders", interval_us=SECOND)
    rehearsed = Rehearsed(old=(SLOW, TOTALS), new=(SLOW, other))
    a_day(rehearsed)
    found = rehearsed.found()
    assert found["other-C"].kinds == (None, "conflated")
    assert found["totals"].kinds == ("view", None)
    assert [name for name, one in found.items() if one.differs] == ["other-C", "totals"]


def test_a_record_that_never_changes_is_compared_at_the_end():
    """What was there before the range has no line."""
    rehearsed = Rehearsed(new=(conflated(filter="/qty > 1"),))
    rehearsed.comparison.is_open = False
    rehearsed.publish({"id": 1, "qty": 1}, {"id": 2, "qty": 2})
    rehearsed.advance(2 * SECOND)
    rehearsed.comparison.is_open = True
    rehearsed.advance(2 * SECOND)
    (one,) = rehearsed.of().differing
    assert (one.lines, one.first, one.ends) == ((0, 0), None, (b'{"id":1,"qty":1}', None))


def test_topics_that_are_not_wanted_are_left_out():
    rehearsed = Rehearsed(old=(SLOW, TOTALS), wanted=lambda name: name != "totals")
    a_day(rehearsed)
    assert [*rehearsed.found()] == ["orders-C"]


def test_beyond_what_may_wait_a_difference_is_still_found(monkeypatch):
    monkeypatch.setattr(rehearsal, "WAITING_MAX", 3)
    rehearsed = Rehearsed(new=(conflated(filter="/qty > 100"),))
    for round_ in range(10):
        rehearsed.publish({"id": 1, "qty": round_}, {"id": 2, "qty": round_})
        rehearsed.advance(2 * SECOND)
        assert 0 <= rehearsed.comparison._waiting <= 3
    one, two = rehearsed.of().differing
    assert (one.lines, two.lines) == ((10, 0), (10, 0))
    assert (one.first, two.first) == (None, None)


def said(pick, sides):
    """What is made of two lists of lines, which the sides say in any order."""
    record, left, waiting = RecordLines(), [deque(side) for side in sides], 0
    while any(left):
        side = pick.choice([at for at in (OLD, NEW) if left[at]])
        line = left[side].popleft()
        waiting += record.say(side, line, rehearsal._meant(line, 2), has_room=True)
        assert waiting >= 0
    record.end()
    return record


def drawn(pick):
    """A few lines, and nearly the same."""
    old = [SaidLine(None, b"%d" % pick.randrange(2), n, n) for n in range(pick.randrange(6))]
    new = [line for line in old if pick.random() < 0.9]
    return old, new + [SaidLine("match", b"", 9, 9)] * (pick.random() < 0.2)


def test_law_in_any_order_the_first_line_that_differs_is_found():
    for seed in range(500):
        pick = random.Random(seed)
        old, new = drawn(pick)
        record = said(pick, (old, new))
        pairs = list(zip_longest((line[:2] for line in old), (line[:2] for line in new)))
        first = next((at for at, (one, other) in enumerate(pairs, 1) if one != other), None)
        assert record.differs == (first is not None), seed
        assert (record.first and record.first.number) == first, seed


def test_the_law_can_fail(monkeypatch):
    """Planted: lines are compared by the reason alone."""
    monkeypatch.setattr(rehearsal, "_meant", lambda line, _counting: line.reason)
    with pytest.raises(AssertionError):
        test_law_in_any_order_the_first_line_that_differs_is_found()


@pytest.mark.parametrize("side", [OLD, NEW])
def test_a_planted_difference_is_found(side):
    """One update of one record does not reach one of the sides."""
    rehearsed = Rehearsed()
    for round_ in range(3):
        for number in range(5):
            for at, world in enumerate(rehearsed.worlds):
                if (at, round_, number) != (side, 1, 3):
                    world.publish("orders", {"id": number, "qty": round_})
        rehearsed.advance(2 * SECOND)
    (found,) = rehearsed.of().differing
    assert found.lines[side] == 2
    assert (found.first.number, found.ends) == (2, None)
    assert found.first.lines[side].body == b'{"id":3,"qty":2}'


NEW_ONES = (
    conflated(interval_us=300 * MS),
    conflated(interval_us=3 * SECOND),
    conflated(filter="/qty > 3"),
    conflated(schedule="tick"),
    conflated(),
)


def recorded(pick):
    """A log of some orders."""
    world = World(ORDERS, SLOW, TOTALS)
    for _ in range(pick.randrange(5, 25)):
        ids = pick.sample(range(4), pick.randrange(1, 4))
        if pick.random() < 0.2:
            world.delete("orders", f"/id = {ids[0]}")
        else:
            world.publish("orders", *({"id": n, "qty": pick.randrange(6), "desk": 1} for n in ids))
        world.advance(pick.randrange(1, 1_500) * MS)
    return world


def replays(world, new):
    """What makes the replay of each side, which says to the function that it is given."""
    names = {"orders-C", "totals"}
    old = world.engine.configuration
    other = replace(old, topics=(ORDERS, new, TOTALS))
    return [
        lambda sent, one=one: Replay([InForceSince(one)], names, world.journal, sent=sent)
        for one in (old, other)
    ]


def alone(make, until):
    """All that one side says, by topic and record, and what it holds at the end."""
    said = defaultdict(list)

    def hear(topic, batch):
        for key, (body, *_) in zip(batch.keys(), batch.states(), strict=True):
            said[topic.name, key].append((batch.changes.reason, body))

    replay = make(hear)
    run_to_completion(replay.advance(until))
    held = {}
    for name in ("orders-C", "totals"):
        records = replay.engine.topics[name].records
        for identity, slot in records.table.slots.items():
            held[name, records.sow_key_of(identity)] = records.table.bodies[slot]
    return said, held


def test_law_side_by_side_they_differ_as_one_after_the_other():
    for seed in range(60):
        pick = random.Random(seed)
        world = recorded(pick)
        makers = replays(world, pick.choice(NEW_ONES))
        until = Moment(world.journal.last_seq, world.now + 20 * SECOND)
        (old, old_held), (new, new_held) = (alone(make, until) for make in makers)
        keys = {key for key in (*old, *new, *old_held, *new_held) if key[0] != "orders"}
        ends = {key for key in keys if old_held.get(key) != new_held.get(key)}
        wanted = {
            key: (len(old[key]), len(new[key]), key in ends)
            for key in keys
            if old[key] != new[key] or key in ends
        }
        compared = run_to_completion(Rehearsal(makers).run(Moment(0, 0), until))
        found = {
            (topic.name, one.key): (*one.lines, one.ends is not None)
            for topic in compared
            for one in topic.differing
        }
        assert found == wanted, seed
