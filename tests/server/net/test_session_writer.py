"""A session on a socket: frames leave as fast as the socket takes them, and stay queued if not."""

import asyncio
import threading

import pytest

from sow.protocol.replies import LINES
from sow.protocol.wire import read_frame
from sow.server.net.connection_supervisor import TransportWritable
from sow.server.net.session_writer import GRACE_S, SOCKET_BUFFER_BYTES, SessionWriter
from tests.executing import execute_all
from tests.server.stand_ins import Socket, World, stepped, turns
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
