"""A connection: writes a session's outbox to its socket, as fast as the socket takes it.

Frames are written straight to the transport, since equal subscriptions share them ready made.
The transport's own buffer is kept small: what a slow client has not taken stays in the session's
outbox, where it is counted and bounded.
"""

import asyncio
from collections.abc import Callable

from aiohttp import web

from sow.delivery.sessions import Session
from sow.requests.executor import Executor
from sow.server.driver import Driver

SOCKET_BUFFER_BYTES = 256 * 1024
GRACE_S = 2.0
"""How long a client that was given up may take to read why."""


class Connection:
    """One session on one socket. `on_end` is called when the server has given the session up."""

    def __init__(
        self,
        driver: Driver,
        executor: Executor,
        session: Session,
        request: web.Request,
        on_end: Callable[[], None],
    ) -> None:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client has gone")
        self.session = session
        self._driver = driver
        self._executor = executor
        self._transport = transport
        self._protocol = request.protocol
        self._on_end = on_end
        self._waiting: asyncio.Task[None] | None = None
        self._again: asyncio.Handle | None = None
        self._aborting: asyncio.TimerHandle | None = None
        transport.set_write_buffer_limits(SOCKET_BUFFER_BYTES)
        self._attach()

    def _attach(self) -> None:
        self.session.belong_to(self)
        self._driver.attach(self.session, self.write)

    def follow(self) -> None:
        """A logon may have put another session in the place of this one: go on with that."""
        if self.session.successor is not None:
            self._driver.detach(self.session)
            self.session = self.session.successor
            self._attach()

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
        if self._waiting is None:
            self._fill_socket(now_us)
        if session.outbox or session.ended is not None:
            self._executor.apply_back_pressure(session, now_us)
            if self._waiting is None:
                self._fill_socket(now_us)
        if session.ended is not None and self._aborting is None:
            self._give_up()

    def _fill_socket(self, now_us: int) -> None:
        session, transport = self.session, self._transport
        released = self._driver.engine.released
        while transport.get_write_buffer_size() < SOCKET_BUFFER_BYTES:
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
        self._waiting = asyncio.get_running_loop().create_task(self._wait())

    def _emptied(self) -> None:
        if self.session.ended is not None:
            self._on_end()
        else:
            self._executor.drained(self.session)

    def _give_up(self) -> None:
        """Leave the client a moment to read why, then take the socket away."""
        self._aborting = asyncio.get_running_loop().call_later(GRACE_S, self._transport.abort)

    async def _wait(self) -> None:
        try:
            # aiohttp's own way of waiting for the socket: resume_writing completes it.
            await self._protocol._drain_helper()
        except ConnectionError:
            return
        finally:
            self._waiting = None
        self.write()

    def close(self) -> None:
        """The socket has gone."""
        if self.owns:
            self._driver.detach(self.session)
        for pending in (self._waiting, self._aborting, self._again):
            if pending is not None:
                pending.cancel()
