"""A connection: writes a session's outbox to its socket, as fast as the socket takes it.

Frames are written straight to the transport, since equal subscriptions share them ready made.
The transport's own buffer is kept small: what a slow client has not taken stays in the session's
outbox, where it is counted and bounded.
"""

import asyncio
from collections.abc import Callable

from sow.delivery.sessions import Session
from sow.requests.executor import Executor
from sow.server.connections import Watched
from sow.server.driver import Driver

SOCKET_BUFFER_BYTES = 256 * 1024
"""What a transport may hold that the socket has not taken: enough to keep a fast one busy between
two turns of the loop, little beside what the bounds of a session allow."""
GRACE_S = 2.0
"""How long a client that was given up may take to read why: what is on its way across the world
arrives in less, and one that does not read at all holds its file no longer."""


class Connection:
    """One session on one socket (`below`), from `begin` to `close`.

    `on_end` is called when the server has given the session up and its last line is written.
    """

    def __init__(
        self,
        driver: Driver,
        executor: Executor,
        session: Session,
        below: Watched,
        on_end: Callable[[], None],
    ) -> None:
        self.session = session
        self._driver = driver
        self._executor = executor
        self._transport = below.transport
        self._flow = below.flow
        self._on_end = on_end
        self._again: asyncio.Handle | None = None
        self._aborting: asyncio.TimerHandle | None = None
        self._own()

    def begin(self) -> None:
        """The handshake is over: frames may be written."""
        self._transport.set_write_buffer_limits(SOCKET_BUFFER_BYTES)
        self._driver.attach(self.session, self.write)
        self.write()

    def _own(self) -> None:
        self.session.belong_to(self)

    def follow(self) -> None:
        """A logon may have put another session in the place of this one: go on with that."""
        if self.session.successor is not None:
            self._driver.detach(self.session)
            self.session = self.session.successor
            self._own()
            self._driver.attach(self.session, self.write)

    def lose(self) -> None:
        """Another socket has taken the session up."""
        self._driver.detach(self.session)
        self._transport.abort()

    @property
    def owns(self) -> bool:
        """The session is still this socket's."""
        return self.session.belongs_to(self)

    def write(self) -> None:
        """Write what may leave and the socket takes; wait for the socket with the rest."""
        if self._transport.is_closing():
            return
        session, now_us = self.session, self._driver.now_us()
        self._fill_socket(now_us)
        if session.outbox or session.ended is not None:
            self._executor.apply_back_pressure(session, now_us)
            self._fill_socket(now_us)
        if session.ended is not None and self._aborting is None:
            self._give_up()

    def _fill_socket(self, now_us: int) -> None:
        session, transport = self.session, self._transport
        released = self._driver.engine.ledger.released
        while not self._flow.paused:
            frame = session.pull(released, now_us)
            if frame is None:
                if not session.outbox:
                    self._emptied()
                return
            if not frame:
                # There is work to do before the next frame; others get their turn first.
                self._again = asyncio.get_running_loop().call_soon(self.write)
                return
            transport.write(frame)
        self._flow.wait(self.write)

    def _emptied(self) -> None:
        if self.session.ended is not None:
            self._on_end()
        else:
            self._executor.subscriptions.drained(self.session)

    def _give_up(self) -> None:
        """Leave the client a moment to read why, then take the socket away."""
        self._aborting = asyncio.get_running_loop().call_later(GRACE_S, self._transport.abort)

    def close(self) -> None:
        """The socket has gone."""
        if self.owns:
            self._driver.detach(self.session)
        self._flow.forget(self.write)
        for pending in (self._aborting, self._again):
            if pending is not None:
                pending.cancel()
