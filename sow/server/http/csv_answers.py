"""Answers in CSV: the rows of a snapshot as cells, produced a chunk at a time.

`sow.messages.csv_rows` writes rows. With `meta` a row is wrapped as in JSON, so the fields of the
record are those of its field `d`.
"""

from collections.abc import Iterator, Sequence

from sow.core.cooperative import Task
from sow.core.select_list import parse_select
from sow.history.snapshot import Snapshot
from sow.messages.csv_rows import csv_pieces, header
from sow.messages.declared import DeclaredFields
from sow.messages.flat_cells import Cells, cells, column_of
from sow.topic.rendering import Shape

META = ("k", "bm", "ts")
"""Columns of a row that are not from its record."""
RECORD = "d"


class CsvTable:
    """Rows of one topic as CSV; `declared` columns come first."""

    def __init__(
        self, rows: Snapshot, meta: bool, shape: Shape, declared: DeclaredFields | None
    ) -> None:
        self._rows = rows
        self._meta = meta
        self._shape = shape
        above = (RECORD,) if meta else ()
        select = None if shape.select is None else parse_select(shape.select)
        paths = [
            path
            for path in (declared.paths if declared else ())
            if select is None or select.may_show(path.steps[0])
        ]
        self._declared = [column_of((*above, *path.steps)) for path in paths]

    def header(self) -> Task[list[str]]:
        """The names of the columns, in steps; raises TooLarge."""
        first = [*META, *self._declared] if self._meta else self._declared
        return header(first, self._cells())

    def pieces(self, names: Sequence[str]) -> Iterator[bytes]:
        """The answer, piece by piece."""
        return csv_pieces(names, self._cells())

    def _cells(self) -> Iterator[list[Cells]]:
        renderer = self._rows.topic.renderer
        for start, stop in self._rows.chunks():
            columns = self._rows.part(start, stop)
            texts = renderer.json_documents(renderer.shown(self._shape, columns.bodies))
            if self._meta:
                texts = renderer.wrapped(columns, texts)
            yield [cells(text, self._declared) for text in texts]
