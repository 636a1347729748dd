"""Tables of a server's figures, for people.

Columns stand in the order of what they are worth: where a terminal has no room for all of them,
those at the right are left out, and the first one is cut. A table of records, whose fields are
equals, is another matter (`sow.cli.query`).
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
"""Characters that the first column is not cut below: of a name, enough to know it by."""


class Column(NamedTuple):
    """A column: its heading, and whether it holds numbers, which stand at the right."""

    name: str
    is_number: bool = False


Row = Mapping[str, str]
"""What stands in a row, by column; what is missing is empty."""


def fitted(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[Column]:
    """The first columns, as many as a line of `width` characters has room for."""
    found: list[Column] = []
    left = width
    for column in columns:
        needed = _width(column, rows)
        # The first one gives way to the others.
        left -= min(needed, FIRST_MIN) if not found else needed + GAP
        if left < 0 and found:
            break
        found.append(column)
    return found


def figures(
    columns: Sequence[Column], rows: Sequence[Row], width: int, styles: Sequence[str] = ()
) -> Table:
    """A table of `rows` that fits into `width`; `styles` are those of the rows, in their order."""
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
