"""Calculations against the filter itself and the naive reading of it, record by record."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.paths import Path
from sow.expressions import (
    And,
    Arithmetic,
    Between,
    Call,
    Compare,
    Identifier,
    In,
    IsNan,
    IsNull,
    Literal,
    Node,
    Not,
    Or,
    compile_filter,
    compile_term,
    paths_in,
    walk,
)
from sow.indexes import MemoColumn
from sow.indexes.vector_arithmetic import Calculation, can_calculate, cost_of
from sow.messages import message_type
from tests.effort import examples
from tests.expressions import naive

JSON = message_type("json")
PATHS = [Path(("a",)), Path(("b",)), Path(("c",))]
NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, 3, 0.0, -0.0, 0.5, 2.5, -7.5, 1.25, 2.675, 0.1, 1e300, 5e-324]),
    st.sampled_from([2**31, 2**52, 2**52 + 1, 2**53 - 1, -(2**53), 2**53 + 2, 2**60, 10**22]),
    st.integers(-20, 20),
    st.floats(allow_nan=False, allow_infinity=False),
)
VALUES = st.one_of(
    NUMBERS,
    NUMBERS,
    st.sampled_from([None, True, False, "", "5", "0x", "-1.5", 2**53 + 1, 10**40, [1], {"d": 1}]),
)
RECORDS = st.lists(
    st.fixed_dictionaries({}, optional={"a": VALUES, "b": NUMBERS, "c": VALUES}),
    min_size=1,
    max_size=8,
)
PARTS = st.one_of(
    st.sampled_from(PATHS).map(Identifier),
    NUMBERS.map(Literal),
    st.sampled_from([None, True, math.nan, math.inf, -math.inf]).map(Literal),
)
ONE = ["ABS", "CEILING", "FLOOR", "SIGN", "SQRT", "ROUND", "EXP", "LOG", "SIN", "LOG10", "ATAN"]
OPERATORS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


def some(parts: st.SearchStrategy, least: int = 1, most: int = 3) -> st.SearchStrategy:
    return st.lists(parts, min_size=least, max_size=most).map(tuple)


def calculated(parts: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(
        st.builds(Arithmetic, st.sampled_from("+-*/%"), parts, parts),
        st.builds(Call, st.sampled_from(ONE), st.tuples(parts)),
        st.builds(Call, st.just("ROUND"), st.tuples(parts, st.integers(-2, 17).map(Literal))),
        st.builds(Call, st.sampled_from(["GREATEST", "LEAST", "COALESCE"]), some(parts)),
        st.builds(Call, st.sampled_from(["POWER", "ROUND"]), st.tuples(parts, parts)),
        st.builds(Call, st.just("IF"), st.tuples(conditions(parts), parts, parts)),
        conditions(parts),
    )


def conditions(parts: st.SearchStrategy) -> st.SearchStrategy:
    return st.one_of(
        st.builds(Compare, OPERATORS, parts, parts),
        st.builds(Between, parts, parts, parts),
        st.builds(In, parts, some(parts)),
        st.builds(IsNull, parts),
        st.builds(IsNan, parts),
        st.builds(Not, st.builds(Compare, OPERATORS, parts, parts)),
        st.builds(And, several(parts)),
        st.builds(Or, several(parts)),
    )


def several(parts: st.SearchStrategy) -> st.SearchStrategy:
    return st.tuples(st.builds(Compare, OPERATORS, parts, parts), st.builds(IsNull, parts))


TESTS = conditions(st.recursive(PARTS, calculated, max_leaves=6))


def worked_out(test: Node, records: list) -> tuple[list, list, list, list]:
    """By record whether a test is true, false and unsure; and what it is by the compiled filter."""
    bodies = [json.dumps(record).encode() for record in records]
    columns = {path: MemoColumn(path, JSON.decoder((path,)), bodies) for path in paths_in(test)}
    for column in columns.values():
        column.refresh()
    found = Calculation(test).outcome(columns, np.arange(len(bodies)))
    condition = compile_term(test)
    rows = zip(*JSON.decoder(condition.paths).columns(bodies), strict=True)
    truth = [condition.truth(list(row)) for row in rows] if condition.paths else []
    return *[mask.tolist() for mask in found], truth  # type: ignore[return-value]


@given(TESTS, RECORDS)
@examples(45)
def test_sure_results_are_those_of_the_filter(test: Node, records: list) -> None:
    assert can_calculate(test)
    for true, false, unsure, truth in zip(*worked_out(test, records), strict=False):
        assert [true, false, unsure].count(True) <= 1
        assert unsure or (True if true else False if false else None) is truth


@given(TESTS, RECORDS)
@examples(45)
def test_sure_results_are_those_of_the_naive_reading(test: Node, records: list) -> None:
    known = {"ABS", "COALESCE", "IF"}
    if any(isinstance(part, Call) and part.name not in known for part in walk(test)):
        return
    paths = paths_in(test)
    for at, record in enumerate(records):
        body = json.dumps(record).encode()
        values = [column[0] for column in JSON.decoder(paths).columns([body])] if paths else []
        expected = naive.truth(test, dict(zip(paths, values, strict=True)))
        true, false, unsure, _ = worked_out(test, records)
        assert unsure[at] or (True if true[at] else False if false[at] else None) is expected


def doubts(text: str, *values: object) -> list[bool]:
    condition = compile_filter(text).expression
    return worked_out(condition, [{"a": value, "b": 1} for value in values])[2]


@pytest.mark.parametrize(
    "text",
    [
        "/a * 2 + /b > 3",
        "ABS(/a - 3) / 2 > 0.5",
        "ROUND(/a, 2) = 2.68",
        "FLOOR(/a) % 2 = 1",
        "SIN(/a) > 0",
        "IF(/a > 1, /a, -/a) IS NOT NULL",
    ],
)
def test_usual_numbers_leave_no_doubt(text: str) -> None:
    assert not any(doubts(text, 1, 2.675, -7, 0, None, True, "", 1e300))


def test_integers_that_a_double_may_not_hold_are_not_sure() -> None:
    assert doubts("/a + 1 > 0", 2**53 - 2, 2**53 - 1, 2**60) == [False, True, True]
    assert doubts("/a * /a > 0", 2**26, 2**27) == [False, True]
    assert doubts("/a / 3 > 0", 2**52, 2**53, float(2**53)) == [False, True, False]
    assert doubts("/a - 1.5 > 0", 2**53 - 2, 2**53, 2**60) == [False, False, False]


def test_what_is_no_number_is_not_sure() -> None:
    assert doubts("/a + 1 > 0", "5", [1], 2**53 + 1, None) == [True, True, True, False]


@pytest.mark.parametrize(
    "text", ["LENGTH(/a) > 1", "/a + '1' > 1", "/a = 9007199254740993", "CONCAT(/a, 1) = 1"]
)
def test_texts_and_integers_beyond_doubles_are_not_for_numpy(text: str) -> None:
    assert not can_calculate(compile_filter(text).expression)


def test_a_function_that_numpy_does_not_have_exactly_costs_more() -> None:
    sine, root = (compile_filter(f"{name}(/a) > 1").expression for name in ("SIN", "SQRT"))
    assert cost_of(sine) > 10 * cost_of(root)
