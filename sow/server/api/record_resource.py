"""One record over HTTP, and its events: read, put, merged and deleted at the address of its SowKey.

Each format of each state of a record has a tag (`ETag`). A reader sends it to get a 304, and a
writer to change only the state that it knows: of several writers that change the same state one
succeeds, and the others get a 412 (`sow.server.http.preconditions`). A change is an ordinary
publish or delete (`sow.sessions.commands.record_ops`), and is answered when it is durable.

Of a record of a series a range of events is read, and one is edited. What the user may see holds
for each event by itself: of a record whose newest event is hidden the user reads the others.

A change that is one of a publisher's numbered messages (`Idempotency-Key`,
`sow.sessions.commands.publishers`) is done once, however often it is sent, and repeats get the
answer of then (`NumberedChange`, also of the requests that change many records).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson
from aiohttp import hdrs, web

from sow.core.cooperative import Task
from sow.core.definitions import Topic
from sow.core.media_types import BYTES, JSON, NDJSON, PLAIN_TEXT
from sow.engine.running_topics import SourceTopic
from sow.errors import BadMessage, ClientError, NotEntitled, TooLarge, UnknownRecord, clipped, shown
from sow.history.bookmarks import moment_us
from sow.messages.base import MessageType
from sow.protocol.replies import timestamp
from sow.security.row_level_security import DENY_ALL, RowPolicy
from sow.server.api.response_schemas import Deleted, Edited, EventAnswered, Published
from sow.server.api.topics import TOPIC_PATH
from sow.server.http.authn_middleware import permissions_of
from sow.server.http.chunked_response import answer_in_pieces, answer_message
from sow.server.http.negotiation import accepted, entity_tag, is_known
from sow.server.http.preconditions import Conditions
from sow.server.http.request_bodies import (
    DUPLICATE,
    MESSAGE_FORMATS,
    OWN_TYPES,
    IdempotencyKey,
    Reading,
    documents_of,
    idempotency_key,
    read_messages,
    refuse_idempotency_key,
    take_messages,
)
from sow.server.http.responses import json_response
from sow.server.http.route import (
    no_such_record,
    operation,
    parameters_of,
    read_count,
    read_seconds,
    route,
    sow_key_of,
)
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.commands import record_ops
from sow.sessions.commands.executor import Executor
from sow.sessions.commands.publishers import NumberedAnswer, NumberedTurn
from sow.sessions.queries.access_control import restrict_shape, row_policy_for, shows
from sow.topic.records import CheckedMessages, Records
from sow.topic.rendering import WHOLE, Shape
from sow.topic.series import Bound, SeriesEvent


class NumberedChange(NamedTuple):
    """A change of a topic by one request, of so many `numbers` if it is numbered: its `steps`, the
    `answer` that follows from its bookmark or count, and that to an `older` repeat."""

    name: str
    topic: str
    numbers: int
    steps: Callable[[NumberedTurn | None], Task[NumberedAnswer]]
    answer: Callable[[int], NumberedAnswer]
    older: Callable[[], NumberedAnswer]

    async def answered(
        self,
        runtime: ServerRuntime,
        executor: Executor,
        request: web.Request,
        key: IdempotencyKey | None,
        is_durable: bool = True,
    ) -> web.Response:
        """The answer, once it is done and `is_durable`. With a key it is done once, and what was
        done before is answered again."""

        def steps() -> Task[NumberedAnswer]:
            if key is None:
                return (yield from self.steps(None))
            executor.engine.sequencer.moment(runtime.now_us())
            turn = yield from executor.publishers.turn(
                lambda: executor.publishers.named(key.client, permissions_of(request)),
                self.topic,
                key.seq,
                self.numbers,
                answer=self.answer,
            )
            with turn:
                if not turn.is_duplicate:
                    return (yield from self.steps(turn)).saying(turn.fields())
                found = executor.publishers.answered(turn) or self.older()
                return found._replace(headers={**found.headers, DUPLICATE: "true"})

        answer = await runtime.turns.run(self.name, steps())
        if is_durable:
            await runtime.durable()
        else:
            runtime.wake()
        return json_response(answer.document, status=answer.status, headers=answer.headers)


RECORDS_PATH = TOPIC_PATH + "/records"
RECORD_PATH = RECORDS_PATH + "/{key}"
RECORD_FORMATS = (JSON, PLAIN_TEXT, *OWN_TYPES, BYTES)
"""Formats of one record; that of its message type, or JSON."""
READING = "a record over HTTP"
"""The name of this work in metrics."""


class RecordHandler:
    """`/v1/topics/{topic}/records/{key}` of one server."""

    def __init__(self, runtime: ServerRuntime, executor: Executor) -> None:
        self._runtime = runtime
        self._executor = executor
        self._engine = executor.engine

    @route("GET", RECORD_PATH, "read", "One record by SowKey")
    @operation("get_record", answers=RECORD_FORMATS, tagged=True)
    async def read(self, request: web.Request) -> web.StreamResponse:
        """`GET …/{key}`: the record as it is stored, or as JSON; raises UnknownRecord."""
        topic = self._engine.topic(request.match_info["topic"])
        kind = topic.records.message_type
        # As it is stored, unless the client prefers JSON.
        form = accepted(request, media_types_of(kind))
        sow_key, conditions = sow_key_of(request, topic.records), Conditions.of_reader(request)
        steps = record_ops.at_hand(self._engine, topic.name, reads_before=True)
        await self._runtime.turns.run(READING, steps)
        records, _ = self._engine.queries.shown(topic.name)
        state = RecordState(request, records, records.table.find(sow_key))
        conditions.check(state.tags, state.is_there)
        if state.body is None:
            raise no_such_record(topic.name, request.match_info["key"])
        body, tag = state.form(form), state.tag(form)
        headers = {"SOW-Bookmark": str(state.seq)}
        await self._runtime.settled()
        if is_known(request, tag):
            return web.Response(status=304, headers={**headers, "ETag": tag})
        turns = self._runtime.turns
        return await answer_message(turns, READING, request, body, form, headers, tag)

    @route("PUT", RECORD_PATH, "write", "Publish one record by SowKey", ("expiration",))
    @operation("put_record", Published, takes=MESSAGE_FORMATS, also=(201,), numbered=True)
    @route("PATCH", RECORD_PATH, "write", "Merge a message into one record", ("expiration",))
    @operation("merge_record", Published, takes=MESSAGE_FORMATS, also=(201,), numbered=True)
    async def put(self, request: web.Request) -> web.Response:
        """`PUT …/{key}`: publish the one message of the body; `PATCH`: merge it into the record.
        201 if the record is new."""
        topic = self._engine.catalog.publishable(request.match_info["topic"])
        looking, key = self._looking(request), idempotency_key(request)
        expires_s = read_seconds(parameters_of(request), "expiration")
        sow_key, bodies = sow_key_of(request, topic.records), await self._bodies(request, topic)

        messages: list[CheckedMessages] = []

        def published(bookmark: int) -> NumberedAnswer:
            # The new state: nothing has changed it since.
            records = self._engine.topic(topic.name).records
            slot = records.table.slots.get(messages[0].identities[0])
            state = RecordState(request, records, slot)
            return NumberedAnswer(
                {"published": 1, "bookmark": str(bookmark)},
                200 if looking.seen else 201,
                {} if state.body is None else {"ETag": state.tag(state.media_types[0])},
            )

        def putting(turn: NumberedTurn | None) -> Task[NumberedAnswer]:
            author = permissions_of(request).author(None)
            messages.append(self._message(topic, sow_key, bodies, author))
            self._executor.rates.take(permissions_of(request), 1, self._runtime.now_us())
            bookmark = yield from record_ops.put(
                self._engine,
                topic,
                messages[0],
                self._runtime.now_us(),
                rights=permissions_of(request),
                look=looking.look,
                expires_s=expires_s,
                delta=request.method == hdrs.METH_PATCH,
                counted=None if turn is None else turn.stored,
            )
            return published(bookmark)

        def older() -> NumberedAnswer:
            return NumberedAnswer({"published": 1, "bookmark": str(self._engine.seq)})

        work = NumberedChange("a publish", topic.name, 1, putting, published, older)
        return await work.answered(self._runtime, self._executor, request, key)

    @route("DELETE", RECORD_PATH, "delete", "Delete one record by SowKey")
    @operation("delete_record", Deleted, refusals=(507,), numbered=True)
    async def delete(self, request: web.Request) -> web.Response:
        """`DELETE …/{key}`: delete the record."""
        topic = self._engine.catalog.deletable(request.match_info["topic"])
        sow_key, looking = sow_key_of(request, topic.records), self._looking(request)

        def deleted(count: int) -> NumberedAnswer:
            return NumberedAnswer({"deleted": count})

        def deleting(turn: NumberedTurn | None) -> Task[NumberedAnswer]:
            try:
                count = yield from record_ops.delete(
                    self._engine,
                    topic.name,
                    sow_key,
                    self._runtime.now_us(),
                    rights=lambda: permissions_of(request),
                    look=looking.look,
                    counted=None if turn is None else turn.removed,
                )
            except UnknownRecord:
                # By the name that the client knows.
                raise no_such_record(topic.name, request.match_info["key"]) from None
            return deleted(count)

        work = NumberedChange(
            "delete over HTTP", topic.name, 1, deleting, deleted, lambda: deleted(0)
        )
        key = idempotency_key(request)
        return await work.answered(self._runtime, self._executor, request, key)

    async def _bodies(self, request: web.Request, topic: SourceTopic) -> list[bytes]:
        """The one message of a body, not read yet; raises ClientError for another number."""
        records, bodies = topic.records, list[bytes]()

        def take(some: Sequence[bytes]) -> None:
            bodies.extend(some)
            if len(bodies) > 1:
                raise BadMessage(
                    "the address names one record, and the body holds several messages; POST them "
                    "to the topic's records",
                    index=1,
                )

        body = await read_messages(records, request)
        steps = take_messages(
            records, request, body, take, self._engine.configuration.limits.frame_bytes_max
        )
        await self._runtime.turns.run("reading messages", steps)
        return bodies

    def _message(
        self, topic: SourceTopic, sow_key: str, bodies: Sequence[bytes], author: str
    ) -> CheckedMessages:
        """The message, which must be of the record in the address; raises ClientError."""
        records = topic.records
        key = None if records.keys else sow_key
        reading = Reading(self._engine, topic, key, self._runtime.now_us, author)
        reading.take(bodies)
        (message,) = reading.messages
        named = records.sow_key_of(message.identities[0])
        if named != sow_key:
            raise ClientError(
                f"the message is of the record {named}, and the address names {shown(sow_key)}; "
                "send it there, or by POST to the topic's records",
                reason="bad sow key",
            )
        return message

    def _looking(self, request: web.Request) -> "Looking":
        looking = Looking(request, Conditions.of(request))
        if looking.conditions.are_given:
            topic = request.match_info["topic"]
            if not permissions_of(request).may("read", topic):
                raise NotEntitled(
                    "If-Match and If-None-Match depend on the state of the record, and no role "
                    f"allows you to read topic {topic}; leave them out"
                )
        return looking


class Looking:
    """The check of a request's conditions, right before it changes a record."""

    def __init__(self, request: web.Request, conditions: Conditions) -> None:
        self._request = request
        self.conditions = conditions
        self.seen = False
        """There was a record that the user may see."""

    def look(self, records: Records, slot: int | None) -> None:
        """Raise an error if the conditions do not hold."""
        state = RecordState(self._request, records, slot)
        self.seen = state.body is not None
        if self.conditions.are_given:
            self.conditions.check(state.tags, state.is_there)


class RecordState:
    """The state of a record as the user of a request sees it; `body` None: hidden or missing."""

    def __init__(self, request: web.Request, records: Records, slot: int | None) -> None:
        rights, table = permissions_of(request), records.table
        guard = row_policy_for(rights, records) if rights.may("read", records.name) else DENY_ALL
        self.media_types = media_types_of(records.message_type)
        self.is_there = slot is not None
        self.body: bytes | None = None
        self.seq = 0 if slot is None else int(table.seqs[slot])
        self._renderer = records.renderer
        self._numbers = [self.seq]
        stored = b"" if slot is None else table.bodies[slot] or b""
        if slot is None or not shows(guard, records, stored):
            return
        (self.body,) = records.renderer.shown(restrict_shape(WHOLE, guard), [stored])
        # Records of the server's own topics have the number of the change before them.
        definition = records.definition
        if isinstance(definition, Topic) and definition.system:
            self._numbers.append(int(table.ts_us[slot]))

    def form(self, media_type: str) -> bytes:
        """The visible record, as it is stored or as JSON."""
        assert self.body is not None
        if media_type == self.media_types[0]:
            return self.body
        (document,) = self._renderer.json_documents([self.body])
        return document

    def tag(self, media_type: str) -> str:
        """The tag of the visible record in this format."""
        return entity_tag(self.form(media_type), *self._numbers)

    @property
    def tags(self) -> list[str]:
        """The tags of all formats; none if the record is hidden or missing."""
        return [] if self.body is None else [self.tag(one) for one in self.media_types]


def media_types_of(kind: MessageType) -> tuple[str, ...]:
    """The formats of a record: as it is stored, and JSON."""
    return tuple(dict.fromkeys((kind.media_type, *([JSON] if kind.structured else []))))


EVENTS_PATH = RECORD_PATH + "/events"
EVENTS_DEFAULT, EVENTS_MAX = 1_000, 10_000
"""Events of one answer: as many as a chart of them shows, and as many as are pinned by reference
for a client that does not read (1.5 MB beside their bodies)."""
EVENTS_AT_ONCE = 500
"""Events that are looked at, or written, in one step: a millisecond."""
EVENTS_BYTES = 256 * 1024
"""The same of long ones."""
READING_EVENTS = "events over HTTP"
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
        await self._runtime.turns.run(READING_EVENTS, steps)
        records = self._engine.topic(topic.name).records
        rights, slot = permissions_of(request), records.table.find(sow_key)
        guard, bookmark = row_policy_for(rights, records), self._engine.seq
        found: list[SeriesEvent] | None = None
        if slot is not None:
            identity = records.table.identities[slot] or ""
            reading = _seen(records, identity, requested, guard)
            found = await self._runtime.turns.run(READING_EVENTS, reading)
        if found is None:
            raise no_such_record(topic.name, request.match_info["key"])
        await self._runtime.settled()
        rows = _documents(records, found, restrict_shape(WHOLE, guard))
        pieces = documents_of(rows, kind == NDJSON)
        headers = {"SOW-Bookmark": str(bookmark)}
        return await answer_in_pieces(
            self._runtime.turns, READING_EVENTS, request, pieces, kind, headers
        )

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
