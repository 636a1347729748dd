"""Specs: what is refused by itself or by the columns, and the columns that come out."""

from datetime import timedelta

import pyarrow as pa
import pytest

from conflated_topics.folds import DOCUMENTS
from conflated_topics.spec import Spec
from conflated_topics.user_texts import INTERVAL_US_MAX, parse_interval
from tests.cases import all_cases

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
