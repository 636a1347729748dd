"""The bridge: what asyncio does, waited for by programs without it."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sow.client.sync.bridge import Bridge
from sow.errors import ClientError


@pytest.fixture
def bridge():
    made = Bridge()
    yield made
    made.close()


class Queue:
    """An asynchronous iterator over what is put into it; a generator would end when cancelled."""

    def __init__(self, *items):
        self.items = list(items)
        self.more = asyncio.Event()

    def __aiter__(self):
        return self

    async def __anext__(self):
        while not self.items:
            self.more.clear()
            await self.more.wait()
        item = self.items.pop(0)
        if item is None:
            raise StopAsyncIteration
        return item

    async def put(self, item):
        self.items.append(item)
        self.more.set()


async def give(value):
    return value


async def fail(error):
    raise error


def test_what_a_coroutine_returns_or_raises_is_handed_on(bridge):
    assert bridge.wait(give(7)) == 7
    with pytest.raises(KeyError, match="this"):
        bridge.wait(fail(KeyError("this")))


def test_work_that_takes_longer_is_cancelled(bridge):
    cancelled = []

    async def work():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(TimeoutError):
        bridge.wait(work(), 0.001)
    assert cancelled == [True]


def test_items_come_one_by_one_and_none_is_lost_by_a_timeout(bridge):
    items = Queue("a")
    each = bridge.each(items)
    assert next(each) == "a"
    for item in ("b", "c"):
        with pytest.raises(TimeoutError):
            each.next(0.001)
        bridge.wait(items.put(item))
        assert each.next(5) == item
    bridge.wait(items.put("d"))
    bridge.wait(items.put(None))
    assert list(each) == ["d"]


def test_a_context_is_left_with_what_went_wrong_in_it(bridge):
    seen = []

    @asynccontextmanager
    async def context(settles):
        try:
            yield "entered"
        except ValueError as error:
            seen.append(str(error))
            if not settles:
                raise
        else:
            seen.append("well")

    with bridge.entered(context(settles=False)) as entered:
        assert entered == "entered"
    with bridge.entered(context(settles=True)):
        raise ValueError("settled")
    with pytest.raises(ValueError, match="not settled"), bridge.entered(context(settles=False)):
        raise ValueError("not settled")
    assert seen == ["well", "settled", "not settled"]


def test_after_its_end_nothing_is_waited_for():
    bridge = Bridge()
    bridge.close()
    bridge.close()
    assert bridge.is_closed
    with pytest.raises(ClientError, match="the client is closed; make another one"):
        bridge.wait(give(1))
