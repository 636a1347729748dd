"""`sow query`: asks a topic, and writes the answer as a table or for programs."""

import csv
import io
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import click
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
from sow.cli.printing import json_text, printable, write_data
from sow.cli.topic_names import topic_names
from sow.client import Rows
from sow.messages.cells import cells, columns
from sow.quantities import counted

TABLE_ROWS = 1000
"""Records of a table when nobody says how many: more than anybody reads, and widths are known only
once all of them are there."""
PIPED_WIDTH = 10_000
"""Characters of a line where no terminal says how wide it is: little is cut there."""
COLUMN_MIN = 2
"""Characters of the narrowest column: one, and the blank behind it."""


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
    help="How to write the records; a table shows the first 1,000 unless --top says otherwise.",
)
@click.option("--explain", is_flag=True, help="Show how the query is answered, not its answer.")
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
                _write_table(topic, rows, records)


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


def _write_table(topic: str, rows: Rows, records: Sequence[dict[str, str]]) -> None:
    served = printable(f"by {rows.index}, bookmark {rows.bookmark}")
    click.echo(f"{topic}: {len(records):,} of {rows.matches:,} records, {served}", err=True)
    if records:
        console = terminal_console()
        console.print(as_table(records, console.width))


def as_table(records: Sequence[dict[str, str]], width: int) -> Table:
    """A table of rows; numbers are not told from text, as the records do not say more.

    Of columns and of texts there are no more than a line of `width` has room for: a table is laid
    out by looking at all that is in it, also at what is then not seen.
    """
    names = columns(records)
    shown = names[: max(1, width // COLUMN_MIN)]
    rest = counted(len(names) - len(shown), "more field")
    caption = f"{rest} without room here: --select names some" if len(names) > len(shown) else None
    table = Table(
        box=None, pad_edge=False, header_style="bold", caption=caption, caption_justify="left"
    )
    for name in shown:
        table.add_column(_text(name, width), overflow="ellipsis", no_wrap=True)
    for record in records:
        table.add_row(*(_text(record.get(name, ""), width) for name in shown))
    return table


def _text(value: str, width: int) -> Text:
    # One more than there is room for, so that it is seen to be cut.
    return Text(printable(value[: width + 1]))


def terminal_console() -> Console:
    """Standard output: as wide as the terminal, or as the table where there is none."""
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)


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
