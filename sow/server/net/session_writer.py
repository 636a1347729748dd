"""Writes a session's outbox to its socket, as fast as the socket accepts it.

Frames are written straight to the transport, since equal subscriptions share encoded frames. What
has still to be encoded, rows of an answer or history from the log, is encoded in slices of the
scheduler (`sow.server.loop.scheduler`), however fast its client reads. The transport's own buffer
is kept small: what a slow client has not read stays in the session's outbox, where it is accounted
and bounded.
"""

import asyncio
from collections.abc import Callable

from sow.server.loop.runtime import ServerRuntime
from sow.server.net.connection_supervisor import SupervisedProtocol
from sow.sessions.commands.executor import Executor
from sow.streaming.outbox.outbox import NOT_YET
from sow.streaming.sessions import Session

SOCKET_BUFFER_BYTES = 256 * 1024
"""What a transport may buffer: enough to keep a fast socket busy between two iterations of the
loop, little beside the bounds of a session."""
WRITE_BYTES = 64 * 1024
"""Encoded bytes that are written at once, the rest in slices: some ten microseconds of work, and
more than what clients that keep up get at a time."""
GRACE_S = 2.0
"""How long a client may take to read why its session ended: anything in flight around the world
arrives in less, and a client that does not read releases its file."""


class SessionWriter:
    """One session on one socket (`below`), from `begin` to `close`.

    `on_end` is called when the server has ended the session and its last line is written.
    """

    name = "writing to a client"

    def __init__(
        self,
        runtime: ServerRuntime,
        executor: Executor,
        session: Session,
        below: SupervisedProtocol,
        on_end: Callable[[], None],
    ) -> None:
        self.session = session
        self._runtime = runtime
        self._executor = executor
        self._transport = below.transport
        self._flow = below.flow
        self._on_end = on_end
        self._aborting: asyncio.TimerHandle | None = None
        self._drained: asyncio.Future[None] | None = None
        self._on_room: Callable[[], None] | None = None
        self._claim()

    def begin(self) -> None:
        """The handshake is complete: frames may be written."""
        self._transport.set_write_buffer_limits(SOCKET_BUFFER_BYTES)
        self._runtime.attach(self.session, self.write)
        self.write()

    def _claim(self) -> None:
        self.session.belong_to(self)

    def follow(self) -> None:
        """Continue with the session that a logon has switched to."""
        if self.session.successor is not None:
            self._runtime.detach(self.session)
            self.session = self.session.successor
            self._claim()
            self._runtime.attach(self.session, self.write)

    @property
    def is_stuck(self) -> bool:
        """The transport's buffer is full, and stays so until the client reads; or the client has
        disconnected, and its last commands may wait for room in its outbox."""
        return self._flow.paused or self._transport.is_closing()

    def lose(self) -> None:
        """Another socket has taken over the session."""
        self._runtime.detach(self.session)
        self._transport.abort()
        self._check_room()

    @property
    def owns(self) -> bool:
        """Whether the session is still this socket's."""
        return self.session.belongs_to(self)

    def write(self) -> None:
        """Write what is encoded, released and accepted by the socket; queue or wait with the
        rest."""
        if self._write(self._write_ready):
            self._runtime.turns.add(self)

    def go_on(self, until_s: float) -> bool:
        """Continue to encode and write until `until_s`; returns whether there is more."""
        return self._write(lambda now_us: self._write_all(now_us, until_s))

    def _write(self, fill_socket: Callable[[int], bool]) -> bool:
        """Fill the socket; returns whether it accepts more than there was time for."""
        if self._transport.is_closing():
            self._check_room()
            return False
        session, now_us = self.session, self._runtime.now_us()
        more = fill_socket(now_us)
        if session.outbox or session.ended is not None:
            self._executor.sessions.apply_back_pressure(session, now_us)
            # A socket that had no time for all of it comes again.
            more = more or fill_socket(now_us)
        if session.ended is not None and self._aborting is None:
            self._give_up()
        if self._on_room is not None:
            self._check_room()
        return more

    def _write_ready(self, now_us: int) -> bool:
        """Write frames that are encoded already, up to `WRITE_BYTES`."""
        session, room = self.session, WRITE_BYTES
        released = self._runtime.engine.sequencer.released
        while room > 0:
            if self._flow.paused:
                self._flow.wait(self.write)
                return False
            # Mostly there was one frame: an empty outbox need not be queried for another.
            frame = session.pull(released, now_us, makes=False) if session.outbox else None
            if frame is None:
                self._check_drained()
                return False
            if frame is NOT_YET:
                return True
            self._transport.write(frame)
            room -= len(frame)
        return True

    def _write_all(self, now_us: int, until_s: float) -> bool:
        """Write everything until `until_s`, one frame at least."""
        loop, released = asyncio.get_running_loop(), self._runtime.engine.sequencer.released
        while not self._flow.paused:
            frame = self.session.pull(released, now_us)
            if frame is None:
                self._check_drained()
                return False
            if frame is not NOT_YET:
                self._transport.write(frame)
            if loop.time() >= until_s:
                return True
        self._flow.wait(self.write)
        return False

    def wait_for_room(self, resumed: Callable[[], None]) -> None:
        """Call `resumed` once, when the full outbox is within its bounds again, or never will be:
        the session has ended, or is another socket's. Whatever shortens an outbox has it written
        (`PendingOutput.touch`), so this is checked after each write."""
        self._on_room = resumed

    def forget_room(self) -> None:
        """Cancel `wait_for_room`."""
        self._on_room = None

    def _check_room(self) -> None:
        resumed, session = self._on_room, self.session
        if resumed is None or (self.owns and session.ended is None and session.outbox.full):
            return
        self._on_room = None
        resumed()

    async def drained(self) -> None:
        """Return when the outbox is empty."""
        while self.session.outbox:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def _check_drained(self) -> None:
        if self.session.outbox:
            return
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self.session.ended is not None:
            self._on_end()
        else:
            self._executor.subscriptions.drained(self.session)

    def _give_up(self) -> None:
        """Leave the client a moment to read the reason, then abort the connection."""
        self._aborting = asyncio.get_running_loop().call_later(GRACE_S, self._transport.abort)

    def close(self) -> None:
        """The socket is closed."""
        if self.owns:
            self._runtime.detach(self.session)
        self._flow.forget(self.write)
        self._runtime.turns.remove(self)
        if self._aborting is not None:
            self._aborting.cancel()
