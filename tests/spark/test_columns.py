"""Fields of bodies come in the types of a schema: exactly, whatever stands beside them."""

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from sow.core.definitions import MessageTypeOptions, RecordField
from sow.errors import ClientError
from sow.messages import message_type
from sow.messages.base import MessageType
from sow.spark import columns as module
from sow.spark.columns import (
    ROW,
    TEXT_MODULES,
    WITHOUT_FIELDS,
    Messages,
    check_row_columns,
    decoder,
    requested_columns,
)
from tests.cases import all_cases
from tests.messages.examples import EXAMPLES, OPTIONS

TIME = pa.timestamp("us", tz="UTC")
FIELDS = pa.schema(
    [
        ("n", pa.int64()),
        ("small", pa.int16()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("m", pa.decimal128(20, 4)),
        ("at", TIME),
        ("plain", pa.timestamp("us")),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("l", pa.list_(pa.int32())),
        ("o", pa.struct([("s", pa.string()), ("m", pa.decimal128(9, 2))])),
    ]
)
VALUES = [
    "1", "1.0", "-0", "1e3", "12.5000", "0.1", "12345678901234567890123", "9223372036854775808",
    "1234567890123456.7891", "1e400", "40000", "true", "false", "null", '"1"', '"x"', '"1.5"',
    '" 1"', '".5"', '"+1"', '"NaN"', '"\\ud800"', '"AQI="', '"A"', '"2026-01-02"',
    '"2026-01-02T03:04:05Z"', '"2026-01-02T03:04:05.123456789Z"', '"2026-02-30T00:00:00Z"',
    '"0000-01-01T00:00:00Z"', '"0001-01-01T00:00:00Z"', '"9999-12-31 23:59:59"',
    '"2026-01-02 03:04:05.5"', '"2026-01-02T03:04:05+02:00"', '"20260102"', "[]", "[1, 2]",
    "[1, 2.5]", "{}", '{"s": "x", "m": 1.10}', '{"s": 12.50, "m": "1.10"}',
]  # fmt: skip


def rows(*texts, op="publish"):
    count = len(texts)
    columns = [range(count), ["t"] * count, [f"k{n}" for n in range(count)], [op] * count]
    columns += [[0] * count, list(texts)]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, ROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROW)


def read(kind, *values, **more):
    schema = pa.schema([("x", kind)])
    texts = [f'{{"x": {value}}}' for value in values]
    return decoder(schema, **more)(rows(*texts)).column("x").to_pylist()


def document(chance):
    names = [name for name in FIELDS.names if chance.random() < 0.8]
    return "{" + ", ".join(f'"{name}": {chance.choice(VALUES)}' for name in names) + "}"


def fitting(chance):
    """A document whose fields all have their types."""
    number = chance.randrange(30_000)
    return json.dumps(
        {
            "n": number, "small": number, "d": number / 7, "f": 0.5, "s": str(number), "b": True,
            "m": number, "at": "2026-01-02T03:04:05Z", "day": "2026-01-02", "raw": "AQI=",
            "plain": "2026-01-02 03:04:05.25", "l": [number], "o": {"s": "x", "m": 1},
        }
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_a_row_is_read_as_it_is_alone(seed):
    chance = random.Random(seed)
    texts = [fitting(chance) for _ in range(100)]
    for _ in range((0, 1, 20, 100)[seed]):
        texts[chance.randrange(100)] = document(chance)
    whole = decoder(FIELDS)(rows(*texts)).to_pylist()
    assert whole == [decoder(FIELDS)(rows(text)).to_pylist()[0] for text in texts]


def test_one_odd_row_sends_few_others_through_the_slow_reader(monkeypatch):
    seen = []
    slow = module._Typed._one_by_one

    def watched(self, texts):
        seen.append(len(texts))
        return slow(self, texts)

    monkeypatch.setattr(module._Typed, "_one_by_one", watched)
    schema = pa.schema([("n", pa.int64())])
    texts = ['{"n": 1}'] * 10_000
    texts[7_000] = '{"n": "odd"}'
    found = decoder(schema)(rows(*texts)).column("n")
    assert found.null_count == 1
    assert sum(seen) <= module.ONE_BY_ONE


@all_cases(("kind", "value", "is_read_as"), [
        (pa.decimal128(38, 10), "1234567890123456789012345678.0123456789",
         Decimal("1234567890123456789012345678.0123456789")),
        (pa.decimal128(9, 2), "1.105", None),
        (pa.decimal128(4, 2), "123", None),
        (pa.list_(pa.decimal128(4, 2)), "[12, 123]", [Decimal("12.00"), None]),
        (pa.struct([("m", pa.decimal128(4, 2))]), '{"m": 123}', {"m": None}),
        (pa.string(), "12345678901234567890123", "12345678901234567890123"),
        (pa.string(), "1.50", "1.50"),
        (pa.string(), '{"a": 1.50, "b": [true, null, "ü"]}', '{"a":1.50,"b":[true,null,"ü"]}'),
        (pa.date32(), "20454", None),
        (TIME, "1767322800", None),
        (pa.date32(), '"2026-01-02"', date(2026, 1, 2)),
        (TIME, '"2026-01-02T03:04:05.123456789Z"',
         datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
        (pa.binary(), '"AQI="', b"\x01\x02"),
        (pa.binary(), '"A"', None),
        (pa.map_(pa.string(), pa.int64()), '{"a": 1}', [("a", 1)]),
        (pa.map_(pa.int64(), pa.int64()), '{"7": 1}', [(7, 1)]),
        (pa.map_(pa.int64(), pa.int64()), '{"a": 1}', None),
        (pa.struct([("m", pa.map_(pa.string(), pa.string()))]), '{"m": {"a": "b"}}',
         {"m": [("a", "b")]}),
    ])  # fmt: skip
@all_cases("beside", [0, 100])
def test_a_value_is_exact_or_null(kind, value, is_read_as, beside):
    assert read(kind, value, *["null"] * beside)[0] == is_read_as


def test_a_field_that_may_not_be_null_is_named():
    needed = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(ClientError, match="the field x is missing of record k1 at bookmark 1"):
        decoder(needed)(rows('{"x": 1}', "{}"))
    inner = pa.struct([pa.field("y", pa.int64(), nullable=False)])
    with pytest.raises(ClientError, match=r"the field x\.y is missing"):
        decoder(pa.schema([("x", inner)]))(rows('{"x": {}}'))
    assert decoder(pa.schema([("x", inner)]))(rows("{}")).to_pylist() == [{"x": None}]


def line(kind: MessageType, body: bytes) -> str:
    return json.loads(kind.to_line(body))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_bookmark", pa.int64()),
        ("_bookmark", pa.string()),
        ("_bookmark", pa.decimal128(21, 2)),
        ("_key", pa.string()),
        ("_ts", TIME),
        ("_ts", pa.timestamp("us")),
        ("_ts", pa.date32()),
        ("_ts", pa.string()),
        ("key", pa.int64()),  # without the underscore it is a field of the body
    ],
)
def test_a_column_of_the_row_is_read_in_the_types_that_hold_it(name, kind):
    schema = pa.schema([("x", pa.int64()), (name, kind)])
    check_row_columns(schema)
    assert decoder(schema)(rows('{"x": 1}')).schema == schema


@pytest.mark.parametrize(
    ("name", "kind", "instead"),
    [
        ("_key", pa.int64(), "write _key string"),
        ("_topic", pa.int32(), "write _topic string"),
        ("_op", pa.bool_(), "write _op string"),
        ("_bookmark", pa.int32(), "write _bookmark long"),
        ("_bookmark", pa.float64(), "write _bookmark long"),
        ("_bookmark", pa.decimal128(19, 1), "write _bookmark long"),
        ("_ts", pa.int64(), "write _ts timestamp"),
        ("_ts", pa.struct([("x", pa.int64())]), "write _ts timestamp"),
    ],
)
def test_a_column_of_the_row_in_another_type_is_refused_by_name(name, kind, instead):
    with pytest.raises(ClientError, match=f"column {name} cannot be read as .*{instead}"):
        check_row_columns(pa.schema([("x", pa.int64()), (name, kind)]))


def test_messages_of_other_types_are_read_by_field():
    schema = pa.schema([("id", pa.string()), ("px", pa.float64()), ("n", pa.int32())])
    schema = schema.append(pa.field("legs", pa.list_(pa.string())))
    bar = Messages(MessageTypeOptions("bar", "nvfix", b"|"))
    found = decoder(schema, bar)(rows("id=1|px=10.5|n=7|legs=a|legs=b", "id=2|px=x|legs=c"))
    assert found.to_pylist() == [
        {"id": "1", "px": 10.5, "n": 7, "legs": ["a", "b"]},
        {"id": "2", "px": None, "n": None, "legs": ["c"]},
    ]
    for name in ("bflat", "bson", "msgpack"):
        kind = message_type(name)
        document = {"id": "1", "px": float("nan"), "n": 7}
        found = decoder(schema, Messages(MessageTypeOptions(name, name)))(
            rows(line(kind, kind.encode(document)))
        )
        (row,) = found.to_pylist()
        assert (row["id"], row["n"], row["legs"]) == ("1", 7, None)
        assert row["px"] != row["px"]


def test_elements_of_xml_are_structs_of_texts_that_fit():
    fields = [("@id", pa.int64()), ("px", pa.float64()), ("leg", pa.list_(pa.string()))]
    schema = pa.schema([("order", pa.struct(fields))])
    text = '<order id="7"><px>10.5</px><leg>a</leg><leg>b</leg></order>'
    found = decoder(schema, Messages(MessageTypeOptions("xml", "xml")))(rows(text, "<other/>"))
    assert found.to_pylist() == [
        {"order": {"@id": 7, "px": 10.5, "leg": ["a", "b"]}},
        {"order": None},
    ]


@pytest.mark.parametrize(
    ("name", "text", "kind", "value"),
    [
        ("int64", "-5", pa.int64(), -5),
        ("int64", "5", pa.decimal128(9, 2), Decimal("5.00")),
        ("double", "6.5e3", pa.float64(), 6500.0),
        ("binary", "AQI=", pa.binary(), b"\x01\x02"),
        ("binary", "AQI=", pa.string(), "AQI="),
        ("binary", "AQI=", pa.int64(), None),
        ("string", "x", pa.binary(), None),
    ],
)
def test_a_message_without_fields_is_its_value(name, text, kind, value):
    schema = pa.schema([("value", kind)])
    assert decoder(schema, Messages(MessageTypeOptions(name, name)))(rows(text)).to_pylist() == [
        {"value": value}
    ]


def test_fields_of_messages_without_fields_are_refused():
    with pytest.raises(ClientError, match="of type int64 have no fields, so there is no column px"):
        Messages(MessageTypeOptions("int64", "int64")).check(pa.schema([("px", pa.float64())]))
    Messages(MessageTypeOptions("int64", "int64")).check(
        pa.schema([("value", pa.int64()), ("_key", pa.string())])
    )


def test_records_and_composites_are_read_by_field():
    record = MessageTypeOptions(
        "trades", "record", b"|", (RecordField("id", "int"), RecordField("px", "decimal"))
    )
    schema = pa.schema([("id", pa.int64()), ("px", pa.decimal128(9, 2))])
    found = decoder(schema, Messages(record))(rows("7|1.10", "8", "x|1", "9|1|1"))
    assert found.to_pylist() == [
        {"id": 7, "px": Decimal("1.10")},
        {"id": 8, "px": None},
        {"id": None, "px": None},  # not a record of this type
        {"id": None, "px": None},
    ]
    parts = (MessageTypeOptions("json", "json"), record)
    local = MessageTypeOptions("local", "composite-local", parts=parts)
    kind = message_type("local", {"local": local})
    body = kind.encode({"0": {"id": 1}, "1": {"id": 7, "px": 1.5}})
    schema = pa.schema([("0", pa.struct([("id", pa.int64())])), ("1", pa.string())])
    found = decoder(schema, Messages(local))(rows(line(kind, body)))
    assert found.to_pylist() == [{"0": {"id": 1}, "1": '{"id":7,"px":1.5}'}]


def test_columns_of_json_texts_have_them_as_the_server_does():
    mixed = pa.field("mixed", pa.string(), metadata={"kind": "json"})
    schema = pa.schema([mixed, ("n", pa.int64())])
    texts = ['{"mixed":"a","n":1}', '{"mixed":1.50,"n":2}', '{"mixed":null}', "{}"]
    found = decoder(schema)(rows(*texts))
    assert found.column("mixed").to_pylist() == ['"a"', "1.50", None, None]
    assert found.column("n").to_pylist() == [1, 2, None, None]
    assert decoder(pa.schema([mixed]))(rows(*texts)).column("mixed").to_pylist()[0] == '"a"'
    fields = Messages(MessageTypeOptions("nvfix", "nvfix"))
    found = decoder(pa.schema([mixed]), fields)(
        rows("mixed=a\x01", "mixed=a\x01mixed=b\x01", "n=1\x01")
    )
    assert found.column("mixed").to_pylist() == ['"a"', '["a","b"]', None]


def test_every_message_type_is_known_by_its_values():
    kinds = [message_type(name, OPTIONS) for name in EXAMPLES]
    texts = {kind.name for kind in kinds if kind.has_only_texts}
    assert set(TEXT_MODULES) == texts, "TEXT_MODULES has to be the types with `has_only_texts`"
    bare = {name for name, example in EXAMPLES.items() if not example.number}
    assert set(WITHOUT_FIELDS) == bare, "WITHOUT_FIELDS has to be the types of one value"


def test_fields_called_like_columns_of_the_row_are_fields():
    schema = pa.schema([(name, ROW.field(name).type) for name in ("key", "ts", "op", "value")])
    document = '{"key":"mine","ts":"2024-08-08T23:54:14Z","op":"buy","value":"hello"}'
    (found,) = decoder(schema)(rows(document)).to_pylist()
    assert (found["key"], found["op"], found["value"]) == ("mine", "buy", "hello")
    assert found["ts"].year == 2024
    for name in schema.names:
        alone = pa.schema([schema.field(name)])
        assert decoder(alone)(rows(document)).to_pylist() == [{name: found[name]}]
    assert decoder(alone, None)(rows(document)).to_pylist() == [{"value": document}]


@pytest.mark.parametrize(
    ("schema", "messages", "requested"),
    [
        ([("key", pa.string())], None, {"columns": "key"}),
        ([("px", pa.float64())], Messages(), {"columns": "value", "select": "/px"}),
        (
            [("_ts", TIME), ("leg", pa.struct([("qty", pa.int64())]))],
            Messages(),
            {"columns": "ts,value", "select": "/leg"},
        ),
        ([("_key", pa.string())], Messages(), {"columns": "key,value", "select": "-/"}),
        ([("a b", pa.string())], Messages(), {"columns": "value"}),
        ([(f"field_{n}", pa.string()) for n in range(500)], Messages(), {"columns": "value"}),
        (
            [("px", pa.float64())],
            Messages(MessageTypeOptions("fix", "fix")),
            {"columns": "value"},
        ),
    ],
)
def test_a_request_names_the_columns_and_fields_that_a_schema_needs(schema, messages, requested):
    assert requested_columns(pa.schema(schema), messages) == requested


def test_a_column_that_may_not_be_null_needs_the_name_of_its_record():
    schema = pa.schema([pa.field("px", pa.float64(), nullable=False)])
    assert requested_columns(schema, Messages())["columns"] == "bookmark,key,value"
