"""`sow consume`: messages of a queue as lines, each acknowledged when its line is written.

A few messages are leased at a time, over HTTP: a lease holds through a broken connection and a
restart of the server. What is leased and not written when the command ends is given back.
"""

from collections import deque
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import click
import orjson

from sow.cli.connecting import server_command
from sow.cli.output import write_data
from sow.client import Client
from sow.client.http import topic_path
from sow.core.media_types import JSON
from sow.errors import SowError, UnknownRecord

LEASED_AT_ONCE = 10
"""Messages of one request: the others of a queue's consumers get theirs meanwhile."""
WAIT_S = 20.0
"""How long a request waits for a message before it is sent again."""


@server_command("sow consume to-route --count 10", "sow consume to-route --follow")
@click.argument("queue", metavar="QUEUE")
@click.option("--count", metavar="N", type=click.IntRange(1), help="Stop after N messages.")
@click.option("--follow", is_flag=True, help="Wait for more when the queue is empty.")
async def consume(client: Client, queue: str, count: int | None, follow: bool) -> None:
    """Write the messages of QUEUE as lines, and acknowledge each once it is written.

    It ends when the queue is empty, unless it is to --follow. A message that others have leased is
    not waited for.
    """
    path, left = f"{topic_path(queue)}/lease", count
    while left is None or left > 0:
        wanted = LEASED_AT_ONCE if left is None else min(left, LEASED_AT_ONCE)
        body = {"n": wanted, "wait": WAIT_S if follow else 0}
        leased = deque(await client.http.json("POST", path, body, kind=list))
        if not leased and not follow:
            return
        left = None if left is None else left - len(leased)
        await _write(client, path, leased)


async def _write(client: Client, path: str, leased: deque[dict[str, Any]]) -> None:
    """Write and acknowledge messages; where that fails, give back those that are left."""
    try:
        while leased:
            line = {name: leased[0][name] for name in leased[0] if name not in ("lease", "until")}
            write_data(orjson.dumps(line) + b"\n")
            one = leased.popleft()
            with suppress(UnknownRecord):  # its lease is over; somebody else gets it again
                await _settle(client, "DELETE", path, one)
    finally:
        for one in leased:
            with suppress(SowError):
                await _settle(client, "PATCH", path, one, b'{"cancel":true}')


async def _settle(
    client: Client, method: str, path: str, one: dict[str, Any], body: bytes | None = None
) -> None:
    lease = f"{path}/{quote(one['lease'], safe='')}"
    kind = None if body is None else JSON
    async with client.http.request(method, lease, body=body, content_type=kind):
        pass
