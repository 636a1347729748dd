"""Staged writes over HTTP: exactly-once batches for Spark and other batch writers.

    POST   /v1/writes/{writer}/{epoch}          stage a chunk of rows: checked and stored
    POST   /v1/writes/{writer}/{epoch}/commit   apply the attempts that won, atomically and once
    DELETE /v1/writes/{writer}/{epoch}          discard what was staged

A batch is identified by writer, epoch and topic. A batch that was applied before is answered as a
duplicate and changes nothing; another batch with its epoch is refused.

At a commit the chunks are read one after the other. Few rows are held until they are applied; of
more, all that can is written to the journal ahead, a part at a time, so that neither memory nor the
wait of others grows with a batch. What has to be held is bounded, and so is each part of a batch.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from hashlib import blake2b
from typing import Annotated, Any, Literal, NamedTuple
from weakref import WeakValueDictionary

import msgspec
from aiohttp import web

from sow.core.media_types import ARROW, JSON
from sow.engine.engine import Engine
from sow.engine.running_topics import LiveTopic
from sow.errors import ClientError, TooLarge, clipped, shown
from sow.security.authorization import Permissions
from sow.server.api.response_schemas import Aborted, Committed, RowsStaged
from sow.server.http.authn_middleware import permissions_of, reauthorize_stream
from sow.server.http.body_reading import read_body
from sow.server.http.negotiation import UnsupportedMediaType
from sow.server.http.responses import json_response
from sow.server.http.route import operation, parameters_of, read_count, route
from sow.server.http.tables import read_rows, without_rows
from sow.server.loop.group_commit import LoadWriter
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.commands.commit_plan import (
    DELETIONS,
    BatchContent,
    CommitStep,
    StagedRows,
    content_of,
)
from sow.sessions.commands.staged_writes import PreparedBatch, Rejected, StagedWrites
from sow.store.staging import Attempt, StagedBatch, Staging

RECENT_ROWS_MAX = 500_000
"""Rows cached as they were parsed: those of a usual batch, a few hundred bytes each."""
RECENT_BYTES_MAX = 128 * 1024**2
"""Of the bodies of cached rows: many chunks of the data source, or two of the largest."""
HELD_BYTES_MAX = 4 * 1024**2
"""Bodies that a commit holds, if more can be written to the journal ahead: others wait some ten
milliseconds for a transaction of so much."""
PARTS_MAX = 10_000
"""More tasks than a batch has; each is looked up separately."""
SWEEP_US = 600_000_000
"""How often abandoned chunks are looked for; they are removed after a day."""
REJECTED_SENT_MAX = 1_000
"""Bad rows that an error lists: more than a person reads, small beside a chunk."""
WRITER_LENGTH_MAX = 255
"""Characters of a writer's name: as of a file name."""
EPOCH_DIGITS_MAX = 18
"""Digits of an epoch: it fits into 64 bits."""
ATTEMPTS_BYTES = 16
"""Bytes of a digest: enough that no two commits share it by chance."""
STAGE_PARAMETERS = ("topic", "part", "attempt", "chunk", "rejects")
BATCH_PATH = "/v1/writes/{writer}/{epoch}"


class StagedPart(msgspec.Struct, forbid_unknown_fields=True):
    """What a task has staged: the number of chunks and of rows."""

    part: Annotated[int, msgspec.Meta(ge=0)]
    attempt: str
    chunks: Annotated[int, msgspec.Meta(ge=0)]
    rows: Annotated[int, msgspec.Meta(ge=0)]


class Commit(msgspec.Struct, forbid_unknown_fields=True):
    """The attempts that make up a batch."""

    topic: str
    parts: list[StagedPart]
    rerun: Literal["fail", "skip"] = "fail"
    """Whether a batch older than the writer's last is an error, or skipped."""
    mode: Literal["update", "replace"] = "update"
    """Whether the topic's other records stay, or are deleted."""
    allow_empty: bool = False
    """Whether a batch without rows may replace a topic."""


class Missing(ClientError):
    """A chunk that a commit names was not staged, or has been lost."""

    reason = "not staged"
    status = 409


class RowsRejected(ClientError):
    """A chunk holds rows that cannot be applied; `rejected` lists them with the reason."""

    reason = "bad message"

    def __init__(self, rejected: Sequence[Rejected]) -> None:
        first = rejected[0]
        super().__init__(
            f"{len(rejected)} rows cannot be applied, the first is row {first.index}: "
            f"{first.reason}"
        )
        self.rejected = rejected

    def fields(self) -> dict[str, object]:
        """The first bad rows."""
        listed = _sent(self.rejected[:REJECTED_SENT_MAX])
        return {"index": self.rejected[0].index, "rejected": listed}


class Read(NamedTuple):
    """A parsed chunk: the number of good rows, the steps that apply them, the bad rows, the bytes
    of the bodies, and the content."""

    rows: int
    steps: list[CommitStep]
    rejected: list[Rejected]
    size_bytes: int = 0
    content: BatchContent = BatchContent()


class Chunk(NamedTuple):
    """The key of a chunk: batch, attempt and number."""

    batch: StagedBatch
    attempt: Attempt
    number: int


class HasToBeHeld(Exception):
    """Rows of a batch depend on the records that are there, and others were written ahead."""


class BatchTurn:
    """The turn of one batch to hold rows in memory, which all others wait for."""

    def __init__(self, lock: asyncio.Lock) -> None:
        self._lock = lock
        self._has = False

    async def take(self) -> None:
        """Wait for it, unless the batch has it."""
        if not self._has:
            await self._lock.acquire()
            self._has = True

    def give(self) -> None:
        """Let others have it."""
        if self._has:
            self._has = False
            self._lock.release()


class Held(NamedTuple):
    """The rows of a batch: steps that are held, or what was written ahead; and their content."""

    steps: list[CommitStep]
    ahead: LoadWriter | None
    content: BatchContent


class Recent:
    """A cache of parsed chunks, so that most are not parsed again at commit.

    Bounded by rows and bytes; the files have everything.
    """

    def __init__(self, rows_max: int = RECENT_ROWS_MAX, bytes_max: int = RECENT_BYTES_MAX) -> None:
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._rows = self._bytes = 0
        self._read: dict[Chunk, Read] = {}

    def keep(self, name: Chunk, read: Read) -> None:
        """Cache a chunk, and evict the oldest beyond the bounds."""
        self._forget(name)
        self._read[name] = read
        self._rows += read.rows
        self._bytes += read.size_bytes
        while self._rows > self._rows_max or self._bytes > self._bytes_max:
            self._forget(next(iter(self._read)))

    def take(self, name: Chunk) -> Read | None:
        """Remove a chunk and return it; None if it is not cached."""
        return self._forget(name)

    def _forget(self, name: Chunk) -> Read | None:
        read = self._read.pop(name, None)
        if read is not None:
            self._rows -= read.rows
            self._bytes -= read.size_bytes
        return read

    def drop(self, writer: str, epoch: int, topic: str | None = None) -> None:
        """Drop the chunks of a batch; without a topic, of the batches of all topics."""
        for name in list(self._read):
            if name.batch[:2] == (writer, epoch) and topic in (None, name.batch.topic):
                self._forget(name)


class BatchCommitHandler:
    """`/v1/writes/{writer}/{epoch}`: stages, commits and aborts the batches of one server."""

    def __init__(self, runtime: ServerRuntime, engine: Engine, staging: Staging) -> None:
        self._runtime = runtime
        self._engine = engine
        self._writes = StagedWrites(engine)
        self._staging = staging
        self._committing: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        """While there is a commit of a writer for a topic."""
        self._holding = asyncio.Lock()
        """While a batch is held in memory, or a chunk of one."""
        self._recent = Recent()
        self._swept_us = 0
        self._sweeping: asyncio.Task[int] | None = None
        runtime.idle_work["sweeping staged batches"] = self._sweep

    @route("POST", BATCH_PATH, "write", "Stage rows of a batch", STAGE_PARAMETERS)
    @operation("stage_rows", RowsStaged, takes=(ARROW,), requires=("topic",), refusals=(409,))
    async def stage(self, request: web.Request) -> web.Response:
        """`POST …/{epoch}`: stage a chunk; answers the number of rows and the rejected ones.

        Raises RowsRejected for bad rows, unless they are to be skipped.
        """
        requested = parameters_of(request)
        rejects = requested.get("rejects", "fail")
        if "topic" not in requested or rejects not in ("fail", "skip"):
            raise ClientError("give topic, and rejects=fail or rejects=skip")
        if request.content_type != ARROW:
            raise UnsupportedMediaType(f"content type {request.content_type}: send {ARROW}")
        batch = _staged_batch(request, permissions_of(request), requested["topic"])
        topic = self._writes.topic(batch.topic)
        content = await read_body(request)
        read = await self._read(topic, content)
        self._writes.check_room(topic, read.steps, len(content))
        if read.rejected and rejects == "fail":
            raise RowsRejected(read.rejected)
        attempt = Attempt(read_count(requested, "part") or 0, requested.get("attempt", "0"))
        chunk = read_count(requested, "chunk") or 0
        content = without_rows(content, [row.index for row in read.rejected])
        now_us = self._runtime.now_us()
        await asyncio.to_thread(self._staging.put, batch, attempt, chunk, content, now_us)
        self._recent.keep(Chunk(batch, attempt, chunk), read)
        # All of them: a writer that skips rows has to know each one.
        return json_response({"staged": read.rows, "rejected": _sent(read.rejected)})

    async def _read(self, topic: LiveTopic, content: bytes) -> Read:
        """Parse rows in a thread; arrival times are assigned on the loop, in order."""
        limit = self._engine.configuration.limits.frame_bytes_max
        rows = await asyncio.to_thread(read_rows, topic.records, content, limit)
        times = self._engine.arrivals(topic, len(rows), self._runtime.now_us())
        return await asyncio.to_thread(self._read_rows, topic, rows, times)

    def _read_rows(self, topic: LiveTopic, rows: StagedRows, times: range | None) -> Read:
        steps, rejected = self._writes.read(topic, rows, times)
        size_bytes, content = 0, BatchContent()
        for step in steps:
            size_bytes += sum(map(len, step.messages.bodies))
            content = content.plus(content_of(step.rows))
        return Read(content.rows, steps, rejected, size_bytes, content)

    @route("POST", BATCH_PATH + "/commit", "write", "Apply a staged batch, once")
    @operation("commit_batch", Committed, body=Commit, takes=(JSON,), refusals=(409,))
    async def commit(self, request: web.Request) -> web.Response:
        """`POST …/{epoch}/commit`: apply a batch; answers its bookmark when it is durable."""
        try:
            commit = msgspec.json.decode(await read_body(request), type=Commit)
        except msgspec.MsgspecError as error:
            raise ClientError(
                f'the body is not {{"topic":…,"parts":[{{"part":0,"attempt":"0","chunks":1,'
                f'"rows":10}}]}}: {clipped(str(error))}'
            ) from None
        _check_parts(commit)
        rights = permissions_of(request)
        rights.check("write", commit.topic)
        if commit.mode == "replace":
            rights.check("delete", commit.topic)
        batch = StagedBatch(*_writer_and_epoch(request), commit.topic)
        staged = _staged_batch(request, rights, commit.topic)
        lock = self._committing.setdefault((batch.writer, batch.topic), asyncio.Lock())
        await lock.acquire()
        # A large batch takes longer than a client waits, which then repeats its commit.
        committing = self._runtime.begin(self._carry_out(request, batch, staged, commit, lock))
        bookmark, is_duplicate = await asyncio.shield(committing)
        return json_response({"bookmark": bookmark, "duplicate": is_duplicate})

    async def _carry_out(
        self,
        request: web.Request,
        batch: StagedBatch,
        staged: StagedBatch,
        commit: Commit,
        lock: asyncio.Lock,
    ) -> tuple[str, bool]:
        """Apply a batch, unless it was applied; its bookmark, and whether it was. Releases the
        lock at the end."""
        try:
            rights = permissions_of(request)
            bookmark = self._writes.applied(*batch, commit.rerun == "skip", rights)
            is_duplicate = bookmark is not None
            if bookmark is None:
                bookmark = await self._apply(request, batch, staged, commit)
            else:
                topic = self._writes.topic(batch.topic)
                is_known = self._writes.may_be_of(*batch, attempts_digest(commit.parts))
                async with self._holding:
                    content = await self._content(topic, staged, commit.parts, is_known)
                self._writes.applied(*batch, commit.rerun == "skip", rights, content)
            await self._runtime.durable()
        finally:
            lock.release()
        await self._drop(*staged)
        return bookmark, is_duplicate

    async def _apply(
        self, request: web.Request, batch: StagedBatch, staged: StagedBatch, commit: Commit
    ) -> str:
        """Apply a batch from what was `staged` for it. Permissions are checked again: rows were
        read since the request came."""
        topic, turn = self._writes.topic(batch.topic), BatchTurn(self._holding)
        ahead: LoadWriter | None = None
        prepared: PreparedBatch | None = None
        try:
            may_prepare = self._runtime.commit.writes_ahead and self._writes.may_prepare(
                topic, permissions_of(request)
            )
            try:
                steps, ahead, content = await self._rows_of(
                    topic, staged, commit, turn, may_prepare
                )
            except HasToBeHeld:
                steps, _, content = await self._rows_of(topic, staged, commit, turn, False)
            await reauthorize_stream(request)
            rights = permissions_of(request)
            if any(step.operation in DELETIONS for step in steps):
                rights.check("delete", commit.topic)
            replaces = commit.mode == "replace"
            if ahead is not None:
                loads, load = self._runtime.journal.loads, await ahead.written()
                prepared = PreparedBatch(load, lambda: loads.entries(load), ahead.sizes)
            elif replaces:
                self._writes.check_replaces(topic, steps, commit.allow_empty)
            now_us, attempts = self._runtime.now_us(), attempts_digest(commit.parts)
            applying = self._writes.applying(
                *batch, steps, now_us, replaces, rights, content, attempts, prepared
            )
            return str(await self._runtime.turns.run("a staged commit", applying))
        finally:
            turn.give()
            if ahead is not None and not (prepared is not None and prepared.is_taken):
                await ahead.discard()

    def _ahead(self, topic: LiveTopic, replaces: bool) -> LoadWriter:
        runtime, keys, fits = self._runtime, bool(topic.records.keys), None
        if self._writes.needs_sizes(topic, replaces):
            fits = partial(self._engine.capacity.check_count, topic)
        return LoadWriter(
            runtime.commit, runtime.journal.loads, self._engine.disk, topic.name, not keys, fits
        )

    async def _rows_of(
        self,
        topic: LiveTopic,
        batch: StagedBatch,
        commit: Commit,
        turn: BatchTurn,
        may_prepare: bool,
    ) -> Held:
        """The rows of a batch, written ahead if they are many and it `may_prepare`; else the turn
        goes on. The steps are not shared, so they are freed as they are applied. Raises HasToBeHeld
        for rows that were taken for others."""
        steps: list[CommitStep] = []
        content, size_bytes, ahead = BatchContent(), 0, None
        try:
            async for read in self._reads(topic, batch, commit.parts, turn):
                steps += read.steps
                content = content.plus(read.content)
                size_bytes += read.size_bytes
                may_prepare &= all(step.operation == "publish" for step in read.steps)
                if not may_prepare:
                    self._check_held(size_bytes, ahead)
                elif size_bytes > HELD_BYTES_MAX:
                    ahead = ahead or self._ahead(topic, commit.mode == "replace")
                    for step in steps:
                        await ahead.put(step.messages)
                    steps.clear()
                    turn.give()
        except BaseException:
            if ahead is not None:
                await ahead.discard()
            raise
        return Held(steps, ahead, content)

    def _check_held(self, size_bytes: int, ahead: LoadWriter | None) -> None:
        """Check that rows may be held, of so many bytes, after others were written `ahead`."""
        if ahead is not None:
            raise HasToBeHeld
        shared = self._runtime.commit.change_bytes_max
        if shared is not None and size_bytes > shared:
            raise TooLarge(
                f"the batch has more than {shared} bytes, which is what a shared log takes as one "
                "change: write it in several batches"
            )
        limit = self._engine.configuration.limits.batch_bytes_max
        if size_bytes > limit:
            raise TooLarge(
                f"the batch has more than {limit} bytes (Limits/BatchSize), and has to be held in "
                "memory: rows are deltas or deletes, the topic has Enrichment, or what may be "
                "written depends on the records; write it in several batches, or raise BatchSize"
            )

    async def _content(
        self, topic: LiveTopic, batch: StagedBatch, parts: Sequence[StagedPart], is_known: bool
    ) -> BatchContent:
        """The content of a batch that was applied before. If its chunks were dropped by the first
        commit and its attempts are `is_known`, the number of rows that it names; otherwise raises
        Missing: the chunks of a batch that another writer applied under this epoch are dropped as
        well."""
        content = BatchContent()
        for part in parts:
            attempt = Attempt(part.part, part.attempt)
            try:
                for chunk in range(part.chunks):
                    read = await self._chunk(topic, Chunk(batch, attempt, chunk))
                    content = content.plus(read.content)
            except Missing:
                if not is_known:
                    raise
                return BatchContent(sum(part.rows for part in parts), None)
        return content

    async def _reads(
        self, topic: LiveTopic, batch: StagedBatch, parts: Sequence[StagedPart], turn: BatchTurn
    ) -> AsyncIterator[Read]:
        """The parsed chunks of a batch, one after the other, each when it is the batch's turn."""
        limit = self._engine.configuration.limits.batch_bytes_max
        for part in parts:
            attempt = Attempt(part.part, part.attempt)
            rows = size_bytes = 0
            for chunk in range(part.chunks):
                await turn.take()
                read = await self._chunk(topic, Chunk(batch, attempt, chunk))
                rows, size_bytes = rows + read.rows, size_bytes + read.size_bytes
                if size_bytes > limit:
                    raise TooLarge(
                        f"part {part.part} has more than {limit} bytes (Limits/BatchSize); write "
                        "its rows in several parts of the batch"
                    )
                yield read
            if rows != part.rows:
                raise Missing(
                    f"part {part.part}, attempt {shown(part.attempt)}, holds {rows} rows and the "
                    f"commit names {part.rows}; send the batch again"
                )

    async def _chunk(self, topic: LiveTopic, chunk: Chunk) -> Read:
        recent = self._recent.take(chunk)
        if recent is not None:
            return recent
        batch, attempt, number = chunk
        content = await asyncio.to_thread(self._staging.get, batch, attempt, number)
        if content is None:
            raise Missing(
                f"chunk {number} of part {attempt.part}, attempt {shown(attempt.name)}, is "
                "missing: it was never staged, dropped, or lost in a crash; send the batch again"
            )
        return await self._read(topic, content)

    @route("DELETE", BATCH_PATH, "write", "Forget a staged batch", ("topic",))
    @operation("abort_batch", Aborted, refusals=(409,))
    async def abort(self, request: web.Request) -> web.Response:
        """`DELETE …/{epoch}`: discard what was staged for a batch; without a topic, for all topics
        of the writer's epoch."""
        topic, rights = parameters_of(request).get("topic"), permissions_of(request)
        if topic is None and not rights.is_open:
            raise ClientError("give the topic whose rows to discard: topic=orders")
        writer, epoch, _ = _staged_batch(request, rights, topic or "")
        await self._drop(writer, epoch, topic)
        return json_response({"aborted": epoch})

    async def _drop(self, writer: str, epoch: int, topic: str | None) -> None:
        self._recent.drop(writer, epoch, topic)
        await asyncio.to_thread(self._staging.drop, writer, epoch, topic)

    def _sweep(self, now_us: int) -> bool:
        """Remove what has not been committed for a day: its writer will not come back."""
        if now_us - self._swept_us > SWEEP_US:
            self._swept_us = now_us
            self._sweeping = asyncio.create_task(asyncio.to_thread(self._staging.sweep, now_us))
        return False


def attempts_digest(parts: Sequence[StagedPart]) -> str:
    """A digest of the attempts that a commit names, independent of their order."""
    named = sorted((part.part, part.attempt, part.chunks, part.rows) for part in parts)
    return blake2b(msgspec.json.encode(named), digest_size=ATTEMPTS_BYTES).hexdigest()


def _writer_and_epoch(request: web.Request) -> tuple[str, int]:
    writer, epoch = request.match_info["writer"], request.match_info["epoch"]
    if len(writer) > WRITER_LENGTH_MAX or not writer.isprintable():
        raise ClientError(f"a writer's name has 1 to {WRITER_LENGTH_MAX} printable characters")
    if not (epoch.isascii() and epoch.isdigit() and len(epoch) <= EPOCH_DIGITS_MAX):
        raise ClientError(f"epoch {shown(epoch)} is not a whole number, 0 or more")
    return writer, int(epoch)


def _staged_batch(request: web.Request, rights: Permissions, topic: str) -> StagedBatch:
    """The batch of a request, as staged: separate for each user, so that no user can commit or
    drop the rows of another."""
    writer, epoch = _writer_and_epoch(request)
    return StagedBatch(f"{rights.owner_text}{writer}", epoch, topic)


def _check_parts(commit: Commit) -> None:
    if len(commit.parts) > PARTS_MAX:
        raise TooLarge(f"the commit names {len(commit.parts)} parts, over {PARTS_MAX}")
    numbers = [part.part for part in commit.parts]
    if len(set(numbers)) < len(numbers):
        raise ClientError("the commit names a part twice; one attempt of each has won")


def _sent(rejected: Sequence[Rejected]) -> list[dict[str, Any]]:
    return [{"index": row.index, "reason": row.reason} for row in rejected]
