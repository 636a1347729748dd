"""When open windows are kept, so that a replay need not begin with the log."""

import asyncio
from dataclasses import replace

import pytest

from sow.core.definitions import ConflatedTopic, History
from sow.errors import StoreError
from sow.server.boot import replay_places
from sow.server.boot.checkpointer import CHECK_S, Checkpointer
from tests.server.stand_ins import ORDERS, SECOND, World, stepped
from tests.store.in_memory import MemoryCheckpoint, MemoryJournal

SLOW = ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND)
BRIEF = replace(ORDERS, name="brief", durability="transient")
BRIEF_C = ConflatedTopic("brief-C", "json", "brief", interval_us=SECOND)
MIN = 20


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(replay_places, "RECORDS_MIN", MIN)


class Place:
    """A world with a checkpointer of its topic."""

    def __init__(self, *topics, **more):
        self.world = World(*(topics or (ORDERS, SLOW)), journal=MemoryJournal())
        self.checkpoint = MemoryCheckpoint()
        stored = {"orders": self.checkpoint}
        trim = self.world.journal.trim
        self.checkpointer = Checkpointer(self.world.runtime, stored, trim, **more)
        self.checkpointer.start()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        await self.checkpointer.close()
        await self.world.runtime.close()

    @property
    def kept(self):
        return [one.seq for one in self.world.journal.windows.places]

    async def publish(self, count, ids=4):
        for number in range(count):
            self.world.publish(b'{"id":%d}' % (number % ids))
            await self.world.runtime.durable()

    async def wait(self):
        await asyncio.sleep(3 * CHECK_S)


@stepped
async def test_they_are_kept_when_so_much_has_been_logged():
    async with Place() as place:
        await place.publish(MIN)
        await place.wait()
        assert place.kept == []
        await place.publish(1)
        await place.wait()
        assert place.kept == [MIN + 1]
        (kept,) = place.checkpoint.kept
        assert kept.seq <= kept.exact_seq <= MIN + 1, "the records are known there"
        place.checkpoint.forget(0)
        await place.publish(MIN + 5)
        await place.wait()
        assert place.kept == [MIN + 1, 2 * MIN + 6]
        assert len(place.checkpoint.kept) == 2


@stepped
async def test_all_of_them_are_a_part_of_the_log():
    async with Place() as place:
        await place.publish(MIN + 1, ids=100)
        await place.wait()
        await place.publish(3 * MIN)
        await place.wait()
        assert len(place.kept) == 1, "the topic has as many records as that"
        await place.publish(3 * MIN)
        await place.wait()
        assert len(place.kept) == 2


@stepped
@pytest.mark.parametrize("topics", [(ORDERS,), (ORDERS, BRIEF, BRIEF_C)])
async def test_nothing_is_kept_where_nothing_is_conflated_that_is_stored(topics):
    async with Place(*topics) as place:
        await place.publish(3 * MIN)
        await place.wait()
        assert place.kept == []
        assert place.checkpoint.kept == []
        assert not place.world.runtime.flush_work


@stepped
async def test_what_is_too_much_for_one_step_is_not_kept(monkeypatch):
    monkeypatch.setattr(replay_places, "WAITING_MAX", 3)
    async with Place() as place:
        await place.publish(MIN + 1)
        await place.wait()
        assert place.kept == []


@stepped
async def test_while_topics_are_changed_nothing_is_kept():
    is_reloading = [True]
    async with Place(is_reloading=lambda: is_reloading[0]) as place:
        await place.publish(MIN + 1)
        await place.wait()
        assert place.kept == []
        is_reloading.clear()
        is_reloading.append(False)
        place.world.runtime.wake()
        await place.wait()
        assert len(place.kept) == 1


@stepped
async def test_where_no_moment_between_two_turns_comes_they_are_kept_later():
    async with Place(is_reloading=lambda: True) as place:
        await place.publish(MIN + 1)
        await asyncio.sleep(3 * replay_places.PATIENCE_S)
        assert place.kept == []
        assert not place.world.runtime.flush_work


@stepped
async def test_those_that_the_log_reaches_back_to_stay(monkeypatch):
    monkeypatch.setattr(replay_places, "KEPT_MAX", 2)
    async with Place() as place:
        for _ in range(4):
            await place.publish(2 * MIN)
            await place.wait()
        assert len(place.checkpoint.kept) == 2
        assert place.checkpoint.kept[-1].seq == place.kept[-1]


@stepped
async def test_a_history_has_them_beside_its_own():
    async with Place(replace(ORDERS, history=History(600 * SECOND, 60 * SECOND)), SLOW) as place:
        for _ in range(3):
            await place.publish(2 * MIN)
            await place.wait()
        assert len(place.checkpoint.kept) >= 3


@stepped
async def test_a_disk_that_refuses_them_fails_nothing_else(caplog):
    async with Place() as place:

        def refuse(_found):
            raise StoreError("no room")

        place.world.journal.windows.put = refuse
        await place.publish(MIN + 1)
        await place.wait()
        assert "no room" in caplog.text
        await place.publish(1)
