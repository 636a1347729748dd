"""The port of a server: its aiohttp application, its connections and its listener.

What every request passes and every answer gets, whichever resource answers. The routes and their
handlers come from the caller (`sow.server.boot.routes`); nothing here knows the engine.

The port of a follower is open before it has anything to start with (`answering`), so that
supervisors see that the process lives and for what it waits: `/healthz` is 200, all else 503 with
the reason. What connects at the moment of the start waits in the system's backlog.

Connections are accepted as long as there are files for them. One beyond the limits gets a reason
and is closed. Where the system has no file left, connections wait in its backlog and are accepted
after a moment; that is logged once a minute with a count, and open connections are served all the
while. `sow.server.http.connections` decides, this module executes. With TLS the handshake comes
first.
"""

import asyncio
import errno
import logging
import os
import resource
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from sow.core.addresses import authority, parse_address
from sow.core.clock import monotonic_us
from sow.core.definitions import Configuration
from sow.errors import Busy, Replaying, StoreError
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
from sow.server.http.responses import (
    REFUSED,
    mark_kept,
    problem,
    raw_answer,
    report,
    sanitize_headers,
)
from sow.server.http.route import WEBSOCKET, Route, add_routes
from sow.server.http.server_log import AccessLog
from sow.server.loop.scheduler import LoopLatency, MeasuredRequests
from sow.server.net.connection_supervisor import Connections, HttpProtocol, RequestCounter, http_log

BACKLOG = 1024
"""The system's backlog of connections; it may cut this to its own limit."""
ACCEPTED_AT_ONCE = 64
"""Connections accepted in one step, a few milliseconds; then open ones are served."""
RETRY_S = 1.0
"""Delay before accepting is tried again without files: clients wait longer than that."""
LOGGED_EVERY_S = 60.0
"""Interval of that log line: an operator sees that it lasts, and the log is not filled."""
LINGER_S = 1.0
"""How long a refused client may take to read the reason: a round trip anywhere."""
LINGERING_MAX = 8
"""Refused clients that get this time; their files come from a reserve, `FILES_KEPT_MAX`, which a
flood must not use up."""
NO_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
FILES_KEPT_MAX = 512
"""Files that are not connections: the store's, those of answers, a few for each topic."""


Binds = Callable[[str, int, bool], Awaitable[list[socket.socket]]]
"""Opens a port, as `bind` does."""


async def bind(host: str, port: int, shared: bool = False) -> list[socket.socket]:
    """Sockets that listen on every address of a host name; `shared`: other processes listen there
    as well. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    refused: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            one = socket.create_server(address, family=family, backlog=BACKLOG, reuse_port=shared)
        except OSError as error:
            refused = error
            # A name may have an address of a family that this machine does not support.
            if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                continue
            for other in bound:
                other.close()
            raise
        one.setblocking(False)
        bound.append(one)
    if not bound:
        raise refused or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return bound


def raise_files_limit() -> int:
    """Raise the limit of open files as far as the system allows; returns how many connections it
    has files for."""
    soft, hard = before, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):
            pass  # some systems report "unlimited" and mean less
    log.debug("may have %s files open%s", _described(soft), f", not {before:,}" * (soft != before))
    if soft == resource.RLIM_INFINITY:
        return 2**31
    try:
        in_use = len(os.listdir("/proc/self/fd"))
    except OSError:
        in_use = 32
    return max(1, soft - in_use - min(FILES_KEPT_MAX, soft // 4))


def _described(files: int) -> str:
    return "any number of" if files == resource.RLIM_INFINITY else f"{files:,}"


class Listener:
    """Accepts connections of `sockets` until it is closed, and passes them to `connections`.

    `encryption` returns the TLS context of new connections, None for plain ones. `accept` accepts
    the next connection of a socket, like `socket.accept`.
    """

    def __init__(
        self,
        sockets: list[socket.socket],
        connections: Connections,
        encryption: Callable[[], ssl.SSLContext | None],
        accept: Callable[[socket.socket], tuple[socket.socket, tuple[object, ...]]] = (
            lambda listener: listener.accept()
        ),
    ) -> None:
        self._sockets = sockets
        self._connections = connections
        self._encryption = encryption
        self._accept_one = accept
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._key_exchange = asyncio.Lock()
        self._lingering: dict[socket.socket, asyncio.TimerHandle] = {}
        self._retry_timer: asyncio.TimerHandle | None = None
        self._reported_s = -LOGGED_EVERY_S
        self.starved = 0
        """How often there was no file for a waiting connection."""
        self._open()

    def _open(self) -> None:
        self._retry_timer = None
        for listener in self._sockets:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _shut(self) -> None:
        for listener in self._sockets:
            self._loop.remove_reader(listener.fileno())

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, peer = self._accept_one(listener)
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in NO_FILES:
                    raise
                self._wait(error)
                return
            self._admit(connection, str(peer[0]) if peer else "")

    def _wait(self, error: OSError) -> None:
        """No file is left: try again in a moment."""
        self.starved += 1
        self._shut()
        self._retry_timer = self._loop.call_later(RETRY_S, self._open)
        now_s = self._loop.time()
        if now_s - self._reported_s >= LOGGED_EVERY_S:
            self._reported_s = now_s
            log.error(
                "no connection can be accepted: %s (%d times since the start); those there are go "
                "on. Raise the limit of open files (ulimit -Hn), or lower Limits/Connections",
                error.strerror,
                self.starved,
            )

    def _admit(self, connection: socket.socket, peer: str) -> None:
        connection.setblocking(False)
        address = parse_address(peer) or peer
        why = self._connections.crowd.acquire_connection(address)
        if why is not None:
            self._refuse(connection, why)
            return
        task = self._loop.create_task(self._connect(connection, address))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: socket.socket, address: str) -> None:
        protocol, context = self._connections.supervise(address), self._encryption()
        if context is None:
            await self._loop.connect_accepted_socket(lambda: protocol, connection)
            return
        limits = self._connections.limits()
        async with self._key_exchange:
            # A handshake takes a millisecond: when hundreds reconnect at once, one begins in each
            # iteration of the loop, so that open connections are served in between.
            await asyncio.sleep(0)
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=context,
                # The handshake counts as the first part of a header.
                ssl_handshake_timeout=limits.header_timeout_us / 1e6,
                # Closing waits for a client that still reads the end of its last answer.
                ssl_shutdown_timeout=limits.idle_timeout_us / 1e6,
            )
        except OSError:
            # It does not speak TLS, or too slowly, or has disconnected.
            self._connections.crowd.release_connection(address)

    def _refuse(self, connection: socket.socket, why: str) -> None:
        """Send the reason, and leave the client a moment to read it: a socket that is closed with
        unread input is reset, and the client would see nothing else. A client that waits for a
        handshake could not read it, and is just closed."""
        if self._encryption() is not None:
            connection.close()
            return
        try:
            connection.send(raw_answer(Busy(f"{why}; try again in a moment")))
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        if len(self._lingering) >= LINGERING_MAX:
            oldest = next(iter(self._lingering))
            self._lingering[oldest].cancel()
            self._end(oldest)
        self._lingering[connection] = self._loop.call_later(LINGER_S, self._end, connection)

    def _end(self, connection: socket.socket) -> None:
        del self._lingering[connection]
        connection.close()

    def close(self) -> None:
        """Stop accepting."""
        if self._retry_timer is None:
            self._shut()
        else:
            self._retry_timer.cancel()
        for listener in self._sockets:
            listener.close()
        for connection, handle in list(self._lingering.items()):
            handle.cancel()
            self._end(connection)

    async def drop_pending(self) -> None:
        """Close the connections that are accepted and not open yet; call it after `close`."""
        await asyncio.sleep(0)  # each task has begun, and so closes its socket
        pending = [*self._tasks]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


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
