import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.expressions.compare import Members, any_of, as_number, as_text, between, compare, is_null
from tests.cases import all_cases

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


@all_cases("text", ["", "-", ".", "abc", "nan", "inf", "1_000", "0x10", " 5", "٥"])
def test_other_text_is_no_number(text):
    assert as_number(text) is None


def test_integers_compare_exactly():
    assert compare("<", 2**63, 2**63 + 1) is True
    assert compare("=", 2**53 + 1, float(2**53)) is False
    assert compare("=", str(2**63 + 1), 2**63 + 1) is True


def test_zero_has_no_sign():
    assert compare("=", -0.0, 0) is True


@all_cases("operator", ["=", "!=", "<", "<=", ">", ">="])
@all_cases("other", [NAN, 1, 1.5, "1", "abc", True])
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
values = scalars | st.lists(scalars, max_size=3)


@given(values, st.lists(scalars, min_size=1, max_size=4))
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
