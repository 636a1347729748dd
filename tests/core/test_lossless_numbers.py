import pickle
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from sow.core.lossless_numbers import NUMBER_CHARS_MAX, LosslessNumber, number, written
from tests.cases import all_cases

numbers = st.from_regex(
    r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?", fullmatch=True
)


@given(numbers)
def test_a_number_is_written_as_it_came(text):
    value = number(text)
    assert (str(value) if isinstance(value, int) else written(value)) == text
    assert float(value) == float(text)


@given(numbers)
def test_whether_a_double_is_the_number(text):
    exact = Decimal(text)
    near = float(text)
    is_double = exact in (Decimal(near), Decimal(repr(near)))
    assert LosslessNumber(text).is_double == is_double


@given(st.integers())
def test_whole_numbers_are_integers_of_any_size(value):
    assert number(str(value)) == value
    assert type(number(str(value))) is int


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_python_writes_alike_is_a_float(value):
    assert type(number(repr(value))) is float


@all_cases(
    "text", ["", "x", "01", "+1", "1.", ".5", "1e", "NaN", "Infinity", "1e999", "1 ", "١", "1_0"]
)
def test_what_json_does_not_call_a_number_is_none(text):
    assert number(text) is None


def test_a_number_has_an_end():
    assert number("9" * NUMBER_CHARS_MAX) == 10**NUMBER_CHARS_MAX - 1
    assert number("9" * (NUMBER_CHARS_MAX + 1)) is None
    assert number("0." + "9" * 10_000_000) is None


def test_the_minus_of_nothing_stays():
    assert written(number("-0")) == "-0"
    assert written(number("-0.0")) == "-0.0"


def test_digits_calculate_and_compare_as_the_double():
    assert LosslessNumber("1.10") == 1.1
    assert LosslessNumber("1.10") + 1 == 2.1
    assert type(LosslessNumber("1.10") + 0) is float


def test_digits_survive_a_pickle():
    assert pickle.loads(pickle.dumps(LosslessNumber("1.10"))).text == "1.10"
