"""Queues that nobody reads are folded a step at a time, and others are served between."""

import asyncio

from sow.protocol.commands import Command
from sow.protocol.encodings import LINES
from sow.server.loop import scheduler as turns_of_work
from sow.server.loop.background_conflation import BackgroundConflation
from tests.server.stand_ins import World, stepped, turns


class Crowd:
    """Sessions that follow a topic and read nothing."""

    def __init__(self, count):
        self.world = World()
        executor, driver, now_us = self.world.executor, self.world.driver, self.world.clock.now_us
        BackgroundConflation(executor.sessions, driver.turns, now_us)
        self.sessions = [executor.sessions.open(LINES, now_us()) for _ in range(count)]
        for session in self.sessions:
            executor.execute(session, Command("subscribe", topic="orders"), now_us())
            driver.attach(session, lambda one=session: self._judge(one))

    def _judge(self, session):
        self.world.executor.sessions.apply_back_pressure(session, self.world.clock.now_us())

    def publish(self):
        self.world.publish(*(b'{"id":%d,"v":%d}' % (at % 7, at) for at in range(100)))
        self.world.driver.wake()

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
    assert "folding queues" in crowd.world.driver.watch.longest_s
    await crowd.world.driver.close()


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
    await crowd.world.driver.close()
