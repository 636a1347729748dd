"""Snapshots over HTTP: a topic's records of one moment, to be read in parts by many readers.

A reader takes a snapshot, which holds the records' bodies as they are (they never change), and is
given its name. Whoever has the name reads parts of it, split by key, as often as they like: a
task that failed and is tried again reads what it read before. Snapshots that nobody has asked for
in a while are dropped, and with the server all of them.
"""

import asyncio
import secrets
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from aiohttp import web

from sow.as_of import as_of
from sow.bookmarks import parse_start
from sow.engine import Engine
from sow.errors import ClientError, TooLarge, UnknownRecord, shown
from sow.expressions import Filter
from sow.query import Query
from sow.server.arrow import ARROW, of_snapshot, write_stream
from sow.server.driver import Driver
from sow.server.parameters import asked_of, read_count
from sow.server.responses import json_response
from sow.snapshot import Snapshot
from sow.subscriptions import is_logged
from sow.wire import comma_list

KEPT_US = 600_000_000
IDLE_US = 60_000_000
"""When there are too many, those go first that nobody has asked for in so long."""
SNAPSHOTS_MAX = 1_000
ROWS_MAX = 20_000_000
PARTS_MAX = 10_000
TAKE_PARAMETERS = ("topic", "filter", "keys", "as_of", "parts")
READ_PARAMETERS = ("part",)


@dataclass(slots=True)
class Taken:
    """A snapshot that readers have the name of."""

    parts: list[Snapshot]
    bookmark: int
    used_us: int

    @property
    def rows(self) -> int:
        """How many rows are held."""
        return sum(map(len, self.parts))


class SnapshotDoor:
    """The snapshots of one server."""

    def __init__(self, driver: Driver, engine: Engine) -> None:
        self._driver = driver
        self._engine = engine
        self._taken: dict[str, Taken] = {}
        driver.idle_work.append(self._drop_old)

    async def take(self, request: web.Request) -> web.Response:
        """Take a snapshot: all records of a topic, or those that a filter or keys name."""
        asked = asked_of(request)
        if "topic" not in asked:
            raise ClientError("give the topic to take a snapshot of: topic=orders")
        parts = read_count(asked, "parts") or 1
        if parts > PARTS_MAX:
            raise ClientError(f"parts={parts} is over {PARTS_MAX}")
        snapshot, bookmark = await self._snapshot(asked)
        self._make_room(len(snapshot))
        split = await asyncio.to_thread(split_by_key, snapshot, parts)
        name = secrets.token_urlsafe(12)
        self._taken[name] = Taken(split, bookmark, self._driver.now_us())
        return json_response(
            {
                "snapshot": name,
                "topic": asked["topic"],
                "bookmark": str(bookmark),
                "rows": len(snapshot),
                "parts": parts,
                "expires_s": KEPT_US // 1_000_000,
            }
        )

    async def _snapshot(self, asked: dict[str, str]) -> tuple[Snapshot, int]:
        engine, text = self._engine, asked.get("filter")
        condition = engine.filter(text) if text is not None else None
        keys = tuple(comma_list(asked["keys"])) if "keys" in asked else None
        if "as_of" in asked:
            return await self._earlier(asked["topic"], asked["as_of"], condition, keys)
        answer = engine.query(asked["topic"], Query(filter=condition, keys=keys))
        snapshot = Snapshot.take(engine.topic(asked["topic"]).records, answer.slots.tolist())
        bookmark = engine.seq
        if self._driver.failure is None:
            await self._driver.durable()
        return snapshot, bookmark

    async def _earlier(
        self, name: str, moment: str, condition: Filter | None, keys: tuple[str, ...] | None
    ) -> tuple[Snapshot, int]:
        topic, journal = self._engine.topic(name), self._driver.journal
        if not is_logged(topic):
            raise ClientError(f"topic {name} has no log, so only its present state can be read")
        topic.records.check_filter(condition)
        table = topic.records.table
        slots = table.live().tolist()
        now, newest = Snapshot.take(topic.records, slots), self._engine.seq
        born = dict(zip(now.identities, table.born[slots].tolist(), strict=True))
        await self._driver.durable()
        instead = "a state is of one moment: write a bookmark or a time"
        bookmark = parse_start("as_of", moment, journal, newest, instead)
        then = await asyncio.to_thread(as_of, now, newest, bookmark, journal, born)
        return _narrowed(then, condition, keys), bookmark

    async def read(self, request: web.Request) -> web.StreamResponse:
        """One part of a snapshot, as an Arrow stream."""
        asked = asked_of(request)
        taken = self._named(request)
        part = read_count(asked, "part") or 0
        if part >= len(taken.parts):
            raise ClientError(
                f"part={part}: this snapshot has the parts 0 to {len(taken.parts) - 1}"
            )
        response = web.StreamResponse(headers={"SOW-Bookmark": str(taken.bookmark)})
        response.content_type = ARROW
        await response.prepare(request)
        await write_stream(response, of_snapshot(taken.parts[part]))
        taken.used_us = self._driver.now_us()
        return response

    async def release(self, request: web.Request) -> web.Response:
        """Let a snapshot go."""
        self._named(request)
        del self._taken[request.match_info["id"]]
        return json_response({"released": request.match_info["id"]})

    def _make_room(self, rows: int) -> None:
        """Room for so many rows more; raises TooLarge when all that is held is in use."""
        held = sum(taken.rows for taken in self._taken.values())
        by_use = sorted(self._taken.items(), key=lambda item: item[1].used_us)
        idle_since_us = self._driver.now_us() - IDLE_US
        for name, taken in by_use:
            if len(self._taken) < SNAPSHOTS_MAX and held + rows <= ROWS_MAX:
                return
            if taken.used_us > idle_since_us:
                raise TooLarge(
                    f"{len(self._taken)} snapshots of {held} rows are in use; release some "
                    "(DELETE /v1/snapshots/{id}), or wait"
                )
            held -= taken.rows
            del self._taken[name]

    def _named(self, request: web.Request) -> Taken:
        name = request.match_info["id"]
        taken = self._taken.get(name)
        if taken is None:
            raise UnknownRecord(
                f"no snapshot {shown(name)}: it was released, not used for "
                f"{KEPT_US // 1_000_000} s, or the server was restarted; take another one"
            )
        taken.used_us = self._driver.now_us()
        return taken

    def _drop_old(self, now_us: int) -> bool:
        for name, taken in list(self._taken.items()):
            if now_us - taken.used_us > KEPT_US:
                del self._taken[name]
        return False


def split_by_key(snapshot: Snapshot, parts: int) -> list[Snapshot]:
    """The same rows in `parts` parts, those of a key always in the same one."""
    if parts == 1:
        return [snapshot]
    numbers = (
        pa.array(snapshot.sow_keys, pa.string()).cast(pa.uint64()).to_numpy()
        if snapshot.topic.keys
        else np.array([zlib.crc32(key.encode()) for key in snapshot.sow_keys], np.uint64)
    )
    chosen = (numbers % np.uint64(parts)).astype(np.int64)
    places = np.split(np.argsort(chosen, kind="stable"), np.cumsum(np.bincount(chosen))[:-1])
    found = [snapshot.at(rows.tolist()) for rows in places]
    return found + [snapshot.at([]) for _ in range(parts - len(found))]


def _narrowed(
    snapshot: Snapshot, condition: Filter | None, keys: tuple[str, ...] | None
) -> Snapshot:
    if condition is not None and len(snapshot):
        columns: Any = snapshot.topic.decoder(condition.paths).columns(snapshot.bodies)
        inside = condition.matches(columns, len(snapshot))
        snapshot = snapshot.at([at for at, hit in enumerate(inside) if hit])
    if keys is not None:
        wanted = set(keys)
        snapshot = snapshot.at([at for at, k in enumerate(snapshot.sow_keys) if k in wanted])
    return snapshot
