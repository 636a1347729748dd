"""The port of a server: its aiohttp application, its connections and its listener.

What every request passes and every answer gets, whichever resource answers. The routes and their
handlers come from the caller (`sow.server.boot.routes`); nothing here knows the engine.

The port of a follower is open before it has anything to start with (`answering`), so that
supervisors see that the process lives and for what it waits: `/healthz` is 200, all else 503 with
the reason. What connects at the moment of the start waits in the system's backlog.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from sow.core.addresses import authority
from sow.core.clock import monotonic_us
from sow.core.definitions import Configuration
from sow.errors import Replaying, StoreError
from sow.security.authentication.credentials import LONGEST
from sow.server.boot.reload import InForce
from sow.server.http.authn_middleware import AUTHN, RequestAuthenticator
from sow.server.http.body_reading import (
    REQUESTS,
    ReadBackpressure,
    Requests,
    check_expectation,
    end_unmet,
    with_deferred_expectations,
)
from sow.server.http.connections import ConnectionLimiter
from sow.server.http.negotiation import Compression
from sow.server.http.preconditions import MOMENTS, Moments
from sow.server.http.request_origin import RequestMiddleware
from sow.server.http.responses import REFUSED, mark_kept, problem, report, sanitize_headers
from sow.server.http.route import WEBSOCKET, Route, add_routes
from sow.server.http.server_log import AccessLog
from sow.server.loop.scheduler import LoopLatency, MeasuredRequests
from sow.server.net.connection_supervisor import Connections, HttpProtocol, RequestCounter, http_log
from sow.server.net.listening import BACKLOG, Binds, Listener, bind, raise_files_limit

log = logging.getLogger("sow")

STOP_S_MAX = 2.0
"""How long running requests may take to end when the server stops: long enough for an answer that
is being written, less than supervisors wait before they kill it."""
ADDRESS_BYTES = 8190
"""Longest URL of a request beside its filter: what aiohttp and most proxies allow."""
NOTABLY_FEWER = 0.9
"""The share of wanted connections that the system has files for, below which a warning is logged: a
few missing ones are nothing to warn of."""
NEVER_S = 10 * 365 * 86_400.0
"""Ten years, for a timeout of aiohttp that is never to expire."""


async def listening(
    configuration: Configuration, shares_port: bool, bind: Binds = bind
) -> list[socket.socket]:
    """Sockets at the address of a configuration; raises StoreError when the port is taken."""
    host, port = configuration.host, configuration.port
    try:
        return await bind(host, port, shares_port)
    except OSError as error:
        raise StoreError(
            f"cannot listen on {authority(host, port)}: {error.strerror}; choose another with "
            "--port",
            reason="address in use",
        ) from None


class HttpServer:
    """Listens where the configuration in force says, from `listen` to `close`.

    `requests` holds what is read of requests, `origin` checks where they come from, `moments` marks
    answers, `refused` counts what was refused, and `watch` measures how long each request works."""

    def __init__(
        self,
        in_force: InForce,
        requests: Requests,
        origin: RequestMiddleware,
        moments: Moments,
        refused: Counter[str],
        watch: LoopLatency,
    ) -> None:
        self._in_force = in_force
        self._requests = requests
        self._origin = origin
        self._moments = moments
        self._refused = refused
        self._watch = watch
        self.crowd = ConnectionLimiter(lambda: in_force.configuration, raise_files_limit())
        """Counts connections."""
        self._warn_of_few_files()
        self._runner: web.AppRunner
        self._connections: Connections
        self._listener: Listener

    async def listen(
        self,
        routes: Iterable[Route],
        authn: RequestAuthenticator,
        shares_port: bool,
        sockets: Sequence[socket.socket] = (),
        bind: Binds = bind,
    ) -> tuple[str, int]:
        """Answer requests by `routes`, of clients that `authn` knows, at `sockets` if the port is
        open already, else at what `bind` opens; returns the server's URL and port. Raises
        StoreError when the port is taken, and ConfigError."""
        application = self._application(authn)
        add_routes(application.router, routes)
        self._origin.open()
        self._runner = web.AppRunner(
            application,
            handler_cancellation=True,  # a stream ends when its client has gone
            shutdown_timeout=STOP_S_MAX,
        )
        await self._runner.setup()
        configuration, in_force = self._in_force.configuration, self._in_force
        in_force.read_tls()
        try:
            sockets = sockets or await listening(configuration, shares_port, bind)
        except StoreError:
            await self._runner.cleanup()
            raise
        self._connections = self._new_connections()
        self._listener = Listener([*sockets], self._connections, lambda: in_force.tls.context)
        host, port = sockets[0].getsockname()[:2]
        return f"{configuration.security.scheme}://{authority(host, port)}", port

    def stop_listening(self) -> None:
        """Take no more connections."""
        self._listener.close()

    async def close(self) -> None:
        """Let running requests end, and close all connections."""
        # One that opens later would be served by a server that has stopped.
        await self._listener.drop_pending()
        await self._runner.cleanup()
        self._connections.close()

    def _warn_of_few_files(self) -> None:
        wanted = self._in_force.configuration.limits.connections_max
        if self.crowd.connections_max < wanted * NOTABLY_FEWER:
            log.warning(
                "there can be %d connections, and not %d (Limits/Connections): the system allows "
                "no more open files (ulimit -Hn)",
                self.crowd.connections_max,
                wanted,
            )

    def _application(self, authn: RequestAuthenticator) -> web.Application:
        """An application without routes: what each request passes, from the outside in, and what
        each answer gets."""
        in_force = self._in_force
        application = web.Application(
            middlewares=[
                AccessLog(lambda: in_force.configuration.server_log.access, monotonic_us).note,
                MeasuredRequests(self._watch, WEBSOCKET).measure,
                report,
                self._origin.check,
                check_expectation,
                RequestCounter(self.crowd).count,
                self._requests.hold,
            ],
        )
        application[REQUESTS] = self._requests
        application[REFUSED] = self._refused
        application[MOMENTS] = self._moments
        application[AUTHN] = authn
        application.on_response_prepare.extend(
            [
                self._moments.mark,
                self._origin.mark,
                mark_kept,
                Compression().pack,
                end_unmet,
                sanitize_headers,
            ]
        )
        return application

    def _new_connections(self) -> Connections:
        server, in_force = self._runner.server, self._in_force
        assert server is not None
        server.request_factory = with_deferred_expectations(server.request_factory)
        return Connections(
            lambda: self._protocol(server),
            self.crowd,
            ReadBackpressure(self._requests.budget),
            lambda: in_force.configuration.limits,
        )

    def _protocol(self, server: web.Server) -> HttpProtocol:
        return HttpProtocol(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,
            logger=http_log,
            # Bodies are decompressed as there is room (`sow.server.http.body_reading`).
            auto_decompress=False,
            # `sow.server.net.connection_supervisor` closes idle connections.
            keepalive_timeout=NEVER_S,
            # A filter is in the URL, where a byte may take three.
            max_line_size=ADDRESS_BYTES + 3 * self._in_force.configuration.limits.filter_bytes_max,
            max_field_size=LONGEST,
        )


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
