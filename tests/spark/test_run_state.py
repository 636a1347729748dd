"""One run at a time has a pipeline's state, on a mounted path and at a place without locks."""

from pathlib import Path

import pytest

from sow.core.pipelines import Pipeline, Sink, Source
from sow.errors import ClientError
from sow.spark.run_state import LEASE_S, RENEWED_S, LeasedState, LocalState, directory_of

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
