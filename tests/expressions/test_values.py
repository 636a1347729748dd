"""Comparison and arithmetic of values, NULL and numbers that only look like text included."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.expressions.values import (
    ARITHMETIC,
    CALCULATIONS,
    COMPARISONS,
    DIGITS_MAX,
    Members,
    any_of,
    as_number,
    as_text,
    between,
    compare,
    first,
    is_null,
    number,
    text,
)

NUMBERS = (-math.inf, -2.5, -1.0, 0.0, 1.0, 2.0, 3.5, math.inf)
PAIRS = list(itertools.product((*NUMBERS, math.nan), repeat=2))


@pytest.fixture(params=COMPARISONS)
def comparison(request):
    return COMPARISONS[request.param]


def test_arrays_are_compared_like_single_numbers(comparison):
    one, other = np.array(PAIRS).T
    assert comparison.holds(one, other).tolist() == [comparison.holds(*pair) for pair in PAIRS]


def test_the_source_gives_the_same_but_for_nan(comparison):
    run = eval(f"lambda one, other: one {comparison.source} other")
    for pair in [
        *itertools.product(NUMBERS, repeat=2),
        *itertools.product(("", "a", "b"), repeat=2),
    ]:
        assert run(*pair) is comparison.holds(*pair)


def test_it_is_false_of_nan_and_so_is_its_opposite(comparison):
    opposite = COMPARISONS[comparison.opposite]
    for pair in PAIRS:
        is_nan = any(map(math.isnan, pair))
        assert comparison.holds(*pair) + opposite.holds(*pair) == (not is_nan)


def test_the_mirrored_one_takes_its_sides_exchanged(comparison):
    mirrored = COMPARISONS[comparison.mirrored]
    assert COMPARISONS[mirrored.mirrored] is comparison
    for one, other in PAIRS:
        assert mirrored.holds(other, one) is comparison.holds(one, other)


def test_it_is_known_of_a_lesser_left_side(comparison):
    assert comparison.of_lesser is comparison.holds(1, 2) is comparison.holds("", "a")


@pytest.mark.parametrize("symbol", [s for s, one in CALCULATIONS.items() if one.is_elementwise])
def test_what_is_elementwise_is_the_operator_of_doubles_and_of_arrays(symbol):
    run, source = CALCULATIONS[symbol].run, eval(f"lambda one, other: one {symbol} other")
    one, other = np.array(PAIRS).T
    with np.errstate(all="ignore"):
        found = run(one, other)
    for at, pair in enumerate(PAIRS):
        assert repr(float(found[at])) == repr(run(*pair)) == repr(source(*pair))


@pytest.mark.parametrize(
    ("one", "symbol", "other", "result"),
    [
        (7, "/", 2, 3),
        (-7, "/", 2, -3),
        (7, "/", 0, None),
        (7.0, "/", 2, 3.5),
        (-7, "%", 2, -1),
        (7, "%", 0, None),
        (7.5, "%", 2, 1.5),
    ],
)
def test_integers_are_divided_towards_zero(one, symbol, other, result):
    assert repr(CALCULATIONS[symbol].run(one, other)) == repr(result)


@pytest.mark.parametrize("symbol", ["/", "%"])
def test_a_double_divided_by_nothing_is_nan(symbol):
    assert math.isnan(CALCULATIONS[symbol].run(1.0, 0))


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


NAN = float("nan")
INFINITY = float("inf")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5),
        ("-5", -5),
        ("+5", 5),
        ("5.0", 5.0),
        ("5.", 5.0),
        (".5e1", 5.0),
        ("1e999", INFINITY),
        ("9" * 2000, INFINITY),
    ],
)
def test_decimal_text_is_a_number(text, number):
    assert as_number(text) == number


@pytest.mark.parametrize("text", ["", "-", ".", "abc", "nan", "inf", "1_000", "0x10", " 5", "٥"])
def test_other_text_is_no_number(text):
    assert as_number(text) is None


def test_integers_compare_exactly():
    assert compare("<", 2**63, 2**63 + 1) is True
    assert compare("=", 2**53 + 1, float(2**53)) is False
    assert compare("=", str(2**63 + 1), 2**63 + 1) is True


def test_zero_has_no_sign():
    assert compare("=", -0.0, 0) is True


@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("other", [NAN, 1, 1.5, "1", "abc", True])
def test_every_comparison_with_nan_is_false(operator, other):
    assert compare(operator, NAN, other) is False
    assert compare(operator, other, NAN) is False


def test_a_string_that_is_no_number_is_above_infinity():
    assert compare(">", "abc", INFINITY) is True
    assert compare("=", "abc", INFINITY) is False


@pytest.mark.parametrize(
    ("outcomes", "result"),
    [
        ([], None),
        ([False], False),
        ([None, False], None),
        ([False, None], None),
        ([None, True], True),
    ],
)
def test_any_of_is_sql_or(outcomes, result):
    assert any_of(outcomes) is result


def test_between_wants_one_element_within_both_bounds():
    assert between([1, 9], 3, 5) is False
    assert between([1, 4, 9], 3, 5) is True
    assert between(4, None, 3) is False
    assert between(4, None, 5) is None


@pytest.mark.parametrize("value", [None, "", [], [None, ""]])
def test_nothing_is_null(value):
    assert is_null(value)


@pytest.mark.parametrize("value", [0, False, " ", [None, 0], NAN])
def test_anything_is_not_null(value):
    assert not is_null(value)


def test_the_text_of_a_boolean_is_a_digit():
    assert [as_text(value) for value in (True, 12, 1.5, "x")] == ["1", "12", "1.5", "x"]


scalars = st.sampled_from([None, "", "a", "5", "5.0", "05", 5, 5.0, 5.5, True, 1, "1", "x", 2**70])
any_values = scalars | st.lists(scalars, max_size=3)


@given(any_values, st.lists(scalars, min_size=1, max_size=4))
def test_members_are_what_equals_one_of_the_literals(value, literals):
    chain = any_of([compare("=", value, literal) for literal in literals])
    assert Members(literals).contain(value) == chain


@pytest.mark.parametrize(
    ("value", "outcome"),
    [("5", True), ("05", True), (5.0, True), ("a", True), ("b", False), (None, None), ([], None)],
)
def test_numbers_and_their_spellings(value, outcome):
    assert Members([5, "a"]).contain(value) is outcome


def test_beside_null_nothing_is_surely_outside():
    assert Members([5, None]).contain(6) is None
    assert Members([5, None]).contain(5) is True
    assert Members([5, ""]).contain("x") is None


def test_a_list_is_in_if_any_element_is():
    assert Members([5]).contain([4, "5"]) is True
    assert Members([5]).contain([4, None]) is None
    assert Members([5]).contain([4, 6]) is False
