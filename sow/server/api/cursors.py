"""Cursors: the result of a query in pages, all of one moment.

A query with `limit` returns the first page and, if there are more rows, the address of the next one
(`Link`, RFC 8288). The rows are pinned like a snapshot: for the user of the query only, as long,
and within the same bounds (`sow.server.api.snapshots`). So no row is duplicated or missed,
whatever changes meanwhile; a deleted record is still returned, and a page can be requested again.

A cursor is the name of the lease, which only its client knows, and the row at which the page
begins. Clients treat it as opaque.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from aiohttp import hdrs, web

from sow.core.media_types import FRAMES, JSON, NDJSON
from sow.engine.engine import Engine
from sow.errors import ClientError, UnknownRecord, clipped, shown
from sow.history.snapshot import Snapshot
from sow.security.row_level_security import RowPolicy
from sow.server.api.snapshots import SNAPSHOT_KEPT_US, SnapshotHandler
from sow.server.http.authn_middleware import permissions_of
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
            held = taken.use(name, now_us, permissions_of(request).owner)
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
