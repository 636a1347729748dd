"""Columns of Arrow: no value is changed by what other rows hold, however they are read.

The columns of a JSON response: as they are sent, and built from its texts.
"""

import datetime
import json
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import Declared, MessageTypeOptions
from sow.errors import TooLarge
from sow.messages import arrow, column_types, message_type
from sow.messages.arrow import (
    SENT_CHARS_MAX,
    ArrowColumns,
    UnfitError,
    made,
    read_sent,
    sent_columns,
    table_of_documents,
    table_of_rows,
)
from sow.messages.column_types import COLUMNS_MAX, ColumnTypes
from sow.messages.declared import DeclaredFields, declared_fields
from sow.messages.documents import Binary
from sow.messages.json import Json
from tests.cases import all_cases

JSON = message_type("json")


def table(bodies, heard=(), kind=JSON, schema=(), wanted=None):
    """Messages as a table, of a topic that has held others before."""
    types = ColumnTypes(kind)
    types.observe([*heard, *bodies])
    declared = DeclaredFields(kind, schema) if schema else None
    columns = ArrowColumns(kind, types, declared, wanted)
    return pa.Table.from_batches([columns.batch(bodies)], schema=columns.schema)


def column(*texts, heard=()):
    """The column of a field whose values these are; an empty text is an absent value."""
    bodies = [b'{"f":%b}' % text.encode() if text else b'{"g":0}' for text in texts]
    return table(bodies, [b'{"f":%b}' % text.encode() for text in heard])["f"]


COLUMNS = [
    (["1", "2", ""], pa.int64(), [1, 2, None]),
    (["1", "0.5", "null"], pa.float64(), [1.0, 0.5, None]),
    (["0.1", "1e22", "123456789.123456"], pa.float64(), [0.1, 1e22, 123456789.123456]),
    (["9007199254740993", "9"], pa.int64(), [9007199254740993, 9]),
    (["9007199254740993", "0.5"], pa.string(), ["9007199254740993", "0.5"]),
    (["9007199254740992", "0.5"], pa.float64(), [2.0**53, 0.5]),
    (["123456789012345678901", "1"], pa.string(), ["123456789012345678901", "1"]),
    (["0.12345678901234567890", "1"], pa.string(), ["0.12345678901234567890", "1"]),
    (["1e-400", "1.0"], pa.string(), ["1e-400", "1.0"]),
    (['"2025-01-02"', '""'], pa.string(), ["2025-01-02", ""]),
    (['"2025-01-02T09:30:00+02:00"'], pa.string(), ["2025-01-02T09:30:00+02:00"]),
    (['"2025-01-02 09:30:00"', ""], pa.string(), ["2025-01-02 09:30:00", None]),
    (["true", "false", ""], pa.string(), ["true", "false", None]),
    (["true", "1"], pa.string(), ["true", "1"]),
    (['"1"', "1"], pa.string(), ['"1"', "1"]),
    (['{"a": 1}', "", "null"], pa.string(), ['{"a": 1}', None, None]),
    (["[1, 0.5]", '"x"'], pa.string(), ["[1, 0.5]", '"x"']),
    (["null", ""], pa.string(), [None, None]),
]


@all_cases(("texts", "kind", "values"), COLUMNS)
def test_a_column_has_the_type_that_holds_all_values(texts, kind, values):
    found = column(*texts)
    assert (found.type, found.to_pylist()) == (kind, values)


def test_names_may_be_anything_and_come_twice():
    odd = table([b'{"a\\"b":1.12345678901234567,"\\u0070":[1]}', b'{"p":"x","":1}'])
    assert odd.column_names == ['a"b', "p", ""]
    assert odd.to_pylist()[0] == {'a"b': "1.12345678901234567", "p": "[1]", "": None}
    assert table([b'{"a":1,"a":2}']).to_pylist() == [{"a": 2}]
    assert table([]).num_columns == 0
    assert table([b"{}", b"{}"]).num_rows == 2


@pytest.mark.parametrize(
    ("heard", "kind", "value"),
    [([], pa.int64(), 1), (["0.5"], pa.float64(), 1.0), (['"x"'], pa.string(), "1")],
)
def test_what_was_held_before_decides_what_a_row_looks_like(heard, kind, value):
    found = column("1", heard=heard)
    assert (found.type, found.to_pylist()) == (kind, [value])


def test_rows_have_all_columns_of_their_topic_or_those_that_are_wanted():
    heard = [b'{"a":1,"b":"x"}']
    assert table([b'{"a":2}'], heard).to_pylist() == [{"a": 2, "b": None}]
    assert table([b'{"a":2}'], heard, wanted="b".__eq__).to_pylist() == [{"b": None}]


DECLARED = [
    ("int64", ["7", "null"], pa.int64(), [7, None]),
    ("float64", ["7", "0.5"], pa.float64(), [7.0, 0.5]),
    ("decimal(5,2)", ["1.5", "2e2"], pa.decimal128(5, 2), [Decimal("1.50"), Decimal("200.00")]),
    ("string", ['"a\\u00e9"', ""], pa.string(), ["a\u00e9", None]),
    ("bool", ["true", "false"], pa.bool_(), [True, False]),
    ("date", ['"2025-01-31"'], pa.date32(), [datetime.date(2025, 1, 31)]),
    (
        "timestamp",
        ['"2025-01-31T09:30:00.5+01:00"', "1"],
        pa.timestamp("us", tz="UTC"),
        [
            datetime.datetime(2025, 1, 31, 8, 30, 0, 500_000, datetime.UTC),
            datetime.datetime(1970, 1, 1, 0, 0, 0, 1, datetime.UTC),
        ],
    ),
    ("json", ["1", '"x"', "[1]"], pa.string(), ["1", '"x"', "[1]"]),
]


@pytest.mark.parametrize(("kind", "texts", "of_arrow", "values"), DECLARED)
@pytest.mark.parametrize("path", ["/f", "/f/g"])
def test_a_declared_field_is_a_column_of_its_type(path, kind, texts, of_arrow, values):
    inner = "%s" if path == "/f" else '{"g":%s}'
    bodies = [(f'{{"f":{inner % text}}}' if text else "{}").encode() for text in texts]
    name = path.lstrip("/") if path == "/f" else path
    found = table(bodies, schema=[Declared(path, kind)])
    assert found.column_names == [name] if path == "/f" else [name, "f"]
    assert (found[name].type, found[name].to_pylist()) == (of_arrow, values)
    told = found.schema.field(name).metadata or {}
    assert (b"path" in told, b"kind" in told) == (path == "/f/g", kind == "json")
    assert table([], schema=[Declared(path, kind)]).schema.field(name).type == of_arrow


def test_a_field_that_is_called_like_a_declared_path_keeps_its_name():
    found = table([b'{"/a/b":"x","a":{"b":1}}'], schema=[Declared("/a/b", "int64")])
    assert found.to_pylist() == [{"//a/b": 1, "/a/b": "x", "a": '{"b":1}'}]


def test_a_value_from_before_the_declaration_is_named_and_not_hidden():
    with pytest.raises(UnfitError, match='f is "x", and its type in the Schema is int64') as caught:
        table([b'{"f":1}', b'{"f":"x"}'], schema=[Declared("/f", "int64")])
    assert caught.value.row == 1


def test_messages_of_other_types_are_columns_too():
    fix = message_type("fix")
    schema = [Declared("/38", "int64")]
    found = table([b"38=7\x0155=A\x01", b"1=a\x011=b\x01"], kind=fix, schema=schema)
    assert found.to_pylist() == [
        {"38": 7, "55": "A", "1": None},
        {"38": None, "55": None, "1": '["a","b"]'},
    ]
    assert table([b"\xff"], kind=message_type("binary")).to_pylist() == [{"value": b"\xff"}]
    bflat = message_type("bflat")
    made = [bflat.encode({"n": 1, "x": 0.5}), bflat.encode({"n": 2.5})]
    assert table(made, kind=bflat).to_pylist() == [{"n": 1.0, "x": 0.5}, {"n": 2.5, "x": None}]


numbers = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-(10**6), 10**6, places=18).map(str),
    st.decimals(-1, 1, places=3).map(str),
)
scalars = st.one_of(numbers, st.text().map(json.dumps), st.sampled_from(["true", "false", "null"]))
values = st.one_of(scalars, st.just("[1]"), st.just('{"a":0.5}'))


@given(st.lists(values, min_size=1) | st.lists(numbers, min_size=1) | st.lists(scalars))
def test_every_value_can_be_had_back(texts):
    if not texts:
        return
    found = column(*texts)
    for text, value in zip(texts, found.to_pylist(), strict=True):
        if text == "null":
            assert value is None
        elif found.type == pa.float64():
            assert Decimal(text) in (Decimal(value), Decimal(repr(value)))
        elif found.type == pa.int64():
            assert int(text) == value
        else:
            assert value in (text, json.loads(text))


@given(st.lists(values, min_size=1) | st.lists(numbers, min_size=1), st.lists(values))
def test_a_column_is_the_same_in_however_many_steps_it_is_made(texts, heard):
    whole = column(*texts, heard=heard)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_types, "PART_ROWS", 2)
        in_steps = column(*texts, heard=heard)
        patch.setattr(arrow, "QUICK", ())
        by_hand = column(*texts, heard=heard)
    for found in (in_steps, by_hand):
        assert (found.type, found.to_pylist()) == (whole.type, whole.to_pylist())


@given(st.lists(values, min_size=1))
def test_documents_that_were_read_make_columns_of_the_same_types(texts):
    read = [{"f": json.loads(text)} for text in texts]
    assert table_of_documents(read)["f"].type in (column(*texts).type, pa.float64())


def test_what_is_to_be_done_apart_is_done_and_sent_back():
    def steps():
        yield None
        first = yield lambda: 2
        nothing = yield None
        assert nothing is None
        second = yield lambda: first + 1
        return first, second

    assert made(steps()) == (2, 3)


PLAIN_JSON = Json(MessageTypeOptions("json", "json"))
BINARY = Binary(MessageTypeOptions("binary", "binary"))
DECLARED_TYPES = declared_fields(
    PLAIN_JSON,
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
    types = ColumnTypes(PLAIN_JSON)
    types.observe(rows)
    return ArrowColumns(PLAIN_JSON, types, declared)


def told(columns, are_all=True):
    return read_sent(sent_columns(columns.columns, are_all))


def answered_table(rows, schema):
    return table_of_rows(rows, [msgspec.json.decode(row) for row in rows], schema)


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], ROWS[2:], []])
def test_a_client_makes_the_table_that_the_server_would_send(rows):
    columns = columns_of(ROWS, DECLARED_TYPES)
    schema = told(columns).schema()
    assert schema.equals(columns.schema, check_metadata=True)
    made = answered_table(rows, schema)
    assert made.schema.equals(columns.schema, check_metadata=True)
    assert made.equals(pa.Table.from_batches([columns.batch(rows)]))


def test_every_value_is_what_it_was():
    made = answered_table(ROWS, columns_of(ROWS, DECLARED_TYPES).schema).to_pylist()
    assert made[0]["px"] == Decimal("123456789012345678.90")
    assert made[0]["at"] == datetime.datetime(1, 1, 1, microsecond=1, tzinfo=datetime.UTC)
    assert made[0]["day"] == datetime.date(9999, 12, 31)
    assert (made[1]["n"], made[1]["/leg/id"], made[1]["leg"]) == (2**53 + 1, 7, '{"id":7}')
    assert (made[1]["m"], made[2]["m"], made[2]["é"]) == ("1", '"one"', 1.1)


def test_a_field_that_was_not_sent_has_a_column_behind_the_others():
    made = answered_table(ROWS, pa.schema([("t", pa.string())]))
    assert made.schema.names[0] == "t"
    assert made.schema.field("n").type == pa.int64()
    assert {*made.schema.names} == {*columns_of(ROWS).schema.names}


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.date32()])
def test_a_column_of_which_a_value_is_of_another_type_holds_json_texts(kind):
    made = answered_table([b'{"v":"x"}', b'{"v":1.10}', b"{}"], pa.schema([("v", kind)]))
    assert made.column("v").to_pylist() == ['"x"', "1.10", None]
    assert made.schema.field("v").metadata == {b"kind": b"json"}


def test_bare_texts_of_types_without_numbers_are_read_as_what_was_declared():
    made = answered_table(
        [b'{"n":"5","ok":"Y"}'], pa.schema([("n", pa.int64()), ("ok", pa.bool_())])
    )
    assert made.to_pylist() == [{"n": 5, "ok": True}]


def test_messages_of_bytes_are_bytes_again():
    types = ColumnTypes(BINARY)
    schema = told(ArrowColumns(BINARY, types)).schema()
    made = table_of_rows([b'"AAE="'], ["AAE="], schema)
    assert made.to_pydict() == {"value": [b"\x00\x01"]}


def test_rows_without_fields_are_rows():
    assert answered_table([b"{}", b"{}"], None).num_rows == 2
    assert answered_table([], None).num_rows == 0


def test_too_many_fields_are_refused():
    row = msgspec.json.encode({f"f{number}": 1 for number in range(COLUMNS_MAX + 1)})
    with pytest.raises(TooLarge, match="too many for columns"):
        answered_table([row], None)


def test_what_is_sent_is_a_line_of_ascii_and_not_too_long_for_a_header():
    columns = columns_of([msgspec.json.encode({"é\n\U0001f600": 1})])
    text = sent_columns(columns.columns, False)
    assert text.isascii()
    assert text.isprintable()
    assert read_sent(text).schema().names == ["é\n\U0001f600"]
    assert read_sent(text).all is False
    wide = columns_of([msgspec.json.encode({"x" * SENT_CHARS_MAX: 1})])
    assert sent_columns(wide.columns, True) == ""
