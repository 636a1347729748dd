"""Snapshots over HTTP: a topic's records of one moment, read in parts by many readers.

A snapshot pins the bodies of the records, which are immutable, under a name. A reader with the name
reads its parts, split by key, as often as it likes: a task that is retried reads the same rows
again. Unused snapshots expire, and a restart drops all of them.

A snapshot costs no copy until its records change: then it alone holds the old bodies. These bytes
are bounded in all and per client; beyond the bounds the least recently used snapshots are released.
The bytes are not counted at each change, which would slow down every publish, but estimated from
above by the number of changes and the largest body, and counted in steps when the estimate exceeds
a bound.

`AsOfQueries` are queries as of a bookmark or a time in the past. The states are computed by
`sow.sessions.queries.past_states`, in slices beside other work. An answer is given when all that it
shows is durable; none is computed for a client that has gone.
"""

import asyncio
import secrets
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from aiohttp import web

from sow.core.containers import ShardedDict
from sow.core.cooperative import Result, Task
from sow.core.media_types import ARROW
from sow.engine.engine import Engine
from sow.engine.running_topics import LiveTopic
from sow.errors import Busy, ClientError, TooLarge, UnknownRecord, shown
from sow.history.bookmarks import Moment
from sow.history.snapshot import NOWHERE, Snapshot
from sow.query import Query
from sow.security.row_level_security import RowPolicy
from sow.server.api.response_schemas import Released, SnapshotDescribed
from sow.server.http.authn_middleware import permissions_of
from sow.server.http.chunked_response import write_pieces
from sow.server.http.request_origin import client_address
from sow.server.http.responses import json_response
from sow.server.http.route import (
    SNAPSHOTS,
    check_named,
    operation,
    parameters_of,
    read_count,
    read_sow_keys,
    route,
)
from sow.server.http.tables import columns_of, of_snapshot, shape_of, streamed, warm_up
from sow.server.loop.runtime import ServerRuntime
from sow.server.net.connection_supervisor import end_with_client
from sow.sessions.queries.access_control import restrict_query, restrict_shape, row_policy_for
from sow.sessions.queries.newest_events import read_events
from sow.sessions.queries.past_states import PastStates, ReplayListener
from sow.sessions.queries.query_results import QueryResult, execute_query


class AsOfQueries:
    """As-of queries on the topics of one server."""

    def __init__(self, runtime: ServerRuntime, past: PastStates) -> None:
        self._runtime = runtime
        self._past = past

    async def query(
        self,
        request: web.Request,
        name: str,
        text: str,
        query: Query,
        admit: Callable[[int], None] = lambda _rows: None,
        is_stamped: bool = True,
    ) -> QueryResult:
        """The result of a query as of a bookmark or a time; raises what `PastStates.query` does."""
        self._runtime.engine.sequencer.moment(self._runtime.now_us())
        return await self._durably(request, self._past.query(name, text, query, admit, is_stamped))

    async def listen(
        self, request: web.Request, name: str, text: str, listener: ReplayListener
    ) -> Moment:
        """Compute a topic again for a listener; raises what `PastStates.listen` does."""
        self._runtime.engine.sequencer.moment(self._runtime.now_us())
        return await self._durably(request, self._past.listen(name, text, listener))

    async def bodies(
        self, request: web.Request, topic: LiveTopic, bookmark: int, bytes_max: int
    ) -> ShardedDict[str, bytes]:
        """The bodies of a logged topic at a bookmark; raises what `PastStates.bodies` does."""
        return await self._durably(request, self._past.bodies(topic, bookmark, bytes_max))

    async def _durably(self, request: web.Request, steps: Task[Result]) -> Result:
        end_with_client(request)  # it may take many seconds, and others wait in line
        found = await self._runtime.turns.run("a state of the past", steps)
        await self._runtime.durable()
        return found


COUNTED_US = 1_000_000
"""How often the memory of snapshots is checked: some hundred thousand changes may come in that
time, and a check takes microseconds."""
PARTS_MAX = 10_000
"""More tasks than a Spark job reads one table with."""
KEYS_AT_ONCE = 2_000
"""String keys whose part is computed in one step: a fraction of a millisecond."""
NOTHING = np.zeros(0, np.int64)
TAKE_PARAMETERS = ("topic", "filter", "keys", "key", "as_of", "last", "parts")
PART_PARAMETERS = ("part", "select", "columns")
SNAPSHOT_PATH = "/v1/snapshots/{id}"
SNAPSHOT_KEPT_US = 600_000_000
"""How long an unused snapshot is pinned: a failed task is retried before that."""
IDLE_US = 60_000_000
"""Unused for so long, a snapshot may be released to make room: the tasks of a running job read more
often."""
SNAPSHOTS_MAX = 1_000
"""Of all clients: more than all jobs of a cluster take at a time."""
ROWS_MAX = 20_000_000
"""Of all snapshots: each row takes some fifty bytes of references and numbers."""
ROWS_AT_ONCE = 2_000
"""Rows measured in one step: a fraction of a millisecond."""
CLIENT_PART = 4
"""One client may have a quarter of all snapshots and of their memory, so that others find room."""
CLIENT_ROWS_PART = 2
"""And half of all rows: the table read may be the largest there is."""


@dataclass(slots=True, eq=False)
class SnapshotLease:
    """A snapshot pinned under a name.

    Its bodies have `size_bytes`, none more than `largest_bytes`. At `updates` changes of its topic,
    `held_bytes` of them belonged to no record any more.
    """

    name: str
    client: str
    topic: LiveTopic
    parts: list[Snapshot]
    bookmark: int
    used_us: int
    owner: str = ""
    """The user (`Permissions.owner_text`)."""
    guard: RowPolicy | None = None
    """The row policy of the user when it was taken."""
    form: object = None
    """How a cursor renders its pages (`sow.server.api.cursors`); None: a snapshot."""
    size_bytes: int = 0
    largest_bytes: int = 0
    held_bytes: int = 0
    updates: int = 0
    rests: bool = False
    """Released before others: it may not be read any more."""

    @property
    def unused_since_us(self) -> int:
        """When it was last used; if it rests, long enough ago to be released."""
        return self.used_us - IDLE_US - 1 if self.rests else self.used_us

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(map(len, self.parts))

    def touch(self, now_us: int) -> None:
        """Mark it as used now."""
        self.used_us, self.rests = now_us, False

    def rest(self, now_us: int) -> None:
        """Mark it as the first to release: it was read to its end, or only its first page."""
        self.used_us, self.rests = now_us, True

    def measure(self) -> Task[None]:
        """Measure its bodies."""
        for _slots, bodies in self._chunks():
            sizes = list(map(len, bodies))
            self.size_bytes += sum(sizes)
            self.largest_bytes = max(self.largest_bytes, *sizes)
            yield
        yield from self.count()

    def count(self) -> Task[None]:
        """Count the bytes that it alone holds."""
        updates, earlier_bytes, held_bytes = self.topic.updates, self.held_bytes, 0
        there = self.topic.records.table.bodies
        for slots, bodies in self._chunks():
            held_bytes += sum(
                len(body)
                for slot, body in zip(slots, bodies, strict=True)
                if slot == NOWHERE or there[slot] is not body
            )
            yield
        # A change cursor may have moved on meanwhile, and holds more.
        self.held_bytes += held_bytes - earlier_bytes
        self.updates = updates

    def _chunks(self) -> Iterator[tuple[list[int], list[bytes]]]:
        """Slots and bodies, as many as one step handles."""
        for part in self.parts:
            for start in range(0, len(part), ROWS_AT_ONCE):
                stop = start + ROWS_AT_ONCE
                yield part.slots[start:stop].tolist(), part.bodies.part(start, stop)

    def at_most_bytes(self, is_there: bool) -> int:
        """An upper bound of the bytes that it alone holds; all of them if its topic is gone."""
        changed_bytes = (self.topic.updates - self.updates) * self.largest_bytes
        return (
            min(self.size_bytes, self.held_bytes + changed_bytes) if is_there else self.size_bytes
        )


class SnapshotLeases:
    """The leases of one server, by name."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._by_name: dict[str, SnapshotLease] = {}

    @property
    def _bytes_max(self) -> int:
        return self._engine.configuration.limits.snapshot_bytes_max

    @property
    def client_bytes_max(self) -> int:
        """Bytes that the snapshots of one client may hold alone."""
        return self._bytes_max // CLIENT_PART

    @property
    def client_rows_max(self) -> int:
        """Rows that the snapshots of one client may have."""
        return ROWS_MAX // CLIENT_ROWS_PART

    @property
    def rows(self) -> int:
        """The rows of all leases."""
        return sum(taken.rows for taken in self._by_name.values())

    def add(self, taken: SnapshotLease) -> None:
        """Pin a snapshot under its name."""
        self._by_name[taken.name] = taken

    def use(self, name: str, now_us: int, owner: str = "") -> SnapshotLease:
        """The snapshot of a name, marked as used; raises UnknownRecord, also for another owner."""
        taken = self._by_name.get(name)
        if taken is None or taken.owner != owner:
            raise UnknownRecord(
                f"no snapshot {shown(name)}: it was released, not used for "
                f"{SNAPSHOT_KEPT_US // 1_000_000} s, dropped because its records have changed "
                "(Limits/SnapshotMemory), or the server was restarted; take another one"
            )
        taken.touch(now_us)
        return taken

    def rest(self, name: str, now_us: int) -> None:
        """Mark a snapshot as the first to release, if it is still there."""
        if name in self._by_name:
            self._by_name[name].rest(now_us)

    def all(self) -> Iterable[SnapshotLease]:
        """Every lease."""
        return self._by_name.values()

    def drop(self, name: str) -> None:
        """Release a snapshot, if it is still there."""
        self._by_name.pop(name, None)

    def expire(self, now_us: int) -> None:
        """Release snapshots that were not used for long."""
        for name, taken in list(self._by_name.items()):
            if now_us - taken.used_us > SNAPSHOT_KEPT_US:
                del self._by_name[name]

    def make_room(self, client: str, rows: int, now_us: int) -> None:
        """Release idle snapshots until there is room for another one of `client`, of so many rows.

        Raises Busy if all are in use, TooLarge if a client can never have so many rows.
        """
        if rows > self.client_rows_max:
            raise TooLarge(
                f"the snapshot has {rows} rows, over {self.client_rows_max}; take it of "
                "fewer records, by a filter"
            )
        idle_since_us = now_us - IDLE_US
        for of, part, rows_part in ((client, CLIENT_PART, CLIENT_ROWS_PART), (None, 1, 1)):
            found = self._longest_unused(of)
            held = sum(taken.rows for taken in found)
            count = len(found)
            for taken in found:
                if count < SNAPSHOTS_MAX // part and held + rows <= ROWS_MAX // rows_part:
                    break
                if taken.unused_since_us > idle_since_us:
                    raise Busy(
                        f"{count} snapshots of {held} rows are in use; release some "
                        "(DELETE /v1/snapshots/{id}), or wait"
                    )
                held, count = held - taken.rows, count - 1
                del self._by_name[taken.name]

    def _longest_unused(self, client: str | None = None) -> list[SnapshotLease]:
        """All snapshots, or those of a client, the least recently used first."""
        found = [one for one in self._by_name.values() if client in (None, one.client)]
        return sorted(found, key=lambda taken: taken.unused_since_us)

    def over(self) -> list[SnapshotLease]:
        """The snapshots of a client, or all, if together they exceed a bound; otherwise none."""
        held: Counter[str] = Counter()
        for taken in self._by_name.values():
            topic = self._engine.topics.get(taken.topic.name)
            held[taken.client] += taken.at_most_bytes(topic is taken.topic)
        for client, size_bytes in held.items():
            if size_bytes > self.client_bytes_max:
                return self._longest_unused(client)
        return self._longest_unused() if held.total() > self._bytes_max else []


class SnapshotHandler:
    """`/v1/snapshots` of one server."""

    def __init__(self, runtime: ServerRuntime, engine: Engine, past: AsOfQueries) -> None:
        self._runtime = runtime
        self._engine = engine
        self._taken = SnapshotLeases(engine)
        self._past = past
        self._bounding: asyncio.Task[None] | None = None
        self._looked_us = 0
        runtime.idle_work["looking after snapshots"] = self._look_after

    @property
    def taken(self) -> SnapshotLeases:
        """All leases; `sow.server.api.cursors` adds its own."""
        return self._taken

    @route("POST", SNAPSHOTS, "read", "Take a snapshot of a topic", TAKE_PARAMETERS)
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
        snapshot, bookmark = await self._snapshot(request, requested, guard)
        self._taken.make_room(client_address(request), len(snapshot), self._runtime.now_us())
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
        client, now_us = client_address(request), self._runtime.now_us()
        name, owner = secrets.token_urlsafe(12), permissions_of(request).owner_text
        taken = SnapshotLease(name, client, topic, parts, bookmark, now_us, owner, guard, form)
        await self.hold(taken)
        return name

    async def hold(self, taken: SnapshotLease) -> None:
        """Pin a lease; raises Busy and TooLarge if there is no room."""
        self._taken.make_room(taken.client, taken.rows, self._runtime.now_us())
        await self._in_turns(taken.measure())
        self._taken.add(taken)
        await self._bound()

    async def _snapshot(
        self, request: web.Request, requested: dict[str, str], guard: RowPolicy | None
    ) -> tuple[Snapshot, int]:
        engine, text = self._engine, requested.get("filter")
        condition = self._runtime.filter(text) if text is not None else None
        keys = read_sow_keys(requested, engine.topic(requested["topic"]).records)
        query = restrict_query(Query(filter=condition, keys=keys), guard)
        last = read_count(requested, "last")
        if last is not None and "as_of" in requested:
            raise ClientError("last is of the present; leave out as_of, or last")
        if last is not None:
            found = await self._in_turns(read_events(engine, requested["topic"], query, last))
            await self._runtime.settled()
        elif "as_of" in requested:
            found = await self._past.query(request, requested["topic"], requested["as_of"], query)
        else:
            found = await self._in_turns(execute_query(engine, requested["topic"], query))
            await self._runtime.settled()
        check_named(requested["topic"], requested, len(found.rows))
        return found.rows, found.bookmark

    async def _in_turns(self, steps: Task[Result]) -> Result:
        return await self._runtime.turns.run("a snapshot", steps)

    @route("GET", SNAPSHOT_PATH, "logon", "A part of it", PART_PARAMETERS)
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
        shape, columns = shape_of(requested, [taken.topic.records]), columns_of(requested)
        response = web.StreamResponse(headers={"SOW-Bookmark": str(taken.bookmark)})
        response.content_type = ARROW
        await response.prepare(request)
        await warm_up()
        shown = restrict_shape(shape, taken.guard)
        pieces = streamed(of_snapshot(taken.parts[part], shown, columns), columns)
        await write_pieces(self._runtime.turns, "reading a snapshot", request, response, pieces)
        taken.touch(self._runtime.now_us())
        return response

    @route("DELETE", SNAPSHOT_PATH, "logon", "Let a snapshot go")
    @operation("release_snapshot", Released)
    async def release(self, request: web.Request) -> web.Response:
        """`DELETE /v1/snapshots/{id}`: release a snapshot."""
        name = self._named(request).name
        self._taken.drop(name)
        return json_response({"released": name})

    def _named(self, request: web.Request) -> SnapshotLease:
        """The snapshot in the address, if it is the user's and the topic may still be read."""
        name, rights = request.match_info["id"], permissions_of(request)
        taken = self._taken.use(name, self._runtime.now_us(), rights.owner_text)
        if taken.form is not None:
            raise UnknownRecord(f"{name} is not a snapshot: it holds the pages of a cursor")
        rights.check("read", taken.topic.name)
        if row_policy_for(rights, taken.topic.records) != taken.guard:
            # It holds what the user could see before.
            self._taken.drop(name)
            return self._taken.use(name, self._runtime.now_us(), rights.owner_text)
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
