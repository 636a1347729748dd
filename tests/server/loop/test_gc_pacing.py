"""The collector looks through few objects at a time, and through all only where too many stay."""

import gc
import itertools
from collections import deque

import pytest

from sow.server.loop import background_work as module
from sow.server.loop.background_work import EVERY_US, NEVER, YOUNG_OBJECTS, YOUNG_PASSES, GcPacing


class Circle:
    """What refers to itself."""

    alive = 0

    def __init__(self):
        self.itself = self
        Circle.alive += 1

    def __del__(self):
        Circle.alive -= 1


@pytest.fixture(autouse=True)
def as_it_was():
    """The collector belongs to the process, and so to all tests; nothing runs but what they ask."""
    thresholds = gc.get_threshold()
    gc.disable()
    Circle.alive = 0
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    gc.enable()


class Entry:
    """What entries may be, in a set too."""


class Collector:
    """One that has begun, and how often it has looked through old objects."""

    def __init__(self):
        self.passes = 0
        self.now_us = 0
        self.garbage = GcPacing(lambda: 0)
        self.garbage.begin()

    def age(self, made):
        """What was made has survived the passes of Python's own."""
        gc.collect(0)
        gc.collect(1)
        return made

    def look(self):
        def on_collection(phase, info):
            self.passes += phase == "start" and info["generation"] == 2

        self.now_us += EVERY_US
        gc.callbacks.append(on_collection)
        try:
            assert not self.garbage.look(self.now_us)
        finally:
            gc.callbacks.remove(on_collection)
        return self.passes


def lists(count):
    return [[] for _ in range(count)]


def test_python_looks_through_the_young_by_itself_and_never_through_the_old():
    Collector()
    assert gc.get_threshold() == (YOUNG_OBJECTS, YOUNG_PASSES, NEVER)


def test_what_was_there_at_the_beginning_is_not_looked_through():
    made = lists(100)
    Collector()
    assert all(one is not made for one in gc.get_objects())


def test_a_dictionary_that_grows_is_settled_before_it_is_looked_through_as_a_long_one(monkeypatch):
    collector = Collector()
    growing = collector.age({at: [] for at in range(50)})
    monkeypatch.setattr(module, "ENTRIES", module._entries_of_old() + 50)
    assert collector.look() == 0
    assert gc.is_tracked(growing)
    assert any(one is growing for one in gc.get_objects()), "there are few beside it"
    growing.update((at, []) for at in range(50, 150))
    collector.age(growing)
    gc.collect(1)
    monkeypatch.setattr(module, "OLD_OBJECTS", 100)
    assert collector.look() == 0, "it is long now"
    assert all(one is not growing for one in gc.get_objects())


def test_few_old_objects_are_left_alone(monkeypatch):
    monkeypatch.setattr(module, "OLD_OBJECTS", 10_000)
    collector = Collector()
    collector.age(lists(100))
    assert collector.look() == 0


def test_many_are_looked_through(monkeypatch):
    monkeypatch.setattr(module, "OLD_OBJECTS", 1_000)
    collector = Collector()
    kept = collector.age(lists(2_000))
    assert collector.look() == 1
    assert len(kept) == 2_000


def test_old_circles_are_found_and_what_is_left_is_looked_through_no_more(monkeypatch):
    monkeypatch.setattr(module, "OLD_OBJECTS", 0)
    collector = Collector()
    kept = collector.age([Circle() for _ in range(10)])
    for _ in range(10):
        collector.age(Circle())
    assert Circle.alive == 20
    collector.look()
    assert Circle.alive == 10
    assert all(one is not kept for one in gc.get_objects())


def test_nothing_is_looked_through_twice_for_nothing(monkeypatch):
    monkeypatch.setattr(module, "OLD_OBJECTS", 0)
    collector = Collector()
    collector.age(lists(10))
    assert [collector.look(), collector.look()] == [1, 1]


def test_what_is_settled_and_goes_is_freed_without_the_collector(monkeypatch):
    monkeypatch.setattr(module, "OLD_OBJECTS", 0)
    collector = Collector()
    for _ in range(5):  # each counts all objects of the process, millions beside all other tests
        kept = collector.age(lists(1_000))
        collector.look()
        before = gc.get_freeze_count()
        del kept
        assert gc.get_freeze_count() <= before - 1_000
    assert collector.passes == 5


def test_what_is_young_is_looked_through_again_and_again_though_python_counts_none(monkeypatch):
    monkeypatch.setattr(module, "OLD_OBJECTS", 100_000)
    collector, before = Collector(), lists(3_000)
    for _ in range(3):
        made = lists(1_000)
        del before[-1_000:]  # as many go as come
        assert any(one is made for one in gc.get_objects(generation=0))
        collector.look()
        assert not any(one is made for one in gc.get_objects(generation=0))
    made = lists(1)
    for _ in range(YOUNG_PASSES + 1):
        collector.look()
    assert any(one is made for one in gc.get_objects(generation=2)), "and is old in the end"


def test_nothing_is_looked_through_a_moment_after_it_was():
    collector = Collector()
    collector.look()
    made = lists(10)
    collector.garbage.look(collector.now_us + EVERY_US - 1)
    assert any(one is made for one in gc.get_objects(generation=0))
    collector.garbage.look(collector.now_us - EVERY_US)
    assert not any(one is made for one in gc.get_objects(generation=0)), "the clock was set back"


@pytest.mark.parametrize("kind", [list, tuple, set, dict.fromkeys, deque])
def test_what_has_many_entries_is_not_looked_through_with_others(monkeypatch, kind):
    monkeypatch.setattr(module, "OLD_OBJECTS", 10)
    monkeypatch.setattr(module, "ENTRIES", 5_000)
    collector = Collector()
    held = [Entry() for _ in range(1_000)]
    several = collector.age([kind(held) for _ in range(6)])
    others = collector.age(lists(100))
    assert collector.look() == 0, "each has few, and all together have many"
    assert all(one is not several[0] and one is not others for one in gc.get_objects())


def test_lists_of_a_load_cost_the_collector_nothing_however_many_wait(monkeypatch):
    """What one collection examines is counted in entries: five lists of each staged request, as
    long as a step takes, wait while others come."""
    monkeypatch.setattr(module, "OLD_OBJECTS", 100)
    monkeypatch.setattr(module, "ENTRIES", 2_000)
    collector, waiting, examined = Collector(), [], []
    plain = gc.collect

    def collect(generation=2):
        if generation == 2:
            examined.append(module._entries_of_old())
        return plain(generation)

    monkeypatch.setattr(gc, "collect", collect)
    for _ in range(20):
        waiting.append(collector.age([[b"x"] * 1_000 for _ in range(5)]))
        for _ in range(2):
            others = collector.age(lists(150))
            collector.look()
            del others
    assert max(examined) <= 2_000, "and there was something to examine"
    assert sum(len(one) for lists_ in waiting for one in lists_) == 100_000


def test_very_many_that_come_at_once_are_settled_unseen(monkeypatch):
    monkeypatch.setattr(module, "MANY_OBJECTS", 1_000)
    collector = Collector()
    kept = collector.age(lists(2_500))
    assert collector.look() == 0
    assert all(one is not kept for one in gc.get_objects())


class Counts:
    """A collector that only counts: each pass over the young leaves a thousand objects more, and
    one over all leaves as many as live."""

    def __init__(self, living):
        self.living, self.frozen, self.old, self.all_seen = living, living, 0, []
        self.counted = 0

    def get_count(self):
        return (0, 0, self.old)

    def get_objects(self, generation):
        return range(self.old)

    def get_freeze_count(self):
        self.counted += 1
        return self.frozen

    def set_threshold(self, *_thresholds):
        pass

    def collect(self, generation=2):
        self.old += 1_000 if generation < 2 else 0

    def freeze(self):
        self.frozen, self.old = self.frozen + self.old, 0

    def unfreeze(self):
        self.all_seen.append(self.frozen)
        self.frozen = self.living - self.old


@pytest.mark.parametrize(("living", "at_most"), [(0, 5_000), (100_000, 205_000)])
def test_all_are_looked_through_when_more_stay_than_can_live(monkeypatch, living, at_most):
    monkeypatch.setattr(module, "OLD_OBJECTS", 0)
    monkeypatch.setattr(module, "MANY_OBJECTS", NEVER)
    monkeypatch.setattr(module, "SETTLED_OBJECTS", 5_000)
    counts = Counts(living)
    monkeypatch.setattr(module, "gc", counts)
    garbage = GcPacing(lambda: 0)
    garbage.begin()
    for at in range(1, 1_001):
        garbage.look(at * EVERY_US)
        assert counts.frozen <= at_most + 6_000
    assert len(counts.all_seen) > 1
    assert min(counts.all_seen) > at_most, "seldom: each time it is as much as stayed, and more"


def test_what_was_settled_and_is_freed_since_is_no_reason_to_look_through_all(monkeypatch):
    monkeypatch.setattr(module, "OLD_OBJECTS", 0)
    monkeypatch.setattr(module, "MANY_OBJECTS", NEVER)
    monkeypatch.setattr(module, "SETTLED_OBJECTS", 5_000)
    counts = Counts(10_000)
    monkeypatch.setattr(module, "gc", counts)
    garbage = GcPacing(lambda: 0)
    garbage.begin()
    for at in range(1, 1_001):
        garbage.look(at * EVERY_US)
        counts.frozen = counts.living
    assert counts.all_seen == []


def test_what_is_expected_is_no_reason_to_look_through_all(monkeypatch):
    monkeypatch.setattr(module, "OLD_OBJECTS", 0)
    monkeypatch.setattr(module, "MANY_OBJECTS", NEVER)
    monkeypatch.setattr(module, "SETTLED_OBJECTS", 5_000)
    counts = Counts(10_000)
    monkeypatch.setattr(module, "gc", counts)
    garbage = GcPacing(lambda: 300_000)
    garbage.begin()
    counts.counted = 0
    looks = itertools.count(EVERY_US, EVERY_US)
    while counts.frozen < 320_000:
        garbage.look(next(looks))
        assert counts.all_seen == []
    assert counts.counted == 0, "as many as that are not even counted"
    for _ in range(20):
        garbage.look(next(looks))
    assert counts.all_seen, "more than that is looked through"
