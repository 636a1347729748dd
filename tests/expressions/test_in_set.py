"""An IN list answers as the chain of equalities that it stands for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.expressions.compare import any_of, compare
from sow.expressions.in_set import Members

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
