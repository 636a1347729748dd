"""Counts of values: the extremes are those of what is there, with a heap and without."""

import random
from collections import Counter

import pytest

from sow.topic.views import distinct_values
from sow.topic.views.distinct_values import DistinctOrdered, SortedMultiset


@pytest.mark.parametrize("pool", [[*range(300)], [f"{one:03}" for one in range(300)]])
@pytest.mark.parametrize("rescanned_max", [500, 10**9])
def test_the_extremes_are_those_of_what_is_there(monkeypatch, pool, rescanned_max):
    monkeypatch.setattr(distinct_values, "RESCANNED_MAX", rescanned_max)
    randomness, counts, there = random.Random(1), SortedMultiset(), []
    for _ in range(3000):
        if there and randomness.random() < 0.48:
            # The extremes are what goes most often.
            gone = randomness.choice([min, max, randomness.choice])(there)
            there.remove(gone)
            assert counts.remove(gone) is (gone not in there)
        else:
            value = randomness.choice(pool)
            assert counts.add(value) is (value not in there)
            there.append(value)
        assert counts.least() == min(there, default=None)
        assert counts.greatest() == max(there, default=None)
    assert {one: there.count(one) for one in there} == counts.counts


def test_a_heap_does_not_grow_beyond_what_is_there(monkeypatch):
    monkeypatch.setattr(distinct_values, "RESCANNED_MAX", 0)
    counts = SortedMultiset()
    for value in range(200):
        counts.add(value)
    counts.remove(199)
    assert counts.greatest() == 198
    for _ in range(5000):
        counts.add(-1)
        counts.remove(-1)
    assert len(counts._highest._entries) <= 2 * 199 + distinct_values.FEW + 1


def test_a_group_whose_greatest_always_goes_is_not_looked_through_each_time(monkeypatch):
    counts = SortedMultiset()
    for value in range(2000):
        counts.add(value)
    counts.greatest()
    looked = [0]

    class Counting(dict):
        def __iter__(self):
            looked[0] += len(self)
            return super().__iter__()

    counts.counts = Counting(counts.counts)
    for value in range(2000, 4000):
        counts.remove(value - 1)
        counts.add(value)
        assert counts.greatest() == value
    assert looked[0] < 3 * distinct_values.RESCANNED_MAX


def test_extremes_are_known_while_values_come():
    counts = SortedMultiset()
    for value in (5, 3, 9, 4):
        counts.add(value)
    assert (counts._least, counts._greatest) == (3, 9)
    for value in (5, 3, 9, 4):
        counts.remove(value)
    assert (counts.least(), counts.greatest()) == (None, None)
    counts.add(7)
    assert (counts.least(), counts.greatest()) == (7, 7)


def test_values_that_come_to_many_at_once_come_to_each(monkeypatch):
    """With what has come or gone meanwhile, and whether the extremes are known or on a heap."""
    monkeypatch.setattr(distinct_values, "RESCANNED_MAX", 300)
    randomness = random.Random(2)
    these, there = [SortedMultiset() for _ in range(4)], [[] for _ in range(4)]
    for turn in range(600):
        chosen = [randomness.randrange(4) for _ in range(6)]
        values = [randomness.randrange(2000) for _ in chosen]
        SortedMultiset.add_each([these[at] for at in chosen], values)
        for at, value in zip(chosen, values, strict=True):
            there[at].append(value)
        for counts, held in zip(these, there, strict=True):
            if turn % 3:
                assert (counts.least(), counts.greatest()) == (
                    min(held, default=None), max(held, default=None)
                )  # fmt: skip
            for _ in range(min(len(held), randomness.randrange(2))):
                gone = randomness.choice([min, max])(held)
                held.remove(gone)
                counts.remove(gone)
            assert Counter(held) == counts.counts
    assert any(counts._is_heaped for counts in these)


def test_texts_stand_in_the_order_of_their_first_rows():
    found = DistinctOrdered()
    for born, value in enumerate(["b", 1, "b", None, "", True, ["c", "d"], 2.5]):
        found.add(value, born)
    assert found.joined(",") == "b,1,c,2.5"
    found.remove("b", 0)
    assert found.joined("; ") == "1; b; c; 2.5"
    found.replace(1, "c", 1)
    assert found.joined(",") == "c,b,1,2.5"


def test_a_text_that_is_too_long_is_null_until_it_is_shorter(monkeypatch):
    monkeypatch.setattr(distinct_values, "CONCATENATED_CHARS_MAX", 5)
    found = DistinctOrdered()
    found.add("ab", 1)
    found.add("cd", 2)
    assert found.joined(",") == "ab,cd"
    found.add("e", 3)
    assert found.joined(",") is None
    found.remove("e", 3)
    assert found.joined(",") == "ab,cd"


def test_nothing_is_null():
    assert DistinctOrdered().joined(",") is None
