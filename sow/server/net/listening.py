"""Accepts connections as long as there are files for them.

A connection beyond the limits gets a reason and is closed. Where the system has no file left,
connections wait in its backlog and are accepted after a moment; that is logged once a minute with a
count, and open connections are served all the while. `sow.server.http.connections` decides,
this module executes. With TLS the handshake comes first.
"""

import asyncio
import errno
import logging
import os
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable

from sow.core.addresses import parse_address
from sow.errors import Busy
from sow.server.http.responses import raw_answer
from sow.server.net.connection_supervisor import Connections

log = logging.getLogger("sow")

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
