"""One column folded by each operation, beside plain Python over each group's values.

Specs: what is refused by itself or by the columns, and the columns that come out.
"""

import math
from datetime import timedelta

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
    Spec,
    accumulator,
    fold,
    objection,
    sortable,
)
from conflated_topics.user_texts import INTERVAL_US_MAX, parse_interval
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


TIME = ("at", pa.timestamp("us"))
SCHEMA = pa.schema([("id", pa.string()), TIME, ("px", pa.float32()), ("qty", pa.int8())])


def spec(**more):
    return Spec(**({"keys": ("id",), "time": "at", "interval_us": 1000} | more))


@pytest.mark.parametrize(
    ("interval", "us"),
    [
        ("1us", 1),
        ("500ms", 500_000),
        ("1.5 s", 1_500_000),
        (" 5m ", 300_000_000),
        ("1h", 3_600_000_000),
        ("1d", 86_400_000_000),
        ("1w", 604_800_000_000),
        ("0.1us", 1),
        (timedelta(seconds=2), 2_000_000),
    ],
)
def test_an_interval_in_microseconds(interval, us):
    assert parse_interval(interval) == us


@all_cases(
    ("interval", "said"),
    [
        ("5", "has no unit; write 5s"),
        ("soon", "is not an interval"),
        ("5 parsecs", "the unit 'parsecs', which is none"),
        ("1S", "the unit 'S'"),
        ("-1s", "is not an interval"),
        ("", "is not an interval"),
        (5, "is not an interval"),
        ("0s", "must be positive"),
        (timedelta(0), "must be positive"),
        ("99999999w", "too long"),
        ("١s", "is not an interval"),
    ],
)
def test_what_is_no_interval_is_refused_with_a_way_out(interval, said):
    with pytest.raises(ValueError, match=said):
        parse_interval(interval)


def test_an_interval_may_be_nothing_where_that_is_allowed():
    assert parse_interval("0s", least_us=0) == 0
    with pytest.raises(ValueError, match="must not be negative"):
        parse_interval(timedelta(-1), least_us=0)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"keys": "id"}, "are tuples of column names"),
        ({"order": "seq"}, "are tuples of column names"),
        ({"keys": ()}, "name at least one key column"),
        ({"interval_us": 0}, "must be positive"),
        ({"interval_us": INTERVAL_US_MAX + 1}, "too long"),
        ({"keys": ("at",)}, "'at' is named twice"),
        ({"delete": "id"}, "'id' is named twice"),
        ({"policy": "latst"}, "did you mean 'latest'"),
        ({"policy": {"px": "smu"}}, "did you mean 'sum'"),
    ],
)
def test_a_spec_that_cannot_be_is_refused_when_it_is_made(more, said):
    with pytest.raises(ValueError, match=said):
        spec(**more)


@all_cases(
    ("more", "schema", "said"),
    [
        ({"keys": ("ident",)}, SCHEMA, "did you mean 'id'|use one of"),
        ({"order": ("seq",)}, SCHEMA, "there is no column 'seq', which order names"),
        ({"time": "when"}, SCHEMA, "there is no column 'when', which time names"),
        ({"delete": "gone"}, SCHEMA, "which delete names"),
        ({"delete": "qty"}, SCHEMA, "make it boolean"),
        ({"policy": {"size": "sum"}}, SCHEMA, "which policy names"),
        ({"policy": {"id": "sum"}}, SCHEMA, "those are always the last record's"),
        ({"policy": max}, SCHEMA, "which a callable policy names"),
        ({"policy": "sum"}, SCHEMA.append(pa.field("s", pa.string())), "'s' is string, but sum"),
        ({"time": "px"}, SCHEMA, r"cast it to timestamp\[us\]"),
        ({}, SCHEMA.append(pa.field("px", pa.int8())), "two columns have the same name"),
        ({}, SCHEMA.append(pa.field("window_end", TIME[1])), "is a column of the result"),
        ({"keys": ("l",)}, SCHEMA.append(pa.field("l", pa.list_(pa.int8()))), "of its fields"),
    ],
)
def test_a_spec_that_does_not_fit_the_columns_is_refused(more, schema, said):
    with pytest.raises(ValueError, match=said):
        spec(**more).operations(schema)


def test_a_policy_speaks_of_values_and_keys_are_the_last_records():
    assert spec(policy="sum").operations(SCHEMA) == {
        "id": "latest",
        "at": "latest",
        "px": "sum",
        "qty": "sum",
    }
    assert spec(policy={"px": "min"}).operations(SCHEMA)["qty"] == "latest"


def test_documents_are_merged_and_other_columns_take_what_was_said_last():
    schema = SCHEMA.append(pa.field("value", pa.binary()))
    found = spec(policy="merge").operations(schema)
    assert (found["value"], found["px"]) == (DOCUMENTS, "merge")


def test_sums_widen_and_windows_have_the_type_of_the_time():
    out = spec(policy={"px": "sum", "qty": "sum"}).output_schema(SCHEMA)
    assert out.names == [*SCHEMA.names, "window_start", "window_end"]
    assert out.field("px").type == pa.float64()
    assert out.field("qty").type == pa.int64()
    assert out.field("window_end").type == TIME[1]


def larger(current, new):
    return max(current, new)


def test_a_fingerprint_is_what_state_depends_on():
    assert spec(policy={"b": "sum", "a": larger}).fingerprint() == {
        "keys": ["id"],
        "time": "at",
        "interval_us": 1000,
        "policy": {"a": f"{__name__}:larger", "b": "sum"},
        "order": [],
        "delete": None,
    }
    assert spec().fingerprint() != spec(interval_us=1001).fingerprint()
