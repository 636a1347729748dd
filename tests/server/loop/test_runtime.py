"""The runtime: nothing leaves before it is durable, and what falls due is done."""

import asyncio
from dataclasses import replace

import pytest

from sow.core.definitions import ConflatedTopic
from sow.errors import DiskFull
from sow.protocol.replies import LINES
from sow.protocol.wire import read_frame
from sow.server.loop.runtime import REFRESHED_ROWS
from sow.server.loop.scheduler import SLICE_S
from tests.server.stand_ins import ORDERS, SECOND, World, stepped, turns


def session_of(world, frames):
    """A session whose frames are kept as they leave."""
    session = world.executor.sessions.open(LINES, world.clock.now_us())

    def write(now_us):
        while frame := session.pull(world.engine.sequencer.released, now_us):
            frames.append(frame)

    session.attach(write)
    return session


def say(world, session, line):
    world.executor.execute_all(session, list(read_frame(line)), world.clock.now_us())
    world.runtime.wake()


@stepped
async def test_an_ack_leaves_once_its_message_is_on_disk():
    world, frames = World(), []
    session = session_of(world, frames)
    say(world, session, b'{"c":"publish","t":"orders","d":{"id":1},"cid":"1","a":"persisted"}')
    assert (frames, world.journal.last_seq) == ([], 0)
    await world.runtime.durable()
    assert world.journal.last_seq == 1
    assert b'"persisted"' in b"".join(frames)
    await world.runtime.close()


@stepped
async def test_what_stores_nothing_leaves_without_the_disk():
    world, frames = World(), []
    say(world, session_of(world, frames), b'{"c":"heartbeat","cid":"1"}')
    await asyncio.sleep(0)
    assert b"heartbeat" in b"".join(frames)
    await world.runtime.close()


@stepped
async def test_a_session_whose_socket_has_gone_is_written_to_no_more():
    world, frames = World(), []
    session = session_of(world, frames)
    session.detach()
    say(world, session, b'{"c":"heartbeat","cid":"1"}')
    await asyncio.sleep(1)
    assert frames == []
    await world.runtime.close()


@stepped
async def test_who_waits_is_sent_what_the_disk_said_and_reading_goes_on():
    world, frames = World(), []
    session = session_of(world, frames)
    append, full = world.journal.append, DiskFull("the disk is full")

    def refuse(_entries):
        world.journal.append = append
        raise full

    world.journal.append = refuse
    say(world, session, b'{"c":"publish","t":"orders","d":{"id":1},"cid":"1","a":"persisted"}')
    with pytest.raises(DiskFull):
        await world.runtime.durable()
    assert world.runtime.refusal == world.engine.disk.failure.reason == "disk full"
    with pytest.raises(DiskFull):
        await world.runtime.durable()
    assert session.ended == "disk full"
    assert b"persisted" not in b"".join(frames)
    while world.runtime.failure is not None:
        await asyncio.sleep(0.1)
    assert (world.engine.disk.failure, world.runtime.refusal, world.journal.last_seq) == (
        None,
        None,
        1,
    )
    await world.runtime.close()


@stepped
async def test_what_falls_due_is_done_at_its_time_without_anybody_asking():
    world = World(replace(ORDERS, expires=True))
    world.engine.publish("orders", [b'{"id":1}'], world.clock.now_us(), expires_s=5)
    world.runtime.wake()
    await asyncio.sleep(1)
    assert len(world.engine.topic("orders").records.table) == 1
    world.clock.advance(5 * SECOND)
    await asyncio.sleep(10)
    assert len(world.engine.topic("orders").records.table) == 0
    await world.runtime.close()


@stepped
async def test_what_can_wait_is_done_piece_by_piece_while_it_says_there_is_more():
    world, pieces = World(), [True, True, False]
    world.runtime.idle_work["pieces"] = lambda now_us: pieces.pop(0) if now_us else False
    world.runtime.idle_work["nothing"] = lambda _now_us: False
    world.runtime.wake()
    await asyncio.sleep(5)
    assert pieces == []
    assert world.runtime.watch.longest_s.keys() >= {"tidying indexes", "pieces", "nothing"}
    await world.runtime.close()


@stepped
async def test_indexes_are_tidied_for_a_slice_at_a_time_however_long_a_note_takes(monkeypatch):
    world, rounds, now_s = World(), [0], [0.0]
    monkeypatch.setattr(world.runtime.loop, "time", lambda: now_s[0])

    def refresh(notes):
        assert notes == REFRESHED_ROWS
        now_s[0] += SLICE_S * 0.6
        rounds[0] += 1
        return rounds[0] < 10

    monkeypatch.setattr(world.engine.catalog, "refresh_indexes", refresh)
    seen = []
    world.runtime.idle_work["seen"] = lambda _now_us: bool(seen.append(rounds[0]))
    world.runtime.wake()
    while rounds[0] < 10:
        now_s[0] += 1
        await asyncio.sleep(0)
    assert seen == [2, 4, 6, 8, 10]
    await world.runtime.close()


@stepped
async def test_what_must_not_wait_is_done_after_each_turn():
    world, seen = World(), []
    world.runtime.flush_work["seen"] = seen.append
    for _ in range(3):
        world.runtime.wake()
        await turns()
    assert seen == [world.clock.now_us()] * 3
    assert "seen" in world.runtime.watch.longest_s
    await world.runtime.close()


@stepped
async def test_it_knows_for_how_long_what_is_due_has_not_been_done():
    world = World(ORDERS, ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND))
    assert world.runtime.late_s() == 0
    world.publish(b'{"id":1}')
    world.publish(b'{"id":1,"px":2}')
    assert world.runtime.late_s() == 0
    due_us = world.engine.due_us()
    world.clock.advance(due_us + 3 * SECOND - world.clock.now_us())
    assert world.runtime.late_s() == 3
    await world.runtime.close()
