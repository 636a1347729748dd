"""The commands of one WebSocket client, from its frames to the steps of the executor.

Commands are executed in slices of the scheduler (`sow.server.loop.scheduler`), so that no frame
delays others for longer than a step. Meanwhile the socket is not read, and TCP slows the client; a
client whose outbox is full has to read before more is executed: whatever makes room continues.

Frames are queued as they arrive (`ReceiveQueue`), and their commands are parsed a few at a time: as
many as fit into a slice. So a frame of millions of lines takes the memory of a few thousand, and
frames of one line (there are many) are still parsed together and share their cost.
"""

import asyncio
from collections import deque
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from sow.core.cooperative import Task
from sow.engine.following import FollowingEngine
from sow.errors import ClientError, SowError
from sow.history.bookmarks import is_of_log, turn_time
from sow.protocol.commands import Command
from sow.protocol.publish_batching import Read, read_frames
from sow.protocol.wire import FRAME_PIECE_BYTES, LineSplitter, Refused, read_lines
from sow.server.http.authn_middleware import RequestAuthenticator
from sow.server.http.preconditions import Moments, least_bookmark, waited_s
from sow.server.loop.background_work import (
    Guarded,
    compile_beside,
    guarded_by,
    long_among,
    long_guarded,
)
from sow.server.loop.runtime import ServerRuntime
from sow.server.net.session_writer import SessionWriter
from sow.server.net.ws_memory_accounting import MessageMemory
from sow.sessions.commands.executor import Executor
from sow.streaming.outbox.overflow import PATIENCE_US
from sow.streaming.sessions import Session

TAKEN_BYTES_MAX = 2 * FRAME_PIECE_BYTES
"""Text that is parsed at once: some hundred messages, or a few thousand of the shortest commands,
about what a slice executes."""
READ_BYTES_MIN = 100
"""The minimum size of a frame or command for this purpose: however short it is, it takes a
microsecond or two to parse."""
Commands = Iterator[Command | Refused | None]
NO_FRAMES: deque[bytes] = deque()
"""The queue of all clients with no frames, never modified: an empty deque takes 760 bytes."""


class ReceiveQueue:
    """Frames of one client. `bytes` is the total size of what is queued; a frame counts until it is
    parsed."""

    def __init__(self) -> None:
        self._frames = NO_FRAMES
        self._long: tuple[LineSplitter, Commands] | None = None
        """The first frame, if it is long and partly parsed."""
        self.bytes = 0

    def add(self, *frames: bytes) -> None:
        """Queue frames."""
        if not self._frames:
            self._frames = deque()
        self._frames.extend(frames)
        self.bytes += sum(map(len, frames))

    def take(self) -> list[Read]:
        """The next commands, in order. None are returned when the queue is empty, and while the
        bodies of a long frame are split; then `bytes` shows that there is more."""
        taken: list[Read] = []
        left = TAKEN_BYTES_MAX
        while self._frames and left > 0:
            short, left = self._take_short(left)
            taken += read_frames(short)
            if self._frames and left > 0:
                frame = self._frames[0]
                if self._long is None:
                    lines = LineSplitter(frame)
                    self._long = lines, read_lines(lines)
                left -= self._read_on(*self._long, taken, left)
                if left > 0:
                    # Else the next call finds out whether that was all of the frame.
                    self._long = None
                    self._frames.popleft()
                    self.bytes -= len(frame)
        if not self._frames:
            self._frames = NO_FRAMES
        return taken

    def _take_short(self, left: int) -> tuple[list[bytes], int]:
        """Frames up to the next one of many lines, up to about `left` bytes; and what is left."""
        frames, short = self._frames, list[bytes]()
        while frames and left > 0:
            size = len(frames[0])
            if size > FRAME_PIECE_BYTES and b"\n" in frames[0]:
                break  # it is parsed in parts; a single line cannot be split
            short.append(frames.popleft())
            self.bytes -= size
            left -= size if size > READ_BYTES_MIN else READ_BYTES_MIN
        return short, left

    @staticmethod
    def _read_on(lines: LineSplitter, commands: Commands, taken: list[Read], bytes_max: int) -> int:
        """Parse some commands of a long frame; returns how much of it was split for them, or more
        if they are short."""
        begins, weight = lines.cut_bytes, 0
        for command in commands:
            if command is not None:
                taken.append(command)
            weight += READ_BYTES_MIN
            if max(lines.cut_bytes - begins, weight) >= bytes_max:
                break
        return max(lines.cut_bytes - begins, weight)

    def clear(self) -> None:
        """Drop everything."""
        self._frames.clear()
        self._long = None
        self.bytes = 0


QUEUE_BYTES_MAX = 256 * 1024
"""Bytes queued before the first of them are executed: what one read of a socket returns."""
PATIENCE_S = PATIENCE_US / 1e6 + 0.01
"""Delay before a session whose client makes no room is judged again: its patience is over then."""


class LogonSource(NamedTuple):
    """Identifies clients that log on from an address."""

    authn: RequestAuthenticator
    address: str


class CommandReader:
    """Reads and executes the commands of one client.

    `executor` executes them for the session of `connection`, which writes the answers; `messages`
    is notified of what was read and executed.
    """

    name = "commands of a WebSocket"

    def __init__(
        self,
        runtime: ServerRuntime,
        executor: Executor,
        connection: SessionWriter,
        messages: MessageMemory,
        logon_source: "LogonSource | None" = None,
        moments: Moments | None = None,
    ) -> None:
        self._runtime = runtime
        self._moments = moments or Moments()
        self._executor = executor
        self._follows = isinstance(executor.engine, FollowingEngine)
        self._connection = connection
        self._messages = messages
        self._logon_source = logon_source
        self._loop = asyncio.get_running_loop()
        self._queue = ReceiveQueue()
        self._held: list[Read] = []
        """Parsed commands: the first of them waits for a bookmark."""
        self._steps: Task[None] | None = None
        self._turns = runtime.turns
        self._in_line = False
        self._patience: asyncio.TimerHandle | None = None
        """Runs while the outbox is full and its client should read."""
        self._sliced: asyncio.Future[None] | None = None
        self._compiling: asyncio.Task[None] | None = None

    def add(self, frame: bytes) -> bool:
        """Queue a frame that was read; returns whether to stop reading the socket until there is
        `room`."""
        self._messages.on_read()
        self.take((frame,))
        return self.is_full

    def take(self, frames: Sequence[bytes]) -> None:
        """Queue frames."""
        self._queue.add(*frames)
        if not self._busy:
            self._line_up()

    awaits = False
    """It executes all itself, and says when that is done."""

    @property
    def is_full(self) -> bool:
        """As much is queued as may be."""
        return self._queue.bytes > QUEUE_BYTES_MAX

    def _line_up(self) -> None:
        if self._patience is not None:
            self._stop_waiting()
        self._in_line = True
        self._turns.add(self, self._connection.session.memory.share.client)

    def _wait_for_room(self) -> None:
        self._connection.wait_for_room(self._line_up)
        self._patience = self._loop.call_later(PATIENCE_S, self._line_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        self._connection.forget_room()

    @property
    def _busy(self) -> bool:
        return self._in_line or self._patience is not None or self._compiling is not None

    async def room(self) -> None:
        """Return when the socket may be read again."""
        while self.is_full:
            await self._next_slice()

    async def done(self) -> None:
        """Return when everything has been executed, or never will be."""
        while self._busy:
            await self._next_slice()

    async def _next_slice(self) -> None:
        self._sliced = self._loop.create_future()
        await self._sliced

    def go_on(self, until_s: float) -> bool:
        """Execute commands until `until_s` (loop time); returns whether there are more."""
        self._in_line = False
        try:
            self._in_line = self._go_on(until_s)
            return self._in_line
        finally:
            if self._sliced is not None and not self._sliced.done():
                self._sliced.set_result(None)

    def _go_on(self, until_s: float) -> bool:
        connection, session = self._connection, self._connection.session
        if session.ended is None and session.outbox.full and connection.owns:
            now_us = self._runtime.now_us()
            self._executor.sessions.apply_back_pressure(session, now_us)
            if session.ended is not None:
                connection.write(now_us)
            elif session.outbox.full:
                self._wait_for_room()
                return False
        if session.ended is not None or not connection.owns:
            self._drop()
            return False
        more = self._carry_out(until_s) and self._compiling is None
        connection.follow()
        return more

    def _carry_out(self, until_s: float) -> bool:
        """Take steps until `until_s`; returns whether there is more to do."""
        while True:
            if self._steps is None:
                commands, self._held = self._held or self._queue.take(), []
                if not commands and self._queue.bytes:
                    if self._loop.time() >= until_s:
                        return True
                    continue
                if not commands:
                    self._messages.on_executed()
                    return False
                session, now_us = self._connection.session, self._runtime.now_us
                commands = commands if session.connected else _without_questions(commands)
                if not self._executor.publish_at_once(session, commands, now_us()):
                    commands = self._up_to_waiting(commands)
                    self._steps = self._executor.carry_out(session, commands, now_us)
                    if self._start_preparing(session, commands):
                        return True
            for rests in self._steps or ():
                if rests:
                    self._turns.rest(self)
                if rests or self._loop.time() >= until_s:
                    return True
            self._steps = None
            # A logon may have switched to another session.
            self._connection.follow()
            if self._loop.time() >= until_s:
                return True

    def _checked(self, read: Read) -> Read:
        """A command, refused if it reads what may be out of date and does not say that it may."""
        if not isinstance(read, Command) or read.kind.demand != "read":
            return read
        try:
            self._moments.check(read.stale)
        except SowError as error:
            return Refused(read.cid, error.with_traceback(None))
        read.be_stale(self._moments.stale_s())
        return read

    def _start_preparing(self, session: Session, commands: list[Read]) -> bool:
        """Start what has to precede the commands: compiling of long filters, identification of
        logons; returns whether there is anything."""
        filters = self._executor.engine.filters
        singly = [command for command in commands if isinstance(command, Command)]
        texts = long_among(filters, (command.filter for command in singly))
        guarded = [] if session.rights.is_open else self._guarded(session, singly, texts)
        logons = self._pending_logons(commands)
        waits = bool(commands) and self._sought(commands[0]) is not None
        if not (texts or guarded or logons or waits):
            return False
        self._compiling = self._loop.create_task(self._prepare(texts, guarded, logons, commands))
        return True

    def _sought(self, read: Read) -> str | None:
        """The bookmark that a command waits for. A follower may be behind the one that a
        subscription is to go on after, which another server of the log has given."""
        if not isinstance(read, Command):
            return None
        waits = self._follows or self._moments.is_shared
        if waits and read.min_bookmark is None and read.bookmark is not None:
            return read.bookmark if is_of_log(read.bookmark, self._runtime.journal.log_id) else None
        return read.min_bookmark

    def _up_to_waiting(self, commands: list[Read]) -> list[Read]:
        """Commands up to the next that waits for a bookmark; the others come after these."""
        if self._moments.may_be_stale:
            commands = [*map(self._checked, commands)]
        at = next(
            (at for at, one in enumerate(commands) if at and self._sought(one) is not None),
            len(commands),
        )
        commands, self._held = commands[:at], commands[at:]
        return commands

    def _guarded(
        self, session: Session, commands: list[Command], texts: Container[str | None]
    ) -> Sequence[Guarded]:
        """The row policies of commands that have to be compiled. If a filter is still to be
        compiled, its combination is compiled on use."""
        return long_guarded(
            self._executor.engine.filters,
            (
                (guarded_by(session.rights, one.kind.demand, one.topic), one.filter)
                for one in commands
                if one.filter not in texts
            ),
        )

    def _pending_logons(self, commands: list[Read]) -> list[Command]:
        """Logons whose client is not identified yet. Each is executed in its turn, with the result
        of now; other commands do not wait."""
        logon_source = self._logon_source
        if logon_source is None:
            return []
        return [
            one
            for one in commands
            if isinstance(one, Command) and logon_source.authn.must_identify(one)
        ]

    async def _wait_for_bookmark(self, commands: list[Read]) -> None:
        """Wait for the bookmark of the first command; it is refused if that takes too long."""
        command, sought = commands[0], self._sought(commands[0])
        if not isinstance(command, Command) or sought is None:
            return
        try:
            wait_s = command.wait_s
            if wait_s is not None and not wait_s >= 0:
                raise ClientError(f"wait is {wait_s}; it must be a number of seconds, 0 or more")
            seq = least_bookmark(sought, self._runtime.journal.log_id)
            time_us = turn_time(sought) if self._follows else 0
            await self._runtime.bookmark_waits.reached(seq, waited_s(wait_s), time_us)
        except SowError as error:
            commands[0] = Refused(command.cid, error.with_traceback(None))

    async def _prepare(
        self,
        texts: list[str],
        guarded: Sequence[Guarded],
        logons: list[Command],
        commands: list[Read],
    ) -> None:
        """Compile filters in a thread, identify clients and wait for a bookmark; then continue."""
        try:
            await self._wait_for_bookmark(commands)
            await compile_beside(self._executor.engine.filters, texts, guarded)
            for command in logons:
                assert self._logon_source is not None
                await self._logon_source.authn.identify(command, self._logon_source.address)
        finally:
            # Else the client has disconnected meanwhile.
            if self._compiling is not None:
                self._compiling = None
                self._line_up()

    def _drop(self) -> None:
        self._queue.clear()
        self._held = []
        if self._steps is not None:
            self._steps.close()
            self._steps = None

    def close(self) -> None:
        """The client has disconnected: drop what is left."""
        self._drop()
        if self._compiling is not None:
            self._compiling.cancel()
            self._compiling = None
        self._stop_waiting()
        self._turns.remove(self)
        self._in_line = False


def _without_questions(commands: list[Read]) -> list[Read]:
    """Of a client that has gone: nobody reads answers, and no subscription outlives it."""
    return [one for one in commands if not isinstance(one, Command) or one.kind.demand != "read"]
