"""`sow query`: queries a topic, and writes the answer as a table or for programs."""

import csv
import io
from collections.abc import Sequence
from typing import Any

import click

from sow.cli.completion import topic_argument
from sow.cli.connecting import server_command
from sow.cli.options import (
    filter_option,
    grouping_option,
    order_option,
    projection_option,
    select_option,
)
from sow.cli.output import as_json, json_text, printable, write_data
from sow.cli.tables import as_table, terminal_console
from sow.client import Client, Rows
from sow.errors import SowError
from sow.messages.flat_cells import cells, column_of, columns

TABLE_ROWS = 1000
"""Default limit of records in a table: more than anybody reads, and column widths need all rows."""


@server_command(
    "sow query orders --filter \"/symbol = 'IBM'\" --order-by '/qty DESC' --top 10",
    "sow query orders --format csv > orders.csv",
)
@topic_argument
@filter_option
@order_option
@click.option("--top", metavar="N", type=click.IntRange(0), help="At most N records.")
@click.option("--skip", metavar="N", type=click.IntRange(0), help="Leave out the first N records.")
@select_option
@projection_option
@grouping_option
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json", "ndjson", "csv"]),
    default="table",
    show_default=True,
    help="Output format of the records; a table shows the first 1,000 unless --top is given.",
)
@click.option("--explain", is_flag=True, help="Show how the server runs the query, not its answer.")
async def query(
    client: Client,
    topic: str,
    filter_text: str | None,
    top: int | None,
    skip: int | None,
    style: str,
    explain: bool,
    **shape: str | None,
) -> None:
    """Write the records of TOPIC that match, or the rows of groups of them."""
    style = "json" if as_json() else style
    question: dict[str, Any] = {"filter": filter_text, "top_n": top, "skip_n": skip, **shape}
    if explain:
        await _explain(client, topic, question, style != "table")
        return
    if style == "table" and top is None:
        question["top_n"] = TABLE_ROWS
    async with client.rows(topic, **question) as rows:
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
    async for chunk in rows.chunks():
        if chunk:
            write_data(before + b",\n  ".join(chunk))
            before = b",\n  "
    write_data(b"[]\n" if before.startswith(b"[") else b"\n]\n")


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


async def _explain(client: Client, topic: str, question: dict[str, Any], raw: bool) -> None:
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
