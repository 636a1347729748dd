"""What waits goes together, in its order; behind a failure nothing is sent."""

import asyncio

import pytest

from sow.errors import LogUnanswered, TooLarge
from sow.shared_log import BLOCK_BYTES_MAX
from sow.shared_log.adapters import Appender


class Engine:
    """Stores when it is told to, and notes what came in one request."""

    def __init__(self):
        self.batches = []
        self.fails = False
        self.may_store = asyncio.Event()
        self._position = 0

    async def store(self, blocks):
        self.batches.append(blocks)
        await self.may_store.wait()
        if self.fails:
            raise LogUnanswered("nothing came")
        begin = self._position + 1
        self._position += len(blocks)
        return range(begin, self._position + 1)


def played(work, batch_bytes=10, batch_blocks=4):
    async def play():
        engine = Engine()
        appender = Appender(engine.store, batch_bytes, batch_blocks)
        async with asyncio.timeout(60):
            await work(engine, appender)
            await appender.close()

    asyncio.run(play())


async def begun(appender, blocks):
    tasks = [asyncio.create_task(appender.append(block)) for block in blocks]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


def test_what_waits_goes_together_and_each_gets_its_position():
    async def work(engine, appender):
        first = await begun(appender, [b"a"])
        others = await begun(appender, [b"b", b"c", b"d"])
        engine.may_store.set()
        assert await asyncio.gather(*first, *others) == [1, 2, 3, 4]
        assert engine.batches == [[b"a"], [b"b", b"c", b"d"]]

    played(work)


def test_a_batch_is_bounded_in_bytes_and_blocks():
    async def work(engine, appender):
        engine.may_store.set()
        first = await begun(appender, [b"1"])
        large = await begun(appender, [b"123456", b"12345", b"1", b"2", b"3", b"4"])
        await asyncio.gather(*first, *large)
        assert [len(batch) for batch in engine.batches[-3:]] == [1, 4, 1]

    played(work)


def test_behind_a_failure_nothing_is_sent_and_later_blocks_are():
    async def work(engine, appender):
        engine.fails = True
        tasks = await begun(appender, [b"a", b"b" * 9, b"c" * 9])
        engine.may_store.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in found] == [LogUnanswered] * 3
        assert len(engine.batches) == 1
        engine.fails = False
        assert await appender.append(b"d") == 1

    played(work)


def test_a_caller_that_has_gone_costs_the_others_nothing():
    async def work(engine, appender):
        gone, stays = await begun(appender, [b"a", b"b"])
        gone.cancel()
        engine.may_store.set()
        assert await stays == 2

    played(work)


def test_a_block_that_is_too_large_is_refused_and_not_sent():
    async def work(engine, appender):
        with pytest.raises(TooLarge):
            await appender.append(bytes(BLOCK_BYTES_MAX + 1))
        assert engine.batches == []

    played(work)
