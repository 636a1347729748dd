"""What filters usually look for costs little, what makes RE2 make states all the time more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.expressions.pattern_costs import (
    ENDLESS,
    SLOW_FACTOR,
    free_positions,
    is_simple,
    search_cost,
)
from sow.expressions.patterns import steps_of
from tests.cases import all_cases


@all_cases(
    ("pattern", "free"),
    [
        ("", 0),
        ("abc", 0),
        ("^abc$", 0),
        ("a.*b", 1),
        ("AB.*CD|EF", 1),
        ("one|two|three|four|five|six|seven|eight|nine|ten", 0),
        ("^(EUR|USD|GBP)/(JPY|CHF)$", 2),
        ("(?i)apple", 0),
        (r"[A-Z]{3}-\d{4}", 7),
        (r"a\{3\}\.\[b\]", 0),
        (r"\pL\p{Greek}[[:alpha:]]", 3),
        (r"[^\]]x[]a]", 2),
        ("(?P<n>a.)b", 1),
        ("[ab]?[ab]?[ab]?", 3),
        ("a{3}", 3),
        ("a{2,}", 2),
        (".{0}", 1),
        ("a[ab]{10}c", 10),
        ("(a|b)*a(a|b){15}[cd]", 17),
        ("((a|b){5}){6}", 30),
        ("(a.{0,20}b.{0,20}){1,4}c", 160),
        ("((((.{1000}){1000}){1000}){1000})", ENDLESS),
        ("()((", 0),
        (")a{2}", 2),
    ],
)
def test_what_takes_more_than_one_character_is_free_as_often_as_it_is_repeated(pattern, free):
    assert free_positions(pattern) == free


@given(st.text(r"ab.[]{}()|*+?,\^$19-:pP", max_size=40))
def test_any_text_has_an_answer(pattern):
    assert 0 <= free_positions(pattern) <= ENDLESS


@pytest.mark.parametrize("pattern", ["^ab.*c", "one|two", r"[A-Z]{3}\d{5}"])
def test_a_simple_pattern_costs_its_steps(pattern):
    assert is_simple(pattern)
    assert search_cost(pattern) == steps_of(pattern)


@pytest.mark.parametrize("pattern", ["a[ab]{9}c", "(a|b)*a(a|b){15}", ".{9}"])
def test_another_one_costs_many_times_as_much(pattern):
    assert not is_simple(pattern)
    assert search_cost(pattern) == SLOW_FACTOR * steps_of(pattern)
