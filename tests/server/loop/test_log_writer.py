"""The thread of a journal behind a shared log: what it writes, and when it refuses."""

import asyncio
from dataclasses import replace

import pytest

from sow.engine.wal import Group
from sow.errors import Damaged, DiskFull, NoQuorum, NotLeading
from sow.server.loop import log_writer
from sow.server.loop.group_commit import GroupCommit, size_of
from sow.server.loop.log_writer import SharedLogThread, encode_group, entries_in, turn_in
from sow.shared_log.entry import EntryKind
from sow.store.protocols import LogEntry
from tests.server.loop.test_group_commit import Disk
from tests.server.stand_ins import stepped, turns


def entry(seq, topic="orders"):
    is_account = topic.startswith("/sow/")
    return LogEntry("publish", topic, seq, seq, ["k"], [b"x"], 0, is_account)


class Driver:
    """Takes what is submitted, as long as it leads."""

    def __init__(self):
        self.leads, self.submitted, self.failure = True, [], None
        self.ends = []

    @property
    def is_primary(self):
        return self.leads

    def serve(self, submitter):
        self.submitter = submitter

    def submit(self, number, content, time_us, kind):
        assert kind == EntryKind.RECORDS
        if self.leads:
            self.submitted.append((number, time_us, [*entries_in(content)]))
        return self.leads

    def taken(self, seq):
        self.ends.append(seq)

    def lost_lead(self):
        return NotLeading("another node leads")

    def fail(self, error):
        self.failure = error


class Commits:
    def __init__(self, leads=True):
        self.driver, self.disk, self.calls = Driver(), Disk(), []
        self.commit = GroupCommit(
            self.disk,
            {},
            lambda groups: self.calls.extend(one.number for one in groups),
            lambda failure, groups: self.calls.append((failure, [one.number for one in groups])),
            lambda: self.calls.append("taken"),
            writer=lambda *given: SharedLogThread(self.driver, *given),
        )
        if leads:
            self.commit._thread.lead()

    def add(self, number, *entries):
        self.commit.add(Group(number, list(entries)))


@stepped
async def test_a_group_is_written_here_once_it_is_in_the_log_and_released_then():
    commits = Commits()
    for number in (1, 2):
        commits.add(number, entry(number))
    await turns()
    assert [one[:2] for one in commits.driver.submitted] == [(1, 1), (2, 2)]
    assert (commits.disk.stored, commits.calls) == ([], [])
    commits.driver.submitter.released(1)
    await commits.commit.next()
    assert (commits.disk.stored, commits.calls) == ([[1]], [1])
    commits.driver.submitter.released(2)
    await commits.commit.next()
    assert (commits.disk.stored, commits.calls) == ([[1], [2]], [1, 2])
    await commits.commit.close()


@stepped
async def test_a_long_group_is_encoded_beside_the_loop_and_the_rest_waits_behind_it(monkeypatch):
    monkeypatch.setattr(log_writer, "LONG_BYTES", 100)
    commits = Commits()
    long = [replace(entry(2), bodies=[b"x" * 200]), replace(entry(4), bodies=[b"x" * 200])]
    for number, one in enumerate((entry(1), long[0], entry(3), long[1]), start=1):
        commits.add(number, one)
    submitted = commits.driver.submitted
    assert [one[0] for one in submitted] == [1]
    while len(submitted) < 2:
        await asyncio.sleep(0)
    commits.driver.submitter.released(1)
    while len(submitted) < 3:
        await asyncio.sleep(0)
    numbers = [(one[0], [part.seq for part in one[2]]) for one in submitted]
    assert numbers == [(1, [1]), (2, [2]), (4, [3, 4])]
    for number in (2, 4):
        commits.driver.submitter.released(number)
    while len(commits.calls) < 4:
        await asyncio.sleep(0)
    await commits.commit.close()


@stepped
async def test_what_is_encoded_when_another_node_leads_is_refused_and_not_submitted(monkeypatch):
    monkeypatch.setattr(log_writer, "LONG_BYTES", 100)
    commits = Commits()
    commits.add(1, replace(entry(1), bodies=[b"x" * 200]))
    commits.add(2, entry(2))
    encoding = commits.commit._thread._encoding
    commits.driver.submitter.ended(NotLeading("another node leads"))
    await encoding
    await turns()
    while not commits.calls:
        await asyncio.sleep(0)
    ((failure, refused),) = commits.calls
    assert (failure.reason, refused, commits.driver.submitted) == ("not primary", [1, 2], [])
    await commits.commit.close()


@stepped
async def test_groups_behind_two_gather_and_go_together(monkeypatch):
    monkeypatch.setattr(log_writer, "GATHERED_BYTES_MAX", 3 * size_of([entry(1)]))
    commits = Commits()
    for number in range(1, 8):
        commits.add(number, entry(number))
    submitted = commits.driver.submitted
    assert [one[0] for one in submitted] == [1, 2]
    commits.driver.submitter.released(1)
    assert [one[0] for one in submitted] == [1, 2, 5]
    assert [one.seq for one in submitted[-1][2]] == [3, 4, 5]
    assert submitted[-1][1] == 5
    commits.driver.submitter.released(2)
    assert [one.seq for one in submitted[-1][2]] == [6, 7]
    commits.driver.submitter.released(5)
    while commits.calls != [1, 2, 3, 4, 5]:
        await commits.commit.next()
    assert [seq for one in commits.disk.stored for seq in one] == [1, 2, 3, 4, 5]
    commits.driver.submitter.released(7)
    await commits.commit.next()
    await commits.commit.close()
    assert commits.calls[5:] == [6, 7]


@stepped
async def test_what_has_gathered_is_refused_where_another_node_leads():
    commits = Commits()
    for number in range(1, 6):
        commits.add(number, entry(number))
    commits.driver.leads = False
    commits.driver.submitter.released(1)
    while len(commits.calls) < 2:
        await asyncio.sleep(0)
    released, (failure, refused) = commits.calls
    assert (released, failure.reason, refused) == (1, "not primary", [2, 3, 4, 5])
    await commits.commit.close()
    assert commits.disk.stored == [[1]]


@stepped
async def test_where_another_node_leads_what_was_in_the_log_is_released_and_the_rest_refused():
    commits = Commits()
    for number in (1, 2, 3):
        commits.add(number, entry(number))
    commits.driver.submitter.released(1)
    commits.driver.leads = False
    commits.driver.submitter.ended(NotLeading("another node leads"))
    while len(commits.calls) < 2:
        await asyncio.sleep(0)
    released, (failure, refused) = commits.calls
    assert (released, failure.reason, refused) == (1, "not primary", [2, 3])
    await asyncio.sleep(5)
    await commits.commit.close()
    assert commits.disk.stored == [[1]]  # nor later, when the disk is tried again


@stepped
async def test_who_does_not_lead_submits_nothing():
    commits = Commits()
    commits.driver.leads = False
    commits.add(1, entry(1))
    commits.add(2, entry(2))
    while not commits.calls:
        await asyncio.sleep(0)
    ((failure, refused),) = commits.calls
    assert (failure.reason, refused) == ("not primary", [1, 2])
    await commits.commit.close()
    assert commits.disk.stored == []


@stepped
async def test_what_cannot_be_written_here_ends_the_driver():
    commits = Commits()
    commits.disk.refusals = [DiskFull("no room")]
    commits.add(1, entry(1))
    commits.driver.submitter.released(1)
    while not commits.calls:
        await asyncio.sleep(0)
    assert isinstance(commits.driver.failure, DiskFull)
    await asyncio.sleep(5)
    await commits.commit.close()
    assert commits.disk.stored == []


@stepped
async def test_who_follows_writes_what_comes_from_the_log_and_tries_again():
    commits = Commits(leads=False)
    commits.add(1, entry(1))
    await commits.commit.next()
    assert (commits.disk.stored, commits.calls, commits.driver.submitted) == ([[1]], [1], [])
    commits.disk.refusals = [DiskFull("no room")]
    commits.add(2, entry(2))
    while "taken" not in commits.calls:
        await asyncio.sleep(0.1)
    assert commits.disk.stored == [[1], [2]]
    assert commits.driver.failure is None
    commits.commit._thread.lead()
    commits.add(3, entry(3))
    await turns()
    assert [one[0] for one in commits.driver.submitted] == [3]
    await commits.commit.close()


@stepped
async def test_who_steps_down_releases_what_was_submitted_before_and_refuses_the_rest():
    commits = Commits()
    commits.add(1, entry(1))
    await turns()
    commits.driver.submit = lambda *_: False  # it leads still
    commits.add(2, entry(2))
    await turns()
    assert commits.calls == []
    commits.driver.submitter.released(1)
    await commits.commit.next()
    commits.driver.submitter.ended(NoQuorum("it steps down"))
    while len(commits.calls) < 2:
        await asyncio.sleep(0)
    released, (failure, refused) = commits.calls
    assert (released, failure.reason, refused) == (1, "no quorum", [2])
    await commits.commit.close()


def test_very_many_changes_are_several_groups_and_no_change_is_divided(monkeypatch):
    monkeypatch.setattr(log_writer, "PART_BYTES_MAX", 100)

    def made(seq, ts_us, size):
        return LogEntry("publish", "orders", seq, ts_us, ["k"], [b"x" * size], 0)

    entries = [made(1, 1, 30), made(2, 2, 20), made(3, 2, 20), made(4, 2, 60), made(5, 3, 9)]
    parts = [[one.seq for one in part] for part in log_writer.parts_of(entries)]
    assert parts == [[1], [2, 3, 4], [5]]
    assert [*log_writer.parts_of(entries[:1])] == [entries[:1]]
    counted = [made(1, 1, 90), entry(1, "/sow/publishers"), made(2, 2, 90)]
    assert [*log_writer.parts_of(counted)] == [counted[:2], counted[2:]]


@stepped
async def test_of_a_divided_group_the_log_may_have_a_part(monkeypatch):
    monkeypatch.setattr(log_writer, "PART_BYTES_MAX", 1)
    commits = Commits()
    commits.add(1, entry(1), entry(2))
    await turns()
    assert [one[0] for one in commits.driver.submitted] == [None, 1]
    commits.driver.submitter.ended(NotLeading("another node leads"))
    while not commits.calls:
        await asyncio.sleep(0)
    ((failure, refused),) = commits.calls
    assert (failure.reason, refused) == ("outcome unknown", [1])
    await commits.commit.close()


def test_a_group_is_read_as_it_was_submitted():
    group = [entry(0, "/sow/columns"), entry(1), entry(1, "/sow/commits"), entry(2)]
    found = [*entries_in(encode_group(group))]
    assert found == group
    assert [one.account for one in found] == [True, False, True, False]
    with pytest.raises(Damaged, match="shared log"):
        [*entries_in(encode_group(group)[:-1])]


@stepped
async def test_a_turn_of_views_that_goes_on_is_marked_in_the_log_and_not_in_the_journal(
    monkeypatch,
):
    monkeypatch.setattr(log_writer, "PART_BYTES_MAX", 1)
    commits, began = Commits(leads=False), [2]
    commits.commit._thread.lead(lambda: began[-1])
    commits.add(1, entry(2))
    began.append(0)
    commits.add(2, replace(entry(3), turn=2), replace(entry(4), turn=2))
    commits.add(3, entry(5))
    for number in (1, 2, 3):
        commits.driver.submitter.released(number)
    submitted = [one[2] for one in commits.driver.submitted]
    assert [turn_in(one) for one in submitted] == [2, 2, 0, 0]
    assert [len(one) for one in submitted] == [2, 2, 1, 1]
    await commits.commit.close()
    assert [seq for stored in commits.disk.stored for seq in stored] == [2, 3, 4, 5]
