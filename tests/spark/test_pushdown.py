"""Pushed filters let through whatever Spark's own let through; nothing here needs Java."""

import json
import operator
import random

import pyarrow as pa
import pytest

from tests.cases import all_cases

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from sow.expressions import compile_filter
from sow.messages import message_type
from sow.spark.columns import JSON_MESSAGES, ROW, decoder
from sow.spark.options import read_options
from sow.spark.pushdown import expression
from sow.spark.reader import PushingReader

pytestmark = pytest.mark.spark

FIELDS = pa.schema(
    [
        ("n", pa.int64()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("l", pa.struct([("n", pa.int32()), ("s", pa.string())])),
    ]
)
NUMBERS = [0, 1, -1, 2, 1.0, 0.1, 1e-7, 2.5, 12.50, -3.5, 1e15, 2**53, 2**53 + 1, 10**20, 1e300]
TEXTS = [
    "x",
    "xy",
    "1",
    "01",
    "1.0",
    "true",
    "false",
    "null",
    "NaN",
    "inf",
    "",
    " x",
    "it's",
    "[1]",
]
OTHERS = [True, False, None, {"n": 1}, [1, 2], ["x"], {"n": "x", "s": "x"}, {"n": 2, "s": True}]
COMPARED = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}


def value(chance):
    return chance.choice(chance.choice((NUMBERS, TEXTS, OTHERS)))


def document(chance):
    return {name: value(chance) for name in FIELDS.names if chance.random() < 0.9}


def rows(documents):
    texts = [json.dumps(one) for one in documents]
    count = len(texts)
    columns = [range(count), ["t"] * count, ["k"] * count, ["publish"] * count, [0] * count, texts]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, ROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROW)


def condition(chance):
    """A filter that Spark may hand over, and what it says of a value of the column."""
    path = chance.choice([("n",), ("d",), ("s",), ("b",), ("l", "n"), ("l", "s")])
    is_text = path[-1] == "s"
    texts = [*TEXTS, "x1", "tr", "e", "l", "y", "{", "n"]
    literal = chance.choice(texts) if is_text else chance.choice(NUMBERS)
    kinds = [EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
    if is_text:
        kinds += [StringStartsWith, StringEndsWith, StringContains]
    kind = chance.choice(kinds)
    found, judge = kind(path, literal), lambda v: COMPARED[kind](v, literal)
    match chance.randrange(6):
        case 0:
            return path, Not(EqualTo(path, literal)), lambda v: v != literal
        case 1:
            return path, In(path, (literal, literal)), lambda v: v == literal
        case 2:
            return path, IsNotNull(path), lambda _v: True
    return path, found, judge


def at(row, path):
    for name in path:
        row = None if row is None else row[name]
    return row


@all_cases("seed", range(8))
def test_no_row_that_spark_wants_is_left_out(seed):
    chance = random.Random(seed)
    documents = [document(chance) for _ in range(100)]
    decoded = decoder(FIELDS)(rows(documents)).to_pylist()
    bodies = [json.dumps(one).encode() for one in documents]
    pushed = 0
    for _ in range(60):
        path, requested, judge = condition(chance)
        text = expression(requested, FIELDS)
        if text is None:
            continue
        pushed += 1
        servers = compile_filter(text)
        columns = message_type("json", {}).decoder(servers.paths).columns(bodies)
        let_through = servers.matches(columns, len(bodies))
        for row, body, is_there in zip(decoded, documents, let_through, strict=True):
            found = at(row, path)
            assert is_there or found is None or not judge(found), (text, body)
    assert pushed


@pytest.mark.parametrize(
    "one",
    [
        EqualTo(("f",), 0.5),
        EqualTo(("s",), "true"),
        EqualTo(("s",), "1.0"),
        StringContains(("s",), "x"),
        StringStartsWith(("s",), "tr"),
        StringEndsWith(("s",), "e"),
        EqualTo(("other",), 1),
        EqualTo(("l",), 1),
        EqualTo(("b",), True),
    ],
)
def test_what_the_two_compare_otherwise_is_left_to_spark(one):
    assert expression(one, FIELDS) is None


def pushing(schema, messages=None):
    options = read_options({"topic": "t", "pushdown": "true"})
    return PushingReader(options, schema, from_log=False, messages=messages)


def test_columns_of_the_row_are_no_fields_of_the_body():
    schema = pa.schema([("_bookmark", pa.int64()), ("_op", pa.string()), *FIELDS])
    reader = pushing(schema, JSON_MESSAGES)
    requested = [GreaterThan(("_bookmark",), 5), EqualTo(("_op",), "publish"), EqualTo(("n",), 1)]
    assert reader.pushFilters(requested) == requested
    assert reader.condition == "(/n = 1)"


@pytest.mark.parametrize("key", [" 1", "1 ", "a b", "a,b", ""])
def test_a_key_that_cannot_be_one_is_not_requested_for(key):
    reader = pushing(ROW)
    assert reader.pushFilters([EqualTo(("key",), key)])
    assert reader.keys is None


def test_a_field_called_key_is_no_sow_key():
    reader = pushing(pa.schema([("key", pa.string())]), JSON_MESSAGES)
    reader.pushFilters([EqualTo(("key",), "abc")])
    assert (reader.keys, reader.condition) == (None, "(/key = 'abc')")


def test_keys_are_requested_for_and_compared_again():
    reader = pushing(ROW)
    requested = [In(("key",), ("1", "k-2")), EqualTo(("key",), "1")]
    assert reader.pushFilters(requested) == requested
    assert reader.keys == ("1", "k-2")
