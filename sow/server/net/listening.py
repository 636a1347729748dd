"""Listening: sockets that are accepted from as long as there is a file for one more.

Who is too many is told so and closed at once. Where the system has no file left, connections wait
in its own queue, and are tried again after a moment; that is said once a minute with a count. What
is connected already is served all the while. `sow.server.http.connection_limits` decides, this
carries it out. A connection that is to be encrypted has to be so before anything is heard of it.
"""

import asyncio
import errno
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable

from sow.core.origin_parsing import parse_address
from sow.errors import Busy
from sow.server.http.problems import raw_answer
from sow.server.net.connection_supervisor import Connections

log = logging.getLogger("sow")

BACKLOG = 1024
"""Connections that the system keeps for us between two turns; it may cut this to its own limit."""
ACCEPTED_AT_ONCE = 64
"""Then what is connected already has its turn: accepting so many takes a few milliseconds."""
RETRY_S = 1.0
"""How long to wait for a file to become free: clients wait longer than that to be let in."""
SENT_EVERY_S = 60.0
"""How often that is said: an operator sees that it lasts, and the log is not filled with it."""
LINGER_S = 1.0
"""How long who is refused may take to read why: a round trip anywhere."""
LINGERING_MAX = 8
"""So many are left a moment to read why they were refused; their files are taken from a reserve,
`FILES_KEPT_MAX`, and whoever floods the server shall not use that up."""
NO_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
FILES_KEPT_MAX = 512
"""Files that are no connections: the store's, those of answers being made, a few for each topic."""


async def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of a name; raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    refused: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            one = socket.create_server(address, family=family, backlog=BACKLOG)
        except OSError as error:
            refused = error
            # A name may stand for an address of a family that this machine does not have.
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
    """Let the process have as many files as the system allows; returns how many connections it
    then has files for."""
    soft, hard = before, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (ValueError, OSError):
            pass  # some systems say "unlimited" and mean less
    log.debug("may have %s files open%s", _said(soft), f", not {before:,}" * (soft != before))
    if soft == resource.RLIM_INFINITY:
        return 2**31
    try:
        in_use = len(os.listdir("/proc/self/fd"))
    except OSError:
        in_use = 32
    return max(1, soft - in_use - min(FILES_KEPT_MAX, soft // 4))


def _said(files: int) -> str:
    return "any number of" if files == resource.RLIM_INFINITY else f"{files:,}"


class Listening:
    """Accepts connections of `sockets` until it is closed, and hands them to `connections`.

    `encryption` gives the context of those that come, None for plain ones. `accept` takes the next
    connection of a socket, as `socket.accept` does.
    """

    def __init__(
        self,
        sockets: list[socket.socket],
        connections: Connections,
        encryption: Callable[[], ssl.SSLContext | None] = lambda: None,
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
        self._again: asyncio.TimerHandle | None = None
        self._reported_s = -SENT_EVERY_S
        self.starved = 0
        """How often there was no file for a connection that waits."""
        self._open()

    def _open(self) -> None:
        self._again = None
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
            self._let_in(connection, str(peer[0]) if peer else "")

    def _wait(self, error: OSError) -> None:
        """No file is left: look again in a moment."""
        self.starved += 1
        self._shut()
        self._again = self._loop.call_later(RETRY_S, self._open)
        now_s = self._loop.time()
        if now_s - self._reported_s >= SENT_EVERY_S:
            self._reported_s = now_s
            log.error(
                "no connection can be accepted: %s (%d times since the start); those there are go "
                "on. Raise the limit of open files (ulimit -Hn), or lower Limits/Connections",
                error.strerror,
                self.starved,
            )

    def _let_in(self, connection: socket.socket, peer: str) -> None:
        connection.setblocking(False)
        address = parse_address(peer) or peer
        why = self._connections.crowd.enter(address)
        if why is not None:
            self._refuse(connection, why)
            return
        task = self._loop.create_task(self._connect(connection, address))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: socket.socket, address: str) -> None:
        watched, context = self._connections.watched(address), self._encryption()
        if context is None:
            await self._loop.connect_accepted_socket(lambda: watched, connection)
            return
        limits = self._connections.limits()
        async with self._key_exchange:
            # A millisecond each: of hundreds that come back at once one begins in a round of the
            # loop, so that whoever is connected has his turn between them.
            await asyncio.sleep(0)
        try:
            await self._loop.connect_accepted_socket(
                lambda: watched,
                connection,
                ssl=context,
                # To agree on a key is the first part of a header.
                ssl_handshake_timeout=limits.header_timeout_us / 1e6,
                # Closing waits for a client that still reads the end of its last answer.
                ssl_shutdown_timeout=limits.idle_timeout_us / 1e6,
            )
        except OSError:
            # It speaks no TLS, or too slowly, or has gone; nobody has heard of it.
            self._connections.crowd.leave(address)

    def _refuse(self, connection: socket.socket, why: str) -> None:
        """Say why, and leave the client a moment to read it: what is closed while something unread
        waits in it is reset, and the client would see nothing else. Who waits for a key could not
        read it, and costs no more than the closing."""
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
        """Accept no more."""
        if self._again is None:
            self._shut()
        else:
            self._again.cancel()
        for listener in self._sockets:
            listener.close()
        for connection, handle in list(self._lingering.items()):
            handle.cancel()
            self._end(connection)
