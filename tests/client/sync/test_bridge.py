"""The bridge: what asyncio does, waited for by programs without it.

Answers over HTTP, without asyncio.
"""

import asyncio
import inspect
import os
import signal
import threading
from contextlib import asynccontextmanager

import pytest

from sow.client.sync import Client
from sow.client.sync import bridge as module
from sow.client.sync.bridge import (
    Bridge,
    SyncWrapper,
    handed,
    mirrored,
    mirrored_coroutine,
    plain,
    waited,
)
from sow.errors import ClientError, UnknownTopic


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


class Endless:
    """Work without an end, which says when it has begun and when it was cancelled."""

    def __init__(self, begun=lambda: None):
        self.begun = begun
        self.cancelled = threading.Event()

    async def work(self):
        self.begun()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()


@pytest.mark.parametrize("ends_waits", [True, False], ids=["Python alone", "beside polars"])
def test_an_interrupt_ends_the_wait_and_cancels_the_work(bridge, ends_waits):
    """Ctrl-C, which comes to the main thread while it waits; polars is told of it first, and has it
    end no wait."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.siginterrupt(signal.SIGINT, ends_waits)
    main = threading.get_ident()
    endless = Endless(lambda: signal.pthread_kill(main, signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        bridge.wait(endless.work())
    assert endless.cancelled.wait(60)
    assert bridge.wait(give(7)) == 7
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("error", [TimeoutError("its own"), None])
def test_work_may_take_longer_than_a_look_and_fail_by_a_timeout_of_its_own(
    bridge, monkeypatch, error
):
    monkeypatch.setattr(module, "LOOK_S", 0.0)

    async def work():
        await asyncio.sleep(0.01)
        if error is not None:
            raise error
        return 7

    if error is None:
        assert bridge.wait(work()) == 7
    else:
        with pytest.raises(TimeoutError, match="its own"):
            bridge.wait(work())


def test_who_waits_in_another_thread_is_sent_of_the_end():
    bridge, begun, said = Bridge(), threading.Event(), []

    def wait():
        try:
            bridge.wait(Endless(begun.set).work())
        except ClientError as error:
            said.append(error.detail)

    thread = threading.Thread(target=wait)
    thread.start()
    assert begun.wait(60)
    bridge.close()
    thread.join(60)
    assert said == ["the client was closed meanwhile; make another one"]


def test_the_last_work_is_done_and_its_error_is_raised(bridge):
    with pytest.raises(KeyError, match="last"):
        bridge.close(lambda: fail(KeyError("last")))
    assert bridge._loop.is_closed()
    assert not bridge._thread.is_alive()


def test_it_does_not_wait_for_itself(bridge):
    async def within():
        bridge.wait(give(1))

    with pytest.raises(ClientError, match="a function that the client itself calls"):
        bridge.wait(within())


def test_after_a_fork_it_says_so_and_closes_nothing_of_the_parents(bridge, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ClientError, match="make a client in each process"):
        bridge.wait(give(1))
    bridge.close()
    monkeypatch.undo()
    assert bridge.wait(give(7)) == 7


def test_items_come_one_by_one_and_none_is_lost_by_a_timeout(bridge):
    items = Queue("a")
    each = bridge.each(items)
    assert next(each) == "a"
    for item in ("b", "c"):
        with pytest.raises(TimeoutError):
            each.next(0.001)
        bridge.wait(items.put(item))
        assert each.next(60) == item
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


class Counter:
    def __init__(self):
        self.count = 0

    async def add(self, number: int, *, twice: bool = False) -> int:
        """Add a number (`async with`)."""
        self.count += number * (1 + twice)
        return self.count

    def look(self) -> int:
        """The count."""
        return self.count

    def made(self) -> "Counter":
        """Another."""
        return Counter()

    async def awaited(self) -> "Counter":
        """Another, too."""
        return Counter()


class PlainCounter(SyncWrapper[Counter]):
    add = waited(Counter.add)
    look = handed(Counter.look)


class PlainMaker(SyncWrapper[Counter]):
    made = mirrored(Counter.made, PlainCounter)
    awaited_one = mirrored_coroutine(Counter.awaited, PlainCounter)


def test_it_does_what_the_original_does(bridge):
    counter = PlainCounter(bridge, Counter())
    assert counter.add(2, twice=True) == 4
    assert counter.look() == counter.awaited.count == 4


def test_what_it_makes_is_mirrored_too(bridge):
    maker = PlainMaker(bridge, Counter())
    assert maker.made().add(1) == 1
    assert maker.awaited_one().add(1) == 1


def test_it_shows_the_name_the_parameters_and_the_words_of_the_original():
    assert str(inspect.signature(PlainCounter.add)) == (
        "(self, number: int, *, twice: bool = False) -> int"
    )
    assert PlainCounter.add.__name__ == "add"
    assert PlainCounter.add.__doc__ == "Add a number (`with`)."
    assert inspect.signature(PlainMaker.made).return_annotation is PlainCounter
    assert not inspect.iscoroutinefunction(PlainCounter.add)


def test_what_is_so_with_asyncio_alone_is_left_out():
    assert plain("Read it (`async for`). With asyncio it is awaited. It ends.") == (
        "Read it (`for`). It ends."
    )


@pytest.fixture
def client(server):
    with Client(server.url, name="test") as client:
        yield client


def test_rows_may_be_gone_through_without_a_context(client):
    client.publish("orders", [{"id": 1}, {"id": 2}])
    assert list(client.rows("orders", order_by="/id")) == [b'{"id":1}', b'{"id":2}']
    rows = client.rows("orders", order_by="/id")
    assert (rows.matches, next(iter(rows))) == (2, b'{"id":1}')
    with pytest.raises(UnknownTopic):
        list(client.rows("nope"))


def test_tables_of_an_answer_are_of_its_own_records(client):
    client.publish("orders", {"id": 1})
    for answer in (client.query("orders"), client.rows("orders").all()):
        assert (answer.records, answer.matches) == ([{"id": 1}], 1)
        assert answer.index == "scan"
        assert int(answer.bookmark) > 0
        client.publish("orders", {"id": 2, "note": "x"})
        assert answer.to_arrow().to_pylist() == [{"id": 1}]
        assert len(answer.to_pandas()) == len(answer.to_polars()) == 1
        client.delete("orders", filter="/id = 2")


def test_an_answer_is_read_after_its_client_is_closed(server):
    with Client(server.url) as client:
        client.publish("orders", [{"id": number, "px": 1.5} for number in range(500)])
        few, many = client.query("orders", top_n=1), client.query("orders")
        assert few.tables.is_settled is False
    assert many.to_arrow().schema.names == few.to_arrow().schema.names == ["id", "px"]
    assert "<caption>orders: 1 record of 500 that match</caption>" in few._repr_html_()
    assert few.preview().heads == ["id", "px"]
