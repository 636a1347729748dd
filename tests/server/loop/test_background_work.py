"""Background work: timers, conflation of slow clients, cache sweeps, each in bounded steps.

Requests that wait for a bookmark: in order, for so long at most, and not beyond the end.
"""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from sow.core.containers import Cache
from sow.core.definitions import ConflatedTopic, Limits
from sow.core.security_definitions import Allow, Authentication, Role, Security, User
from sow.engine import timers
from sow.engine.queries import FilterCache
from sow.errors import BadFilter, Busy, NotReached
from sow.protocol.commands import Command
from sow.protocol.replies import LINES
from sow.security import row_level_security
from sow.security.authorization import EVERYTHING, RoleSet
from sow.server.loop import scheduler as turns_of_work
from sow.server.loop.background_work import (
    LONG_FILTER_CHARS,
    WRITTEN_AT_ONCE,
    WRITTEN_BETWEEN_LOOKS,
    BackgroundConflation,
    CacheSweeper,
    FanoutWriter,
    compile_beside,
    guarded_by,
    long_among,
    long_guarded,
)
from sow.server.loop.scheduler import FairScheduler, LoopLatency
from tests.server.stand_ins import ORDERS, SECOND, World, stepped, turns

COPY = ConflatedTopic("copy", "json", "orders", interval_us=SECOND)


async def due(world):
    """Time passes until what waits is due, and the alarm has rung."""
    world.runtime.wake()
    await turns()
    world.clock.advance(5 * SECOND)
    await asyncio.sleep(5)


def left(world):
    return len(world.engine.topic("orders").records.table)


@stepped
async def test_many_records_that_expire_at_one_moment_let_others_by(monkeypatch):
    monkeypatch.setattr(turns_of_work, "SLICE_S", 0.0)
    monkeypatch.setattr(timers, "EXPIRED_AT_ONCE", 10)
    world = World(replace(ORDERS, expires=True))
    bodies = [b'{"id":%d}' % at for at in range(1000)]
    world.engine.publish("orders", bodies, world.clock.now_us(), expires_s=5)
    await due(world)
    seen = []
    while left(world):
        seen.append(left(world))
        await asyncio.sleep(0)
    assert len(seen) > 50, "some at a time"
    assert world.runtime.watch.longest_s.keys() >= {"what falls due"}
    await world.runtime.close()


@stepped
async def test_each_of_many_topics_has_its_turn(monkeypatch):
    monkeypatch.setattr(turns_of_work, "SLICE_S", 0.0)
    monkeypatch.setattr(timers, "EXPIRED_AT_ONCE", 10)
    topics = [replace(ORDERS, name=f"t{at}", expires=True) for at in range(3)]
    world = World(*topics)
    for topic in topics:
        bodies = [b'{"id":%d}' % at for at in range(100)]
        world.engine.publish(topic.name, bodies, world.clock.now_us(), expires_s=5)
    await due(world)
    while counts := [len(world.engine.topic(topic.name).records.table) for topic in topics]:
        assert max(counts) - min(counts) <= 10, "none goes before the others have had a part"
        if not any(counts):
            break
        await asyncio.sleep(0)
    await world.runtime.close()


class Crowd:
    """Sessions that follow a topic and read nothing."""

    def __init__(self, count):
        self.world = World()
        executor, runtime, now_us = self.world.executor, self.world.runtime, self.world.clock.now_us
        BackgroundConflation(executor.sessions, runtime.turns, now_us)
        self.sessions = [executor.sessions.open(LINES, now_us()) for _ in range(count)]
        for session in self.sessions:
            executor.execute(session, Command("subscribe", topic="orders"), now_us())
            session.attach(partial(executor.sessions.apply_back_pressure, session))

    def publish(self):
        self.world.publish(*(b'{"id":%d,"v":%d}' % (at % 7, at) for at in range(100)))
        self.world.runtime.wake()

    def waiting(self):
        return [session.outbox.message_count for session in self.sessions]


@stepped
async def test_long_queues_are_folded_in_turns_one_beside_the_other(monkeypatch):
    monkeypatch.setattr(turns_of_work, "SLICE_S", 0.0)
    crowd = Crowd(3)
    while not any(session.folds for session in crowd.sessions):
        crowd.publish()
        await turns(2)
    seen = []
    while any(session.folds for session in crowd.sessions):
        seen.append(crowd.waiting())
        await asyncio.sleep(0)
    assert len(seen) > 50, "some at a time"
    assert all(max(counts) - min(counts) < 500 for counts in seen), "none is far ahead"
    assert max(crowd.waiting()) < 100
    assert "folding queues" in crowd.world.runtime.watch.longest_s
    await crowd.world.runtime.close()


@stepped
async def test_one_that_has_gone_is_folded_no_more():
    crowd = Crowd(1)
    (session,) = crowd.sessions
    while not session.folds:
        crowd.publish()
        await turns(1)
    crowd.world.executor.sessions.close(session)
    await turns(5)
    assert not crowd.world.executor.sessions.fold_some(0)
    await crowd.world.runtime.close()


@stepped
async def test_what_is_not_requested_for_is_gone_after_a_minute():
    few, watch = Cache(10), LoopLatency()
    swept = CacheSweeper(watch)
    for name in "abc":
        few.keep(name, name.upper(), 3)
        await asyncio.sleep(20)
        assert few.get("a") == "A"
    await asyncio.sleep(60)
    assert len(few) == 0
    swept.close()
    few.keep("a", "A", 3)
    await asyncio.sleep(60)
    assert len(few) == 1
    assert list(watch.longest_s) == ["letting go of filters"]


class Written:
    """Who was written to, with a loop that gives one step in each turn."""

    def __init__(self, monkeypatch, failing=()):
        monkeypatch.setattr("sow.server.loop.scheduler.SLICE_S", 0.0)
        self.names = []
        self.writing = FanoutWriter(FairScheduler(LoopLatency(), lambda: None), lambda: 7)
        self._failing = failing
        self._sessions = {}

    def begin(self, names, begun_s=0.0):
        sessions = [self._sessions.setdefault(name, Reader(self, name)) for name in names]
        self.writing.begin(sessions, begun_s)

    def write(self, name, now_us):
        assert now_us == 7
        if name in self._failing:
            raise RuntimeError(name)
        self.names.append(name)


class Reader:
    """A session that a crowd of them is written to."""

    def __init__(self, written, name):
        self.write = partial(written.write, name)


@stepped
async def test_a_hundred_are_written_to_at_once_and_the_others_in_turns(monkeypatch):
    written = Written(monkeypatch)
    everybody = [f"s{number}" for number in range(WRITTEN_AT_ONCE + 50)]
    written.begin(everybody)
    assert written.names == everybody[:WRITTEN_AT_ONCE]
    lengths = []
    while len(written.names) < len(everybody):
        await turns(1)
        lengths.append(len(written.names))
    assert len(lengths) == 50 / WRITTEN_BETWEEN_LOOKS, "so many in each"
    assert written.names == everybody
    assert sum(written.writing.times.counts) == len(everybody)


@stepped
async def test_who_waits_and_is_sent_more_is_written_to_once(monkeypatch):
    written = Written(monkeypatch)
    everybody = [f"s{number}" for number in range(WRITTEN_AT_ONCE + 2)]
    written.begin(everybody)
    written.begin([everybody[-1], "new", everybody[0]])
    await turns(10)
    assert written.names == [*everybody, "new", everybody[0]]
    written.begin(["again"], None)
    assert written.names[-1] == "again"


@stepped
async def test_at_the_end_nobody_is_left_out(monkeypatch):
    written = Written(monkeypatch)
    everybody = [f"s{number}" for number in range(WRITTEN_AT_ONCE + 50)]
    written.begin(everybody)
    written.writing.finish()
    await turns(3)
    assert written.names == everybody


@stepped
async def test_a_session_that_fails_keeps_nobody_else_waiting(monkeypatch):
    everybody = [f"s{number}" for number in range(WRITTEN_AT_ONCE + 3)]
    written = Written(monkeypatch, failing=(everybody[1], everybody[-2]))
    with pytest.raises(RuntimeError):
        written.begin(everybody)
    failed = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failed.append(context))
    await turns(30)
    written.begin(["later"])
    await turns(10)
    assert written.names == [everybody[0], *everybody[2:-2], everybody[-1], "later"]
    assert len(failed) == 1


LONG = " OR ".join(f"/identity = {at}" for at in range(300))


def test_long_ones_that_are_not_at_hand_are_sent_once_each():
    filters = FilterCache(Limits)
    assert len(LONG) > LONG_FILTER_CHARS
    assert long_among(filters, [None, "/id = 1", LONG, LONG]) == [LONG]
    filters.get(LONG)
    assert long_among(filters, [LONG]) == []


@pytest.mark.parametrize("text", [LONG, LONG + " OR"])
def test_what_was_made_beside_is_at_hand_also_a_mistake(text):
    filters = FilterCache(Limits)
    asyncio.run(compile_beside(filters, [text]))
    assert filters.has(text)
    if text != LONG:
        with pytest.raises(BadFilter):
            filters.get(text)


def of_many(count=400):
    """The rights of a user of whose roles many Allows say which rows he may see."""
    allows = [Allow("orders", read=True, filter=f"/book = 'b{at}'") for at in range(count)]
    roles = (Role("desk", ("*",), tuple(allows)),)
    return RoleSet(Security(authentication=Authentication(), roles=roles)).rights(User("ann"))


@pytest.mark.parametrize("own", [None, "/px > 1", "/px >"])
def test_what_somebody_may_see_is_compiled_beside_where_it_is_long(own, monkeypatch):
    filters, rights = FilterCache(Limits), of_many()
    guard = guarded_by(rights, "read", "orders")
    assert guard is rights.guard("orders")
    requested = [(guard, own), (None, own)]
    assert long_guarded(filters, requested) == [(guard, own)]
    asyncio.run(compile_beside(filters, (), long_guarded(filters, requested)))
    assert long_guarded(filters, requested) == []
    monkeypatch.setattr(
        row_level_security, "compile_term", lambda _node: pytest.fail("it is not at hand")
    )
    guard.condition(None if own == "/px >" else own and filters.get(own))


def test_what_is_short_is_compiled_when_it_is_requested_for():
    rights = of_many(3)
    assert long_guarded(FilterCache(Limits), [(rights.guard("orders"), None)]) == []


@pytest.mark.parametrize("demand", ["logon", "see", "admin", "nothing"])
def test_only_what_is_read_written_or_deleted_is_guarded(demand):
    assert guarded_by(of_many(3), demand, "orders") is None
    assert guarded_by(of_many(3), "read", None) is None
    assert guarded_by(EVERYTHING, "read", "orders") is None
    assert guarded_by(of_many(3), "write", "orders") is row_level_security.DENY_ALL


@stepped
async def test_requests_for_one_bookmark_go_on_some_at_a_time():
    world, order = World(), []

    async def wait(number, seq):
        await world.runtime.bookmark_waits.reached(seq, 30)
        order.append(number)

    waiting = [asyncio.create_task(wait(number, 1 + number % 2)) for number in range(100)]
    waiting.append(asyncio.create_task(wait("never", 10**12)))
    await turns(3)
    world.publish(b'{"id":1}', b'{"id":2}')
    await world.runtime.durable()
    await turns(1)
    assert 0 < len(order) < 100
    await turns(10)
    assert order == [*range(0, 100, 2), *range(1, 100, 2)]
    waiting[-1].cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not world.runtime.bookmark_waits._by_seq


@stepped
async def test_a_place_in_what_was_sent_waits_for_its_time_and_is_refused_where_that_stands_still():
    world = World()
    time_us = world.engine.now_us + 1
    waiting = asyncio.create_task(world.runtime.bookmark_waits.reached(0, 30, time_us))
    await turns(3)
    assert not waiting.done()
    world.engine.sequencer.moment(time_us)
    world.runtime.bookmark_waits.release()
    await turns(3)
    assert waiting.done()
    with pytest.raises(NotReached, match=rf"bookmark 0\.{time_us + 1} is not reached within 0 s"):
        await world.runtime.bookmark_waits.reached(0, 0.0, time_us + 1)
    assert not world.runtime.bookmark_waits._by_time


@stepped
async def test_a_server_that_stops_waits_for_no_bookmark():
    world = World()
    waits, later = world.runtime.bookmark_waits, world.engine.now_us + 1
    waiting = [asyncio.create_task(waits.reached(*one)) for one in ((7, 30), (0, 30, later))]
    await turns(3)
    waits.end("the server stops")
    for one in waiting:
        with pytest.raises(Busy, match="the server stops"):
            await one
    with pytest.raises(Busy, match="the server stops"):
        await waits.reached(7, 30)
    await waits.reached(0, 30)
    assert not waits._by_seq
    assert not waits._by_time
