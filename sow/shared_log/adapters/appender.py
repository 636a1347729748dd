"""Blocks that wait to be appended go together, one request to the engine after the other.

For engines that keep no order among requests that overlap, and whose answers are slow: what waits
while one is on its way goes with the next. Behind a block that may not be stored nothing is sent,
since it would be void.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from sow.errors import LogUnanswered, TooLarge
from sow.shared_log.adapters.ending import end_all
from sow.shared_log.protocol import BLOCK_BYTES_MAX

Waiting = tuple[bytes, "asyncio.Future[int]"]

CLOSED = "this client of the shared log was closed while it waited for an answer"


class Appender:
    """What waits to be appended; `store` appends blocks and answers their positions."""

    def __init__(
        self,
        store: Callable[[list[bytes]], Awaitable[Sequence[int]]],
        batch_bytes: int,
        batch_blocks: int,
    ) -> None:
        self._store = store
        self._batch_bytes, self._batch_blocks = batch_bytes, batch_blocks
        self._waiting: deque[Waiting] = deque()
        self._sender: asyncio.Task[None] | None = None

    async def append(self, block: bytes) -> int:
        """The position of a block, once it is stored; see `SharedLog`."""
        if len(block) > BLOCK_BYTES_MAX:
            raise TooLarge(
                f"a block of {len(block)} bytes; the shared log takes {BLOCK_BYTES_MAX} at a time"
            )
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((block, answer))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())
        return await answer

    async def close(self) -> None:
        """Wait no longer for what is on its way."""
        if self._sender is not None:
            await end_all([self._sender])

    async def _send(self) -> None:
        while self._waiting:
            batch = self._next_batch()
            try:
                positions = await self._store([block for block, _ in batch])
            except BaseException as error:
                is_closed = isinstance(error, asyncio.CancelledError)
                batch += self._waiting
                self._waiting.clear()
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(LogUnanswered(CLOSED) if is_closed else error)
                        answer.exception()  # a caller that has gone does not take it
                return
            for position, (_, answer) in zip(positions, batch, strict=True):
                if not answer.done():
                    answer.set_result(position)

    def _next_batch(self) -> list[Waiting]:
        batch = [self._waiting.popleft()]
        size = len(batch[0][0])
        while self._waiting and len(batch) < self._batch_blocks:
            size += len(self._waiting[0][0])
            if size > self._batch_bytes:
                break
            batch.append(self._waiting.popleft())
        return batch
