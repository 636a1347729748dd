"""Nodes: their text, whose law is in `test_laws.py`, and that they are walked without recursion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.paths import Path
from sow.expressions.message_attributes import Trait
from sow.expressions.nodes import (
    And,
    Between,
    Compare,
    Identifier,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    below,
    conjuncts,
    walk,
)
from sow.expressions.parser import parse
from tests.cases import all_cases

A, B = Identifier(Path(("a",))), Identifier(Path(("b",)))
ONE = Literal(1)
A1, B1 = Compare("=", A, ONE), Compare("=", B, ONE)


@all_cases(
    ("node", "text"),
    [
        (Identifier(Path(("a b", "c"), 2)), "[/a b/c][2]"),
        (Identifier(Path(("a b",)), "PREVIOUS"), "[/a b] OF PREVIOUS"),
        (Literal("it's\\"), r"'it\'s\\'"),
        (Literal(float("-inf")), "-1e999"),
        (Literal(False), "FALSE_VALUE()"),
        (Literal(None), "NULL"),
        (Between(A, ONE, B), "/a BETWEEN 1 AND /b"),
        (In(A, (ONE, B)), "/a IN (1, /b)"),
        (Like(A, Literal("x$")), "/a LIKE 'x$'"),
        (Not(Or((A1, B1))), "NOT (/a = 1 OR /b = 1)"),
        (And((A1, Or((B1, IsNull(A))))), "/a = 1 AND (/b = 1 OR /a IS NULL)"),
    ],
)
def test_texts(node, text):
    assert str(node) == text


def test_where_a_node_stood_does_not_make_it_another():
    assert Literal(1, position=3) == Literal(1, position=9)
    assert hash(Literal(1, position=3)) == hash(Literal(1))


def test_a_walk_meets_the_parts_in_the_order_of_the_text():
    assert list(walk(And((A1, Not(In(B, (ONE,))))))) == [
        And((A1, Not(In(B, (ONE,))))), A1, A, ONE, Not(In(B, (ONE,))), In(B, (ONE,)), B, ONE
    ]  # fmt: skip


def test_neither_walk_nor_depth_can_run_out_of_stack():
    node = A1
    for _ in range(20_000):
        node = Not(node)
    assert sum(1 for _ in walk(node)) == 20_003
    assert below(node, 20_000) == A1
    assert below(node, 20_001) is None


@pytest.mark.parametrize(("levels", "found"), [(0, Not(Not(A1))), (1, Not(A1)), (2, A1), (3, None)])
def test_values_are_no_level(levels, found):
    assert below(Not(Not(A1)), levels) == found


def test_what_must_all_hold_is_found_through_ands_only():
    assert conjuncts(And((A1, And((B1, IsNull(A)))))) == (A1, B1, IsNull(A))
    assert conjuncts(Or((A1, B1))) == (Or((A1, B1)),)
    assert conjuncts(A1) == (A1,)


@given(st.recursive(st.just(A1), lambda inner: st.lists(inner, min_size=2).map(tuple).map(And)))
def test_conjuncts_are_no_ands(node):
    assert not any(isinstance(term, And) for term in conjuncts(node))


def test_literals_are_equal_if_they_are_written_alike():
    values = [1, 1.0, True, "1", 0, 0.0, -0.0, False, None, "", float("inf")]
    literals = [Literal(value) for value in values]
    assert len(set(literals)) == len(values)
    assert literals == [Literal(value, position=7) for value in values]
    assert Literal(float("nan")) == Literal(float("nan"))


@all_cases(
    ("text", "is_flat", "is_everywhere"),
    [
        ("/a = 1 AND (/b IN (1, 2) OR NOT SOW_KEY() LIKE 'x')", True, True),
        ("/a + 1 = 2", False, True),
        ("LENGTH(/a) = 2", False, False),
        ("(/a = 1) = (/b = 1)", False, True),
    ],
)
def test_what_a_node_consists_of_is_found_once(text, is_flat, is_everywhere):
    found = parse(text)
    contents = found.contents
    assert (contents.is_flat, contents.is_everywhere) == (is_flat, is_everywhere)
    assert contents.parts == len(walk(found))
    assert found.contents is contents


def test_contents_stand_in_the_order_of_the_text_and_refer_to_no_node():
    found = parse("/b = 1 AND SOW_KEY() = /a AND /b > 2")
    assert [str(path) for path in found.contents.paths] == ["/b", "/a"]
    assert found.contents.traits == (Trait.SOW_KEY,)
    assert not [part for part in walk(found)[1:] if "contents" in vars(part)]
