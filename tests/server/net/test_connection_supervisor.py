"""Supervised connections: timeouts, half-closed clients, and flow control."""

import asyncio
from types import SimpleNamespace

import pytest

from sow.core.definitions import Configuration, Limits
from sow.core.quota import Quota
from sow.errors import Busy
from sow.server.http.body_reading import ReadBackpressure
from sow.server.http.connections import ConnectionLimiter
from sow.server.http.request_origin import CLIENT_ADDRESS
from sow.server.net.connection_supervisor import (
    Connections,
    RequestCounter,
    TransportWritable,
    supervised,
)
from tests.server.stand_ins import Socket, request_of, stepped


def test_everybody_who_waits_is_called_in_order_and_once():
    flow, called = TransportWritable(), []
    first, second = lambda: called.append("first"), lambda: called.append("second")
    flow.pause()
    for one in (first, second, first):
        flow.wait(one)
    assert (flow.paused, called) == (True, [])
    flow.resume()
    assert (flow.paused, called) == (False, ["first", "second"])
    flow.pause()
    flow.resume()
    assert called == ["first", "second"]


def test_who_is_forgotten_is_not_called_and_does_not_cut_off_others():
    flow, called = TransportWritable(), []
    first, second = lambda: called.append("first"), lambda: called.append("second")
    flow.pause()
    flow.wait(first)
    flow.wait(second)
    flow.forget(first)
    flow.forget(first)
    flow.resume()
    assert called == ["second"]


def test_who_fills_the_socket_again_waits_for_the_next_time():
    flow, called = TransportWritable(), []

    def write():
        called.append(flow.paused)
        flow.pause()
        flow.wait(write)

    write()
    flow.resume()
    flow.resume()
    assert called == [False, False, False]


LIMITS = Limits(
    header_timeout_us=10_000_000, idle_timeout_us=60_000_000, connections_per_address_max=1
)
CONFIGURATION = Configuration("test", (), limits=LIMITS)


class Inner(asyncio.Protocol):
    """What would speak HTTP: keeps what it is told."""

    def __init__(self):
        self.calls = []
        self.has_requests = self.has_queued = False

    def data_received(self, data):
        self.calls.append(data)

    def pause_writing(self):
        self.calls.append("pause")

    def resume_writing(self):
        self.calls.append("resume")

    def connection_lost(self, error):
        self.calls.append(error)


class Side:
    """One connection that was let in."""

    def __init__(self):
        self.crowd, self.inner = ConnectionLimiter(lambda: CONFIGURATION, 100), Inner()
        self.all = Connections(
            lambda: self.inner, self.crowd, ReadBackpressure(Quota(lambda: 1 << 20)), lambda: LIMITS
        )
        assert self.crowd.acquire_connection("192.0.2.7") is None
        self.watched = self.all.supervise("192.0.2.7")
        self.socket = Socket(self.watched)
        self.watched.connection_made(self.socket)

    def go(self):
        self.watched.connection_lost(None)
        self.all.close()


@stepped
async def test_all_that_the_socket_says_is_handed_on_and_the_flow_knows_it_too():
    side = Side()
    side.watched.data_received(b"GET")
    side.watched.pause_writing()
    assert side.watched.flow.paused
    side.watched.resume_writing()
    assert not side.watched.flow.paused
    side.go()
    assert side.inner.calls == [b"GET", "pause", "resume", None]
    assert side.crowd.connections == 0


@stepped
async def test_a_header_that_does_not_end_is_sent_so_and_closed():
    side = Side()
    await asyncio.sleep(5)
    side.watched.data_received(b"GET / HTTP/1.1\r\n")
    await asyncio.sleep(9)
    assert not side.socket.closed
    await asyncio.sleep(11)
    assert side.socket.closed
    assert side.socket.written.startswith(b"HTTP/1.1 408 ")
    assert b"the header did not end within 10 s (Limits/HeaderTimeout)" in side.socket.written
    side.go()


@stepped
async def test_a_header_has_ended_in_time_however_late_a_busy_server_begins_its_request():
    side = Side()
    await asyncio.sleep(55)
    side.watched.data_received(b"GET / HTTP/1.1\r\n")
    await asyncio.sleep(9)
    side.inner.has_queued = True
    side.watched.data_received(b"\r\n")
    await asyncio.sleep(55)
    assert (side.socket.closed, side.socket.written) == (False, b"")
    side.watched.begin()
    side.go()


@stepped
async def test_who_asks_for_nothing_is_closed_without_a_word_and_not_while_it_is_answered():
    side = Side()
    side.watched.begin()
    await asyncio.sleep(500)
    assert not side.socket.closed
    side.watched.end()
    await asyncio.sleep(59)
    assert not side.socket.closed
    await asyncio.sleep(12)
    assert (side.socket.closed, side.socket.written) == (True, b"")
    side.go()


class Content:
    """A request's body, which has come or not."""

    def __init__(self, has_come):
        self.is_eof = lambda: has_come


@stepped
async def test_who_sends_no_more_is_answered_before_the_connection_is_closed():
    side = Side()
    side.watched.data_received(b"GET / HTTP/1.1\r\n\r\n")
    side.inner.has_requests = True
    assert side.watched.eof_received()
    side.watched.begin(Content(True))
    await asyncio.sleep(50)
    assert not side.socket.closed
    side.watched.end()
    await asyncio.sleep(50)  # another one came together with it, and has not begun
    assert not side.socket.closed
    side.watched.begin(Content(True))
    await asyncio.sleep(50)
    assert not side.socket.closed
    side.watched.end()
    side.inner.has_requests = False
    await asyncio.sleep(1)
    assert side.socket.closed
    side.go()


@stepped
async def test_who_sends_no_more_and_has_requested_for_nothing_whole_is_gone():
    silent, half, bodiless, streaming = Side(), Side(), Side(), Side()
    assert not silent.watched.eof_received()
    half.watched.data_received(b"GET / HT")
    assert not half.watched.eof_received()
    bodiless.watched.begin(Content(False))
    assert not bodiless.watched.eof_received()
    streaming.watched.begin(Content(True))
    streaming.watched.end_with_client()
    assert not streaming.watched.eof_received(), "its answer has no end"
    for side in (silent, half, bodiless, streaming):
        side.go()


@stepped
async def test_only_the_request_that_takes_long_ends_with_its_client():
    side = Side()
    side.watched.begin(Content(True))
    side.watched.end_with_client()
    side.watched.end()
    side.watched.begin(Content(True))
    side.inner.has_requests = True
    assert side.watched.eof_received(), "the next one is answered"
    side.watched.end()
    side.inner.has_requests = False
    await asyncio.sleep(1)
    side.go()


@stepped
async def test_who_still_reads_the_last_answer_has_time_while_it_gets_on():
    side = Side()
    side.socket.waiting = 5_000
    await asyncio.sleep(75)
    assert not side.socket.closed
    side.socket.waiting = 4_000
    await asyncio.sleep(75)
    assert not side.socket.closed
    await asyncio.sleep(75)
    assert side.socket.aborted, "nothing was taken for a whole idle time"
    side.go()


@stepped
async def test_a_request_knows_its_connection_until_it_has_gone():
    side = Side()
    assert supervised(request_of(transport=side.socket)) is side.watched
    with pytest.raises(ConnectionResetError):
        supervised(SimpleNamespace(transport=None))
    # Of an encrypted one that is lost, aiohttp has the transport for a turn more.
    with pytest.raises(ConnectionResetError):
        supervised(SimpleNamespace(transport=SimpleNamespace(get_protocol=lambda: None)))
    side.go()


@stepped
async def test_requests_that_a_proxy_hands_on_are_counted_for_whom_it_asks():
    side = Side()
    count = RequestCounter(side.crowd).count
    entered, leave = asyncio.Event(), asyncio.Event()

    async def handler(_request):
        entered.set()
        await leave.wait()
        return "answer"

    def requested():
        request = request_of(transport=side.socket)
        request[CLIENT_ADDRESS] = "198.51.100.1"
        return request

    first = asyncio.create_task(count(requested(), handler))
    await entered.wait()
    with pytest.raises(Busy, match="ConnectionsPerAddress"):
        await count(requested(), handler)
    leave.set()
    assert await first == "answer"
    assert await count(requested(), handler) == "answer"
    side.go()
