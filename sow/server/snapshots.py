"""Snapshots over HTTP: a topic's records of one moment, to be read in parts by many readers.

A reader takes a snapshot, which holds the records' bodies as they are (they never change), and is
given its name. Whoever has the name reads parts of it, split by key, as often as they like: a
task that failed and is tried again reads what it read before. Snapshots that nobody has asked for
in a while are dropped, and with the server all of them.

A snapshot costs no copy, until its records change: then it alone holds what they were. What all
snapshots, and those of one client, hold so is bounded, and beyond it those go that have not been
asked for the longest. It is not counted at every change, which would cost everybody, but estimated
from above by the number of changes and the largest body, and counted where that is too much.
"""

import asyncio
import secrets
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from aiohttp import web

from sow.engine.engine import Engine
from sow.engine.live_topics import LiveTopic
from sow.errors import Busy, ClientError, TooLarge, UnknownRecord, shown
from sow.expressions import Filter
from sow.history.bookmarks import parse_start
from sow.history.snapshot import Snapshot
from sow.history.snapshot_as_of import as_of
from sow.lists import comma_list
from sow.media_types import ARROW
from sow.query import Query
from sow.server.arrow import of_snapshot, write_stream
from sow.server.driver import Driver
from sow.server.gate import client_address
from sow.server.parameters import asked_of, read_count
from sow.server.responses import json_response

SNAPSHOT_KEPT_US = 600_000_000
IDLE_US = 60_000_000
"""When there are too many, those go first that nobody has asked for in so long."""
COUNTED_US = 1_000_000
SNAPSHOTS_MAX = 1_000
ROWS_MAX = 20_000_000
CLIENT_PART = 4
"""One client may have a quarter of all snapshots and of their memory, and half of all rows."""
CLIENT_ROWS_PART = 2
PARTS_MAX = 10_000
AS_OF_AT_ONCE = 2
"""States of the past that are worked out at once: each reads the log from its beginning."""
AS_OF_WAITING_MAX = 20
TAKE_PARAMETERS = ("topic", "filter", "keys", "as_of", "parts")
READ_PARAMETERS = ("part",)


@dataclass(slots=True, eq=False)
class Taken:
    """A snapshot that readers have the name of.

    Its bodies have `size_bytes`, none more than `largest_bytes`. When its topic had had `updates`,
    `held_bytes` of them were no record's any more.
    """

    name: str
    client: str
    topic: LiveTopic
    parts: list[Snapshot]
    bookmark: int
    used_us: int
    size_bytes: int = 0
    largest_bytes: int = 0
    held_bytes: int = 0
    updates: int = 0

    @property
    def rows(self) -> int:
        """How many rows are held."""
        return sum(map(len, self.parts))

    def measure(self) -> "Taken":
        """See how large it is."""
        for part in self.parts:
            self.size_bytes += sum(map(len, part.bodies))
            self.largest_bytes = max(self.largest_bytes, max(map(len, part.bodies), default=0))
        return self.count()

    def count(self) -> "Taken":
        """Count what is held by it alone; in a thread, since the rows may be many."""
        updates = self.topic.updates
        self.held_bytes = sum(map(_changed_bytes, self.parts))
        self.updates = updates
        return self

    def at_most_bytes(self, is_there: bool) -> int:
        """What may be held by it alone now; all if its topic is not there any more."""
        changed_bytes = (self.topic.updates - self.updates) * self.largest_bytes
        return (
            min(self.size_bytes, self.held_bytes + changed_bytes) if is_there else self.size_bytes
        )


def _changed_bytes(part: Snapshot) -> int:
    table = part.topic.table
    slots, bodies = table.slots, table.bodies
    return sum(
        len(body)
        for name, body in zip(part.identities, part.bodies, strict=True)
        if (slot := slots.get(name)) is None or bodies[slot] is not body
    )


class SnapshotDoor:
    """The snapshots of one server."""

    def __init__(self, driver: Driver, engine: Engine) -> None:
        self._driver = driver
        self._engine = engine
        self._taken: dict[str, Taken] = {}
        self._past = ThreadPoolExecutor(AS_OF_AT_ONCE, thread_name_prefix="as-of")
        self._past_waiting = 0
        self._bounding: asyncio.Task[None] | None = None
        self._looked_us = 0
        driver.idle_work.append(self._look_after)

    async def take(self, request: web.Request) -> web.Response:
        """Take a snapshot: all records of a topic, or those that a filter or keys name."""
        asked = asked_of(request)
        if "topic" not in asked:
            raise ClientError("give the topic to take a snapshot of: topic=orders")
        parts = read_count(asked, "parts") or 1
        if parts > PARTS_MAX:
            raise ClientError(f"parts={parts} is over {PARTS_MAX}")
        topic, client = self._engine.topic(asked["topic"]), client_address(request)
        snapshot, bookmark = await self._snapshot(asked)
        self._make_room(client, len(snapshot))
        split = await asyncio.to_thread(split_by_key, snapshot, parts)
        name, now_us = secrets.token_urlsafe(12), self._driver.now_us()
        taken = Taken(name, client, topic, split, bookmark, now_us)
        self._taken[name] = await asyncio.to_thread(taken.measure)
        await self._bound()
        return json_response(
            {
                "snapshot": name,
                "topic": asked["topic"],
                "bookmark": str(bookmark),
                "rows": len(snapshot),
                "parts": parts,
                "expires_s": SNAPSHOT_KEPT_US // 1_000_000,
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
        if not topic.is_logged:
            raise ClientError(f"topic {name} has no log, so only its present state can be read")
        topic.records.check_filter(condition)
        table = topic.records.table
        slots = table.live().tolist()
        now, newest = Snapshot.take(topic.records, slots), self._engine.seq
        born = dict(zip(now.identities, table.born[slots].tolist(), strict=True))
        await self._driver.durable()
        instead = "a state is of one moment: write a bookmark or a time"
        bookmark = parse_start("as_of", moment, journal, newest, instead)
        room = self._bytes_max // CLIENT_PART
        then = await self._in_past(partial(as_of, now, newest, bookmark, journal, born, room))
        return _narrowed(then, condition, keys), bookmark

    async def _in_past(self, work: Callable[[], Snapshot]) -> Snapshot:
        """Work out a state of the past when it is its turn; it goes on though a client has gone."""
        if self._past_waiting >= AS_OF_WAITING_MAX:
            raise Busy(f"{AS_OF_WAITING_MAX} snapshots of the past are being worked out; try later")

        def counted() -> Snapshot:
            try:
                return work()
            finally:
                loop.call_soon_threadsafe(done)

        def done() -> None:
            self._past_waiting -= 1

        loop = asyncio.get_running_loop()
        self._past_waiting += 1
        return await asyncio.shield(loop.run_in_executor(self._past, counted))

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

    # Room.

    @property
    def _bytes_max(self) -> int:
        return self._engine.configuration.limits.snapshot_bytes_max

    def _make_room(self, client: str, rows: int) -> None:
        """Room for a snapshot more, of so many rows; raises Busy when all that is held is in use,
        TooLarge for what a client can never have."""
        if rows > ROWS_MAX // CLIENT_ROWS_PART:
            raise TooLarge(
                f"the snapshot has {rows} rows, over {ROWS_MAX // CLIENT_ROWS_PART}; take it of "
                "fewer records, by a filter"
            )
        idle_since_us = self._driver.now_us() - IDLE_US
        for whose, part, rows_part in ((client, CLIENT_PART, CLIENT_ROWS_PART), (None, 1, 1)):
            found = self._longest_unused(whose)
            held = sum(taken.rows for taken in found)
            count = len(found)
            for taken in found:
                if count < SNAPSHOTS_MAX // part and held + rows <= ROWS_MAX // rows_part:
                    break
                if taken.used_us > idle_since_us:
                    raise Busy(
                        f"{count} snapshots of {held} rows are in use; release some "
                        "(DELETE /v1/snapshots/{id}), or wait"
                    )
                held, count = held - taken.rows, count - 1
                del self._taken[taken.name]

    def _longest_unused(self, client: str | None = None) -> list[Taken]:
        """All snapshots, or those of a client, from the one that was asked for the longest ago."""
        found = [one for one in self._taken.values() if client in (None, one.client)]
        return sorted(found, key=lambda taken: taken.used_us)

    def _over(self) -> list[Taken]:
        """Snapshots that hold too much together; none, if none do."""
        held: Counter[str] = Counter()
        for taken in self._taken.values():
            topic = self._engine.topics.get(taken.topic.definition.name)
            held[taken.client] += taken.at_most_bytes(topic is taken.topic)
        for client, size_bytes in held.items():
            if size_bytes > self._bytes_max // CLIENT_PART:
                return self._longest_unused(client)
        return self._longest_unused() if held.total() > self._bytes_max else []

    async def _bound(self) -> None:
        """Let those go that hold too much, if a count confirms it."""
        counted: set[str] = set()
        while over := self._over():
            doubtful = [taken for taken in over if taken.name not in counted]
            for taken in doubtful:
                counted.add(taken.name)
                await asyncio.to_thread(taken.count)
            if not doubtful:
                self._taken.pop(over[0].name, None)

    def _look_after(self, now_us: int) -> bool:
        for name, taken in list(self._taken.items()):
            if now_us - taken.used_us > SNAPSHOT_KEPT_US:
                del self._taken[name]
        if now_us - self._looked_us > COUNTED_US:
            self._looked_us = now_us
            is_busy = self._bounding is not None and not self._bounding.done()
            if not is_busy and self._over():
                self._bounding = asyncio.create_task(self._bound())
        return False

    def _named(self, request: web.Request) -> Taken:
        name = request.match_info["id"]
        taken = self._taken.get(name)
        if taken is None:
            raise UnknownRecord(
                f"no snapshot {shown(name)}: it was released, not used for "
                f"{SNAPSHOT_KEPT_US // 1_000_000} s, let go since its records have changed "
                "(Limits/SnapshotMemory), or the server was restarted; take another one"
            )
        taken.used_us = self._driver.now_us()
        return taken


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
    empty = snapshot.at([])  # ten thousand parts of a few rows are one that is empty, mostly
    found = [snapshot.at(rows.tolist()) if len(rows) else empty for rows in places]
    return found + [empty] * (parts - len(found))


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
