"""Completes names of topics: requests them from the server that the command line names.

The user waits, so the request has a short timeout and a limit of names, and every failure (no
server, no permission, no answer) is silent. Completion prompts for no password, and sends
credentials only on this machine or over TLS. It leaves out names that a shell would not take as one
word: other users choose names, and a shell executes what it reads.
"""

import asyncio
import os
import re
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem

from sow.cli.options import CA_OPTION, TOKEN_OPTION, USER_OPTION
from sow.client import Client
from sow.core.origin_parsing import is_loopback
from sow.errors import SowError

WITHIN_S = 0.5
"""Timeout: a server on the same continent answers in time, and users do not wait longer."""
OFFERED_MAX = 200
"""The most names to offer; shells confirm before they show more than a page or two."""
WORD = re.compile(r"[\w/][\w./%@+-]*", re.ASCII)
"""A name that every shell takes as one plain word."""


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


def _client(ctx: click.Context) -> Client:
    """A client of the server that the command would use."""
    url = ctx.params["url"]
    there = urlsplit(url)
    is_safe = there.scheme == "https" or is_loopback(there.hostname or "")
    user, password = ctx.meta.get(USER_OPTION), os.environ.get("SOW_PASSWORD")
    if not is_safe or (user is not None and password is None):
        return Client(url, name=NAME, ca=ctx.meta.get(CA_OPTION))
    return Client(
        url,
        name=NAME,
        token=ctx.meta.get(TOKEN_OPTION) if user is None else None,
        user=user,
        password=user and password,
        ca=ctx.meta.get(CA_OPTION),
    )


NAME = "sow completion"
