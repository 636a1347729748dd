"""Loads: what becomes of a staged batch when its process, disk or client ends in the middle.

Rows of a large batch are written ahead of the log; here that is a batch of any size. Every write to
the journal is a moment at which it may end.
"""

import asyncio
import itertools
import json
import shutil
from dataclasses import replace
from random import Random

import pytest

from sow.core.cooperative import run_to_completion
from sow.errors import DiskFull
from sow.server.api import batch_commit as module
from tests.server.api.test_batch_commit import COMMIT, Place, stream_of
from tests.server.stand_ins import ORDERS, SECOND, World, stepped
from tests.store.in_memory import MemoryCheckpoint, MemoryJournal


class Kills(MemoryJournal):
    """A journal that keeps what a kill would leave: what is stored before each write, and the files
    that are staged by then."""

    def __init__(self, staged, kept):
        super().__init__(before_append=lambda _entries: self.note())
        self.loads.before_put = lambda _name: self.note()
        self.staged, self.kept, self.moments = staged, kept, []

    def note(self):
        place = self.kept / str(len(self.moments))
        if self.staged.exists():
            shutil.copytree(self.staged, place)
        left = MemoryJournal()
        left._entries, left._last_seq = list(self._entries), self._last_seq
        left._accounts = None if self._accounts is None else dict(self._accounts)
        linked = {entry.load.name for entry in self._entries if entry.load is not None}
        left.loads.held = {name: list(self.loads.held[name]) for name in linked}
        self.moments.append((left, place))


def restored(journal, *topics):
    """A world that a start makes of a journal."""
    world = World(*topics, journal=journal)
    checkpoints = {"orders": MemoryCheckpoint()}
    steps = world.engine.restore(checkpoints, journal.read(0), journal.last_seq)
    run_to_completion(steps)
    world.engine.restore_accounts(journal.accounts())
    world.clock.advance(world.engine.now_us + SECOND)
    return world


def documents(place):
    table = place.world.engine.topic("orders").records.table
    return {one["id"]: one for one in map(json.loads, filter(None, table.bodies))}


def batch_of(chance, mode):
    """Parts of chunks of rows, and which operations are among them."""
    operations = ["publish"] * 6 + (["delta", "delete"] if mode == "mixed" else [])

    def row():
        document = {"id": chance.randrange(12), "v": chance.randrange(100)}
        return chance.choice(operations), document

    return [
        [[row() for _ in range(chance.randrange(1, 5))] for _ in range(chance.randrange(1, 4))]
        for _ in range(chance.randrange(1, 4))
    ]


def naively(before, parts, mode):
    """What a batch makes of records."""
    after = {} if mode == "replace" else dict(before)
    for operation, document in [row for part in parts for chunk in part for row in chunk]:
        if operation == "delete":
            after.pop(document["id"], None)
        else:
            was = after.get(document["id"], {}) if operation == "delta" else {}
            after[document["id"]] = was | document
    return after


async def write(place, parts, mode, stages=True):
    """Stage a batch, and commit it; the answer."""
    for number, part in enumerate(parts) if stages else ():
        for at, chunk in enumerate(part):
            operations, values = zip(*chunk, strict=True)
            content = stream_of(op=operations, value=[json.dumps(one) for one in values])
            query = f"&part={number}&chunk={at}"
            assert (await place.stage(query=query, content=content)).status == 200
    named = [(at, "0", len(part), sum(map(len, part))) for at, part in enumerate(parts)]
    return await place.commit(*named, mode="replace" if mode == "replace" else "update")


@pytest.mark.parametrize("mode", ["publish", "mixed", "replace"])
@pytest.mark.parametrize("seed", range(4))
@stepped
async def test_a_batch_killed_at_any_step_is_there_whole_or_not_and_once_when_it_comes_again(
    tmp_path, monkeypatch, seed, mode
):
    chance = Random(f"{seed} {mode}")
    monkeypatch.setattr(module, "HELD_BYTES_MAX", chance.choice([0, 60, 10**6]))
    monkeypatch.setattr("sow.server.loop.group_commit.LOAD_PART_BYTES", chance.choice([0, 50]))
    before = {number: {"id": number, "v": -1} for number in range(chance.randrange(6))}
    parts = batch_of(chance, mode)
    after = naively(before, parts, mode)
    journal = Kills(tmp_path / "staged", tmp_path / "kept")
    async with Place(tmp_path / "staged", journal=journal) as place:
        if before:
            place.world.publish(*[json.dumps(one).encode() for one in before.values()])
        await place.world.runtime.durable()
        journal.moments.clear()
        shutil.rmtree(tmp_path / "kept", ignore_errors=True)
        assert (await write(place, parts, mode)).json["duplicate"] is False
        assert documents(place) == after
        last_seq = journal.last_seq
    journal.note()
    for left, staged in journal.moments:
        async with Place(staged, world=restored(left)) as again:
            assert documents(again) in (before, after)
            is_there = documents(again) == after != before
            answer = await write(again, parts, mode, stages=chance.random() < 0.5 or is_there)
            assert answer.status == 200, answer.json
            assert documents(again) == after
            assert left.last_seq == last_seq, "nothing twice"
            assert (await write(again, parts, mode)).json["duplicate"] is True
            assert left.last_seq == last_seq
    assert len(journal.moments) > 1


@pytest.fixture
def _written_ahead(monkeypatch):
    monkeypatch.setattr(module, "HELD_BYTES_MAX", 0)
    monkeypatch.setattr("sow.server.loop.group_commit.LOAD_PART_BYTES", 0)


PUBLISHED = [[[("publish", {"id": number})] for number in range(3)] for _ in range(2)]


@stepped
@pytest.mark.usefixtures("_written_ahead")
async def test_a_batch_that_is_refused_leaves_nothing_ahead_of_the_log(tmp_path):
    async with Place(tmp_path) as place:
        world = place.world
        refusals = [lambda: None, lambda: None, _full]
        world.journal.loads.before_put = lambda _name: refusals.pop(0)()
        answer = await write(place, PUBLISHED, "publish")
        assert (answer.status, answer.json["reason"]) == (507, "disk full")
        assert world.journal.loads.held == {}
        assert (place.identities, world.journal.last_seq) == ([], 0)
        world.journal.loads.before_put = lambda _name: None
        wrong = await place.commit((0, "0", 3, 3), (1, "0", 3, 4))
        assert (wrong.status, wrong.json["reason"]) == (409, "not staged")
        assert world.journal.loads.held == {}
        assert (await write(place, PUBLISHED, "publish")).status == 200
        assert world.journal.last_seq == 6


def _full():
    raise DiskFull("the disk is full; free some space")


class FullOnce:
    """The disk refuses the write of a number, whether ahead of the log or to it."""

    def __init__(self, moment):
        self.left = moment
        self.journal = MemoryJournal(before_append=lambda _entries: self.write())
        self.journal.loads.before_put = lambda _name: self.write()

    def write(self):
        self.left -= 1
        if self.left == -1:
            _full()


@stepped
@pytest.mark.usefixtures("_written_ahead")
async def test_a_disk_that_is_full_at_any_write_of_a_load_loses_nothing(tmp_path):
    for moment in itertools.count():
        disk = FullOnce(moment)
        async with Place(tmp_path / str(moment), journal=disk.journal) as place:
            first = await write(place, PUBLISHED, "publish")
            assert first.status == (507 if disk.left < 0 else 200)
            assert place.identities == [] or disk.journal.loads.held
            await asyncio.sleep(1)  # what was refused to the log is stored meanwhile
            assert (await write(place, PUBLISHED, "publish", stages=False)).status == 200
            assert len(documents(place)) == 3
        assert disk.journal.last_seq == 6, "once"
        async with Place(tmp_path / "again", world=restored(disk.journal)) as again:
            assert len(documents(again)) == 3
        if first.status == 200:
            break
    assert moment > 3


@pytest.mark.parametrize("mode", ["publish", "replace"])
@stepped
@pytest.mark.usefixtures("_written_ahead")
async def test_a_load_of_too_many_records_is_not_read_to_its_end(tmp_path, mode):
    async with Place(tmp_path, topics=(replace(ORDERS, records_max=1),)) as place:
        written, loads = [], place.world.journal.loads
        loads.before_put = written.append
        answer = await write(place, PUBLISHED, mode)
        assert (answer.status, answer.json["reason"]) == (507, "topic full")
        assert "may hold 1 records (MaxRecords), and these are more" in answer.json["detail"]
        assert (len(written), loads.held, place.identities) == (1, {}, [])


@stepped
@pytest.mark.usefixtures("_written_ahead")
async def test_a_limit_that_comes_while_rows_are_written_ahead_is_not_passed_by(tmp_path):
    async with Place(tmp_path) as place:
        engine, loads = place.world.engine, place.world.journal.loads

        def reload(_name):
            limits = replace(engine.configuration.limits, memory_bytes_max=1)
            engine.adopt(replace(engine.configuration, limits=limits))

        loads.before_put = reload
        answer = await write(place, PUBLISHED, "publish")
        assert (answer.status, answer.json["reason"]) == (503, "busy")
        assert answer.json["detail"].startswith("MaxRecords or Limits/Memory has come while")
        assert (place.identities, loads.held) == ([], {})
        answer = await write(place, PUBLISHED, "publish", stages=False)
        assert (answer.status, answer.json["reason"]) == (507, "memory full")


@stepped
@pytest.mark.usefixtures("_written_ahead")
async def test_a_commit_whose_client_leaves_while_rows_are_written_ahead_goes_on(tmp_path):
    async with Place(tmp_path) as place:
        for part in range(2):
            await place.stage(*[{"id": 10 * part + at} for at in range(5)], query=f"&part={part}")
        parts = [{"part": at, "attempt": "0", "chunks": 1, "rows": 5} for at in range(2)]
        body = json.dumps({"topic": "orders", "parts": parts}).encode()
        socket = await place.begin("POST", "/v1/writes/w/1/commit", body, rounds=0)
        while not place.world.journal.loads.held:
            await asyncio.sleep(0)
        socket.protocol.connection_lost(None)
        again = await place.commit((0, "0", 1, 5), (1, "0", 1, 5))
        assert again.json == {"bookmark": "10", "duplicate": True}
        assert place.world.journal.last_seq == 10


@stepped
@pytest.mark.usefixtures("_written_ahead")
async def test_a_server_that_stops_while_rows_are_written_ahead_gives_them_up(tmp_path):
    async with Place(tmp_path) as place:
        await place.stage(*[{"id": at} for at in range(5)])
        body = COMMIT.replace(b"100", b"5")
        socket = await place.begin("POST", "/v1/writes/w/1/commit", body, rounds=0)
        while not place.world.journal.loads.held:
            await asyncio.sleep(0)
        socket.protocol.connection_lost(None)
        await place.world.runtime.close()
        assert place.world.journal.last_seq in (0, 5)
        assert bool(place.world.journal.loads.held) == (place.world.journal.last_seq == 5)


@pytest.mark.parametrize("operation", ["publish", "delta"])
@stepped
async def test_a_part_is_bounded_and_so_is_what_has_to_be_held(tmp_path, monkeypatch, operation):
    monkeypatch.setattr(module, "HELD_BYTES_MAX", 0)
    async with Place(tmp_path) as place:
        engine = place.world.engine
        limits = replace(engine.configuration.limits, batch_bytes_max=30)
        engine.configuration = replace(engine.configuration, limits=limits)
        rows = [(operation, {"id": number}) for number in range(10, 14)]
        parts = [[[row] for row in rows[start : start + 2]] for start in (0, 2)]
        answer = await write(place, [[chunk for part in parts for chunk in part]], "publish")
        assert answer.status == 413
        assert "Limits/BatchSize" in answer.json["detail"]
        answer = await write(place, parts, "publish")
        assert answer.status == (200 if operation == "publish" else 413)
        assert "has to be held" in answer.json.get("detail", "has to be held")
        assert place.world.journal.loads.held == {} or operation == "publish"


@stepped
async def test_a_batch_is_no_more_than_a_shared_log_takes_as_one_change(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "HELD_BYTES_MAX", 0)
    async with Place(tmp_path) as place:
        thread = place.world.runtime.commit._thread
        monkeypatch.setattr(thread, "writes_ahead", False, raising=False)
        monkeypatch.setattr(thread, "change_bytes_max", 30, raising=False)
        rows = [("publish", {"id": number}) for number in range(10, 14)]
        answer = await write(place, [[[row] for row in rows]], "publish")
        assert answer.status == 413
        assert "shared log takes as one change" in answer.json["detail"]
        answer = await write(place, [[[row] for row in rows[:2]]], "publish")
        assert answer.status == 200
