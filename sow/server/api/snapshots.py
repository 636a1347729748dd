"""Snapshots over HTTP: a topic's records of one moment, read in parts by many readers.

A snapshot pins the bodies of the records, which are immutable, under a name. A reader with the name
reads its parts, split by key, as often as it likes: a task that is retried reads the same rows
again. Unused snapshots expire, and a restart drops all of them.

`sow.server.api.snapshot_leases` decides how long they are pinned, and which are released if there
is no room; this module takes, splits, reads and releases them.
"""

import asyncio
import secrets
import zlib

import numpy as np
from aiohttp import web

from sow.core.comma_lists import comma_list
from sow.core.cooperative import Result, Task
from sow.core.media_types import ARROW
from sow.engine.engine import Engine
from sow.engine.running_topics import LiveTopic
from sow.errors import ClientError, UnknownRecord
from sow.history.snapshot import Snapshot
from sow.query import Query
from sow.security.row_level_security import RowPolicy
from sow.server.api.as_of_queries import AsOfQueries
from sow.server.api.response_schemas import Released, SnapshotDescribed
from sow.server.api.snapshot_leases import SNAPSHOT_KEPT_US, SnapshotLease, SnapshotLeases
from sow.server.http.authn_middleware import permissions_of
from sow.server.http.chunked_response import write_pieces
from sow.server.http.request_origin import client_address
from sow.server.http.responses import json_response
from sow.server.http.route import operation, parameters_of, read_count, route
from sow.server.http.tables import of_snapshot, streamed, warm_up
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.queries.access_control import restrict_query, restrict_shape, row_policy_for
from sow.sessions.queries.query_results import execute_query
from sow.topic.rendering import WHOLE

COUNTED_US = 1_000_000
"""How often the memory of snapshots is checked: some hundred thousand changes may come in that
time, and a check takes microseconds."""
PARTS_MAX = 10_000
"""More tasks than a Spark job reads one table with."""
KEYS_AT_ONCE = 2_000
"""String keys whose part is computed in one step: a fraction of a millisecond."""
NOTHING = np.zeros(0, np.int64)
TAKE_PARAMETERS = ("topic", "filter", "keys", "as_of", "parts")
SNAPSHOT = "/v1/snapshots/{id}"


class SnapshotHandler:
    """`/v1/snapshots` of one server."""

    def __init__(self, driver: ServerRuntime, engine: Engine, past: AsOfQueries) -> None:
        self._driver = driver
        self._engine = engine
        self._taken = SnapshotLeases(engine)
        self._past = past
        self._bounding: asyncio.Task[None] | None = None
        self._looked_us = 0
        driver.idle_work["looking after snapshots"] = self._look_after

    @property
    def taken(self) -> SnapshotLeases:
        """All leases; `sow.server.api.cursors` adds its own."""
        return self._taken

    @route("POST", "/v1/snapshots", "read", "Take a snapshot of a topic", TAKE_PARAMETERS)
    @operation("take_snapshot", SnapshotDescribed, requires=("topic",))
    async def take(self, request: web.Request) -> web.Response:
        """`POST /v1/snapshots`: pin all records of a topic, or those that match a filter or keys,
        now or as of a moment; raises ClientError, UnknownTopic, Busy, TooLarge."""
        requested = parameters_of(request)
        if "topic" not in requested:
            raise ClientError("give the topic to take a snapshot of: topic=orders")
        parts = read_count(requested, "parts") or 1
        if parts > PARTS_MAX:
            raise ClientError(f"parts={parts} is over {PARTS_MAX}")
        topic = self._engine.topic(requested["topic"])
        guard = row_policy_for(permissions_of(request), topic.records)
        snapshot, bookmark = await self._snapshot(requested, guard)
        self._taken.make_room(client_address(request), len(snapshot), self._driver.now_us())
        split = await self._in_turns(split_by_key(snapshot, parts))
        name = await self.keep(request, topic, split, bookmark, guard)
        return json_response(
            {
                "snapshot": name,
                "topic": requested["topic"],
                "bookmark": str(bookmark),
                "rows": len(snapshot),
                "parts": parts,
                "expires_s": SNAPSHOT_KEPT_US // 1_000_000,
            }
        )

    async def keep(
        self,
        request: web.Request,
        topic: LiveTopic,
        parts: list[Snapshot],
        bookmark: int,
        guard: RowPolicy | None,
        form: object = None,
    ) -> str:
        """Pin rows for the user of the request, whose row policy on the topic is `guard`; returns
        the name of the lease.

        Raises Busy and TooLarge if there is no room.
        """
        client, now_us = client_address(request), self._driver.now_us()
        self._taken.make_room(client, sum(map(len, parts)), now_us)
        name, owner = secrets.token_urlsafe(12), permissions_of(request).owner
        taken = SnapshotLease(name, client, topic, parts, bookmark, now_us, owner, guard, form)
        await self._in_turns(taken.measure())
        self._taken.add(taken)
        await self._bound()
        return name

    async def _snapshot(
        self, requested: dict[str, str], guard: RowPolicy | None
    ) -> tuple[Snapshot, int]:
        engine, text = self._engine, requested.get("filter")
        condition = self._driver.filter(text) if text is not None else None
        keys = tuple(comma_list(requested["keys"])) if "keys" in requested else None
        query = restrict_query(Query(filter=condition, keys=keys), guard)
        if "as_of" in requested:
            room = self._taken.client_bytes_max
            then = await self._past.query(requested["topic"], requested["as_of"], query, room)
            return then.rows, then.bookmark
        found = await self._in_turns(execute_query(engine, requested["topic"], query))
        if self._driver.failure is None:
            await self._driver.durable()
        return found.rows, found.bookmark

    async def _in_turns(self, steps: Task[Result]) -> Result:
        return await self._driver.turns.run("a snapshot", steps)

    @route("GET", SNAPSHOT, "logon", "A part of it", ("part",))
    @operation("read_snapshot", answers=(ARROW,))
    async def read(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/snapshots/{id}`: one part of a snapshot, as an Arrow stream; raises
        UnknownRecord, ClientError."""
        requested = parameters_of(request)
        taken = self._named(request)
        part = read_count(requested, "part") or 0
        if part >= len(taken.parts):
            raise ClientError(
                f"part={part}: this snapshot has the parts 0 to {len(taken.parts) - 1}"
            )
        response = web.StreamResponse(headers={"SOW-Bookmark": str(taken.bookmark)})
        response.content_type = ARROW
        await response.prepare(request)
        await warm_up()
        shape = restrict_shape(WHOLE, taken.guard)
        pieces = streamed(of_snapshot(taken.parts[part], shape))
        await write_pieces(self._driver.turns, "reading a snapshot", request, response, pieces)
        taken.touch(self._driver.now_us())
        return response

    @route("DELETE", SNAPSHOT, "logon", "Let a snapshot go")
    @operation("release_snapshot", Released)
    async def release(self, request: web.Request) -> web.Response:
        """`DELETE /v1/snapshots/{id}`: release a snapshot."""
        name = self._named(request).name
        self._taken.drop(name)
        return json_response({"released": name})

    def _named(self, request: web.Request) -> SnapshotLease:
        """The snapshot in the address, if it is the user's and the topic may still be read."""
        name, rights = request.match_info["id"], permissions_of(request)
        taken = self._taken.use(name, self._driver.now_us(), rights.owner)
        if taken.form is not None:
            raise UnknownRecord(f"{name} is not a snapshot: it holds the pages of a cursor")
        rights.check("read", taken.topic.name)
        if row_policy_for(rights, taken.topic.records) != taken.guard:
            # It holds what the user could see before.
            self._taken.drop(name)
            return self._taken.use(name, self._driver.now_us(), rights.owner)
        return taken

    async def _bound(self) -> None:
        """Release snapshots that hold too much, if a count confirms the estimate."""
        counted: set[str] = set()
        while over := self._taken.over():
            doubtful = [taken for taken in over if taken.name not in counted]
            for taken in doubtful:
                counted.add(taken.name)
                await self._in_turns(taken.count())
            if not doubtful:
                self._taken.drop(over[0].name)

    def _look_after(self, now_us: int) -> bool:
        self._taken.expire(now_us)
        if now_us - self._looked_us > COUNTED_US:
            self._looked_us = now_us
            is_busy = self._bounding is not None and not self._bounding.done()
            if not is_busy and self._taken.over():
                self._bounding = asyncio.create_task(self._bound())
        return False


def split_by_key(snapshot: Snapshot, parts: int) -> Task[list[Snapshot]]:
    """The rows split into `parts` by key: a key is always in the same part."""
    if parts == 1:
        return [snapshot]
    chosen = yield from _parts_of_keys(snapshot, parts)
    places = np.split(np.argsort(chosen, kind="stable"), np.cumsum(np.bincount(chosen))[:-1])
    empty = snapshot.at(NOTHING)  # shared: of ten thousand parts of a few rows most are empty
    found = []
    for rows in places:
        found.append(snapshot.at(rows) if len(rows) else empty)
        yield
    return found + [empty] * (parts - len(found))


def _parts_of_keys(snapshot: Snapshot, parts: int) -> Task["np.typing.NDArray[np.uint16]"]:
    """The part of each row; 16-bit numbers are sorted in one pass."""
    assert snapshot.stamps is not None
    sow_keys = snapshot.stamps.sow_keys
    if sow_keys.numbers is not None:
        return (sow_keys.numbers % np.uint64(parts)).astype(np.uint16)
    chosen = np.zeros(len(snapshot), np.uint16)
    for start in range(0, len(snapshot), KEYS_AT_ONCE):
        stop = start + KEYS_AT_ONCE
        chosen[start:stop] = [zlib.crc32(k.encode()) % parts for k in sow_keys.part(start, stop)]
        yield
    return chosen
