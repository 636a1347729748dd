"""The connector: opens the client's connections, and sees them closed.

A connection of TLS takes some turns of the loop to close, after whoever has had it is done. Where
the loop ends with the client (`asyncio.run`, a command) its socket would be left open, for the
collector to find and to warn of. So the connector notes which connections have not gone yet, and
waits for them at its own end; those whose server does not say goodbye are cut.
"""

import asyncio
import ssl

import aiohttp
from aiohttp.client import ClientTimeout
from aiohttp.client_reqrep import ClientRequest
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

GOODBYE_S = 1.0
"""How long a server may take to say goodbye: a few turns of its loop, and the way there."""


class Connector(aiohttp.TCPConnector):
    """A connector whose connections have gone when it is closed; `context` is by what it knows
    servers again."""

    def __init__(self, context: ssl.SSLContext | bool) -> None:
        super().__init__(ssl=context)
        self._still_open: dict[asyncio.Future[None], asyncio.Transport] = {}

    async def connect(
        self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout
    ) -> Connection:
        """A connection for a request, a new one or one that is kept."""
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
            # Why it has gone was for whoever used it.
            gone.exception()

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Close all connections, and return when they have gone."""
        await super().close(abort_ssl=abort_ssl)
        if self._still_open:
            await asyncio.wait([*self._still_open], timeout=GOODBYE_S)
        for transport in [*self._still_open.values()]:
            transport.abort()
        # The transport closes its socket in the turn after it has told of its end.
        await asyncio.sleep(0)
