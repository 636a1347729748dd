"""The publisher without asyncio; see `sow.client.publisher`."""

from types import TracebackType
from typing import Self

from sow.client.publisher import Publisher as AsyncPublisher
from sow.client.sync.sync_wrapper import SyncWrapper, waited


class Publisher(SyncWrapper[AsyncPublisher]):
    """Publishes to one topic over its own connection, until `close` or the end of `with`.

    The end of `with` waits for all acks, unless its block raised an error.
    """

    @property
    def topic(self) -> str:
        """The topic that it publishes to."""
        return self.awaited.topic

    @property
    def sent(self) -> int:
        """Messages written to the socket."""
        return self.awaited.sent

    @property
    def published(self) -> int:
        """Messages that the server has made durable."""
        return self.awaited.published

    @property
    def bookmark(self) -> str:
        """The bookmark of the newest acknowledged message."""
        return self.awaited.bookmark

    @property
    def is_open(self) -> bool:
        """Whether no frame has failed and the connection has not ended, as far as is known."""
        return self.awaited.is_open

    send = waited(AsyncPublisher.send)
    delete = waited(AsyncPublisher.delete)
    drain = waited(AsyncPublisher.drain)
    settle = waited(AsyncPublisher.settle)
    close = waited(AsyncPublisher.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._bridge.leave(self.awaited, error)
