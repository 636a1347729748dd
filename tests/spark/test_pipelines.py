"""Pipelines as config.xml defines them, run against a server: they end, go on, and lose nothing."""

import json
import os
import traceback
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet
import pytest

from sow.config import load
from sow.core.pipelines import Conflate, Pipeline, PipelineOption, Sink, Source, Static
from sow.errors import BadFilter, ClientError, SowError
from sow.spark.http import ServerRefusal
from sow.spark.pipeline_io import NO_FILE, EndingSource, SourceRows, backfill
from sow.spark.pipelines import (
    EARLIER_RELEASE,
    KAFKA,
    Running,
    ToItsEnd,
    concerning,
    reason,
)
from sow.spark.rows import DataLoss

pytestmark = [pytest.mark.spark, pytest.mark.edge]

SHIPPED = Path(__file__).parents[2] / "config.xml"
UTC = pa.timestamp("ns", tz="UTC")


@pytest.fixture
def run(spark, server, tmp_path):
    """Runs a pipeline to its end; the rows it took up."""

    def whole(pipeline):
        running = Running(pipeline, server.url, tmp_path, once=True, master=None)
        running.start()
        try:
            running.query.awaitTermination()
            return sum(progress["numInputRows"] for progress in running.query.recentProgress)
        finally:
            running.stop()

    return whole


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


@pytest.mark.slow  # the next but one writes the same windows to a topic
def test_a_recorded_log_is_conflated_whole(run, tmp_path):
    ticks(
        tmp_path / "in", "a",
        ("A", 0, 1.0), ("A", 0.4, 2.0), ("B", 0.5, 9.0), ("A", 1, 3.0), ("A", 1.9, 4.0),
    )  # fmt: skip
    run(
        Pipeline(
            name="conflate",
            sources=(Source(format="parquet", path="in", time_column="ts", time_unit="ns"),),
            conflate=Conflate(keys=("/id",), interval_us=1_000_000),
            sink=Sink(format="parquet", path="out"),
        )
    )
    rows = pyarrow.parquet.read_table(tmp_path / "out").to_pylist()
    assert sorted((row["id"], row["px"]) for row in rows) == [("A", 2.0), ("A", 4.0), ("B", 9.0)]
    assert {*rows[0]} == {"id", "ts", "px", "window_start", "window_end"}


@pytest.mark.slow  # the next one does so from run to run
def test_a_key_that_leaves_the_filter_is_deleted(run, server, tmp_path):
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


def of_range(server, tmp_path, pipeline, start, end):
    return backfill(pipeline, server.url, tmp_path, str(start), str(end))


def test_a_range_is_run_again_as_the_pipeline_runs_it_and_its_own_progress_stays(
    run, spark, server, tmp_path
):
    begin = int(server.get("/v1/log/extent").json["newest"])
    own = (
        PipelineOption("startingBookmark", str(begin)),
        PipelineOption("consumer", "its own"),
        PipelineOption("maxRowsPerTrigger", "2"),
    )
    source = Source(
        format="sow",
        topic="orders",
        schema="id long, px long, _ts timestamp, _op string, _bookmark long",
        time_column="_ts",
        options=own,
    )
    pipeline = Pipeline(
        name="ranged",
        sources=(source,),
        conflate=Conflate(keys=("/id",), interval_us=3_600_000_000, policy="max"),
        sink=Sink(topic="loud"),
    )
    for px in (1, 5, 3, 4, 2):
        server.publish("orders", {"id": 1, "px": px})
    run(pipeline)
    assert server.records("loud") == []  # the window is open
    state = tmp_path / "pipelines" / "ranged"
    before = {
        path.name: path.read_bytes() for path in (state / "checkpoint/offsets").glob("[0-9]*")
    }
    consumers = server.get("/v1/log/consumers").json
    part = of_range(server, tmp_path, pipeline, begin + 2, begin + 4)
    assert (part.rows, part.after, part.until) == ({"source": 2}, begin + 2, begin + 4)
    for _ in range(2):  # once more after it is complete
        running = Running(part.pipeline, server.url, tmp_path, True, None, until=part.until)
        running.start()
        assert list(state.glob("backfill-*/lock"))
        running.query.awaitTermination()
        running.complete()
        running.stop()
        assert [(row["id"], row["px"]) for row in server.records("loud")] == [(1, 4)]
        assert not list(state.glob("backfill-*"))
    after = {path.name: path.read_bytes() for path in (state / "checkpoint/offsets").glob("[0-9]*")}
    assert after == before
    assert [one["bookmark"] for one in server.get("/v1/log/consumers").json] == [
        one["bookmark"] for one in consumers
    ]
    server.request("DELETE", "/v1/log/consumers/its%20own")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sources": (Source(format="csv", path="in"),)}, "reads csv, which has no bookmarks"),
        ({"sink": Sink(format="parquet", path="out")}, "it would pass over those of a backfill"),
    ],
)
def test_a_pipeline_that_has_no_range_is_refused(server, tmp_path, changes, says):
    given = {"sources": (Source(format="sow", topic="orders"),), "sink": Sink(topic="loud")}
    with pytest.raises(ClientError, match=says):
        of_range(server, tmp_path, Pipeline(name="p", **{**given, **changes}), 0, 1)


def test_a_range_that_makes_no_sense_is_refused(server, tmp_path, monkeypatch):
    server.publish("orders", *({"id": number} for number in (8, 9, 1, 2, 3)))
    log, newest = (server.get("/v1/log/extent").json[name] for name in ("log", "newest"))
    options = (PipelineOption("filter", "/id > 1"),)
    copy = Pipeline(
        name="p",
        sources=(Source(format="sow", topic="orders", options=options),),
        sink=Sink(topic="loud"),
    )
    begin = int(newest) - 3
    assert of_range(server, tmp_path, copy, begin, "latest").rows == {"source": 2}
    assert of_range(server, tmp_path, copy, "earliest", f"{log}-{newest}").until == int(newest)
    places = {
        of_range(server, tmp_path, one, begin, newest).pipeline.checkpoint
        for one in (copy, replace(copy, line=7), replace(copy, sql="SELECT * FROM source"))
    }
    assert len(places) == 2, "another definition does not go on with the state of this one"
    for start, end, says in (
        (newest, newest, "is empty: it begins after bookmark"),
        (newest, begin, "is empty"),
        (begin, int(newest) + 1, f"is not there yet: the newest bookmark is {newest}"),
        (begin, f"{'ab' * 8}-{newest}", "is of another log; this is the log"),
        (begin, "2999-01-01T00:00:00Z", "--to 2999-01-01T00:00:00Z lies in the future"),
        ("soon", newest, "Topic orders: .*'soon' is not a bookmark"),
        (begin, "soon", "--to: .*'soon' is not a bookmark"),
    ):
        with pytest.raises(ClientError, match=says):
            of_range(server, tmp_path, copy, start, end)
    monkeypatch.setattr(server.server.runtime.journal, "_base_seq", begin)
    with pytest.raises(ClientError, match="is not kept"):
        of_range(server, tmp_path, copy, begin - 1, newest)
    with pytest.raises(ClientError, match="write --from earliest for what there is"):
        of_range(server, tmp_path, copy, "2001-01-01T00:00:00Z", newest)


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


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sql": "SELECT nothing FROM source"}, "nothing"),
        ({"sql": "SELECT op FROM source", "conflate": ("/op",)}, "no column 'ts'"),
        ({"sql": "SELECT ts FROM source", "conflate": ("/id",)}, "no column 'id' for the key"),
        ({"sources": (Source(format="sow", topic="ordres"),)}, "did you mean orders"),
        ({"sources": (Source(format="rate"),)}, "has no end"),
        ({"conflate": ("/sym",)}, "1 records have no '/sym', which is a key"),
        ({"conflate": ("/it's",)}, "select it as a column in the SQL"),
        (
            {"sql": "SELECT op, ts FROM source", "conflate": ("/op",), "filter": "/px > 1"},
            "the filter reads /px, and there is no such column",
        ),
        # The sentences themselves are shown by test_target.py and test_columns.py.
        pytest.param(
            {"sql": "SELECT bookmark AS n FROM source", "sink": Sink(topic="bflat")},
            "bflat holds messages of type bflat, which cannot be made of columns such as n",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"sources": (Source(format="sow", topic="orders", schema="id long, _key long"),)},
            "the column _key cannot be read as int64",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_mistake_is_one_sentence(spark, server, tmp_path, changes, says):
    changes = dict(changes)
    if "conflate" in changes:
        changes["conflate"] = Conflate(
            keys=changes["conflate"], interval_us=1_000_000, filter=changes.pop("filter", None)
        )
        before = server.get("/v1/log/extent").json["newest"]
        starting = (PipelineOption("startingBookmark", before),)
        changes["sources"] = (Source(format="sow", topic="orders", options=starting),)
    pipeline = Pipeline(
        **{
            "name": "wrong",
            "sources": (Source(format="sow", topic="orders"),),
            "sink": Sink(topic="loud"),
            **changes,
        }
    )
    server.publish("orders", {"id": 1})
    running = Running(pipeline, server.url, tmp_path, once=True, master=None)
    try:
        with pytest.raises(Exception, match=says) as raised:
            _to_its_end(running)
        assert "\n" not in reason(raised.value)
    finally:
        running.stop()


def _to_its_end(running):
    running.start()
    running.query.awaitTermination()


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


def test_a_format_that_spark_has_not_is_said_by_its_element(run):
    source = Source(format="parket", path="in")
    with pytest.raises(ClientError, match="Format: Spark has no format parket; did you mean parq"):
        run(Pipeline(name="near", sources=(source,), sink=Sink(topic="loud")))


def reader(ends):
    return EndingSource({"ends": "true" if ends else "false"}).streamReader(None)


def test_each_run_that_ends_has_one_row_more():
    source = reader(ends=True)
    limit = source.getDefaultReadLimit()
    end = source.latestOffset({"ending": 3}, limit)
    assert end == source.latestOffset({"ending": 3}, limit) == source.latestOffset(end, limit)
    (part,) = source.partitions({"ending": 3}, end)
    (batch,) = source.read(part)
    assert batch.to_pylist() == [{"ending": 4}]
    assert source.partitions(end, end) == []


def test_a_query_that_does_not_end_the_run_has_none():
    source = reader(ends=False)
    start = source.initialOffset()
    assert source.latestOffset(start, source.getDefaultReadLimit()) == start


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


class Reader:
    """Remembers the options that it is given."""

    def __init__(self):
        self.given = {}

    def format(self, _name):
        return self

    def schema(self, _columns):
        return self

    def option(self, name, value):
        return self.options(**{name: value})

    def options(self, **given):
        self.given |= given
        return self

    def load(self):
        return self


@pytest.mark.parametrize(("takes_up", "taken"), [(True, "*.csv"), (False, NO_FILE)])
def test_the_query_that_ends_a_run_takes_up_no_file_whatever_the_options_say(
    tmp_path, takes_up, taken
):
    source = Source(
        format="csv",
        path="in",
        schema="a int",
        options=(PipelineOption("pathGlobFilter", "*.csv"),),
    )
    pipeline = Pipeline(name="p", sources=(source,), sink=Sink(format="csv", path="out"))
    spark = SimpleNamespace(readStream=Reader())
    frame = SourceRows(spark, pipeline, "", tmp_path, None).frame(
        source, ticks=False, takes_up=takes_up
    )
    assert frame.given["pathGlobFilter"] == taken


SENTENCE = "http://host: there is no topic of that name"


@pytest.mark.parametrize(
    "error",
    [
        ServerRefusal(SENTENCE, {}),
        BadFilter(SENTENCE),
        ClientError(SENTENCE),
        SowError(SENTENCE),
        DataLoss(SENTENCE),
        ValueError(SENTENCE),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_sentence_of_ours_is_taken_out_of_what_spark_wraps_it_in(error):
    lines = "".join(traceback.format_exception(error))
    wrapped = f"[PYTHON_DATA_SOURCE_ERROR] Traceback:\n  File x\n{lines}\tat org.apache"
    assert reason(RuntimeError(wrapped)) == SENTENCE


def test_of_an_error_of_sparks_the_first_line_is_said():
    assert reason(RuntimeError("[PARSE] no table\n== SQL ==\nSELECT")) == "[PARSE] no table"


def test_an_error_without_words_is_named():
    assert reason(KeyError()) == "KeyError"


def test_a_missing_connector_for_kafka_is_said_with_the_setting_that_brings_it():
    assert reason(RuntimeError("Failed to find the data source: kafka. Deploy")) == KAFKA


def test_a_checkpoint_of_an_earlier_release_is_said_with_what_to_do():
    wrapped = (
        "assertion failed: There are [1] sources in the checkpoint offsets and now there are [2] "
        "sources requested by the query. Cannot continue."
    )
    assert reason(RuntimeError(wrapped)) == EARLIER_RELEASE


CALLED = "An error occurred while calling o55.load.\n: org.apache.spark.SparkClassNotFound: "


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            f"{CALLED}[DATA_SOURCE_NOT_FOUND] Failed to find the data source: parket. Make sure "
            "the provider name is correct. SQLSTATE: 42K02\n\tat org.apache.spark",
            "Format: Spark has no format parket; did you mean parquet? Add a package with "
            "<Setting Name='spark.jars.packages' Value='…'/>",
        ),
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/x/y. SQLSTATE: 42K03",
            "Path: Path does not exist: file:/x/y; create it, or write where the files are; a "
            "relative path starts at the data directory",
        ),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted:\n"
            "Caused by: [FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error "
            "while reading file file:///a. Data type mismatches. SQLSTATE: KD001\n\tat org",
            "Schema: Encountered error while reading file file:///a. Data type mismatches; write "
            "the columns as the files have them, or leave Schema out",
        ),
        (
            "Schema must be specified when creating a streaming source DataFrame.",
            "Schema: files of this format do not declare their columns; write a <Schema>",
        ),
        (f"{CALLED}something else\n\tat org", "something else"),
    ],
)
def test_an_error_of_sparks_own_names_the_element_that_it_is_about(text, says):
    assert reason(RuntimeError(text)) == says


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("[PATH_NOT_FOUND] No path x.", "Source in", "Source in: Path: No path x; create it"),
        ("[PARSE_SYNTAX_ERROR] Syntax error at 'b'.", "SQL", "SQL: Syntax error at 'b'; sow check"),
        ("[PARSE_SYNTAX_ERROR] Syntax error at 'b'.", "Schema", "Schema: Syntax error at 'b'."),
        ("[PARSE_SYNTAX_ERROR] Error at 'b'.", "Static x", "Static x: Schema: Error at 'b'; write"),
        (
            "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append.",
            "Sink",
            "OutputMode: Invalid streaming output mode: append; write update, or a Watermark",
        ),
        (f"{CALLED}Invalid value 'x' for option 'y'", "Source", "Source: Invalid value 'x' for"),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due "
            "to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task "
            "0.0 in stage 1.0 (TID 1) (localhost executor driver): java.sql.SQLException: No "
            "suitable driver\n\tat org.x\nDriver stacktrace:\nCaused by: java.sql.SQLException: No "
            "suitable driver",
            "",
            "Option: No suitable driver; add its package: <Setting",
        ),
        (
            "An error occurred while calling o1.start. Trace:\n: java.lang.RuntimeException: x\n"
            "\tat x\nCaused by: java.lang.ClassNotFoundException: org.x.Driver\n\tat y",
            "Sink",
            "Setting: org.x.Driver; Spark lacks this class; add its package",
        ),
        ("outer\nCaused by: java.io.IOException: the disk\n\tat x", "", "the disk"),
        ("[STREAM_FAILED] Query [id = 1] terminated with exception: [OVERFLOW] No.", "",
         "[OVERFLOW] No."),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited", "", "Setting: Java gateway process"),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
            "[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018\n== SQL ==\nSELECT",
            "",
            "SQL: The value 'x' cannot be cast; use try_cast",
        ),
        (
            "[KAFKA_DATA_SOURCE_NOT_ENABLED] Failed to find data source: kafka.",
            "Source",
            "Source: Spark's connector for Kafka is missing; add <Setting",
        ),
        ("[AVRO_DATA_SOURCE_NOT_ENABLED] No avro.", "Source", "Source: Format: No avro; add its"),
        (
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: org.x.Mine. Make sure",
            "Sink",
            "Sink: Format: Spark has no format org.x.Mine; Add a package",
        ),
        (
            "[FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER] Encountered error while reading file a.",
            "Source",
            "Source: Format: Encountered error while reading file a; the files at Path",
        ),
        ("[CODEC_NOT_AVAILABLE.X] The codec zip is not available.", "", "Option compression: The"),
        ("Parent path is not a directory: file:/a", "Sink", "Sink: Path: Parent path is not a"),
        ("Partition column nope not found", "Sink", "Sink: Option partitionBy: Partition column"),
        ("Sorting is not supported on streaming DataFrames/Datasets", "Sink", "SQL: Sorting is"),
        ("header flag can be true or false. SQLSTATE: XXKST", "", "header flag can be true or"),
        ("Python worker failed to connect back.", "", "Python worker failed to connect back; the"),
    ],
)  # fmt: skip
def test_an_error_is_placed_where_it_was_raised(text, where, says):
    assert reason(RuntimeError(text), where).startswith(says)


@pytest.mark.parametrize(
    ("module", "element"), [("writer", "Sink"), ("stream", "Source"), ("other", "http://host")]
)
def test_what_a_worker_raises_is_placed_by_where_it_does(module, element):
    text = f'File "/x/sow/spark/{module}.py", line 1\nsow.errors.ClientError: {SENTENCE}\n\tat org'
    assert reason(RuntimeError(text)).startswith(f"{element}:")


def test_the_option_that_an_error_names_is_named():
    error = RuntimeError("Invalid value 'none' for option 'maxFilesPerTrigger', must be positive")
    said = reason(error, "Source", ["header", "maxfilespertrigger"])
    assert said.startswith("Source: Option maxfilespertrigger: Invalid value 'none' for")
    assert reason(error, "Source", ["header"]).startswith("Source: Invalid value")


def test_a_sentence_of_ours_is_placed_too_and_once():
    assert reason(ClientError("TimeColumn must be x"), "Source") == "Source: TimeColumn must be x"
    refused = pytest.raises(ClientError, match="Source: Schema: no")
    with refused, concerning("Source"), concerning("Schema"):
        raise ClientError("no")
    assert reason(ClientError("SQL: no"), "SQL") == "SQL: no"
