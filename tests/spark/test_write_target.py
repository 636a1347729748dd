"""The topic of a write, which columns it takes, and which records deletes find."""

from dataclasses import replace

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from sow.errors import ClientError
from sow.spark.http import SowServer
from sow.spark.options import read_options
from sow.spark.write_target import (
    KeysOfTopics,
    WriteTarget,
    by_sow_key,
    check_columns,
    target,
    writer_of,
)

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
