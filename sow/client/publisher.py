"""Publishing many messages: a pipelined publisher, and a batch that can be repeated.

A frame of the publisher is stored atomically. Up to `window` frames may be unacknowledged; `send`
waits beyond that. After a failure nothing more is sent, but frames in flight may have been stored:
`published` counts exactly what was acknowledged. What a follower refuses goes to the primary that
it names, in the same order. Where messages have numbers it goes on at whichever server takes them:
what is not acknowledged is sent again, and what is there already is not stored twice.

A repeatable batch is applied atomically and exactly once, however often its connection breaks.
Chunks are staged under the name of a writer and the number of the batch, and committed at the end
(docs/http.md, "Staged writes"). Each request is idempotent: a chunk replaces itself, and a commit
that was applied is reported as done. So a writer that does not know whether its batch was applied
sends it again under the same name and number.
"""

import asyncio
import contextlib
import secrets
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import orjson

from sow.client.encode import Document, encode_all
from sow.client.errors import NAME_REPLACED, TAKEN_ELSEWHERE, Disconnected, is_passing
from sow.client.http import Http
from sow.client.socket import Line, Retry, Socket, framed
from sow.client.tables import ShownState, arrow
from sow.core.media_types import ARROW, JSON
from sow.errors import AnotherLog, BadMessage, NotPrimary, SowError

WINDOW_FRAMES = 64
"""Unacknowledged frames: with the usual hundred messages in each, enough to hide an fsync and a
round trip at any rate that the server can store."""


class Sent(NamedTuple):
    """A frame that waits for its ack: `first` is the index of its first message overall, and `seq`
    its number. A frame that was refused by a follower is sent again, so it is kept."""

    cid: str
    first: int
    messages: int
    frame: bytes
    seq: int | None


Move = Callable[[SowError, str], Awaitable[Socket]]
"""Connects to the server that takes writes after an error, which is of the server at an address."""
MOVES_MAX = 5
"""So often in a row: two servers that name each other are no reason to go on for ever."""


async def nowhere(error: SowError, _url: str) -> Socket:
    """For a publisher that has one connection and no other."""
    raise error


class DrainedAtEnd(ABC):
    """The end of `async with` waits for all acks, unless its block raised an error, and closes."""

    @abstractmethod
    async def drain(self) -> None:
        """Wait until everything is durable."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection without waiting for acks."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                await self.drain()
        finally:
            await self.close()


class Publisher(ShownState, DrainedAtEnd):
    """Publishes to one topic over its own connection, until `close` or the end of `async with`.

    `window` is how many frames may be unacknowledged. `seq` is the number of the first message, if
    they are numbered. `move` connects to the primary, and where they are numbered again and again,
    as `retry` says. `noted` gets the bookmark of each ack.
    """

    _shown = ("topic", "sent", "published", "duplicates", "bookmark", "seq", "is_open")

    def __init__(
        self,
        socket: Socket,
        topic: str,
        window: int = WINDOW_FRAMES,
        seq: int | None = None,
        move: Move = nowhere,
        noted: Callable[[str], None] = lambda _bookmark: None,
        retry: Retry = Retry(give_up_s=0),  # noqa: B008
    ) -> None:
        self.topic = topic
        self.sent = 0
        """Messages written to the socket."""
        self.published = 0
        """Messages that the server has made durable."""
        self.duplicates = 0
        """Those of them that the server had before this publisher began, by their numbers."""
        self.bookmark = ""
        """The bookmark of the newest acknowledged message."""
        self.seq = seq
        """The number of the next message, if they are numbered."""
        self._socket = socket
        self._window = window
        self._waiting: deque[Sent] = deque()
        self._move = move
        self._noted = noted
        self._retry = retry
        self._had_seq = socket.sequence
        """The highest number that the server had at first."""
        self._refusal: SowError | None = None
        self._refused: deque[Sent] = deque()
        """Frames to be sent to the primary, in order: a follower has refused them, or is gone."""
        self._moves = 0
        """Since anything was stored."""
        self._failure: SowError | None = None
        self._moved = asyncio.Event()
        self._waits: AsyncIterator[float]
        self._reader = asyncio.get_running_loop().create_task(self._read())

    async def send(
        self,
        bodies: Sequence[Document],
        *,
        key: str | None = None,
        expires_s: float | None = None,
        delta: bool = False,
        nan_as_null: bool = False,
    ) -> None:
        """Send bodies as one frame, waiting while the window is full.

        Bytes are sent as they are; documents are encoded as JSON, with `key`, `expires_s` (seconds)
        and `nan_as_null` as in `Client.publish`. With `delta` each is merged into its record. A
        frame is stored completely or not at all, and `send` does not wait for that.

        Raises BadMessage for a body that cannot be encoded or has a line break, before it is sent;
        and the error of an earlier frame, after which nothing more is sent. The index of a
        BadMessage counts all messages sent on this publisher.
        """
        command = "delta_publish" if delta else "publish"
        await self._send(command, self._encoded(bodies, nan_as_null), {"k": key, "x": expires_s})

    async def delete(self, bodies: Sequence[Document]) -> None:
        """Delete the records that the key fields of these bodies name, in order with `send`.

        Raises what `send` raises. Missing records are ignored.
        """
        await self._send("sow_delete", self._encoded(bodies, False), {})

    async def _send(
        self, command: str, bodies: Sequence[bytes], more: Mapping[str, object]
    ) -> None:
        if not bodies:
            return
        cid = self._socket.next_cid()
        head = {"c": command, "t": self.topic, "n": len(bodies), "cid": cid, "a": "persisted"}
        if self.seq is not None:
            # In front, where the server looks for it.
            head = {"c": command, "seq": self.seq, **head}
        frame = framed({**head, **more}, bodies)
        if frame.count(b"\n") != len(bodies):
            index = next(at for at, body in enumerate(bodies) if b"\n" in body)
            raise BadMessage(
                "a body in a frame must not have a line break; remove it, or use Client.publish",
                index=self.sent + index,
            )
        await self._until_below(self._window)
        sent = Sent(cid, self.sent, len(bodies), frame, self.seq)
        if self.seq is not None:
            self.seq += 1 if command == "sow_delete" else len(bodies)
        self.sent += len(bodies)
        if self._refusal is not None:
            self._refused.append(sent)  # behind those that are on their way to the primary
            return
        self._waiting.append(sent)
        try:
            await self._socket.send(frame)
        except Disconnected:
            if self.seq is None:
                raise  # else it is sent again

    def _encoded(self, messages: Sequence[Document], nan_as_null: bool) -> list[bytes]:
        try:
            return encode_all(messages, nan_as_null)
        except BadMessage as error:
            error.index += self.sent
            raise

    async def drain(self) -> None:
        """Wait until everything sent is durable; raises the error of a frame, or Disconnected if
        the connection ended before all were acknowledged."""
        await self._until_below(1)

    async def _until_below(self, count: int) -> None:
        while len(self._waiting) + len(self._refused) >= count and not self._reader.done():
            self._moved.clear()
            await self._moved.wait()
        if self._failure is not None:
            raise self._failure

    async def _read(self) -> None:
        try:
            while True:
                try:
                    for line in await self._socket.receive():
                        self._on_line(line)
                    if self._refusal is not None and not self._waiting:
                        await self._go_to_primary(self._refusal)
                except SowError as error:
                    await self._begin_again(error)
                self._moved.set()
        except SowError as error:
            self._failure = self._failure or error
        finally:
            self._moved.set()

    def _on_line(self, line: Line) -> None:
        if line.c != "ack" or line.cid is None or not self._waiting:
            return
        # The server answers a session's commands in order.
        frame = self._waiting.popleft()
        if line.cid != frame.cid:
            self._failure = self._failure or SowError(f"ack {line.cid} came before {frame.cid}")
        elif line.failed:
            error = line.error()
            if isinstance(error, BadMessage):
                error.index += frame.first
            if self._goes_on_after(error):
                self._waiting.appendleft(frame)
                raise error
            if isinstance(error, NotPrimary) and self._failure is None:
                self._refusal = error
                self._refused.append(frame)
            else:
                self._failure = self._failure or error
        else:
            self._moves = 0
            self.published += frame.messages
            is_there = line.duplicate or line.applied is not None
            if is_there and (frame.seq or 0) <= self._had_seq:
                self.duplicates += frame.messages - (line.applied or 0)
            self.bookmark = line.bm or self.bookmark
            self._noted(self.bookmark)

    async def _go_to_primary(self, refusal: SowError) -> None:
        """Send what was refused to the server that takes it; nothing of it was applied."""
        self._moves += 1
        if self._moves > MOVES_MAX:
            raise refusal
        await self._go_on_at(await self._move(refusal, self._socket.url))

    def _goes_on_after(self, error: SowError) -> bool:
        """Whether what is not acknowledged can be sent again: it has numbers."""
        if self.seq is None or self._failure is not None or error.reason == NAME_REPLACED:
            return False
        return isinstance(error, Disconnected) or error.reason in TAKEN_ELSEWHERE

    async def _begin_again(self, error: SowError) -> None:
        """Send what is not acknowledged once more, at whichever server takes it, or raise."""
        if not self._goes_on_after(error):
            raise error
        self._refusal = error
        while True:
            self._refused.extendleft(reversed(self._waiting))
            self._waiting.clear()
            if not self._moves:
                self._waits = self._retry.attempts()
            elif await anext(self._waits, None) is None:
                raise error
            self._moves += 1
            try:
                await self._go_on_at(await self._move(error, self._socket.url))
                return
            except SowError as found:
                if not is_passing(found):
                    raise
                error = found

    async def _go_on_at(self, socket: Socket) -> None:
        """Send to another server what was refused, in the order in which it was given."""
        before, self._socket = self._socket, socket
        await before.close()
        if self.seq is not None and socket.log_id != before.log_id:
            raise AnotherLog(
                f"{socket.url} has the log {socket.log_id}, and what was published before went to "
                f"{before.log_id}: numbers of one mean nothing in the other"
            )
        while self._refused:
            # More may come meanwhile.
            sent = self._refused.popleft()
            self._waiting.append(sent)
            await socket.send(sent.frame)
        self._refusal = None

    @property
    def is_open(self) -> bool:
        """Whether no frame has failed and the connection has not ended, as far as is known."""
        return self._failure is None and not self._reader.done()

    async def settle(self) -> None:
        """Wait until every frame has an ack, success or failure."""
        while (self._waiting or self._refused) and not self._reader.done():
            self._moved.clear()
            await self._moved.wait()

    async def close(self) -> None:
        """Close the connection without waiting for acks."""
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        await self._socket.close()


CHUNK_BYTES = 4 * 1024**2
"""Of a request: far below the server's default limit of 64 MB, and enough to hide a round trip."""
AWAY = 503
"""The status of errors that can be retried: no server answers, or it is not ready."""

DROPPED = "not staged"
"""The reason of a chunk whose batch was dropped while it was written."""


class RepeatableBatch:
    """Messages for `topic`, as the batch number `epoch` of `writer`; `delta` merges them into their
    records. `retry` says how long to wait for a server that does not answer."""

    def __init__(
        self,
        http: Callable[[], Http],
        retry: Retry,
        topic: str,
        writer: str,
        epoch: int,
        *,
        delta: bool,
    ) -> None:
        self._http = http
        self._retry = retry
        self._topic = topic
        self._path = f"/v1/writes/{quote(writer, safe='')}/{epoch}"
        self._op = "delta" if delta else "publish"
        # Unique, as chunks of an earlier process may still be staged.
        self._attempt = secrets.token_hex(8)
        self._parts: list[dict[str, object]] = []
        """What was staged. Each request is a part of its own, since the server bounds a part, and
        the batch may have any size."""
        self._rows = 0
        self._waiting: list[bytes] = []
        self._bytes = 0

    async def add(self, bodies: Sequence[bytes]) -> None:
        """Stage messages, many in one request; raises BadMessage with the index of the first bad
        one in the batch, and the errors that the server reports."""
        for body in bodies:
            self._waiting.append(body)
            self._bytes += len(body)
            if self._bytes >= CHUNK_BYTES:
                await self._send()

    async def commit(self) -> str:
        """Apply the batch, unless it was applied already; returns a bookmark once it is durable."""
        if self._waiting:
            await self._send()
        body = {"topic": self._topic, "parts": self._parts}
        answer = await self._requested(f"{self._path}/commit", {}, orjson.dumps(body), JSON)
        return str(answer["bookmark"])

    async def forget(self) -> None:
        """Discard what was staged, if the server answers; it expires anyway."""
        with contextlib.suppress(SowError):
            await self._http().json("DELETE", self._path, {"topic": self._topic})

    async def _send(self) -> None:
        part = {"part": len(self._parts), "attempt": self._attempt}
        requested = {"topic": self._topic, **part, "chunk": 0}
        try:
            await self._requested(self._path, requested, _stream(self._waiting, self._op), ARROW)
        except BadMessage as error:
            error.index += self._rows
            raise
        except SowError as error:
            if error.reason != DROPPED:
                raise
            # An earlier attempt was applied meanwhile, and all chunks of the batch were dropped:
            # the commit returns that it was applied, or else what is missing.
        self._parts.append({**part, "chunks": 1, "rows": len(self._waiting)})
        self._rows += len(self._waiting)
        self._waiting, self._bytes = [], 0

    async def _requested(
        self, path: str, requested: dict[str, object], body: bytes, kind: str
    ) -> Any:
        """The answer to an idempotent request, which is retried while no server answers."""

        async def send() -> Any:
            return await self._http().json("POST", path, requested, body=body, content_type=kind)

        try:
            return await send()
        except SowError as error:
            if error.status != AWAY:
                raise
            away = error
        async for _ in self._retry.attempts():
            try:
                return await send()
            except SowError as error:
                if error.status != AWAY:
                    raise
        raise away


def _stream(bodies: Sequence[bytes], op: str) -> bytes:
    pa = arrow()
    columns = {"value": pa.array(bodies, pa.binary()), "op": pa.array([op] * len(bodies))}
    batch = pa.RecordBatch.from_pydict(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())
