"""A pipeline's time is exact, whatever it was counted in."""

import pytest

from sow.errors import ClientError
from sow.pipelines import Source
from sow.spark.pipeline_source import _instant, _timed

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


def test_a_number_without_a_unit_is_not_guessed_at():
    with pytest.raises(ClientError, match=r"'at' is a number; say what it counts .*<TimeUnit>"):
        _instant(Source(format="parquet", time_column="at"))
