"""Redirects are not followed.

They would send messages, session names and credentials to an address that the caller did not give,
also for the handshake of a WebSocket. So a redirect is an error with its target: a caller that
trusts it gives it as the address.
"""

import aiohttp
from aiohttp import hdrs

from sow.client.errors import Unreachable
from sow.errors import clipped


def refused_redirects(url: str) -> aiohttp.TraceConfig:
    """A trace that makes an aiohttp session raise Unreachable if the server at `url` redirects."""

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
