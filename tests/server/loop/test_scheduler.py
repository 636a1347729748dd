"""Everybody's work is done a slice at a time, in turn, and given up when nobody waits for it."""

import asyncio

import pytest

from sow.core.cooperative import RESTS
from sow.server.loop import scheduler as turns_of_work
from sow.server.loop.latency import LoopLatency
from sow.server.loop.scheduler import FairScheduler
from tests.server.stand_ins import stepped, turns


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
