"""A pipeline's time is exact, whatever it was counted in."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from sow.core.pipelines import Pipeline, PipelineOption, Sink, Source, Static
from sow.errors import ClientError
from sow.spark.pipeline_source import SourceRows, _instant, _timed

pytestmark = pytest.mark.spark

NS = 1_700_000_000_123_456_789


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


def test_nanoseconds_before_1970_are_cut_like_all_others(spark):
    source = Source(format="parquet", time_column="at", time_unit="ns")
    rows = spark.sql("select -1L at union all select -1000L union all select -1001L")
    found = _timed(rows, source).selectExpr("unix_micros(at) us").collect()
    assert sorted(row.us for row in found) == [-2, -1, -1]


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


def test_a_format_that_only_spark_knows_is_handed_on_with_its_options():
    source = Source(format="delta", path="in", options=(PipelineOption("maxFiles", "2"),))
    noted = rows(Reader()).frame(source, ticks=False, takes_up=False).noted
    assert noted == {"format": "delta", "path": "/data/in", "maxFiles": "2"}
    assert rows(Reader()).frame(Source(format="own"), ticks=False).noted == {"format": "own"}


def test_a_static_table_is_read_once_and_kept():
    static = Static(name="n", format="csv", path="n.csv", schema="id int")
    noted = {"format": "csv", "path": "/data/n.csv", "schema": "id int", "kept": True}
    assert rows(Reader()).table(static).noted == noted
    noted = {"format": "sow", "url": "http://host", "topic": "orders", "kept": True}
    assert rows(Reader()).table(Static(name="n", format="sow", topic="orders")).noted == noted


def test_a_number_without_a_unit_is_not_guessed_at():
    with pytest.raises(ClientError, match=r"'at' is a number; add its unit .*<TimeUnit>"):
        _instant(Source(format="parquet", time_column="at"))
