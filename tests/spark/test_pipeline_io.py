"""The sources and the sink of a pipeline; its time is exact, whatever its unit."""

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet
import pytest

from sow.core.pipelines import Pipeline, PipelineOption, Sink, Source, Static
from sow.errors import ClientError
from sow.spark.pipeline_io import (
    NO_FILE,
    EndingSource,
    SourceRows,
    _instant,
    _timed,
    written,
)

NS = 1_700_000_000_123_456_789


@pytest.mark.spark
def test_times_that_are_numbers_are_exact_in_each_unit(spark):
    # A double has not the digits: of these times one in eight came out a microsecond off.
    times = {"s": NS // 10**9, "ms": NS // 10**6, "us": NS // 1000, "ns": NS}
    units = {"s": 10**6, "ms": 1000, "us": 1, "ns": None}
    for unit, number in times.items():
        source = Source(format="parquet", time_column="at", time_unit=unit)
        rows = spark.range(number, number + 100).withColumnRenamed("id", "at")
        found = _timed(rows, source).selectExpr("unix_micros(at) us").collect()
        each = units[unit]
        expected = [n * each if each else n // 1000 for n in range(number, number + 100)]
        assert sorted(row.us for row in found) == expected


@pytest.mark.spark
def test_nanoseconds_before_1970_are_cut_like_all_others(spark):
    source = Source(format="parquet", time_column="at", time_unit="ns")
    rows = spark.sql("select -1L at union all select -1000L union all select -1001L")
    found = _timed(rows, source).selectExpr("unix_micros(at) us").collect()
    assert sorted(row.us for row in found) == [-2, -1, -1]


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["decimal(30, 9)", "double"])
def test_times_that_are_fractions_are_cut_and_a_double_is_what_is_written(spark, kind):
    units = {"s": "1700000000.123457", "ms": "1700000000123.457", "us": "1700000000123457.25"}
    for unit, text in {**units, "ns": "1700000000123457000"}.items():
        source = Source(format="json", time_column="a.t", time_unit=unit)
        rows = spark.sql(f"SELECT CAST({text}{'D' if kind == 'double' else ''} AS {kind}) `a.t`")
        (row,) = _timed(rows, source).selectExpr("unix_micros(`a.t`) us").collect()
        assert row.us == 1_700_000_000_123_457
    # Without a unit a fraction counts seconds, as Spark has it.
    source = Source(format="json", time_column="at")
    (row,) = _timed(spark.sql("SELECT 1.5D at"), source).selectExpr("unix_micros(at) us").collect()
    assert row.us == 1_500_000


@pytest.mark.spark
def test_a_parquet_file_says_whether_it_counts_nanoseconds(spark, tmp_path):
    pipeline = Pipeline(name="p", sources=(Source(format="rate"),), sink=Sink(topic="t"))
    sources = SourceRows(spark, pipeline, "http://host", tmp_path, None)
    spark.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    try:
        for name, column, unit in (
            ("with ns", pa.array([NS]).cast(pa.timestamp("ns")), "ns"),
            ("numbers", pa.array([NS]), None),
        ):
            (tmp_path / name).mkdir()
            pyarrow.parquet.write_table(pa.table({"at": column}), tmp_path / name / "a.parquet")
            for path in (name, f"{name}/a.parquet", f"{name}/*.parquet"):
                source = Source(format="parquet", path=path, time_column="at", schema="at long")
                assert sources._unit_of_file(source) == unit
        empty = Source(format="parquet", path="none", time_column="at", schema="at long")
        (tmp_path / "none").mkdir()
        assert sources._unit_of_file(empty) is None
    finally:
        spark.conf.unset("spark.sql.legacy.parquet.nanosAsLong")


@pytest.mark.spark
def test_a_topic_by_a_schema_without_a_time_is_read_as_it_is_unless_one_is_requested_for():
    frame = SimpleNamespace(columns=["id", "price"])
    assert _timed(frame, Source(format="sow", topic="orders")) is frame
    for requested in ({"time_column": "at"}, {"watermark_us": 1}):
        with pytest.raises(ClientError, match="TimeColumn must be one of id, price"):
            _timed(frame, Source(format="sow", topic="orders", **requested))


class Reader:
    """Notes its options."""

    def __init__(self):
        self.noted = {}

    def format(self, name):
        return self.options(format=name)

    def schema(self, columns):
        return self.options(schema=columns)

    def option(self, name, value):
        return self.options(**{name: value})

    def options(self, **given):
        self.noted |= given
        return self

    def load(self, path=None):
        return self if path is None else self.options(path=path)

    def localCheckpoint(self):  # noqa: N802 (the name is Spark's)
        return self.options(kept=True)


def rows(reader):
    pipeline = Pipeline(name="p", sources=(Source(format="rate"),), sink=Sink(topic="t"))
    spark = SimpleNamespace(read=reader, readStream=reader)
    return SourceRows(spark, pipeline, "http://host", Path("/data"), None)


@pytest.mark.spark
def test_a_format_that_only_spark_knows_is_handed_on_with_its_options():
    source = Source(format="delta", path="in", options=(PipelineOption("maxFiles", "2"),))
    noted = rows(Reader()).frame(source, ticks=False, takes_up=False).noted
    assert noted == {"format": "delta", "path": "/data/in", "maxFiles": "2"}
    assert rows(Reader()).frame(Source(format="own"), ticks=False).noted == {"format": "own"}


@pytest.mark.spark
def test_a_static_table_is_read_once_and_kept():
    static = Static(name="n", format="csv", path="n.csv", schema="id int")
    noted = {"format": "csv", "path": "/data/n.csv", "schema": "id int", "kept": True}
    assert rows(Reader()).table(static).noted == noted
    noted = {"format": "sow", "url": "http://host", "topic": "orders", "kept": True}
    assert rows(Reader()).table(Static(name="n", format="sow", topic="orders")).noted == noted


@pytest.mark.spark
def test_a_number_without_a_unit_is_not_guessed_at():
    with pytest.raises(ClientError, match=r"'at' is a number; add its unit .*<TimeUnit>"):
        _instant(Source(format="parquet", time_column="at"))


class Writer:
    """Notes its calls, in order."""

    def __init__(self, noted):
        self.noted = noted

    def __getattr__(self, name):
        def tell(*values, **named):
            self.noted[name] = named or (values[0] if len(values) == 1 else values)
            return self

        return tell


class Frame:
    """A frame whose writers note their calls."""

    def __init__(self):
        self.noted, self.batch = {}, {}
        self.writeStream = Writer(self.noted)
        self.write = Writer(self.batch)


class Files:
    def __init__(self):
        self.kept = {}

    def read(self, name):
        return self.kept.get(name)

    def write(self, name, text):
        self.kept[name] = text


@pytest.fixture
def state():
    return SimpleNamespace(checkpoint="/state/here", files=Files())


def noted(sink, state, once=False, **more):
    """The calls for a pipeline's sink."""
    frame = Frame()
    pipeline = Pipeline(name="p", sources=(Source(format="rate"),), sink=sink, **more)
    written(frame, pipeline, "http://host", Path("/data"), state, once)
    return frame


def test_a_query_has_a_name_a_place_for_its_state_and_a_pace(state):
    said = noted(Sink(topic="t"), state, trigger_us=2_500_000).noted
    assert said["queryName"] == "p"
    assert said["option"] == ("checkpointLocation", "/state/here")
    assert said["trigger"] == {"processingTime": "2500 milliseconds"}
    assert noted(Sink(topic="t"), state, once=True).noted["trigger"] == {"availableNow": True}


def test_appended_rows_go_to_a_topic_through_the_data_source(state):
    said = noted(Sink(topic="t", options=(PipelineOption("batchRows", "5"),)), state).noted
    assert said["format"] == "sow"
    assert said["options"] == {"url": "http://host", "topic": "t", "batchRows": "5"}


def test_files_are_below_the_data_directory_and_may_be_divided(state):
    options = (PipelineOption("partitionBy", "day,symbol"), PipelineOption("compression", "zstd"))
    frame = noted(Sink(format="parquet", path="out", options=options), state)
    said = frame.noted
    assert said["format"] == "parquet"
    assert said["option"] == ("path", "/data/out")
    assert said["options"] == {"compression": "zstd"}
    assert said["partitionBy"] == ("day", "symbol")


def test_another_format_gets_its_options_and_a_path_only_if_there_is_one(state):
    options = (PipelineOption("topic", "t"),)
    said = noted(Sink(format="kafka", options=options), state).noted
    assert (said["format"], said["options"]) == ("kafka", {"topic": "t"})
    assert said["option"] == ("checkpointLocation", "/state/here")


def test_updated_rows_are_written_batch_by_batch_under_a_name_that_stays(state):
    write = noted(Sink(topic="t"), state, output_mode="update").noted["foreachBatch"]
    first, second = Frame(), Frame()
    write(first, 7)
    name = state.files.kept["writer"]
    assert first.batch["options"] == {
        "url": "http://host", "topic": "t", "writer": name, "epoch": "7"
    }  # fmt: skip
    again = noted(Sink(topic="t"), state, output_mode="update").noted["foreachBatch"]
    again(second, 8)
    assert second.batch["options"]["writer"] == name
    assert name.startswith("pipeline p ")


def test_who_begins_anew_replaces_all_there_is_by_the_first_batch(state):
    frame = Frame()
    pipeline = Pipeline(name="p", sources=(Source(format="rate"),), sink=Sink(topic="t"))
    written(frame, pipeline, "http://host", Path("/data"), state, False, restarts=True)
    assert frame.noted["outputMode"] == "append"
    write = frame.noted["foreachBatch"]
    write(frame, 1)
    named = {"writer": state.files.kept["writer"], "url": "http://host", "topic": "t"}
    assert frame.batch["options"] == {**named, "epoch": "1"}
    write(frame, 0)
    assert frame.batch["options"] == {"mode": "replace", "allowEmpty": "true"}


def ending(ends):
    return EndingSource({"ends": "true" if ends else "false"}).streamReader(None)


@pytest.mark.spark
def test_each_run_that_ends_has_one_row_more():
    source = ending(ends=True)
    limit = source.getDefaultReadLimit()
    end = source.latestOffset({"ending": 3}, limit)
    assert end == source.latestOffset({"ending": 3}, limit) == source.latestOffset(end, limit)
    (part,) = source.partitions({"ending": 3}, end)
    (batch,) = source.read(part)
    assert batch.to_pylist() == [{"ending": 4}]
    assert source.partitions(end, end) == []


@pytest.mark.spark
def test_a_query_that_does_not_end_the_run_has_none():
    source = ending(ends=False)
    start = source.initialOffset()
    assert source.latestOffset(start, source.getDefaultReadLimit()) == start


@pytest.mark.spark
@pytest.mark.parametrize(("takes_up", "taken"), [(True, "*.csv"), (False, NO_FILE)])
def test_the_query_that_ends_a_run_takes_up_no_file_whatever_the_options_say(takes_up, taken):
    options = (PipelineOption("pathGlobFilter", "*.csv"),)
    source = Source(format="csv", path="in", schema="a int", options=options)
    frame = rows(Reader()).frame(source, ticks=False, takes_up=takes_up)
    assert frame.noted["pathGlobFilter"] == taken
