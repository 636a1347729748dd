"""Completion in a shell: `sow completion` writes its script, and `topic_names` completes topics.

The script is click's. It calls `sow` for candidates at each TAB, so it never gets out of date.
Names of topics are requested from the server that the command line names. The user waits, so the
request has a short timeout and a limit of names, and every failure (no server, no permission, no
answer) is silent. Completion prompts for no password, and sends credentials only on this machine or
over TLS. It leaves out names that a shell would not take as one word: other users choose names, and
a shell executes what it reads.
"""

import asyncio
import os
import re
from typing import Any
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem, get_completion_class

from sow.cli.options import ACCESS, example
from sow.core.origin_parsing import is_loopback
from sow.errors import SowError

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_SOW_COMPLETE"
"""The variable through which the script requests candidates; click derives its name."""
WITHIN_S = 0.5
"""Timeout: a server on the same continent answers in time, and users do not wait longer."""
OFFERED_MAX = 200
"""The most names to offer; shells confirm before they show more than a page or two."""
WORD = re.compile(r"[\w/][\w./%@+-]*", re.ASCII)
"""A name that every shell takes as one plain word."""


@click.command(
    epilog=example(
        "sow completion bash > ~/.local/share/bash-completion/completions/sow",
        'eval "$(sow completion zsh)"',
        "sow completion fish > ~/.config/fish/completions/sow.fish",
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Write the script that completes commands and options in SHELL."""
    made_for = get_completion_class(shell)
    assert made_for is not None  # click has all of SHELLS
    root = click.get_current_context().find_root().command
    click.echo(made_for(root, {}, "sow", VARIABLE).source(), nl=False)


def topic_names(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The topics whose names begin with `incomplete`, as click completions."""
    if incomplete and not WORD.fullmatch(incomplete):
        return []
    try:
        found = asyncio.run(_requested(ctx, incomplete))
    except (SowError, OSError, TimeoutError, ValueError):
        return []
    names = found if isinstance(found, list) else []
    return [CompletionItem(one) for one in names if isinstance(one, str) and WORD.fullmatch(one)]


async def _requested(ctx: click.Context, prefix: str) -> object:
    async with asyncio.timeout(WITHIN_S), _client(ctx) as client:
        question = {"prefix": prefix, "top_n": OFFERED_MAX, "names": True}
        return await client.http.json("GET", "/v1/topics", question)


def _client(ctx: click.Context) -> Any:
    """A client of the server that the command would use."""
    # Imported here: shells run `sow completion` when they start.
    from sow.client import Client

    given = ctx.meta[ACCESS]
    there = urlsplit(given["url"])
    user, password = given["user"], os.environ.get("SOW_PASSWORD")
    is_safe = there.scheme == "https" or is_loopback(there.hostname or "")
    credentials: dict[str, Any] = {}
    if is_safe and user is None:
        credentials = {"token": given["token"]}
    elif is_safe and password is not None:
        credentials = {"user": user, "password": password}
    return Client(given["url"], name="sow completion", ca=given["ca"], **credentials)


topic_argument = click.argument("topic", shell_complete=topic_names)
