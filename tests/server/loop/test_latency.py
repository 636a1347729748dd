"""Latency: each step of the loop is measured by name, and long ones are logged."""

import asyncio
import gc

import pytest
from aiohttp import web

from sow.server.loop.latency import (
    COLLECTIONS,
    LONG_S,
    UNKNOWN,
    GcLatency,
    LoopLatency,
    MeasuredCoroutine,
    MeasuredRequests,
)
from tests.server.stand_ins import Served, World, stepped


def test_the_longest_step_of_each_name_is_kept():
    watch = LoopLatency()
    for name, took_s in (("a", 0.001), ("a", 0.004), ("b", 0.002), ("a", 0.003)):
        watch.note(name, took_s)
    assert watch.longest_s == {"a": 0.004, "b": 0.002}
    assert not watch.long


class Clock:
    now_s = 1000.0


def test_the_first_long_step_is_said_at_once_and_then_one_line_a_minute():
    warnings, clock = [], Clock()
    watch = LoopLatency(warnings.append, lambda: clock.now_s)
    watch.note("a delete", LONG_S)
    assert not warnings, "only what is longer"
    watch.note("a delete", 2 * LONG_S)
    assert warnings == ["a delete kept everybody waiting for 100 ms"]
    for at in range(100):
        watch.note(f"kind {at}", 2 * LONG_S)
        watch.note("a query", 0.2714 if at == 50 else 0.06)
        watch.look()
        clock.now_s += 0.5
    assert len(warnings) == 1
    clock.now_s += 10
    watch.look()
    assert warnings[1:] == [
        "200 steps kept everybody waiting for over 50 ms each; the longest, a query, for 271 ms"
    ]
    assert (watch.long["a query"], watch.long["a delete"], watch.long["kind 7"]) == (100, 1, 1)


def test_long_steps_write_no_more_lines_than_minutes_have_passed():
    warnings, clock = [], Clock()
    watch = LoopLatency(warnings.append, lambda: clock.now_s)
    for at in range(36_000):
        watch.note(f"kind {at % 7}", 0.06)
        clock.now_s += 0.1
    assert len(warnings) == 60


def test_after_a_quiet_minute_a_long_step_is_said_at_once_again():
    warnings, clock = [], Clock()
    watch = LoopLatency(warnings.append, lambda: clock.now_s)
    for took_s in (0.06, 0.07, 0.08):
        watch.note("a", took_s)
        clock.now_s += 61
        watch.look()
    assert warnings == [f"a kept everybody waiting for {ms} ms" for ms in (60, 70, 80)]


def test_all_steps_are_counted_by_how_long_they_took():
    watch = LoopLatency()
    for took_s in (0.001, 0.002, 20.0):
        watch.note("a", took_s)
    found = dict(watch.times.cumulative())
    assert (found["0.001"], found["0.0025"], found["10.0"], found["+Inf"]) == (1, 2, 2, 3)


class Counting(LoopLatency):
    """Counts the steps of each name."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def note(self, name, took_s):
        assert took_s >= 0
        self.steps.append(name)


@stepped
async def test_each_step_between_two_awaits_is_noted():
    watch = Counting()

    async def work():
        await asyncio.sleep(0)
        await asyncio.sleep(1)
        return "done"

    assert await MeasuredCoroutine(watch, "work", work()) == "done"
    assert watch.steps == ["work"] * 3


@stepped
async def test_failures_and_cancelling_go_through_in_both_directions():
    watch, ended = Counting(), []

    async def failing():
        await asyncio.sleep(0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await MeasuredCoroutine(watch, "failing", failing())

    async def waiting():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            await asyncio.sleep(0)
            ended.append("cleaned up")
            raise

    async def measured():
        await MeasuredCoroutine(watch, "waiting", waiting())

    task = asyncio.ensure_future(measured())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled", "cleaned up"]


class Place(Served):
    """Two addresses, one of them a WebSocket's, of which requests are measured."""

    def __init__(self):
        super().__init__(World())
        self.watch = Counting()
        self.app.middlewares.insert(0, MeasuredRequests(self.watch, "/ws").measure)
        for path in ("/ws", "/topics/{topic}"):
            self.app.router.add_route("GET", path, self.answer)

    async def answer(self, _request):
        return web.Response(text="yes")


@stepped
async def test_requests_are_noted_by_their_route_and_the_websocket_is_not():
    async with Place() as place:
        for path in ("/topics/a", "/topics/b", "/ws", "/nowhere"):
            await place.get(path)
        assert set(place.watch.steps) == {"GET /topics/{topic}", UNKNOWN}


@stepped
async def test_runs_of_the_collector_are_noted_until_it_is_closed(monkeypatch):
    monkeypatch.setattr("sow.server.loop.latency.NOTED_S", -1.0)
    watch, before = LoopLatency(), len(gc.callbacks)
    garbage = GcLatency(watch)
    for generation in range(3):
        gc.collect(generation)
    assert watch.longest_s == {}, "not from within"
    await asyncio.sleep(0)
    assert watch.longest_s.keys() >= {*COLLECTIONS}
    garbage.close()
    assert len(gc.callbacks) == before


@stepped
async def test_short_runs_are_nothing_worth_a_word(monkeypatch):
    monkeypatch.setattr("sow.server.loop.latency.NOTED_S", 3600.0)
    watch = LoopLatency()
    garbage = GcLatency(watch)
    gc.collect()
    await asyncio.sleep(0)
    garbage.close()
    assert watch.longest_s == {}
