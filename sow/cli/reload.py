"""`sow reload`: makes a running server read its configuration again."""

import click

from sow.cli.connecting import connected
from sow.cli.options import example, json_option, run, url_option
from sow.cli.plain_output import json_text, printable


@click.command(epilog=example("sow reload"))
@url_option
@click.option(
    "--allow-loss",
    is_flag=True,
    help="Remove topics that are not in the file: their records move to removed/.",
)
@json_option
def reload(url: str, allow_loss: bool, as_json: bool) -> None:
    """Make the server read its configuration again, and show what changed.

    The server adds, removes and changes conflated topics and indexes without a restart. If anything
    else differs, or the file has a mistake, it changes nothing and reports every reason.
    """
    changes = run(_reload(url, allow_loss))
    if as_json:
        click.echo(json_text({"changes": changes}))
    else:
        click.echo("\n".join(map(printable, changes)) or "nothing changed")


async def _reload(url: str, allow_loss: bool) -> list[str]:
    async with connected(url, "sow reload") as client:
        path = "/v1/config/reload" + ("?allow_loss=true" if allow_loss else "")
        answer = await client.http.json("POST", path, kind=dict)
        return list(answer["changes"])
