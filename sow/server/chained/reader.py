"""The commands of one client of a chained server: what is carried out here, and what upstream.

Logons and heartbeats are this server's. Subscriptions that others may share are joined here; all
else passes through the session's own connection, in the order in which it came. Frames are cut into
commands, each with the bodies that belong to it, and are not read any further.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from aiohttp import hdrs, web

from sow.errors import SowError, TooLarge, UpstreamLost, invalid_options
from sow.expressions.patterns import is_pattern
from sow.protocol import replies
from sow.protocol.commands import COMMANDS, Command
from sow.protocol.publish_batching import read_frames
from sow.protocol.wire import (
    NO_LINES,
    REFUSED_MAX,
    LineSplitter,
    Refused,
    bodies_of,
    read_frame,
)
from sow.security.authentication.credentials import Credentials
from sow.server.chained.chain import Chain
from sow.server.chained.own_link import ROOM_S, Beginning, cid_of
from sow.server.chained.replacing import Replacing
from sow.server.chained.share_keys import share_key_of
from sow.server.chained.upstream import Who
from sow.server.http.authn_middleware import AS_HEADER
from sow.server.loop.runtime import ServerRuntime
from sow.server.net.command_pump import QUEUE_BYTES_MAX, LogonSource
from sow.server.net.session_writer import SessionWriter
from sow.server.net.ws_memory_accounting import MessageMemory
from sow.streaming.sessions import Session

LOCAL = ("logon", "heartbeat")
SUBSCRIBES = tuple(name for name in COMMANDS if name.endswith("subscribe") and name[0] != "u")
READ_S = 0.002
"""How long the commands of one client are passed on before others have their turn."""

Piece = tuple[dict[str, Any], bytes]
"""A command's line, read, and the command as it came, with its bodies."""


def pieces(lines: LineSplitter) -> Iterator[Piece | None]:
    """The commands of a frame; a line that is none has no fields. None while the bodies that follow
    one are being cut. What may be bodies is never taken for commands, as upstream has it."""
    while (line := lines.next()) is not None:
        if not line or line.isspace():
            continue
        head = _head(line)
        follow = bodies_of(line) if b'"n"' in line or "n" in head else 0
        if follow is None:
            # Upstream does not read the rest either, and says so if there is any.
            yield head, line + b"\n{}" if lines.leave() else line
            return
        while lines.cut_towards(follow):
            yield None
        bodies = lines.peek(follow)
        lines.skip(len(bodies))
        yield head, b"\n".join((line, *bodies))


def _head(line: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


class ChainedReader:
    """Reads and carries out the commands of one client, as `CommandReader` does for a server with
    records."""

    def __init__(
        self,
        chain: Chain,
        request: web.Request,
        runtime: ServerRuntime,
        connection: SessionWriter,
        messages: MessageMemory,
        logon_source: LogonSource,
    ) -> None:
        self._chain = chain
        self._authorization = request.headers.get(hdrs.AUTHORIZATION, "")
        self._acting = request.headers.get(AS_HEADER)
        self._runtime = runtime
        self._connection = connection
        self._messages = messages
        self._logon_source = logon_source
        self._frames: deque[bytes] = deque()
        self._lines = NO_LINES
        """The frame whose commands are carried out, and how many of its lines were none."""
        self._refused = 0
        self._bytes = 0
        self._working: asyncio.Task[None] | None = None
        self._sliced = asyncio.Event()

    def add(self, frame: bytes) -> bool:
        """Queue a frame that was read; returns whether to stop reading until there is `room`."""
        self._messages.on_read()
        self.take((frame,))
        return self.is_full

    def take(self, frames: Sequence[bytes]) -> None:
        """Queue frames."""
        self._frames.extend(frames)
        self._bytes += sum(map(len, frames))
        if self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._work())

    @property
    def is_full(self) -> bool:
        """As much is queued as may be."""
        return self._bytes > QUEUE_BYTES_MAX

    @property
    def awaits(self) -> bool:
        """Upstream has not answered yet what was passed on."""
        own = self._chain.own_of(self._connection.session)
        return own is not None and own.awaits

    async def room(self) -> None:
        """Return when the socket may be read again."""
        while self.is_full and self._working is not None:
            self._sliced.clear()
            await self._sliced.wait()

    async def done(self) -> None:
        """Return when everything has been passed on, and answered if the client is there still."""
        while self._working is not None:
            self._sliced.clear()
            await self._sliced.wait()
        await self._answered(self._connection.session)

    async def _answered(self, session: Session) -> None:
        """Return when all that was passed on is answered. A client that has gone reads no answers,
        and would have to make room for more."""
        own, connection = self._chain.own_of(session), self._connection
        while own is not None and own.awaits and not connection.is_gone:
            await asyncio.sleep(ROOM_S)

    def close(self) -> None:
        """The client has disconnected: drop what is left."""
        self._frames.clear()
        if self._working is not None:
            self._working.cancel()
            self._working = None
            self._sliced.set()

    async def _work(self) -> None:
        try:
            while self._frames:
                frame = self._frames.popleft()
                await self._read(LineSplitter(frame))
                self._bytes -= len(frame)
                self._sliced.set()
            self._messages.on_executed()
        except Exception as error:
            self._frames.clear()
            self._chain.fail(self._connection.session, error)
        finally:
            if asyncio.current_task() is self._working:
                self._working = None
            if not self._frames:
                self._bytes = 0
            self._sliced.set()

    async def _read(self, lines: LineSplitter) -> None:
        """Carry out the commands of a frame, and let others have their turns between them."""
        loop = asyncio.get_running_loop()
        self._lines, self._refused = lines, 0
        until_s = loop.time() + READ_S
        for piece in pieces(lines):
            if loop.time() >= until_s:
                await asyncio.sleep(0)
                until_s = loop.time() + READ_S
            if piece is None:
                continue
            session = self._connection.session
            if session.outbox.full:
                await self._wait_for_room(session)
            if session.ended is not None or not self._connection.owns:
                self._frames.clear()
                break
            await self._carry_out(session, *piece)

    async def _wait_for_room(self, session: Session) -> None:
        """Return once the client has read what waits for it, or is given up."""
        sessions = self._chain.executor.sessions
        while session.ended is None and session.outbox.full and self._connection.owns:
            now_us = self._runtime.now_us()
            sessions.apply_back_pressure(session, now_us)
            if session.ended is not None:
                self._connection.write(now_us)
            elif session.outbox.full:
                await asyncio.sleep(ROOM_S)

    async def _carry_out(self, session: Session, head: dict[str, Any], piece: bytes) -> None:
        """Carry out a command, unless it asks for something that nobody reads any more."""
        try:
            name = head.get("c")
            if not isinstance(name, str) or name in LOCAL or name not in COMMANDS:
                await self._carry_out_here(session, head, piece)
            elif session.connected or COMMANDS[name].demand != "read":
                self._check(session, head)
                await self._pass_on(session, head, piece)
        except SowError as error:
            self._chain.executor.refused[type(error).reason] += 1
            self._chain.reply(session, replies.failure(cid_of(head), error))

    def _check(self, session: Session, head: dict[str, Any]) -> None:
        """Raise what this server's permissions have against a command."""
        if not session.rights.is_somebody:
            session.rights.check("logon")
        if not session.rights.is_open:
            demand, topic = COMMANDS[head["c"]].demand, str(head.get("t", ""))
            if demand == "read" and (not topic or is_pattern(topic)):
                demand = "logon"
            session.rights.check(demand, topic)

    # Here.

    async def _carry_out_here(self, session: Session, head: dict[str, Any], piece: bytes) -> None:
        executor, authn = self._chain.executor, self._logon_source.authn
        if (own := self._chain.own_of(session)) is not None and head.get("c") == "heartbeat":
            own.stay()
        commands = [*read_frames([piece])]
        for read in commands:
            if isinstance(read, Refused):
                self._note_refused(read)
        for command in commands:
            if not isinstance(command, Command) or command.name != "logon":
                continue
            if authn.must_identify(command):
                await authn.identify(command, self._logon_source.address)
            await self._identify(session, command)
        steps = executor.carry_out(session, commands, self._runtime.now_us)
        for _ in steps:
            await asyncio.sleep(0)
        self._connection.follow()
        self._runtime.wake()

    def _note_refused(self, read: Refused) -> None:
        """Read no more of a frame that is full of mistakes."""
        self._refused += 1
        if self._refused == REFUSED_MAX and self._lines.leave():
            read.error.detail += (
                f"; {REFUSED_MAX} lines of this frame were refused, and the rest was not read"
            )

    async def _identify(self, session: Session, command: Command) -> None:
        """Show upstream what a logon shows before this server says that it has succeeded."""
        user, identified = session.rights.user, command.identified
        if identified is not None:
            if isinstance(identified.user, SowError):
                return  # it is about to be refused
            user = identified.user
        had = self._authorization, self._acting
        given = Credentials(command.user or "", command.password or "", command.token or "")
        if given:
            self._authorization, self._acting = given.header, None
        self._acting = command.acts_as or self._acting
        who = self._who(command.acts_as or (None if user is None else user.name))
        taken_up = self._chain.executor.sessions.named(command.session or "") or session
        if command.sequence and command.client is not None:
            # Own the name upstream.
            own = self._chain.own(taken_up, who)
            self._chain.numbers.highest[command.client] = await own.number(command.client)
        try:
            await self._chain.renew(taken_up, who)
        except UpstreamLost:
            pass  # what waits for upstream is refused there, if these are no good
        except SowError:
            self._authorization, self._acting = had
            raise

    def _who(self, user: str | None) -> Who:
        return self._chain.upstream.who(user, self._authorization, self._acting)

    # Upstream.

    async def _pass_on(self, session: Session, head: dict[str, Any], piece: bytes) -> None:
        chain, name = self._chain, head["c"]
        chain.upstream.check()
        user = session.rights.user
        who = self._who(None if user is None else user.name)
        if name == "unsubscribe":
            await self._unsubscribe(session, piece)
        elif name in SUBSCRIBES:
            (command,) = read_frame(piece)
            if isinstance(command, Refused):
                raise command.error
            await self._subscribe(session, head, command, who)
        else:
            if name == "flush":
                await chain.caught_up(session, who)
            await chain.own(session, who).pass_on(head, piece)

    async def _subscribe(
        self, session: Session, head: dict[str, Any], command: Command, who: Who
    ) -> None:
        chain, options = self._chain, command.options
        if options.pause or options.resume or options.rate is not None:
            # The session's other subscriptions wait for the end of what is being answered.
            raise invalid_options(
                "pause, resume and rate are not for chained servers; connect to the upstream "
                "server, which reads the log"
            )
        count = len(chain.executor.subscriptions.of(session))
        if count >= chain.executor.engine.configuration.limits.subscriptions_max:
            raise TooLarge(f"the session has {count} subscriptions, as many as one may have")
        literal = command.options.non_regex_topic
        wanted = share_key_of(command, not literal and is_pattern(command.topic))
        if command.options.replace and command.subscription in chain.shared_of(session):
            await self._answered(session)  # it may have published what it is to see
            await Replacing(chain, session, command, who).replace(wanted)
            return
        if wanted is not None and command.subscription is None and not command.options.replace:
            await self._answered(session)
            if await chain.follow(session, command, *wanted, who):
                return
        await chain.own(session, who).begin(head, Beginning(command))

    async def _unsubscribe(self, session: Session, piece: bytes) -> None:
        """Of shared subscriptions and own ones alike: each ends upstream with its last member."""
        (command,) = read_frame(piece)
        if isinstance(command, Refused):
            raise command.error
        steps = self._chain.executor.subscriptions.unsubscribe(session, command)
        for _ in steps:
            await asyncio.sleep(0)
        self._chain.executor.engine.output.touch(session)
        self._runtime.wake()
