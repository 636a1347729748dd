"""`sow delete`: removes records of a topic."""

import click

from sow.cli.connecting import connected
from sow.cli.options import example, filter_option, json_option, run, url_option
from sow.cli.plain_output import json_text
from sow.cli.topic_names import topic_names
from sow.core.humanize import counted


@click.command(epilog=example("sow delete orders --filter '/qty = 0'"))
@click.argument("topic", shell_complete=topic_names)
@filter_option
@click.option("--keys", metavar="K,..", help="SowKeys of the records, comma separated.")
@url_option
@json_option
def delete(topic: str, filter_text: str | None, keys: str | None, url: str, as_json: bool) -> None:
    """Delete records of TOPIC by --filter ("1=1" for all) or by --keys."""
    if (filter_text is None) == (keys is None):
        raise click.UsageError("give exactly one of --filter ('1=1' for all records) and --keys")
    deleted = run(_delete(url, topic, filter_text, keys.split(",") if keys is not None else None))
    if as_json:
        click.echo(json_text({"deleted": deleted}))
    else:
        click.echo(f"deleted {counted(deleted, 'record')} from {topic}")


async def _delete(url: str, topic: str, filter_text: str | None, keys: list[str] | None) -> int:
    async with connected(url, "sow delete") as client:
        if keys is None:
            return await client.delete(topic, filter=filter_text)
        return await client.delete(topic, keys=keys)
