"""The topic of a write, which columns it takes, and which records deletes find."""

import json
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

from sow.errors import ClientError
from sow.spark.arrow_cast import Number, variant_of
from sow.spark.columns import decoder
from sow.spark.write_target import documents
from tests.spark.test_columns import rows

pytest.importorskip("pyspark")

from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from sow.spark.http import SowServer, read_options
from sow.spark.write_target import (
    KeysOfTopics,
    WriteTarget,
    by_sow_key,
    check_columns,
    target,
    writer_of,
)
from sow.spark.writer import RowMessages

pytestmark = [pytest.mark.spark, pytest.mark.edge]


TEXT, LONG = StringType(), LongType()


def schema(**columns):
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def options(topic="orders", **more):
    return read_options({"topic": topic, **more})


def requested(server, topic):
    return target(options(topic, url=server.url))


def test_a_topic_says_of_what_type_its_messages_are_and_whether_the_key_is_a_field(server):
    found = WriteTarget(key_is_field=False, topic="orders", keys=("/id",), domain="orders")
    assert requested(server, "orders") == found
    by_field = target(options(url=server.url, keyColumn="id"))
    assert by_field == replace(found, key_is_field=True)
    assert requested(server, "/desk/new").domain == "/desk/new"
    assert requested(server, "nvfix").messages == "bar"


def test_what_takes_no_rows_is_refused(server):
    with pytest.raises(ClientError, match="desks is a pattern of topics"):
        requested(server, "desks")
    with pytest.raises(ClientError, match="a copy of orders; write to that"):
        requested(server, "orders-C")


def test_a_view_that_spark_runs_takes_rows_of_its_own_pipeline_alone(monkeypatch):
    said = {"kind": "view", "underlyings": ["orders"], "message_type": "json", "keys": []}
    monkeypatch.setattr(SowServer, "json", lambda *_requested, **_more: said)
    with pytest.raises(ClientError, match="my desks is a view, made of orders; write to orders"):
        target(options("my desks"))
    with pytest.raises(ClientError, match="write to orders"):
        target(options("my desks", writer="pipeline my"))
    name = f"{writer_of('my%20desks')}1234"
    to = WriteTarget(key_is_field=False, topic="my desks")
    assert target(options("my desks", writer=name)) == to


@pytest.mark.parametrize("messages", ["bar", "fix", "bflat", "binary", "string", "int64", "double"])
def test_columns_are_no_messages_of_other_types(messages):
    to = WriteTarget(key_is_field=False, messages=messages)
    for columns in ({"id": LONG}, {"key": TEXT, "value": LONG}, {"op": TEXT, "id": TEXT}):
        with pytest.raises(ClientError, match=f"messages of type {messages}, which cannot be made"):
            check_columns(schema(**columns), options(), to)


def test_of_other_types_there_is_a_text_or_a_key_to_delete():
    to = WriteTarget(key_is_field=False, messages="bflat")
    for columns in ({"value": TEXT}, {"key": TEXT, "op": TEXT, "value": TEXT}, {"key": TEXT}):
        check_columns(schema(**columns), options(), to)


def test_bytes_are_messages_where_these_are_no_json():
    to, column = WriteTarget(key_is_field=False, messages="binary"), {"value": BinaryType()}
    check_columns(schema(key=TEXT, **column), options(), to)
    messages = RowMessages(options("binary"), to, frozenset())
    rows = pa.RecordBatch.from_pydict({"key": ["a", "b"], "value": [b"\xff\x00", None]})
    assert messages.of(rows).to_pylist() == rows.to_pylist()
    with pytest.raises(ClientError, match="id stands beside it"):
        check_columns(schema(id=TEXT, **column), options(), to)
    as_json = RowMessages(options(), WriteTarget(key_is_field=False), frozenset())
    assert as_json.of(rows.select(["value"])).to_pylist()[0] == {"value": '{"value":"/wA="}'}


def test_a_document_stands_beside_columns_of_its_row_alone():
    to, row = (
        WriteTarget(key_is_field=False),
        {"bookmark": LONG, "topic": TEXT, "key": TEXT, "op": TEXT},
    )
    for columns in (row, {"_op": TEXT, "_ts": TEXT}, {}):
        check_columns(schema(value=TEXT, **columns), options(), to)
    for columns in ({"id": LONG, "sensor": TEXT}, {"bookmark": TEXT}, {"ts": LONG}):
        with pytest.raises(ClientError, match=f"{next(iter(columns))} stands beside it: leave"):
            check_columns(schema(value=TEXT, **columns), options(), to)
    check_columns(schema(value=LONG, id=LONG), options(), to)


@pytest.mark.parametrize(
    ("columns", "more", "says"),
    [
        ({"id": LONG, "kee": TEXT}, {"keyColumn": "ke"}, "did you mean kee"),
        ({"id": LONG}, {"opColumn": "does"}, "there is no column 'does', which opColumn names"),
        ({"id": LONG, "op": ArrayType(TEXT)}, {}, "opColumn is a text; cast it to string"),
    ],
)
def test_a_column_that_is_named_is_there_and_is_a_text(columns, more, says):
    with pytest.raises(ClientError, match=says):
        check_columns(schema(**columns), options(**more), WriteTarget(key_is_field=False))


OPERATIONS = pa.array(["publish", "delete", "expire", "delete", None])


def test_a_delete_without_key_fields_goes_by_its_sow_key():
    batch = pa.RecordBatch.from_pydict(
        {"id": [None, 1, None, None, 1], "leg": [{"n": 1}, {"n": 1}, {"n": 1}, None, None]}
    )

    def found(*keys):
        return [at for at, one in enumerate(by_sow_key(batch, OPERATIONS, keys)) if one.as_py()]

    assert found("/id") == [2, 3]
    assert found("/leg/n") == [3]
    assert found("/leg/other") == found("/absent") == found("/id/inside") == found() == [1, 2, 3]
    assert found("/id", "/leg/n") == [2, 3]


def test_a_sow_key_of_another_topic_is_taken_where_both_have_one_key_domain(monkeypatch):
    requested = []

    def json(_self, _method, path):
        requested.append(path)
        return {"key_domain": "shared" if path.endswith("/near") else "far"}

    monkeypatch.setattr(SowServer, "json", json)
    keys = KeysOfTopics(SowServer("played"), WriteTarget(False, topic="mine", domain="shared"))
    keys.check(pa.array(["mine", "near", None, "near"]))
    keys.check(pa.array(["near"]))
    assert requested == ["/v1/topics/near"]
    with pytest.raises(ClientError, match=r"delete of far .* the KeyDomain of far is far, that of"):
        keys.check(pa.array(["far"]))


def test_the_sow_key_of_a_topic_that_is_not_there_is_none_of_ours(server):
    keys = KeysOfTopics(SowServer(server.url), WriteTarget(False, topic="orders", domain="orders"))
    with pytest.raises(ClientError, match="the server has no topic absent"):
        keys.check(pa.array(["absent"]))


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


YEAR_10000_S = 253_402_300_800


@pytest.mark.parametrize(
    "column",
    [
        pa.array([YEAR_10000_S], pa.timestamp("s", "America/New_York")).cast(
            pa.timestamp("us", "America/New_York")
        ),
        pa.array([[YEAR_10000_S // 86_400]], pa.list_(pa.date32())),
    ],
)
def test_a_time_that_messages_lack_is_refused_by_column(column):
    with pytest.raises(ClientError, match="column until holds a day or time outside of the years"):
        written(until=column)


def test_a_variant_is_written_as_its_value_and_what_json_lacks_is_named():
    inner = pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"})
    variant = pa.struct([pa.field("value", pa.binary(), nullable=False), inner])

    def document(*values):
        return written(v=pa.array([variant_of(value) for value in values], variant))

    at = {"value": b"\x30" + (1_500_000).to_bytes(8, "little"), "metadata": b"\x01\x00\x00"}
    assert written(v=pa.array([at], variant)) == ['{"v":"1970-01-01T00:00:01.500000Z"}']
    assert document({"a": [Number("1.50")]}, None) == ['{"v":{"a":[1.50]}}', '{"v":null}']
    with pytest.raises(ClientError, match="column v holds NaN"):
        document([{"a": float("nan")}])
    broken = pa.array([{**at, "value": b"\xfc"}], variant)
    with pytest.raises(ClientError, match="column v holds a variant that messages cannot"):
        written(v=broken)


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
