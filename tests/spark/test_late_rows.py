"""Rows that are left out are kept once, whatever attempts there were, and whole."""

import pyarrow as pa
import pyarrow.parquet
import pytest

pytest.importorskip("pyspark")

from sow.spark import late_rows
from sow.spark.late_rows import kept_aside


@pytest.fixture
def task(monkeypatch):
    """Says which task what follows is."""

    def become(batch=0, part=0, attempt="a"):
        monkeypatch.setattr(late_rows, "query_and_batch", lambda: ("query", batch))
        monkeypatch.setattr(late_rows, "part_and_attempt", lambda: (part, attempt))

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
    with late_rows.LateFile(place) as one:
        task(attempt="b")
        with late_rows.LateFile(place) as other:
            one.write(rows)
            other.write(rows)
            assert kept(tmp_path) == {}
        assert kept(tmp_path) == {"query-0-0.parquet": [1, 2]}
    assert kept(tmp_path) == {"query-0-0.parquet": [1, 2]}
