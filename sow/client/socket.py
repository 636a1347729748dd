"""One WebSocket to a server: sends frames and receives lines, which have a type (`Line`).

`Sockets` opens them, at the first of the client's addresses that answers. `Retry` says when to open
another one: with exponential backoff, jitter and a deadline. Sleep and randomness are parameters,
so that tests need neither. Lines are parsed and not interpreted; bodies are decoded on demand.
"""

import asyncio
import base64
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
import msgspec
import orjson

from sow.client.connector import ClientAuth, first_answer
from sow.client.errors import (
    ClosedByServer,
    Disconnected,
    Unreachable,
    failure,
    is_passing,
    reported,
)
from sow.client.tables import fields_html
from sow.core.addresses import Addresses
from sow.core.lossless_numbers import LosslessNumber
from sow.errors import AnotherLog, NotPrimary, SowError

_NOTHING = msgspec.Raw(b"")
LONG_NUMBER = b"0" * 17
"""A number that no double represents has so many characters, with digits and point as 0."""
AS_ZEROS = bytes.maketrans(b"0123456789.", b"0" * 11)


def _exact(text: str) -> float:
    found = LosslessNumber(text)
    return float(found) if found.is_double else found


PLAIN_DECODER = msgspec.json.Decoder()
EXACT_DECODER = msgspec.json.Decoder(float_hook=_exact)


def exactly(text: bytes) -> Any:
    """Decoded JSON; a number that no double represents becomes a float that keeps its text."""
    decoder = EXACT_DECODER if LONG_NUMBER in text.translate(AS_ZEROS) else PLAIN_DECODER
    return decoder.decode(text)


class Message(msgspec.Struct, omit_defaults=True):
    """One line; `c` is its kind, which determines the other fields.

    ``sow`` is a record of the snapshot, ``p`` an update (with `delta` one to merge into the
    record), ``oof`` a record that left focus (with `reason`), ``group_begin`` and ``group_end``
    enclose the snapshot, ``turn_end`` ends a turn of a live window, ``unsubscribed`` means that the
    server ended the subscription (`reason`, and `detail` in a sentence). `k` is the SowKey, `bm`
    the bookmark, `d` the body, `at` the position in a window. An update with `edit` replaces the
    event `seq` of a series, which is not the newest one of its record if it is `past`.

    ``gap`` comes from this client: the connection and its session were lost. If `exact`, the
    following messages make up for it (a new snapshot, or the log from the last bookmark on);
    otherwise updates may be missing. ``heartbeat`` has the number of `conflated` and `dropped`
    messages. ``notice`` is of a chained server: its upstream is lost, or back (`reason`).
    """

    c: str
    s: str = ""
    t: str = ""
    k: str | None = None
    reason: str | None = None
    detail: str | None = None
    d: msgspec.Raw = _NOTHING
    enc: str | None = None
    delta: bool = False
    bm: str | None = None
    ts: str | None = None
    exact: bool = True
    at: int | None = None
    edit: bool = False
    seq: int | None = None
    past: bool = False
    conflated: int = 0
    dropped: int = 0

    @property
    def body(self) -> bytes:
        """The record as it is stored: JSON text, or the bytes or text of another type.

        Empty for a message without a record.
        """
        text = bytes(self.d)
        if self.enc == "base64":
            return base64.b64decode(msgspec.json.decode(text, type=str))
        if text.startswith(b'"'):
            return msgspec.json.decode(text, type=str).encode()
        return text

    def _repr_html_(self) -> str:
        """What notebooks show: the fields that it has."""
        fields = {name: getattr(self, name) for name in Message.__struct_fields__}
        absent = Message("")
        found = {name: value for name, value in fields.items() if value != getattr(absent, name)}
        return fields_html("Message", found | {"d": self.document() if self.d else None})

    def document(self) -> Any:
        """The record as Python objects: a dict for JSON, str or bytes for other types.

        Raises msgspec.DecodeError for a message without a record.
        """
        if self.enc == "base64":
            return self.body
        return msgspec.json.decode(self.d)

    def exact_document(self) -> Any:
        """The same without rounding: a number that no double represents is a float that keeps its
        text (`sow.core.lossless_numbers.LosslessNumber`)."""
        if self.enc == "base64":
            return self.body
        return exactly(bytes(self.d))


class Line(Message, omit_defaults=True):
    """Any line: a message, an ack, or the close of a connection."""

    cid: str | None = None
    a: str | None = None
    status: str | None = None
    index: int | None = None
    field: str | None = None
    position: int | None = None
    expected: str | int | None = None
    sequence: int | None = None
    duplicate: bool = False
    applied: int | None = None
    session: str = ""
    log: str = ""
    version: str = ""
    resumed: bool | None = None
    primary: str = ""
    deleted: int | None = None
    deliveries: int = 0
    acknowledged: int | None = None
    cancelled: int | None = None
    matches: int | None = None
    returned: int | None = None
    ignored: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether it is a failure ack."""
        return self.status == "failure"

    def error(self) -> SowError:
        """The error of a failure ack."""
        names = ("reason", "detail", "index", "field", "position", "expected", "primary")
        return failure({name: getattr(self, name) for name in names})


LINE_DECODER = msgspec.json.Decoder(Line)


def read_lines(frame: bytes | str) -> list[Line]:
    """The lines of one frame, in order; raises msgspec.DecodeError for an invalid line."""
    return LINE_DECODER.decode_lines(frame)


Found = TypeVar("Found")

HEARTBEAT_S = 30.0
"""The interval of pings: half the minute after which the server closes a silent connection."""
CLOSE_S = 1.0
"""How long the close of a refused connection may take."""
GIVEN_UP = 1008
"""The close code for a session that the server has ended."""


class Socket:
    """A session on the server, open from `connect` to `close`.

    `session` is its name, and `log_id` that of the server's log. `resumed` says whether it is the
    requested session; if not, `reason` says why not. `sequence` is the highest number of its name,
    if it has logged on for one.
    """

    def __init__(self, url: str, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.url = url
        self.session = ""
        self.log_id = ""
        self.resumed = False
        self.reason = ""
        self.sequence = 0
        self._socket = socket
        self._numbers = itertools.count(1)

    @classmethod
    async def connect(
        cls,
        http: aiohttp.ClientSession,
        url: str,
        name: str,
        session: str | None = None,
        seen: int | None = None,
        headers: Mapping[str, str] | None = None,
        sequence: bool | None = None,
    ) -> "Socket":
        """Log on to the server at `url` as the client `name`, with the credentials in `headers`.

        With `session`, resume it after the `seen` lines that were read of it; with `sequence`, own
        the name, to number messages. Raises Unreachable,
        Disconnected, and the error of a refused logon.
        """
        with reported(url):
            raw = await http.ws_connect(
                f"{url}/v1/ws", max_msg_size=0, heartbeat=HEARTBEAT_S, headers=headers
            )
        socket = cls(url, raw)
        try:
            fields = {"client": name, "session": session, "seen": seen, "sequence": sequence}
            await socket._log_on(fields)
        except BaseException:
            # Refused or cancelled: the caller has no socket to close.
            await socket.give_up()
            raise
        return socket

    async def give_up(self) -> None:
        """Close it, however long the server takes to."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._socket.close()

    async def _log_on(self, fields: Mapping[str, object]) -> None:
        await self.command("logon", **fields)
        # An ack that names the session is alone in its frame, so that both sides count lines from
        # the same point. What a chained server says of its upstream before it is not counted.
        ack = None
        while ack is None:
            ack = next((line for line in await self.receive() if line.c != "notice"), None)
        if ack.failed:
            raise ack.error()
        self.session, self.log_id = ack.session, ack.log
        self.resumed, self.reason = bool(ack.resumed), ack.reason or ""
        self.sequence = ack.sequence or 0

    def next_cid(self) -> str:
        """An id for a command, unique on this socket."""
        return str(next(self._numbers))

    async def send(self, frame: bytes) -> None:
        """Send one frame; waits while the socket is full. Raises Disconnected."""
        with reported(self.url):
            await self._socket.send_bytes(frame)

    async def command(self, name: str, **fields: object) -> str:
        """Send the command `name` with the fields that are not None; returns its cid.

        Raises Disconnected.
        """
        cid = self.next_cid()
        given = {key: value for key, value in fields.items() if value is not None}
        await self.send(orjson.dumps({"c": name, "cid": cid, **given}))
        return cid

    async def receive(self) -> Sequence[Line]:
        """The lines of the next frame; raises Disconnected if the connection has ended, and
        ClosedByServer if the session has."""
        with reported(self.url):
            frame = await self._socket.receive()
        if frame.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
            lines = read_lines(frame.data)
            for line in lines:
                if line.c == "close":
                    await self.give_up()
                    raise closed(self.url, line.reason or "", by_server=True)
            return lines
        why = str(frame.extra or frame.data or "no reason given")
        raise closed(self.url, why, by_server=frame.data == GIVEN_UP)

    async def close(self) -> None:
        """End the session."""
        await self._socket.close()


def closed(url: str, why: str, by_server: bool) -> Disconnected:
    """The error of a connection that ended; with `by_server` the session has ended too."""
    kind = ClosedByServer if by_server else Disconnected
    return kind(f"the server at {url} closed the connection: {why}", reason=why or None)


def framed(fields: Mapping[str, object], bodies: Sequence[bytes]) -> bytes:
    """A command and its bodies as one frame."""
    head = orjson.dumps({key: value for key, value in fields.items() if value is not None})
    return b"%b\n%b" % (head, b"\n".join(bodies))


LOGON_S = 10.0
"""How long a server may take for a logon where there is another address: one that is stopped takes
connections, and never answers."""


class Sockets:
    """Opens sockets as the client `name`, at the first of its addresses that answers; `http` is the
    client's session of aiohttp."""

    def __init__(
        self,
        addresses: Addresses,
        http: Callable[[], aiohttp.ClientSession],
        access: ClientAuth,
        name: str,
    ) -> None:
        self.addresses = addresses
        self._http = http
        self._access = access
        self._name = name

    async def connect(self, session: str | None = None, seen: int | None = None) -> Socket:
        """A socket for reads: resumes a `session`, which only the server that has it can."""
        return await self._first(self._name, False, session=session, seen=seen)

    async def for_writes(self, owned: str | None = None) -> Socket:
        """A socket to the server for writes, as far as it is known; with `owned` it owns this name,
        to number messages."""
        return await self._first(owned or self._name, True, sequence=owned and True)

    async def after(self, error: SowError, url: str, owned: str | None = None) -> Socket:
        """The same after an error of the server at `url`, which may name another one."""
        without = []
        if isinstance(error, NotPrimary) and error.primary:
            self.addresses.lead_to(error.primary, url)
            without = [url]
        name = owned or self._name
        return await self._first(name, True, without, sequence=owned and True)

    async def connect_as(self, name: str) -> Socket:
        """A socket that owns the name of a publisher."""
        return await self.for_writes(name)

    async def _first(
        self, name: str, for_writes: bool, without: Sequence[str] = (), **more: Any
    ) -> Socket:
        http = self._http()
        limit_s = LOGON_S if self.addresses.are_several else None

        async def attempt(url: str) -> Socket:
            try:
                async with asyncio.timeout(limit_s):
                    headers = self._access.headers()
                    socket = await Socket.connect(http, url, name, headers=headers, **more)
            except TimeoutError:
                raise Unreachable(f"{url} did not answer within {LOGON_S:g} seconds") from None
            try:
                self.addresses.check_log(url, socket.log_id)
            except AnotherLog:
                await socket.close()
                raise
            return socket

        return await first_answer(self.addresses, attempt, for_writes, without=without)


FACTOR = 2
"""Factor from one wait to the next: a minute is a dozen attempts, not six hundred."""
JITTER = 0.5
"""The random part of a wait: spreads many clients, while each waits for at least half of it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Waits of `first_s`, doubling up to `longest_s`, for `give_up_s` in all; 0 does not retry.

    All are seconds. Each wait is shortened by up to half at random, so that many clients do not
    reconnect at one moment. The server keeps a session for a minute by default
    (`ReconnectTimeout`), so a later attempt seldom resumes it. `sleep` waits for so many seconds,
    `chance` returns a number from 0 to 1.
    """

    first_s: float = 0.1
    longest_s: float = 5.0
    give_up_s: float = 60.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random

    async def attempts(self) -> AsyncIterator[float]:
        """Yields before each attempt, after its wait, the seconds waited in all; ends when it is
        time to give up."""
        wait_s, waited_s = self.first_s, 0.0
        while waited_s < self.give_up_s:
            pause_s = wait_s * (1 - JITTER * self.chance())
            await self.sleep(pause_s)
            waited_s += pause_s
            yield waited_s
            wait_s = min(self.longest_s, wait_s * FACTOR)

    async def insist(self, attempt: Callable[[], Awaitable[Found]]) -> Found:
        """What `attempt` of something with numbers returns, made again while what it raises is
        passing; raises the last error."""
        waits = self.attempts()
        while True:
            try:
                return await attempt()
            except SowError as error:
                if not is_passing(error) or await anext(waits, None) is None:
                    raise
