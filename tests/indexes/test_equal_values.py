"""The values that equal a literal are those that the rules of `=` say, none more and none fewer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.expressions import compare
from sow.indexes.equal_values import (
    Spellings,
    equal_values,
    number_forms,
    unusual_number,
    usual_texts,
)

LITERALS = [5, 5.0, "5", "5.0", "05", "5e0", 0, -0.0, "-0", 0.5, "a", 2**70, 1e300, float("inf")]
singles = st.sampled_from([*LITERALS, None, "", True, " 5", "+5", "٥"])
values = singles | st.lists(singles, max_size=3).map(tuple)


@given(st.lists(values), st.sampled_from(LITERALS))
def test_a_dictionary_finds_what_comparing_finds(noted, literal):
    spellings = Spellings()
    for value in noted:
        spellings.note(value)
    found = spellings.equal(literal)
    for value in noted:
        as_field = list(value) if isinstance(value, tuple) else value
        assert (value in found) == (compare("=", as_field, literal) is True), value


@given(st.lists(values), st.lists(values), st.sampled_from(LITERALS))
def test_what_is_forgotten_equals_nothing_any_more(kept, noted, literal):
    spellings, others = Spellings(), Spellings()
    for value in kept:
        others.note(value)
    for value in (*noted, *kept):
        spellings.note(value)
    for value in noted:
        spellings.forget(value)
    assert spellings.equal(literal) == others.equal(literal)


@pytest.mark.parametrize("literal", [None, ""])
def test_nothing_equals_null(literal):
    assert equal_values(literal) == []
    assert Spellings().equal(literal) == set()


@pytest.mark.parametrize(
    ("number", "forms"),
    [(5, [5, 5.0]), (5.0, [5, 5.0]), (0.5, [0.5]), (2**53 + 1, [2**53 + 1]), (10**400, [10**400])],
)
def test_a_number_has_its_forms(number, forms):
    assert [(type(form), form) for form in number_forms(number)] == [(type(f), f) for f in forms]


def test_usual_texts_are_what_programs_write():
    assert usual_texts(5) == ["5", "5.0"]
    assert usual_texts(0.5) == ["0.5"]


@pytest.mark.parametrize(
    ("text", "number"),
    [("5", None), ("5.0", None), ("05", 5), ("5e0", 5), ("5.00", 5), ("a", None), ("", None)],
)
def test_only_unusual_spellings_are_noted(text, number):
    assert unusual_number(text) == number
