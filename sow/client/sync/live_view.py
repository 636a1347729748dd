"""The base of live views without asyncio; see `sow.client.live_view`."""

from types import TracebackType
from typing import Any, Self, TypeVar

from sow.client.live_view import LiveView as AsyncLiveView
from sow.client.notebooks import checked_interval, table_widget
from sow.client.sync.bridge import Each
from sow.client.sync.subscription import Subscription
from sow.client.sync.sync_wrapper import SyncWrapper, handed, mirrored, waited

View = TypeVar("View", bound=AsyncLiveView)


class LiveView(SyncWrapper[View]):
    """Records of a topic, kept current by the client's thread (`with`).

    Entering it raises the errors of the subscription. Once it has `ended`, every method that reads
    records raises the error that ended it.
    """

    @property
    def subscription(self) -> Subscription:
        """The source of the records."""
        return Subscription(self._bridge, self.awaited.subscription)

    @property
    def ended(self) -> str | None:
        """Why the view has ended; None while it is current, or reconnects."""
        return self.awaited.ended

    preview = handed(AsyncLiveView.preview)
    _repr_html_ = handed(AsyncLiveView._repr_html_)

    def widget(self, interval_s: float = 1.0) -> Any:
        """A widget for notebooks, which shows the first records and redraws them every `interval_s`
        seconds, 0.1 or more, until the view ends, and then the reason.

        Raises ClientError if anywidget is not installed (``pip install 'sow[notebook]'``).
        """
        checked_interval(interval_s)
        made = table_widget(self.preview)  # in the thread that displays it
        self.keep_drawing(made, interval_s)
        return made

    keep_drawing = waited(AsyncLiveView.keep_drawing)
    to_arrow = waited(AsyncLiveView.to_arrow)
    to_pandas = waited(AsyncLiveView.to_pandas)
    to_polars = waited(AsyncLiveView.to_polars)
    synced = waited(AsyncLiveView.synced)
    changes = mirrored(AsyncLiveView.changes, Each)
    change = waited(AsyncLiveView.change)

    def __enter__(self) -> Self:
        self._bridge.enter(self.awaited)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._bridge.leave(self.awaited)
