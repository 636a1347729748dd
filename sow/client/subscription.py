"""A subscription: a connection of its own from which typed messages are read.

One connection each, so that a slow reader holds up, and is bounded by, nothing but itself: while
messages are not read the socket fills, and the server treats the session as the slow one it is.
"""

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from sow.client.messages import Line, Message
from sow.client.socket import Socket
from sow.errors import SowError

OUTSIDE = frozenset({"ack", "heartbeat"})


class Subscription:
    """Messages of one topic, in order; an async iterator, and a context manager that ends it.

    It opens when first read or entered, and raises then what the server refuses it with.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Socket]],
        command: str,
        fields: Mapping[str, object],
    ) -> None:
        self._connect = connect
        self._command = command
        self._fields = fields
        self._socket: Socket | None = None
        self._ready: deque[Message] = deque()
        self._ended = False
        self.name = ""
        """What the server calls the subscription, once it is open."""

    async def open(self) -> None:
        """Subscribe; raises SowError with the server's reason and detail."""
        if self._socket is not None or self._ended:
            return
        socket = self._socket = await self._connect()
        cid = await socket.command(self._command, **self._fields)
        while not self.name:
            for line in await socket.receive():
                if line.c == "ack" and line.cid == cid:
                    self._accept(line)
                elif line.c not in OUTSIDE:
                    self._ready.append(line)

    def _accept(self, ack: Line) -> None:
        if ack.failed:
            raise ack.error()
        self.name = ack.s

    async def batch(self) -> Sequence[Message]:
        """Every message that has arrived, at least one; none when the subscription has ended."""
        await self.open()
        while not self._ready and not self._ended:
            assert self._socket is not None
            lines = await self._socket.receive()
            self._ready.extend(line for line in lines if line.c not in OUTSIDE)
        found = list(self._ready)
        self._ready.clear()
        self._ended = self._ended or any(message.c == "unsubscribed" for message in found)
        return found

    async def close(self) -> None:
        """End the subscription and its connection."""
        self._ended = True
        socket, self._socket = self._socket, None
        if socket is not None:
            with contextlib.suppress(SowError):
                # Said, so that the server does not keep the session for us to come back.
                await socket.command("unsubscribe", s="all")
            await socket.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if not self._ready:
            messages = await self.batch()
            if not messages:
                raise StopAsyncIteration
            self._ready.extend(messages)
        return self._ready.popleft()

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.close()
