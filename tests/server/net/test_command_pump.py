"""What a client sends is carried out in order, a little at a time, and not beyond what it reads."""

import asyncio
import json
import re
import tracemalloc
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import Limits
from sow.core.quota import Quota
from sow.engine import bulk_delete
from sow.protocol import wire
from sow.protocol.replies import LINES
from sow.protocol.wire import FRAME_PIECE_BYTES
from sow.server.http.body_reading import ReadBackpressure
from sow.server.loop import scheduler as turns_of_work
from sow.server.loop.background_work import LONG_FILTER_CHARS, BackgroundConflation
from sow.server.net import command_pump
from sow.server.net.command_pump import (
    PATIENCE_S,
    QUEUE_BYTES_MAX,
    READ_BYTES_MIN,
    TAKEN_BYTES_MAX,
    CommandReader,
    ReceiveQueue,
)
from sow.server.net.session_writer import SessionWriter
from sow.server.net.ws_memory_accounting import MessageMemories, MessageMemory
from sow.streaming.sessions import SLOW, Session
from tests.laws.guarding import reading, rights
from tests.server.net.test_session_writer import Below
from tests.server.stand_ins import World, stepped, turns


def frame_of(cids, pad=""):
    lines = [json.dumps({"c": "heartbeat", "cid": cid, "client": pad}) for cid in cids]
    return "\n".join(lines).encode()


def takes(inbox):
    while taken := inbox.take():
        yield [command.cid for command in taken]


@contextmanager
def short_pieces():
    """A few lines are a long frame, so that examples need not be long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "FRAME_PIECE_BYTES", 1000)
        patch.setattr(command_pump, "FRAME_PIECE_BYTES", 1000)
        patch.setattr(command_pump, "TAKEN_BYTES_MAX", 2000)
        yield


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 100)), min_size=1, max_size=6))
def test_every_command_leaves_once_and_in_order(sizes):
    inbox, wanted = ReceiveQueue(), []
    for count, pad in sizes:
        cids = [str(len(wanted) + at) for at in range(count)]
        wanted += cids
        inbox.add(frame_of(cids, "x" * pad))
    with short_pieces():
        assert [cid for cids in takes(inbox) for cid in cids] == wanted
    assert inbox.bytes == 0


def test_the_bodies_of_a_long_frame_are_cut_a_piece_at_a_time():
    inbox, bodies = ReceiveQueue(), [b'{"id":%d}' % number for number in range(1_000)]
    head = b'{"c":"publish","t":"a","n":1000}'
    inbox.add(b"\n".join([head, *bodies, b'{"c":"heartbeat"}']))
    with short_pieces():
        taken = [inbox.take() for _ in range(4)]
        assert taken == [[]] * 4
        assert inbox.bytes
        while not (commands := inbox.take()):
            assert inbox.bytes
        assert list(commands[0].bodies) == bodies
        assert [command.name for command in [*commands[1:], *inbox.take()]] == ["heartbeat"]
    assert inbox.bytes == 0


def test_frames_of_one_command_are_taken_together():
    inbox = ReceiveQueue()
    for cid in range(500):
        inbox.add(frame_of([str(cid)]))
    assert len(inbox.take()) == 500
    assert inbox.take() == []


def test_one_long_line_is_read_at_once():
    inbox, body = ReceiveQueue(), b'{"id":"%b"}' % (b"x" * FRAME_PIECE_BYTES)
    inbox.add(b'{"c":"publish","t":"orders","d":%b}' % body)
    (taken,) = inbox.take()
    assert (taken.bodies, inbox.bytes) == ([body], 0)


def test_a_long_frame_is_read_a_little_at_a_time():
    inbox, frame = ReceiveQueue(), b'{"c":"heartbeat"}\n' * 300_000
    inbox.add(frame)
    tracemalloc.start()
    taken = inbox.take()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0 < len(taken) * len(frame) / 300_000 <= TAKEN_BYTES_MAX + FRAME_PIECE_BYTES
    assert inbox.bytes == len(frame)
    assert peak < 16 * 1024**2


def test_a_frame_after_a_long_one_waits_for_its_turn():
    inbox = ReceiveQueue()
    inbox.add(b'{"c":"heartbeat"}\n' * 20_000)
    inbox.add(frame_of(["last"]))
    cids = [cid for cids in takes(inbox) for cid in cids]
    assert (len(cids), cids[-1], cids.index("last")) == (20_001, "last", 20_000)


def test_however_short_commands_are_so_many_are_taken_at_once():
    """A read of a socket may bring a hundred thousand of two characters."""
    most = TAKEN_BYTES_MAX // READ_BYTES_MIN + 1
    short, long = ReceiveQueue(), ReceiveQueue()
    for _ in range(3 * most):
        short.add(b'{"c":"flush"}')
    long.add(b'{"c":"flush"}\n' * 10 * most)
    for inbox, count in ((short, 3 * most), (long, 10 * most)):
        sizes = [len(taken) for taken in iter(inbox.take, [])]
        assert sum(sizes) == count
        assert max(sizes) <= most
        assert inbox.bytes == 0


def test_what_is_cleared_is_gone():
    inbox = ReceiveQueue()
    inbox.add(b'{"c":"heartbeat"}\n' * 20_000)
    inbox.take()
    inbox.clear()
    inbox.add(frame_of(["next"]))
    assert list(takes(inbox)) == [["next"]]


class Client:
    """A client whose frames are handed to `incoming`."""

    def __init__(self):
        self.world, self.below = World(), Below()
        executor, runtime = self.world.executor, self.world.runtime
        session = executor.sessions.open(LINES, self.world.clock.now_us())
        self.connection = SessionWriter(runtime, executor, session, self.below, lambda: None)
        watches = MessageMemories(ReadBackpressure(Quota(lambda: 1 << 20)), Limits)
        self.watch = MessageMemory(
            watches,
            self.below.transport,
            "client",
            lambda: True,
            lambda _reason: None,
            lambda: None,
        )
        self.incoming = CommandReader(runtime, executor, self.connection, self.watch)
        BackgroundConflation(executor.sessions, runtime.turns, runtime.now_us)
        self.connection.begin()

    @property
    def session(self):
        return self.connection.session

    @property
    def records(self):
        return len(self.world.engine.topic("orders").records.table)

    async def close(self):
        self.incoming.close()
        self.connection.close()
        await self.world.runtime.close()


def publishes(first, count, more=b""):
    return b"\n".join(
        b'{"c":"publish","t":"orders","d":{"id":%d%b}}' % (at, more)
        for at in range(first, first + count)
    )


@stepped
async def test_frames_are_carried_out_in_order_and_done_says_when():
    client = Client()
    assert not client.incoming.add(publishes(0, 10)), "there is room for more"
    client.incoming.add(b'{"c":"heartbeat","cid":"1"}')
    assert client.records == 0, "not before the loop has its turn"
    await client.incoming.done()
    assert client.records == 10
    await client.world.runtime.durable()
    assert b"heartbeat" in client.below.transport.written
    await client.close()


def acks_to(client):
    """The acks that were written, by what they answer."""
    lines = re.findall(rb'\{"c":"ack"[^}]*\}', client.below.transport.written)
    return {ack["cid"]: ack for ack in map(json.loads, lines)}


def sow(cid, **more):
    return json.dumps({"c": "sow", "t": "orders", "cid": cid, **more}).encode()


@stepped
async def test_a_query_waits_for_its_bookmark_and_what_follows_it_for_the_query():
    client = Client()
    frame = [publishes(0, 1), sow("early", min_bookmark="2"), sow("late", min_bookmark="9", wait=1)]
    client.incoming.add(b"\n".join([*frame, publishes(1, 1)]))
    await turns(20)
    assert client.records == 1, "what comes before it does not wait"
    client.world.publish(b'{"id":7}')
    await client.world.runtime.durable()
    await client.incoming.done()
    assert client.records == 3
    await client.world.runtime.durable()
    acks = acks_to(client)
    assert acks["early"]["status"] == "success"
    assert (acks["late"]["status"], acks["late"]["reason"]) == ("failure", "not yet")
    await client.close()


@stepped
async def test_a_bookmark_that_means_nothing_here_is_refused():
    client = Client()
    others = {"text": "invalid bookmark", "0123456789abcdef-1": "another log"}
    for text in others:
        client.incoming.add(sow(text, min_bookmark=text))
    client.incoming.add(b'{"c":"subscribe","t":"orders","cid":"s","min_bookmark":"1"}')
    await client.incoming.done()
    await client.world.runtime.durable()
    assert {cid: ack["reason"] for cid, ack in acks_to(client).items()} == {
        **others,
        "s": "bad request",
    }
    await client.close()


@stepped
async def test_a_turn_ends_when_its_time_is_over_and_others_get_theirs(monkeypatch):
    monkeypatch.setattr(turns_of_work, "SLICE_S", 0.0)
    client = Client()
    client.incoming.add(b"\n".join(b'{"c":"heartbeat","cid":"%d"}' % at for at in range(5)))
    between = 0
    work = asyncio.create_task(client.incoming.done())
    while not work.done():
        await asyncio.sleep(0)
        between += 1
    assert between > 5, "each command was a turn of its own"
    await client.close()


@stepped
async def test_no_more_is_taken_in_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(turns_of_work, "SLICE_S", 0.0)
    client = Client()
    more = b',"text":"%b"' % (b"x" * 1000)
    count = 2 * QUEUE_BYTES_MAX // 1000
    assert client.incoming.add(publishes(0, count, more)), "there is no room for more"
    waits = asyncio.create_task(client.incoming.room())
    await asyncio.sleep(0)
    assert not waits.done()
    await waits
    await client.incoming.done()
    assert client.records == count
    await client.close()


@stepped
async def test_who_does_not_read_its_answers_has_nothing_more_carried_out():
    client = Client()
    client.below.transport.set_write_buffer_limits(1)
    client.below.transport.write(b"xx")
    bytes_max = client.session.settings.queue_bytes_max
    text = b"x" * (bytes_max // 4)
    client.incoming.add(b'{"c":"subscribe","t":"orders","cid":"1"}')
    for at in range(8):
        client.incoming.add(b'{"c":"publish","t":"orders","d":{"id":%d,"x":"%b"}}' % (at, text))
    await turns(20)
    await asyncio.sleep(0.5)
    before = client.records
    assert client.session.outbox.full or client.session.ended
    client.incoming.add(publishes(100, 1))
    await asyncio.sleep(0.1)
    assert client.records == before
    await client.close()


def with_full_outbox():
    """A client whose socket takes nothing, with more in its outbox than there is room for, and a
    publish that has come after that."""
    client = Client()
    client.below.transport.set_write_buffer_limits(1)
    client.below.transport.write(b"xx")
    settings = client.session.settings
    client.session.outbox.push(b"x" * (settings.queue_bytes_max + 1), 1, 0, 0)
    client.world.engine.output.touch(client.session)
    client.world.runtime.wake()
    client.incoming.add(publishes(0, 1))
    return client


@stepped
async def test_room_in_a_full_outbox_continues_its_commands_at_once():
    client = with_full_outbox()
    await turns(20)
    assert client.records == 0
    began_s = asyncio.get_running_loop().time()
    client.below.transport.take()
    await client.incoming.done()
    assert client.records == 1
    assert asyncio.get_running_loop().time() == began_s, "an event, no timer"
    await client.close()


@stepped
async def test_a_full_outbox_is_judged_again_when_patience_is_over_and_not_before(monkeypatch):
    client, loop, judged = with_full_outbox(), asyncio.get_running_loop(), []
    judge, began_us = Session.apply_back_pressure, client.world.clock.now_us()

    def noted(session, now_us):
        judged.append(now_us - began_us)
        return judge(session, now_us)

    monkeypatch.setattr(client.world.runtime, "now_us", lambda: began_us + round(loop.time() * 1e6))
    monkeypatch.setattr(Session, "apply_back_pressure", noted)
    await client.incoming.done()
    assert client.session.ended == SLOW
    assert client.records == 0
    assert {*judged} == {0, round(PATIENCE_S * 1e6)}
    await client.close()


@stepped
async def test_one_who_waits_for_room_ends_with_its_session():
    client = with_full_outbox()
    await turns(20)
    client.world.executor.sessions.end(client.session, "an operator")
    client.world.runtime.wake()
    await turns(20)
    await client.incoming.done()
    assert client.records == 0
    await client.close()


@stepped
async def test_one_who_waits_for_room_ends_when_another_socket_takes_its_session():
    client = with_full_outbox()
    await turns(20)
    client.session.resume(None, "elsewhere")
    await client.incoming.done()
    assert client.records == 0
    await client.close()


@stepped
async def test_a_long_filter_is_compiled_beside_the_loop_and_then_used():
    client = Client()
    text = " OR ".join(f"/identity = {at}" for at in range(300))
    assert len(text) > LONG_FILTER_CHARS
    client.incoming.add(b'{"c":"subscribe","t":"orders","filter":"%b","cid":"1"}' % text.encode())
    client.incoming.add(b'{"c":"heartbeat","cid":"2"}')
    await turns()
    assert not client.world.executor.subscriptions.of(client.session)
    await client.incoming.done()
    assert client.world.executor.subscriptions.of(client.session)
    assert client.world.engine.filters.has(text)
    await client.close()


@stepped
async def test_what_very_many_allows_let_a_client_see_is_compiled_beside_the_loop():
    client = Client()
    allows = [reading(filter=f"/book = 'b{at}'") for at in range(400)]
    client.session.entitle(rights(*allows))
    guard = client.session.rights.guard("orders")
    client.incoming.add(b'{"c":"subscribe","t":"orders","filter":"/px > 1","cid":"1"}')
    await turns()
    assert not client.world.executor.subscriptions.of(client.session), "it waits for a thread"
    await client.incoming.done()
    assert client.world.executor.subscriptions.of(client.session)
    assert guard.is_ready(client.world.engine.filters.get("/px > 1"))
    await client.close()


@stepped
async def test_what_is_left_of_a_client_that_has_gone_is_forgotten():
    client = Client()
    client.incoming.add(publishes(0, 3))
    client.incoming.close()
    await turns()
    assert client.records == 0
    await client.close()


@stepped
async def test_what_a_client_that_has_gone_has_published_is_stored_and_nothing_read_for_it():
    client, follow = Client(), b'{"c":"sow_and_subscribe","t":"orders","filter":"/id > %d"}'
    client.session.disconnect()
    client.incoming.add(b"\n".join([*(follow % at for at in range(50)), publishes(0, 3)]))
    await client.incoming.done()
    assert client.records == 3
    assert not client.world.executor.subscriptions.of(client.session)
    await client.close()


@stepped
async def test_one_that_goes_while_a_filter_is_compiled_is_not_continued(monkeypatch):
    client, continued = Client(), []
    text = " OR ".join(f"/identity = {at}" for at in range(300))
    client.incoming.add(b'{"c":"subscribe","t":"orders","filter":"%b","cid":"1"}' % text.encode())
    await turns()
    assert not client.world.executor.subscriptions.of(client.session), "it waits for a thread"
    client.incoming.close()
    monkeypatch.setattr(client.incoming, "go_on", continued.append)
    await turns(20)
    assert continued == []
    await asyncio.wait_for(client.incoming.done(), 1)
    await client.close()


@stepped
async def test_a_long_delete_lets_others_by_and_its_own_client_wait(monkeypatch):
    monkeypatch.setattr(turns_of_work, "SLICE_S", 0.0)
    monkeypatch.setattr(bulk_delete, "RECORDS_AT_ONCE", 10)
    client = Client()
    client.world.publish(*(b'{"id":%d}' % at for at in range(100)))
    client.incoming.add(b'{"c":"sow_delete","t":"orders","filter":"1=1","cid":"d"}')
    client.incoming.add(b'{"c":"publish","t":"orders","d":{"id":1},"cid":"p"}')
    await turns(4)
    assert 0 < client.records < 100
    client.world.publish(b'{"id":99,"new":true}', b'{"id":200}')
    await client.incoming.done()
    assert client.records == 3, "what others published meanwhile, and what followed the delete"
    await client.world.runtime.durable()
    written = client.below.transport.written
    assert b'"deleted":100' in written
    assert written.index(b'"cid":"d"') < written.index(b'"cid":"p"')
    await client.close()


@stepped
async def test_a_delete_whose_client_goes_is_given_up(monkeypatch):
    monkeypatch.setattr(turns_of_work, "SLICE_S", 0.0)
    monkeypatch.setattr(bulk_delete, "RECORDS_AT_ONCE", 10)
    client = Client()
    client.world.publish(*(b'{"id":%d}' % at for at in range(100)))
    client.incoming.add(b'{"c":"sow_delete","t":"orders","filter":"1=1"}')
    await turns(4)
    left = client.records
    client.incoming.close()
    await turns(20)
    assert 0 < client.records == left
    client.world.engine.check()
    client.world.publish(b'{"id":99,"new":true}')
    assert client.records == left, "what stays is as it was"
    await client.close()


@stepped
async def test_a_large_publish_that_has_begun_is_finished_when_its_client_goes(
    monkeypatch,
):
    monkeypatch.setattr(turns_of_work, "SLICE_S", 0.0)
    client = Client()
    bodies = b"\n".join(b'{"id":%d}' % at for at in range(2000))
    client.incoming.add(b'{"c":"publish","t":"orders","n":2000}\n' + bodies)
    client.incoming.add(publishes(5000, 1))
    while not client.records:
        await turns(1)
    assert client.records < 2000, "others have their turn before all is there"
    client.incoming.close()
    await client.close()
    assert client.records == 2000
    assert client.world.journal.last_seq == 2000


@stepped
async def test_one_that_goes_before_its_publish_has_begun_has_published_nothing(monkeypatch):
    monkeypatch.setattr(turns_of_work, "SLICE_S", 0.0)
    client = Client()
    bodies = b"\n".join(b'{"id":%d}' % at for at in range(2000))
    client.incoming.add(b'{"c":"publish","t":"orders","n":2000}\n' + bodies)
    await turns(2)
    client.incoming.close()
    await client.close()
    assert client.records == 0
