"""The events of one record of a series over HTTP: a range of them is read, and one is edited.

What the user may see holds for each event by itself: of a record whose newest event is hidden from
him, he reads the events that are not. An edit is as durable as a publish, and its message is read
like one (`sow.sessions.commands.record_ops`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson
from aiohttp import web

from sow.core.cooperative import Task
from sow.core.media_types import JSON, NDJSON
from sow.errors import ClientError, TooLarge, UnknownRecord, clipped, shown
from sow.history.bookmarks import moment_us
from sow.protocol.replies import timestamp
from sow.security.row_level_security import RowPolicy
from sow.server.api.record_resource import RECORD_PATH, RecordHandler
from sow.server.api.response_schemas import Edited, EventAnswered
from sow.server.http.authn_middleware import permissions_of
from sow.server.http.chunked_response import answer_in_pieces
from sow.server.http.negotiation import accepted
from sow.server.http.preconditions import Conditions
from sow.server.http.request_bodies import (
    MESSAGE_FORMATS,
    documents_of,
    refuse_idempotency_key,
)
from sow.server.http.responses import json_response
from sow.server.http.route import (
    no_such_record,
    operation,
    parameters_of,
    read_count,
    route,
    sow_key_of,
)
from sow.sessions.commands import record_ops
from sow.sessions.queries.access_control import restrict_shape, row_policy_for
from sow.topic.records import Records
from sow.topic.rendering import WHOLE, Shape
from sow.topic.series import Bound, SeriesEvent

EVENTS_PATH = RECORD_PATH + "/events"
EVENTS_DEFAULT, EVENTS_MAX = 1_000, 10_000
"""Events of one answer: as many as a chart of them shows, and as many as are pinned by reference
for a client that does not read (1.5 MB beside their bodies)."""
EVENTS_AT_ONCE = 500
"""Events that are looked at, or written, in one step: a millisecond."""
EVENTS_BYTES = 256 * 1024
"""The same of long ones."""
READING = "events over HTTP"
"""The name of this work in metrics."""


class Requested(NamedTuple):
    """A range of the events of one record, both ends inclusive; the newest `limit` are wanted."""

    start: Bound | None
    until: Bound | None
    limit: int


class EventsHandler(RecordHandler):
    """`/v1/topics/{topic}/records/{key}/events` of one server."""

    @route("GET", EVENTS_PATH, "read", "Events of one record of a series", ("from", "to", "limit"))
    @operation("get_events", list[EventAnswered], (JSON, NDJSON), tagged=True)
    async def events(self, request: web.Request) -> web.StreamResponse:
        """`GET …/events`: the newest events of a range, the oldest of them first."""
        topic = self._engine.topic(request.match_info["topic"])
        record_ops.events_of(topic)
        requested = _requested(parameters_of(request))
        kind = accepted(request, (JSON, NDJSON))
        sow_key = sow_key_of(request, topic.records)
        steps = record_ops.at_hand(self._engine, topic.name)
        await self._runtime.turns.run(READING, steps)
        records = self._engine.topic(topic.name).records
        rights, slot = permissions_of(request), records.table.find(sow_key)
        guard, bookmark = row_policy_for(rights, records), self._engine.seq
        found: list[SeriesEvent] | None = None
        if slot is not None:
            identity = records.table.identities[slot] or ""
            reading = _seen(records, identity, requested, guard)
            found = await self._runtime.turns.run(READING, reading)
        if found is None:
            raise no_such_record(topic.name, request.match_info["key"])
        await self._runtime.settled()
        rows = _documents(records, found, restrict_shape(WHOLE, guard))
        pieces = documents_of(rows, kind == NDJSON)
        headers = {"SOW-Bookmark": str(bookmark)}
        return await answer_in_pieces(self._runtime.turns, READING, request, pieces, kind, headers)

    @route("PUT", EVENTS_PATH + "/{seq}", "write", "Replace one event of a record of a series")
    @operation("edit_event", Edited, takes=MESSAGE_FORMATS)
    async def edit(self, request: web.Request) -> web.Response:
        """`PUT …/events/{seq}`: replace the body of an event by the one message of the request."""
        refuse_idempotency_key(request)
        topic = self._engine.catalog.publishable(request.match_info["topic"])
        record_ops.events_of(topic)
        seq = _number(request.match_info["seq"])
        if Conditions.of(request).are_given:
            raise ClientError(
                "an event has no ETag, which If-Match and If-None-Match would name; leave them out"
            )
        sow_key, bodies = sow_key_of(request, topic.records), await self._bodies(request, topic)
        author = permissions_of(request).author(None)
        message = self._message(topic, sow_key, bodies, author)
        self._executor.rates.take(permissions_of(request), 1, self._runtime.now_us())
        editing = record_ops.edit(
            self._engine,
            topic.name,
            seq,
            message,
            self._runtime.now_us(),
            rights=lambda: permissions_of(request),
        )
        bookmark = await self._runtime.turns.run("an edit", editing)
        await self._runtime.durable()
        return json_response({"edited": seq, "bookmark": str(bookmark)})


def _requested(requested: Mapping[str, str]) -> Requested:
    limit = read_count(requested, "limit")
    if limit is not None and limit > EVENTS_MAX:
        raise TooLarge(
            f"limit={limit} is over {EVENTS_MAX}, the most of an answer; ask for earlier ones with "
            "to, a number before the first"
        )
    limit = EVENTS_DEFAULT if limit is None else limit
    return Requested(_bound(requested, "from"), _bound(requested, "to"), limit)


def _bound(requested: Mapping[str, str], name: str) -> Bound | None:
    """An end of the range: the number of an event, or a time."""
    text = requested.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 19:
        return Bound(int(text))
    time_us = moment_us(text.strip())
    if time_us is None:
        raise ClientError(
            f"{name}={clipped(text)} is neither the number of an event nor a time; write such as "
            "17, 20261121T093000Z or 2026-11-21T09:30:00Z"
        )
    return Bound(time_us, is_time=True)


def _number(text: str) -> int:
    """The number of an event in the address."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise UnknownRecord(f"{shown(text)} is not the number of an event")


def _seen(
    records: Records, identity: str, requested: Requested, guard: RowPolicy | None
) -> Task[list[SeriesEvent] | None]:
    """The same as `_visible`; None where the user may see no event of the record at all."""
    found = yield from _visible(records, identity, requested, guard)
    if not found and guard is not None and guard.rows is not None:
        any_one = Requested(None, None, 1)
        if not (yield from _visible(records, identity, any_one, guard)):
            return None
    return found


def _visible(
    records: Records, identity: str, requested: Requested, guard: RowPolicy | None
) -> Task[list[SeriesEvent]]:
    """The requested events that the user may see, the oldest first, in steps; events that come
    meanwhile are not among them."""
    assert records.events is not None
    start, until, limit = requested
    rows, found, left = None if guard is None else guard.rows, list[list[SeriesEvent]](), limit
    while left > 0:
        count = EVENTS_AT_ONCE if rows is not None else min(EVENTS_AT_ONCE, left)
        some, has_more = records.events.part(identity, start, until, count)
        if rows is not None and some:
            columns = records.decoder(rows.paths).columns([event.body for event in some])
            hits = rows.matches(columns, len(some))
            shown_ones = [event for event, hit in zip(some, hits, strict=True) if hit]
        else:
            shown_ones = some
        found.append(shown_ones[-left:])
        left -= len(found[-1])
        if not has_more:
            break
        until = Bound(some[0].seq - 1)
        yield
    return [event for part in reversed(found) for event in part]


def _documents(
    records: Records, events: Sequence[SeriesEvent], shape: Shape
) -> Iterator[list[bytes]]:
    """Chunks of events as JSON texts."""
    rows: list[bytes] = []
    size_bytes = 0
    for event in events:
        (body,) = records.renderer.line_bodies(records.renderer.shown(shape, [event.body]))
        rows.append(
            b'{"seq":%d,"ts":"%b","author":%b,"d":%b}'
            % (event.seq, timestamp(event.ts_us).encode(), orjson.dumps(event.author), body)
        )
        size_bytes += len(body)
        if len(rows) >= EVENTS_AT_ONCE or size_bytes >= EVENTS_BYTES:
            yield rows
            rows, size_bytes = [], 0
    if rows:
        yield rows
