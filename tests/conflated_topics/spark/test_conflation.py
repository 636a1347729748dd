"""`conflate` refuses arguments that do not fit; tests/spark/test_conflate.py runs it on Spark.

What conflation and joins on Spark share, as far as it needs no session.
"""

from datetime import timedelta

import pyarrow as pa
import pytest

from conflated_topics.recorded import from_ipc
from conflated_topics.spark import conflate
from conflated_topics.spark import conflation as module
from tests.cases import all_cases
from tests.conflated_topics.frame import Frame

pytest.importorskip("pyspark")

LOG = "sym string, ts timestamp, bookmark bigint, px double"


def refused(interval="1s", keys="sym", ddl=LOG, **options):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        conflate(Frame(ddl), keys, "ts", interval, **options)
    return str(error.value)


@pytest.mark.parametrize("late", [True, "", " "])
def test_late_is_the_name_of_a_column(late):
    assert f"late is {late!r}; give the name of the column" in refused(late=late)


@all_cases(
    ("options", "says"),
    [
        ({"late": "px"}, "there is a column 'px' already"),
        ({"late": "PX"}, "there is a column 'PX' already"),  # names ignore case in Spark
        ({"late": "window_end"}, "there is a column 'window_end' already"),
        ({"null_keys": "fold"}, "write 'refuse' or 'drop'"),
        ({"keys": "sim"}, "did you mean 'sym'"),
        ({"interval": "1"}, "unit"),
        ({"interval": "0s"}, "must be positive"),
        ({"lateness": "2"}, "no unit"),
        ({"lateness": "-1s"}, "is not an interval"),
        ({"max_skew": "soon"}, "is not an interval"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused(options, says):
    assert says in refused(**options)


@pytest.mark.parametrize(
    ("intervals", "options", "says"),
    [
        ([], {}, "the list of intervals is empty"),
        (["1s", "1s"], {}, "has one twice"),
        (["1s", timedelta(seconds=2)], {}, "is no text"),
        (["1s", "2"], {}, "no unit"),
        (["1s"], {"late": "interval"}, "'interval' is a column of the result"),
        (["1s"], {"ddl": f"{LOG}, interval string"}, "'interval' is a column of the result"),
    ],
)
def test_a_list_of_intervals_that_cannot_be_one_is_refused(intervals, options, says):
    assert says in refused(intervals, **options)


@pytest.mark.parametrize("name", ["a.b", "a`b", "__verdict", "__bucket"])
def test_a_column_whose_name_cannot_be_is_refused(name):
    assert f"{name!r}" in refused(ddl=f"{LOG}, {name} bigint")


def test_counts_of_queries_are_numbered_by_kind():
    one, other = module.numbered("test a"), module.numbered("test b")
    assert [one, other, module.numbered("test a")] == ["test a 1", "test b 1", "test a 2"]


def test_a_single_name_may_stand_alone():
    assert [module.names("key"), module.names(["a", "b"])] == [("key",), ("a", "b")]


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
    assert module.tie_breakers(order, columns, time) == found


def test_any_skew_may_be_allowed_and_none():
    assert [module.skew_us(None), module.skew_us("0s"), module.skew_us(timedelta(seconds=1))] == [
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
def test_a_column_that_arrow_cannot_have_is_refused(name, says):
    pytest.importorskip("pyspark")
    with pytest.raises(ValueError, match=says):
        module.arrow_schema(Frame(f"key string, {name}"))


def test_every_column_of_the_core_is_nullable():
    pytest.importorskip("pyspark")
    schema = module.arrow_schema(Frame("key string NOT NULL, ts timestamp NOT NULL"))
    assert schema == pa.schema([("key", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])


def test_a_batch_has_sparks_partitions_where_its_size_is_unknown():
    pytest.importorskip("pyspark")
    frame = Frame("key string", conf={"spark.sql.shuffle.partitions": "7"}.items())
    assert module.enough_partitions(frame) == 7


def test_a_turn_returns_one_packed_row_or_none():
    pytest.importorskip("pandas")
    rows = pa.table({"key": ["a", "b"]})
    (packed,) = module.handed_on(rows)
    assert [from_ipc(data) for data in packed["rows"]] == [rows]
    assert list(module.handed_on(rows.slice(0, 0))) == []
    batch = pa.RecordBatch.from_pandas(packed)
    assert pa.Table.from_batches(module._unpacked([batch])) == rows
