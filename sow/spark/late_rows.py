"""Rows that the conflation of a pipeline leaves out, kept as Parquet on storage that all tasks see.

Each task writes those that it comes across to a file of its own, named for the query, the batch and
the part, and under another name until it is whole. A batch that is run again leaves out the same
rows, or others if the pipeline was changed between; either way its files take the place of those
that it has left before. So a row is here once, whatever the sink of the others promises.
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
    """What keeps rows whose boolean column `mark` is true under `path`, of them these `columns`,
    and lets the others go on, without the mark."""

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
    """The file of one task, which is there when the task has come to its end, if it has rows."""

    def __init__(self, path: str) -> None:
        self._files, self._directory = opened(path, "LatePath")
        query, batch = query_and_batch()
        part, attempt = part_and_attempt()
        name = f"{query}-{batch}-{part}"
        self._kept = posixpath.join(self._directory, f"{name}.parquet")
        # The name begins as Spark expects of what is not to be read yet.
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
            self._remove(self._kept)  # which this batch has left when it was another one

    def _remove(self, path: str) -> None:
        if self._files.get_file_info(path).type == FileType.File:
            self._files.delete_file(path)
