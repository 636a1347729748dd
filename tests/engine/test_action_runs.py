"""Runs that wait: stored with their causes, in order, bounded, and there again after a restart."""

import pytest

from sow.core.definitions import ACTION_RUNS
from sow.engine import action_runs
from sow.engine.action_runs import ActionRuns
from sow.errors import SowError
from tests.laws.harness import ORDERS, World


@pytest.fixture
def world():
    return World(ORDERS, ACTION_RUNS)


@pytest.fixture
def runs(world):
    return ActionRuns(world.engine)


def again(world):
    """The runs of the next life of the process."""
    world.settle()
    found = ActionRuns(world.restart().engine)
    found.restore()
    found.check()
    return found


def held(runs):
    return [(run.key, run.data, run.deed) for line in runs.waiting.values() for run in line]


def test_runs_are_there_again_with_their_bytes_in_their_order(world, runs):
    assert runs.add("a", "publish-message", [("orders", "1", b"\xff{"), ("orders", "2", b"")]) == 0
    runs.check()
    first = runs.waiting["a"][0]
    first.next()
    runs.go_on(first)
    found = again(world)
    assert held(found) == held(runs) == [("1", b"\xff{", 1), ("2", b"", 0)]
    assert found.size_bytes == runs.size_bytes
    assert found.waiting["a"][0].trigger == "publish-message"


def test_what_has_ended_leaves_nothing(world, runs):
    runs.add("a", "startup", [("", "", b"")])
    runs.end(runs.waiting["a"][0])
    runs.check()
    assert not runs.waiting
    assert not again(world).waiting
    assert runs.size_bytes == 0


def test_numbers_rise_through_restarts(world, runs):
    runs.add("a", "startup", [("", "", b"")])
    run = runs.waiting["a"][0]
    runs.end(run)
    world.clock.advance(1)
    found = again(world)
    found.add("a", "startup", [("", "", b"")])
    assert found.waiting["a"][0].number > run.number


def test_what_waits_is_bounded_in_runs_and_bytes(runs, monkeypatch):
    monkeypatch.setattr(action_runs, "RUNS_MAX", 2)
    assert runs.add("a", "publish-message", [("orders", str(n), b"") for n in range(5)]) == 3
    assert runs.add("b", "publish-message", [("orders", "1", b"")]) == 0
    monkeypatch.setattr(action_runs, "RUN_BYTES_MAX", runs.size_bytes + 1_000)
    large, small = ("orders", "1", b"x" * 500), ("orders", "2", b"y")
    assert runs.add("c", "publish-message", [large, small, small]) == 2
    assert runs.add("nightly", "schedule", [("", "", b"")]) == 0
    runs.check()


def test_one_action_takes_no_more_than_half_of_the_room(runs, monkeypatch):
    monkeypatch.setattr(action_runs, "RUN_BYTES_MAX", 10_000)
    messages = [("orders", str(n), b"x" * 300) for n in range(9)]
    assert runs.add("a", "publish-message", messages) == 4
    assert runs.add("b", "publish-message", messages[:4]) == 0
    runs.end(runs.waiting["a"][0])
    assert runs.add("a", "publish-message", messages[:2]) == 1
    runs.check()


def test_a_schedule_is_known_by_its_name_and_text(world, runs):
    runs.note_schedule("nightly", "1h", 5)
    runs.note_schedule("other", "2h", 6)
    found = ActionRuns(world.engine)
    found.restore()
    assert found.last_us("nightly", "1h") == 5
    assert found.last_us("nightly", "2h") is None
    assert found.last_us("hourly", "1h") is None
    found.forget_schedules(["other"])
    assert found.last_us("nightly", "1h") is None


def test_a_disk_that_refuses_changes_nothing(world, runs):
    runs.add("a", "startup", [("", "", b"")])
    world.settle()
    before = held(runs)
    world.engine.disk.fail(SowError("the disk fails"))
    for refused in (
        lambda: runs.add("a", "startup", [("", "", b"")]),
        lambda: runs.end(runs.waiting["a"][0]),
        lambda: runs.note_schedule("a", "1h", 1),
    ):
        with pytest.raises(SowError):
            refused()
    assert held(runs) == before
    assert runs.last_us("a", "1h") is None
