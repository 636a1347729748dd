"""One run at a time has a pipeline's state, on a mounted path and at a place without locks.

Rows that are left out are kept once, whatever attempts there were, and whole.
"""

import json
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyarrow.fs import LocalFileSystem

pytest.importorskip("pyspark")

from sow.core.pipelines import Pipeline, Sink, Source
from sow.errors import ClientError
from sow.spark import run_state
from sow.spark.run_state import (
    LEASE_S,
    RENEWED_S,
    DeadLetters,
    LeasedState,
    LocalState,
    directory_of,
    kept_aside,
    opened,
)

PLACE = "s3a://bucket/p"


class Memory(dict):
    """Files that are shared by all who are given them."""

    def read(self, name):
        return self.get(name)

    def write(self, name, text):
        self[name] = text


class Clock:
    def __init__(self):
        self.now_s = 1_000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def driver(clock):
    """Makes drivers of one pipeline, by name."""
    files = Memory()
    return lambda name: LeasedState("p", PLACE, files, clock, name)


def pipeline(checkpoint=None):
    return Pipeline(
        name="p", sources=(Source(format="rate"),), sink=Sink(topic="t"), checkpoint=checkpoint
    )


@pytest.mark.parametrize(
    ("checkpoint", "directory"),
    [
        (None, "/data/pipelines/p"),
        ("state/p", "/data/state/p"),
        ("/mnt/p", "/mnt/p"),
        (PLACE, PLACE),
        ("file:///mnt/p", "file:///mnt/p"),
    ],
)
def test_the_state_is_in_the_data_directory_or_where_the_pipeline_says(checkpoint, directory):
    assert directory_of(pipeline(checkpoint), Path("/data")) == directory


def test_a_second_run_is_refused_until_the_first_has_ended(tmp_path):
    first, second = (LocalState("p", tmp_path / "p") for _ in range(2))
    first.hold()
    with pytest.raises(ClientError, match="pipeline p is running already, as process"):
        second.hold()
    first.release()
    second.hold()
    second.release()


def test_small_files_are_replaced_whole(tmp_path):
    state = LocalState("p", tmp_path / "p")
    state.hold()
    assert state.files.read("writer") is None
    state.files.write("writer", "one")
    state.files.write("writer", "two")
    assert state.files.read("writer") == "two"
    state.release()


def test_a_second_driver_is_refused_by_the_name_of_the_first(driver, clock):
    driver("a").hold()
    clock.now_s += LEASE_S - 1
    with pytest.raises(ClientError, match=f"{PLACE} is held by a. .* the lease expires in 1 s"):
        driver("b").hold()


def test_a_driver_that_was_killed_is_gone_when_its_time_is_over(driver, clock):
    driver("a").hold()
    clock.now_s += LEASE_S
    driver("b").hold()


def test_a_driver_that_runs_keeps_what_it_has(driver, clock):
    first = driver("a")
    first.hold()
    for _ in range(20):
        clock.now_s += RENEWED_S
        first.keep()
    with pytest.raises(ClientError, match="held by a"):
        driver("b").hold()
    first.release()
    driver("b").hold()


def test_a_driver_that_was_silent_for_too_long_hears_that_it_has_lost(driver, clock):
    first, second = driver("a"), driver("b")
    first.hold()
    clock.now_s += LEASE_S
    second.hold()
    with pytest.raises(ClientError, match=f"has lost {PLACE}: it is held by b now"):
        first.keep()
    first.release()  # which takes nothing from the second
    with pytest.raises(ClientError, match="held by b"):
        driver("c").hold()


def test_half_a_note_is_none(driver, clock):
    state = driver("a")
    state.files.write("holder", '{"holder": "b", "unti')
    state.hold()
    assert state.checkpoint == f"{PLACE}/checkpoint"


def test_a_state_that_was_made_for_something_else_is_begun_anew(tmp_path):
    state = LocalState("p", tmp_path / "p")
    state.hold()
    state.make_for("rows of one kind")
    kept = Path(state.checkpoint) / "offsets"
    kept.mkdir(parents=True)
    state.files.write("writer", "w")
    state.make_for("rows of one kind")
    assert (kept.exists(), state.files.read("writer")) == (True, "w")
    state.make_for("rows of another")
    assert (Path(state.checkpoint).exists(), state.files.read("writer")) == (False, None)
    state.release()


class Context:
    """One attempt at part 3 of batch 7."""

    def partitionId(self):  # noqa: N802 (the names are Spark's)
        return 3

    def taskAttemptId(self):  # noqa: N802
        return 12

    properties: ClassVar = {run_state.QUERY_ID: "the-query", run_state.BATCH_ID: "7"}

    def getLocalProperty(self, name):  # noqa: N802
        return self.properties.get(name)


@pytest.fixture
def context(monkeypatch):
    monkeypatch.setattr(run_state.TaskContext, "get", Context)


@pytest.mark.usefixtures("context")
def test_two_attempts_at_a_part_have_names_of_their_own():
    one, other = run_state.part_and_attempt(), run_state.part_and_attempt()
    assert one[0] == other[0] == 3
    assert one[1] != other[1]
    assert one[1].startswith("12-")


@pytest.mark.usefixtures("context")
def test_a_task_of_a_stream_knows_its_query_and_its_batch():
    assert run_state.query_and_batch() == ("the-query", 7)


@pytest.mark.parametrize(
    ("properties", "makes"),
    [
        ({run_state.EXECUTION: "0", run_state.OUTERMOST: "0"}, False),
        ({run_state.EXECUTION: "2", run_state.OUTERMOST: "1"}, True),
        (
            {
                run_state.EXECUTION: "2",
                run_state.OUTERMOST: "1",
                run_state.QUERY_ID: "a stream's",
            },
            False,
        ),
        ({}, False),
    ],
)
@pytest.mark.usefixtures("context")
def test_a_write_within_another_execution_is_for_a_table(monkeypatch, properties, makes):
    monkeypatch.setattr(Context, "properties", properties)
    assert run_state.makes_a_table() == makes


@pytest.mark.usefixtures("context")
def test_where_there_is_no_task_there_is_one_part(monkeypatch):
    monkeypatch.setattr(run_state.TaskContext, "get", lambda: None)
    part, attempt = run_state.part_and_attempt()
    assert part == 0
    assert attempt.startswith("0-")


@pytest.fixture
def task(monkeypatch):
    """Says which task what follows is."""

    def become(batch=0, part=0, attempt="a"):
        monkeypatch.setattr(run_state, "query_and_batch", lambda: ("query", batch))
        monkeypatch.setattr(run_state, "part_and_attempt", lambda: (part, attempt))

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


@pytest.mark.usefixtures("context")
def test_late_rows_are_kept_as_they_are_and_the_others_go_on(keep, tmp_path):
    assert keep([(1, False), (2, True)], [], [(3, True)], [(4, False)]) == [1, 4]
    assert kept(tmp_path) == {"query-0-0.parquet": [2, 3]}
    found = pyarrow.parquet.read_table(tmp_path / "late")
    assert found.schema.names == ["n", "x"]
    assert str(found["x"].to_pylist()) == "[nan, nan]"  # which no JSON can say


@pytest.mark.usefixtures("context")
def test_where_none_is_late_there_is_no_file(keep, tmp_path):
    assert keep([(1, False)]) == [1]
    assert keep() == []
    assert not (tmp_path / "late").exists()


@pytest.mark.usefixtures("context")
def test_each_part_of_each_batch_has_a_file(keep, task, tmp_path):
    for batch, part in ((0, 0), (0, 1), (1, 0)):
        task(batch, part)
        keep([(10 * batch + part, True)])
    assert kept(tmp_path) == {
        "query-0-0.parquet": [0],
        "query-0-1.parquet": [1],
        "query-1-0.parquet": [10],
    }


@pytest.mark.usefixtures("context")
def test_a_batch_that_is_run_again_replaces_what_it_has_left(keep, task, tmp_path):
    keep([(1, True), (2, True)])
    task(attempt="b")
    keep([(1, True), (2, True)])
    assert kept(tmp_path) == {"query-0-0.parquet": [1, 2]}
    # Between two lives the pipeline has been given more Lateness: of this batch nothing is late.
    task(attempt="c")
    assert keep([(1, False), (2, False)]) == [1, 2]
    assert kept(tmp_path) == {}


@pytest.mark.usefixtures("context")
def test_an_attempt_that_fails_leaves_nothing_and_takes_nothing_away(keep, task, tmp_path):
    keep([(1, True)])
    task(attempt="b")
    with pytest.raises(OSError, match="gone"):
        keep([(1, True)], also=[OSError("gone")])
    assert kept(tmp_path) == {"query-0-0.parquet": [1]}
    assert not list((tmp_path / "late").glob("_*"))


@pytest.mark.usefixtures("context")
def test_of_two_attempts_at_once_each_has_a_file_of_its_own_until_it_is_whole(task, tmp_path):
    place = str(tmp_path / "late")
    rows = pa.record_batch({"n": [1, 2]})
    task(attempt="a")
    with run_state.LateFile(place) as one:
        task(attempt="b")
        with run_state.LateFile(place) as other:
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


@pytest.mark.usefixtures("context")
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


@pytest.mark.usefixtures("context")
def test_a_batch_that_is_written_again_replaces_what_it_has_set_aside(letters, tmp_path):
    for attempt in ("first", "again"):
        letters().put(0, attempt, [{"value": attempt}])
        letters().keep(0, attempt)
        letters().finish()
    letters(epoch=2).put(0, "first", [{"value": "next"}])
    letters(epoch=2).keep(0, "first")
    assert [row["value"] for row in found(tmp_path)] == ["again", "next"]


@pytest.mark.usefixtures("context")
def test_what_is_let_go_leaves_nothing(letters, tmp_path):
    letters().put(0, "a", [{"value": "x"}])
    letters().finish()
    letters().finish()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("context")
def test_a_path_is_a_directory_of_this_machine(tmp_path):
    files, directory = opened(str(tmp_path), "LatePath")
    assert isinstance(files, LocalFileSystem)
    assert directory == str(tmp_path)


@pytest.mark.usefixtures("context")
def test_a_scheme_may_be_called_as_hadoop_does(tmp_path):
    files, directory = opened(tmp_path.as_uri(), "LatePath")
    assert (files.type_name, directory) == ("local", str(tmp_path))
    files, directory = opened("s3a://bucket/late?region=eu-west-1", "LatePath")
    assert (files.type_name, directory) == ("s3", "bucket/late")


@pytest.mark.usefixtures("context")
def test_a_place_that_cannot_be_reached_is_named():
    with pytest.raises(ClientError, match=r"LatePath odd://bucket/x: .*; give a path"):
        opened("odd://bucket/x", "LatePath")
