"""Masks against the filter itself, record by record."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.paths import parse_path
from sow.expressions import compile_filter
from sow.indexes import MemoColumn
from sow.indexes.vector_filter import (
    QUICK_TESTS_MAX,
    TESTS_MAX,
    ReadyTests,
    VectorFilter,
    cost_of_masks,
    effort_of,
    is_columnar,
)
from sow.messages import message_type
from tests.cases import all_cases
from tests.effort import examples
from tests.query.test_laws import FILTERS, VALUES

FIELDS = ["a", "b", "id"]
JSON = message_type("json")
RECORDS = st.lists(
    st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, VALUES)), min_size=1, max_size=20
)


def judged(text: str, records: list, wanted: bool = True) -> tuple[list, list, list]:
    """Where the outcome is said to be `wanted`, where not to know, and where it truly is."""
    condition = compile_filter(text)
    bodies = [json.dumps(record).encode() for record in records]
    columns = {path: MemoColumn(path, JSON.decoder((path,)), bodies) for path in condition.paths}
    for column in columns.values():
        column.refresh()
    judge = VectorFilter(columns, None, len(bodies))
    sure = judge.where(condition.expression, wanted)
    unsure = sure & False if judge.unsure is None else judge.unsure
    values = zip(*JSON.decoder(condition.paths).columns(bodies), strict=True)
    truth = [condition.truth(list(row)) is wanted for row in values]
    return sure.tolist(), unsure.tolist(), truth


@given(FILTERS.filter(lambda text: is_columnar(compile_filter(text).expression)), RECORDS)
@examples(48)
def test_a_judge_is_right_wherever_it_is_sure(text: str, records: list) -> None:
    for wanted in (True, False):
        for sure, unsure, truth in zip(*judged(text, records, wanted), strict=True):
            assert truth if sure else unsure or not truth


def test_plain_values_leave_no_doubt() -> None:
    records = [{"a": value} for value in (1, 2.5, "x", "5", "05", None, True, "")]
    for text in ("/a = 5", "/a > 'w'", "/a != '5'", "/a IN (1, 'x')", "/a BETWEEN 1 AND '6'"):
        sure, unsure, truth = judged(text, records)
        assert (sure, any(unsure)) == (truth, False)


def test_a_list_is_doubtful() -> None:
    assert judged("/a = 1", [{"a": [1]}, {"a": 1}])[:2] == ([False, True], [True, False])


def test_an_unfound_number_is_not_outside_a_list_that_holds_null() -> None:
    assert judged("NOT /a IN (1, NULL)", [{"a": 2}, {"a": 1}])[0] == [False, False]


def test_a_doubt_does_not_matter_where_another_test_is_sure() -> None:
    assert judged("/a = 1 OR /b = 2", [{"a": [1], "b": 2}])[0] == [True]


@all_cases(
    "text",
    [
        "/a = /b",
        "/a + /b > 3",
        "LENGTH(/a) = 1",
        "CONCAT(/a, /b) = 'x5'",
        "COALESCE(/a, 7) = 7",
        "2 IN (2, /a)",
        "2 NOT BETWEEN 5 AND /a",
        "'ab' BEGINS WITH ('a', /a)",
        "IF(/a = 'x', /b, 3) IN (3, 5)",
    ],
)
@all_cases("wanted", [True, False])
def test_what_is_calculated_of_plain_values_leaves_no_doubt(text: str, wanted: bool) -> None:
    values = (1, 2.5, "x", "5", "05", None, True, "", 2**53)
    records = [{"a": a, "b": b} for a in values for b in values] + [{}]
    sure, unsure, truth = judged(text, records, wanted)
    assert (sure, any(unsure)) == (truth, False)


def test_a_test_of_no_field_beside_others_holds_for_all() -> None:
    assert judged("/a = 1 OR 1 = 1", [{"a": 1}, {}])[0] == [True, True]


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("/a = 1", True),
        ("/a = 1 AND NOT /b LIKE 'x'", True),
        ("/a = /b", False),
        ("-/a = 1", False),
    ],
)
def test_few_plain_tests_are_quick(text: str, is_so: bool) -> None:
    assert effort_of(compile_filter(text).expression)[0] is is_so
    many = " OR ".join([text] * (QUICK_TESTS_MAX + 1))
    assert not effort_of(compile_filter(many).expression)[0]


def test_what_is_requested_by_values_costs_more() -> None:
    assert cost("/a + 1 > 2", "x") > 10 * cost("/a + 1 > 2", 5)
    assert cost("SIN(/a) > 2", 5) > 10 * cost("/a + 1 > 2", 5) > cost("/a > 2", 5)


def cost(text: str, value: object) -> int:
    condition, bodies = compile_filter(text), [json.dumps({"a": value}).encode()]
    column = MemoColumn(condition.paths[0], JSON.decoder(condition.paths), bodies)
    column.refresh()
    return cost_of_masks(condition.expression, {condition.paths[0]: column})


def test_a_test_is_made_ready_once() -> None:
    tests, test = ReadyTests(), compile_filter("-/a > 1").expression
    assert tests.calculation(test) is tests.calculation(test) is not None
    assert tests.filter(test, False) is tests.filter(test, False)
    assert tests.calculation(compile_filter("LENGTH(/a) > 1").expression) is None


def test_a_test_of_no_field_alone_is_not_for_columns() -> None:
    assert not is_columnar(compile_filter("1 = 1").expression)
    many = [
        " OR ".join([f"/a = {at}" for at in range(count)]) for count in (TESTS_MAX, TESTS_MAX + 1)
    ]
    assert [is_columnar(compile_filter(text).expression) for text in many] == [True, False]


def test_a_column_keeps_to_the_path_it_is_of() -> None:
    assert judged("/a[0] = 1", [{"a": [1, 2]}, {"a": [2, 1]}])[0] == [True, False]


def test_a_judge_of_some_slots_answers_for_these() -> None:
    path = parse_path("/a")
    bodies = [json.dumps({"a": value}).encode() for value in (1, 2, 3)]
    column = MemoColumn(path, JSON.decoder((path,)), bodies)
    column.refresh()
    judge = VectorFilter({path: column}, np.array([2, 0]), 3)
    assert judge.where(compile_filter("/a > 1").expression).tolist() == [True, False]
