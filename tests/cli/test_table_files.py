"""What kind of file a name means, and rows of Arrow as documents. Round trips: `test_dump.py`."""

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.cli.table_files import (
    CSV_FILE,
    ENDINGS,
    FILE_FORMS,
    JSON_TYPE,
    NDJSON_FILE,
    PARQUET_FILE,
    CsvFields,
    form_of,
    row_documents,
)
from sow.errors import ClientError
from sow.messages.csv_rows import CsvReader


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


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["7e10234", "9" * 400, "-1E+999", "1e5", "", "true", "[", "{}", "[1,]", "\0", "\r", '"', "NaN"]
)


@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_a_table_of_any_texts_says_which_are_read_otherwise(texts):
    fields = CsvFields()
    fields.look([msgspec.json.encode({"id": at, "v": text}) for at, text in enumerate(texts)])
    same = []
    for at, text in enumerate(texts):
        alone = CsvFields()
        row = msgspec.json.encode({"id": at, "v": text})
        alone.look([row])
        (read,) = csv_again(alone.header() + alone.lines([row]))
        assert (read == {"id": at, "v": text}) is (alone.changed == 0)
        same.append(alone.changed == 0)
    assert fields.changed == same.count(False)


def csv_again(text):
    reader = CsvReader(JSON_TYPE, None, text, 10_000)
    return [msgspec.json.decode(body) for some in reader.pieces() for body in some]


def test_a_short_hash_is_dumped_as_what_it_is():
    fields = CsvFields()
    fields.look([b'{"id":1,"commit":"7e10234"}'])
    assert fields.changed == 0
