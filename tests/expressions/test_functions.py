import pytest

from sow.errors import BadFilter, NotAvailable
from sow.expressions import compile_filter
from sow.expressions.functions import FUNCTIONS, FUNCTIONS_LATER


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_the_example_of_a_function_holds(name):
    example = FUNCTIONS[name].example
    assert name in example
    assert compile_filter(example).truth([True]) is True


@pytest.mark.parametrize("text", ["UPPER(/a) = 'X'", "upper(/a) = 'X'"])
def test_a_function_still_to_come_is_refused_by_name(text):
    with pytest.raises(NotAvailable, match="function UPPER is not available yet"):
        compile_filter(text)


def test_an_unknown_function_is_answered_with_the_nearest():
    with pytest.raises(BadFilter, match="did you mean TRUE_VALUE") as error:
        compile_filter("/a = TRUE_VALU()")
    assert error.value.position == 5


def test_an_unknown_function_like_no_other_is_answered_with_those_there_are():
    with pytest.raises(BadFilter, match="known are TRUE_VALUE, FALSE_VALUE"):
        compile_filter("XQZ9() = 1")


def test_arguments_that_a_function_does_not_take_are_refused():
    with pytest.raises(BadFilter, match=r"write TRUE_VALUE\(\)"):
        compile_filter("TRUE_VALUE(1)")


def test_nothing_is_both_built_and_still_to_come():
    assert not FUNCTIONS_LATER & FUNCTIONS.keys()
