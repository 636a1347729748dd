"""The end of a run over files, without Spark: which offsets there are, and two queries as one."""

from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from sow.core.pipelines import Pipeline, PipelineOption, Sink, Source
from sow.spark.end_of_stream import EndingSource, ToItsEnd
from sow.spark.pipeline_io import NO_FILE, SourceRows


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
