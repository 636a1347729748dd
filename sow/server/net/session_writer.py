"""A connection: writes a session's outbox to its socket, as fast as the socket takes it.

Frames are written straight to the transport, since equal subscriptions share them ready made.
What has still to be made, rows of an answer or the past from the log, is made in turns with
everybody else's work (`sow.server.loop.scheduler`), however fast its client reads. The transport's
own buffer is kept small: what a slow client has not taken stays in the session's outbox, where it
is counted and bounded.
"""

import asyncio
from collections.abc import Callable

from sow.server.loop.runtime import ServerRuntime
from sow.server.net.connection_supervisor import SupervisedProtocol
from sow.sessions.commands.executor import Executor
from sow.streaming.outbox.outbox import NOT_YET
from sow.streaming.sessions import Session

SOCKET_BUFFER_BYTES = 256 * 1024
"""What a transport may hold that the socket has not taken: enough to keep a fast one busy between
two turns of the loop, little beside what the bounds of a session allow."""
WRITE_BYTES = 64 * 1024
"""So much that is ready made is written at once, the rest in turns: some ten microseconds of work,
and more than clients that keep up are told at a time."""
GRACE_S = 2.0
"""How long a client that was given up may take to read why: what is on its way across the world
arrives in less, and one that does not read at all holds its file no longer."""


class SessionWriter:
    """One session on one socket (`below`), from `begin` to `close`.

    `on_end` is called when the server has given the session up and its last line is written.
    """

    name = "writing to a client"

    def __init__(
        self,
        driver: ServerRuntime,
        executor: Executor,
        session: Session,
        below: SupervisedProtocol,
        on_end: Callable[[], None],
    ) -> None:
        self.session = session
        self._driver = driver
        self._executor = executor
        self._transport = below.transport
        self._flow = below.flow
        self._on_end = on_end
        self._in_line = False
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

    @property
    def is_stuck(self) -> bool:
        """The transport's buffer is full, and stays so until the client reads; or the client has
        gone, whose last commands may wait for room in its queue."""
        return self._flow.paused or self._transport.is_closing()

    def lose(self) -> None:
        """Another socket has taken the session up."""
        self._driver.detach(self.session)
        self._transport.abort()

    @property
    def owns(self) -> bool:
        """The session is still this socket's."""
        return self.session.belongs_to(self)

    def write(self) -> None:
        """Write what may leave, is at hand and the socket takes; line up or wait with the rest."""
        more = self._write(self._write_ready)
        if more and not self._in_line:
            self._in_line = True
            self._driver.turns.add(self)

    def go_on(self, until_s: float) -> bool:
        """Write on until `until_s`, and make what has to be made; whether there is more."""
        more = False
        try:
            more = self._write(lambda now_us: self._write_all(now_us, until_s))
            return more
        finally:
            self._in_line = more

    def _write(self, fill_socket: Callable[[int], bool]) -> bool:
        """Let the socket have what it takes; whether it takes more than it was given."""
        if self._transport.is_closing():
            return False
        session, now_us = self.session, self._driver.now_us()
        more = fill_socket(now_us)
        if session.outbox or session.ended is not None:
            self._executor.sessions.apply_back_pressure(session, now_us)
            # Who had no time for all of it comes again.
            more = more or fill_socket(now_us)
        if session.ended is not None and self._aborting is None:
            self._give_up()
        return more

    def _write_ready(self, now_us: int) -> bool:
        """Write what is ready made, and not very much of it."""
        session, room = self.session, WRITE_BYTES
        released = self._driver.engine.ledger.released
        while room > 0:
            if self._flow.paused:
                self._flow.wait(self.write)
                return False
            # Mostly there was one frame: an empty outbox need not be asked for another.
            frame = session.pull(released, now_us, makes=False) if session.outbox else None
            if frame is None:
                self._look_whether_empty()
                return False
            if frame is NOT_YET:
                return True
            self._transport.write(frame)
            room -= len(frame)
        return True

    def _write_all(self, now_us: int, until_s: float) -> bool:
        """Write whatever there is, until `until_s`, one frame at least."""
        loop, released = asyncio.get_running_loop(), self._driver.engine.ledger.released
        while not self._flow.paused:
            frame = self.session.pull(released, now_us)
            if frame is None:
                self._look_whether_empty()
                return False
            if frame is not NOT_YET:
                self._transport.write(frame)
            if loop.time() >= until_s:
                return True
        self._flow.wait(self.write)
        return False

    def _look_whether_empty(self) -> None:
        if self.session.outbox:
            return
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
        if self._in_line:
            self._in_line = False
            self._driver.turns.remove(self)
        if self._aborting is not None:
            self._aborting.cancel()
