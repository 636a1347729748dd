"""Staged writes: chunks kept aside, applied as a whole, once."""

import asyncio
import json
import threading
from dataclasses import replace

import pyarrow as pa
import pytest

from sow.core.media_types import ARROW
from sow.core.security_definitions import Allow, Authentication, Role, Security
from sow.engine.wal import CommitSequencer
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
    Anybody,
    Served,
    World,
    authenticator_of,
    routes_to,
    stepped,
    turns,
)

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
    monkeypatch.setattr("sow.sessions.commands.commit_plan.STORED_AT_ONCE", 1)


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
