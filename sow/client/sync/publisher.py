"""The fast way in, without asyncio; see `sow.client.publisher`."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from sow.client.bodies import Document
from sow.client.publisher import Publisher as AsyncPublisher
from sow.client.sync.bridge import Bridge


class Publisher:
    """Publishes to one topic over its own connection, until `close` or the end of `with`.

    At the end of `with` everything is waited for, unless that ends with an error.
    """

    def __init__(self, bridge: Bridge, publisher: AsyncPublisher) -> None:
        self._bridge = bridge
        self._publisher = publisher

    @property
    def topic(self) -> str:
        """The topic that it publishes to."""
        return self._publisher.topic

    @property
    def sent(self) -> int:
        """Messages handed to the socket."""
        return self._publisher.sent

    @property
    def published(self) -> int:
        """Messages that the server has made durable."""
        return self._publisher.published

    @property
    def bookmark(self) -> str:
        """The bookmark of the newest acknowledged message."""
        return self._publisher.bookmark

    @property
    def is_open(self) -> bool:
        """Nothing has failed and the connection has not ended, as far as is known."""
        return self._publisher.is_open

    def send(
        self,
        bodies: Sequence[Document],
        *,
        key: str | None = None,
        expires_s: float | None = None,
        delta: bool = False,
    ) -> None:
        """Send bodies as one frame, waiting while the window is full.

        `key` and `expires_s` (seconds) are those of `Client.publish`; with `delta` each body is
        merged into its record. A frame is stored completely or not at all, and `send` does not
        wait for that.

        Raises BadMessage for what has no body or has a line break in it, before it is sent; and
        what an earlier frame failed with, after which nothing more is sent. A BadMessage's index
        counts all messages sent on this publisher.
        """
        self._bridge.wait(self._publisher.send(bodies, key=key, expires_s=expires_s, delta=delta))

    def delete(self, bodies: Sequence[Document]) -> None:
        """Delete the records that the key fields of these bodies name, in order with `send`.

        Raises what `send` raises. Records that are not there are no error.
        """
        self._bridge.wait(self._publisher.delete(bodies))

    def drain(self) -> None:
        """Wait until everything sent is durable; raises what any frame failed with, or
        Disconnected if the connection ended before all were acknowledged."""
        self._bridge.wait(self._publisher.drain())

    def settle(self) -> None:
        """Wait until every frame has been answered, whatever the answers are."""
        self._bridge.wait(self._publisher.settle())

    def close(self) -> None:
        """Give the connection back; does not wait for acks."""
        self._bridge.wait(self._publisher.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._bridge.leave(self._publisher, error)
