"""A client of the WebSocket door comes, is answered, and goes; what becomes of its session."""

import asyncio
import gc
import random
import re
import weakref
from types import SimpleNamespace

import pytest
from aiohttp import web

from sow.core.definitions import Configuration, Limits
from sow.core.quota import Quota
from sow.errors import ClientError
from sow.server.http.body_reading import ReadBackpressure
from sow.server.http.connections import ConnectionLimiter
from sow.server.net.command_pump import CommandReader
from sow.server.net.connection_supervisor import Connections, HttpProtocol
from sow.server.net.websocket import (
    GIVEN_UP,
    PING_CHECK_S,
    SILENT_CHECKS,
    STOPPING,
    TRANSITIONS,
    Event,
    Phase,
    Pings,
    WebSocketHandler,
)
from tests.server.net.test_http_protocol import REQUESTED
from tests.server.net.test_ws_memory_accounting import frame, message
from tests.server.stand_ins import Socket, World, open_authn, request_of, stepped, turns

SILENCE_S = SILENT_CHECKS * PING_CHECK_S


class Requested:
    """A client that is heard or not, and what it is asked."""

    def __init__(self):
        self.activity = SimpleNamespace(received=0, is_read=True)
        self.pings, self.is_lost = 0, False
        self.all = Pings(self.activity, self.ping, self.lose)

    async def ping(self):
        self.pings += 1

    def lose(self):
        self.is_lost = True


@stepped
async def test_a_silent_client_is_requested_and_lost_if_it_does_not_answer():
    client = Requested()
    await asyncio.sleep(SILENCE_S - 1)
    assert client.pings == 0
    await asyncio.sleep(2)
    assert (client.pings, client.is_lost) == (1, False)
    await asyncio.sleep(PING_CHECK_S)
    assert (client.pings, client.is_lost) == (1, True)


@stepped
async def test_one_that_answers_is_requested_again_after_as_long():
    client = Requested()
    for times in range(1, 4):
        await asyncio.sleep(SILENCE_S + 1)
        assert client.pings == times
        client.activity.received += 1
        await asyncio.sleep(PING_CHECK_S - 1)
    assert not client.is_lost
    client.all.stop()
    await asyncio.sleep(10 * PING_CHECK_S)
    assert client.pings == 3


@stepped
async def test_nothing_is_held_against_a_client_whose_socket_is_not_read():
    client = Requested()
    client.activity.is_read = False
    await asyncio.sleep(10 * PING_CHECK_S)
    assert (client.pings, client.is_lost) == (0, False)
    client.activity.is_read = True
    await asyncio.sleep(SILENCE_S + 1)
    assert client.pings == 1
    client.activity.is_read = False  # the answer stands behind much else
    await asyncio.sleep(10 * PING_CHECK_S)
    assert not client.is_lost
    client.all.stop()


LIMITS = Limits(idle_timeout_us=60_000_000)


class Place:
    """A door of a world, and the connections that lead to it."""

    def __init__(self):
        self.world = World()
        self.door = WebSocketHandler(
            self.world.runtime,
            self.world.executor,
            open_authn(),
            lambda _request, *given: CommandReader(*given),  # no application has it
        )
        crowd = ConnectionLimiter(lambda: Configuration("test", ()), 100)
        server, loop = (
            web.Server(self.handle, handler_cancellation=True),
            asyncio.get_running_loop(),
        )
        self.all = Connections(
            lambda: HttpProtocol(server, loop=loop, access_log=None),
            crowd,
            ReadBackpressure(Quota(lambda: 1 << 20)),
            lambda: LIMITS,
        )

    async def handle(self, request):
        connection = request.transport.get_protocol()
        connection.begin()
        try:
            return await self.door.handle(request)
        finally:
            connection.end()

    @property
    def sessions(self):
        return list(self.world.executor.sessions)

    async def close(self):
        self.all.close()
        await self.world.runtime.close()


def masked(line, first=0x81):
    assert len(line) < 126
    return bytes([first, 0x80 | len(line)]) + b"\0\0\0\0" + line


class Client:
    """A client's end of one connection."""

    def __init__(self, place):
        self.watched = place.all.supervise("192.0.2.7")
        self.socket = Socket(self.watched)
        self.watched.connection_made(self.socket)

    async def open(self):
        self.watched.data_received(REQUESTED)
        await turns(10)
        assert b" 101 " in self.socket.written
        return self

    async def send(self, line, first=0x81):
        """One frame, masked by zeros as every byte is its own mask then."""
        self.watched.data_received(masked(line, first))
        await turns(20)

    def close_code(self):
        """The code of the close frame that was written last."""
        at = self.socket.written.rindex(b"\x88")
        return int.from_bytes(self.socket.written[at + 2 : at + 4], "big")

    async def lose(self):
        self.watched.connection_lost(None)
        self.socket.set_protocol(None)  # as asyncio does
        await turns(10)


@stepped
async def test_commands_are_answered_whether_they_come_as_text_or_as_bytes():
    place = Place()
    client = await Client(place).open()
    await client.send(b'{"c":"heartbeat","cid":"1"}', first=0x81)
    await client.send(b'{"c":"flush","cid":"two","a":"processed"}', first=0x82)
    assert b"heartbeat" in client.socket.written
    assert b'"two"' in client.socket.written
    await client.lose()
    assert place.sessions == []
    await place.close()


def command(number, kind, rng):
    """The frames of a command, and whether it is answered by its number."""
    line = b'{"c":"flush","cid":"%d","a":"processed"}' % number
    match kind:
        case "short":
            return message(line, rng.choice((0x81, 0x82)))
        case "long":
            return message(line + b" " * rng.choice((990, 70_000)))
        case "not ASCII":
            return message(line[:-1] + ',"opts":"é"}'.encode(), 0x81)
        case "fragments":
            at = rng.randrange(1, len(line))
            inner = rng.choice((b"", message(b"?", 0x89)))
            return message(line[:at], 0x01) + inner + message(line[at:], 0x80)
    return message(line) + message(b"?", 0x89)


@pytest.mark.parametrize("seed", range(25))
@stepped
async def test_commands_are_answered_in_order_however_their_bytes_arrive(seed):
    rng = random.Random(seed)
    kinds = ["short"] * 6 + ["long", "not ASCII", "fragments", "with a ping"]
    count = rng.randrange(1, 60)
    sent = b"".join(command(number, rng.choice(kinds), rng) for number in range(count))
    place = Place()
    client = await Client(place).open()
    at = 0
    while at < len(sent):
        size = rng.choice((1, 3, 70, 70, 300, 3_000, 80_000))
        client.watched.data_received(sent[at : at + size])
        at += size
        await turns(rng.randrange(4))
    await asyncio.sleep(1)
    answered = re.findall(rb'"cid":"(\d+)"', client.socket.written)
    assert [*map(int, answered)] == [*range(count)]
    await client.lose()
    await place.close()


@stepped
async def test_short_messages_of_a_client_that_is_too_fast_wait_in_its_socket():
    place = Place()
    client = await Client(place).open()
    line = b'{"c":"flush","cid":"%d","a":"processed"}'
    data = b"".join(message(line % number + b" " * 900) for number in range(600))
    client.watched.data_received(data)
    client.watched.data_received(data)
    await turns(2)
    (served,) = place.door._clients
    assert served._commands._queue.bytes < 2 * len(data)
    await asyncio.sleep(1)
    answered = re.findall(rb'"cid":"(\d+)"', client.socket.written)
    assert [*map(int, answered)] == [*range(600), *range(600)]
    await client.lose()
    await place.close()


@pytest.mark.parametrize(
    ("payload", "code"),
    [(b"", 1000), (b"\x03\xe8", 1000), (b"\x0b\xb9bye", 3001), (b"\x03\xee", 1002)]
    + [(bad.to_bytes(2, "big"), 1002) for bad in (999, 1004, 1005, 1015, 2999, 5000, 65535)],
)
@stepped
async def test_a_close_frame_is_answered_by_its_code_or_as_a_protocol_error(payload, code):
    place = Place()
    client = await Client(place).open()
    await client.send(payload, first=0x88)
    assert client.close_code() == code
    assert client.socket.closed
    await client.lose()
    await place.close()


@stepped
async def test_nothing_of_a_client_that_has_gone_waits_for_its_next_ping():
    place = Place()
    client = await Client(place).open()
    (served,) = (weakref.ref(one) for one in place.door._clients)
    await client.lose()
    del client
    await turns(10)
    gc.collect()
    assert served() is None
    await place.close()


@stepped
async def test_who_sends_no_more_is_answered_and_then_sent_that_this_is_the_end():
    place = Place()
    client = await Client(place).open()
    client.watched.data_received(masked(b'{"c":"flush","cid":"last","a":"processed"}'))
    assert client.watched.eof_received(), "it may still read"
    await asyncio.sleep(1)
    written = client.socket.written
    assert 0 < written.index(b"\x89") < written.index(b'"last"') < written.rindex(b"\x88")
    assert client.close_code() == 1000
    assert client.socket.closed
    await client.lose()
    assert place.sessions == []
    await place.close()


@stepped
async def test_a_client_that_sends_no_more_is_closed_once_it_has_read_its_answers():
    place = Place()
    client = await Client(place).open()
    client.watched.flow.pause()
    client.watched.data_received(masked(b'{"c":"flush","cid":"last","a":"processed"}'))
    assert client.watched.eof_received()
    await asyncio.sleep(1)
    assert b'"last"' not in client.socket.written
    assert not client.socket.closed
    client.watched.flow.resume()
    await asyncio.sleep(1)
    written = client.socket.written
    assert 0 < written.index(b'"last"') < written.rindex(b"\x88")
    assert client.socket.closed
    await client.lose()
    await place.close()


@stepped
async def test_who_sends_no_more_after_the_end_is_not_finished_with_again():
    place = Place()
    client = await Client(place).open()
    await client.send(b"", first=0x88)
    assert place.sessions == []
    assert client.watched.eof_received()
    await client.lose()
    await place.close()


@stepped
async def test_who_has_gone_altogether_is_waited_for_no_longer():
    place = Place()
    client = await Client(place).open()
    assert client.watched.eof_received()
    await client.lose()
    assert place.sessions == []
    await place.close()


@stepped
async def test_who_has_left_is_looked_at_until_its_socket_has_gone():
    place, failed = Place(), []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failed.append(context))
    client = await Client(place).open()
    client.watched.data_received(masked(b"\x03\xe8", 0x88))
    await turns(20)
    assert not place.sessions
    client.watched._check()
    assert not failed
    await place.close()


@stepped
async def test_clients_that_have_gone_leave_nothing_for_the_collector():
    """It looks through the objects of long-lived clients only where very many of them stay."""
    place = Place()

    async def come_and_go(count):
        for at in range(count):
            client = await Client(place).open()
            await client.send(b'{"c":"subscribe","t":"orders","cid":"1","filter":"/x > 1"}')
            await client.send(b'{"c":"heartbeat","cid":"two"}')
            if at % 2:
                await client.send(b"", first=0x88)  # it says that it goes
            await client.lose()

    await come_and_go(20)
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        await come_and_go(200)
        left = len(gc.get_objects()) - before
    finally:
        gc.enable()
    assert left < 200, "less than one object of each"
    await place.close()


@stepped
async def test_who_asks_for_no_websocket_is_sent_so_and_opens_no_session():
    place = Place()
    with pytest.raises(ClientError, match="speaks WebSocket"):
        await place.door.handle(request_of("GET", "/v1/ws"))
    assert place.sessions == []
    await place.close()


@stepped
async def test_a_handshake_that_fails_leaves_no_session():
    place = Place()
    client = Client(place)
    client.watched.data_received(REQUESTED)
    client.watched.connection_lost(None)
    await turns(10)
    assert place.sessions == []
    await place.close()


@stepped
async def test_a_named_session_that_follows_something_outlives_its_socket():
    place = Place()
    client = await Client(place).open()
    await client.send(b'{"c":"logon","cid":"1"}')
    await client.send(b'{"c":"subscribe","t":"orders","cid":"2"}')
    (session,) = place.sessions
    await client.lose()
    assert place.sessions == [session]
    assert not session.connected
    place.world.publish(b'{"id":1}')
    place.world.runtime.wake()
    await place.world.runtime.durable()
    assert session.outbox.message_count == 1
    await place.close()


@stepped
async def test_a_silent_client_is_given_up_and_sent_why():
    place = Place()
    client = await Client(place).open()
    await client.send(b'{"c":"heartbeat","cid":"1"}')
    for _ in range(12):
        await asyncio.sleep(6)
        await client.send(b"", first=0x8A)  # the answer to the server's own pings
    assert b"no request and no subscription for 60 s" in client.socket.written
    assert client.close_code() == GIVEN_UP
    await client.lose()
    assert sum(place.world.executor.sessions.closed.values()) == 1
    await place.close()


@stepped
async def test_a_follower_that_answers_no_ping_is_lost():
    place = Place()
    client = await Client(place).open()
    await client.send(b'{"c":"subscribe","t":"orders","cid":"1"}')
    await asyncio.sleep(46)
    assert client.socket.written.endswith(b"\x89\x00"), "it was asked"
    assert not client.socket.aborted
    await asyncio.sleep(15)
    assert client.socket.aborted
    await client.lose()
    await place.close()


@stepped
async def test_pings_are_answered_and_others_have_their_turn_between_them(monkeypatch):
    monkeypatch.setattr("sow.server.net.websocket.PINGS_AT_ONCE", 5)
    place = Place()
    many, one = await Client(place).open(), await Client(place).open()
    many.watched.data_received(b"".join(frame(3, first=0x89) for _ in range(500)))
    await one.send(b"abc", first=0x89)
    assert one.socket.written.count(b"\x8a\x03") == 1
    assert many.socket.written.count(b"\x8a\x03") < 500
    await turns(300)
    assert many.socket.written.count(b"\x8a\x03") == 500
    await many.lose()
    await one.lose()
    await place.close()


@stepped
async def test_every_client_is_sent_that_the_server_stops():
    place = Place()
    clients = [await Client(place).open() for _ in range(2)]
    closing = asyncio.create_task(place.door.close())
    await turns(10)
    assert [client.close_code() for client in clients] == [STOPPING, STOPPING]
    assert all(b"server stops" in client.socket.written for client in clients)
    for client in clients:
        await client.lose()
    await closing
    assert place.sessions == []
    await place.close()


def test_every_phase_ends_and_a_closed_connection_stays_closed():
    for phase in Phase:
        assert TRANSITIONS[phase, Event.LOST] is Phase.CLOSED
    after_closed = {TRANSITIONS.get((Phase.CLOSED, event), Phase.CLOSED) for event in Event}
    assert after_closed == {Phase.CLOSED}


def test_a_client_that_sends_no_more_drains_whenever_its_handshake_is_answered():
    for events in ((Event.OPENED, Event.EOF), (Event.EOF, Event.OPENED)):
        phase = Phase.HANDSHAKE
        for event in events:
            phase = TRANSITIONS[phase, event]
        assert phase is Phase.DRAINING
        assert TRANSITIONS[phase, Event.ENDED] is Phase.CLOSING
