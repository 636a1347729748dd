"""The events of a series: what is kept of them, how they are found, and what they take."""

import random

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Series
from sow.store.memory import Table, Usage
from sow.store.protocols import EventOrigin
from sow.topic.series import (
    CHUNK_EVENTS,
    CHUNKS_CLEARED,
    EVENT_BYTES,
    RECORD_EVENTS_BYTES,
    Bound,
    TopicEvents,
)

SECOND = 1_000_000


def kept(events, identity="a"):
    return [event.seq for event in events.last(identity, 10**9)]


def made(retain, *times_us, identity="a"):
    """Events of one record at these times, numbered from 1."""
    events = TopicEvents(retain, Usage())
    for seq, time_us in enumerate(times_us, 1):
        events.add((identity,), (b"%d" % seq,), (seq,), (time_us,), "ann")
    return events


@pytest.mark.parametrize("count", [1, CHUNK_EVENTS, CHUNK_EVENTS + 1, 3 * CHUNK_EVENTS + 7])
def test_so_many_are_kept(count):
    events = made(Series(events_max=count), *range(4 * CHUNK_EVENTS))
    assert kept(events) == list(range(4 * CHUNK_EVENTS - count + 1, 4 * CHUNK_EVENTS + 1))
    assert events.count == count


def test_age_is_counted_from_the_newest_event_and_the_bound_is_inclusive():
    times = [0, 1, 2, 10, 11, 12]
    events = made(Series(events_max=None, age_us=10 * SECOND), *(t * SECOND for t in times))
    assert kept(events) == [3, 4, 5, 6], "10 s older than the newest is kept"
    run_to_completion(events.trimming(Series(events_max=2, age_us=10 * SECOND)))
    assert kept(events) == [5, 6]
    run_to_completion(events.trimming(Series(events_max=None, age_us=1)))
    assert kept(events) == [6], "the newest is always kept"


def test_a_range_is_inclusive_by_number_and_by_time_and_gives_the_newest():
    events = made(Series(events_max=None), *(t * SECOND for t in range(1000)))

    def found(start, until, count):
        part, more = events.part("a", start, until, count)
        return [event.seq for event in part], more

    assert found(Bound(10), Bound(12), 5) == ([10, 11, 12], False)
    assert found(Bound(10), Bound(12), 2) == ([11, 12], True)
    assert found(Bound(9 * SECOND, True), Bound(11 * SECOND, True), 5) == ([10, 11, 12], False)
    assert found(None, Bound(1), 5) == ([1], False)
    assert found(Bound(1000), None, 5) == ([1000], False)
    assert found(Bound(12), Bound(10), 5) == ([], False)
    assert events.part("b", None, None, 5) == ([], False)


def test_an_edit_replaces_the_body_and_the_author_of_one_event():
    events = made(Series(events_max=None), *range(300))
    before = events.size_bytes
    events.edit("a", 7, b"longer", "bob")
    event = events.find("a", 7)
    assert (event.body, event.author, event.ts_us) == (b"longer", "bob", 6)
    assert events.size_bytes == before + len(b"longer") - len(b"7")
    events.edit("a", 301, b"x", "bob")
    events.edit("b", 7, b"x", "bob")
    assert (events.find("a", 301), events.find("b", 7)) == (None, None)


def test_what_goes_is_put_aside_and_freed_some_at_a_time():
    events = made(Series(events_max=None), *range(CHUNK_EVENTS * (CHUNKS_CLEARED + 5)))
    usage = events.size_bytes
    taken = sum(len(b"%d" % seq) + EVENT_BYTES for seq in kept(events))
    assert usage == RECORD_EVENTS_BYTES + taken
    events.drop(["a", "b"])
    assert (events.count, events.size_bytes, "a" in events) == (0, 0, False)
    for _ in range(2):
        assert events.has_aside
        events.clear_some()
    assert not events.has_aside


def test_a_removal_takes_what_came_before_it():
    events = made(Series(events_max=None), *range(300))
    events.drop_before(["a", "b"], 200)
    assert kept(events) == list(range(200, 301))
    events.drop_before(["a"], 301)
    assert ("a" in events, events.count, events.size_bytes) == (False, 0, 0)


def test_slices_hold_all_events_though_others_come_and_go_between_them():
    events = made(Series(events_max=50), *range(30))
    events.add(["b"] * 30, [b"x"] * 30, range(31, 61), [31] * 30, "bob")
    parts = []
    for number, part in enumerate(events.slices(7)):
        assert part.is_events
        assert len(part.identities) <= 7
        parts.append(part)
        if number == 1:
            events.add(["a"] * 40, [b"y"] * 40, range(61, 101), [40] * 40, "ann")
            events.drop(["b"])
            events.add(["b"], [b"z"], [101], [41], "bob")
    again = TopicEvents(Series(events_max=50), Usage())
    for part in parts:
        again.restore(part)
    again.drop_before(["b"], 101)
    again.replay(["b"], [b"z"], 101, 41, EventOrigin("bob"))
    assert kept(again, "a") == kept(events, "a")
    assert again.last("b", 9) == events.last("b", 9)
    assert again.last("a", 1)[0].author == "ann"


def test_what_is_known_already_is_not_added_again():
    events = made(Series(events_max=None), 1, 2, 3)
    events.replay(["a", "a"], [b"2", b"3"], 2, 3, EventOrigin("ann"))
    assert kept(events) == [1, 2, 3]
    events.replay(["a"], [b"new"], 9, 9, EventOrigin("bob", edits=2))
    assert events.find("a", 2).body == b"new"


def test_a_record_of_a_time_before_the_series_is_its_own_event():
    table, events = Table(None), TopicEvents(Series(), Usage())
    table.put(["a", "b"], [b"1", b"2"], [5, 6], [50, 60])
    events.add(["b", "c"], [b"2", b"3"], [6, 7], [60, 70], "ann")
    run_to_completion(events.settle(table))
    assert events.last("a", 2) == [(5, 50, "", b"1")]
    assert events.last("b", 2) == [(6, 60, "ann", b"2")]
    assert "c" not in events, "its record is gone"
    events.check(table)


def test_what_the_next_event_takes_is_known():
    events = made(Series(events_max=2), 1, 2)
    assert events.growth("a") == -1, "the body of the one that goes"
    assert events.growth("b") == RECORD_EVENTS_BYTES + EVENT_BYTES
    assert made(Series(events_max=None), 1).growth("a") == EVENT_BYTES


@pytest.mark.parametrize("seed", range(5))
def test_they_are_those_of_a_list(seed):
    at_random = random.Random(seed)
    most, age_us = at_random.choice([None, 3, 200]), at_random.choice([None, 5, 500])
    events, model, time_us = TopicEvents(Series(most, age_us), Usage()), [], 0
    for seq in range(1, 1500):
        time_us += at_random.choice([0, 0, 1, 7])
        events.add(("a",), (b"x" * (seq % 5),), (seq,), (time_us,), "ann")
        model.append((seq, time_us))
        model = [one for one in model if age_us is None or one[1] >= time_us - age_us]
        model = model[-most:] if most else model
        if seq % 97 == 0:
            assert [(event.seq, event.ts_us) for event in events.last("a", 10**6)] == model
            assert events.count == len(model)
            taken = sum(seq % 5 + EVENT_BYTES for seq, _ in model)
            assert events.size_bytes == RECORD_EVENTS_BYTES + taken
