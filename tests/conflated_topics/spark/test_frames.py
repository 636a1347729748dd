"""What conflation and joins on Spark share, as far as it needs no session."""

from datetime import timedelta

import pyarrow as pa
import pytest

from conflated_topics.envelope import from_ipc
from conflated_topics.spark import frames
from tests.conflated_topics.frame import Frame


def test_counts_of_queries_are_numbered_by_kind():
    one, other = frames.numbered("test a"), frames.numbered("test b")
    assert [one, other, frames.numbered("test a")] == ["test a 1", "test b 1", "test a 2"]


def test_a_single_name_may_stand_alone():
    assert [frames.names("key"), frames.names(["a", "b"])] == [("key",), ("a", "b")]


@pytest.mark.parametrize(
    ("order", "columns", "time", "found"),
    [
        (None, ["ts", "bookmark"], "ts", ("bookmark",)),
        (None, ["ts"], "ts", ()),
        (None, ["bookmark"], "bookmark", ()),
        ("seq", ["ts", "bookmark"], "ts", ("seq",)),
        ([], ["ts", "bookmark"], "ts", ()),
    ],
)
def test_bookmarks_break_ties_unless_others_are_named(order, columns, time, found):
    assert frames.tie_breakers(order, columns, time) == found


def test_any_skew_may_be_allowed_and_none():
    assert [frames.skew_us(None), frames.skew_us("0s"), frames.skew_us(timedelta(seconds=1))] == [
        None,
        0,
        1_000_000,
    ]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a.b bigint", "'a.b' has a dot or a backtick in its name"),
        ("a`b bigint", "has a dot or a backtick in its name"),
        ("__verdict bigint", "'__verdict' is a reserved column name"),
        ("__bucket bigint", "'__bucket' is a reserved column name"),
    ],
)
def test_a_column_whose_name_cannot_be_is_refused(name, says):
    pytest.importorskip("pyspark")
    with pytest.raises(ValueError, match=says):
        frames.arrow_schema(Frame(f"key string, {name}"))


def test_every_column_of_the_core_is_nullable():
    pytest.importorskip("pyspark")
    schema = frames.arrow_schema(Frame("key string NOT NULL, ts timestamp NOT NULL"))
    assert schema == pa.schema([("key", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])


def test_a_batch_has_sparks_partitions_where_its_size_is_unknown():
    pytest.importorskip("pyspark")
    frame = Frame("key string", conf={"spark.sql.shuffle.partitions": "7"}.items())
    assert frames.enough_partitions(frame) == 7


def test_a_turn_returns_one_packed_row_or_none():
    pytest.importorskip("pandas")
    rows = pa.table({"key": ["a", "b"]})
    (packed,) = frames.handed_on(rows)
    assert [from_ipc(data) for data in packed["rows"]] == [rows]
    assert list(frames.handed_on(rows.slice(0, 0))) == []
    batch = pa.RecordBatch.from_pandas(packed)
    assert pa.Table.from_batches(frames._unpacked([batch])) == rows
