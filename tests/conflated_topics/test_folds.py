"""One column folded by each operation, beside plain Python over each group's values."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conflated_topics.folds import (
    CHOICES,
    DOCUMENTS,
    RECORDED_OPERATIONS,
    Groups,
    accumulator,
    fold,
    objection,
    sortable,
)
from tests.cases import all_cases

groups = st.lists(
    st.lists(st.none() | st.integers(-(2**40), 2**40), min_size=1, max_size=5),
    min_size=1,
    max_size=5,
)


def folded(values, operation, kind=None):
    """Each group of `values` folded; the groups lie one after the other in the column."""
    flat = [value for group in values for value in group]
    column = pa.chunked_array([pa.array(flat, kind)])
    starts = np.cumsum([0, *[len(group) for group in values[:-1]]])
    where = Groups(np.arange(len(flat)), starts, np.arange(len(values)))
    return fold(column, operation, where).to_pylist()


def said(group):
    return [value for value in group if value is not None]


PLAIN = {
    "latest": lambda group: group[-1],
    "merge": lambda group: said(group)[-1] if said(group) else None,
    "first": lambda group: said(group)[0] if said(group) else None,
    "min": lambda group: min(said(group), default=None),
    "max": lambda group: max(said(group), default=None),
    "sum": lambda group: sum(said(group)) if said(group) else None,
}


def test_every_operation_is_sent_here():
    assert {*PLAIN, "count"} == set(RECORDED_OPERATIONS)


@pytest.mark.parametrize("operation", PLAIN)
@given(groups)
def test_an_operation_does_what_plain_python_does(operation, values):
    assert folded(values, operation, pa.int64()) == [PLAIN[operation](group) for group in values]


@pytest.mark.parametrize("operation", ["min", "max", "first", "merge", "latest"])
@given(st.lists(st.lists(st.none() | st.text("abc", max_size=2), min_size=1), min_size=1))
def test_text_is_chosen_as_it_is(operation, values):
    assert folded(values, operation, pa.string()) == [PLAIN[operation](group) for group in values]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2))
def test_floats_are_added_from_left_to_right(values):
    total = 0.0
    for value in values:
        total += value
    found = folded([values], "sum", pa.float64())[0]
    assert found == total or (math.isnan(found) and math.isnan(total))


@given(st.lists(st.integers(-5, 5), min_size=2), st.data())
def test_a_sum_in_two_parts_is_the_sum(values, data):
    at = data.draw(st.integers(1, len(values) - 1))
    (first,) = folded([values[:at]], "sum", pa.int64())
    assert folded([[first, *values[at:]]], "sum", pa.int64()) == [sum(values)]


NAN = math.nan


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize(
    ("values", "least", "greatest"),
    [
        ([NAN, 2.0, 1.0], 1.0, NAN),
        ([2.0, NAN, math.inf, None], 2.0, NAN),
        ([-math.inf, NAN, -1.5], -math.inf, NAN),
        ([None, NAN], NAN, NAN),
        ([-2.0, -1.0, None], -2.0, -1.0),
        ([None, None], None, None),
    ],
)
def test_a_float_that_is_no_number_is_greater_than_all_as_to_spark(kind, values, least, greatest):
    for operation, wanted in (("min", least), ("max", greatest)):
        (found,) = folded([values], operation, kind)
        assert found == wanted or (math.isnan(found) and math.isnan(wanted))


def test_of_equal_extremes_the_first_is_chosen_whatever_its_sign():
    for first, second in ((0.0, -0.0), (-0.0, 0.0)):
        for operation in ("min", "max"):
            (found,) = folded([[first, second]], operation, pa.float64())
            assert math.copysign(1, found) == math.copysign(1, first)


@given(st.lists(st.none() | st.floats(), min_size=1), st.integers(0, 99))
def test_an_extreme_in_two_parts_is_the_extreme(values, at):
    at %= len(values)
    for operation in ("min", "max"):
        whole = folded([values], operation, pa.float64())
        (first,) = folded([values[: at + 1]], operation, pa.float64())
        assert str(folded([[first, *values[at + 1 :]]], operation, pa.float64())) == str(whole)


@pytest.mark.parametrize("operation", ["min", "max"])
def test_extremes_of_a_type_are_values_like_any(operation):
    for value in (-(2**63), 2**63 - 1):
        assert folded([[None, value]], operation, pa.int64()) == [value]
    assert folded([[math.inf], [-math.inf]], operation, pa.float64()) == [math.inf, -math.inf]


def test_a_sum_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="cast the column to float64"):
        folded([[2**62, 2**62, 2**62]], "sum", pa.int64())


def test_a_function_is_given_what_has_been_said_two_by_two():
    seen = []

    def joined(current, new):
        seen.append((current, new))
        return f"{current}+{new}"

    assert folded([["a", None, "b", "c"], ["d"], [None]], joined, pa.string()) == [
        "a+b+c",
        "d",
        None,
    ]
    assert seen == [("a", "b"), ("a+b", "c")]


@pytest.mark.parametrize(
    ("texts", "merged"),
    [
        ([b'{"a":1,"b":{"c":2}}', b'{"b":{"d":3},"a":null}'], b'{"a":1,"b":{"c":2,"d":3}}'),
        ([b'{"a":1}', None, b'{"a":[2]}'], b'{"a":[2]}'),
        ([b"1", b'{"a":1}'], b'{"a":1}'),
        ([b'{"a":1}', b"null"], b'{"a":1}'),
    ],
)
def test_documents_are_merged_path_by_path(texts, merged):
    assert folded([texts], DOCUMENTS, pa.binary()) == [merged]


def test_a_document_that_is_none_is_refused():
    with pytest.raises(ValueError, match="is not JSON"):
        folded([[b"{}", b"{"]], DOCUMENTS, pa.binary())


def test_only_the_wanted_groups_in_the_wanted_order():
    column = pa.chunked_array([pa.array([1, 2, 3])])
    where = Groups(np.arange(3), np.array([0, 1, 2]), np.array([2, 0]))
    for operation in RECORDED_OPERATIONS:
        assert fold(column, operation, where).to_pylist() == [3, 1]
    nobody = Groups(np.arange(3), np.array([0, 1, 2]), np.array([], np.int64))
    assert fold(column, "latest", nobody).to_pylist() == []


@pytest.mark.parametrize(
    ("kind", "operation", "result"),
    [
        (pa.int8(), "sum", pa.int64()),
        (pa.uint64(), "sum", pa.uint64()),
        (pa.float32(), "sum", pa.float64()),
        (pa.string(), "count", pa.int64()),
        (pa.int8(), "max", pa.int8()),
    ],
)
def test_what_an_operation_adds_up_in(kind, operation, result):
    assert accumulator(kind, operation) == result


@all_cases("operation", RECORDED_OPERATIONS)
@all_cases("kind", [pa.int64(), pa.float32(), pa.string(), pa.list_(pa.int64())])
def test_what_cannot_be_done_is_said_with_a_way_out(kind, operation):
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    is_refused = {"sum": not is_number, "min": pa.types.is_nested(kind)}
    is_refused["max"] = is_refused["min"]
    reason = objection(kind, operation)
    assert (reason is not None) == is_refused.get(operation, False)
    assert reason is None or "choose" in reason


@given(st.lists(st.none() | st.text(max_size=2)))
def test_sortable_numbers_sort_as_the_values_do(values):
    ranks = sortable(pa.chunked_array([pa.array(values, pa.string())])).tolist()
    for one, rank in zip(values, ranks, strict=True):
        for other, other_rank in zip(values, ranks, strict=True):
            assert (rank < other_rank) == (
                (one is None, one) != (other is None, other)
                and (one is None or (other is not None and one.encode() < other.encode()))
            )


def test_choices_are_the_operations_that_take_a_value_as_it_is():
    assert set(CHOICES) == set(RECORDED_OPERATIONS) - {"sum", "count"}
