"""Tables and progress for people, on a terminal.

Figures of a server are in columns that are ordered by importance: if a terminal has no room for
all, the rightmost are left out and the first is cut. Fields of records are equally important: the
identifying ones stand first, and the others share the room.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress, ProgressColumn
from rich.table import Table
from rich.text import Text

from sow.cli.output import printable
from sow.core.humanize import counted
from sow.messages.csv_rows import columns as columns_of

GAP = 1
"""Blanks between two columns."""
FIRST_MIN = 8
"""The width below which the first column is not cut: enough to recognize a name."""
RECORD_GAP = 2
"""The same for fields of records, which nothing else separates."""
COLUMN_MIN = 6
"""The width below which no field is cut to make room for others."""
PIPED_WIDTH = 10_000
"""Line width without a terminal: little is cut there."""

Advance = Callable[..., None]
"""Called with what was done since the last call, and with new values of fields by name."""


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


def as_table(records: Sequence[dict[str, str]], width: int, keys: Sequence[str] = ()) -> Table:
    """A table of rows; numbers look like text, as records do not declare types.

    The identifying columns `keys` stand first and are cut last. Of the others there are as many as
    fit a line of `width`: each as wide as its texts, or as wide as all columns that are cut, and at
    least `COLUMN_MIN`.
    """
    there = columns_of(records)
    first = [name for name in keys if name in there]
    names = [*first, *(name for name in there if name not in first)]
    wanted = [_wanted(name, records, width) for name in names[: width // RECORD_GAP + 1]]
    widths = _fitted(wanted, len(first), width)
    rest = counted(len(names) - len(widths), "more field")
    caption = f"{rest} do not fit: choose by --select" if len(names) > len(widths) else None
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, RECORD_GAP, 0, 0),
        header_style="bold",
        caption=caption,
        caption_justify="left",
    )
    shown = names[: len(widths)]
    for name, wide in zip(shown, widths, strict=True):
        table.add_column(_text(name, width), overflow="ellipsis", no_wrap=True, width=wide)
    for record in records:
        table.add_row(*(_text(record.get(name, ""), width) for name in shown))
    return table


def _wanted(name: str, records: Sequence[dict[str, str]], width: int) -> int:
    texts = (name, *(record.get(name, "") for record in records))
    return max(cell_len(_text(text, width).plain) for text in texts)


def _fitted(wanted: Sequence[int], keys: int, width: int) -> list[int]:
    """The widths of the first columns, as many as fit; the first `keys` of them get their full
    width before all others."""
    found: list[int] = []
    left = width + RECORD_GAP  # no gap after the last
    for wide in wanted[:keys]:
        if left <= RECORD_GAP:
            return found
        found.append(min(wide, left - RECORD_GAP))
        left -= found[-1] + RECORD_GAP
    others: list[int] = []
    taken = 0
    for wide in wanted[keys:]:
        taken += min(wide, COLUMN_MIN) + RECORD_GAP
        if taken > left and (found or others):
            break
        others.append(wide)
    return found + _shared(others, left - RECORD_GAP * len(others))


def _shared(wanted: Sequence[int], room: int) -> list[int]:
    """A share of `room` for each: its full width, or an equal part of what narrower ones leave."""
    found = [0] * len(wanted)
    for after, at in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        found[at] = max(1, min(wanted[at], room // (len(wanted) - after)))
        room -= found[at]
    return found


def _text(value: str, width: int) -> Text:
    # One character more than fits, so that rich marks it as cut.
    return Text(printable(value[: width + 1]))


class _Output(Console):
    """Standard output whose reader may close it early."""

    def on_broken_pipe(self) -> None:
        """All commands handle a closed pipe alike (`sow.cli.main`)."""
        raise BrokenPipeError


def terminal_console() -> Console:
    """Standard output: as wide as the terminal, or as the table without one."""
    return _Output(width=None if sys.stdout.isatty() else PIPED_WIDTH)


def write_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Write a table of figures to standard output."""
    console = terminal_console()
    console.print(figures(columns, rows, console.width))


@contextmanager
def progress(
    what: str, total: float | None, *columns: ProgressColumn, is_shown: bool = True, **fields: Any
) -> Iterator[Advance]:
    """Shows progress on a terminal, while this context is open, as `columns` show it; `fields` are
    further values for them."""
    with Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        disable=not (is_shown and sys.stderr.isatty()),
    ) as bar:
        task = bar.add_task(what, total=total, **fields)
        yield lambda count, **more: bar.update(task, advance=count, **more)


PATIENCE_S = 2.0
"""So long nobody wonders what takes so long."""
SAID_EVERY_S = 1.0
"""Seconds are counted."""


@asynccontextmanager
async def waiting(
    what: str | None, say: Callable[[str], None] | None = None
) -> AsyncIterator[Callable[[], None]]:
    """Says for how long the server has been doing `what` (None: nothing), every second from the
    third on, until the function that it gives is called; by `say`, or on a terminal's standard
    error."""
    shows = say or _say_on_terminal
    if what is None or (say is None and not sys.stderr.isatty()):
        yield lambda: None
        return
    task = asyncio.create_task(_repeat(what, shows))

    def over() -> None:
        if task.cancel():
            shows("")

    try:
        yield over
    finally:
        over()
        with suppress(asyncio.CancelledError):
            await task


async def _repeat(what: str, say: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    await asyncio.sleep(PATIENCE_S)
    while True:
        say(f"{what}: {loop.time() - start_s:.0f} s")
        await asyncio.sleep(SAID_EVERY_S)


def _say_on_terminal(text: str) -> None:
    """Write a line in the place of the last one."""
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()
