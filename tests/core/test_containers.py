"""What is made of texts is kept up to a weight, and let go when nobody asks for it."""

import weakref

from sow.core.containers import Cache, kept, sweep


class Made:
    pass


def test_the_latest_are_kept_up_to_a_weight():
    few = Cache(10)
    for name in "abc":
        few.keep(name, name.upper(), 4)
    assert [few.get(name) for name in "acb"] == [None, "C", "B"]
    assert (few.weight, len(few)) == (8, 2)
    few.keep("d", "D", 4)
    assert [few.get(name) for name in "cb"] == [None, "B"], "the one asked for last"


def test_one_that_is_too_heavy_is_not_kept_and_costs_the_others_nothing():
    few = Cache(10)
    few.keep("a", "A", 10)
    few.keep("b", "B", 11)
    assert [few.get(name) for name in "ab"] == ["A", None]


def test_what_is_kept_again_counts_once():
    few = Cache(10)
    for weight in (9, 3, 3):
        few.keep("a", weight, weight)
    few.keep("a", 11, 11)
    assert (few.get("a"), few.weight) == (None, 0)


def test_what_nobody_asks_for_goes_with_the_second_sweep():
    few = Cache(10)
    few.keep("asked", "A", 3)
    few.keep("unasked", made := Made(), 3)
    gone = weakref.ref(made)
    del made
    list(sweep())
    assert few.get("asked") == "A"
    assert gone() is not None
    list(sweep())
    assert (few.get("asked"), few.weight, gone()) == ("A", 3, None)
    list(sweep())
    list(sweep())
    assert (few.get("asked"), few.weight, len(few)) == (None, 0, 0)


def test_what_nobody_has_requested_for_goes_first_where_there_is_too_much():
    few = Cache(10)
    few.keep("old", "O", 4)
    few.keep("asked", "A", 4)
    few.sweep()
    few.get("asked")
    few.keep("new", "N", 4)
    assert [few.get(name) for name in ("old", "asked", "new")] == [None, "A", "N"]


def test_results_of_a_function_go_with_the_next_sweep():
    @kept(2)
    def made(name):
        return Made()

    first = made("a")
    assert made("a") is first
    gone = weakref.ref(first)
    del first
    list(sweep())
    assert gone() is None
