"""`sow query`: queries a topic, and writes the answer as a table or for programs."""

import csv
import io
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sow.cli.connecting import connected
from sow.cli.options import (
    example,
    filter_option,
    groups_options,
    json_option,
    order_option,
    run,
    select_option,
    url_option,
)
from sow.cli.plain_output import json_text, printable, write_data
from sow.cli.topic_names import topic_names
from sow.client import Client, Rows
from sow.core.humanize import counted
from sow.errors import SowError
from sow.messages.flat_cells import cells, column_of, columns

TABLE_ROWS = 1000
"""Default limit of records in a table: more than anybody reads, and column widths need all rows."""
PIPED_WIDTH = 10_000
"""Line width without a terminal: little is cut there."""
GAP = 2
"""Blanks between two columns."""
COLUMN_MIN = 6
"""The width below which no column is cut to make room for others."""


@click.command(
    epilog=example(
        "sow query orders --filter \"/symbol = 'IBM'\" --order-by '/qty DESC' --top 10",
        "sow query orders --format csv > orders.csv",
    )
)
@click.argument("topic", shell_complete=topic_names)
@filter_option
@order_option
@click.option("--top", metavar="N", type=click.IntRange(0), help="At most N records.")
@click.option("--skip", metavar="N", type=click.IntRange(0), help="Leave out the first N records.")
@select_option
@groups_options
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json", "ndjson", "csv"]),
    default="table",
    show_default=True,
    help="Output format of the records; a table shows the first 1,000 unless --top is given.",
)
@click.option("--explain", is_flag=True, help="Show how the server runs the query, not its answer.")
@url_option
@json_option
def query(
    topic: str,
    filter_text: str | None,
    order_by: str | None,
    top: int | None,
    skip: int | None,
    select: str | None,
    projection: str | None,
    grouping: str | None,
    style: str,
    explain: bool,
    url: str,
    as_json: bool,
) -> None:
    """Write the records of TOPIC that match, or the rows of groups of them."""
    style = "json" if as_json else style
    question: dict[str, Any] = {
        "filter": filter_text,
        "order_by": order_by,
        "top_n": top,
        "skip_n": skip,
        "select": select,
        "projection": projection,
        "grouping": grouping,
    }
    if explain:
        run(_explain(url, topic, question, style != "table"))
        return
    if style == "table" and top is None:
        question["top_n"] = TABLE_ROWS
    run(_query(url, topic, question, style))


async def _query(url: str, topic: str, question: dict[str, Any], style: str) -> None:
    async with connected(url, "sow query") as client, client.rows(topic, **question) as rows:
        if style == "ndjson":
            await _write_lines(rows)
        elif style == "json":
            await _write_array(rows)
        else:
            records = [cells(row) async for row in rows]
            if style == "csv":
                _write_csv(records)
            else:
                keys = await key_columns(client, topic, question["grouping"]) if records else []
                _write_table(topic, rows, records, keys)


async def _write_lines(rows: Rows) -> None:
    async for chunk in rows.chunks():
        write_data(b"".join([row + b"\n" for row in chunk]))


async def _write_array(rows: Rows) -> None:
    before = b"[\n  "
    async for chunk in _not_empty(rows):
        write_data(before + b",\n  ".join(chunk))
        before = b",\n  "
    write_data(b"[]\n" if before.startswith(b"[") else b"\n]\n")


async def _not_empty(rows: Rows) -> AsyncIterator[list[bytes]]:
    async for chunk in rows.chunks():
        if chunk:
            yield chunk


def _write_csv(records: Sequence[dict[str, str]]) -> None:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns(records), restval="", lineterminator="\n")
    if records:
        writer.writeheader()
    writer.writerows(records)
    write_data(out.getvalue().encode())


def _write_table(
    topic: str, rows: Rows, records: Sequence[dict[str, str]], keys: Sequence[str]
) -> None:
    served = printable(f"by {rows.index}, bookmark {rows.bookmark}")
    click.echo(f"{topic}: {len(records):,} of {rows.matches:,} records, {served}", err=True)
    if records:
        console = terminal_console()
        console.print(as_table(records, console.width, keys))


async def key_columns(client: Client, topic: str, grouping: str | None = None) -> list[str]:
    """The columns that identify rows of a topic, or of groups of its records."""
    if grouping is not None:
        paths = [path.strip() for path in grouping.split(",")]
    else:
        try:
            paths = (await client.topic(topic)).get("keys") or []
        except SowError:
            return []  # a table does not depend on what cannot be read
    return [column_of(path.removeprefix("/").split("/")) for path in paths]


def as_table(records: Sequence[dict[str, str]], width: int, keys: Sequence[str] = ()) -> Table:
    """A table of rows; numbers look like text, as records do not declare types.

    The identifying columns `keys` stand first and are cut last. Of the others there are as many as
    fit a line of `width`: each as wide as its texts, or as wide as all columns that are cut, and at
    least `COLUMN_MIN`.
    """
    there = columns(records)
    first = [name for name in keys if name in there]
    names = [*first, *(name for name in there if name not in first)]
    wanted = [_wanted(name, records, width) for name in names[: width // GAP + 1]]
    widths = _fitted(wanted, len(first), width)
    rest = counted(len(names) - len(widths), "more field")
    caption = f"{rest} do not fit: choose by --select" if len(names) > len(widths) else None
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, GAP, 0, 0),
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
    left = width + GAP  # no gap after the last
    for wide in wanted[:keys]:
        if left <= GAP:
            return found
        found.append(min(wide, left - GAP))
        left -= found[-1] + GAP
    others: list[int] = []
    taken = 0
    for wide in wanted[keys:]:
        taken += min(wide, COLUMN_MIN) + GAP
        if taken > left and (found or others):
            break
        others.append(wide)
    return found + _shared(others, left - GAP * len(others))


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


async def _explain(url: str, topic: str, question: dict[str, Any], raw: bool) -> None:
    async with connected(url, "sow query") as client:
        found = await client.explain(topic, **question)
    if raw:
        click.echo(json_text(found))
        return
    steps: list[dict[str, Any]] = found["terms"]
    table = [{name: str(value) for name, value in step.items()} for step in steps]
    console = terminal_console()
    console.print(as_table(table, console.width))
    click.echo(f"rows touched: {found['rows_touched']:,}")
    if found.get("advice"):
        click.echo(printable(found["advice"]))
