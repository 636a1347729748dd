"""Columns of records: types that hold every value, or JSON texts."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from sow.core.definitions import MessageTypeOptions
from sow.messages.arrow import JSON_KIND, KIND_OF_COLUMN
from sow.spark.columns import JSON_MESSAGES, Messages, decoder
from sow.spark.source import DEPTH_MAX, JsonShape, inferred
from sow.spark.write_target import documents
from tests.spark.test_columns import rows

TEXTS = pa.field("x", pa.string(), metadata={KIND_OF_COLUMN: JSON_KIND})
SENT = pa.schema([("id", pa.int64()), TEXTS])


def type_of(*values):
    shape = JsonShape()
    for value in values:
        shape.add(value)
    return shape.type


def read(*documents):
    return inferred(SENT, [[json.dumps(one) for one in documents]], JSON_MESSAGES)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, None, False], pa.bool_()),
        ([[1, 2], [], [2.5]], pa.list_(pa.float64())),
        ([[]], pa.list_(pa.string())),
        ([{"a": 1}, {"b": ["x"]}], pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
        ([{"a": 1}, {"a": "x"}], None),
        ([[{"a": True}], [{"a": 0}]], None),
        ([{}], None),
        ([True, {"a": 1}], None),
        ([{"a": 2**53 + 1}, {"a": 0.5}], None),
    ],
)
def test_a_type_holds_all_values_or_there_is_none(values, kind):
    assert type_of(*values) == kind


def test_what_is_nested_without_end_stays_text():
    value = 1
    for _ in range(DEPTH_MAX + 1):
        value = [value]
    assert type_of(value) is None
    assert type_of(*value) is not None


def test_a_column_that_no_record_has_is_none():
    assert read({"x": [True]}).names == ["x"]
    assert read({"id": 1, "x": None}).names == ["id"]
    assert read({"id": 1}, {"x": "a"}, {"x": 1}).field("x").equals(TEXTS, check_metadata=True)
    assert inferred(SENT, [], JSON_MESSAGES).names == []


def test_records_of_other_types_are_looked_into_as_they_are_read():
    bar = Messages(MessageTypeOptions("bar", "nvfix", field_separator=b"|"))
    found = inferred(SENT, [["id=1|x=a|x=b", "id=2|x=c|x=d"]], bar)
    assert found.field("x").type == pa.list_(pa.string())


LEAVES = st.booleans() | st.integers(-(2**62), 2**62) | st.text() | st.floats(allow_nan=False)
LEAVES = LEAVES.filter(lambda value: value not in (float("inf"), float("-inf")))
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
OBJECTS = st.lists(st.fixed_dictionaries({"a": VALUES, "b": VALUES}) | VALUES, min_size=1)


@given(OBJECTS)
def test_what_is_read_by_the_inferred_type_is_written_as_it_was(values):
    texts = [json.dumps({"x": value}) for value in values]
    schema = inferred(pa.schema([TEXTS]), [texts], JSON_MESSAGES)
    batch = decoder(schema)(rows(*texts))
    is_text = schema.field("x").type == pa.string() and schema.field("x").metadata is not None
    again = documents(batch, leave_out_nulls=False, json_texts=["x"] if is_text else [])
    assert [json.loads(text) for text in again.to_pylist()] == [{"x": value} for value in values]
