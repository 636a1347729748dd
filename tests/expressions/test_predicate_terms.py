"""By what a filter is found: the most selective of what must hold, and every arm of an OR."""

import pytest
from hypothesis import given

from sow.core.paths import Path
from sow.expressions import (
    PatternTerm,
    RangeTerm,
    ValueTerm,
    access_of,
    compile_filter,
    find_access,
)
from sow.expressions.predicate_terms import Access
from tests.cases import all_cases
from tests.expressions.strategies import expressions

A, B, C = Path(("a",)), Path(("b",)), Path(("c",))


@all_cases(
    ("text", "terms"),
    [
        ("/a = 'x'", [ValueTerm(A, ("x",))]),
        ("/a > 1", [RangeTerm(A, 1, None)]),
        ("1 > /a", [RangeTerm(A, None, 1)]),
        ("/a >= 1 AND /a < 3 AND /a > 2", [RangeTerm(A, 2, 3)]),
        ("/a > 1 AND /a < 'x'", [RangeTerm(A, 1, None)]),
        ("/a BETWEEN 1 AND 'x'", [RangeTerm(A, 1, None)]),
        ("/a BETWEEN 'm' AND 'x'", [RangeTerm(A, "m", "x")]),
        ("/a < NULL", [ValueTerm(A, ())]),
        ("/a BETWEEN 1 AND ''", [ValueTerm(A, ())]),
        ("/a LIKE 'son$'", [PatternTerm(A, "son$")]),
        ("/a > 1 AND /b = 'x'", [ValueTerm(B, ("x",))]),
        ("/a > 1 AND /b LIKE 'x'", [PatternTerm(B, "x")]),
        ("/a > 1 AND /b BETWEEN 1 AND 2", [RangeTerm(B, 1, 2)]),
        ("/a = 1 OR /b > 2 OR /a = 3", [ValueTerm(A, (1, 3)), RangeTerm(B, 2, None)]),
        ("(/a = 1 AND /b > 2) OR (/c LIKE 'x')", [ValueTerm(A, (1,)), PatternTerm(C, "x")]),
        ("(/a = 1 OR /b IS NULL) AND /c > 0", [RangeTerm(C, 0, None)]),
    ],
)
def test_a_filter_is_found_by(text, terms):
    access = find_access(compile_filter(text).conjuncts)
    assert access is not None
    assert list(access.terms) == terms


@pytest.mark.parametrize(
    "text", ["/a IS NULL", "NOT /a = 1", "/a != 1", "/a = /b", "/a = 1 OR /b IS NULL", "1 = 1"]
)
def test_a_filter_is_not_found_by(text):
    assert find_access(compile_filter(text).conjuncts) is None


def test_what_is_left_is_all_that_the_terms_do_not_stand_for():
    access = find_access(compile_filter("/b = 1 AND /a > 2 AND /a < 5").conjuncts)
    assert [str(node) for node in access.rest] == ["/a > 2", "/a < 5"]
    again = find_access(access.rest)
    assert again == Access([RangeTerm(A, 2, 5)], [])
    assert find_access(again.rest) is None


def test_a_pattern_that_takes_long_to_make_is_not_looked_for_with_others():
    assert find_access(compile_filter("/a LIKE '(x{1,30}){1,15}'").conjuncts) is None
    assert find_access(compile_filter(f"/a LIKE '{'x' * 600}'").conjuncts) is None


def test_what_nests_as_deep_as_it_may_can_be_found():
    text = "/a = 0"
    for level in range(1, 62):
        text = f"(/a = {level} OR ({text} AND /b > {level}))"
    access = find_access(compile_filter(text, depth_max=250).conjuncts)
    assert len(access.terms) == 1
    assert len(access.terms[0].values) == 62


@given(expressions)
def test_it_is_the_same_every_time(expression):
    assert find_access((expression,)) == find_access((expression,))


def test_what_finds_a_filter_is_found_once_however_many_topics_it_is_filed_for(monkeypatch):
    condition = compile_filter("/a = 1 AND /b > 2")
    found = access_of(condition)
    monkeypatch.setattr("sow.expressions.predicate_terms.find_access", lambda _conditions: 1 / 0)
    assert access_of(condition) is found
    monkeypatch.undo()
    assert found.further == find_access(found.rest)
    assert found.further is found.further
    assert access_of(compile_filter("/a IS NULL")) is None
