"""Whatever a task waits for, and however often it forgets that it was cancelled, its end is waited
for in a limited time; in virtual time."""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from sow.core.async_tasks import (
    CANCELLED_AGAIN_S,
    CANCELLED_TIMES,
    ClosingReader,
    end_all,
    within,
)
from sow.errors import LogUnanswered
from sow.shared_log.adapters import Appender
from tests.simulation.nodes.virtual_loop import VirtualLoop

END_S = CANCELLED_AGAIN_S * CANCELLED_TIMES + 1


def played(work):
    """What a coroutine function returns, and how long that takes."""
    loop = VirtualLoop(Random(1))

    async def play():
        begin_s = loop.time()
        return await work(), loop.time() - begin_s

    try:
        return loop.run_until_complete(play())
    finally:
        loop.drop(None)
        loop.close()


async def forgetting(times):
    for _ in range(times):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(1e6)
    await asyncio.sleep(1e6)


@pytest.mark.parametrize("times", range(CANCELLED_TIMES + 2))
def test_a_task_that_forgets_that_it_was_cancelled_is_cancelled_again_and_given_up_in_time(
    times, caplog
):
    async def work():
        task = asyncio.create_task(forgetting(times))
        await asyncio.sleep(0)
        assert await end_all({task}) == task.done()
        return task.done()

    has_ended, took_s = played(work)
    assert has_ended == (times < CANCELLED_TIMES)
    assert took_s < END_S
    assert bool(caplog.records) == (not has_ended)


@pytest.mark.parametrize("turns", range(12))
def test_a_call_that_fails_in_the_turn_in_which_it_is_cancelled_ends(turns):
    """`asyncio.wait_for` of Python 3.11 then says how it failed, and the caller tries again."""

    async def refused():
        for _ in range(4):
            await asyncio.sleep(0)
        raise ConnectionRefusedError

    async def trying():
        while True:
            with suppress(OSError):
                await asyncio.wait_for(refused(), 1.0)

    async def work():
        task = asyncio.create_task(trying())
        for _ in range(turns):
            await asyncio.sleep(0)
        return await end_all({task}) and task.cancelled()

    assert played(work)[0]


def test_work_has_so_much_time_and_is_then_ended():
    async def work():
        assert await within(5, asyncio.sleep(1))
        with pytest.raises(LogUnanswered):
            await within(5, failing())
        return await within(5, forgetting(1))

    async def failing():
        raise LogUnanswered("nothing came")

    was_done, took_s = played(work)
    assert not was_done
    assert took_s < 6 + END_S


def test_work_ends_with_who_waits_for_it():
    async def work():
        found = []

        async def inner():
            found.append(asyncio.current_task())
            await asyncio.sleep(1e6)

        outer = asyncio.create_task(within(1e5, inner()))
        await asyncio.sleep(1)
        await end_all({outer})
        return outer.cancelled() and found[0].cancelled()

    assert played(work)[0]


def test_a_reader_whose_loop_is_gone_says_nothing():
    async def blocks():
        yield await asyncio.get_running_loop().create_future()

    async def read():
        async with ClosingReader(blocks()) as found:
            async for _ in found:
                pass

    coroutine = read()

    async def work():
        task = asyncio.create_task(coroutine)
        await asyncio.sleep(1)
        return task

    task, _ = played(work)
    assert not task.done()
    coroutine.close()  # as the collector does


def test_a_reader_is_closed_at_the_end_of_its_block():
    ended = []

    async def blocks():
        try:
            yield 1
        finally:
            await asyncio.sleep(1)
            ended.append(True)

    async def work():
        async with ClosingReader(blocks()) as found:
            async for _ in found:
                break
        return ended

    assert played(work)[0] == [True]


def test_who_waits_for_what_is_on_its_way_when_it_is_closed_is_told():
    async def work():
        appender = Appender(lambda _blocks: forgetting(1), 10, 4)
        tasks = [asyncio.create_task(appender.append(block)) for block in (b"a", b"b" * 10)]
        await asyncio.sleep(1)
        await appender.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found, took_s = played(work)
    assert [type(one) for one in found] == [LogUnanswered] * 2
    assert took_s < 1 + END_S
