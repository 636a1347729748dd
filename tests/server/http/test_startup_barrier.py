"""The readiness gate: no request passes before the handlers are ready, none waits for ever."""

import asyncio

import pytest

from sow.errors import Busy, Replaying
from sow.server.http.startup_barrier import RELEASED_AT_ONCE, WAIT_S_MAX, WAITING_MAX, ReadinessGate
from tests.server.stand_ins import stepped, turns

DOORS = "the doors"


def readiness_gate():
    return ReadinessGate(lambda: "replaying: orders, 1 of 2 records")


async def waiting(place, count):
    tasks = [asyncio.ensure_future(place.handlers()) for _ in range(count)]
    await turns()
    assert place.waiting == count
    return tasks


@stepped
async def test_who_comes_early_waits_and_who_comes_later_does_not():
    place = readiness_gate()
    (early,) = await waiting(place, 1)
    assert not early.done()
    place.open(DOORS)
    assert await early == DOORS
    assert await place.handlers() == DOORS
    assert place.waiting == 0


@stepped
async def test_many_are_let_in_some_in_each_round_and_in_their_order():
    place, came = readiness_gate(), []

    async def come(number):
        await place.handlers()
        came.append(number)

    tasks = [asyncio.ensure_future(come(number)) for number in range(3 * RELEASED_AT_ONCE)]
    await turns()
    place.open(DOORS)
    await turns(2)
    assert 0 < len(came) < len(tasks)
    await asyncio.gather(*tasks)
    assert came == list(range(len(tasks)))


@stepped
async def test_who_has_waited_for_long_is_sent_how_far_it_is():
    place, loop = readiness_gate(), asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(Replaying, match="replaying: orders, 1 of 2 records") as caught:
        await place.handlers()
    assert loop.time() - began_s == pytest.approx(WAIT_S_MAX, abs=0.1)
    assert (caught.value.status, caught.value.reason) == (503, "replaying")
    assert caught.value.retry_after_s > 0
    assert place.waiting == 0


@stepped
async def test_one_of_too_many_is_sent_at_once():
    place = readiness_gate()
    tasks = await waiting(place, WAITING_MAX)
    with pytest.raises(Replaying, match="1,000 requests wait already"):
        await place.handlers()
    tasks.pop().cancel()
    await turns()
    late = asyncio.ensure_future(place.handlers())
    await turns()
    place.open(DOORS)
    assert set(await asyncio.gather(late, *tasks)) == {DOORS}


@stepped
async def test_whose_client_has_gone_waits_no_more():
    place = readiness_gate()
    (task,) = await waiting(place, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert place.waiting == 0
    place.open(DOORS)
    await turns()


@stepped
async def test_when_the_server_stops_before_all_are_sent_why():
    place = readiness_gate()
    (early,) = await waiting(place, 1)
    place.close("the disk is gone")
    place.close("the server stops")
    for asking in (early, place.handlers()):
        with pytest.raises(Busy, match="the disk is gone"):
            await asking


@stepped
async def test_when_the_server_stops_later_requests_under_way_still_find_their_doors():
    place = readiness_gate()
    place.open(DOORS)
    place.close("the server stops")
    assert await place.handlers() == DOORS
