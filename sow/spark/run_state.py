"""What a pipeline keeps beside its sink: its progress, a lock for one driver, and side outputs.

The state is a directory: Spark's checkpoint, and the name under which batches are written. It is
`pipelines/NAME` of the data directory, or the `Checkpoint` of the pipeline. A path is protected by
a file lock, which ends with the process, on every machine that has the path mounted. A place with a
scheme has no locks: there the holder writes a lease with its name and end, and renews it while it
runs. The lease of a killed driver expires.

Correctness does not depend on this: the server recognizes each batch, and Spark refuses a
checkpoint that another query continues. It only saves two drivers each other's failures.

Side outputs are rows that a query sets aside, on storage that all tasks see.

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

import fcntl
import json
import os
import posixpath
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ArrowException
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem
from pyspark import TaskContext

from sow.core.pipelines import ARROW_SCHEMES, Pipeline, has_scheme, located
from sow.errors import ClientError
from sow.store import make_directory, open_file

LEASE_S = 60.0
"""Duration of a lease: many times as long as renewing it takes, also while a batch keeps the
machine busy."""
RENEWED_S = LEASE_S / 6


class Files(Protocol):
    """Small files of one directory, on any storage."""

    def read(self, name: str) -> str | None:
        """The text of a file, or None if it does not exist."""

    def write(self, name: str, text: str) -> None:
        """Replace a file."""

    def remove(self) -> None:
        """Remove the directory."""


def directory_of(pipeline: Pipeline, data_directory: Path) -> str:
    """The state of a pipeline, at a path or a place with a scheme."""
    default = os.path.join("pipelines", pipeline.name)
    return located(pipeline.checkpoint or default, str(data_directory))


class LocalFiles:
    """Files of a directory that is mounted here."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, name: str) -> str | None:
        """The text of a file, or None if it does not exist."""
        try:
            return (self._directory / name).read_text()
        except FileNotFoundError:
            return None

    def write(self, name: str, text: str) -> None:
        """Replace a file."""
        unfinished = self._directory / f"{name}.new"
        unfinished.write_text(text)
        unfinished.replace(self._directory / name)

    def remove(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self._directory, ignore_errors=True)


class LocalState:
    """A state at a path, whose lock ends with the process."""

    def __init__(self, name: str, directory: Path) -> None:
        self._name = name
        self._directory = directory
        self._lock: int | None = None
        self.checkpoint = str(directory / "checkpoint")
        self.files: Files = LocalFiles(directory)

    def hold(self) -> None:
        """Acquire the state; raises ClientError that names the holding process."""
        make_directory(self._directory)
        lock = open_file(self._directory / "lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(lock, 200, 0).decode("utf-8", "replace").strip() or "unknown"
            os.close(lock)
            raise ClientError(
                f"pipeline {self._name} is running already, as process {holder}"
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()} of {os.uname().nodename}\n".encode(), 0)
        self._lock = lock

    def make_for(self, purpose: str) -> None:
        """Bind the state to `purpose`: a state that was made for another one is useless and is
        reset. The caller holds the state."""
        if self.files.read("purpose") == purpose:
            return
        if os.path.exists(self.checkpoint):
            shutil.rmtree(self.checkpoint)
        # Batch numbers start again after a reset, so they need another writer's name.
        (self._directory / "writer").unlink(missing_ok=True)
        self.files.write("purpose", purpose)

    def keep(self) -> None:
        """Nothing to renew: the lock ends with the process."""

    def release(self) -> None:
        """Release the state for other runs."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class LeasedState:
    """A state at a place without locks. `now_s` is the time of day, which drivers share as well as
    their clocks agree; `holder` is a unique name of this driver."""

    def __init__(
        self, name: str, directory: str, files: Files, now_s: Callable[[], float], holder: str
    ) -> None:
        self._name = name
        self._directory = directory
        self._now_s = now_s
        self._holder = holder
        self._renewed_s: float | None = None
        self.checkpoint = f"{directory.rstrip('/')}/checkpoint"
        self.files = files

    def hold(self) -> None:
        """Acquire the state; raises ClientError that names the holder."""
        now_s = self._now_s()
        held = self._held()
        if held is not None and held["holder"] != self._holder and held["until_s"] > now_s:
            raise ClientError(
                f"pipeline {self._name} is running already: {self._directory} is held by "
                f"{held['holder']}. If that was killed, the lease expires in "
                f"{held['until_s'] - now_s:.0f} s"
            )
        self._renew(now_s)
        self._check()  # of two concurrent writers the last one wins

    def keep(self) -> None:
        """Renew the lease; raises ClientError if another run has taken the state."""
        now_s = self._now_s()
        if self._renewed_s is not None and now_s - self._renewed_s >= RENEWED_S:
            self._check()
            self._renew(now_s)

    def release(self) -> None:
        """Release the state for other runs."""
        if self._renewed_s is None:
            return
        held = self._held()
        if held is not None and held["holder"] == self._holder:
            self.files.write("holder", json.dumps({"holder": self._holder, "until_s": 0}))
        self._renewed_s = None

    def _check(self) -> None:
        held = self._held()
        if held is None or held["holder"] != self._holder:
            other = "nobody" if held is None else held["holder"]
            self._renewed_s = None
            raise ClientError(
                f"pipeline {self._name} has lost {self._directory}: it is held by {other} now"
            )

    def _renew(self, now_s: float) -> None:
        lease = {"holder": self._holder, "until_s": now_s + LEASE_S}
        self.files.write("holder", json.dumps(lease))
        self._renewed_s = now_s

    def _held(self) -> dict[str, Any] | None:
        text = self.files.read("holder")
        try:
            found = json.loads(text or "")
            return {"holder": str(found["holder"]), "until_s": float(found["until_s"])}
        except (ValueError, KeyError, TypeError):
            return None  # missing or incomplete


RunState = LocalState | LeasedState
"""The state of one pipeline, held by one run from `hold` to `release`."""


class HadoopFiles:
    """Files of a directory that Spark's Java can access, with its settings and keys."""

    def __init__(self, spark: Any, directory: str) -> None:
        self._jvm = spark._jvm
        self._directory = directory
        conf = spark._jsc.hadoopConfiguration()
        self._files = self._path("holder").getFileSystem(conf)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._directory.rstrip('/')}/{name}")

    def read(self, name: str) -> str | None:
        """The text of a file, or None if it does not exist."""
        if not self._files.exists(self._path(name)):
            return None
        stream = self._files.open(self._path(name))
        try:
            text: str = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
        return text

    def write(self, name: str, text: str) -> None:
        """Replace a file."""
        stream = self._files.create(self._path(name), True)
        stream.write(bytearray(text.encode()))
        stream.close()

    def remove(self) -> None:
        """Remove the directory."""
        self._files.delete(self._jvm.org.apache.hadoop.fs.Path(self._directory), True)


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
