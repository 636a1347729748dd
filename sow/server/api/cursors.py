"""Cursors: the result of a query in pages, all of one moment; and of changes, a moment of a log.

A query with `limit` returns the first page and, if there are more rows, the address of the next one
(`Link`, RFC 8288). The rows are pinned like a snapshot: for the user of the query only, as long,
and within the same bounds (`sow.server.api.snapshots`). So no row is duplicated or missed,
whatever changes meanwhile; a deleted record is still returned, and a page can be requested again.

A cursor is the name of the lease, which only its client knows, and the row at which the page
begins. Clients treat it as opaque.

Change cursors hold the state of a topic at a place in its log, for readers that need what each
record was before a change. One holds the bodies of all records of a topic by identity. A reader
that goes on where it ended finds the cursor there and moves it with the rows that it reads; any
other has one made from the past (`sow.history.snapshot_as_of`), which reads the log from its
beginning. A cursor holds nothing of its reader: filters and permissions apply to what it returns.
Losing one only costs time.

Cursors are leases like snapshots (`sow.server.api.snapshots`): the same bounds count them, and the
least recently used, or unused ones, are released. A body that the topic still has is shared with
it, so that at the end of the log a cursor costs its references alone.
"""

import re
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
from aiohttp import hdrs, web

from sow.core.containers import ShardedDict
from sow.core.cooperative import Task
from sow.core.media_types import FRAMES, JSON, NDJSON
from sow.engine.engine import Engine
from sow.engine.running_topics import LiveTopic
from sow.errors import ClientError, TooLarge, UnknownRecord, clipped, shown
from sow.history.log_rows import Extent, LogRows, log_pieces
from sow.history.snapshot import NOWHERE, Snapshot
from sow.security.row_level_security import RowPolicy
from sow.server.api.snapshots import SNAPSHOT_KEPT_US, AsOfQueries, SnapshotHandler, SnapshotLease
from sow.server.http.authn_middleware import permissions_of
from sow.server.http.request_origin import client_address
from sow.server.http.route import parameters_of, read_count
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.queries.access_control import row_policy_for
from sow.topic.rendering import Shape

CURSOR = re.compile(r"([A-Za-z0-9_-]{16})\.([0-9]{1,9})")
PAGED_FORMS = (JSON, NDJSON, FRAMES)
"""Formats in which each page stands alone; columns would differ from page to page."""


class CursorGone(ClientError):
    """The rest of a result is not pinned any more, or belongs to another user."""

    reason = "cursor gone"
    status = 410


class Paging(NamedTuple):
    """How the pages of a result are rendered: all like the first."""

    kind: str
    shape: Shape
    meta: bool
    limit: int
    headers: Mapping[str, str]


class Page(NamedTuple):
    """One page and its headers."""

    rows: Snapshot
    paging: Paging
    headers: Mapping[str, str]


class Cursors:
    """The cursors of one server."""

    def __init__(self, runtime: ServerRuntime, engine: Engine, snapshots: SnapshotHandler) -> None:
        self._runtime = runtime
        self._engine = engine
        self._snapshots = snapshots

    async def first(
        self,
        request: web.Request,
        rows: Snapshot,
        bookmark: int,
        paging: Paging,
        guard: RowPolicy | None,
    ) -> Page:
        """The first page of a result; the others are pinned, except for a HEAD request. `guard` is
        the row policy of the topic in the address. Raises Busy and TooLarge if there is no room."""
        if len(rows) <= paging.limit or request.method == hdrs.METH_HEAD:
            return Page(await self._part(rows, 0, paging), paging, paging.headers)
        topic = self._engine.topic(request.match_info["topic"])
        name = await self._snapshots.keep(request, topic, [rows], bookmark, guard, paging)
        # Many clients read the first page only; their leases make way for others.
        self._snapshots.taken.rest(name, self._runtime.now_us())
        return await self._page(name, rows, 0, paging)

    async def next(self, request: web.Request) -> Page:
        """The page of a cursor; raises ClientError and CursorGone."""
        requested = parameters_of(request)
        found = CURSOR.fullmatch(requested["cursor"])
        if found is None:
            raise ClientError(
                f"cursor={clipped(requested['cursor'])} is not a cursor; use the address that Link "
                'gives with rel="next"'
            )
        if len(requested) > 1:
            other = next(name for name in requested if name != "cursor")
            raise ClientError(
                f"a cursor goes alone: its pages are like the first; leave {other} out"
            )
        name, start = found[1], int(found[2])
        taken = self._snapshots.taken
        now_us = self._runtime.now_us()
        try:
            held = taken.use(name, now_us, permissions_of(request).owner_text)
        except UnknownRecord:
            raise _gone(name) from None
        paging, topic = held.form, self._engine.topics.get(held.topic.name)
        if not isinstance(paging, Paging) or request.match_info["topic"] != held.topic.name:
            raise _gone(name)
        if (
            topic is not held.topic
            or row_policy_for(permissions_of(request), topic.records) != held.guard
        ):
            taken.drop(name)
            raise _gone(name)
        (rows,) = held.parts
        if start % paging.limit or start >= len(rows):
            raise ClientError(f"cursor={clipped(requested['cursor'])}: no page begins there")
        if start + paging.limit >= len(rows):
            held.rest(now_us)
        return await self._page(name, rows, start, paging)

    async def _page(self, name: str, rows: Snapshot, start: int, paging: Paging) -> Page:
        headers, after = dict(paging.headers), start + paging.limit
        if after < len(rows):
            headers["Link"] = f'<?cursor={name}.{after}>; rel="next"'
        return Page(await self._part(rows, start, paging), paging, headers)

    async def _part(self, rows: Snapshot, start: int, paging: Paging) -> Snapshot:
        if len(rows) <= paging.limit:
            return rows
        part = np.arange(start, min(start + paging.limit, len(rows)))
        return await self._runtime.turns.run("a page of an answer", rows.picking(part))


def limit_of(requested: Mapping[str, str], kind: str, explain: bool) -> int | None:
    """The rows of a page, None: no pages; raises ClientError."""
    limit = read_count(requested, "limit")
    if limit is None:
        return None
    if limit == 0:
        raise ClientError("limit=0 would be pages without rows; write 1 or more")
    if explain:
        raise ClientError("explain returns a plan, which has no pages; leave limit or explain out")
    if kind not in PAGED_FORMS:
        raise ClientError(
            f"limit makes pages in {', '.join(PAGED_FORMS)}; {kind} was requested, whose columns "
            "would differ from page to page; take a snapshot (POST /v1/snapshots), or leave limit "
            "out"
        )
    return limit


def _gone(name: str) -> CursorGone:
    return CursorGone(
        f"no more pages of cursor {shown(name)}: it was not used for "
        f"{SNAPSHOT_KEPT_US // 1_000_000} s, released because its records have changed "
        "(Limits/SnapshotMemory), its topic was rebuilt by a reload, your permissions on it have "
        "changed, or the server was restarted; request the first page again"
    )


NOBODY = "nobody"
"""The owner of cursors: that of a user is a list in JSON, so none reaches one as a snapshot."""
MOVING = -1
"""The place of a cursor that a request is moving."""
GROWTH = 8
"""A cursor that has grown by this fraction of its room since it was counted is counted again:
counting takes as long as some hundred thousand rows, and an estimate only rises."""
COUNTED_AT_ONCE = 2_000
"""Records counted in one step: a fraction of a millisecond."""
Piece = TypeVar("Piece")


class CursorRoom(NamedTuple):
    """What one cursor may hold: bytes that no topic holds, and records."""

    bytes_max: int
    rows_max: int


@dataclass(slots=True, eq=False)
class ChangeCursor(SnapshotLease):
    """The bodies of a topic's records as of `bookmark`, by identity."""

    bodies: ShardedDict[str, bytes] = field(default_factory=ShardedDict)

    @property
    def rows(self) -> int:
        """The number of records."""
        return len(self.bodies)

    def before(self, rows: LogRows) -> list[bytes | None]:
        """What the records of the next rows of the log were, each before its own change; moves the
        cursor behind these."""
        bodies, found = self.bodies, []
        if rows.op != "publish":
            for identity in rows.identities:
                found.append(old := bodies.pop(identity))
                self.size_bytes -= len(old or b"")
            return found
        table = self.topic.records.table
        for identity, body in zip(rows.identities, rows.bodies, strict=True):
            old, slot = bodies.get(identity), table.slots.get(identity)
            found.append(old)
            there = None
            if slot is not None:  # share what the topic has
                identity, there = table.identities[slot] or identity, table.bodies[slot]
            if there == body:
                body = there
            else:
                self.held_bytes += len(body)
            bodies[identity] = body
            self.size_bytes += len(body) - len(old or b"")
            self.largest_bytes = max(self.largest_bytes, len(body))
        return found

    def bounded(
        self, pieces: Iterable[Piece], until: int, room: CursorRoom
    ) -> Iterator[Piece | None]:
        """Pieces that move the cursor up to `until`, and None for each step of counting it; raises
        TooLarge when it alone holds more than there is room for."""
        counted_bytes = self.held_bytes
        for piece in pieces:
            yield piece
            if self.held_bytes > max(room.bytes_max, counted_bytes + room.bytes_max // GROWTH):
                for _ in self.count():
                    yield None
                counted_bytes = self.held_bytes
            if counted_bytes > room.bytes_max or len(self.bodies) > room.rows_max:
                raise TooLarge(
                    f"the state of {self.topic.name} at this place of its log has more than "
                    f"{room.bytes_max} bytes (a quarter of Limits/SnapshotMemory) that have "
                    f"changed since, or over {room.rows_max} records; begin later, or read the "
                    "changes without before"
                )
        self.bookmark = until

    def _chunks(self) -> Iterator[tuple[list[int], list[bytes]]]:
        table = self.topic.records.table
        for pairs in self.bodies.pieces():
            for start in range(0, len(pairs), COUNTED_AT_ONCE):
                some, slots = pairs[start : start + COUNTED_AT_ONCE], table.slots
                yield (
                    [slots.get(identity, NOWHERE) for identity, _ in some],
                    [body for _, body in some],
                )


class ChangeCursors:
    """The change cursors of one server."""

    def __init__(
        self, runtime: ServerRuntime, engine: Engine, snapshots: SnapshotHandler, past: AsOfQueries
    ) -> None:
        self._runtime = runtime
        self._engine = engine
        self._snapshots = snapshots
        self._past = past

    @property
    def room(self) -> CursorRoom:
        """What one cursor may hold."""
        taken = self._snapshots.taken
        return CursorRoom(taken.client_bytes_max, taken.client_rows_max)

    @asynccontextmanager
    async def moving(
        self, request: web.Request, name: str, part: Extent
    ) -> AsyncIterator[ChangeCursor]:
        """A cursor of a topic at the beginning of a part of the log. It is the caller's to move to
        the end (`bounded`), and stays there for the next reader if it does.

        Raises ClientError where the log does not reach back to the state there, TooLarge and Busy
        where there is no room for it.
        """
        topic = self._engine.topic(name)
        held = self._nearest(topic, part.after)
        if held is None:
            held = await self._made(request, topic, part.after)
        begin, held.bookmark = held.bookmark, MOVING
        try:
            if begin < part.after:
                passed = Extent(begin, part.after, 0)
                await self._runtime.turns.run("a change cursor", self._passing(held, passed))
                held.bookmark = MOVING
            yield held
        finally:
            at, held.bookmark = held.bookmark, MOVING
            self._drop(topic, at)
            if at == MOVING:
                self._snapshots.taken.drop(held.name)
            # A client may leave many behind, and losing one only costs time.
            held.rest(self._runtime.now_us())
            held.bookmark = at

    def _drop(self, topic: LiveTopic, bookmark: int) -> None:
        """Release cursors at a place where there is another one now."""
        for one in list(self._snapshots.taken.all()):
            is_there = one.topic is topic and one.bookmark == bookmark != MOVING
            if is_there and isinstance(one, ChangeCursor):
                self._snapshots.taken.drop(one.name)

    def _nearest(self, topic: LiveTopic, bookmark: int) -> ChangeCursor | None:
        """The last cursor at or before a place from which the log can be followed."""
        oldest = self._runtime.journal.first_seq - 1
        there = [
            one
            for one in self._snapshots.taken.all()
            if isinstance(one, ChangeCursor)
            and one.topic is topic
            and oldest <= one.bookmark <= bookmark
            and one.bookmark != MOVING
        ]
        return max(there, key=lambda one: one.bookmark, default=None)

    async def _made(self, request: web.Request, topic: LiveTopic, bookmark: int) -> ChangeCursor:
        bodies = await self._past.bodies(request, topic, bookmark, self.room.bytes_max)
        name, now_us = secrets.token_urlsafe(12), self._runtime.now_us()
        made = ChangeCursor(
            name, client_address(request), topic, [], MOVING, now_us, NOBODY, bodies=bodies
        )
        await self._snapshots.hold(made)
        made.bookmark = bookmark
        return made

    def _passing(self, held: ChangeCursor, part: Extent) -> Task[None]:
        """Move a cursor over rows that nobody reads."""
        records = held.topic.records
        pieces = log_pieces(self._runtime.journal, part, {records.name: records})
        for rows in held.bounded(pieces, part.until, self.room):
            if rows is not None and rows.op != "edit":
                held.before(rows)
            yield
