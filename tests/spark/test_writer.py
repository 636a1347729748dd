"""Tasks stage and the driver commits; a server is needed here, and no Java."""

from dataclasses import replace

import pyarrow as pa
import pytest

from sow.errors import ClientError, SowError

pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sow.spark.http import ServerRefusal, SowServer, Unanswered
from sow.spark.source import SowDataSource
from sow.spark.writer import PARTS_APART
from tests.edge.serving import records as records_of

pytestmark = [pytest.mark.spark, pytest.mark.edge]

ONE = pa.table({"id": [1], "v": ["first"]})


def write(server, topic, table=ONE, **options):
    source = SowDataSource({"url": server.url, "topic": topic, **options})
    writer = source.writer(from_arrow_schema(table.schema), False)
    writer.commit([writer.write(iter(table.to_batches()))])


def test_a_write_makes_a_topic_of_a_pattern(server):
    write(server, "/desk/written")
    assert server.records("/desk/written") == [{"id": 1, "v": "first"}]


def test_a_message_of_another_type_is_written_as_its_text(server):
    write(server, "nvfix", pa.table({"value": ["id=1|px=2.5|"]}))
    assert server.records("nvfix") == [{"id": "1", "px": "2.5"}]
    (one,) = server.records("nvfix", meta="true")
    write(server, "nvfix", pa.table({"key": [one["k"]]}), mode="delete")
    assert server.records("nvfix") == []


def test_one_epoch_is_written_to_two_topics(server):
    for topic in ("orders", "loud"):
        write(server, topic, writer="both", epoch="1")
        assert server.records(topic) == [{"id": 1, "v": "first"}]


def test_an_older_epoch_is_refused_and_passed_over_where_that_is_said(server):
    write(server, "orders", writer="nightly", epoch="7")
    again = pa.table({"id": [1], "v": ["again"]})
    write(server, "orders", writer="nightly", epoch="7")
    for more in ({}, {"rerun": "skip"}):
        with pytest.raises(ServerRefusal, match=r"epoch reused: .* 7 to orders") as refused:
            write(server, "orders", again, writer="nightly", epoch="7", **more)
        assert refused.value.reason == "epoch reused"
    with pytest.raises(ServerRefusal, match="applied epoch 7 to orders, and this is epoch 6"):
        write(server, "orders", again, writer="nightly", epoch="6")
    write(server, "orders", again, writer="nightly", epoch="6", rerun="skip")
    assert server.records("orders") == [{"id": 1, "v": "first"}]


def test_a_topic_is_replaced_in_one_step(server):
    server.publish("orders", {"id": 1, "v": "old"}, {"id": 2})
    write(server, "orders", mode="replace")
    assert server.records("orders") == [{"id": 1, "v": "first"}]


def test_a_topic_is_replaced_by_no_rows_only_where_that_is_said(server):
    server.publish("orders", {"id": 1})
    for staged in (ONE.slice(0, 0), None):
        source = SowDataSource({"url": server.url, "topic": "orders", "mode": "replace"})
        writer = source.writer(from_arrow_schema(ONE.schema), False)
        messages = [] if staged is None else [writer.write(iter(staged.to_batches()))]
        with pytest.raises(ServerRefusal, match="all of them would go"):
            writer.commit(messages)
    assert server.records("orders") == [{"id": 1}]
    write(server, "orders", ONE.slice(0, 0), mode="replace", allowEmpty="true")
    assert server.records("orders") == []


def test_a_row_without_op_does_what_the_mode_says(server):
    write(server, "orders", pa.table({"id": [1, 2], "v": ["first", "second"]}))
    some = pa.table({"id": [1, 2], "op": pa.array([None, "publish"]), "w": [1, 2]})
    write(server, "orders", some, mode="delta")
    found = sorted(server.records("orders"), key=lambda record: record["id"])
    assert found == [{"id": 1, "v": "first", "w": 1}, {"id": 2, "w": 2}]
    write(server, "orders", some, mode="delete")
    assert [record["id"] for record in server.records("orders")] == [2]


def test_a_batch_of_long_rows_goes_in_requests_that_the_server_takes(server):
    long = pa.table({"id": list(range(40)), "v": ["x" * 2_000_000] * 40})
    write(server, "orders", long)
    write(server, "orders", long, mode="delete")
    assert server.records("orders") == []


def test_a_task_cuts_what_one_part_cannot_have_and_all_becomes_visible_at_once(server, monkeypatch):
    monkeypatch.setattr("sow.server.api.batch_commit.HELD_BYTES_MAX", 1000)
    engine, limits = server.server.engine, server.server.configuration.limits
    small = replace(engine.configuration, limits=replace(limits, batch_bytes_max=4000))
    monkeypatch.setattr(engine, "configuration", small)
    table = pa.table({"id": list(range(500)), "v": ["x" * 30] * 500})
    source = SowDataSource({"url": server.url, "topic": "orders", "batchRows": "20"})
    writer = source.writer(from_arrow_schema(table.schema), False)
    staged = writer.write(iter(table.to_batches(100)))
    parts = [one.part for one in staged.parts]
    assert len(parts) > 6
    assert parts == [parts[0] + PARTS_APART * at for at in range(len(parts))]
    assert sum(one.rows for one in staged.parts) == 500
    assert server.records("orders") == []
    before = engine.seq
    for _ in range(2):
        writer.commit([staged])
        assert engine.seq == before + 500
    assert len(server.records("orders")) == 500


def test_a_commit_that_takes_long_is_asked_for_until_it_is_answered(server, monkeypatch):
    unanswered = [True, True, False, True]

    def once(self, url, method, target, *given):
        if target.endswith("/commit") and unanswered.pop(0):
            raise Unanswered("timed out")
        return answered(self, url, method, target, *given)

    answered = SowServer._once
    monkeypatch.setattr(SowServer, "_once", once)
    write(server, "orders", retryTimeout="0")
    assert server.records("orders") == [{"id": 1, "v": "first"}]
    with pytest.raises(SowError, match="cannot be reached: timed out"):
        SowServer(server.url, retry_s=0).request("POST", "/v1/writes/w/1/commit", {})


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        ({"id": [1], "opp": ["delete"]}, {"opColumn": "op2"}, "no column 'op2', which opColumn"),
        ({"id": [1]}, {"keyColumn": "name"}, "no column 'name', which keyColumn names"),
        ({"id": [1], "op": [b"x"]}, {}, "the column op is binary, and opColumn is a text"),
        ({"id": [1], "key": [{"a": 1}]}, {}, "key is struct<a:bigint>, and keyColumn is a text"),
    ],
)
def test_columns_that_cannot_say_what_they_are_to_say(server, table, options, said):
    with pytest.raises(ClientError, match=said):
        write(server, "orders", pa.table(table), **options)


def test_a_field_is_not_written_twice(server):
    twice = pa.Table.from_arrays([pa.array([1])] * 3, ["id", "v", "v"])
    with pytest.raises(ClientError, match="two columns are called 'v'"):
        write(server, "orders", twice)


def test_records_are_deleted_by_their_keys_alone(server):
    write(server, "orders", pa.table({"id": [1, 2], "v": ["a", "b"]}))
    lines = server.get("/v1/log?topics=orders&limit=1000").rows
    by_id = {line["d"]["id"]: line["k"] for line in lines if line["op"] == "publish"}
    write(server, "orders", pa.table({"key": [by_id[1]]}), mode="delete")
    write(server, "orders", pa.table({"key": [by_id[2]], "op": ["delete"]}))
    assert server.records("orders") == []


def test_typed_deletes_go_by_the_sow_key_and_columns_of_the_row_are_no_fields(server):
    write(server, "orders", pa.table({"id": [1, 2], "v": ["a", "b"]}))
    keys = {row["d"]["id"]: row["k"] for row in server.records("orders", meta="true")}
    typed = pa.table(
        {
            "id": pa.array([None, 2]),
            "v": pa.array([None, "c"]),
            "_op": ["delete", "publish"],
            "_key": [keys[1], keys[2]],
            "_topic": ["orders", "orders"],
        }
    )
    write(server, "orders", typed, opColumn="_op", keyColumn="_key")
    assert server.records("orders") == [{"id": 2, "v": "c"}]


@pytest.mark.parametrize(("names", "more"), [(("op", "key", "topic"), {}), (("_op", "_key"), {})])
def test_a_delete_of_another_topic_is_refused_by_name(server, names, more):
    of_log = {"op": "delete", "key": "1", "topic": "loud", "_op": "delete", "_key": "1"}
    if "_op" in names:
        more = {"opColumn": "_op", "keyColumn": "_key"}
        table = pa.table({"id": pa.array([None], pa.int64()), "_topic": ["loud"]})
    else:
        table = pa.table({"value": pa.array([None], pa.string())})
    for name in names:
        table = table.append_column(name, pa.array([of_log[name]]))
    with pytest.raises(ClientError, match="a delete of loud names its record by a SowKey, and ord"):
        write(server, "orders", table, **more)


def test_what_is_no_message_is_said_of_the_column_that_it_stands_in(server):
    with pytest.raises(ClientError, match=r"not a JSON object.* those of the column value"):
        write(server, "orders", pa.table({"value": ["17.5 C"]}))


def test_a_document_in_bytes_is_named(server):
    with pytest.raises(ClientError, match="the column value is binary, and so a field: cast it"):
        write(server, "orders", pa.table({"value": [b'{"id":1}'], "partition": [0]}))


def test_a_column_that_is_a_key_but_for_its_case_is_named(server):
    with pytest.raises(ClientError, match=r"/id is missing.* by case: rename the column ID"):
        write(server, "orders", pa.table({"v": [1], "ID": [1]}))
    with pytest.raises(ServerRefusal, match="/id is missing"):
        write(server, "orders", pa.table({"v": [1], "ID": [1], "id": [None]}))


def test_columns_of_json_texts_are_written_as_the_values_that_they_are(server):
    texts = pa.field("x", pa.string(), metadata={"kind": "json"})
    table = pa.table({"id": [1, 2, 3], "x": ["1.50", '"a"', None]})
    table = table.cast(pa.schema([("id", pa.int64()), texts]))
    schema = StructType(
        [StructField("id", LongType()), StructField("x", StringType(), True, {"kind": "json"})]
    )
    writer = SowDataSource({"url": server.url, "topic": "orders"}).writer(schema, False)
    writer.commit([writer.write(iter(table.to_batches()))])
    assert [record["x"] for record in server.records("orders")] == [1.5, "a", None]


def test_records_read_by_inference_are_written_as_they_were(server):
    records = [
        {"id": 1, "live": True, "leg": {"qty": 5, "px": [1.5]}, "odd": 1},
        {"id": 2, "live": False, "leg": {"qty": 6, "px": []}, "odd": "x"},
    ]
    server.publish("orders", *records)
    server.publish("orders", {"id": 3, "gone": "x"})
    server.request("DELETE", records_of("orders") + "?filter=/id=3")
    source = SowDataSource({"url": server.url, "topic": "orders", "inferSchema": "true"})
    schema = source.schema()
    assert schema.names == ["id", "live", "leg", "odd"]
    reader = source.reader(schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    writer = SowDataSource({"url": server.url, "topic": "loud"}).writer(schema, False)
    writer.commit([writer.write(iter(batches))])
    assert sorted(server.records("loud"), key=lambda record: record["id"]) == records
