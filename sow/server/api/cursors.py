"""Cursors: an answer in pages, all of one moment.

A query with `limit` is answered with its first page, and where there are more rows with the address
of the next one (`Link`, RFC 8288), until the last. The rows that are not told yet are held as a
snapshot is: for who has asked and nobody else, for as long, and within the same bounds
(`sow.server.api.snapshot_leases`). So nothing comes twice and nothing is missed, whatever changes
meanwhile; a record that is deleted is still told, and a page that is asked for again is the same.

A cursor is the name of what is held, which only its client knows, and the row at which the page
begins; what it looks like is nobody's business but ours.
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
from sow.server.api.snapshot_leases import SNAPSHOT_KEPT_US
from sow.server.api.snapshots import SnapshotHandler
from sow.server.http.authn_middleware import permissions_of
from sow.server.http.parameters import parameters_of, read_count
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.row_policy_rewrite import row_policy_for
from sow.topic.rendering import Shape

CURSOR = re.compile(r"([A-Za-z0-9_-]{16})\.([0-9]{1,9})")
PAGED_FORMS = (JSON, NDJSON, FRAMES)
"""Each page is whole by itself; columns would be others on each."""


class CursorGone(ClientError):
    """The rest of an answer is not held any more, or not for who asks."""

    reason = "cursor gone"
    status = 410


class Paging(NamedTuple):
    """How the pages of an answer are made: alike, whatever the later ones are asked with."""

    kind: str
    shape: Shape
    meta: bool
    limit: int
    headers: Mapping[str, str]


class Page(NamedTuple):
    """One page, and the headers that it is told with."""

    rows: Snapshot
    paging: Paging
    headers: Mapping[str, str]


class Cursors:
    """The cursors of one server."""

    def __init__(self, driver: ServerRuntime, engine: Engine, snapshots: SnapshotHandler) -> None:
        self._driver = driver
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
        """The first page of an answer, of which the others are held; who asks for the head alone
        gets no cursor. `guard` says what may be seen of the topic that the address names. Raises
        Busy and TooLarge where there is no room."""
        if len(rows) <= paging.limit or request.method == hdrs.METH_HEAD:
            return Page(await self._part(rows, 0, paging), paging, paging.headers)
        topic = self._engine.topic(request.match_info["topic"])
        name = await self._snapshots.keep(request, topic, [rows], bookmark, guard, paging)
        # Many want the first rows and no more; theirs keep nobody from asking.
        self._snapshots.taken.rest(name, self._driver.now_us())
        return await self._page(name, rows, 0, paging)

    async def next(self, request: web.Request) -> Page:
        """The page that a cursor names; raises ClientError and CursorGone."""
        requested = parameters_of(request)
        found = CURSOR.fullmatch(requested["cursor"])
        if found is None:
            raise ClientError(
                f"cursor={clipped(requested['cursor'])} is none that was given; take the address "
                'that Link names with rel="next"'
            )
        if len(requested) > 1:
            other = next(name for name in requested if name != "cursor")
            raise ClientError(f"a cursor goes alone: its pages are as the first; leave {other} out")
        name, start = found[1], int(found[2])
        taken = self._snapshots.taken
        now_us = self._driver.now_us()
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
        return await self._driver.turns.run("a page of an answer", rows.picking(part))


def limit_of(requested: Mapping[str, str], kind: str, explain: bool) -> int | None:
    """How many rows a page may have, None: there are no pages; raises ClientError."""
    limit = read_count(requested, "limit")
    if limit is None:
        return None
    if limit == 0:
        raise ClientError("limit=0 would be pages without rows; write 1 or more")
    if explain:
        raise ClientError("explain says how, and has no pages; leave limit or explain out")
    if kind not in PAGED_FORMS:
        raise ClientError(
            f"limit makes pages in {', '.join(PAGED_FORMS)}, and {kind} was asked for, whose "
            "columns would be others on each page; take a snapshot (POST /v1/snapshots), or leave "
            "limit out"
        )
    return limit


def _gone(name: str) -> CursorGone:
    return CursorGone(
        f"no more pages of cursor {shown(name)}: it was not used for "
        f"{SNAPSHOT_KEPT_US // 1_000_000} s, let go since its records have changed "
        "(Limits/SnapshotMemory), its topic was made anew by a reload, what you may see of it has "
        "changed, or the server was restarted; ask for the first page again"
    )
