"""Rows that are left out are kept once, whatever attempts there were, and whole."""

import json
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyarrow.fs import LocalFileSystem

pytest.importorskip("pyspark")

from sow.errors import ClientError
from sow.spark import side_outputs
from sow.spark.side_outputs import DeadLetters, kept_aside, opened


class Context:
    """One attempt at part 3 of batch 7."""

    def partitionId(self):  # noqa: N802 (the names are Spark's)
        return 3

    def taskAttemptId(self):  # noqa: N802
        return 12

    properties: ClassVar = {side_outputs.QUERY_ID: "the-query", side_outputs.BATCH_ID: "7"}

    def getLocalProperty(self, name):  # noqa: N802
        return self.properties.get(name)


@pytest.fixture(autouse=True)
def context(monkeypatch):
    monkeypatch.setattr(side_outputs.TaskContext, "get", Context)


def test_two_attempts_at_a_part_have_names_of_their_own():
    one, other = side_outputs.part_and_attempt(), side_outputs.part_and_attempt()
    assert one[0] == other[0] == 3
    assert one[1] != other[1]
    assert one[1].startswith("12-")


def test_a_task_of_a_stream_knows_its_query_and_its_batch():
    assert side_outputs.query_and_batch() == ("the-query", 7)


@pytest.mark.parametrize(
    ("properties", "makes"),
    [
        ({side_outputs.EXECUTION: "0", side_outputs.OUTERMOST: "0"}, False),
        ({side_outputs.EXECUTION: "2", side_outputs.OUTERMOST: "1"}, True),
        (
            {
                side_outputs.EXECUTION: "2",
                side_outputs.OUTERMOST: "1",
                side_outputs.QUERY_ID: "a stream's",
            },
            False,
        ),
        ({}, False),
    ],
)
def test_a_write_within_another_execution_is_for_a_table(monkeypatch, properties, makes):
    monkeypatch.setattr(Context, "properties", properties)
    assert side_outputs.makes_a_table() == makes


def test_where_there_is_no_task_there_is_one_part(monkeypatch):
    monkeypatch.setattr(side_outputs.TaskContext, "get", lambda: None)
    part, attempt = side_outputs.part_and_attempt()
    assert part == 0
    assert attempt.startswith("0-")


@pytest.fixture
def task(monkeypatch):
    """Says which task what follows is."""

    def become(batch=0, part=0, attempt="a"):
        monkeypatch.setattr(side_outputs, "query_and_batch", lambda: ("query", batch))
        monkeypatch.setattr(side_outputs, "part_and_attempt", lambda: (part, attempt))

    become()
    return become


@pytest.fixture(params=["path", "scheme"])
def keep(request, task, tmp_path):
    """Takes batches of (n, whether late); the numbers that go on."""
    place = str(tmp_path / "late") if request.param == "path" else (tmp_path / "late").as_uri()

    def through(*batches, also=()):
        coming = (
            pa.record_batch(
                {
                    "n": pa.array([n for n, _ in rows], pa.int64()),
                    "x": pa.array([float("nan")] * len(rows)),
                    "late": pa.array([is_late for _, is_late in rows], pa.bool_()),
                    "helps": pa.array([None] * len(rows), pa.int8()),
                }
            )
            for rows in batches
        )
        went_on = []
        for batch in kept_aside(place, "late", ["n", "x"])(_and_then(coming, also)):
            assert batch.schema.names == ["n", "x", "helps"]
            went_on += batch["n"].to_pylist()
        return went_on

    return through


def _and_then(batches, also):
    yield from batches
    for error in also:
        raise error


def kept(tmp_path):
    """The numbers that somebody who looks finds, by file."""
    files = sorted((tmp_path / "late").glob("[!_]*")) if (tmp_path / "late").exists() else []
    return {file.name: pyarrow.parquet.read_table(file)["n"].to_pylist() for file in files}


def test_late_rows_are_kept_as_they_are_and_the_others_go_on(keep, tmp_path):
    assert keep([(1, False), (2, True)], [], [(3, True)], [(4, False)]) == [1, 4]
    assert kept(tmp_path) == {"query-0-0.parquet": [2, 3]}
    found = pyarrow.parquet.read_table(tmp_path / "late")
    assert found.schema.names == ["n", "x"]
    assert str(found["x"].to_pylist()) == "[nan, nan]"  # which no JSON can say


def test_where_none_is_late_there_is_no_file(keep, tmp_path):
    assert keep([(1, False)]) == [1]
    assert keep() == []
    assert not (tmp_path / "late").exists()


def test_each_part_of_each_batch_has_a_file(keep, task, tmp_path):
    for batch, part in ((0, 0), (0, 1), (1, 0)):
        task(batch, part)
        keep([(10 * batch + part, True)])
    assert kept(tmp_path) == {
        "query-0-0.parquet": [0],
        "query-0-1.parquet": [1],
        "query-1-0.parquet": [10],
    }


def test_a_batch_that_is_run_again_replaces_what_it_has_left(keep, task, tmp_path):
    keep([(1, True), (2, True)])
    task(attempt="b")
    keep([(1, True), (2, True)])
    assert kept(tmp_path) == {"query-0-0.parquet": [1, 2]}
    # Between two lives the pipeline has been given more Lateness: of this batch nothing is late.
    task(attempt="c")
    assert keep([(1, False), (2, False)]) == [1, 2]
    assert kept(tmp_path) == {}


def test_an_attempt_that_fails_leaves_nothing_and_takes_nothing_away(keep, task, tmp_path):
    keep([(1, True)])
    task(attempt="b")
    with pytest.raises(OSError, match="gone"):
        keep([(1, True)], also=[OSError("gone")])
    assert kept(tmp_path) == {"query-0-0.parquet": [1]}
    assert not list((tmp_path / "late").glob("_*"))


def test_of_two_attempts_at_once_each_has_a_file_of_its_own_until_it_is_whole(task, tmp_path):
    place = str(tmp_path / "late")
    rows = pa.record_batch({"n": [1, 2]})
    task(attempt="a")
    with side_outputs.LateFile(place) as one:
        task(attempt="b")
        with side_outputs.LateFile(place) as other:
            one.write(rows)
            other.write(rows)
            assert kept(tmp_path) == {}
        assert kept(tmp_path) == {"query-0-0.parquet": [1, 2]}
    assert kept(tmp_path) == {"query-0-0.parquet": [1, 2]}


def found(directory):
    """The rows that somebody who looks sees."""
    files = sorted(path for path in directory.iterdir() if not path.name.startswith("_"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture(params=["path", "scheme"])
def letters(request, tmp_path):
    place = str(tmp_path) if request.param == "path" else tmp_path.as_uri()
    return lambda epoch=1: DeadLetters(place, "orders", "a writer/with: a name", epoch)


def test_only_those_of_the_attempts_that_won_are_kept(letters, tmp_path):
    for part, attempt in ((0, "failed"), (0, "won"), (1, "won")):
        letters().put(part, attempt, [{"value": f"{part}-{attempt}", "reason": "bad"}])
    assert found(tmp_path) == []
    driver = letters()
    for part in (0, 1, 2):
        driver.keep(part, "won")
    driver.finish()
    assert [row["value"] for row in found(tmp_path)] == ["0-won", "1-won"]
    assert not list(tmp_path.glob("_*"))


def test_a_batch_that_is_written_again_replaces_what_it_has_set_aside(letters, tmp_path):
    for attempt in ("first", "again"):
        letters().put(0, attempt, [{"value": attempt}])
        letters().keep(0, attempt)
        letters().finish()
    letters(epoch=2).put(0, "first", [{"value": "next"}])
    letters(epoch=2).keep(0, "first")
    assert [row["value"] for row in found(tmp_path)] == ["again", "next"]


def test_what_is_let_go_leaves_nothing(letters, tmp_path):
    letters().put(0, "a", [{"value": "x"}])
    letters().finish()
    letters().finish()
    assert list(tmp_path.iterdir()) == []


def test_a_path_is_a_directory_of_this_machine(tmp_path):
    files, directory = opened(str(tmp_path), "LatePath")
    assert isinstance(files, LocalFileSystem)
    assert directory == str(tmp_path)


def test_a_scheme_may_be_called_as_hadoop_does(tmp_path):
    files, directory = opened(tmp_path.as_uri(), "LatePath")
    assert (files.type_name, directory) == ("local", str(tmp_path))
    files, directory = opened("s3a://bucket/late?region=eu-west-1", "LatePath")
    assert (files.type_name, directory) == ("s3", "bucket/late")


def test_a_place_that_cannot_be_reached_is_named():
    with pytest.raises(ClientError, match=r"LatePath odd://bucket/x: .*; give a path"):
        opened("odd://bucket/x", "LatePath")
