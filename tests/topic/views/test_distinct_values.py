"""Different values: what is equal is one, and what is written depends on what is there alone."""

import math

from sow.core.lossless_numbers import LosslessNumber
from sow.topic.views.distinct_values import DistinctValues
from tests.cases import all_cases


def of(values):
    found = DistinctValues()
    for value in values:
        found.add(value)
    return found


@all_cases(
    ("values", "least", "greatest", "count", "unique"),
    [
        ([], None, None, 0, None),
        ([None, "", []], None, None, 0, None),
        (["10", "9"], "10", "9", 2, None),
        (["10", "9", 9.5], "9", "10", 3, None),
        ([10, "abc", "2"], "2", "abc", 3, None),
        ([1, "1", "1.0"], 1, 1, 1, 1),
        (["1", "1.0"], "1", "1.0", 2, None),
        ([1.0, 1.0], 1.0, 1.0, 1, 1.0),
        ([1.0, 1, 2.5], 1, 2.5, 2, None),
        ([True, True], True, True, 1, True),
        ([True, 1], 1, 1, 1, 1),
        ([-0.0], 0.0, 0.0, 1, 0.0),
        ([2.0**60, 1], 1, 2.0**60, 2, None),
        ([10**400, 1.5], 1.5, 10**400, 2, None),
        (["x", ["x", "y"]], "x", "x", 1, "x"),
        ([math.inf, 3], 3, math.inf, 2, None),
    ],
)
def test_values_compare_as_the_operators_say(values, least, greatest, count, unique):
    for order in (values, values[::-1]):
        found = of(order)
        assert repr(found.least()) == repr(least)
        assert repr(found.greatest()) == repr(greatest)
        assert repr(found.any()) == repr(least)
        assert repr(found.unique()) == repr(unique)
        assert found.count() == count


def test_a_number_that_keeps_its_digits_counts_as_the_double():
    assert repr(of([LosslessNumber("1.50"), LosslessNumber("1.10")]).least()) == "1.1"


def test_nan_is_the_least_and_the_greatest_and_any_only_where_nothing_else_is():
    found = of([math.nan])
    assert math.isnan(found.any())
    assert found.unique() is None
    assert found.count() == 1
    found.add(2)
    assert math.isnan(found.least())
    assert math.isnan(found.greatest())
    assert (found.any(), found.count(), found.unique()) == (2, 2, None)
    found.remove(math.nan)
    assert (found.least(), found.unique()) == (2, 2)


def test_a_number_that_stays_is_written_as_the_kinds_that_stay():
    found = of([1.0, 1])
    found.remove(1.0)
    assert repr(found.least()) == "1"
    found.replace(1, 1.0)
    assert repr(found.least()) == "1.0"


def test_values_that_were_kept_elsewhere_go_on_as_if_they_had_stayed():
    values = [1, 1.0, True, "1", "x", 2.5, None, 10**400, math.nan, ["7"]]
    moved = DistinctValues()
    moved.restore(of(values).state())
    while values:
        moved.remove(values.pop())
        left = of(values)
        assert (moved.least(), moved.count()) == (left.least(), left.count())
        assert repr(moved.greatest()) == repr(left.greatest())
