"""Requests that wait for a bookmark: in order, for so long at most, and not beyond the end."""

import asyncio

import pytest

from sow.errors import Busy, NotReached
from tests.server.stand_ins import World, stepped, turns


@stepped
async def test_requests_for_one_bookmark_go_on_some_at_a_time():
    world, order = World(), []

    async def wait(number, seq):
        await world.runtime.bookmark_waits.reached(seq, 30)
        order.append(number)

    waiting = [asyncio.create_task(wait(number, 1 + number % 2)) for number in range(100)]
    waiting.append(asyncio.create_task(wait("never", 10**12)))
    await turns(3)
    world.publish(b'{"id":1}', b'{"id":2}')
    await world.runtime.durable()
    await turns(1)
    assert 0 < len(order) < 100
    await turns(10)
    assert order == [*range(0, 100, 2), *range(1, 100, 2)]
    waiting[-1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not world.runtime.bookmark_waits._by_seq


@stepped
async def test_a_place_in_what_was_sent_waits_for_its_time_and_is_refused_where_that_stands_still():
    world = World()
    time_us = world.engine.now_us + 1
    waiting = asyncio.create_task(world.runtime.bookmark_waits.reached(0, 30, time_us))
    await turns(3)
    assert not waiting.done()
    world.engine.sequencer.moment(time_us)
    world.runtime.bookmark_waits.release()
    await turns(3)
    assert waiting.done()
    with pytest.raises(NotReached, match=rf"bookmark 0\.{time_us + 1} is not reached within 0 s"):
        await world.runtime.bookmark_waits.reached(0, 0.0, time_us + 1)
    assert not world.runtime.bookmark_waits._by_time


@stepped
async def test_a_server_that_stops_waits_for_no_bookmark():
    world = World()
    waits, later = world.runtime.bookmark_waits, world.engine.now_us + 1
    waiting = [asyncio.create_task(waits.reached(*one)) for one in ((7, 30), (0, 30, later))]
    await turns(3)
    waits.end("the server stops")
    for one in waiting:
        with pytest.raises(Busy, match="the server stops"):
            await one
    with pytest.raises(Busy, match="the server stops"):
        await waits.reached(7, 30)
    await waits.reached(0, 30)
    assert not waits._by_seq
    assert not waits._by_time
