"""The makers of functions: what each argument counts as, and NULL where it is none."""

from sow.expressions.function import (
    TEXT_CHARS_MAX,
    bounded,
    of_number,
    of_numbers,
    of_text,
    of_texts,
)


def test_numbers_are_looked_for_in_text_and_lists():
    double = of_number(lambda one: one * 2)
    assert [double(value) for value in (2, 2.5, "3", [4, 5], True)] == [4, 5.0, 6, 8, 2]
    assert [double(value) for value in (None, "", "x", [])] == [None] * 4


def test_what_has_no_result_is_null():
    assert of_number(lambda one: 10.0**one)(1000) is None
    assert of_numbers(lambda one, other: one // other)(1, 0) is None
    assert of_numbers(lambda one, other: one + other)(1, "x") is None


def test_everything_but_null_is_text():
    assert of_text(len)(12.5) == 4
    assert of_text(len)("") is None
    assert of_texts(lambda one, other: one + other)(True, ["a", "b"]) == "1a"
    assert of_texts(lambda one, other: one + other)("a", None) is None


def test_a_text_that_is_too_long_is_null():
    assert bounded("x" * TEXT_CHARS_MAX)
    assert bounded("x" * (TEXT_CHARS_MAX + 1)) is None
