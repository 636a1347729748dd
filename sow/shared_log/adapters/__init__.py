"""Shared logs on engines that others operate: one adapter each, and what its settings may lose.

    nats, nats_settings    a stream of NATS JetStream
    postgres               a table of PostgreSQL with synchronous standbys
    kafka                  a topic of Kafka
    s3                     numbered objects of S3, or of what is like it

An adapter does what `sow.shared_log` says and nothing more. Its library is an extra of its own; a
server without a shared log needs none of them, so it is imported by name (`adapter`).

An `Appender` is for engines that keep no order among requests that overlap, and whose answers are
slow: blocks that wait while one request is on its way go together with the next. Behind a block
that may not be stored nothing is sent, since it would be void.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from types import ModuleType

from sow.core.async_tasks import end_all
from sow.errors import ConfigError, LogUnanswered, TooLarge
from sow.shared_log import BLOCK_BYTES_MAX

ENGINES = ("nats", "postgres", "kafka", "s3")


def adapter(engine: str) -> ModuleType:
    """The module of an engine; raises ConfigError where its library is not installed."""
    try:
        return import_module(f"{__name__}.{engine}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("sow."):
            raise
        raise ConfigError(
            f"<Log><Engine>{engine}</Engine> needs {error.name}, which is not installed here: "
            f"pip install 'sow[{engine}]', or leave <Log> out for a log on this machine"
        ) from None


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
