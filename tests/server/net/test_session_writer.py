"""A session on a socket: frames leave as fast as the socket takes them, and stay queued if not.

A stream of events: a snapshot or the log, then what comes, until somebody ends it.
"""

import asyncio
import threading
from dataclasses import replace

import pytest

from sow.protocol.replies import LINES
from sow.protocol.wire import read_frame
from sow.server.http.route import Route
from sow.server.net.connection_supervisor import TransportWritable
from sow.server.net.session_writer import (
    GRACE_S,
    SOCKET_BUFFER_BYTES,
    STREAM_PARAMETERS,
    EventStreamHandler,
    SessionWriter,
    as_text,
)
from tests.executing import execute_all
from tests.server.stand_ins import ORDERS, Served, Socket, World, stepped, turns
from tests.store.in_memory import MemoryJournal


class Below:
    """A connection's socket and its flow, as `Watched` gives them."""

    def __init__(self):
        self.flow = TransportWritable()
        self.transport = Socket(self)
        self.pause_writing, self.resume_writing = self.flow.pause, self.flow.resume


class Client:
    """A session on a socket of its own in a world."""

    def __init__(self, world):
        self.world, self.below, self.ends = world, Below(), 0
        self.socket = self.below.transport
        self.session = world.executor.sessions.open(LINES, world.clock.now_us())
        self.connection = SessionWriter(
            world.runtime, world.executor, self.session, self.below, self.count_end
        )

    def count_end(self):
        self.ends += 1

    def say(self, line):
        session = self.connection.session
        execute_all(self.world.executor, session, list(read_frame(line)), self.world.clock.now_us())
        self.connection.follow()
        self.world.runtime.wake()


def begun(world):
    client = Client(world)
    client.connection.begin()
    return client


@stepped
async def test_nothing_is_written_before_the_handshake_is_over():
    world = World()
    client = Client(world)
    client.say(b'{"c":"heartbeat","cid":"1"}')
    await turns()
    assert client.socket.written == b""
    assert client.connection.owns
    client.connection.begin()
    await turns()
    assert b"heartbeat" in client.socket.written
    await world.runtime.close()


@stepped
async def test_what_a_slow_client_has_not_taken_stays_in_the_outbox():
    world = World()
    client = begun(world)
    client.say(b'{"c":"subscribe","t":"orders","cid":"1"}')
    text = b"x" * (SOCKET_BUFFER_BYTES // 4)
    for number in range(12):
        world.publish(b'{"id":%d,"text":"%b"}' % (number, text))
        world.runtime.wake()
        await world.runtime.durable()
    assert SOCKET_BUFFER_BYTES < client.socket.waiting < 2 * SOCKET_BUFFER_BYTES
    assert client.session.outbox
    assert client.connection.is_stuck
    for _ in range(12):
        client.socket.take()
        await turns()
    assert not client.session.outbox
    assert not client.connection.is_stuck
    client.socket.abort()
    assert client.connection.is_stuck, "who has gone takes nothing"
    assert all(b'"id":%d,' % number in client.socket.written for number in range(12))
    client.connection.close()
    await world.runtime.close()


@stepped
async def test_what_waits_for_the_client_goes_on_when_the_socket_has_taken_all(monkeypatch):
    world = World()
    client, drained = begun(world), []
    monkeypatch.setattr(world.executor.subscriptions, "drained", drained.append)
    client.say(b'{"c":"subscribe","t":"orders","cid":"1","opts":"conflation=auto"}')
    await turns()
    assert drained == [client.session]
    client.below.flow.pause()
    client.say(b'{"c":"heartbeat","cid":"2"}')
    await turns()
    assert drained == [client.session], "a full socket has taken what it was given and no more"
    client.below.flow.resume()
    assert drained == 2 * [client.session]
    client.connection.close()
    await world.runtime.close()


@stepped
async def test_a_frame_that_alone_waits_leaves_at_once_and_only_where_the_socket_takes_it(
    monkeypatch,
):
    """Straight to the socket: in order with acks, once durable, not past one that is full."""
    world = World()
    client, drained = begun(world), []
    monkeypatch.setattr(world.executor.subscriptions, "drained", drained.append)
    client.say(b'{"c":"subscribe","t":"orders","cid":"1"}')
    await turns()

    async def published(number):
        world.publish(b'{"id":%d}' % number)
        world.runtime.wake()
        await world.runtime.durable()

    def told():
        return [number for number in range(9) if b'"id":%d}' % number in client.socket.written]

    await published(0)
    assert told() == [0]
    client.below.flow.pause()
    await published(1)
    assert (told(), client.session.outbox.message_count) == ([0], 1), "the socket is full"
    client.say(b'{"c":"flush","cid":"behind","a":"processed"}')
    client.below.flow.resume()
    await turns()
    written = client.socket.written
    assert 0 < written.index(b'"id":1}') < written.index(b'"behind"')
    client.session.pace(True)
    await published(2)
    assert (told(), drained) == ([0, 1, 2], [client.session]), "who paces itself hears of it"
    client.session.pace(False)
    client.session.hold_back()
    await published(3)
    assert told() == [0, 1, 2], "other permissions are being applied"
    client.socket.abort()
    client.session.let_out(world.clock.now_us())
    await published(4)
    assert told() == [0, 1, 2], "the client has gone"
    client.connection.close()
    await world.runtime.close()


class Held(MemoryJournal):
    """A journal that stores when it is let."""

    def __init__(self):
        super().__init__()
        self.begun, self.free = threading.Event(), threading.Event()

    def append(self, entries):
        self.begun.set()
        self.free.wait()
        super().append(entries)


@pytest.mark.parametrize(("is_text", "head"), [(False, b"\x82"), (True, b"\x81")])
@stepped
async def test_what_one_commit_makes_durable_leaves_in_one_write_and_in_order(is_text, head):
    world = World(journal=Held())
    client, pieces = begun(world), []
    if is_text:
        client.connection.write_text()
    client.say(b'{"c":"subscribe","t":"orders","cid":"1"}')
    await turns()
    write, client.socket.write = client.socket.write, lambda data: pieces.append(data)
    for number in range(4):
        world.publish(b'{"id":%d}' % number)
        world.runtime.wake()
        while not world.journal.begun.is_set():
            await turns()
        await turns()
    client.say(b'{"c":"flush","cid":"2","a":"processed"}')
    await turns()
    assert not pieces, "nothing is durable"
    world.journal.free.set()
    await world.runtime.durable()
    client.socket.write = write
    assert len(pieces) == 2, "the first one was on its way alone"
    frames = pieces[1].split(head)[1:]
    wanted = [b'"id":1}', b'"id":2}', b'"id":3}', b'"cid":"2"']
    assert [one in frame for one, frame in zip(wanted, frames, strict=True)] == 4 * [True]
    client.connection.close()
    await world.runtime.close()


@stepped
async def test_a_turn_writes_one_frame_and_no_second_one_when_its_time_is_over(monkeypatch):
    for module in ("sow.history.snapshot", "sow.sessions.queries.query_results"):
        monkeypatch.setattr(f"{module}.ANSWER_CHUNK_ROWS", 1)
    world = World()
    client = begun(world)
    world.publish(*[b'{"id":%d}' % number for number in range(5)])
    await turns()
    client.say(b'{"c":"sow","t":"orders","cid":"1"}')
    world.runtime.engine.sequencer.release(world.runtime.engine.flush())
    counts = []
    while client.connection.go_on(0.0):
        counts.append(client.socket.written.count(b'"d":'))
    assert [*range(6)] == sorted({0, *counts})
    await turns()
    client.connection.close()
    await world.runtime.close()


@stepped
async def test_a_session_that_is_given_up_is_sent_why_and_has_a_moment_to_read_it():
    world = World()
    client = begun(world)
    world.executor.sessions.end(client.session, "because")
    world.runtime.wake()
    await turns()
    assert b"because" in client.socket.written
    assert client.ends >= 1
    await asyncio.sleep(GRACE_S / 2)
    assert not client.socket.aborted
    await asyncio.sleep(GRACE_S)
    assert client.socket.aborted
    await world.runtime.close()


@stepped
async def test_whoever_takes_the_session_up_takes_it_from_the_socket_it_was_on():
    world = World()
    client, other = begun(world), begun(world)
    client.say(b'{"c":"logon","cid":"1"}')
    client.say(b'{"c":"subscribe","t":"orders","cid":"2"}')
    await turns()
    other.say(b'{"c":"logon","session":"%b","cid":"1"}' % client.session.name.encode())
    await turns()
    assert (client.connection.owns, client.socket.aborted) == (False, True)
    assert other.connection.session is client.session
    assert b'"resumed":true' in other.socket.written
    client.connection.close()
    other.say(b'{"c":"heartbeat","cid":"2"}')
    await turns()
    assert b"heartbeat" in other.socket.written, "what has gone cuts off nobody"
    other.connection.close()
    await world.runtime.close()


@stepped
async def test_a_closed_connection_is_written_to_no_more():
    world = World()
    client = begun(world)
    client.socket.write(b"x" * (SOCKET_BUFFER_BYTES + 1))
    client.say(b'{"c":"heartbeat","cid":"1"}')
    await turns()
    before = client.socket.written
    client.connection.close()
    client.socket.take()
    await turns()
    assert client.socket.written == before
    await world.runtime.close()


PASSING = replace(ORDERS, name="passing", durability="transient")
STREAM = "/v1/topics/{topic}/stream"


class Place(Served):
    def __init__(self):
        world = World(ORDERS, PASSING)
        self.door = EventStreamHandler(world.runtime, world.executor)
        super().__init__(
            world, Route("GET", STREAM, "logon", self.door.handle, "", STREAM_PARAMETERS)
        )

    async def open(self, query="", topic="orders", **headers):
        return await self.begin("GET", f"/v1/topics/{topic}/stream{query}", headers=headers)

    async def publish(self, *bodies, topic="orders"):
        self.world.publish(*bodies, topic=topic)
        await self.world.runtime.durable()
        await turns()

    async def lose(self, socket):
        socket.protocol.connection_lost(None)
        await turns(10)

    @property
    def sessions(self):
        return list(self.world.executor.sessions)


def events(socket):
    """The kinds of the events that were written, in order."""
    return [
        line.removeprefix(b"event: ").removeprefix(b"event:").strip().decode()
        for line in socket.written.split(b"\n")
        if line.startswith(b"event:")
    ]


@stepped
async def test_a_bookmark_that_is_not_kept_is_refused_or_passed_over_as_is_said():
    async with Place() as place:
        await place.publish(b'{"id":1}')
        statuses = []
        for query in ("99", "99&bookmark_not_found=epoch", f"{'0' * 16}-1&bookmark_not_found=now"):
            socket = await place.open(f"?bookmark={query}")
            statuses.append(int(socket.written.split()[1]))
            assert events(socket) == (["p"] if statuses[-1] == 200 else [])
        assert statuses == [400, 200, 409]


@stepped
async def test_a_snapshot_comes_first_then_what_changes():
    async with Place() as place:
        await place.publish(b'{"id":1}')
        socket = await place.open("?oof=true")
        assert b"text/event-stream" in socket.written
        assert b"no-store" in socket.written
        assert events(socket) == ["group_begin", "sow", "group_end"]
        await place.publish(b'{"id":2}')
        assert events(socket)[3:] == ["p"]
        await place.lose(socket)
        assert place.sessions == [], "a stream that was left leaves nothing"


@stepped
async def test_options_that_are_ignored_are_named_in_a_header():
    async with Place() as place:
        socket = await place.open("?max_backlog=50&ack_conflation=1s&oof=true")
        assert b"SOW-Ignored: max_backlog, ack_conflation\r\n" in socket.written
        assert events(socket) == ["group_begin", "group_end"]
        await place.lose(socket)
        socket = await place.open()
        assert b"SOW-Ignored" not in socket.written
        await place.lose(socket)


@stepped
async def test_a_live_window_stays_in_order_and_begins_anew_for_who_comes_back():
    async with Place() as place:
        await place.publish(b'{"id":1}', b'{"id":2}')
        window = "?live=true&positions=true&top_n=1&order_by=/id%20DESC"
        for header in ({}, {"Last-Event-ID": "1"}):
            socket = await place.open(window, **header)
            assert events(socket) == ["group_begin", "sow", "group_end"]
            await place.lose(socket)
        socket = await place.open(window)
        await place.publish(b'{"id":3}')
        assert events(socket)[3:] == ["oof", "p", "turn_end"]
        assert b'"at":0' in socket.written
        await place.lose(socket)
        refused = await place.open("?live=true&order_by=/id")
        assert b"400" in refused.written.split(b"\r\n")[0]


@stepped
async def test_who_comes_back_gets_what_it_missed_where_the_log_has_it():
    async with Place() as place:
        for topic in ("orders", "passing"):
            await place.publish(b'{"id":1}', topic=topic)
            await place.publish(b'{"id":2}', topic=topic)
        header = {"Last-Event-ID": "1"}
        resumed = await place.open(**header)
        assert events(resumed) == ["p"]
        assert b'"id":2' in resumed.written
        fresh = await place.open("", "passing", **header)
        assert events(fresh)[0] == "group_begin", "a snapshot makes up for it"
        await place.lose(fresh)
        for query in ("?oof=true", "?delta=true", "?oof=true&as_of=2"):
            told = await place.open(query, "orders", **header)
            assert events(told) == ["p"]
            await place.lose(told)
        unknown = await place.open(**{"Last-Event-ID": "nonsense"})
        ahead = await place.open(**{"Last-Event-ID": f"1.{place.world.clock.now_us() + 1}"})
        for socket in (unknown, ahead):
            assert events(socket)[0] == "group_begin"
        for socket in (resumed, unknown, ahead):
            await place.lose(socket)


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/v1/topics/nope/stream", 404, "no topic"),
        ("/v1/topics/orders/stream?filter=/a%20%3E", 400, "position"),
        ("/v1/topics/orders/stream?bookmark=0&snapshot=true", 400, "not both"),
        ("/v1/topics/orders/stream?top=1", 400, "no parameter"),
        ("/v1/topics/orders/stream?replace=true", 400, "an option of commands over a WebSocket"),
    ],
)
@stepped
async def test_what_would_be_a_stream_of_one_error_is_a_problem(path, status, says):
    async with Place() as place:
        answer = await place.get(path)
        assert (answer.status, says in answer.json["detail"]) == (status, True)
        assert place.sessions == []


@stepped
async def test_a_stream_needs_chunks():
    async with Place() as place:
        watched = place.connections.supervise("192.0.2.7")
        socket = Socket(watched)
        watched.connection_made(socket)
        watched.data_received(b"GET /v1/topics/orders/stream HTTP/1.0\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(1)
        assert b"it needs HTTP/1.1" in socket.written
        watched.connection_lost(None)


@stepped
async def test_every_stream_ends_when_the_server_stops():
    async with Place() as place:
        sockets = [await place.open(), await place.open()]
        place.door.close()
        await asyncio.sleep(1)
        for socket in sockets:
            assert socket.written.endswith(b"0\r\n\r\n"), "ended, and not broken off"
            await place.lose(socket)
        assert place.sessions == []


def test_text_has_another_head_where_there_is_a_frame_at_all():
    assert [as_text(frame) for frame in (b"", b"\x82\x02{}")] == [b"", b"\x81\x02{}"]
