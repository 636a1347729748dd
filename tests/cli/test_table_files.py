"""What kind of file a name means, and rows of Arrow as documents. Round trips: `test_dump.py`."""

import msgspec
import pyarrow as pa
import pytest

from sow.cli.table_files import (
    CSV_FILE,
    ENDINGS,
    FILE_FORMS,
    NDJSON_FILE,
    PARQUET_FILE,
    form_of,
    row_documents,
)
from sow.errors import ClientError


def test_the_end_of_a_name_says_what_it_is_unless_it_is_said():
    assert [form_of(f"x{end}", None) for end in ENDINGS] == list(ENDINGS.values())
    assert set(ENDINGS.values()) == set(FILE_FORMS)
    assert [form_of("x.csv", PARQUET_FILE), form_of("-", None), form_of("X.CSV", None)] == [
        PARQUET_FILE, NDJSON_FILE, CSV_FILE,
    ]  # fmt: skip
    with pytest.raises(ClientError, match="give --format"):
        form_of("orders", None)


def test_a_column_that_repeats_a_field_is_left_out_and_json_is_put_in_as_it_is():
    fields = [
        pa.field("order", pa.string(), metadata={"kind": "json"}),
        pa.field("/order/id", pa.int64(), metadata={"path": "/order/id"}),
        pa.field('a"%', pa.decimal128(5, 2)),
    ]
    batch = pa.record_batch([['{"id":1}', None], [1, None], [None, None]], pa.schema(fields))
    assert list(map(msgspec.json.decode, row_documents(batch))) == [{"order": {"id": 1}}, {}]
    assert row_documents(pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))) == [b"{}"]
