"""The records of a topic over HTTP: queries, publishes and deletes.

Each handler reads the request, calls the engine, and writes the answer. A change is answered when
it is durable, and so is a query: it never shows a change that a crash could still undo. Large
answers are written in pieces from a snapshot of one moment.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from aiohttp import hdrs, web

from sow.core.comma_lists import parse_select
from sow.core.cooperative import Task
from sow.core.media_types import (
    ADVICE_HEADER,
    ARROW,
    ARROW_FILE,
    COLUMNS_HEADER,
    CSV,
    FRAMES,
    JSON,
    NDJSON,
    PARQUET,
)
from sow.core.paths import Path
from sow.core.quota import client_of
from sow.engine.running_topics import LiveTopic
from sow.errors import ClientError, clipped
from sow.expressions import Filter, parse_order_by
from sow.history.snapshot import Snapshot
from sow.messages.arrow import ArrowColumns, sent_columns
from sow.messages.column_types import ColumnTypes
from sow.protocol.commands import Command, Options, options_of
from sow.query import Query
from sow.security.row_level_security import RowPolicy
from sow.server.api.cursors import Cursors, Paging, limit_of
from sow.server.api.record_resource import RECORDS_PATH, NumberedChange
from sow.server.api.response_schemas import Deleted, Published, QueryExplained
from sow.server.api.snapshots import AsOfQueries, SnapshotHandler
from sow.server.http.authn_middleware import permissions_of
from sow.server.http.body_reading import client_key
from sow.server.http.chunked_response import answer_in_pieces, answer_whole
from sow.server.http.negotiation import FORMAT_ENDING, form_of, format_of_ending, wants_columns
from sow.server.http.request_bodies import (
    MESSAGE_FORMATS,
    Reading,
    documents_of,
    frames_of,
    idempotency_key,
    read_messages,
    take_messages,
)
from sow.server.http.request_origin import client_address
from sow.server.http.responses import file_name, json_response
from sow.server.http.route import (
    check_named,
    operation,
    parameters_of,
    read_flag,
    read_options,
    read_seconds,
    read_sow_keys,
    route,
)
from sow.server.http.tables import (
    IN_COLUMNS,
    CsvTable,
    check_parts,
    in_turns,
    of_documents,
    of_snapshot,
    streamed,
    warm_up,
)
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.commands import record_ops
from sow.sessions.commands.executor import Executor
from sow.sessions.commands.publishers import NumberedAnswer, NumberedTurn
from sow.sessions.queries.access_control import (
    permit_for,
    restrict_query,
    restrict_shape,
    row_policy_for,
)
from sow.sessions.queries.aggregations import Share
from sow.sessions.queries.query_results import QueryResult, UnreadQuota, execute_query
from sow.topic.missing_fields import Unsure, field_advice, unsure_fields
from sow.topic.rendering import WHOLE, Shape

RECORDS_FILE = f"{RECORDS_PATH}.{{{FORMAT_ENDING}}}"
FILE_PARAMETERS = (
    "filter", "order_by", "keys", "key", *options_of("query"), "as_of", "meta", "explain",
    "limit", "cursor",
)  # fmt: skip
QUERY_PARAMETERS = (*FILE_PARAMETERS, "format")
DELTA_PARAMETERS = ("k", "expiration", "ack")
PUBLISH_PARAMETERS = (*DELTA_PARAMETERS, "meta")
DELETE_PARAMETERS = ("filter", "keys", "key")
FILE_FORMATS = (JSON, NDJSON, CSV, ARROW, ARROW_FILE, PARQUET)
FORMATS = (*FILE_FORMATS, FRAMES)
ANSWER_ROWS_MAX = 10_000_000
"""Unread rows of answers of all clients together; one client may have half of them. Each takes up
to some 50 bytes, and in Arrow as much as its body."""

ANSWER = "an answer over HTTP"
"""The name of this work in metrics."""


class RecordsHandler:
    """`/v1/topics/{topic}/records` of one server."""

    def __init__(
        self,
        runtime: ServerRuntime,
        executor: Executor,
        past: AsOfQueries,
        snapshots: SnapshotHandler,
    ) -> None:
        self._past = past
        self._runtime = runtime
        self._executor = executor
        self._engine = executor.engine
        self._cursors = Cursors(runtime, executor.engine, snapshots)
        self._unread = UnreadQuota(ANSWER_ROWS_MAX)

    def _topic(self, request: web.Request) -> LiveTopic:
        return self._engine.topic(request.match_info["topic"])

    @route("GET", RECORDS_PATH, "read", "Query records", QUERY_PARAMETERS)
    @operation("query", list[Any] | QueryExplained, FORMATS, tagged=True, refusals=(507,))
    async def query(self, request: web.Request) -> web.StreamResponse:
        """`GET …/records`: a query, of records or of aggregates over them; with `cursor` the next
        page of one."""
        requested = parameters_of(request)
        if "cursor" in requested:
            return await self._next_page(request)
        options = read_options(requested, "query")
        requested_topic = self._topic(request)
        if requested_topic.records.is_queue:
            dated = replace(options, as_of=requested.get("as_of"))
            self._executor.queues.check(Command("sow", topic=requested_topic.name, options=dated))
        seen = row_policy_for(permissions_of(request), requested_topic.records)
        text = requested.get("filter")
        if options.projection is None and options.grouping is None:
            return await self._query(request, requested_topic, requested, options, text, seen)
        command = Command(
            "sow",
            topic=request.match_info["topic"],
            filter=requested.get("filter"),
            options=options,
            keys=read_sow_keys(requested, requested_topic.records),
            rights=permissions_of(request),
        )
        aggregations, turns = self._executor.subscriptions.aggregations, self._runtime.turns
        owner = permissions_of(request).owner
        client = client_of(owner, client_address(request), request.protocol)
        with self._unread.answer(client_key(request)) as unread:
            question = aggregations.question(command)
            moment, bookmark = requested.pop("as_of", None), None
            if moment is None:
                steps = aggregations.computed(question, client, unread.admit)
            else:
                query = Query(filter=question.condition).at(self._engine.now_us)
                found = await self._past.query(
                    request, question.topic.name, moment, query, unread.admit
                )
                steps = aggregations.computed_of(question, client, found.rows)
                bookmark = found.bookmark
            made: list[Share] = []
            try:
                await turns.run("an aggregated query over HTTP", _kept_in(made, steps))
            except BaseException:
                # The client may go between the last step and its result.
                for share in made:
                    share.let_go()
                raise
        share = made[0]
        bookmark = share.bookmark if bookmark is None else bookmark
        try:
            own = Query(None if text is None else self._runtime.filter(text))
            unsure = unsure_fields(requested_topic.records, own, options, seen)
            advice = await self._field_advice(requested_topic, unsure, seen) if unsure else ()
            return await self._query(
                request, share.topic, requested, options, None, seen, bookmark, advice
            )
        finally:
            share.let_go()

    @route(
        "GET", RECORDS_FILE, "read", "Query records, in the format of the ending", FILE_PARAMETERS
    )
    @operation("query_file", list[Any] | QueryExplained, FILE_FORMATS, tagged=True, refusals=(507,))
    async def query_file(self, request: web.Request) -> web.StreamResponse:
        """`GET …/records.csv`: the same in the format of the ending."""
        requested = parameters_of(request)
        if "cursor" not in requested:
            requested[FORMAT_ENDING] = request.match_info[FORMAT_ENDING]
        return await self.query(request)

    async def _next_page(self, request: web.Request) -> web.StreamResponse:
        """A later page of a result."""
        page = await self._cursors.next(request)
        kind, shape, meta = page.paging.kind, page.paging.shape, page.paging.meta
        if (
            FORMAT_ENDING in request.match_info
            and format_of_ending(request.match_info[FORMAT_ENDING]) != kind
        ):
            raise ClientError(
                "the pages of a cursor have the form of the first; use the address that Link "
                "gives, relative to the first one"
            )
        with self._unread.answer(client_key(request)) as unread:
            unread.admit(len(page.rows))
            return await self._answer(
                request, page.rows, kind, shape, None, meta, None, page.headers
            )

    async def _query(
        self,
        request: web.Request,
        topic: LiveTopic,
        requested: Mapping[str, str],
        options: Options,
        condition: str | None,
        seen: RowPolicy | None,
        bookmark: int | None = None,
        advice: Sequence[str] | None = None,
    ) -> web.StreamResponse:
        """The answer to a query on a topic; `seen` is the row policy of the topic in the address,
        `bookmark` the moment of a state in the past, and `advice` that on fields, where the topic
        is of groups."""
        query = self._requested_query(topic, requested, options, condition)
        kind = form_of(request, requested, FORMATS)
        meta, explain = read_flag(requested, "meta"), read_flag(requested, "explain")
        limit = limit_of(requested, kind, explain)
        shape = Shape(select=options.select)
        if shape.select is not None and not explain and not (meta and kind in IN_COLUMNS):
            topic.records.renderer.check_select(shape.select)
        guard = row_policy_for(permissions_of(request), topic.records)
        unsure = unsure_fields(topic.records, query, options, guard) if advice is None else ()
        advice = await self._field_advice(topic, unsure, guard) if unsure else advice or ()
        query, shape = restrict_query(query, guard), restrict_shape(shape, guard)
        with self._unread.answer(client_key(request)) as unread:
            turns, in_columns = self._runtime.turns, kind in IN_COLUMNS and not meta and not explain
            is_sent = kind == NDJSON and not meta and not explain and wants_columns(request)
            if in_columns:
                await turns.run("an answer in columns", self._engine.columns.making(topic))
            if "as_of" in requested:
                found = await self._past.query(
                    request, topic.name, requested["as_of"], query, unread.admit, is_stamped=meta
                )
                if in_columns or (is_sent and topic.records.types is not None):
                    # Some of these records were deleted before column types were first inferred.
                    learning = self._engine.columns.observing(topic, found.rows.messages())
                    await turns.run("an answer in columns", learning)
            else:
                found = await turns.run(
                    "a query over HTTP",
                    execute_query(
                        self._engine, topic.name, query, meta or in_columns, unread.admit, meta
                    ),
                )
            check_named(topic.name, requested, found.answer.matches)
            if bookmark is not None:
                found = found._replace(bookmark=bookmark)
            # The types now cover every value of the rows.
            types = topic.records.types if in_columns else None
            columns = (
                None
                if types is None
                else await self._columns(topic, shape, found.rows, guard, types)
            )
            if "as_of" not in requested and bookmark is None and not in_columns and not explain:
                found = await self._made_durable(topic, query.filter, found)
            elif not explain:
                await self._runtime.settled()
            headers: Mapping[str, str] = {
                "SOW-Matches": str(found.answer.matches),
                "SOW-Index": found.answer.index,
                "SOW-Bookmark": str(found.bookmark),
                **(advice_header(advice) if advice else {}),
            }
            if kind != JSON or FORMAT_ENDING in requested:
                headers = {**headers, **file_name(request.match_info["topic"], kind)}
            if explain:
                answer = found.answer
                explained = answer.explain if guard is None else answer.explain_guarded
                return json_response(with_advice(explained, advice), headers=headers)
            if is_sent:
                headers = {**headers, **await self._sent(topic, shape, found.rows, guard)}
            rows = found.rows
            if limit is not None:
                paging = Paging(kind, shape, meta, limit, headers)
                page = await self._cursors.first(request, rows, found.bookmark, paging, seen)
                rows, headers = page.rows, page.headers
            return await self._answer(request, rows, kind, shape, columns, meta, guard, headers)

    async def _answer(
        self,
        request: web.Request,
        rows: Snapshot,
        kind: str,
        shape: Shape,
        columns: ArrowColumns | None,
        meta: bool,
        guard: RowPolicy | None,
        headers: Mapping[str, str],
    ) -> web.StreamResponse:
        pieces: Iterable[bytes]
        if kind in IN_COLUMNS:
            pieces = await self._in_columns(rows, columns, shape, guard, kind)
        elif kind == CSV:
            # The columns are determined before anything is written.
            declared = self._engine.columns.declared(self._engine.topic(rows.topic.name))
            table = CsvTable(rows, meta, shape, declared)
            names = await self._runtime.turns.run("an answer in columns", table.header())
            pieces = table.pieces(names)
        else:
            pieces = (
                frames_of(rows.framed(shape) if meta else rows.messages(shape))
                if kind == FRAMES
                else documents_of(rows.documents(meta, shape), kind == NDJSON)
            )
            if rows.is_short:
                return answer_whole(request, b"".join(pieces), kind, headers)
        return await answer_in_pieces(self._runtime.turns, ANSWER, request, pieces, kind, headers)

    async def _in_columns(
        self,
        rows: Snapshot,
        columns: ArrowColumns | None,
        shape: Shape,
        guard: RowPolicy | None,
        kind: str,
    ) -> Iterable[bytes]:
        """Rows as Arrow or Parquet: with these columns, or (None) with those of the log."""
        await warm_up()
        if columns is None:
            return streamed(of_snapshot(rows, restrict_shape(WHOLE, guard)), kind=kind)
        documents = of_documents(rows, columns, shape)
        batches = await in_turns(self._runtime.turns, "an answer in columns", documents)
        check_parts(batches, kind)
        return streamed(batches, kind=kind)

    async def _field_advice(
        self, topic: LiveTopic, unsure: Sequence[Path], guard: RowPolicy | None
    ) -> Sequence[str]:
        """What there is to say of fields that are not known to be there."""
        looking = field_advice([Unsure(topic.records, unsure, guard)])
        return await self._runtime.turns.run("looking for fields", looking)

    async def _sent(
        self, topic: LiveTopic, shape: Shape, rows: Snapshot, guard: RowPolicy | None
    ) -> Mapping[str, str]:
        """The header with the columns of an answer: the declared ones alone where the others
        are not known."""
        telling = self._engine.columns.sent_at_once(topic)
        types = await self._runtime.turns.run("an answer in columns", telling)
        known = ColumnTypes(topic.records.message_type) if types is None else types
        columns = await self._columns(topic, shape, rows, guard, known)
        text = sent_columns(columns.columns, types is not None)
        return {COLUMNS_HEADER: text} if text else {}

    async def _columns(
        self,
        topic: LiveTopic,
        shape: Shape,
        rows: Snapshot,
        guard: RowPolicy | None,
        types: ColumnTypes,
    ) -> ArrowColumns:
        """The current columns of a topic's records; under a row policy only those of the visible
        rows. Raises TooLarge for too many."""
        types.check(topic.name)
        wanted = None if shape.select is None else parse_select(shape.select).may_show
        if guard is not None and guard.rows is not None:
            steps = self._engine.columns.names(topic, rows.messages())
            names = await self._runtime.turns.run("an answer in columns", steps)
            selected, wanted = (
                wanted,
                lambda name: name in names and (selected is None or selected(name)),
            )
        declared = self._engine.columns.declared(topic)
        return ArrowColumns(topic.records.message_type, types, declared, wanted)

    def _requested_query(
        self, topic: LiveTopic, requested: Mapping[str, str], options: Options, text: str | None
    ) -> Query:
        order_by = requested.get("order_by")
        return Query(
            filter=self._runtime.filter(text) if text is not None else None,
            keys=read_sow_keys(requested, topic.records),
            order_by=parse_order_by(order_by) if order_by else (),
            top_n=options.top_n,
            skip_n=options.skip_n or 0,
        )

    @route("POST", RECORDS_PATH, "write", "Publish", PUBLISH_PARAMETERS)
    @operation("publish", Published, takes=MESSAGE_FORMATS, numbered=True)
    @route("PATCH", RECORDS_PATH, "write", "Delta publish", DELTA_PARAMETERS)
    @operation("delta_publish", Published, takes=MESSAGE_FORMATS, numbered=True)
    async def publish(self, request: web.Request) -> web.Response:
        """`POST …/records`: publish; `PATCH`: merge each message into its record. Answered when
        durable, or with ack=processed when visible."""
        topic = self._engine.catalog.publishable(request.match_info["topic"])
        requested = parameters_of(request)
        ack = requested.get("ack", "persisted")
        if ack not in ("processed", "persisted"):
            raise ClientError(f"ack={clipped(ack)} is not known; write processed or persisted")
        expires_s, in_rows = read_seconds(requested, "expiration"), read_flag(requested, "meta")
        if in_rows and "k" in requested:
            raise ClientError("with meta=true each row has its k; leave the parameter k out")
        author, now_us = permissions_of(request).author(None), self._runtime.now_us
        reading = Reading(
            self._engine, topic, requested.get("k"), now_us, author, in_rows, expires_s
        )
        key, bodies = idempotency_key(request), list[bytes]()
        body = await read_messages(topic.records, request)
        count = await self._runtime.turns.run(
            "reading messages",
            take_messages(
                topic.records,
                request,
                body,
                reading.take if key is None else bodies.extend,
                self._engine.configuration.limits.frame_bytes_max,
                in_rows,
            ),
        )

        def published(bookmark: int) -> NumberedAnswer:
            return NumberedAnswer({"published": count, "bookmark": str(bookmark)})

        def publishing(turn: NumberedTurn | None) -> Task[NumberedAnswer]:
            if turn is not None:
                yield from reading.take_from(bodies, turn.skipped)
            new = sum(len(messages.bodies) for messages in reading.messages)
            self._executor.rates.take(permissions_of(request), new, self._runtime.now_us())
            yield from self._engine.atomic.finish_before(topic.name)
            bookmark = yield from self._engine.publications.carry_out(
                topic.name,
                reading.messages,
                self._runtime.now_us(),
                expires_s=expires_s,
                delta=request.method == hdrs.METH_PATCH,
                permit=permit_for(permissions_of(request), "write", topic.name),
                counted=None if turn is None else turn.stored,
            )
            return published(bookmark)

        def older() -> NumberedAnswer:
            return published(self._engine.seq)

        work = NumberedChange("a publish", topic.name, count, publishing, published, older)
        return await work.answered(self._runtime, self._executor, request, key, ack == "persisted")

    @route("DELETE", RECORDS_PATH, "delete", "Delete records", DELETE_PARAMETERS)
    @operation("delete_records", Deleted, takes=MESSAGE_FORMATS, needs_body=False, numbered=True)
    async def delete(self, request: web.Request) -> web.Response:
        """`DELETE …/records`: delete by filter, keys or bodies; answered when durable."""
        topic = self._engine.catalog.deletable(request.match_info["topic"])
        requested = parameters_of(request)
        body = await read_messages(topic.records, request)
        identities = await self._named(topic, request, body) if body else None

        def deleted(count: int) -> NumberedAnswer:
            return NumberedAnswer({"deleted": count})

        def deleting(turn: NumberedTurn | None) -> Task[NumberedAnswer]:
            def counted(count: int) -> None:
                # Before its number is used: what is refused uses none.
                check_named(topic.name, requested, count)
                if turn is not None:
                    turn.removed(count)

            count = yield from record_ops.delete_selected(
                self._engine,
                self._executor.audit,
                topic,
                self._runtime.now_us(),
                filter_text=requested.get("filter"),
                sow_keys=read_sow_keys(requested, topic.records),
                identities=identities,
                rights=permissions_of(request),
                check_still=lambda: permissions_of(request),
                counted=counted,
            )
            return deleted(count)

        work = NumberedChange(
            "delete over HTTP", topic.name, 1, deleting, deleted, lambda: deleted(0)
        )
        key = idempotency_key(request)
        return await work.answered(self._runtime, self._executor, request, key)

    async def _named(self, topic: LiveTopic, request: web.Request, body: bytes) -> Collection[str]:
        """The identities of the records that bodies name by their key fields; raises BadMessage."""
        identities: dict[str, None] = {}

        def take(some: Sequence[bytes]) -> None:
            identities.update(dict.fromkeys(topic.records.identities_of_sent(some)))

        steps = take_messages(
            topic.records, request, body, take, self._engine.configuration.limits.frame_bytes_max
        )
        await self._runtime.turns.run("reading messages", steps)
        return identities

    async def _made_durable(
        self, topic: LiveTopic, condition: Filter | None, found: QueryResult
    ) -> QueryResult:
        """The result, once it is durable: at once, as of the newest durable change, if no pending
        change concerns it."""
        if found.bookmark <= self._engine.sequencer.durable_seq:
            return found
        if not self._engine.queries.is_durable(topic.name, condition):
            await self._runtime.settled()
            return found
        bookmark = self._engine.sequencer.durable_seq
        return found._replace(bookmark=bookmark) if bookmark < found.bookmark else found


def advice_header(advice: Sequence[str]) -> Mapping[str, str]:
    """The header with these sentences, which is ASCII."""
    return {ADVICE_HEADER: "; ".join(quote(one, safe="/") for one in advice)}


def with_advice(explained: Mapping[str, Any], advice: Sequence[str]) -> Mapping[str, Any]:
    """The plan of a query, with what there is to say of its fields."""
    if not advice:
        return explained
    said = [explained["advice"], *advice] if explained["advice"] else advice
    return {**explained, "advice": "; ".join(said), "why": [*explained["why"], *advice]}


def _kept_in(made: list[Share], steps: Task[Share]) -> Task[None]:
    """Run the steps, and keep what they make."""
    made.append((yield from steps))
