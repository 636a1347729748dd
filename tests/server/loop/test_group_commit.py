"""Group commit: order, sharing of commits, and what becomes of a group the disk refuses."""

import asyncio
import threading
from dataclasses import replace

import pytest

from sow.core import containers
from sow.core.definitions import JournalSettings
from sow.engine.wal import Group
from sow.errors import DiskFull, StoreError
from sow.server.loop.group_commit import (
    RETRY_S,
    ROW_BYTES,
    SCARCE_WINDOW_US,
    GroupCommit,
    LoadWriter,
    stored_bytes,
    windows_us,
)
from sow.store.protocols import LogEntry
from sow.topic.records import CheckedMessages
from tests.server.boot.servers import ORDERS, SLOW, configuration
from tests.server.stand_ins import stepped, turns


def entry(seq, topic="orders"):
    return LogEntry("publish", topic, seq, 0, None, [b"x" * 100])


STEP_S = 0.001


class Disk:
    """A journal that stores when it is let, and refuses what it is told to."""

    def __init__(self):
        self.stored, self.refusals = [], []
        self.begun = 0
        self.free = threading.Event()
        self.free.set()

    def append(self, entries):
        self.begun += 1
        self.free.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        self.stored.append([one.seq for one in entries])


class Commits:
    """A group commit, and what it has said."""

    def __init__(self, windows_us=()):
        self.disk, self.calls, self.gathers_us = Disk(), [], 0
        self.commit = GroupCommit(
            self.disk,
            dict(windows_us),
            lambda groups: self.calls.extend(one.number for one in groups),
            lambda failure, groups: self.calls.append((failure, [one.number for one in groups])),
            lambda: self.calls.append("taken"),
            gathers_us=lambda: self.gathers_us,
        )

    def add(self, number, *entries):
        self.commit.add(Group(number, list(entries)))

    async def writing(self):
        """Something is being written."""
        while not self.disk.begun:
            await turns()

    async def until(self, calls):
        while calls not in self.calls:
            await asyncio.sleep(STEP_S)


@stepped
async def test_what_comes_during_a_commit_is_stored_by_the_next_one_together():
    commits = Commits()
    commits.disk.free.clear()
    commits.add(1, entry(1))
    await commits.writing()
    for number in (2, 3, 4):
        commits.add(number, entry(number))
    assert commits.commit.bytes_logged == 4 * (100 + ROW_BYTES)
    commits.disk.free.set()
    await commits.until(4)
    assert commits.disk.stored == [[1], [2, 3, 4]]
    assert commits.calls == [1, 2, 3, 4]
    await turns()
    await commits.commit.close()


@stepped
async def test_on_a_full_disk_what_deletes_make_is_stored_together():
    commits = Commits()
    commits.gathers_us = SCARCE_WINDOW_US
    for number in (1, 2, 3):
        commits.add(number, entry(number))
        await turns()
    assert not commits.disk.begun
    commits.gathers_us = 0
    commits.add(4, entry(4))
    await commits.until(4)
    commits.add(5, entry(5))
    await commits.until(5)
    assert commits.disk.stored == [[1, 2, 3, 4], [5]]
    await commits.commit.close()


@stepped
async def test_a_group_without_entries_leaves_with_those_before_it():
    commits = Commits()
    commits.add(1)
    assert commits.calls == [1]
    commits.disk.free.clear()
    commits.add(2, entry(1))
    commits.add(3)
    await turns()
    assert commits.calls == [1]
    commits.disk.free.set()
    await commits.until(3)
    assert commits.calls == [1, 2, 3]
    await commits.commit.close()


@stepped
async def test_what_is_on_its_way_behind_a_refused_group_is_refused_with_it():
    commits = Commits()
    full = DiskFull("the disk is full")
    commits.disk.refusals = [full]
    commits.disk.free.clear()
    commits.add(1, entry(1))
    await commits.writing()
    for number in (2, 3):
        commits.add(number, entry(number))
    commits.add(4)
    commits.disk.free.set()
    await commits.until("taken")
    assert commits.calls == [(full, [1, 2, 3, 4]), "taken"]
    assert commits.disk.stored == [[1, 2, 3]]
    commits.add(5, entry(4))
    await commits.until(5)
    assert commits.disk.stored == [[1, 2, 3], [4]]
    await commits.commit.close()


@stepped
async def test_an_error_of_the_server_refuses_too_and_ends_no_thread(caplog):
    commits = Commits()
    commits.disk.refusals = [ZeroDivisionError()]
    commits.add(1, entry(1))
    await commits.until("taken")
    assert "its log says why" in commits.calls[0][0].detail
    assert "ZeroDivisionError" in caplog.text
    await commits.commit.close()


@stepped
async def test_work_in_the_thread_runs_between_two_writes():
    commits = Commits()
    commits.disk.free.clear()
    commits.add(1, entry(1))
    await commits.writing()
    looking = asyncio.ensure_future(commits.commit.run_in_thread(commits.disk.stored.copy))
    dividing = asyncio.ensure_future(commits.commit.run_in_thread(divmod, 1, 0))
    await turns()
    commits.add(2, entry(2))
    commits.disk.free.set()
    assert await looking == [[1]]
    with pytest.raises(ZeroDivisionError):
        await dividing
    await commits.until(2)
    assert commits.disk.stored == [[1], [2]]
    await commits.commit.close()


@stepped
async def test_closing_stores_what_waits_for_more():
    commits = Commits({"slow": 4_000_000})
    commits.add(1, entry(1, "slow"))
    await commits.commit.close()
    assert commits.disk.stored == [[1]]


@stepped
async def test_the_most_impatient_topic_of_a_commit_says_how_long_it_waits():
    commits, loop = Commits({"slow": 4_000_000, "quick": 1_000_000}), asyncio.get_running_loop()
    commits.add(1, entry(1, "slow"))
    await commits.until(1)
    assert round(loop.time(), 1) == 4.0
    await turns()
    commits.add(2, entry(2, "slow"))
    commits.add(3, entry(3, "quick"))
    await commits.until(3)
    assert round(loop.time(), 1) == 5.0
    await turns()
    commits.add(4, entry(4, "unnamed"))
    await commits.until(4)
    assert round(loop.time(), 1) == 5.0
    await commits.commit.close()


@stepped
async def test_a_refusal_is_said_once_with_every_group_and_all_is_stored_later():
    commits = Commits()
    full = DiskFull("the disk is full")
    commits.disk.refusals = [full, full]
    commits.disk.free.clear()
    commits.add(1, entry(1))
    await commits.writing()
    commits.add(2, entry(2))
    commits.disk.free.set()
    await commits.until((full, [1, 2]))
    assert commits.commit.failure is full
    commits.commit.keep([entry(3)])
    await commits.until("taken")
    assert asyncio.get_running_loop().time() >= 2 * RETRY_S
    assert commits.commit.failure is None
    assert [seq for stored in commits.disk.stored for seq in stored] == [1, 2, 3]
    assert commits.calls == [(full, [1, 2]), "taken"]
    await commits.commit.close()


@stepped
async def test_a_disk_that_fails_otherwise_is_sent_with_what_happens_next():
    commits = Commits()
    commits.disk.refusals = [StoreError("cannot write")]
    commits.add(1, entry(1))
    await commits.until("taken")
    failure = commits.calls[0][0]
    assert failure.detail.startswith("cannot write; nothing of the request is acknowledged")
    await commits.commit.close()


@stepped
async def test_whoever_waits_for_the_journal_to_grow_waits_for_entries():
    commits = Commits()
    grown = commits.commit.next()
    commits.add(1)
    await commits.until(1)
    assert not grown.done()
    commits.add(2, entry(1))
    await commits.until(2)
    assert grown.done()
    assert commits.commit.next() is not grown
    await commits.commit.close()


def test_an_entry_takes_its_bodies_and_something_for_each_row():
    assert stored_bytes(LogEntry("delete", "orders", 1, 0, ["a", "b"], [])) == 2 * ROW_BYTES


def test_a_topics_window_goes_before_the_journals():
    config = configuration(
        ORDERS,
        replace(ORDERS, name="quick", flush_interval_us=5),
        SLOW,
        journal=JournalSettings(flush_interval_us=100),
    )
    windows = windows_us(config)
    assert (windows["orders"], windows["quick"]) == (100, 5)
    assert "orders-C" not in windows


def test_the_sizes_of_very_many_records_of_a_load_are_held_in_parts(monkeypatch):
    monkeypatch.setattr(containers, "LONG_KEYS", 1)
    counts = []
    ahead = LoadWriter(None, None, None, "orders", False, counts.append)
    asyncio.run(ahead.put(CheckedMessages([b"1", b"22"], ["a", "b"], {})))
    asyncio.run(ahead.put(CheckedMessages([b"333"], ["a"], {})))
    assert isinstance(ahead.sizes, containers.ShardedDict)
    assert dict(ahead.sizes) == {"a": 3, "b": 2}
    assert counts == [2, 2]
