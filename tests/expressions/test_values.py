"""Arithmetic over values, NULL and numbers that only look like text included."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.expressions.values import ARITHMETIC, DIGITS_MAX, first, number, text

values = st.sampled_from([None, "", "a", "5", " 5", 5, 2.5, True, [], [None, 3], ["7", 1], -3])
whole = st.integers(-(10**6), 10**6)


def calculate(symbol, left, right):
    return ARITHMETIC[symbol](left, right)


@pytest.mark.parametrize(
    ("value", "scalar", "as_number", "as_text"),
    [
        (None, None, None, None),
        ("", None, None, None),
        ("12", "12", 12, "12"),
        ("abc", "abc", None, "abc"),
        (True, True, 1, "1"),
        (2.0, 2.0, 2.0, "2.0"),
        ([], None, None, None),
        (["7", 1], "7", 7, "7"),
        ([None, 3], None, None, None),
    ],
)
def test_what_a_value_counts_as(value, scalar, as_number, as_text):
    assert (first(value), number(value)) == (scalar, as_number)
    assert text(value) == as_text


@given(st.sampled_from("+-*/%"), values)
def test_null_makes_null(symbol, value):
    assert calculate(symbol, None, value) is None
    assert calculate(symbol, value, "no number") is None


@given(whole, whole.filter(bool))
def test_division_of_integers_goes_towards_zero(one, other):
    quotient, rest = calculate("/", one, other), calculate("%", one, other)
    assert quotient == math.trunc(one / other)
    assert quotient * other + rest == one
    assert rest == 0 or (rest < 0) == (one < 0)


def test_division_by_zero_is_null_for_integers_and_nan_for_doubles():
    assert calculate("/", 1, 0) is None
    assert calculate("%", 1, 0) is None
    assert math.isnan(calculate("/", 1.5, 0))
    assert math.isnan(calculate("%", 1.5, 0))


def test_what_is_too_large_for_a_double_is_infinite():
    assert calculate("*", 10**400, 1.5) == math.inf


def test_whole_numbers_that_grow_without_end_go_on_as_doubles():
    large = 10 ** (DIGITS_MAX - 1)
    assert calculate("*", large, 3) == 3 * large
    assert calculate("*", large, large) == math.inf
    assert calculate("*", -large, large) == -math.inf


@given(st.sampled_from("+-*/%"), st.floats() | whole, st.floats() | whole)
def test_no_numbers_are_refused(symbol, one, other):
    assert isinstance(calculate(symbol, one, other), int | float | None)
