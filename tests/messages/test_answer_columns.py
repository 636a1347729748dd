"""The columns of a JSON response: as they are sent, and built from its texts."""

import datetime
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest

from sow.core.definitions import Declared, MessageTypeOptions
from sow.errors import TooLarge
from sow.messages.answer_columns import SENT_CHARS_MAX, read_sent, sent_columns, table_of_rows
from sow.messages.arrow import ArrowColumns
from sow.messages.column_types import COLUMNS_MAX, ColumnTypes
from sow.messages.declared import declared_fields
from sow.messages.json import Json
from sow.messages.scalars import Binary

JSON = Json(MessageTypeOptions("json", "json"))
BINARY = Binary(MessageTypeOptions("binary", "binary"))
DECLARED = declared_fields(
    JSON,
    (
        Declared("/px", "decimal(20,2)"),
        Declared("/at", "timestamp"),
        Declared("/day", "date"),
        Declared("/open", "bool"),
        Declared("/leg/id", "int64"),
    ),
)
ROWS = [
    b'{"px":123456789012345678.90,"at":"0001-01-01T00:00:00.000001Z","day":"9999-12-31"}',
    b'{"open":true,"leg":{"id":7},"n":9007199254740993,"f":0.5,"t":"x","m":1}',
    b'{"px":null,"n":null,"m":"one","\xc3\xa9":1.10,"f":1}',
]


def columns_of(rows, declared=None):
    types = ColumnTypes(JSON)
    types.observe(rows)
    return ArrowColumns(JSON, types, declared)


def told(columns, are_all=True):
    return read_sent(sent_columns(columns.columns, are_all))


def table(rows, schema):
    return table_of_rows(rows, [msgspec.json.decode(row) for row in rows], schema)


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], ROWS[2:], []])
def test_a_client_makes_the_table_that_the_server_would_send(rows):
    columns = columns_of(ROWS, DECLARED)
    schema = told(columns).schema()
    assert schema.equals(columns.schema, check_metadata=True)
    made = table(rows, schema)
    assert made.schema.equals(columns.schema, check_metadata=True)
    assert made.equals(pa.Table.from_batches([columns.batch(rows)]))


def test_every_value_is_what_it_was():
    made = table(ROWS, columns_of(ROWS, DECLARED).schema).to_pylist()
    assert made[0]["px"] == Decimal("123456789012345678.90")
    assert made[0]["at"] == datetime.datetime(1, 1, 1, microsecond=1, tzinfo=datetime.UTC)
    assert made[0]["day"] == datetime.date(9999, 12, 31)
    assert (made[1]["n"], made[1]["/leg/id"], made[1]["leg"]) == (2**53 + 1, 7, '{"id":7}')
    assert (made[1]["m"], made[2]["m"], made[2]["é"]) == ("1", '"one"', 1.1)


def test_a_field_that_was_not_sent_has_a_column_behind_the_others():
    made = table(ROWS, pa.schema([("t", pa.string())]))
    assert made.schema.names[0] == "t"
    assert made.schema.field("n").type == pa.int64()
    assert {*made.schema.names} == {*columns_of(ROWS).schema.names}


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.date32()])
def test_a_column_of_which_a_value_is_of_another_type_holds_json_texts(kind):
    made = table([b'{"v":"x"}', b'{"v":1.10}', b"{}"], pa.schema([("v", kind)]))
    assert made.column("v").to_pylist() == ['"x"', "1.10", None]
    assert made.schema.field("v").metadata == {b"kind": b"json"}


def test_bare_texts_of_types_without_numbers_are_read_as_what_was_declared():
    made = table([b'{"n":"5","ok":"Y"}'], pa.schema([("n", pa.int64()), ("ok", pa.bool_())]))
    assert made.to_pylist() == [{"n": 5, "ok": True}]


def test_messages_of_bytes_are_bytes_again():
    types = ColumnTypes(BINARY)
    schema = told(ArrowColumns(BINARY, types)).schema()
    made = table_of_rows([b'"AAE="'], ["AAE="], schema)
    assert made.to_pydict() == {"value": [b"\x00\x01"]}


def test_rows_without_fields_are_rows():
    assert table([b"{}", b"{}"], None).num_rows == 2
    assert table([], None).num_rows == 0


def test_too_many_fields_are_refused():
    row = msgspec.json.encode({f"f{number}": 1 for number in range(COLUMNS_MAX + 1)})
    with pytest.raises(TooLarge, match="too many for columns"):
        table([row], None)


def test_what_is_sent_is_a_line_of_ascii_and_not_too_long_for_a_header():
    columns = columns_of([msgspec.json.encode({"é\n\U0001f600": 1})])
    text = sent_columns(columns.columns, False)
    assert text.isascii()
    assert text.isprintable()
    assert read_sent(text).schema().names == ["é\n\U0001f600"]
    assert read_sent(text).all is False
    wide = columns_of([msgspec.json.encode({"x" * SENT_CHARS_MAX: 1})])
    assert sent_columns(wide.columns, True) == ""
