"""Masks against the filter itself, record by record."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sow.expressions import compile_filter
from sow.indexes import MemoColumn
from sow.indexes.masks import Masks, is_columnar
from sow.messages import message_type
from sow.paths import parse_path
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
    judge = Masks(columns, None, len(bodies))
    sure = judge.where(condition.expression, wanted)
    unsure = sure & False if judge.unsure is None else judge.unsure
    values = zip(*JSON.decoder(condition.paths).columns(bodies), strict=True)
    truth = [condition.truth(list(row)) is wanted for row in values]
    return sure.tolist(), unsure.tolist(), truth


@given(FILTERS.filter(lambda text: is_columnar(compile_filter(text).expression)), RECORDS)
@settings(max_examples=400, deadline=None)
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


def test_a_test_of_two_fields_is_not_for_columns() -> None:
    assert not is_columnar(compile_filter("/a = 1 AND /a = /b").expression)


@pytest.mark.parametrize(
    "text", ["2 IN (2, /a)", "2 NOT BETWEEN 5 AND /a", "'ab' BEGINS WITH ('a', /a)"]
)
def test_what_is_true_of_a_field_without_a_value_is_not_for_columns(text: str) -> None:
    filter_ = compile_filter(text)
    assert filter_.holds([None])
    assert not is_columnar(filter_.expression)


def test_a_test_of_no_field_alone_is_not_for_columns() -> None:
    assert not is_columnar(compile_filter("1 = 1").expression)


def test_a_column_keeps_to_the_path_it_is_of() -> None:
    assert judged("/a[0] = 1", [{"a": [1, 2]}, {"a": [2, 1]}])[0] == [True, False]


def test_a_judge_of_some_slots_answers_for_these() -> None:
    path = parse_path("/a")
    bodies = [json.dumps({"a": value}).encode() for value in (1, 2, 3)]
    column = MemoColumn(path, JSON.decoder((path,)), bodies)
    column.refresh()
    judge = Masks({path: column}, np.array([2, 0]), 3)
    assert judge.where(compile_filter("/a > 1").expression).tolist() == [True, False]
