"""Redirects: a client goes to no other address than the one that it was given.

What it publishes, the session that it comes back with and what it is told would go wherever an
answer points to, and a WebSocket is asked for by a request that may be redirected as well. So a
redirect is an error, which says where it points: whoever trusts that gives it as the address.
"""

import aiohttp
from aiohttp import hdrs

from sow.client.errors import Unreachable
from sow.errors import clipped


def refused_redirects(url: str) -> aiohttp.TraceConfig:
    """What has a session of aiohttp raise Unreachable where the server at `url` redirects it."""

    async def refuse(
        _session: object, _context: object, seen: aiohttp.TraceRequestRedirectParams
    ) -> None:
        seen.response.close()
        there = clipped(seen.response.headers.get(hdrs.LOCATION, "nowhere"))
        raise Unreachable(
            f"{url} redirects to {there}, which is not followed; if that is the server, "
            "give its address"
        )

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(refuse)
    return trace
