"""Exact sums: rounded once, whatever the numbers."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.lossless_numbers import LosslessNumber
from sow.topic.views.exact_sum import ExactSum, quotient, root_of_quotient
from tests.cases import all_cases


def of(values, squared=False):
    total = ExactSum(squared)
    for value in values:
        total.add(value)
    return total


@all_cases(
    ("values", "total"),
    [
        ([], None),
        ([None, "", []], None),
        ([0.1] * 10, 1.0),
        ([1e16, 1.0, -1e16], 1.0),
        ([2**60, 1], 2**60 + 1),
        ([10**400, -(10**400), 0.5], 0.5),
        ([True, "2", ["3", 9]], 6),
        ([1.7e308, 1.7e308], math.inf),
        ([5e-324, 1.7e308, -1.7e308], 5e-324),
        ([math.inf, 1], math.inf),
        ([LosslessNumber("1.50"), 1], 2.5),
    ],
)
def test_a_sum_is_exact(values, total):
    assert repr(of(values).total()) == repr(total)


@pytest.mark.parametrize("values", [["word", 1], [math.nan], [math.inf, -math.inf]])
def test_what_is_no_number_makes_it_none_until_it_goes(values):
    total = of([2.5, *values])
    assert math.isnan(total.total())
    assert math.isnan(total.average())
    for value in values:
        total.remove(value)
    assert total.total() == 2.5


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=6))
def test_a_value_that_becomes_another_is_as_one_that_comes_and_one_that_goes(values):
    one, other = of(values), of(values)
    for was, now in zip(values, reversed(values), strict=True):
        one.replace(was, now)
        other.add(now)
        other.remove(was)
        assert repr(one.total()) == repr(other.total())


@given(st.integers(0, 10**60), st.integers(1, 10**60))
def test_a_root_is_the_nearest_double(numerator, denominator):
    root = root_of_quotient(numerator, denominator)
    exact = Fraction(numerator, denominator)
    below, above = (Fraction(math.nextafter(root, to)) for to in (-math.inf, math.inf))
    # Half way to its neighbours on either side.
    assert ((below + Fraction(root)) / 2) ** 2 <= exact or root == 0
    assert exact <= ((Fraction(root) + above) / 2) ** 2


def test_a_quotient_beyond_all_doubles_is_an_infinity():
    assert quotient(10**400, 1) == math.inf
    assert quotient(-(10**400), 1) == -math.inf


@pytest.mark.parametrize("squared", [False, True])
@given(st.lists(st.floats() | st.integers()), st.lists(st.floats() | st.integers()))
def test_a_sum_that_was_kept_elsewhere_goes_on_as_if_it_had_stayed(squared, before, after):
    stayed, moved = of(before, squared), ExactSum(squared)
    moved.restore(stayed.state())
    for value in after:
        stayed.add(value)
        moved.add(value)
    for value in before:
        stayed.remove(value)
        moved.remove(value)
    assert moved.state() == stayed.state()
    assert repr(moved.total()) == repr(stayed.total()) == repr(of(after).total())
