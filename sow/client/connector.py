"""The HTTP connections of a client: they are closed when the client is, and follow no redirect.

A TLS connection takes some turns of the loop to close. If the loop ends with the client
(`asyncio.run`, a command), its socket would be left open, and the garbage collector would warn of
it. So the connector keeps the connections that are not closed yet, and its `close` waits for them;
connections that the server does not close are aborted.

A redirect would send messages, session names and credentials to an address that the caller did not
give, also for the handshake of a WebSocket. So it is an error with its target: a caller that trusts
it gives it as the address.
"""

import asyncio
import ssl

import aiohttp
from aiohttp import hdrs
from aiohttp.client import ClientTimeout
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from sow.client.errors import Unreachable
from sow.errors import clipped

GOODBYE_S = 1.0
"""How long a server may take to close a connection: a few turns of its loop and a round trip."""


class Connector(aiohttp.TCPConnector):
    """A connector whose `close` waits for its connections; `context` is the TLS context."""

    def __init__(self, context: ssl.SSLContext | bool) -> None:
        super().__init__(ssl=context)
        self._still_open: dict[asyncio.Future[None], asyncio.Transport] = {}

    async def connect(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> Connection:
        """A connection for a request, a new one or one from the pool."""
        connection = await super().connect(req, traces, timeout)
        protocol, transport = connection.protocol, connection.transport
        gone = None if protocol is None else protocol.closed
        if gone is not None and transport is not None and gone not in self._still_open:
            self._still_open[gone] = transport
            gone.add_done_callback(self._has_gone)
        return connection

    def _has_gone(self, gone: asyncio.Future[None]) -> None:
        self._still_open.pop(gone, None)
        if not gone.cancelled():
            # Retrieved, so that asyncio does not warn: its user has got the error.
            gone.exception()

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Close all connections, and return when they are closed."""
        await super().close(abort_ssl=abort_ssl)
        if self._still_open:
            await asyncio.wait([*self._still_open], timeout=GOODBYE_S)
        for transport in [*self._still_open.values()]:
            transport.abort()
        # The transport closes its socket in the turn after connection_lost.
        await asyncio.sleep(0)


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
