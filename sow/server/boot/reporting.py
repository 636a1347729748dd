"""What a node reports to the server above it, and what it learns from there of the others.

A follower reports to its primary, a chained server to its upstream, which lists it then in
`/v1/status` (`sow.server.api.nodes`). A chained server forwards the reports of those below it, a
follower reports them with its own. What the server above knows is requested when a client
requests it here.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

import msgspec
from aiohttp import ClientError as CallFailed
from aiohttp import ClientSession, ClientTimeout

from sow.server.api.nodes import NODES_MAX, URL_CHARS_MAX, ServerNode

STATUS_S_MAX = 1.0
"""How long the server above may take to say what it knows: people look at the answer once a second,
and one that is lost is not called."""
STATUS_BYTES_MAX = NODES_MAX * (2 * URL_CHARS_MAX + 1_000)
"""So much is read of it."""
NO_HEADERS: Mapping[str, str] = {}


class Upstream(NamedTuple):
    """The server above: its address, a token of its, if it needs one, the TLS context for https://
    (True: the machine's certificates), and a token to report by where that is another one."""

    url: str
    token: str = ""
    encryption: ssl.SSLContext | bool = True
    report_token: str = ""


class StatusSaid(msgspec.Struct):
    """What matters of `/v1/status`."""

    nodes: list[ServerNode] = []


async def report(
    calls: ClientSession,
    url: str,
    own: ServerNode,
    headers: Mapping[str, str] = NO_HEADERS,
    below: Sequence[ServerNode] = (),
) -> str:
    """Tell the server at `url` of this one and those `below`; returns the address under which it
    lists this one, empty where it refuses. Raises ClientError of aiohttp, OSError, TimeoutError."""
    said = msgspec.structs.asdict(own)
    path = f"/v1/nodes/{quote(said.pop('url'), safe='')}"
    if below:
        said["below"] = [msgspec.structs.asdict(one) for one in below]
    async with calls.put(url + path, json=said, headers=headers, allow_redirects=False) as answer:
        if answer.status != 200:
            return ""
        text = await answer.content.read(URL_CHARS_MAX + 1_000)
    try:
        return msgspec.json.decode(text, type=ServerNode).url
    except msgspec.MsgspecError:
        return own.url


async def nodes_of(
    calls: ClientSession, url: str, headers: Mapping[str, str] = NO_HEADERS
) -> list[ServerNode]:
    """What the server at `url` knows of all nodes; none where it does not say so in time."""
    try:
        async with (
            asyncio.timeout(STATUS_S_MAX),
            calls.get(
                f"{url}/v1/status",
                headers=headers,
                allow_redirects=False,
                timeout=ClientTimeout(total=STATUS_S_MAX),
            ) as answer,
        ):
            text = b""
            async for piece in answer.content.iter_any():
                text += piece
                if len(text) > STATUS_BYTES_MAX:
                    return []
        return msgspec.json.decode(text, type=StatusSaid).nodes[:NODES_MAX]
    except (CallFailed, OSError, TimeoutError, msgspec.MsgspecError):
        return []
