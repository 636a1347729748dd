"""Writes: rows become messages of a topic, a whole batch at once and exactly once.

Each task stages its rows on the server and reports that; the driver then commits the successful
attempts, under a name and a number that are the same whenever the batch is repeated. The server
applies a new batch, and acknowledges a known one.
"""

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from conflated_topics.recorded import to_ipc
from sow.core.media_types import ARROW
from sow.errors import ClientError
from sow.messages.arrow import JSON_KIND, KIND_OF_COLUMN
from sow.spark.changes import BESIDE_THE_BODY, CHANGE_TYPE, applied
from sow.spark.columns import OF_THE_ROW
from sow.spark.http import ServerRefusal, SourceOptions, segment
from sow.spark.run_state import DeadLetters, makes_a_table, part_and_attempt, query_and_batch
from sow.spark.write_target import (
    KeysOfTopics,
    WriteTarget,
    by_sow_key,
    check_columns,
    documents,
    target,
)

CHUNK_BYTES_MAX = 16 * 1024**2
"""Bytes of one request: well below the server's limit (Limits/FrameSize, 64 MiB)."""
PART_SHARE = 2
"""A part takes this share of what it may have (Limits/BatchSize): the server counts messages with
the fields that it adds."""
PARTS_APART = 1_000_000
"""The parts that a task cuts its rows into have numbers so far apart: no job has more tasks."""


@dataclass
class TaskPart:
    """Rows that a task has staged together, in so many requests."""

    part: int
    chunks: int = 0
    rows: int = 0
    size_bytes: int = 0


@dataclass
class Staged(WriterCommitMessage):
    """The rows that a task has staged, and for which writer; `part` is the first of its parts."""

    writer: str
    part: int
    attempt: str
    rejected: int
    parts: list[TaskPart]

    def named(self) -> list[dict[str, object]]:
        """The parts, as a commit names them."""
        return [
            {"part": one.part, "attempt": self.attempt, "chunks": one.chunks, "rows": one.rows}
            for one in self.parts
        ]


class _Staging:
    """One task's connection to the server."""

    def __init__(
        self,
        options: SourceOptions,
        writer: str,
        epoch: int,
        to: WriteTarget,
        json_texts: frozenset[str],
    ) -> None:
        self._options = options
        self._server = options.server
        self._to = to
        self._messages = RowMessages(options, to, json_texts)
        self._path = _path(writer, epoch)
        part, attempt = part_and_attempt()
        self.staged = Staged(writer, part, attempt, 0, [TaskPart(part)])
        self._part_bytes = to.part_bytes // PART_SHARE
        self._chunk_bytes = min(CHUNK_BYTES_MAX, self._part_bytes)
        self._dead_letters = _dead_letters(options, writer, epoch)
        self._rejected: list[dict[str, Any]] = []
        self._schema = pa.schema([])
        """The columns of the rows."""

    def write(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Stage everything, in requests and parts of bounded size."""
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            self._schema = batch.schema
            for piece in _pieces(batch, self._options.batch_rows):
                for messages in _bounded(self._messages.of(piece), self._chunk_bytes):
                    if not len(messages):  # nothing but images before an update
                        continue
                    rows, size = rows + len(messages), size + messages.nbytes
                    if rows > self._options.batch_rows or size > self._chunk_bytes:
                        self._send(waiting)
                        waiting, rows, size = [], len(messages), messages.nbytes
                    waiting.append(messages)
        self._send(waiting)
        if self._rejected and self._dead_letters is not None:
            self._dead_letters.put(self.staged.part, self.staged.attempt, self._rejected)
        return self.staged

    def _send(self, batches: Sequence[pa.RecordBatch]) -> None:
        if not batches:
            return
        table = pa.Table.from_batches(batches)
        part = self._part_for(table.nbytes)
        skips = self._options.dead_letter_path is not None
        requested = {
            "topic": self._options.topic,
            "part": part.part,
            "attempt": self.staged.attempt,
            "chunk": part.chunks,
            "rejects": "skip" if skips else "fail",
        }
        try:
            reply = self._server.request(
                "POST", self._path, requested, to_ipc(table), content_type=ARROW
            )
        except ServerRefusal as error:
            raise self._explained(error) from None
        answer = json.loads(reply.body)
        if answer["rejected"]:
            rows = table.take(pa.array([row["index"] for row in answer["rejected"]])).to_pylist()
            self._rejected += [
                {"topic": self._options.topic, **row, **why}
                for row, why in zip(rows, answer["rejected"], strict=True)
            ]
        part.chunks += 1
        part.rows += answer["staged"]
        self.staged.rejected += len(answer["rejected"])

    def _explained(self, error: ServerRefusal) -> ClientError:
        """What is refused, with the column that it is about, as far as that is known here."""
        if error.reason != "bad message":
            return error
        if self._messages.are_values:
            return ClientError(
                f"{error.detail}; the messages are those of the column value, each row's whole "
                "document"
            )
        if "value" in self._schema.names and pa.types.is_binary(self._schema.field("value").type):
            return ClientError(
                f"{error.detail}; the column value is binary, and so a field: cast it to string"
            )
        near = self._to.key_in_other_case(self._schema.names)
        if near is None:
            return error
        return ClientError(f"{error.detail}; names differ by case: rename the column {near}")

    def _part_for(self, size_bytes: int) -> TaskPart:
        """The part that takes so many bytes more: the last one, or a new one."""
        parts = self.staged.parts
        if parts[-1].chunks and parts[-1].size_bytes + size_bytes > self._part_bytes:
            parts.append(TaskPart(parts[-1].part + PARTS_APART))
        parts[-1].size_bytes += size_bytes
        return parts[-1]


class RowMessages:
    """Converts rows to the columns that the server takes: value, and op and key if they are given.

    `json_texts` are columns that hold the JSON text of each value.
    """

    def __init__(self, options: SourceOptions, to: WriteTarget, json_texts: frozenset[str]) -> None:
        self._options = options
        self._to = to
        self._json_texts = json_texts
        self._keys_of_topics = KeysOfTopics(options.server, to)
        self.are_values = False
        """Whether the column `value` holds the rows' documents."""

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch; raises ClientError for rows that cannot be written."""
        if CHANGE_TYPE in batch.schema.names:
            return self._changes(batch)
        options, to, names = self._options, self._to, batch.schema.names
        columns: dict[str, Any] = {}
        if options.op_column in names:
            operation = options.mode if options.mode in ("delta", "delete") else "publish"
            columns["op"] = batch.column(options.op_column).cast(pa.string()).fill_null(operation)
        elif options.mode in ("delta", "delete"):
            columns["op"] = pa.repeat(pa.scalar(options.mode), len(batch))
        self.are_values = "value" in names and to.is_message(batch.schema.field("value").type)
        if options.key_column in names and (self.are_values or not to.key_is_field):
            columns["key"] = batch.column(options.key_column).cast(pa.string())
        if to.is_copy:
            columns |= {name: batch.column(name) for name in ("bookmark", "ts")}
        columns["value"] = self._values(batch)
        if {"op", "key"} <= columns.keys() and not to.is_copy:
            # In typed rows `topic` is a field.
            of_topic = ("topic", "_topic") if self.are_values else ("_topic",)
            topic = next((name for name in of_topic if name in names), None)
            topics = None if topic is None else batch.column(topic)
            columns["value"] = self._without_keyless(batch, columns, topics)
        return pa.RecordBatch.from_pydict(columns)

    def _changes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of changes that are applied."""
        batch, operations = applied(batch)
        options, to, names = self._options, self._to, batch.schema.names
        self.are_values = "value" in names and to.is_message(batch.schema.field("value").type)
        columns: dict[str, Any] = {"op": operations}
        fields = [name for name in names if name not in BESIDE_THE_BODY]
        own_key = options.key_column in fields and (self.are_values or not to.key_is_field)
        if own_key:
            fields.remove(options.key_column)
        if self.are_values:
            columns["value"] = batch.column("value")
        else:
            columns["value"] = documents(batch.select(fields), False, self._json_texts)
        key = options.key_column if own_key else "_key" if "_key" in names else None
        if key is not None:
            columns["key"] = batch.column(key).cast(pa.string())
            topics = batch.column("_topic").cast(pa.string()) if "_topic" in names else None
            columns["value"] = self._without_keyless(batch, columns, topics, key == "_key")
            if to.keys:  # all other rows have their key in the document
                columns["key"] = pc.if_else(pc.is_null(columns["value"]), columns["key"], None)
        return pa.RecordBatch.from_pydict(columns)

    def _values(self, batch: pa.RecordBatch) -> pa.Array:
        if self.are_values:
            return batch.column("value")
        options = self._options
        left_out = {options.op_column, *([] if self._to.key_is_field else [options.key_column])}
        if left_out & OF_THE_ROW.keys():
            left_out |= OF_THE_ROW.keys()
        fields = [name for name in batch.schema.names if name not in left_out]
        is_delta = options.mode == "delta"
        return documents(batch.select(fields), is_delta, self._json_texts)

    def _without_keyless(
        self,
        batch: pa.RecordBatch,
        columns: Mapping[str, Any],
        topics: pa.Array | None,
        must_name_topic: bool = False,
    ) -> pa.Array:
        """The documents, without those of deletes that use their SowKeys; these are of `topics`, as
        far as they say so, or must."""
        value = columns["value"]
        by_key = by_sow_key(batch, columns["op"], () if self.are_values else self._to.keys)
        if self.are_values:
            by_key = pc.and_(by_key, pc.is_null(value))
        by_key = pc.and_(by_key, pc.is_valid(columns["key"]))
        if topics is not None:
            self._keys_of_topics.check(topics.filter(by_key))
        if must_name_topic:
            nameless = by_key if topics is None else pc.and_(by_key, pc.is_null(topics))
            if pc.any(nameless).as_py():
                raise ClientError(
                    "a delete without key fields names its record by _key, which is a SowKey of "
                    "one topic, and there is no _topic: add it, or the key fields"
                )
        return pc.if_else(by_key, pa.scalar(None, value.type), value)


def _pieces(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(batch), rows):
        yield batch.slice(start, rows)


def _bounded(messages: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Messages in pieces that fit one request; a single message may exceed the size."""
    if messages.nbytes <= bytes_max or len(messages) <= 1:
        yield messages
        return
    half = len(messages) // 2
    yield from _bounded(messages.slice(0, half), bytes_max)
    yield from _bounded(messages.slice(half), bytes_max)


def _dead_letters(options: SourceOptions, writer: str, epoch: int) -> DeadLetters | None:
    path = options.dead_letter_path
    return None if path is None else DeadLetters(path, options.topic, writer, epoch)


class _Writes:
    """What writes of batches and of streams share: tasks stage, and the driver commits."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.target = target(options)
        check_columns(schema, options, self.target)
        self.json_texts = frozenset(
            # A read with `inferSchema` has marked them.
            field.name
            for field in schema
            if field.metadata.get(KIND_OF_COLUMN) == JSON_KIND
        )

    def _stage(self, writer: str, epoch: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        return _Staging(self.options, writer, epoch, self.target, self.json_texts).write(batches)

    def _commit(self, writer: str, epoch: int, staged: Sequence[Staged]) -> None:
        parts = [part for one in staged for part in one.named()]
        options = self.options
        body: dict[str, Any] = {"topic": options.topic, "parts": parts, "rerun": options.rerun}
        if options.mode == "replace":
            body |= {"mode": "replace", "allow_empty": options.allow_empty}
        path, content = f"{_path(writer, epoch)}/commit", json.dumps(body).encode()
        options.server.request("POST", path, {}, content, is_patient=True)
        dead_letters = _dead_letters(options, writer, epoch)
        if dead_letters is not None:
            for one in staged:
                if one.rejected:
                    dead_letters.keep(one.part, one.attempt)
            dead_letters.finish()

    def _forget(self, writer: str, epoch: int) -> None:
        options = self.options
        options.server.json("DELETE", _path(writer, epoch), topic=options.topic)
        dead_letters = _dead_letters(options, writer, epoch)
        if dead_letters is not None:
            dead_letters.finish()


class SowWriter(_Writes, DataSourceArrowWriter):
    """Writes a DataFrame as one batch."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.writer = options.writer or f"batch-{uuid.uuid4()}"
        self.epoch = options.epoch or 0

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task; raises ClientError if they are for a table."""
        if makes_a_table():
            raise ClientError(
                "a topic cannot be a table of Spark's: a read of the table does not get the "
                "options, so it could not be read. Write by save() instead of saveAsTable, and "
                "read by load(), or by a view: CREATE TEMPORARY VIEW orders USING sow OPTIONS "
                "(topic 'orders')"
            )
        return self._stage(self.writer, self.epoch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Apply the staged rows of all tasks."""
        staged = _staged(messages)
        if staged or self.options.mode == "replace":  # which an empty batch performs, too
            self._commit(self.writer, self.epoch, staged)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Forget it."""
        self._forget(self.writer, self.epoch)


class SowStreamWriter(_Writes, DataSourceStreamArrowWriter):
    """Writes the batches of a stream, each under the query's name and the batch's number."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        query, batch = query_and_batch()
        return self._stage(self.options.writer or query, batch, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Apply the staged rows of all tasks."""
        staged = _staged(messages)
        if staged:
            self._commit(staged[0].writer, batchId, staged)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Forget it."""
        for writer in {one.writer for one in _staged(messages)}:
            self._forget(writer, batchId)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _path(writer: str, epoch: int) -> str:
    return f"/v1/writes/{segment(writer)}/{epoch}"
