"""A subscription without asyncio; see `sow.client.subscription`."""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

from sow.client.messages import Message
from sow.client.subscription import Subscription as AsyncSubscription
from sow.client.sync.bridge import Bridge


class Subscription(Iterator[Message]):
    """Messages of one topic, in order; an iterator, and a context manager that ends it.

    It opens when first read or entered, and raises then what the server refuses it with. `next`
    and `batch` may wait for a limited time, and be called again after that as often as one likes.
    """

    def __init__(self, bridge: Bridge, subscription: AsyncSubscription) -> None:
        self._bridge = bridge
        self._messages = bridge.each(subscription)
        self.subscription = subscription
        """The one with asyncio, which does the work."""

    @property
    def name(self) -> str:
        """What the server calls the subscription, once it is open."""
        return self.subscription.name

    @property
    def bookmark(self) -> str:
        """That of the newest update that has arrived."""
        return self.subscription.bookmark

    @property
    def resumed(self) -> int:
        """How often the session was taken up after its connection had broken, without a gap."""
        return self.subscription.resumed

    @property
    def gaps(self) -> int:
        """How often it could not be, and the subscription began anew."""
        return self.subscription.gaps

    def open(self) -> None:
        """Subscribe, unless that was done; raises what the server refuses it with (BadFilter,
        UnknownTopic, ClientError), Unreachable and Disconnected."""
        self._bridge.wait(self.subscription.open())

    def batch(self, timeout_s: float | None = None) -> Sequence[Message]:
        """Every message that has arrived, at least one, waiting for it if need be; none when the
        subscription has ended.

        Raises TimeoutError when none comes within `timeout_s` seconds (None: as long as it takes),
        Disconnected when the connection broke and could not be made again in the time of `Retry`,
        ClosedByServer when the server has given the session up, and what `open` raises.
        """
        return self._bridge.wait(self.subscription.batch(), timeout_s)

    def next(self, timeout_s: float | None = None) -> Message:
        """The next message; raises StopIteration when the subscription has ended, and what `batch`
        raises."""
        return self._messages.next(timeout_s)

    def close(self) -> None:
        """End the subscription and its connection; what has arrived and was not read is lost."""
        self._bridge.wait(self.subscription.close())

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
