"""Rows that a pipeline's conflation leaves out, kept as Parquet on storage that all tasks see.

Each task writes its rows to a file named after the query, the batch and the part, under a temporary
name until it is complete. A batch that runs again leaves out the same rows, or others if the
pipeline has changed meanwhile; either way its files replace the earlier ones. So each row is stored
once, whatever the guarantees of the sink.
"""

import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileType

from sow.spark.storage import opened
from sow.spark.task_context import part_and_attempt, query_and_batch


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
