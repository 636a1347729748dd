"""Steps return what they return, and fail as they fail, when all are taken at once."""

import gc
import sys

import pytest

from sow.core.cooperative import (
    RESTS,
    CatchUpPacer,
    SharedTask,
    before_each,
    run_to_completion,
    untracked,
    while_wanted,
)
from sow.errors import Busy


def counted(count, taken):
    for at in range(count):
        taken.append(at)
        yield
    return count


def test_all_steps_are_taken_and_the_result_is_theirs():
    taken = []
    assert run_to_completion(counted(3, taken)) == 3
    assert taken == [0, 1, 2]
    assert run_to_completion(counted(0, taken)) == 0


def test_a_failure_is_that_of_the_step():
    def failing():
        yield
        raise ValueError("the second")

    with pytest.raises(ValueError, match="the second"):
        run_to_completion(failing())


def test_steps_end_when_nobody_wants_their_result_any_more():
    taken, wants = [], [True]
    assert run_to_completion(while_wanted(counted(3, taken), lambda: True)) == 3
    steps = while_wanted(counted(9, taken), lambda: wants[0])
    assert [next(steps), next(steps)] == [None, None]
    wants[0] = False
    with pytest.raises(Busy, match="nobody waits"):
        next(steps)
    assert taken == [0, 1, 2, 0, 1]

    def resting():
        return (yield RESTS)

    assert run_to_completion(while_wanted(resting(), lambda: True)) is RESTS, "what is sent back"


def test_before_each_step_comes_what_has_to_be_first():
    taken, first = [], [counted(2, []), None]
    steps = before_each(counted(3, taken), lambda: first.pop(0) if first else None)
    assert [(next(steps), len(taken)) for _ in range(3)] == [(None, 0), (None, 0), (None, 1)]
    assert run_to_completion(steps) == 3

    def fail():
        raise ValueError("no more")

    closed = counted(3, taken)
    with pytest.raises(ValueError, match="no more"):
        run_to_completion(before_each(closed, fail))
    assert list(closed) == [], "its steps are closed"


def test_each_who_waits_for_a_shared_task_gets_its_result_and_its_error():
    taken = []
    task = SharedTask(counted(4, taken))
    first, second = task.finish(), task.finish()
    next(first), next(second)
    assert taken == [0, 1], "each step is taken once"
    assert run_to_completion(first) == run_to_completion(second) == 4
    assert taken == [0, 1, 2, 3]

    def failing():
        yield
        raise ValueError("the second")

    task = SharedTask(failing())
    for _ in range(2):
        with pytest.raises(ValueError, match="the second"):
            run_to_completion(task.finish())


def steps_until_little_is_left(count, comes):
    """How many steps it takes, of 100 at first, and what is left, while so much comes between."""
    gaining, steps = CatchUpPacer(100), 0
    while count > gaining.share:
        gaining.begin(count)
        count -= gaining.share
        gaining.end(count)
        count += comes
        steps += 1
        assert steps < 1000, "it never ends"
    return steps, count


def test_what_grows_meanwhile_comes_to_an_end():
    assert steps_until_little_is_left(1000, 0) == (9, 100)
    assert steps_until_little_is_left(1000, 50)[0] == 18
    steps, left = steps_until_little_is_left(1000, 100)
    assert (steps < 20, left) == (True, 200)
    steps, left = steps_until_little_is_left(1000, 5000)
    assert steps < 20
    assert left <= 4 * 5000


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
