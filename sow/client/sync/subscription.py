"""A subscription without asyncio; see `sow.client.subscription`."""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from sow.client.messages import Message
from sow.client.subscription import Subscription as AsyncSubscription
from sow.client.sync.sync_wrapper import SyncWrapper, waited


class Subscription(SyncWrapper[AsyncSubscription], Iterator[Message]):
    """Messages of one topic, in order; an iterator, and a context manager that ends it.

    It opens when first read or entered, and raises the errors of the server then. `next` and
    `batch` can wait for a limited time, and be called again after that.
    """

    @property
    def name(self) -> str:
        """The server's name of the subscription, once it is open."""
        return self.awaited.name

    @property
    def bookmark(self) -> str:
        """The bookmark of the newest update received."""
        return self.awaited.bookmark

    @property
    def resumed(self) -> int:
        """How often the session was resumed without a gap."""
        return self.awaited.resumed

    @property
    def gaps(self) -> int:
        """How often it could not be resumed, and the subscription started again."""
        return self.awaited.gaps

    open = waited(AsyncSubscription.open)
    batch = waited(AsyncSubscription.batch)
    close = waited(AsyncSubscription.close)

    def next(self, timeout_s: float | None = None) -> Message:
        """The next message; raises StopIteration when the subscription has ended, and what `batch`
        raises."""
        try:
            return self._bridge.wait(self.awaited.next(timeout_s))
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        return self.next()
