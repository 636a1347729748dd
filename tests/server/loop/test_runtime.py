"""The runtime: nothing leaves before it is durable, and what falls due is done."""

import asyncio
import logging
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sow.core.definitions import ConflatedTopic
from sow.errors import ClientError, DiskFull
from sow.protocol.replies import LINES
from sow.protocol.wire import read_frame
from sow.server.loop.runtime import (
    REFRESHED_ROWS,
    TIMER_S_MAX,
    ClockJumps,
    DeadlineTimer,
    asyncio_loop,
    loop_factory,
    loop_name,
)
from sow.server.loop.scheduler import SLICE_S
from tests.executing import execute_all
from tests.server.stand_ins import ORDERS, SECOND, World, stepped, turns
from tests.virtual_clock import VirtualClock


def session_of(world, frames):
    """A session whose frames are kept as they leave."""
    session = world.executor.sessions.open(LINES, world.clock.now_us())

    def write(now_us):
        while frame := session.pull(world.engine.sequencer.released, now_us):
            frames.append(frame)

    session.attach(write)
    return session


def say(world, session, line):
    execute_all(world.executor, session, list(read_frame(line)), world.clock.now_us())
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
async def test_a_server_that_is_far_behind_gathers_commits_and_tidies_indexes_afterwards(
    monkeypatch,
):
    world, tidied, appends = World(), [], []
    monkeypatch.setattr(world.engine.catalog, "refresh_indexes", tidied.append)
    append = world.journal.append
    monkeypatch.setattr(
        world.journal, "append", lambda some: appends.append(len(some)) or append(some)
    )
    world.runtime.note_far_behind(True)
    for at in range(3):
        world.engine.publish("orders", [b'{"id":%d}' % at], world.clock.now_us())
        world.runtime.wake()
        await turns()
    assert (world.journal.last_seq, appends) == (0, [])
    await asyncio.sleep(1)
    assert (world.journal.last_seq, appends, tidied) == (3, [3], [])
    world.runtime.note_far_behind(False)
    await asyncio.sleep(1)
    assert tidied
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


class UvLoop(asyncio.SelectorEventLoop):
    """In the place of uvloop's, whose clock counts whole milliseconds."""

    __module__ = "uvloop"

    def time(self):
        return round(super().time(), 3)


def there(name):
    """As if uvloop was installed."""
    assert name == "uvloop"
    return SimpleNamespace(Loop=UvLoop)


def missing(name):
    """As if it was not."""
    raise ModuleNotFoundError(f"No module named {name!r}")


@pytest.mark.parametrize("name", [None, "uvloop"])
def test_uvloop_is_used_where_it_is_installed(name):
    loop = loop_factory(name, there)()
    assert isinstance(loop, UvLoop)
    assert loop_name(loop) == "uvloop"
    assert loop.time is time.monotonic, "a slice is shorter than two of its milliseconds"
    loop.close()


def test_without_it_the_loop_is_that_of_python():
    assert loop_factory(None, missing) is asyncio_loop


def test_asyncio_may_be_requested_for_where_uvloop_is_installed():
    assert loop_factory("asyncio", there) is asyncio_loop


def test_who_asks_for_uvloop_is_sent_how_to_have_it():
    with pytest.raises(ClientError, match=r"not installed.*sow\[uvloop\]"):
        loop_factory("uvloop", missing)


def test_a_loop_is_known_by_the_library_that_made_it():
    loop = loop_factory("asyncio")()
    assert loop_name(loop) == "asyncio"
    assert loop.time is time.monotonic, "read without a call of Python's"
    loop.close()


def rung_at(clock):
    """An alarm, and the loop's times at which it has rung."""
    times, loop = [], asyncio.get_running_loop()
    return DeadlineTimer(clock, lambda: times.append(round(loop.time(), 3))), times


@stepped
async def test_it_rings_once_at_the_time_it_was_last_set_to():
    clock = VirtualClock(100 * SECOND)
    alarm, times = rung_at(clock)
    alarm.set(103 * SECOND)
    alarm.set(102 * SECOND)
    alarm.set(102 * SECOND)
    await asyncio.sleep(5)
    assert times == [2.0]


@stepped
async def test_what_is_over_rings_at_once_and_what_is_far_away_is_looked_after():
    clock = VirtualClock(100 * SECOND)
    alarm, times = rung_at(clock)
    alarm.set(99 * SECOND)
    await asyncio.sleep(1)
    alarm.set(100_000 * SECOND)
    await asyncio.sleep(20)
    assert times == [0.0, 1.0 + TIMER_S_MAX]


@stepped
async def test_it_can_be_set_to_never_and_to_the_same_moment_again():
    alarm, times = rung_at(VirtualClock(0))
    alarm.set(SECOND)
    alarm.set(None)
    await asyncio.sleep(2)
    assert times == []
    alarm.set(SECOND)
    await asyncio.sleep(2)
    alarm.set(SECOND)
    await asyncio.sleep(2)
    assert times == [3.0, 5.0]
    alarm.set(9 * SECOND)
    alarm.cancel()
    await asyncio.sleep(20)
    assert times == [3.0, 5.0]


class Clock:
    """A clock of which one can say what was done to it."""

    def __init__(self):
        self.ahead, self.stepped_us = 0, 0

    def ahead_us(self):
        return self.ahead


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.WARNING, "sow")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_clock_that_was_set_back_is_sent_once_until_both_agree_again(logged):
    clock = Clock()
    watch = ClockJumps(clock)
    for clock.ahead in (0, 900_000, 7_000_000, 6_500_000):
        watch.look()
    assert len(logged()) == 1
    assert "ahead of the machine's by 7 s" in logged()[0]
    assert watch.ahead_s() == 6.5
    for clock.ahead in (500_000, 3_000_000):
        watch.look()
    assert len(logged()) == 2


def test_each_step_forward_is_sent_by_its_own_length(logged):
    clock = Clock()
    watch = ClockJumps(clock)
    for clock.stepped_us in (0, 60_000_000, 60_000_000, 65_000_000):
        watch.look()
    assert [text.split("forward by ")[1].split(",")[0] for text in logged()] == ["60 s", "5 s"]


def test_what_a_time_server_corrects_is_nobodys_concern():
    clock = Clock()
    clock.ahead = 1_000_000
    assert ClockJumps(clock).ahead_s() == 0.0
