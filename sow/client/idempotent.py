"""A publisher whose messages are stored exactly once, whatever dies: a message is published when it
is in its store, and is sent until the server has it.

The server keeps the highest number of each name (docs/clients.md). At each logon it says which;
what the store has beyond that is sent, in order, as frames with numbers, some of them
unacknowledged. A frame that is refused leaves the store, and what was sent behind it is refused
too, as its numbers do not follow; so when all answers have come, the rest is sent again with the
numbers that it has now.

Errors reach the next call. Those of the connection, and a server that is short of something, cost
nothing: the messages stay, and are sent again. Those of the name (`SequenceLost`, another log,
another connection) stop the publisher until `restart`, and nothing is dropped.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from sow.client.encode import Document, encode_all
from sow.client.errors import (
    LATER,
    NAME_REPLACED,
    TAKEN_ELSEWHERE,
    ClosedByServer,
    Disconnected,
    SequenceLost,
    Unreachable,
)
from sow.client.publish_store import PublishStore, StoredFrame
from sow.client.publisher import WINDOW_FRAMES, DrainedAtEnd
from sow.client.socket import Line, Retry, Socket, framed
from sow.client.tables import ShownState
from sow.errors import AnotherLog, BadMessage, ClientError, SowError, StoreError, shown

FRAME_LENGTH = 1000
"""Messages of a frame, as of every publish of this client."""
WAITING_BYTES_MAX = 256 * 1024**2
"""What may wait for a server that is away, in memory: then `publish` waits too."""


class InFlight(NamedTuple):
    """A frame that waits for its ack, and how many numbers it uses."""

    cid: str
    numbers: int


class AlreadyDone:
    """What may be awaited, and is done."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


class IdempotentPublisher(ShownState, DrainedAtEnd):
    """Publishes as one name, until `close` or the end of `async with`, which waits for all acks.

    `connect` logs on with the name, at whichever server takes it. `store` is what waits. With
    `adopt` it may be that of another log. `noted` gets the bookmark of each ack.
    """

    _shown = ("name", "waiting")

    def __init__(
        self,
        connect: Callable[[str], Awaitable[Socket]],
        retry: Retry,
        store: PublishStore,
        adopt: bool = False,
        noted: Callable[[str], None] = lambda _bookmark: None,
    ) -> None:
        self.name = store.client
        self._connect = connect
        self._retry = retry
        self._store = store
        self._adopt = adopt
        self._noted = noted
        self._renumbers = False
        """The next logon numbers what waits."""
        self._errors: deque[SowError] = deque()
        self._fatal: SowError | None = None
        self._flight: deque[InFlight] = deque()
        self._rewinds = False
        """A frame was refused: nothing is sent until all answers have come."""
        self._moved = asyncio.Event()
        self._to_send = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """How many messages the server has not acknowledged."""
        return self._store.count

    # Publishing.

    async def publish(
        self,
        topic: str,
        messages: Document,
        *,
        key: str | None = None,
        expires_s: float | None = None,
        nan_as_null: bool = False,
    ) -> None:
        """Publish one message or many; returns once they are in the store.

        Arguments are those of `Client.publish`. Raises what speaks against an earlier message
        first, and then does nothing; BadMessage for one that cannot be encoded.
        """
        fields = {"k": key, "x": expires_s}
        await self._add("publish", topic, encode_all(messages, nan_as_null), fields)

    async def delta_publish(
        self,
        topic: str,
        messages: Document,
        *,
        key: str | None = None,
        expires_s: float | None = None,
        nan_as_null: bool = False,
    ) -> None:
        """The same, with each message merged into its record."""
        fields = {"k": key, "x": expires_s}
        await self._add("delta_publish", topic, encode_all(messages, nan_as_null), fields)

    async def delete(
        self,
        topic: str,
        messages: Document | None = None,
        *,
        filter: str | None = None,
        keys: Sequence[str] | None = None,
    ) -> None:
        """Delete the records that the key fields of `messages` name, or that match a `filter`, or
        of these `keys`; in order with what is published. Returns once it is in the store."""
        if [messages, filter, keys].count(None) != 2:
            raise ClientError("a delete takes exactly one of messages, filter and keys")
        bodies = [] if messages is None else encode_all(messages)
        fields = {"filter": filter, "keys": None if keys is None else ",".join(keys)}
        await self._add("sow_delete", topic, bodies, fields)

    async def _add(
        self, command: str, topic: str, bodies: list[bytes], fields: Mapping[str, object]
    ) -> None:
        for index, body in enumerate(bodies):
            if b"\n" in body:
                raise BadMessage(
                    f"message {index} has a line break, which ends a body; remove it", index=index
                )
        self._check()
        while self._store.size_bytes > WAITING_BYTES_MAX:
            await self._wait()
        given = {name: value for name, value in fields.items() if value is not None}
        places = range(0, len(bodies), FRAME_LENGTH)
        is_delete = command == "sow_delete"
        parts = [bodies] if is_delete else [bodies[at : at + FRAME_LENGTH] for at in places]
        self._store.add(*(StoredFrame(command, topic, some, given) for some in parts))
        self._start()
        self._to_send.set()

    async def drain(self) -> None:
        """Wait until the server has everything; raises what speaks against a message, or
        Disconnected if no server has answered for as long as `retry` says."""
        self._check()
        while self._store.waiting:
            await self._wait()
        self._check()

    async def _wait(self) -> None:
        self._start()
        self._moved.clear()
        await self._moved.wait()
        self._check()

    def restart(self) -> "AlreadyDone":
        """Go on after an error of the name. After a SequenceLost what waits is numbered again,
        behind what the server has, so that some of it may be stored twice. Need not be awaited."""
        self._fatal, self._renumbers = None, isinstance(self._fatal, SequenceLost)
        self._errors.clear()
        if self._store.waiting:
            self._start()
        return AlreadyDone()

    async def close(self) -> None:
        """Close the connection without waiting for acks; what waits in a file stays there."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._store.close()
        self._moved.set()

    def __await__(self) -> Generator[Any, None, Self]:
        """Itself: ``await client.idempotent_publisher(name)`` is the same as without await."""
        yield from asyncio.sleep(0).__await__()
        return self

    def _check(self) -> None:
        if self._is_closed:
            raise ClientError("this publisher is closed; make another one")
        if self._errors:
            raise self._errors.popleft()
        if self._fatal is not None:
            raise self._fatal.afresh()

    # The connection.

    def _start(self) -> None:
        """Send what waits, unless something does already."""
        if self._fatal is None and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        """Connect and send, again after each broken connection, until there is a reason to stop."""
        try:
            while True:
                socket = await self._connected()
                try:
                    self._take_up(socket)
                    await self._exchange(socket)
                except ClosedByServer as error:
                    if error.reason == NAME_REPLACED:
                        raise ClientError(
                            f"another publisher has logged on as {shown(self.name)}: one name is "
                            "for one publisher; restart takes it back",
                            reason=NAME_REPLACED,
                        ) from error
                    await self._retry.sleep(self._retry.first_s)
                except Disconnected:
                    await self._retry.sleep(self._retry.first_s)
                finally:
                    self._flight.clear()
                    self._rewinds = False
                    with contextlib.suppress(SowError):
                        await socket.close()
        except (Disconnected, Unreachable) as error:
            self._errors.append(error)  # the next call tries again
        except SowError as error:
            self._fatal = error
        except OSError as error:
            # The disk of the store. What it could not note is known again at the next logon.
            self._errors.append(
                StoreError(f"the store of {shown(self.name)} cannot be written: {error}")
            )
        finally:
            self._moved.set()

    async def _connected(self) -> Socket:
        """A connection that owns the name; raises the error of the last attempt."""
        try:
            return await self._retry.insist(lambda: self._connect(self.name))
        except SowError as error:
            if error.reason in LATER | TAKEN_ELSEWHERE:
                raise Unreachable(error.detail) from None
            raise

    def _take_up(self, socket: Socket) -> None:
        """Go on with what the store has and the server has not."""
        store, highest = self._store, socket.sequence
        if store.log_id and store.log_id != socket.log_id and not self._adopt:
            raise AnotherLog(
                f"the store of {shown(self.name)} belongs to the log {store.log_id}, and this "
                f"server has {socket.log_id}: its numbers mean nothing here. If its messages are "
                "for this server, say so (adopt=True)"
            )
        if store.base is None or self._renumbers:
            store.number(socket.log_id, highest + 1)
            self._renumbers = False
            return
        if not store.base - 1 <= highest < store.base + store.count:
            raise SequenceLost(self.name, self._held, highest)
        store.number(socket.log_id, store.base)
        store.applied(highest + 1 - store.base)
        self._moved.set()

    @property
    def _held(self) -> int:
        """The highest number in the store."""
        return (self._store.base or 1) + self._store.count - 1

    async def _exchange(self, socket: Socket) -> None:
        reader = asyncio.get_running_loop().create_task(self._read(socket))
        try:
            while True:
                self._to_send.clear()
                await self._send(socket)
                waiter = asyncio.get_running_loop().create_task(self._to_send.wait())
                try:
                    await asyncio.wait((reader, waiter), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiter.cancel()
                if reader.done():
                    reader.result()
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, SowError):
                await reader

    async def _send(self, socket: Socket) -> None:
        """Send what waits, up to a window."""
        while not self._rewinds and len(self._flight) < WINDOW_FRAMES:
            if len(self._flight) >= len(self._store.waiting):
                return
            entry = self._store.waiting[len(self._flight)]
            assert self._store.base is not None
            seq = self._store.base + sum(one.numbers for one in self._flight)
            cid = socket.next_cid()
            head = {"c": entry.command, "seq": seq, "t": entry.topic, "cid": cid, "a": "persisted"}
            head |= {"n": len(entry.bodies)} if entry.bodies else {}
            self._flight.append(InFlight(cid, entry.count))
            await socket.send(framed({**head, **entry.fields}, entry.bodies))

    async def _read(self, socket: Socket) -> None:
        while True:
            for line in await socket.receive():
                if line.c == "ack" and self._flight and line.cid == self._flight[0].cid:
                    self._on_ack(line)
            self._moved.set()
            self._to_send.set()

    def _on_ack(self, line: Line) -> None:
        """The answer to the first frame; answers come in order."""
        frame = self._flight.popleft()
        if not line.failed:
            self._store.applied(frame.numbers)
            self._noted(line.bm or "")
        elif not self._rewinds:
            if line.reason == "sequence gap" and isinstance(line.expected, int):
                raise SequenceLost(self.name, self._held, line.expected - 1)
            self._refuse(line.error())
            self._rewinds = True
        if not self._flight:
            self._rewinds = False

    def _refuse(self, error: SowError) -> None:
        """The first frame is refused: it leaves the store, or only its bad message."""
        if error.reason in TAKEN_ELSEWHERE:
            raise Disconnected(error.detail, reason=error.reason)
        if error.reason in LATER:
            if not any(one.reason == error.reason for one in self._errors):
                self._errors.append(error)
                self._moved.set()
            raise Disconnected(error.detail, reason=error.reason)
        self._store.drop(0, error.index if isinstance(error, BadMessage) else None)
        self._errors.append(error)
