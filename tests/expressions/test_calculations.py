"""Arithmetic and functions over values, NULL and numbers that only look like text included."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.expressions.calculations import CALCULATIONS, calculate, first, number, text

values = st.sampled_from([None, "", "a", "5", " 5", 5, 2.5, True, [], [None, 3], ["7", 1], -3])
whole = st.integers(-(10**6), 10**6)


def run(name, *arguments):
    return CALCULATIONS[name].run(*arguments)


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


@pytest.mark.parametrize("name", CALCULATIONS)
@given(data=st.data())
def test_no_function_raises_whatever_it_is_given(name, data):
    found = CALCULATIONS[name]
    count = data.draw(st.integers(found.least, min(found.most, found.least + 2)))
    result = run(name, *[data.draw(values) for _ in range(count)])
    assert result is None or isinstance(result, str | int | float | list)


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("SUBSTR", ("fandango", -3), "ngo"),
        ("SUBSTR", ("fandango", 2, 3), "and"),
        ("SUBSTR", ("fandango", -99, 3), "fan"),
        ("SUBSTR", ("fandango", 2, -1), ""),
        ("ROUND", (25, -1), 20),
        ("ROUND", (7, 2), 7),
        ("LENGTH", ("é",), 2),
        ("UPPER", ("aé",), "Aé"),
        ("LOWER", ("AÉ",), "aÉ"),
        ("SQRT", (-1,), None),
        ("POWER", (0, -1), None),
        ("POWER", (10, 400), None),
        ("GREATEST", (None, "a"), None),
        ("LEAST", ("10", 9), 9),
        ("ARRAY_SUM", ([],), 0),
        ("ARRAY_COUNT", ([None, 1],), 1),
        ("IF", (None, "yes", "no"), "no"),
        ("COALESCE", ("", [], 0), 0),
        ("INSTR", ("abc", "x"), 0),
        ("CEILING", (math.inf,), None),
    ],
)
def test_edges(name, arguments, result):
    assert run(name, *arguments) == result
