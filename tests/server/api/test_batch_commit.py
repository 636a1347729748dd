"""Staged writes: chunks kept aside, applied as a whole, once."""

import asyncio
import json
import shutil
import threading
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest

from sow.core.cooperative import run_to_completion
from sow.core.media_types import ARROW
from sow.core.security_definitions import Allow, Authentication, Role, Security
from sow.engine.wal import CommitSequencer
from sow.errors import DiskFull
from sow.server.api import batch_commit as module
from sow.server.api.batch_commit import (
    SWEEP_US,
    BatchCommitHandler,
    Chunk,
    Read,
    Recent,
)
from sow.store.staging import Attempt, StagedBatch, Staging
from tests.server.stand_ins import (
    ORDERS,
    SECOND,
    Anybody,
    Served,
    World,
    authenticator_of,
    routes_to,
    stepped,
    turns,
)
from tests.store.in_memory import MemoryCheckpoint, MemoryJournal

BATCH = "/v1/writes/{writer}/{epoch}"


def stream(*rows, name="value"):
    """Rows of one column as an Arrow stream."""
    return stream_of(**{name: [row if isinstance(row, str) else json.dumps(row) for row in rows]})


def stream_of(**columns):
    """Columns as an Arrow stream."""
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


class Place(Served):
    def __init__(self, directory, authn=None, topics=(), journal=None, world=None):
        world = world or World(*topics, journal=journal)
        staging = Staging(directory, world.clock.now_us())
        door = BatchCommitHandler(world.runtime, world.engine, staging)
        super().__init__(
            world,
            *routes_to(door),
            authn=authn,
        )

    async def stage(self, *rows, at="w/1", query="", content=None, content_type=ARROW):
        return await self.ask(
            "POST",
            f"/v1/writes/{at}?topic=orders{query}",
            stream(*rows) if content is None else content,
            {"Content-Type": content_type},
        )

    async def commit(self, *parts, at="w/1", **more):
        named = [
            {"part": part, "attempt": attempt, "chunks": chunks, "rows": rows}
            for part, attempt, chunks, rows in parts
        ]
        body = json.dumps({"topic": "orders", "parts": named, **more}).encode()
        return await self.ask("POST", f"/v1/writes/{at}/commit", body)

    @property
    def identities(self):
        return sorted(self.world.engine.topic("orders").records.table.slots)


@stepped
async def test_rows_that_are_staged_are_seen_by_nobody_until_they_are_committed_once(tmp_path):
    async with Place(tmp_path) as place:
        assert (await place.stage({"id": 1}, {"id": 2})).json == {"staged": 2, "rejected": []}
        assert place.identities == []
        committed = await place.commit((0, "0", 1, 2))
        assert committed.json["duplicate"] is False
        assert len(place.identities) == 2
        again = await place.commit((0, "0", 1, 2))
        assert again.json == {"bookmark": committed.json["bookmark"], "duplicate": True}
        assert place.world.journal.last_seq == 2


@stepped
async def test_only_the_attempts_that_won_count(tmp_path):
    async with Place(tmp_path) as place:
        await place.stage({"id": 1}, query="&part=0&attempt=lost")
        await place.stage({"id": 2}, query="&part=0&attempt=won")
        await place.stage({"id": 3}, query="&part=0&attempt=won&chunk=1")
        await place.commit((0, "won", 2, 2))
        assert len(place.identities) == 2


@pytest.mark.parametrize(
    ("parts", "status", "says"),
    [
        ([(0, "0", 2, 1)], 409, "chunk 1 of part 0"),
        ([(0, "0", 1, 5)], 409, "holds 1 rows and the commit names 5"),
        ([(0, "0", 1, 1), (0, "1", 1, 1)], 400, "names a part twice"),
        ([(0, "0", -1, 0)], 400, "`int` >= 0"),
    ],
)
@stepped
async def test_a_commit_of_what_is_not_there_changes_nothing(tmp_path, parts, status, says):
    async with Place(tmp_path) as place:
        await place.stage({"id": 1})
        answer = await place.commit(*parts)
        assert (answer.status, says in answer.json["detail"]) == (status, True)
        assert place.identities == []


@stepped
async def test_chunks_that_are_read_at_once_are_given_their_times_one_after_the_other(
    tmp_path, monkeypatch
):
    timed = replace(ORDERS, keys=("/at",), preprocessing=("UNIX_TIMESTAMP() AS /at",))
    given, threads = [], set()
    arrivals = CommitSequencer.arrivals

    def noted(*requested):
        threads.add(threading.get_ident())
        given.append(arrivals(*requested))
        return given[-1]

    monkeypatch.setattr(CommitSequencer, "arrivals", noted)
    async with Place(tmp_path, topics=(timed,)) as place:
        both = (place.stage(*[{}] * 200, at="w/1", query=f"&chunk={at}") for at in range(2))
        assert [answer.status for answer in await asyncio.gather(*both)] == [200, 200]
        assert (await place.commit((0, "0", 2, 400))).status == 200
        assert len(place.identities) == 400
    assert threads == {threading.get_ident()}
    assert len({*given[0], *given[1]}) == 400


@stepped
async def test_a_bad_row_refuses_its_chunk_or_is_left_out_and_sent(tmp_path):
    async with Place(tmp_path) as place:
        refused = await place.stage({"id": 1}, {"no": 2})
        assert (refused.status, refused.json["index"]) == (400, 1)
        assert [row["index"] for row in refused.json["rejected"]] == [1]
        skipped = (await place.stage({"id": 1}, {"no": 2}, query="&rejects=skip")).json
        assert (skipped["staged"], skipped["rejected"][0]["index"]) == (1, 1)
        assert (await place.commit((0, "0", 1, 1))).status == 200


@pytest.mark.parametrize(
    ("more", "status", "says"),
    [
        ({"at": "w/x"}, 400, "not a whole number"),
        ({"at": "w" * 300 + "/1"}, 400, "1 to 255 printable"),
        ({"query": "&rejects=maybe"}, 400, "rejects=fail or rejects=skip"),
        ({"content_type": "application/json"}, 415, "send application/vnd.apache.arrow"),
        ({"content": b"no stream"}, 400, ""),
        ({"content": stream("x", name="other")}, 400, "it must have value"),
    ],
)
@stepped
async def test_a_chunk_that_is_none_says_why(tmp_path, more, status, says):
    async with Place(tmp_path) as place:
        answer = await place.stage({"id": 1}, **more)
        assert (answer.status, says in answer.json["detail"]) == (status, True)


@stepped
async def test_what_is_given_up_or_was_forgotten_for_long_can_be_committed_no_more(tmp_path):
    async with Place(tmp_path) as place:
        await place.stage({"id": 1})
        assert (await place.ask("DELETE", "/v1/writes/w/1")).json == {"aborted": 1}
        assert (await place.commit((0, "0", 1, 1))).status == 409
        await place.stage({"id": 1}, at="w/2")
        for _ in range(2):
            place.world.clock.advance(200 * SWEEP_US)
            place.world.runtime.wake()
            await asyncio.sleep(1)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]


COMMIT = b'{"topic":"orders","parts":[{"part":0,"attempt":"0","chunks":1,"rows":100}]}'


@pytest.fixture
def _in_small_steps(monkeypatch):
    monkeypatch.setattr("sow.server.loop.scheduler.SLICE_S", 0.0)
    monkeypatch.setattr("sow.sessions.commands.staged_rows.STORED_AT_ONCE", 1)


async def _half_committed(place):
    """The request of a commit whose rows are stored in part, and not visible."""
    await place.stage(*[{"id": number} for number in range(100)])
    socket = await place.begin("POST", "/v1/writes/w/1/commit", COMMIT)
    while not place.identities:
        await asyncio.sleep(0)
    assert len(place.identities) < 100
    return socket


@stepped
@pytest.mark.usefixtures("_in_small_steps")
async def test_others_have_their_turn_between_the_steps_of_a_commit(tmp_path):
    async with Place(tmp_path) as place:
        await _half_committed(place)
        before = len(place.identities)
        await turns(10)
        assert 0 < len(place.identities) - before <= 10


@stepped
@pytest.mark.usefixtures("_in_small_steps")
async def test_a_commit_whose_client_has_gone_is_finished_and_known_for_a_duplicate(tmp_path):
    async with Place(tmp_path) as place:
        socket = await _half_committed(place)
        socket.protocol.connection_lost(None)
        again = await place.ask("POST", "/v1/writes/w/1/commit", COMMIT)
        assert again.json == {"bookmark": "100", "duplicate": True}
        await turns(200)
        assert len(place.identities) == 100
        assert place.world.journal.last_seq == 100


@stepped
@pytest.mark.usefixtures("_in_small_steps")
async def test_a_server_that_stops_in_the_middle_of_a_commit_finishes_it(tmp_path):
    async with Place(tmp_path) as place:
        socket = await _half_committed(place)
        socket.protocol.connection_lost(None)
        await turns()
        assert len(place.identities) < 100
        await place.world.runtime.close()
        assert len(place.identities) == place.world.journal.last_seq == 100


@stepped
@pytest.mark.usefixtures("_in_small_steps")
async def test_a_batch_replaces_what_a_topic_holds_but_not_without_saying_so(tmp_path):
    async with Place(tmp_path) as place:
        await place.stage({"id": 1}, {"id": 2})
        await place.commit((0, "0", 1, 2))
        await place.stage({"id": 3}, at="w/2")
        await place.commit((0, "0", 1, 1), at="w/2", mode="replace")
        assert len(place.identities) == 1
        refused = await place.commit(at="w/3", mode="replace")
        assert (refused.status, "allow_empty" in refused.json["detail"]) == (400, True)
        assert (await place.commit(at="w/3", mode="replace", allow_empty=True)).status == 200
        assert place.identities == []


def chunk(number, writer="w", topic="orders"):
    return Chunk(StagedBatch(writer, 1, topic), Attempt(0, "0"), number)


def test_the_latest_chunks_are_kept_within_rows_and_bytes():
    recent = Recent(rows_max=10, bytes_max=100)
    for number in range(3):
        recent.keep(chunk(number), Read(4, [], [], 10))
    assert recent.take(chunk(0)) is None
    assert recent.take(chunk(2)).rows == 4
    assert recent.take(chunk(2)) is None, "taken once"
    recent.keep(chunk(7), Read(1, [], [], 101))
    assert recent.take(chunk(7)) is None, "too large to keep at all"


def test_a_chunk_that_comes_again_takes_the_place_of_the_first():
    recent = Recent(rows_max=10, bytes_max=100)
    for rows in (9, 10):
        recent.keep(chunk(0), Read(rows, [], [], 1))
    assert recent.take(chunk(0)).rows == 10


def test_a_batch_that_goes_takes_its_chunks_with_it_and_no_others():
    recent = Recent()
    for name in (chunk(0), chunk(0, topic="fills"), chunk(0, writer="v")):
        recent.keep(name, Read(1, [], []))
    recent.drop("w", 1, "orders")
    assert recent.take(chunk(0)) is None
    assert recent.take(chunk(0, topic="fills")) is not None
    recent.drop("v", 1)
    assert recent.take(chunk(0, writer="v")) is None


@stepped
async def test_who_loses_his_rights_while_rows_are_read_commits_none(tmp_path, monkeypatch):
    allow = Allow("orders", read=True, write=True)
    asks = Security(
        authentication=Authentication(tokens_file="tokens"), roles=(Role("all", ("*",), (allow,)),)
    )
    here = authenticator_of(asks, lambda _by: Anybody())
    read = BatchCommitHandler._chunk

    def meanwhile(*requested):
        here.swap_security(here.read(replace(asks, roles=())))
        return read(*requested)

    ann = {"Authorization": "Bearer ann"}
    async with Place(tmp_path, here) as place:
        path = "/v1/writes/w/1"
        rows = stream({"id": 1})
        staged = await place.ask(
            "POST", f"{path}?topic=orders", rows, {"Content-Type": ARROW, **ann}
        )
        assert staged.status == 200
        monkeypatch.setattr(BatchCommitHandler, "_chunk", meanwhile)
        part = {"part": 0, "attempt": "0", "chunks": 1, "rows": 1}
        body = json.dumps({"topic": "orders", "parts": [part]}).encode()
        answer = await place.ask("POST", f"{path}/commit", body, ann)
        assert (answer.status, answer.json["reason"]) == (503, "busy")
        assert place.identities == []


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
