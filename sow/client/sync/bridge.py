"""The bridge between programs without asyncio and the client with it.

An event loop runs in a thread of its own; coroutines are handed to it and waited for, asynchronous
contexts become those of `with`, asynchronous iterators those of `for`. Nothing here knows of SOW.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Generic, Self, TypeVar

from sow.errors import ClientError

Result = TypeVar("Result")


class Bridge:
    """An event loop in a thread of its own, from here to `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, Result], timeout_s: float | None = None) -> Result:
        """What the coroutine `work` returns or raises.

        Raises TimeoutError when it takes longer than `timeout_s` seconds (None: as long as it
        takes), ClientError after `close`. Work that nobody waits for any more is cancelled.
        """
        if self._loop.is_closed():
            work.close()
            raise ClientError("the client is closed; make another one")
        limited = work if timeout_s is None else asyncio.wait_for(work, timeout_s)
        future = asyncio.run_coroutine_threadsafe(limited, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C: what nobody waits for any more must not take a message and lose it.
            future.cancel()
            raise

    def enter(self, manager: AbstractAsyncContextManager[Result]) -> Result:
        """Enter an asynchronous context; returns what it gives, raises what it raises."""
        return self.wait(_enter(manager))

    def leave(
        self, manager: AbstractAsyncContextManager[Any], error: BaseException | None = None
    ) -> bool:
        """Leave an asynchronous context, with what went wrong within; whether that is settled."""
        return bool(self.wait(_leave(manager, error)))

    @contextmanager
    def entered(self, manager: AbstractAsyncContextManager[Result]) -> Iterator[Result]:
        """An asynchronous context as one of `with`."""
        entered = self.enter(manager)
        try:
            yield entered
        except BaseException as error:
            if not self.leave(manager, error):
                raise
        else:
            self.leave(manager)

    def each(self, items: AsyncIterator[Result]) -> "Each[Result]":
        """An asynchronous iterator as one of `for`."""
        return Each(self, items)

    def close(self) -> None:
        """Stop the loop and its thread; once is enough."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be waited for any more."""
        return self._loop.is_closed()


class Each(Iterator[Result], Generic[Result]):
    """The items of an asynchronous iterator, one by one.

    An object rather than a generator: that would be over once one of its items was not waited for
    to the end, and this goes on with the next.
    """

    def __init__(self, bridge: Bridge, items: AsyncIterator[Result]) -> None:
        self._bridge = bridge
        self._items = items

    def next(self, timeout_s: float | None = None) -> Result:
        """The next item; raises StopIteration after the last, TimeoutError when none comes within
        `timeout_s` seconds (None: as long as it takes)."""
        try:
            return self._bridge.wait(_next(self._items), timeout_s)
        except StopAsyncIteration:
            raise StopIteration from None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Result:
        return self.next()


async def _enter(manager: AbstractAsyncContextManager[Result]) -> Result:
    return await manager.__aenter__()


async def _leave(
    manager: AbstractAsyncContextManager[Any], error: BaseException | None
) -> bool | None:
    kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
    return await manager.__aexit__(kind, error, traceback)


async def _next(items: AsyncIterator[Result]) -> Result:
    return await anext(items)
