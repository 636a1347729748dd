"""Names of topics for whoever presses TAB: asked of the server that the command line names.

Somebody waits, so it is asked for a fraction of a second, for some names, and nothing is said where
there is no server, no right or no answer. TAB is no command: no password is asked for, and
credentials go to this machine or over TLS alone. A name that a shell would take for more than a
word is left out, since others choose names and a shell carries out what stands there.
"""

import asyncio
import os
import re
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem

from sow.cli.options import CA_SAID, TOKEN_SAID, USER_SAID
from sow.client import Client
from sow.core.origin_parsing import is_loopback
from sow.errors import SowError

WITHIN_S = 0.5
"""Who waits longer for TAB types on; a server on the same continent has answered by then."""
OFFERED_MAX = 200
"""Shells ask before they show more than a page or two."""
WORD = re.compile(r"[\w/][\w./%@+-]*", re.ASCII)
"""What every shell leaves as it is, and takes for one word."""


def topic_names(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The topics whose names begin so, as click asks for them."""
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
    """A client of the server that the command would talk to, were it called."""
    url = ctx.params["url"]
    there = urlsplit(url)
    is_safe = there.scheme == "https" or is_loopback(there.hostname or "")
    user, password = ctx.meta.get(USER_SAID), os.environ.get("SOW_PASSWORD")
    if not is_safe or (user is not None and password is None):
        return Client(url, name=NAME, ca=ctx.meta.get(CA_SAID))
    return Client(
        url,
        name=NAME,
        token=ctx.meta.get(TOKEN_SAID) if user is None else None,
        user=user,
        password=user and password,
        ca=ctx.meta.get(CA_SAID),
    )


NAME = "sow completion"
