import pytest

from sow.expressions import compile_filter, compile_term, equalities_of
from sow.paths import Path

A, B, C = Path(("a",)), Path(("b",)), Path(("c",))


def test_paths_are_distinct_and_in_the_order_of_the_text():
    assert compile_filter("/b = 1 AND (/a = 2 OR /b = 3) AND /c IN (/a)").paths == (B, A, C)


def test_a_batch_is_answered_from_columns():
    compiled = compile_filter("/a = 'x' AND /b > 10")
    assert compiled.matches([["x", "x", "y"], [11, 9.5, 12]], 3) == [True, False, False]


@pytest.mark.parametrize(("text", "matches"), [("1 = 1", True), ("1 = 2", False), ("NULL", False)])
def test_a_filter_without_paths_answers_for_the_count(text, matches):
    assert compile_filter(text).matches([], 3) == [matches] * 3


def test_an_empty_batch_has_no_matches():
    assert compile_filter("/a = 1 AND /b = 2").matches([[], []], 0) == []


def test_matches_are_booleans_even_where_the_outcome_is_unknown():
    assert compile_filter("/a > 5").matches([[None, "", [], [9], "z", 6]], 6) == [
        *[False, False, False],
        *[True, True, True],
    ]


def test_conjuncts_reach_through_parentheses_and_not_into_or():
    compiled = compile_filter("(/a = 1 AND (/b = 2 AND /c = 3)) AND (/a = 4 OR /b = 5)")
    texts = [str(term) for term in compiled.conjuncts]
    assert texts == ["/a = 1", "/b = 2", "/c = 3", "/a = 4 OR /b = 5"]


def test_a_conjunct_can_be_compiled_on_its_own():
    term = compile_term(compile_filter("/a = 1 AND /b LIKE 'x'").conjuncts[1])
    assert (term.text, term.paths) == ("/b LIKE 'x'", (B,))
    assert term.matches([["xy", "z"]], 2) == [True, False]


@pytest.mark.parametrize(
    ("text", "equalities"),
    [
        ("/a = 'x'", {A: ("x",)}),
        ("5 = /a AND /b > 1", {A: (5,)}),
        ("/a IN ('x', 2, 'x') AND /b = 1.5", {A: ("x", 2), B: (1.5,)}),
        ("/a = TRUE_VALUE()", {A: (1,)}),
        ("/a IN ('x', NULL, '')", {A: ("x",)}),
        ("/a = NULL", {A: ()}),
        ("/a IN (1, 2) AND /a = 2", {A: (2,)}),
        ("/a = 1 OR /b = 2", {}),
        ("/a IN (1, /b)", {}),
        ("NOT /a = 1", {}),
        ("/a != 1 AND /b LIKE 'x' AND /c = /a", {}),
    ],
)
def test_equalities_are_what_conjuncts_pin_paths_to(text, equalities):
    assert dict(equalities_of(compile_filter(text).conjuncts)) == equalities


def test_zero_and_booleans_are_pinned_as_plain_numbers():
    pinned = equalities_of(compile_filter("/a = -0.0 AND /b = TRUE_VALUE()").conjuncts)
    assert [repr(values) for values in pinned.values()] == ["(0.0,)", "(1,)"]


def test_client_text_never_becomes_code():
    text = "/a = '\\'); import os #' OR [/b); raise SystemExit #] = 1"
    assert compile_filter(text).matches([["x"], [1]], 1) == [True]


def test_filters_of_one_form_share_their_code_and_not_their_literals():
    one, other = compile_filter("/a = 'x' AND /b > 1"), compile_filter("/c = 'y' AND /d > 2")
    assert one._matches.__code__ is other._matches.__code__
    assert one.matches([["x", "y"], [2, 3]], 2) == [True, False]
    assert other.matches([["x", "y"], [2, 3]], 2) == [False, True]


def test_every_filter_so_far_depends_on_the_record_alone():
    assert compile_filter("/a = 1").deterministic


def test_a_filter_shows_its_text():
    assert repr(compile_filter("/a=1")) == "Filter('/a=1')"
