"""Tables of a server's figures, for people.

Columns are ordered by importance: if a terminal has no room for all, the rightmost are left out and
the first is cut. Tables of records, whose fields are equally important, are in `sow.cli.query`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from sow.cli.plain_output import printable

GAP = 1
"""Blanks between two columns."""
FIRST_MIN = 8
"""The width below which the first column is not cut: enough to recognize a name."""


class Column(NamedTuple):
    """A column: its heading, and whether it holds numbers, which are right-aligned."""

    name: str
    is_number: bool = False


Row = Mapping[str, str]
"""The cells of a row by column; a missing one is empty."""


def fitted(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[Column]:
    """The first columns, as many as fit a line of `width` characters."""
    found: list[Column] = []
    left = width
    for column in columns:
        needed = _width(column, rows)
        # The first one shrinks for the others.
        left -= min(needed, FIRST_MIN) if not found else needed + GAP
        if left < 0 and found:
            break
        found.append(column)
    return found


def figures(
    columns: Sequence[Column], rows: Sequence[Row], width: int, styles: Sequence[str] = ()
) -> Table:
    """A table of `rows` that fits `width`; `styles` are those of the rows, in their order."""
    shown = fitted(columns, rows, width)
    widths = {column: _width(column, rows) for column in shown}
    # Only the first one is cut.
    others = sum(widths[column] + GAP for column in shown[1:])
    widths[shown[0]] = max(1, min(widths[shown[0]], width - others))
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column in shown:
        table.add_column(
            Text(column.name),
            justify="right" if column.is_number else "left",
            overflow="ellipsis",
            no_wrap=True,
            width=widths[column],
        )
    for at, row in enumerate(rows):
        cells = [Text(printable(row.get(column.name, ""))) for column in shown]
        table.add_row(*cells, style=styles[at] if styles else None)
    return table


def _width(column: Column, rows: Sequence[Row]) -> int:
    cells = (printable(row.get(column.name, "")) for row in rows)
    return max(len(column.name), *map(cell_len, cells), 0)
