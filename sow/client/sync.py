"""The client without asyncio: the same methods, each of which returns when it is done.

One event loop in a thread does the work; what is called here waits for it. There is no second
implementation: every method is that of `sow.client.Client`, carried over by one bridge.
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from sow.client import client as asynchronous
from sow.client.client import URL_DEFAULT
from sow.client.live import Change
from sow.client.live import Live as AsyncLive
from sow.client.messages import Message
from sow.client.retry import Retry
from sow.client.subscription import Subscription as AsyncSubscription

Result = TypeVar("Result")

__all__ = ["Client", "Live", "Subscription"]


class Bridge:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, Result], timeout_s: float | None = None) -> Result:
        """What a coroutine returns or raises; TimeoutError when it takes longer."""
        limited = work if timeout_s is None else asyncio.wait_for(work, timeout_s)
        return asyncio.run_coroutine_threadsafe(limited, self._loop).result()

    def close(self) -> None:
        """Stop the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Client:
    """One server, until `close` or the end of `with`; methods as of `sow.client.Client`."""

    def __init__(
        self, url: str = URL_DEFAULT, *, name: str = "sow.client", retry: Retry | None = None
    ) -> None:
        self._client = asynchronous.Client(url, name=name, retry=retry)
        self._bridge = Bridge()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every connection."""
        self._bridge.wait(self._client.close())
        self._bridge.close()

    def __getattr__(self, name: str) -> Any:
        # publish, delta_publish, query, delete, explain, topics …: whatever is awaited there.
        method = getattr(self._client, name)

        def call(*arguments: Any, **named: Any) -> Any:
            return self._bridge.wait(method(*arguments, **named))

        return call

    def subscribe(self, topic: str, **focus: Any) -> "Subscription":
        """Updates from now on, or from a bookmark on."""
        return Subscription(self._bridge, self._client.subscribe(topic, **focus))

    def sow_and_subscribe(self, topic: str, **focus: Any) -> "Subscription":
        """The records as they stand, then their updates."""
        return Subscription(self._bridge, self._client.sow_and_subscribe(topic, **focus))

    def live(self, topic: str, **focus: Any) -> "Live":
        """The records of a topic as a mapping that keeps itself current (`with`)."""
        return Live(self._bridge, self._client.live(topic, **focus))


class Subscription:
    """Messages one by one; `next(timeout_s)` raises TimeoutError when none comes in time."""

    def __init__(self, bridge: Bridge, subscription: AsyncSubscription) -> None:
        self._bridge = bridge
        self.subscription = subscription

    def __enter__(self) -> Self:
        self._bridge.wait(self.subscription.open())
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._bridge.wait(self.subscription.close())

    def next(self, timeout_s: float | None = None) -> Message:
        """The next message; raises StopIteration when the subscription has ended."""
        try:
            return self._bridge.wait(self._next(), timeout_s)
        except StopAsyncIteration:
            raise StopIteration from None

    async def _next(self) -> Message:
        return await anext(self.subscription)

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        return self.next()


class Live(Mapping[str, Any]):
    """Records by SowKey, kept current by the client's thread."""

    def __init__(self, bridge: Bridge, live: AsyncLive) -> None:
        self._bridge = bridge
        self.live = live
        self._changes: Any = None

    def __getitem__(self, key: str) -> Any:
        return self.live[key]

    def __iter__(self) -> Iterator[str]:
        # A copy: the client's thread goes on while somebody iterates.
        return iter(list(self.live))

    def __len__(self) -> int:
        return len(self.live)

    def change(self, timeout_s: float | None = None) -> Change:
        """The next change of a record; raises TimeoutError when there is none in time."""
        return self._bridge.wait(self._next_change(), timeout_s)

    async def _next_change(self) -> Change:
        if self._changes is None:
            self._changes = self.live.changes()
        change: Change = await anext(self._changes)
        return change

    def to_arrow(self) -> Any:
        """The records as a pyarrow Table."""
        return self.live.to_arrow()

    def to_pandas(self) -> Any:
        """The records as a pandas DataFrame."""
        return self.live.to_pandas()

    def __enter__(self) -> Self:
        self._bridge.wait(self.live.__aenter__())
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._bridge.wait(self.live.__aexit__(None, None, None))
