"""Rows become documents that are read back as what they were, or are refused by column."""

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from sow.errors import ClientError
from sow.spark.columns import decoder
from sow.spark.documents import documents
from tests.spark.test_columns import rows

MAP = pa.map_(pa.string(), pa.int64())


def written(**columns):
    batch = pa.RecordBatch.from_pydict(columns)
    return documents(batch, leave_out_nulls=False).to_pylist()


def test_what_was_written_is_read_again():
    columns = {
        "m": pa.array([Decimal("12345678901234567890.10"), None], pa.decimal128(38, 2)),
        "raw": pa.array([b"\x00\xff", None]),
        "inside": pa.array([{"m": [("a", 1)]}, None], pa.struct([("m", MAP)])),
        "list": pa.array([[[("a", 1)]], []], pa.list_(MAP)),
        "of": pa.array([[(7, 1)], []], pa.map_(pa.int64(), pa.int64())),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    texts = documents(batch, leave_out_nulls=False).to_pylist()
    assert decoder(batch.schema)(rows(*texts)).to_pylist() == batch.to_pylist()
    assert json.loads(texts[0])["inside"] == {"m": {"a": 1}}


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("wrapped", "kind", "name"),
    [
        (lambda v: v, pa.float64(), "px"),
        (lambda v: [v], pa.list_(pa.float64()), "px"),
        (lambda v: {"q": v}, pa.struct([("q", pa.float32())]), "px.q"),
        (lambda v: [("k", v)], pa.map_(pa.string(), pa.float64()), "px"),
    ],
)
def test_what_json_has_no_number_for_is_refused_by_column(odd, wrapped, kind, name):
    with pytest.raises(ClientError, match=f"column {name} holds NaN or infinity"):
        written(px=pa.array([wrapped(1.0), wrapped(odd)], kind))
    assert written(px=pa.array([wrapped(1.0), None], kind))


def test_nulls_are_left_out_of_deltas():
    batch = pa.RecordBatch.from_pydict({"a": [1, None], "b": [None, 2]})
    assert documents(batch, leave_out_nulls=True).to_pylist() == ['{"a":1}', '{"b":2}']


def test_rows_without_columns_have_no_documents():
    none = pa.RecordBatch.from_pydict({"x": [1, 2]}).select([])
    assert documents(none, leave_out_nulls=True).to_pylist() == [None, None]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "+05:30"])
def test_a_moment_is_one_text_in_all_zones(zone):
    at = pa.array([1_767_323_045_000_000, None]).cast(pa.timestamp("us", tz=zone))
    keys, offsets = pa.array(["k", "l"]), pa.array([0, 1, 2], pa.int32())
    (first, last) = written(
        at=at,
        inside=pa.StructArray.from_arrays([at], names=["at"]),
        list=pa.ListArray.from_arrays(offsets, at),
        of=pa.MapArray.from_arrays(offsets, keys, at),
    )
    text = "2026-01-02T03:04:05Z"
    assert json.loads(first) == {
        "at": text, "inside": {"at": text}, "list": [text], "of": {"k": text}
    }  # fmt: skip
    assert json.loads(last) == {
        "at": None, "inside": {"at": None}, "list": [None], "of": {"l": None}
    }  # fmt: skip


def test_json_texts_are_the_values_that_they_are_of():
    batch = pa.RecordBatch.from_pydict({"x": ["1.10", '{"a":"b"}', None]})
    found = documents(batch, leave_out_nulls=False, json_texts=["x"]).to_pylist()
    assert found == ['{"x":1.10}', '{"x":{"a":"b"}}', '{"x":null}']
    for text in ("plain", '1,"y":2', "NaN"):
        batch = pa.RecordBatch.from_pydict({"x": [text]})
        with pytest.raises(ClientError, match="column x holds JSON texts, and"):
            documents(batch, leave_out_nulls=False, json_texts=["x"])
