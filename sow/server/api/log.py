"""The transaction log over HTTP, in order, as lines, an array or a table (docs/http.md).

Rows come from the journal, so only durable ones are shown. Topics whose Durability is transient
have no bodies in the log and no rows here. The range is determined first (`cutting`), then read in
pieces, both in steps, so that a million rows do not delay other clients.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

import msgspec
import orjson
from aiohttp import web

from sow.core.comma_lists import comma_list
from sow.core.cooperative import Task
from sow.core.media_types import ARROW, ARROW_FILE, CSV, JSON, NDJSON, PARQUET
from sow.engine.engine import Engine
from sow.engine.running_topics import CopyTopic, LiveTopic, ViewTopic
from sow.errors import (
    ClientError,
    InvalidTopic,
    NotEntitled,
    StoreError,
    TooLarge,
    clipped,
    invalid_bookmark,
)
from sow.expressions import Filter
from sow.history.bookmarks import number_of, parse_start
from sow.history.log_rows import Extent, Images, LogRows, cutting, image_pieces, log_pieces
from sow.messages.csv_rows import fixed_pieces
from sow.protocol.replies import timestamp
from sow.security.authorization import Permissions
from sow.security.row_level_security import RowPolicy
from sow.server.api.cursors import ChangeCursors
from sow.server.api.response_schemas import ConsumerDescribed, ConsumerMoved, LogExtent, Removed
from sow.server.http.authn_middleware import AUTHN, permissions_of, reauthorize_stream
from sow.server.http.body_reading import read_body
from sow.server.http.chunked_response import answer_in_pieces
from sow.server.http.negotiation import FORMAT_ENDING, form_of
from sow.server.http.request_bodies import documents_of
from sow.server.http.responses import LOG_HEADER, file_name, json_response
from sow.server.http.route import operation, parameters_of, read_count, read_seconds, route
from sow.server.http.tables import (
    IN_COLUMNS,
    RECORD_BEFORE,
    ColumnWriter,
    columns_of,
    keys_shape,
    of_images,
    of_log,
    schema_of,
    shape_of,
    warm_up,
)
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.commands.consumers import CONSUMER_TOPICS_MAX, Consumers, no_consumer
from sow.sessions.queries.access_control import row_policy_for
from sow.topic.records import Records

ROWS_DEFAULT = 10_000
"""Rows of an answer by default: a second of a busy log."""
ROWS_MAX = 1_000_000
"""Rows of an answer at most: a client whose connection breaks has to read them again."""
WAIT_S_MAX = 60
"""How long a reader may wait for new rows: proxies close connections that are silent for longer."""
LOOKED_AT_ONCE = 5_000
"""Topics checked in one step: a fifth of a microsecond each."""
READING = "reading the log"
"""The name of this work in metrics."""
CONSUMER_PATH = "/v1/log/consumers/{name}"
EXTENT_PARAMETERS = ("topics", "from", "to", "limit", "wait", "filter", "before")
LOG_FILE = f"/v1/log.{{{FORMAT_ENDING}}}"
FILE_PARAMETERS = (*EXTENT_PARAMETERS, "select", "columns")
LOG_PARAMETERS = (*FILE_PARAMETERS, "format")
FORMATS = (NDJSON, ARROW, CSV, JSON, ARROW_FILE, PARQUET)
IMAGES_BYTES = 1024**2
"""Bytes of records in one batch of changes, as in one of a snapshot."""
BEFORE_CHOICES = ("true", "keys")

CSV_COLUMNS = ("seq", "bm", "ts", "topic", "op", "k", "d")
Topics = dict[str, Records]


class Position(msgspec.Struct, forbid_unknown_fields=True):
    """The position of a consumer."""

    bookmark: str
    reader: str = ""
    """Distinguishes readers that share a consumer."""
    topics: list[str] = []
    """What it reads; by default what it named before, or all."""


class LogHandler:
    """`/v1/log` of one server: ranges of the log, and the positions of its consumers."""

    def __init__(self, runtime: ServerRuntime, engine: Engine, changes: ChangeCursors) -> None:
        self._runtime = runtime
        self._engine = engine
        self._changes = changes
        self._consumers = Consumers(engine)

    @route("GET", "/v1/log", "logon", "A range of the transaction log", LOG_PARAMETERS)
    @operation("read_log", list[Any], FORMATS, tagged=True)
    @route("GET", LOG_FILE, "logon", "The same, in the format of the ending", FILE_PARAMETERS)
    @operation("read_log_file", list[Any], FORMATS, tagged=True)
    async def handle(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/log` and `/v1/log.csv`: a range of the log, `from` exclusive, `to` inclusive, at
        most `limit` rows; waits up to `wait` seconds for the first."""
        requested = {**parameters_of(request), **request.match_info}
        kind = form_of(request, requested, FORMATS)
        if kind == JSON and not requested.keys() & {FORMAT_ENDING, "format"}:
            kind = NDJSON  # a client that accepts JSON gets lines, as it always did
        before = _before(requested, kind)
        topics, condition, guards = await self._wanted(request, requested, before is not None)
        shape, columns = shape_of(requested, topics.values()), columns_of(requested, kind)
        part = await self._requested_for(requested, topics)
        # What the user may read can have changed during the wait.
        await reauthorize_stream(request)
        journal, headers = self._runtime.journal, {"SOW-Bookmark": str(part.until)}
        headers[LOG_HEADER] = journal.log_id
        if kind != JSON or FORMAT_ENDING in requested:
            headers |= file_name("log", kind)
        if kind in IN_COLUMNS:
            await warm_up()

        async def answer(pieces: Iterable[bytes]) -> web.StreamResponse:
            return await answer_in_pieces(
                self._runtime.turns, READING, request, pieces, kind, headers
            )

        if before is None:
            rows = log_pieces(journal, part, topics, condition, guards, shape)
            in_columns = kind in IN_COLUMNS
            return await answer(_table(rows, kind, columns) if in_columns else FORMS[kind](rows))
        if not part.rows:
            return await answer(_table((), kind, columns, has_before=True))
        ((name, topic),) = topics.items()
        gone = keys_shape(topic) if before == "keys" else shape
        guard, room = guards.get(name), self._changes.room
        async with self._changes.moving(request, name, part) as cursor:
            images = image_pieces(
                journal, part, topic, cursor.before, condition, guard, shape, gone
            )
            pieces = cursor.bounded(images, part.until, room)
            return await answer(_table(pieces, kind, columns, has_before=True))

    @route("GET", "/v1/log/extent", "logon", "What a range of the log holds", EXTENT_PARAMETERS)
    @operation("measure_log", LogExtent)
    async def extent(self, request: web.Request) -> web.Response:
        """`GET /v1/log/extent`: the bounds and size of a range, without its rows; `newest` is the
        end of the whole log, `log` its name."""
        requested = parameters_of(request)
        _before(requested, ARROW)
        topics, condition, guards = await self._wanted(request, requested, must_be_logged=True)
        # Later entries are younger than this; all older ones are in the log when it is read.
        now_us = self._runtime.now_us()
        await self._runtime.settled()
        journal = self._runtime.journal
        while True:
            part = await self._requested_for(requested, topics, limit_max=None)
            await reauthorize_stream(request)
            try:
                rows, since_us = await self._measured(part, topics, condition, guards)
                break
            except StoreError:
                if part.after >= journal.first_seq - 1:
                    raise
                # Its beginning was removed meanwhile: from 0 on there is less, others are refused.
        return json_response(
            {
                "from": str(part.after),
                "to": str(part.until),
                "rows": rows,
                "since_us": since_us,
                "oldest": str(journal.first_seq - 1),
                "newest": str(journal.last_seq),
                "ts": timestamp(now_us),
                "ts_us": now_us,
                "log": journal.log_id,
            }
        )

    async def _measured(
        self,
        part: Extent,
        topics: Topics,
        condition: Filter | None,
        guards: Mapping[str, RowPolicy],
    ) -> tuple[int, int | None]:
        """The rows of a part that may be seen, and the time of the first one."""
        turns, rows = self._runtime.turns, part.rows

        def pieces() -> Iterator[LogRows | None]:
            return log_pieces(self._runtime.journal, part, topics, condition, guards)

        if condition is not None or guards:
            rows = await turns.run(READING, _counting(pieces()))
        return rows, await turns.run(READING, _first_ts_us(pieces())) if rows else None

    async def _wanted(
        self, request: web.Request, requested: dict[str, str], must_be_logged: bool = False
    ) -> tuple[Topics, Filter | None, dict[str, RowPolicy]]:
        """The requested topics, the filter on their publishes, and the row policies that apply."""
        turns, rights = self._runtime.turns, permissions_of(request)
        # A comma in a name is written %2C, encoded once more than the query string.
        names = [unquote(name) for name in comma_list(requested.get("topics", ""))]
        named = self._topics(names if "topics" in requested else None, rights, must_be_logged)
        topics = await turns.run(READING, named)
        condition = self._engine.filter(requested["filter"]) if "filter" in requested else None
        if requested.get("before", "false") != "false":
            _check_compared(names, topics, condition)
        checked = condition if "topics" in requested else None
        return topics, condition, await turns.run(READING, _guards(topics, rights, checked))

    async def _requested_for(
        self, requested: dict[str, str], topics: Topics, limit_max: int | None = ROWS_MAX
    ) -> Extent:
        journal = self._runtime.journal
        after = self._after(requested.get("from", "0"))
        until = self._bookmark("to", requested["to"]) if "to" in requested else None
        if until is not None and until < after:
            raise invalid_bookmark(
                f"to={until} ends before from={requested.get('from', '0')} begins, which is after "
                f"change {after}; write a later end, or none"
            )
        limit = read_count(requested, "limit")
        if limit is None:
            limit = ROWS_DEFAULT if limit_max else 10**9
        if limit < 1 or (limit_max is not None and limit > limit_max):
            raise ClientError(f"limit={limit} must be from 1 to {limit_max or 'any number'}")
        wait_s = min(read_seconds(requested, "wait") or 0.0, WAIT_S_MAX)
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            stored = self._runtime.commit.next()
            try:
                steps = cutting(journal, after, until, limit, topics)
                part = await self._runtime.turns.run(READING, steps)
            except StoreError as error:
                error.status = 500
                raise
            left_s = deadline - asyncio.get_running_loop().time()
            if part.rows or left_s <= 0:
                return part
            await asyncio.wait([stored], timeout=left_s)

    def _topics(
        self, names: Sequence[str] | None, rights: Permissions, must_be_logged: bool = False
    ) -> Task[Topics]:
        """The topics of these names, or all that are logged and may be read; in steps, as a pattern
        may have very many."""
        if names is None:
            found = list(self._engine.topics.values())
        else:
            found = [topic for name in names for topic in self._named(name, rights)]
        logged: Topics = {}
        for at, topic in enumerate(found, 1):
            if at % LOOKED_AT_ONCE == 0:
                yield
            if not rights.may("read", topic.name):
                continue
            if topic.is_logged:
                logged[topic.name] = topic.records
            elif must_be_logged and names is not None:
                others: tuple[str, ...] = ()
                if isinstance(topic, CopyTopic):
                    others = (topic.underlying,)
                elif isinstance(topic, ViewTopic):
                    others = tuple(topic.underlyings)
                alone = f"topic {topic.name} has no log"
                instead = f"; read the log of {' or '.join(others)}" if others else ""
                raise InvalidTopic(alone + instead, others=others, alone=alone)
        return logged

    def _named(self, name: str, rights: Permissions) -> list[LiveTopic]:
        """A topic, the members of a pattern, or a topic that a pattern would create, without rows
        yet. Raises UnknownTopic, NotEntitled."""
        rights.check("read", name)
        catalog = self._engine.catalog
        if name in catalog.patterns and name not in self._engine.topics:
            return catalog.members(name)
        return [catalog.expected(name)]

    def _after(self, bookmark: str) -> int:
        journal = self._runtime.journal
        instead = "write its beginning here, which is exclusive, and its end as to"
        return parse_start("from", bookmark, journal, journal.last_seq, instead)

    def _bookmark(self, name: str, text: str) -> int:
        """The number of a bookmark in the parameter `name`; raises ClientError, AnotherLog."""
        number = number_of(text, self._runtime.journal.log_id)
        if number is None:
            raise invalid_bookmark(
                f"{name}={clipped(text)} is not a bookmark; write one that the server gave"
            )
        return number

    # Consumers.

    @route("GET", "/v1/log/consumers", "logon", "Who has read the log how far")
    @operation("list_consumers", list[ConsumerDescribed])
    async def consumers(self, request: web.Request) -> web.Response:
        """`GET /v1/log/consumers`: the position and lag of each consumer."""
        newest, now_us = self._engine.seq, self._runtime.now_us()
        return json_response(
            [
                {
                    "name": one.name,
                    "bookmark": str(one.bookmark),
                    "behind": newest - one.bookmark,
                    "idle_s": (now_us - one.moved_us) // 1_000_000,
                }
                for one in self._consumers.all()
                if owns(permissions_of(request), one.owner)
            ]
        )

    @route("PUT", CONSUMER_PATH, "logon", "Note a consumer's position")
    @operation("move_consumer", ConsumerMoved, body=Position, takes=(JSON,), refusals=(409,))
    async def move_consumer(self, request: web.Request) -> web.Response:
        """`PUT /v1/log/consumers/{name}`: set the position of a consumer; the log after it is
        retained. Raises ClientError for an invalid body, or a bookmark that the log does not
        have, and NotEntitled."""
        if not (permissions_of(request).reads or permissions_of(request).may("admin")):
            raise NotEntitled(
                "there is no topic that you may read, so there is nothing to retain for you"
            )
        try:
            position = msgspec.json.decode(await read_body(request), type=Position)
        except msgspec.MsgspecError as error:
            raise ClientError(
                f'the body is not {{"bookmark":"12"}}: {clipped(str(error))}'
            ) from None
        bookmark = self._bookmark("bookmark", position.bookmark)
        name = request.match_info["name"]
        oldest = self._runtime.journal.first_seq - 1
        now_us = self._runtime.now_us()
        rights = permissions_of(request)
        owner = self._consumers.owner(name)
        if owner is not None and not owns(rights, owner):
            why = "belongs to another user" if owner else "is from a time without authentication"
            raise NotEntitled(f"consumer {clipped(name)} {why}; take another name")
        if owner is not None and owner != rights.owner_text:
            request.app[AUTHN].note_admin(request, rights)
        if position.topics and position.topics != self._consumers.topics(name):
            if len(position.topics) > CONSUMER_TOPICS_MAX:
                raise TooLarge(
                    f"a consumer names {CONSUMER_TOPICS_MAX} topics at most; name a pattern"
                )
            named = self._topics(position.topics, rights, must_be_logged=True)
            await self._runtime.turns.run(READING, named)
        bookmark = self._consumers.move(
            name,
            bookmark,
            now_us,
            oldest,
            position.reader,
            owner or rights.owner_text,
            position.topics,
        )
        await self._runtime.durable()
        return json_response({"name": name, "bookmark": str(bookmark)})

    @route("DELETE", CONSUMER_PATH, "logon", "Forget a consumer")
    @operation("remove_consumer", Removed, refusals=(507,))
    async def remove_consumer(self, request: web.Request) -> web.Response:
        """`DELETE /v1/log/consumers/{name}`: forget a consumer, and retain nothing for it."""
        name, rights = request.match_info["name"], permissions_of(request)
        owner = self._consumers.owner(name)
        if not owns(rights, owner or ""):
            raise no_consumer(name)
        if owner is not None and owner != rights.owner_text:
            request.app[AUTHN].note_admin(request, rights)
        self._consumers.remove(name, self._runtime.now_us())
        await self._runtime.durable()
        return json_response({"removed": name})


def owns(rights: Permissions, owner: str) -> bool:
    """Whether these permissions allow to use a consumer: the user's own, or any for Admin."""
    return rights.may("admin") or owner == rights.owner_text


def _guards(
    topics: Topics, rights: Permissions, checked: Filter | None
) -> Task[dict[str, RowPolicy]]:
    """The row policies that apply to these topics; in steps. Raises an error if a topic does not
    allow the filter that is to be `checked`."""
    found: dict[str, RowPolicy] = {}
    if rights.is_open and checked is None:
        return found
    for at, (name, topic) in enumerate(topics.items(), 1):
        if at % LOOKED_AT_ONCE == 0:
            yield
        if checked is not None:
            topic.check_filter(checked)
        guard = row_policy_for(rights, topic)
        if guard is not None:
            found[name] = guard
    return found


def _counting(rows: Iterable[LogRows | None]) -> Task[int]:
    count = 0
    for piece in rows:
        count += 0 if piece is None else len(piece.keys)
        yield
    return count


def _first_ts_us(rows: Iterable[LogRows | None]) -> Task[int | None]:
    """The time of the first row."""
    for piece in rows:
        if piece is not None:
            return piece.ts_us
        yield
    return None


def _before(requested: Mapping[str, str], kind: str) -> str | None:
    """The parameter `before`; raises ClientError for other values and formats."""
    text = requested.get("before", "false")
    if text == "false":
        return None
    if text not in BEFORE_CHOICES:
        raise ClientError(
            f"before={clipped(text)} is not true, keys (of records that leave, the key fields "
            "alone) or false"
        )
    if kind not in IN_COLUMNS:
        raise ClientError("before is for Arrow and Parquet: leave it out, or write format=arrow")
    return text


def _check_compared(names: Sequence[str], topics: Topics, condition: Filter | None) -> None:
    """Raise ClientError for changes whose records before are not known."""
    if len(names) != 1 or [*topics] != names:
        raise ClientError(
            "before is for the changes of one topic, which is no pattern: name it in topics, and "
            "read several one by one"
        )
    if condition is not None and not condition.steady:
        raise ClientError(
            "before takes a filter of fields: the record before a change was written at another "
            "moment, which is not known; leave bookmarks and times out of the filter"
        )


def _table(
    rows: Iterable[LogRows | Images | None],
    kind: str,
    columns: Sequence[str],
    has_before: bool = False,
) -> Iterator[bytes]:
    """Rows as Arrow or Parquet."""
    schema = schema_of(columns)
    writer = ColumnWriter(schema.append(RECORD_BEFORE) if has_before else schema, kind)
    for piece in rows:
        if isinstance(piece, Images):
            for part in piece.parts(IMAGES_BYTES):
                yield writer.piece([of_images(part, columns)])
        elif piece is None or piece.op == "edit":  # which is no change of a record
            yield b""
        else:
            yield writer.piece([of_log(piece, columns)])
    yield writer.end()


def _json(lines: bool, rows: Iterable[LogRows | None]) -> Iterator[bytes]:
    """Rows as lines, or as one array."""
    return documents_of(map(_documents, rows), lines)


def _csv(rows: Iterable[LogRows | None]) -> Iterator[bytes]:
    return fixed_pieces(CSV_COLUMNS, (() if piece is None else _cells(piece) for piece in rows))


def _cells(rows: LogRows) -> Iterator[Sequence[str]]:
    """Rows of CSV cells; a body is its JSON text."""
    ts, name = timestamp(rows.ts_us), rows.topic.name
    bodies: Sequence[bytes] = [b""] * len(rows.keys)
    if rows.bodies:
        bodies = rows.topic.renderer.json_texts(rows.shown)
    for seq, key, body in zip(rows.seqs, rows.keys, bodies, strict=True):
        yield str(seq), str(seq), ts, name, rows.op, key, body.decode()


FORMS: Mapping[str, Callable[[Iterable[LogRows | None]], Iterator[bytes]]] = {
    NDJSON: partial(_json, True),
    JSON: partial(_json, False),
    CSV: _csv,
}
"""The encoder of each format that is text."""


def _documents(rows: LogRows | None) -> list[bytes]:
    """Rows as JSON texts."""
    if rows is None:
        return []
    ts, name = timestamp(rows.ts_us), rows.topic.name
    named = {"ts": ts, "topic": name, "op": rows.op}
    edits = {"edits": rows.edits} if rows.edits else {}
    heads = [
        orjson.dumps({"seq": seq, "bm": str(seq), **named, "k": key, **edits})
        for seq, key in zip(rows.seqs, rows.keys, strict=True)
    ]
    if not rows.bodies:
        return heads
    bodies = rows.topic.renderer.line_bodies(rows.shown)
    return [b'%b,"d":%b}' % (head[:-1], body) for head, body in zip(heads, bodies, strict=True)]
