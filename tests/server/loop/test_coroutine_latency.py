"""A coroutine that is measured does what it does, and each of its steps is noted."""

import asyncio

import pytest
from aiohttp import web

from sow.server.loop.coroutine_latency import UNKNOWN, MeasuredCoroutine, MeasuredRequests
from sow.server.loop.loop_latency import LoopLatency
from tests.server.stand_ins import Served, World, stepped


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
    watch, heard = Counting(), []

    async def failing():
        await asyncio.sleep(0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await MeasuredCoroutine(watch, "failing", failing())

    async def waiting():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            await asyncio.sleep(0)
            heard.append("cleaned up")
            raise

    async def measured():
        await MeasuredCoroutine(watch, "waiting", waiting())

    task = asyncio.ensure_future(measured())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard == ["cancelled", "cleaned up"]


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
