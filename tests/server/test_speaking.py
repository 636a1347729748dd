"""aiohttp's side of a connection: what of it this project leans on is shown here."""

import asyncio
import logging

from aiohttp import WSMsgType, web

from sow.server.speaking import ClientFaults, Speaking
from tests.server.stand_ins import Socket, stepped, turns
from tests.server.test_websocket_frames import frame

ASKED = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class Side:
    """One connection whose handler is a WebSocket that is overheard."""

    def __init__(self):
        self.heard = [b"", b""]
        self.messages = []
        self.opened = asyncio.Event()
        self.speaking = Speaking(
            web.Server(self.handle), loop=asyncio.get_running_loop(), access_log=None
        )
        self.socket = Socket(self.speaking)
        self.speaking.connection_made(self.socket)

    async def handle(self, request):
        assert isinstance(request.protocol, Speaking)
        for at in (0, 1):
            request.protocol.overhear(lambda data, at=at: self.hear(at, data))
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self.opened.set()
        async for message in socket:
            assert message.type is WSMsgType.BINARY
            self.messages.append(message.data)
        return socket

    def hear(self, at, data):
        self.heard[at] += data


@stepped
async def test_every_byte_after_the_request_is_overheard_by_all_and_the_request_by_none():
    side = Side()
    first, second = frame(5), frame(300)
    side.speaking.data_received(ASKED + first + second[:7])
    await side.opened.wait()
    side.speaking.data_received(second[7:] + frame(3)[:4])
    await turns()
    assert side.heard == [first + second + frame(3)[:4]] * 2
    assert side.messages == [b"x" * 5, b"x" * 300]
    side.speaking.connection_lost(None)
    await turns()


@stepped
async def test_what_comes_while_hands_are_shaken_is_overheard_too():
    side = Side()
    side.speaking.data_received(ASKED)
    side.speaking.data_received(frame(1))
    await side.opened.wait()
    assert side.heard[0] == frame(1)
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
