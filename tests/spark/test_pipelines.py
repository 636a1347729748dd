"""Pipelines as config.xml defines them, run against a server: they go on, and lose nothing."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from sow.config import load
from sow.core.pipelines import Conflate, Pipeline, PipelineOption, Sink, Source, Static
from sow.errors import ClientError
from sow.spark.pipelines import Running, ToItsEnd, reason

pytestmark = [pytest.mark.spark, pytest.mark.edge]

SHIPPED = Path(__file__).parents[2] / "config.xml"
UTC = pa.timestamp("ns", tz="UTC")


def ticks(directory, name, *rows):
    """A file of (symbol, seconds, price), with times in nanoseconds as recorders write them."""
    directory.mkdir(exist_ok=True)
    symbols, seconds, prices = zip(*rows, strict=True)
    ts = pa.array([int(s * 1e9) + 1_700_000_000_000_000_000 for s in seconds], pa.int64())
    table = pa.table({"id": symbols, "ts": ts.cast(UTC), "px": prices})
    path = directory / f"{name}.parquet"
    pyarrow.parquet.write_table(table, path)
    os.utime(path, (ord(name), ord(name)))  # Spark takes them by their times


def test_files_are_loaded_into_a_topic_once_each(run, server, tmp_path):
    ticks(tmp_path / "in", "a", ("A", 0, 1.0), ("B", 0.5, 2.0), ("A", 1, 3.0))
    pipeline = Pipeline(
        name="load",  # without a TimeUnit: Parquet says what it counts
        sources=(Source(format="parquet", path="in", time_column="ts"),),
        sink=Sink(topic="orders"),
    )
    assert run(pipeline) == 3
    found = {row["id"]: row for row in server.records("orders")}
    assert found["A"] == {"id": "A", "ts": "2023-11-14T22:13:21Z", "px": 3.0}
    ticks(tmp_path / "in", "b", ("C", 2, 4.0))
    assert run(pipeline) == 1
    assert len(server.records("orders")) == 3


@pytest.mark.slow  # the next one deletes from run to run, and publishes no bounds
def test_a_key_that_leaves_the_filter_is_deleted_and_windows_have_their_bounds(
    run, server, tmp_path
):
    ticks(tmp_path / "in", "a", ("A", 0, 1.0), ("B", 0, 1.0), ("A", 5, 100.0), ("C", 5, 100.0))
    run(
        Pipeline(
            name="focus",
            sources=(Source(format="parquet", path="in", time_column="ts", time_unit="ns"),),
            conflate=Conflate(
                keys=("/id",), interval_us=1_000_000, filter="/px < 50", window_fields=True
            ),
            sink=Sink(topic="orders"),
        )
    )
    (row,) = server.records("orders")
    assert row["id"] == "B"
    assert {*row} == {"id", "ts", "px", "window_start", "window_end"}


def test_windows_span_files_and_what_a_run_has_handed_on_the_next_one_knows(run, server, tmp_path):
    pipeline = Pipeline(
        name="goes-on",
        sources=(
            Source(
                format="parquet",
                path="in",
                time_column="ts",
                time_unit="ns",
                options=(PipelineOption("maxFilesPerTrigger", "1"),),
            ),
        ),
        conflate=Conflate(
            keys=("/id",),
            interval_us=1_000_000,
            filter="/px < 50",
            lateness_us=500_000,
            late_path="late",
        ),
        sink=Sink(topic="orders"),
    )

    def late():
        files = sorted((tmp_path / "late").glob("*"))
        return [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]

    before = int(server.get("/v1/log/extent").json["newest"])
    ticks(tmp_path / "in", "a", ("A", 0, 1.0), ("B", 0.5, 2.0))
    ticks(tmp_path / "in", "b", ("A", 0.3, 3.0), ("A", 0.2, 4.0), ("A", 0.9, 5.0))
    assert run(pipeline) == 6  # and the row that says that this was all
    found = [(row["id"], row["px"]) for row in server.records("orders", order_by="/id")]
    assert found == [("A", 5.0), ("B", 2.0)]
    # Nobody published the bounds of a window.
    assert all({*row} == {"id", "ts", "px"} for row in server.records("orders"))
    written = server.get(f"/v1/log?from={before}&topics=orders").rows
    assert len(written) == 2
    assert late() == []
    # The next file says that A leaves, which the run before has written, and that C does.
    ticks(tmp_path / "in", "c", ("A", 5, 100.0), ("C", 5, 100.0), ("B", 0.8, 9.0))
    run(pipeline)
    assert [(row["id"], row["px"]) for row in server.records("orders")] == [("B", 2.0)]
    written = server.get(f"/v1/log?from={before}&topics=orders").rows
    assert [row["op"] for row in written] == ["publish", "publish", "delete"]
    rows = late()  # what was late stands beside it whole
    assert [(row["id"], row["px"], list(row)) for row in rows] == [("B", 9.0, ["id", "ts", "px"])]


@pytest.mark.slow
def test_late_rows_of_a_batch_that_is_run_again_are_kept_once(run, tmp_path):
    source = Source(
        format="parquet",
        path="in",
        time_column="ts",
        time_unit="ns",
        options=(PipelineOption("maxFilesPerTrigger", "1"),),
    )
    pipeline = Pipeline(
        name="again",
        sources=(source,),
        conflate=Conflate(keys=("/id",), interval_us=1_000_000, late_path="late"),
        sink=Sink(format="parquet", path="out"),
    )

    def late():
        return {file.name: file.read_bytes() for file in (tmp_path / "late").glob("*")}

    ticks(tmp_path / "in", "a", ("A", 5, 1.0))
    run(pipeline)
    ticks(tmp_path / "in", "b", ("A", 0, 2.0), ("A", 6, 3.0))
    run(pipeline)
    kept = late()
    assert len(kept) == 1
    # As after a crash before Spark has noted that the batch was done, and the one that ends a run.
    for file in (tmp_path / "pipelines/again/checkpoint/commits").glob("*[23]*"):
        file.unlink()
    run(pipeline)
    assert late() == kept


def test_a_topic_is_conflated_by_a_field_of_its_bodies(run, server):
    start = server.get("/v1/log/extent").json["newest"]
    server.publish("orders", *({"id": n, "leg": {"s.y": "AB"[n % 2]}} for n in range(20)))
    pipeline = Pipeline(
        name="bodies",
        sources=(
            Source(
                format="sow", topic="orders", options=(PipelineOption("startingBookmark", start),)
            ),
        ),
        conflate=Conflate(keys=("/leg/s.y",), interval_us=1, null_keys="drop"),
        sink=Sink(topic="loud"),
    )
    server.publish("orders", {"id": 21})
    server.request("DELETE", "/v1/topics/orders/records?filter=/id=0")  # whose has no body
    server.publish("orders", {"id": 20, "leg": {"s.y": "C"}})  # ends the windows of the others
    run(pipeline)
    assert {row["leg"]["s.y"] for row in server.records("loud")} == {"A", "B"}


def test_bars_are_written_anew_as_they_change(run, server):
    (shipped,) = (one for one in load(str(SHIPPED)).configuration.pipelines if one.name == "bars")
    start = server.get("/v1/log/extent").json["newest"]
    source = Source(
        format="sow",
        topic="orders",
        schema=shipped.source.schema,
        time_column=shipped.source.time_column,
        options=(PipelineOption("startingBookmark", start),),
    )
    bars = Pipeline(
        name="bars",
        sources=(source,),
        sql=shipped.sql.replace("SELECT symbol,", "SELECT symbol AS id, symbol,"),
        sink=Sink(topic="loud"),
        output_mode=shipped.output_mode,
    )
    fills = [("A", 10.0, 100), ("A", 12.0, 50), ("A", 9.0, 0), ("B", 5.0, 1)]
    server.publish(
        "orders",
        *({"id": n, "symbol": s, "price": p, "last_qty": q} for n, (s, p, q) in enumerate(fills)),
    )
    run(bars)
    by_symbol = {row["symbol"]: row for row in server.records("loud")}
    names = ("open", "high", "low", "close", "volume", "trades")
    assert [by_symbol["A"][name] for name in names] == [10.0, 12.0, 10.0, 12.0, 150, 2]
    assert by_symbol["B"]["volume"] == 1


def test_changes_are_exported_by_hour_and_go_on_where_they_were(run, server, tmp_path):
    (export,) = (
        one for one in load(str(SHIPPED)).configuration.pipelines if one.name == "export-orders"
    )
    start = server.get("/v1/log/extent").json["newest"]
    server.publish("orders", {"id": 1}, {"id": 2})
    run(export)
    server.publish("orders", {"id": 3})
    run(export)
    files = list((tmp_path / "export" / "orders").glob("hour=*/*.parquet"))
    rows = [row for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]
    mine = sorted(row["bookmark"] for row in rows if row["bookmark"] > int(start))
    assert len(mine) == len(set(mine))
    assert {json.loads(row["value"])["id"] for row in rows if row["bookmark"] in mine} == {1, 2, 3}


def test_two_sources_and_a_static_table_are_one_stream(run, server, tmp_path):
    ticks(tmp_path / "in", "a", ("A", 0, 1.0), ("B", 0.5, 2.0), ("Z", 1, 3.0))
    (tmp_path / "names.csv").write_text("id,name\nA,Alpha\nB,Beta\nC,Gamma\n")
    server.publish("orders", {"id": "A", "desk": "one"})
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "a.txt").write_text("C\n")
    pipeline = Pipeline(
        name="joined",
        sources=(
            Source(name="ticks", format="parquet", path="in", time_column="ts", time_unit="ns"),
            Source(name="lines", format="text", path="lines", schema="value string"),
        ),
        statics=(
            Static(
                name="names",
                format="csv",
                path="names.csv",
                options=(PipelineOption("header", "true"),),
            ),
            Static(name="desks", format="sow", topic="orders", schema="id string, desk string"),
        ),
        sql="WITH every AS (SELECT id, px FROM ticks UNION ALL SELECT value, 9.0D FROM lines) "
        "SELECT id, name, px, desk FROM every JOIN names USING (id) LEFT JOIN desks USING (id)",
        sink=Sink(topic="loud"),
    )
    assert run(pipeline) == 4
    rows = [row for row in server.records("loud") if "name" in row]
    found = {row["name"]: (row["px"], row.get("desk")) for row in rows}
    assert found == {"Alpha": (1.0, "one"), "Beta": (2.0, None), "Gamma": (9.0, None)}
    # The next run reads the table again, and new rows of the sources.
    (tmp_path / "names.csv").write_text("id,name\nA,Aleph\n")
    ticks(tmp_path / "in", "b", ("A", 2, 4.0))
    run(pipeline)
    aleph = {"id": "A", "name": "Aleph", "px": 4.0, "desk": "one"}
    assert aleph in server.records("loud")


def test_one_pipeline_runs_once_at_a_time(spark, server, tmp_path):
    pipeline = Pipeline(
        name="twice", sources=(Source(format="sow", topic="orders"),), sink=Sink(topic="loud")
    )
    first = Running(pipeline, server.url, tmp_path, once=True, master=None)
    first.start()
    try:
        with pytest.raises(ClientError, match="is running already, as process"):
            Running(pipeline, server.url, tmp_path, once=True, master=None).start()
    finally:
        first.stop()


def test_a_checkpoint_with_a_scheme_is_held_too(spark, server, tmp_path):
    place = (tmp_path / "shared").as_uri()
    pipeline = Pipeline(
        name="elsewhere",
        sources=(Source(format="sow", topic="orders"),),
        sink=Sink(format="json", path=f"{place}/out"),
        checkpoint=f"{place}/state",
    )
    server.publish("orders", {"id": 1})
    for directory in ("one", "another"):
        running = Running(pipeline, server.url, tmp_path / directory, once=True, master=None)
        running.start()
        try:
            with pytest.raises(
                ClientError, match=r"is held by process \d+ of .* lease expires in \d+ s"
            ):
                Running(pipeline, server.url, tmp_path / "b", once=True, master=None).start()
            running.keep()
            running.query.awaitTermination()
        finally:
            running.stop()
    written = (tmp_path / "shared/out").glob("*.json")
    assert sum(len(file.read_text().splitlines()) for file in written) == int(
        server.get("/v1/log/extent?topics=orders").json["rows"]
    )


def test_a_delete_reaches_the_files_and_so_does_who_leaves_the_filter(run, server, tmp_path):
    start = server.get("/v1/log/extent").json["newest"]
    server.publish("orders", {"id": 1, "px": 1}, {"id": 2, "px": 1}, {"id": 3, "px": 1})
    pipeline = Pipeline(
        name="leaving",
        sources=(
            Source(
                format="sow", topic="orders", options=(PipelineOption("startingBookmark", start),)
            ),
        ),
        conflate=Conflate(keys=("/id",), interval_us=1, filter="/px < 50"),
        sink=Sink(format="json", path="out"),
    )
    server.publish("orders", {"id": 1, "px": 100})
    server.request("DELETE", "/v1/topics/orders/records?filter=/id=2")
    server.publish("orders", {"id": 4, "px": 1})
    run(pipeline)
    lines = [
        json.loads(line)
        for file in (tmp_path / "out").glob("*.json")
        for line in file.read_text().splitlines()
    ]
    found = [(line["op"], json.loads(line.get("value", "{}")).get("id")) for line in lines]
    assert sorted(found, key=str) == [
        ("delete", None), ("match", 1), ("publish", 1), ("publish", 2), ("publish", 3),
    ]  # fmt: skip


def of_orders(server, **more):
    """The log of a topic from now on."""
    newest = server.get("/v1/log/extent").json["newest"]
    start = PipelineOption("startingBookmark", newest)
    return Source(format="sow", topic="orders", options=(start,), **more)


def test_keys_and_filters_read_fields_called_like_columns_of_the_row(run, server):
    pipeline = Pipeline(
        name="fields",
        sources=(of_orders(server),),
        conflate=Conflate(keys=("/topic",), interval_us=1_000, filter="/op = 'buy' AND /value < 9"),
        sink=Sink(topic="loud"),
    )
    rows = [(1, "buy", 5, "news"), (2, "sell", 5, "art"), (3, "buy", 5, "sport")]
    rows += [(4, "buy", 9, "art"), (5, "buy", 1, "end")]
    names = ("id", "op", "value", "topic")
    documents = [dict(zip(names, row, strict=True)) for row in rows]
    for document in documents:
        server.publish("orders", document)
    run(pipeline)
    found = sorted(server.records("loud"), key=lambda record: record["id"])
    assert found == [documents[0], documents[2]]


def test_typed_rows_are_written_with_their_own_fields_alone(run, server):
    schema = "id long, op string, key string, _ts timestamp"
    pipeline = Pipeline(
        name="typed",
        sources=(of_orders(server, schema=schema, time_column="_ts"),),
        conflate=Conflate(keys=("/id",), interval_us=1_000),
        sink=Sink(topic="loud"),
    )
    for number in (1, 2):
        server.publish("orders", {"id": number, "op": "buy", "key": "mine"})
    run(pipeline)
    assert server.records("loud") == [{"id": 1, "op": "buy", "key": "mine"}]


def test_a_field_that_says_no_operation_is_never_taken_for_a_delete(run, server, tmp_path):
    directory = tmp_path / "in"
    directory.mkdir()
    table = pa.table({"id": [1], "ts": [1], "op": ["buy"]})
    pyarrow.parquet.write_table(table, directory / "a.parquet")
    source = Source(format="parquet", path="in", time_column="ts", time_unit="s")
    pipeline = Pipeline(
        name="sides",
        sources=(source,),
        conflate=Conflate(keys=("/id",), interval_us=1_000),
        sink=Sink(topic="loud"),
    )
    with pytest.raises(Exception, match="op says what a row does, and holds buy") as raised:
        run(pipeline)
    assert reason(raised.value).startswith("the column op says what a row does, and holds buy;")


class Query:
    """A query that takes some looks to end."""

    def __init__(self, looks, progress, error=None):
        self.looks, self.recentProgress, self.error = looks, progress, error
        self.stopped = False

    def awaitTermination(self, timeout=None):  # noqa: N802 (the name is Spark's)
        if self.error is not None:
            raise self.error
        if timeout is None:
            self.looks = 0
            return None
        self.looks -= 1
        return self.looks <= 0

    def stop(self):
        self.stopped = True


def test_two_queries_are_waited_for_like_one():
    begun, queries = [], [Query(2, [0, 1]), Query(1, [2])]

    def begin(ends):
        begun.append(ends)
        return queries[len(begun) - 1]

    both = ToItsEnd(begin)
    assert not both.awaitTermination(0.5)
    assert (begun, both.recentProgress) == ([False], [0, 1])
    assert both.awaitTermination(0.5)
    assert (begun, both.recentProgress) == ([False, True], [0, 1, 2])
    both.stop()
    assert queries[1].stopped
    begun.clear()
    assert ToItsEnd(begin).awaitTermination() is None
    assert begun == [False, True]


def test_a_query_that_fails_is_not_followed_by_another():
    both = ToItsEnd(lambda ends: Query(1, [], ValueError("no")))
    with pytest.raises(ValueError, match="no"):
        both.awaitTermination()
