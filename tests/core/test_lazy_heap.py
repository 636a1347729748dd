"""A lazy heap: the least valid entry, whatever was removed, and never much more than is valid."""

from heapq import heappush
from random import Random

from sow.core.containers import SLACK, LazyHeap


def test_the_first_is_the_least_valid_entry():
    randomness, heap, valid = Random(3), LazyHeap(), set()
    for _ in range(2_000):
        number = randomness.randrange(200)
        if number in valid:
            valid.discard(number)
        else:
            valid.add(number)
            heappush(heap, number)
        assert heap.first(valid.__contains__) == min(valid, default=None)
        heap.check()


def test_removed_entries_below_the_top_are_dropped_by_a_rebuild():
    heap = LazyHeap()
    for number in range(10 * SLACK):
        heappush(heap, number)
        if heap.is_stale(1):
            heap.rebuild([0, number])
            assert [*heap] == [0, number]
        assert len(heap) <= SLACK + 3
    assert heap.first(lambda number: number == 0) == 0


def test_an_empty_heap_has_no_first():
    assert LazyHeap().first(lambda _entry: True) is None
