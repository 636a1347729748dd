"""Everybody's work is done a slice at a time, in turn, and given up when nobody waits for it.

Latency: each step of the loop is measured by name, and long ones are logged.
"""

import asyncio
import gc

import pytest
from aiohttp import web

from sow.core.cooperative import RESTS
from sow.server.loop import scheduler as turns_of_work
from sow.server.loop.scheduler import (
    COLLECTIONS,
    LONG_S,
    UNKNOWN,
    FairScheduler,
    GcLatency,
    LoopLatency,
    MeasuredCoroutine,
    MeasuredRequests,
)
from tests.server.stand_ins import Served, World, stepped, turns


class Line:
    """Turns whose slices are over after one step, and what was done in them."""

    def __init__(self, monkeypatch, slice_s=0.0):
        monkeypatch.setattr(turns_of_work, "SLICE_S", slice_s)
        self.watch, self.slices, self.done = LoopLatency(), 0, []
        self.turns = FairScheduler(self.watch, self._woken)

    def _woken(self):
        self.slices += 1

    def steps(self, name, count, result=None):
        for at in range(count):
            self.done.append((name, at))
            yield
        return result

    def take(self, name, *more):
        return asyncio.ensure_future(self.turns.run(name, self.steps(name, *more)))


@stepped
async def test_work_takes_turns_a_slice_in_each_round(monkeypatch):
    line = Line(monkeypatch)
    one, two = line.take("one", 3, "result"), line.take("two", 2)
    assert await one == "result"
    await two
    assert line.done == [("one", 0), ("two", 0), ("one", 1), ("two", 1), ("one", 2)]
    assert line.slices == 7, "each step a slice, and one to find that it was the last"
    assert line.watch.longest_s.keys() == {"one", "two"}


@stepped
async def test_much_work_of_one_client_has_the_turns_of_little_of_another(monkeypatch):
    line, taken = Line(monkeypatch), []
    for client, count in (("greedy", 20), ("other", 1)):
        token = turns_of_work.CLIENT.set(client)
        taken += [line.take(f"{client} {at}", 5) for at in range(count)]
        turns_of_work.CLIENT.reset(token)
    await taken[-1]
    assert len(line.done) < 15
    for one in taken[1:10]:
        one.cancel()
    await asyncio.gather(taken[0], *taken[10:])
    assert line.done.count(("greedy 0", 4)) == 1
    assert ("greedy 1", 4) not in line.done


@stepped
async def test_short_work_of_many_shares_a_slice(monkeypatch):
    line = Line(monkeypatch, slice_s=60.0)
    await asyncio.gather(*[line.take(str(at), 5) for at in range(10)])
    assert len(line.done) == 50
    assert line.slices == 1


@stepped
async def test_of_each_iteration_one_request_takes_the_slice_as_it_arrives(monkeypatch):
    line = Line(monkeypatch, slice_s=60.0)
    line.turns.renew()
    one, two = line.take("one", 2, "result"), line.take("two", 1)
    await turns(1)
    assert line.done == [("one", 0), ("one", 1)]
    assert await one == "result"
    await two
    assert line.slices == 2


@stepped
async def test_what_fails_fails_alone(monkeypatch):
    line = Line(monkeypatch)

    def failing():
        yield
        raise ValueError("no")

    good = line.take("good", 5, 1)
    with pytest.raises(ValueError, match="no"):
        await line.turns.run("bad", failing())
    assert await good == 1


@stepped
@pytest.mark.parametrize("is_fresh", [False, True])
async def test_one_whose_first_slice_raises_fails_alone(monkeypatch, is_fresh):
    """Also where that slice is taken as it arrives, inside the call of who waits for it."""
    line = Line(monkeypatch)

    def failing():
        raise ValueError("no")
        yield

    if is_fresh:
        line.turns.renew()
    with pytest.raises(ValueError, match="no"):
        await line.turns.run("bad", failing())
    assert line.slices == 1
    good, bad = line.take("good", 3, 1), asyncio.ensure_future(line.turns.run("bad", failing()))
    assert await good == 1
    with pytest.raises(ValueError, match="no"):
        await bad
    assert line.done == [("good", 0), ("good", 1), ("good", 2)]


@stepped
async def test_who_is_cancelled_has_no_more_steps_taken(monkeypatch):
    line = Line(monkeypatch)
    closed = []

    def endless():
        try:
            while True:
                line.done.append("endless")
                yield
        finally:
            closed.append(True)

    task = asyncio.ensure_future(line.turns.run("endless", endless()))
    await turns(10)
    taken = len(line.done)
    assert taken > 1
    task.cancel()
    await turns(3)
    assert closed
    assert task.cancelled()
    assert len(line.done) <= taken + 1


@stepped
async def test_work_that_is_ready_twice_has_one_turn(monkeypatch):
    class Once:
        name, turns = "once", 0

        def go_on(self, _until_s):
            self.turns += 1
            return False

    line, work = Line(monkeypatch), Once()
    for _ in range(2):
        line.turns.add(work)
    await turns()
    assert work.turns == 1
    line.turns.remove(work)


@stepped
async def test_work_that_raises_leaves_the_others_in_line(monkeypatch):
    line, errors = Line(monkeypatch), []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: errors.append(context["exception"]))

    class Broken:
        name = "broken"

        def go_on(self, _until_s):
            raise RuntimeError("broken")

    line.turns.add(Broken())
    assert await line.take("good", 3, 2) == 2
    assert [str(error) for error in errors] == ["broken"]


@stepped
async def test_closing_gives_up_what_is_in_line(monkeypatch):
    line = Line(monkeypatch)
    task = line.take("one", 100)
    await turns(2)
    line.turns.close()
    taken = len(line.done)
    await turns(5)
    assert len(line.done) == taken
    task.cancel()
    await turns(2)


@pytest.fixture
def _at_length(monkeypatch):
    monkeypatch.setattr(turns_of_work, "REST_S", 3600.0)


@stepped
@pytest.mark.usefixtures("_at_length")
async def test_work_that_waits_for_others_is_not_asked_again_at_once(monkeypatch):
    line, waited = Line(monkeypatch, slice_s=60.0), []

    def waiting():
        while len(line.done) < 3:
            waited.append(len(line.done))
            yield RESTS
        return "after them"

    resting = asyncio.ensure_future(line.turns.run("waiting", waiting()))
    await turns(9)
    await line.take("one", 3)
    assert waited == [0]
    for work in list(line.turns._resting):
        line.turns._end_rest(work, None)
    assert await resting == "after them"


@stepped
@pytest.mark.usefixtures("_at_length")
@pytest.mark.parametrize("end", ["cancel", "close"])
async def test_work_that_rests_is_given_up_as_any(end, monkeypatch):
    line = Line(monkeypatch)

    def waiting():
        yield RESTS

    resting = asyncio.ensure_future(line.turns.run("waiting", waiting()))
    await turns()
    assert line.turns._resting
    if end == "close":
        line.turns.close()
        assert not line.turns._resting
    resting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await resting
    assert not line.turns._resting


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
    monkeypatch.setattr("sow.server.loop.scheduler.NOTED_S", -1.0)
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
    monkeypatch.setattr("sow.server.loop.scheduler.NOTED_S", 3600.0)
    watch = LoopLatency()
    garbage = GcLatency(watch)
    gc.collect()
    await asyncio.sleep(0)
    garbage.close()
    assert watch.longest_s == {}
