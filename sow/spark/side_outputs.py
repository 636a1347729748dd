"""Side outputs: rows that a query sets aside, on storage that all tasks see.

*Late rows*, which a pipeline's conflation leaves out, are kept as Parquet: each task writes a file
named after the query, the batch and the part, under a temporary name until it is complete. A batch
that runs again leaves out the same rows, or others if the pipeline has changed meanwhile; either
way its files replace the earlier ones. So each row is stored once, whatever the guarantees of the
sink.

*Dead letters*, which the server refuses, go to a file per attempt in a directory of the batch. When
the driver has committed the batch, it moves the files of successful attempts to their final place
and deletes the others. So the rows of a failed attempt do not appear twice, and a batch that is
written again replaces its files.

The storage is a path that every machine has, or a place with a scheme that Arrow supports (s3, gs,
abfs, hdfs). Unfinished files have the prefix that makes Spark skip them.
"""

import json
import posixpath
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ArrowException
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem
from pyspark import TaskContext

from sow.core.pipelines import ARROW_SCHEMES, has_scheme
from sow.errors import ClientError

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
EXECUTION, OUTERMOST = "spark.sql.execution.id", "spark.sql.execution.root.id"


def part_and_attempt() -> tuple[int, str]:
    """The number of this task's part, and a name that no other attempt at it has."""
    context = TaskContext.get()
    part = context.partitionId() if context else 0
    return part, f"{context.taskAttemptId() if context else 0}-{uuid.uuid4().hex[:8]}"


def query_and_batch() -> tuple[str, int]:
    """The streaming query of this task, as its checkpoint names it, and the batch."""
    context = TaskContext.get()
    assert context is not None
    query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    assert query is not None
    assert batch is not None
    return query, int(batch)


def makes_a_table() -> bool:
    """Whether this writes for a statement that creates a table, such as `saveAsTable`.

    Such a statement runs the write as a nested execution; so does a batch of a stream with the
    writes of its `foreachBatch`, and nothing else does.
    """
    context = TaskContext.get()
    if context is None or context.getLocalProperty(QUERY_ID) is not None:
        return False
    outermost = context.getLocalProperty(OUTERMOST)
    return outermost is not None and outermost != context.getLocalProperty(EXECUTION)


def kept_aside(
    path: str, mark: str, columns: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A step that stores rows whose boolean column `mark` is true under `path`, with these
    `columns`, and passes the others on, without the mark."""

    def part_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with LateFile(path) as file:
            for batch in batches:
                is_late = batch.column(mark)
                rest = batch.drop_columns([mark])
                if pc.any(is_late).as_py():
                    file.write(batch.filter(is_late).select(columns))
                    rest = rest.filter(pc.invert(is_late))
                yield rest

    return part_of


class LateFile:
    """The file of one task; it exists once the task has ended, if it has rows."""

    def __init__(self, path: str) -> None:
        self._files, self._directory = opened(path, "LatePath")
        query, batch = query_and_batch()
        part, attempt = part_and_attempt()
        name = f"{query}-{batch}-{part}"
        self._kept = posixpath.join(self._directory, f"{name}.parquet")
        # The prefix makes Spark skip an unfinished file.
        self._unfinished = posixpath.join(self._directory, f"_{name}-{attempt}.parquet")
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows; nothing but these is held."""
        if self._writer is None:
            from pyarrow.parquet import ParquetWriter

            self._files.create_dir(self._directory, recursive=True)
            self._writer = ParquetWriter(self._unfinished, rows.schema, filesystem=self._files)
        self._writer.write_batch(rows)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._writer is not None:
            self._writer.close()
        if kind is not None:
            self._remove(self._unfinished)
        elif self._writer is not None:
            self._files.move(self._unfinished, self._kept)
        else:
            self._remove(self._kept)  # from an earlier attempt at this batch

    def _remove(self, path: str) -> None:
        if self._files.get_file_info(path).type == FileType.File:
            self._files.delete_file(path)


class DeadLetters:
    """The rows that a batch of one writer has set aside under `path`."""

    def __init__(self, path: str, topic: str, writer: str, epoch: int) -> None:
        self._files, self._directory = opened(path, "deadLetterPath")
        # Names of writers and topics are arbitrary, those of files are not.
        name = blake2b(f"{topic}\0{writer}".encode(), digest_size=6).hexdigest()
        self._batch = f"{name}-{epoch}"
        self._unfinished = posixpath.join(self._directory, f"_{self._batch}")

    def put(self, part: int, attempt: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Set all rows of one attempt aside: a file is written once."""
        self._files.create_dir(self._unfinished, recursive=True)
        lines = "".join(json.dumps(row, default=str) + "\n" for row in rows)
        with self._files.open_output_stream(self._of(part, attempt)) as file:
            file.write(lines.encode())

    def keep(self, part: int, attempt: str) -> None:
        """Move the rows of a successful attempt to their final place; idempotent."""
        if self._files.get_file_info(self._of(part, attempt)).type == FileType.File:
            kept = posixpath.join(self._directory, f"{self._batch}-{part}.ndjson")
            self._files.move(self._of(part, attempt), kept)

    def finish(self) -> None:
        """Delete the rows of other attempts."""
        if self._files.get_file_info(self._unfinished).type == FileType.Directory:
            self._files.delete_dir(self._unfinished)

    def count(self) -> int:
        """The rows that are kept of the batch."""
        kept = self._files.get_file_info(FileSelector(self._directory, allow_not_found=True))
        lines = 0
        for one in kept:
            if one.base_name.startswith(f"{self._batch}-"):
                with self._files.open_input_stream(one.path) as file:
                    lines += file.read().count(b"\n")
        return lines

    def _of(self, part: int, attempt: str) -> str:
        return posixpath.join(self._unfinished, f"{part}-{attempt}.ndjson")


def opened(path: str, what: str) -> tuple[FileSystem, str]:
    """The file system of `path`, and the path within it; raises ClientError, which calls it `what`,
    for an unreachable place."""
    if not has_scheme(path):
        return LocalFileSystem(), path
    scheme, _, rest = path.partition(":")
    try:
        files, directory = FileSystem.from_uri(f"{ARROW_SCHEMES.get(scheme, scheme)}:{rest}")
    except (ArrowException, ValueError, OSError) as error:
        raise ClientError(
            f"{what} {path}: {error}; give a path that every machine has, or s3://…, gs://…, "
            "abfs://… or hdfs://…"
        ) from None
    return files, directory
