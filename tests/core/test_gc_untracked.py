"""A list of plain values is not looked through, and otherwise a list like any other."""

import gc
import sys

from sow.core.gc_untracked import untracked


def test_it_is_the_same_list_and_the_collector_knows_nothing_of_it():
    items = [b"a", "b", 1]
    assert gc.is_tracked(items)
    assert untracked(items) is items
    assert not gc.is_tracked(items)
    assert all(items is not known for known in gc.get_objects())


def test_it_grows_shrinks_and_is_sorted_as_before():
    items = untracked(list(range(100)))
    items.extend(range(100_000))
    items += [-1]
    items.sort()
    del items[10:]
    items[2:3] = [7, 8, 9]
    assert items[:5] == [-1, 0, 7, 8, 9]
    assert not gc.is_tracked(items), "and has not been looked at since"
    items.clear()
    assert items == []


def test_saying_it_twice_says_no_more():
    items = untracked(untracked([1]))
    assert items == [1]


def test_what_it_held_is_freed_with_it():
    """Also in passing: the collector is told again of a list that is freed."""
    item = b"held" * 100
    before = sys.getrefcount(item)
    for _ in range(1000):
        items = untracked([item] * 3)
    assert sys.getrefcount(item) == before + 3
    del items
    assert sys.getrefcount(item) == before


def test_copies_of_it_are_ordinary_lists():
    assert gc.is_tracked(untracked([1]).copy())
