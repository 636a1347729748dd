"""Checkpoints: written when the log has grown, in slices, and the log let go of behind them."""

import asyncio
import contextlib
import logging
from dataclasses import replace
from itertools import pairwise

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic, History
from sow.errors import StoreError
from sow.server.boot import checkpointer
from sow.server.boot.checkpointer import CHECK_S, SLICE_SLOTS, Checkpointer
from tests.server.stand_ins import ORDERS, SECOND, World, stepped
from tests.store.in_memory import MemoryCheckpoint, MemoryJournal

GROWTH_BYTES_MIN = 2_000
INDEXED = replace(ORDERS, hash_indexes=(("/a",),))


class Slow(MemoryCheckpoint):
    """A checkpoint that notes its slices, and fails when it is told to."""

    def __init__(self):
        super().__init__()
        self.slices, self.failures = [], []

    def write(self, seq, slices, exact=None):
        self.kept_bytes = self.kept_for()
        if self.failures:
            raise self.failures.pop(0)
        found = list(slices)
        self.slices.append([len(part.identities) for part in found])
        super().write(seq, iter(found), exact)


class Place:
    """A world with a checkpointer of its topic, and what the journal was asked to let go of."""

    def __init__(self, topic=ORDERS, **more):
        self.world = World(topic, journal=MemoryJournal())
        self.checkpoint, self.trimmed, self.went_beyond = Slow(), [], False
        self.checkpoint.kept_for = lambda: self.world.engine.disk.checkpoint_bytes
        self.checkpointer = Checkpointer(
            self.world.runtime,
            {"orders": self.checkpoint},
            self.trim,
            growth_bytes_min=GROWTH_BYTES_MIN,
            **more,
        )

    def trim(self, _now_us, keep_from_seq, beyond):
        self.trimmed.append(keep_from_seq)
        self.beyond = beyond
        self.went_beyond |= beyond
        return len(self.trimmed) % 2 == 1

    async def publish(self, first, count):
        bodies = [b'{"id":%d}' % number for number in range(first, first + count)]
        self.world.publish(*bodies)
        await self.world.runtime.durable()

    async def close(self):
        await self.checkpointer.close()
        await self.world.runtime.close()


@stepped
async def test_a_topic_is_written_when_the_log_has_grown_by_as_much_as_it_holds():
    place = Place()
    place.checkpointer.start()
    await place.publish(0, 10)
    await asyncio.sleep(3 * CHECK_S)
    assert place.checkpoint.slices == [], "too little to be worth it"
    await place.publish(10, 90)
    await asyncio.sleep(3 * CHECK_S)
    assert place.checkpoint.slices == [[100]]
    assert place.checkpoint.seq == 100
    await place.publish(0, 10)
    await asyncio.sleep(3 * CHECK_S)
    assert len(place.checkpoint.slices) == 1
    await place.close()


@stepped
async def test_what_the_start_had_to_replay_counts_as_growth():
    place = Place(replayed_bytes=GROWTH_BYTES_MIN + 1)
    await place.publish(0, 1)
    place.checkpointer.start()
    await asyncio.sleep(3 * CHECK_S)
    assert place.checkpoint.slices == [[1]]
    await place.close()


@stepped
async def test_many_records_are_cut_in_slices_between_which_others_have_their_turn():
    place = Place()
    await place.publish(0, 2 * SLICE_SLOTS + 1)
    await place.checkpointer.write("orders")
    assert place.checkpoint.slices == [[SLICE_SLOTS, SLICE_SLOTS, 1]]
    await place.close()


@stepped
async def test_the_journal_lets_go_of_what_all_checkpoints_hold_until_it_has_no_more():
    place = Place()
    await place.publish(0, 200)
    place.checkpointer.start()
    await asyncio.sleep(1.5 * CHECK_S)
    assert place.trimmed == [201, 201], "asked again while it says that there is more"
    await place.close()


@stepped
async def test_what_the_window_of_a_history_needs_is_kept_a_granularity_apart():
    place = Place(replace(ORDERS, history=History(60 * SECOND, 10 * SECOND)))
    place.checkpointer.start()
    for number in range(30):
        place.world.clock.advance(4 * SECOND)
        await place.publish(number % 5, 1)
        await asyncio.sleep(1.5 * CHECK_S)
    kept, since_us = place.checkpoint.kept, place.world.clock.now_us() - 60 * SECOND
    assert {b.exact_us - a.exact_us for a, b in pairwise(kept)} == {12 * SECOND}
    assert kept[0].exact_us < since_us <= kept[1].exact_us
    assert place.trimmed[-1] == kept[0].seq + 1
    written = []
    for _ in range(3):
        place.world.clock.advance(60 * SECOND)
        await asyncio.sleep(1.5 * CHECK_S)
        written.append(len(place.checkpoint.slices))
    assert written[0] == written[-1], "nothing has come since"
    assert len(place.checkpoint.kept) == 1
    await place.close()


@stepped
async def test_a_fine_granularity_has_no_more_checkpoints_than_a_bound(monkeypatch):
    monkeypatch.setattr(checkpointer, "KEPT_MAX", 3)
    place = Place(replace(ORDERS, history=History(60 * SECOND, SECOND)))
    place.checkpointer.start()
    for number in range(40):
        place.world.clock.advance(4 * SECOND)
        await place.publish(number % 5, 1)
        await asyncio.sleep(1.5 * CHECK_S)
    assert len(place.checkpoint.kept) == 4
    await place.close()


@stepped
async def test_a_checkpoint_that_fails_is_said_and_tried_again_later(caplog):
    place = Place()
    place.checkpoint.failures = [StoreError("no room for a checkpoint")]
    await place.publish(0, 200)
    with caplog.at_level(logging.ERROR, "sow"):
        place.checkpointer.start()
        await asyncio.sleep(5 * CHECK_S)
        assert "checkpoint: no room for a checkpoint" in caplog.text
        assert place.checkpoint.slices == []
        await asyncio.sleep(10 * CHECK_S)
    assert place.checkpoint.slices == [[200]]
    await place.close()


@stepped
async def test_one_that_is_being_written_is_given_up_when_the_server_stops():
    place = Place()
    await place.publish(0, 3 * SLICE_SLOTS)
    writing = asyncio.create_task(place.checkpointer.write("orders"))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert place.checkpoint.seq == 0, "the one before it stands"
    await place.close()


@stepped
async def test_what_deletes_have_left_is_written_on_a_full_disk_and_the_log_gives_way():
    place = Place()
    await place.publish(0, 10)
    place.world.journal.full, place.world.journal.reserve_bytes = True, 1_000
    place.checkpointer.start()
    await asyncio.sleep(1.5 * CHECK_S)
    assert place.checkpoint.slices == [[10]]
    assert (place.trimmed[-1], place.beyond) == (11, True)
    await asyncio.sleep(3 * CHECK_S)
    assert place.checkpoint.slices == [[10]], "nothing was done since"
    assert place.beyond is False
    await place.close()


@stepped
async def test_the_log_gives_way_also_to_one_that_was_being_written_when_the_disk_was_full(
    monkeypatch,
):
    place = Place()
    write = place.checkpoint.write

    def filled(*given):
        place.world.journal.full, place.world.journal.reserve_bytes = True, 1_000
        write(*given)

    monkeypatch.setattr(place.checkpoint, "write", filled)
    place.checkpointer.start()
    await place.publish(0, 200)
    await asyncio.sleep(3.5 * CHECK_S)
    assert len(place.checkpoint.slices) == 1, "nothing has come since, so no other is written"
    assert (place.checkpoint.seq, place.trimmed[-1]) == (200, 201)
    assert place.went_beyond
    await place.close()


@stepped
async def test_a_checkpoint_without_room_is_not_begun_and_an_operator_is_sent_once(caplog):
    place = Place()
    await place.publish(0, 200)
    place.world.journal.full = True
    place.checkpointer.start()
    await asyncio.sleep(2 * CHECK_S)
    assert place.checkpoint.slices == [], "it would take the reserve"
    place.world.engine.disk._has_room = lambda _size_bytes: True
    with caplog.at_level(logging.ERROR, "sow"):
        await asyncio.sleep(3 * CHECK_S)
    assert caplog.text.count("has no room for one of orders") == 1
    assert place.checkpoint.slices == []
    assert "no room for one of orders" in place.checkpointer.failure
    del place.checkpointer._checkpoints["orders"]  # a reload removes the topic
    assert place.checkpointer.failure is None
    await place.close()


@pytest.mark.parametrize(
    ("room_bytes", "is_full", "is_known"),
    [(10**9, False, True), (2_000, False, False), (10**9, True, False)],
)
@stepped
async def test_what_indexes_know_is_left_out_where_room_is_not_plenty(
    room_bytes, is_full, is_known, monkeypatch
):
    place = Place()
    run_to_completion(place.world.engine.topics["orders"].records.reindex(INDEXED))
    await place.publish(0, 100)
    place.world.journal.full, place.world.journal.reserve_bytes = is_full, 10**6
    monkeypatch.setattr(MemoryJournal, "room_bytes", room_bytes)
    await place.checkpointer.write("orders")
    assert [part.values is not None for part in place.checkpoint.load()] == [is_known]
    await place.close()


@stepped
async def test_messages_leave_it_room_while_it_is_written_even_if_it_fails():
    place = Place()
    await place.publish(0, 100)
    for failures in ([], [StoreError("worn out")]):
        place.checkpoint.failures = failures
        with contextlib.suppress(StoreError):
            await place.checkpointer.write("orders")
        assert place.checkpoint.kept_bytes >= sum(len(b'{"id":%d}' % at) for at in range(100))
        assert place.world.engine.disk.checkpoint_bytes == 0
    await place.close()


@stepped
async def test_that_one_failed_is_known_until_one_is_written():
    place = Place()
    assert place.checkpointer.failure is None
    place.checkpointer.start()
    place.checkpoint.failures.append(StoreError("the disk says no"))
    await place.publish(0, 300)
    await asyncio.sleep(2 * CHECK_S)
    assert place.checkpointer.failure == "the disk says no"
    await asyncio.sleep(12 * CHECK_S)
    assert place.checkpointer.failure is None
    await place.close()


SLOW = ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND)
BRIEF = replace(ORDERS, name="brief", durability="transient")
BRIEF_C = ConflatedTopic("brief-C", "json", "brief", interval_us=SECOND)
MIN = 20


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(checkpointer, "RECORDS_MIN", MIN)


class WindowsPlace:
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
    async with WindowsPlace() as place:
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
    async with WindowsPlace() as place:
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
    async with WindowsPlace(*topics) as place:
        await place.publish(3 * MIN)
        await place.wait()
        assert place.kept == []
        assert place.checkpoint.kept == []
        assert not place.world.runtime.flush_work


@stepped
async def test_what_is_too_much_for_one_step_is_not_kept(monkeypatch):
    monkeypatch.setattr(checkpointer, "WAITING_MAX", 3)
    async with WindowsPlace() as place:
        await place.publish(MIN + 1)
        await place.wait()
        assert place.kept == []


@stepped
async def test_while_topics_are_changed_nothing_is_kept():
    is_reloading = [True]
    async with WindowsPlace(is_reloading=lambda: is_reloading[0]) as place:
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
    async with WindowsPlace(is_reloading=lambda: True) as place:
        await place.publish(MIN + 1)
        await asyncio.sleep(3 * checkpointer.PATIENCE_S)
        assert place.kept == []
        assert not place.world.runtime.flush_work


@stepped
async def test_those_that_the_log_reaches_back_to_stay(monkeypatch):
    monkeypatch.setattr(checkpointer, "KEPT_MAX", 2)
    async with WindowsPlace() as place:
        for _ in range(4):
            await place.publish(2 * MIN)
            await place.wait()
        assert len(place.checkpoint.kept) == 2
        assert place.checkpoint.kept[-1].seq == place.kept[-1]


@stepped
async def test_a_history_has_them_beside_its_own():
    async with WindowsPlace(
        replace(ORDERS, history=History(600 * SECOND, 60 * SECOND)), SLOW
    ) as place:
        for _ in range(3):
            await place.publish(2 * MIN)
            await place.wait()
        assert len(place.checkpoint.kept) >= 3


@stepped
async def test_they_take_no_room_that_a_disk_has_not(monkeypatch):
    """They would take what deletes need, and then nothing makes room again."""
    async with WindowsPlace() as place:
        monkeypatch.setattr(MemoryJournal, "room_bytes", 10)
        await place.publish(MIN + 1)
        await place.wait()
        assert place.kept == place.checkpoint.kept == []
        assert place.checkpointer.failure is None, "both would only save time"
        monkeypatch.setattr(MemoryJournal, "room_bytes", 10**6)
        await place.publish(MIN + 1)
        await place.wait()
        assert place.kept == [2 * MIN + 2]


@stepped
async def test_messages_leave_them_room_while_they_are_written():
    async with WindowsPlace() as place:
        kept, put = [], place.world.journal.windows.put

        def look(at, block):
            kept.append(place.world.engine.disk.checkpoint_bytes >= len(block))
            put(at, block)

        place.world.journal.windows.put = look
        await place.publish(MIN + 1)
        await place.wait()
        assert kept == [True]
        assert place.world.engine.disk.checkpoint_bytes == 0


@stepped
async def test_a_disk_that_refuses_them_fails_nothing_else(caplog):
    async with WindowsPlace() as place:

        def refuse(_place, _block):
            raise StoreError("no room")

        place.world.journal.windows.put = refuse
        await place.publish(MIN + 1)
        await place.wait()
        assert "no room" in caplog.text
        await place.publish(1)
