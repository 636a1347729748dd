"""What a follower answers before it has anything to start with.

Its port is open from the beginning, so that supervisors see that the process lives and for what it
waits: `/healthz` is 200, all else 503 with the reason. What connects at the moment of the start
waits in the system's backlog.
"""

import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from sow.errors import Replaying
from sow.server.http.responses import problem
from sow.server.net.listening import BACKLOG

LAST_ANSWERS_S = 1.0
"""How long answers that have begun may take at the end: they are a line each."""


@asynccontextmanager
async def answering(
    sockets: Sequence[socket.socket], encryption: ssl.SSLContext | None, why: Callable[[], str]
) -> AsyncIterator[None]:
    """Answer connections of `sockets`, which stay open, while this context is open."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/healthz":
            response = web.Response(text="ok\n")
        elif request.path == "/readyz":
            response = web.Response(status=503, text=f"{Replaying.reason}: {why()}\n")
        else:
            response = problem(Replaying(f"{Replaying.reason}: {why()}"))
        response.force_close()
        return response

    runner = web.ServerRunner(web.Server(answer, access_log=None), shutdown_timeout=LAST_ANSWERS_S)
    await runner.setup()
    try:
        for one in sockets:
            site = web.SockSite(runner, one.dup(), ssl_context=encryption, backlog=BACKLOG)
            await site.start()
        yield
    finally:
        await runner.cleanup()
