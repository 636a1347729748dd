"""What one WebSocket's client sends, from its frames to the steps of the executor.

Commands are carried out a little in each turn (`sow.server.loop.scheduler`), so that no frame
delays others for longer than a step takes. Meanwhile the socket is not read, and TCP slows the
client; one whose queue is full of answers has to read some before more is carried out for it.
"""

import asyncio
from collections.abc import Container, Sequence
from typing import NamedTuple

from sow.core.cooperative import Task
from sow.protocol.commands import Command
from sow.protocol.publish_batching import Read
from sow.server.http.authn_middleware import RequestAuthenticator
from sow.server.loop.filter_compile_pool import (
    Guarded,
    compile_beside,
    guarded_by,
    long_among,
    long_guarded,
)
from sow.server.loop.runtime import ServerRuntime
from sow.server.net.receive_queue import ReceiveQueue
from sow.server.net.session_writer import SessionWriter
from sow.server.net.ws_memory_accounting import MessageMemory
from sow.sessions.commands.executor import Executor
from sow.streaming.sessions import Session

INBOX_BYTES_MAX = 256 * 1024
"""So much is taken in before what came first is carried out: what one read of a socket gives."""
FULL_PAUSE_S = 0.02
"""How long to wait for a client that has not read its answers before looking again: short beside
the time in which it could notice, long beside the cost of a look."""


class Callers(NamedTuple):
    """Who finds out who logs on, from an address."""

    authn: RequestAuthenticator
    address: str


class CommandReader:
    """What one client has sent and is not carried out yet.

    It is carried out by `executor` for the session of `connection`, which is written to by it;
    `messages` is told what was read and what was carried out.
    """

    name = "commands of a WebSocket"

    def __init__(
        self,
        driver: ServerRuntime,
        executor: Executor,
        connection: SessionWriter,
        messages: MessageMemory,
        callers: "Callers | None" = None,
    ) -> None:
        self._driver = driver
        self._executor = executor
        self._connection = connection
        self._messages = messages
        self._callers = callers
        self._loop = asyncio.get_running_loop()
        self._inbox = ReceiveQueue()
        self._steps: Task[None] | None = None
        self._turns = driver.turns
        self._in_line = False
        self._pause: asyncio.TimerHandle | None = None
        self._turned: asyncio.Future[None] | None = None
        self._compiling: asyncio.Task[None] | None = None

    def add(self, frame: bytes) -> bool:
        """A frame has come, to be carried out with what has come with it; whether no more should be
        read of the socket until there is `room`."""
        self._messages.take()
        self._inbox.add(frame)
        if not self._busy:
            self._line_up()
        return self._inbox.bytes > INBOX_BYTES_MAX

    def _line_up(self) -> None:
        self._pause, self._in_line = None, True
        self._turns.add(self)

    @property
    def _busy(self) -> bool:
        return self._in_line or self._pause is not None or self._compiling is not None

    async def room(self) -> None:
        """Return when the socket may be read again."""
        while self._inbox.bytes > INBOX_BYTES_MAX:
            await self._turn_taken()

    async def done(self) -> None:
        """Return when everything has been carried out, or never will be."""
        while self._busy:
            await self._turn_taken()

    async def _turn_taken(self) -> None:
        self._turned = self._loop.create_future()
        await self._turned

    def go_on(self, until_s: float) -> bool:
        """Carry out commands until `until_s` by the loop's time; whether there are more."""
        self._in_line = False
        try:
            self._in_line = self._go_on(until_s)
            return self._in_line
        finally:
            if self._turned is not None and not self._turned.done():
                self._turned.set_result(None)

    def _go_on(self, until_s: float) -> bool:
        connection, session = self._connection, self._connection.session
        if session.ended is not None or not connection.owns:
            self._drop()
            return False
        if session.outbox.full:
            self._executor.sessions.apply_back_pressure(session, self._driver.now_us())
            if session.ended is not None:
                connection.write()
            self._pause = self._loop.call_later(FULL_PAUSE_S, self._line_up)
            return False
        more = self._carry_out(until_s) and self._compiling is None
        connection.follow()
        return more

    def _carry_out(self, until_s: float) -> bool:
        """Take steps until `until_s`; whether there is more to do."""
        while True:
            if self._steps is None:
                commands = self._inbox.take()
                if not commands and self._inbox.bytes:
                    if self._loop.time() >= until_s:
                        return True
                    continue
                if not commands:
                    self._messages.carried_out()
                    return False
                session, now_us = self._connection.session, self._driver.now_us
                if not self._executor.publish_at_once(session, commands, now_us()):
                    self._steps = self._executor.carry_out(session, commands, now_us)
                    if self._begin_to_prepare(session, commands):
                        return True
            for _ in self._steps or ():
                if self._loop.time() >= until_s:
                    return True
            self._steps = None
            # The rest is for the session that a logon may have taken up.
            self._connection.follow()
            if self._loop.time() >= until_s:
                return True

    def _begin_to_prepare(self, session: Session, commands: list[Read]) -> bool:
        """Whether something takes long to compile and is not at hand, or has to be found out: that
        is begun."""
        filters = self._executor.engine.filters
        singly = [command for command in commands if isinstance(command, Command)]
        texts = long_among(filters, (command.filter for command in singly))
        guarded = [] if session.rights.is_open else self._guarded(session, singly, texts)
        logons = self._asking(commands)
        if not (texts or guarded or logons):
            return False
        self._compiling = self._loop.create_task(self._prepare(texts, guarded, logons))
        return True

    def _guarded(
        self, session: Session, commands: list[Command], texts: Container[str | None]
    ) -> Sequence[Guarded]:
        """What the client may see or write of what it asks for, where that is to be compiled. With
        a filter that is yet to be compiled, that is found out when it is asked for."""
        return long_guarded(
            self._executor.engine.filters,
            (
                (guarded_by(session.rights, one.kind.demand, one.topic), one.filter)
                for one in commands
                if one.filter not in texts
            ),
        )

    def _asking(self, commands: list[Read]) -> list[Command]:
        """Logons of which it is not known who sends them. Each is carried out in its turn, by what
        is found out now; others do not wait."""
        callers = self._callers
        if callers is None:
            return []
        return [one for one in commands if isinstance(one, Command) and callers.authn.asks_for(one)]

    async def _prepare(
        self, texts: list[str], guarded: Sequence[Guarded], logons: list[Command]
    ) -> None:
        """Make filters in a thread, and find out who logs on; then go on with who asks for it."""
        try:
            await compile_beside(self._executor.engine.filters, texts, guarded)
            for command in logons:
                assert self._callers is not None
                await self._callers.authn.identify(command, self._callers.address)
        finally:
            self._compiling = None
            self._line_up()

    def _drop(self) -> None:
        self._inbox.clear()
        if self._steps is not None:
            self._steps.close()
            self._steps = None

    def close(self) -> None:
        """The client has gone: forget what is left."""
        self._drop()
        if self._compiling is not None:
            self._compiling.cancel()
        if self._pause is not None:
            self._pause.cancel()
        self._turns.remove(self)
        self._pause, self._in_line = None, False
