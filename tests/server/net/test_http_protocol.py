"""aiohttp's side of a connection: what of it this project leans on is shown here."""

import asyncio
import logging

import pytest
from aiohttp import WSMsgType, web

from sow.server.net import connection_supervisor
from sow.server.net.connection_supervisor import ClientFaults, HttpProtocol
from sow.server.net.ws_memory_accounting import FrameScanner
from tests.server.net.test_ws_memory_accounting import frame
from tests.server.stand_ins import Socket, stepped, turns

REQUESTED = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Side:
    """One connection whose handler is a WebSocket that is overheard."""

    def __init__(self, frames=None):
        self.frames = frames
        self.received = [b"", b""]
        self.messages = []
        self.frames_in = None
        self.opened = asyncio.Event()
        self.speaking = HttpProtocol(
            web.Server(self.handle), loop=asyncio.get_running_loop(), access_log=None
        )
        self.socket = Socket(self.speaking)
        self.speaking.connection_made(self.socket)

    async def handle(self, request):
        assert isinstance(request.protocol, HttpProtocol)
        for at in (0, 1):
            request.protocol.tap(lambda data, _, at=at: self.receive(at, data))
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.opened.set()
        async for message in socket:
            if message.type is WSMsgType.ERROR:
                break
            assert message.type is WSMsgType.BINARY
            self.messages.append(message.data)
        return socket

    def receive(self, at, data):
        self.received[at] += data
        if self.frames is not None and at == 1:
            data = self.frames.feed(data)
        return data, data.count(frame(0)) if self.frames_in is None else self.frames_in


@stepped
async def test_every_byte_after_the_request_is_overheard_by_all_and_the_request_by_none():
    side = Side()
    first, second = frame(5), frame(300)
    side.speaking.data_received(REQUESTED + first + second[:7])
    await side.opened.wait()
    side.speaking.data_received(second[7:] + frame(3)[:4])
    await turns()
    assert side.received == [first + second + frame(3)[:4]] * 2
    assert side.messages == [b"x" * 5, b"x" * 300]
    side.speaking.connection_lost(None)
    await turns()


@stepped
async def test_a_request_is_queued_from_its_last_byte_until_it_has_its_turn():
    side, queued = Side(), []
    for data in (REQUESTED[:-2], REQUESTED[-2:]):
        await turns()
        side.speaking.data_received(data)
        queued.append(side.speaking.has_queued)
    await side.opened.wait()
    assert [*queued, side.speaking.has_queued] == [False, True, False]
    side.speaking.connection_lost(None)
    await turns()


@stepped
async def test_what_comes_while_hands_are_shaken_is_overheard_too():
    side = Side()
    side.speaking.data_received(REQUESTED)
    side.speaking.data_received(frame(1))
    await side.opened.wait()
    assert side.received[0] == frame(1)
    side.speaking.connection_lost(None)
    await turns()


@stepped
async def test_many_short_frames_are_read_some_in_each_round_of_the_loop(monkeypatch):
    """One read of a socket may bring 40,000 pings, in which nobody else had a turn."""
    monkeypatch.setattr(connection_supervisor, "PIECE_BYTES", 2 * len(frame(0)))
    monkeypatch.setattr(connection_supervisor, "FRAMES_AT_ONCE", 3)
    side = Side()
    side.speaking.data_received(REQUESTED)
    await side.opened.wait()
    side.speaking.data_received(frame(0) * 10)
    assert side.received[0] == frame(0) * 10, "they are heard at once"
    side.speaking.data_received(frame(7))
    await turns(2)
    assert 0 < len(side.messages) < 10, "and read a piece in each round"
    await turns(20)
    assert side.received == [frame(0) * 10 + frame(7)] * 2
    assert side.messages == [b""] * 10 + [b"x" * 7]
    side.speaking.connection_lost(None)
    await turns()


@stepped
async def test_a_piece_has_about_as_many_frames_however_long_they_are(monkeypatch):
    """Pieces of a few frames each would make as many small commits."""
    monkeypatch.setattr(connection_supervisor, "PIECE_BYTES", 2 * len(frame(0)))
    monkeypatch.setattr(connection_supervisor, "FRAMES_AT_ONCE", 50)
    side = Side()
    side.speaking.data_received(REQUESTED)
    await side.opened.wait()
    side.frames_in = 100
    side.speaking.data_received(frame(100) * 100)
    side.frames_in = 1_000
    side.speaking.data_received(frame(0) * 1_000)
    sizes, at = [], 0
    while at < 1_100:
        await turns(1)
        sizes.append(len(side.messages) - at)
        at = len(side.messages)
    assert sizes[0] == 50
    assert max(sizes) <= 50 + 1, "what came behind has shorter ones"
    side.speaking.connection_lost(None)
    await turns()


@stepped
async def test_what_a_client_has_sent_before_it_goes_is_read_some_in_each_round(monkeypatch):
    """Its last publishes may wait to be read when its connection is lost; none may be dropped."""
    monkeypatch.setattr(connection_supervisor, "PIECE_BYTES", len(frame(0)))
    monkeypatch.setattr(connection_supervisor, "FRAMES_AT_ONCE", 1)
    side = Side()
    side.speaking.data_received(REQUESTED)
    await side.opened.wait()
    side.speaking.data_received(frame(0) * 20)
    side.speaking.connection_lost(None)
    await turns(2)
    assert 0 < len(side.messages) < 10
    await turns(40)
    assert side.messages == [b""] * 20


@stepped
async def test_what_waits_to_be_read_is_given_up_after_a_mistake(monkeypatch):
    monkeypatch.setattr(connection_supervisor, "PIECE_BYTES", len(frame(0)))
    monkeypatch.setattr(connection_supervisor, "FRAMES_AT_ONCE", 1)
    side = Side()
    side.speaking.data_received(REQUESTED)
    await side.opened.wait()
    side.speaking.data_received(frame(0) * 3 + b"\xff" * len(frame(0)) + frame(0) * 9)
    await turns(20)
    assert side.messages == [b""] * 3
    side.speaking.connection_lost(None)
    await turns()


@pytest.mark.parametrize("at_once", [1, 300])
@pytest.mark.parametrize("cut", range(len(frame(0)) + 2))
@stepped
async def test_a_frame_that_a_listener_refuses_ends_what_is_read(monkeypatch, at_once, cut):
    """However the bytes are cut, what came before it is read and nothing after it."""
    monkeypatch.setattr(connection_supervisor, "PIECE_BYTES", 2 * len(frame(0)))
    monkeypatch.setattr(connection_supervisor, "FRAMES_AT_ONCE", at_once)
    side = Side(FrameScanner())
    side.speaking.data_received(REQUESTED)
    await side.opened.wait()
    data = frame(1) * 7 + frame(0) + frame(4, masked=False) + frame(2) * 9
    begins = len(frame(1)) * 7
    side.speaking.data_received(data[: begins + cut])
    side.speaking.data_received(data[begins + cut :])
    side.speaking.data_received(frame(6))
    await turns(30)
    assert side.messages == [b"x"] * 7 + [b""]
    closed = side.socket.written[side.socket.written.rindex(b"\x88") :]
    assert int.from_bytes(closed[2:4], "big") == 1002
    side.speaking.connection_lost(None)
    await turns()


@stepped
async def test_what_is_no_http_is_answered_with_a_problem_that_repeats_little_of_it():
    side = Side()
    side.speaking.data_received(b"what is this" + b"?" * 500 + b"\r\n\r\n")
    await turns(10)
    head, _, body = side.socket.written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 400 ")
    assert b"application/problem+json" in head
    assert b"the request is not HTTP" in body
    assert len(body) < 400


def test_only_faults_of_clients_are_kept_out_of_the_log():
    def record(error):
        return logging.LogRecord("x", 40, "", 0, "", (), (type(error), error, None))

    assert not ClientFaults().filter(record(ConnectionResetError()))
    assert ClientFaults().filter(record(KeyError("mine")))
