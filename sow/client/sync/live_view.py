"""Live views without asyncio; see `sow.client.live_view` and `sow.client.live_window`."""

from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from sow.client.live_view import Live as AsyncLive
from sow.client.live_view import LiveView as AsyncLiveView
from sow.client.live_window import LiveWindow as AsyncLiveWindow
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


class Live(LiveView[AsyncLive], Mapping[str, Any]):
    """Records by SowKey (decimal text), kept current by the client's thread (`with`).

    For a pattern of topics the key is the topic and the SowKey: ``/desk/1:4711``. An iteration is
    over the records of one moment. Entering the view raises the errors of the subscription.
    """

    def __getitem__(self, key: str) -> Any:
        return self.awaited[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy())

    def __len__(self) -> int:
        return len(self.awaited)

    def items(self) -> ItemsView[str, Any]:
        """The current records with their SowKeys."""
        return self.copy().items()

    def values(self) -> ValuesView[Any]:
        """The current records."""
        return self.copy().values()

    copy = handed(AsyncLive.copy)


class LiveWindow(LiveView[AsyncLiveWindow], Sequence[Any]):
    """Records in the requested order, kept current by the client's thread (`with`).

    An iteration is over the records of one moment. Entering the window raises the errors of the
    subscription.
    """

    @overload
    def __getitem__(self, at: int) -> Any: ...

    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...

    def __getitem__(self, at: int | slice) -> Any:
        return self.awaited[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.copy())

    def __len__(self) -> int:
        return len(self.awaited)

    @property
    def keys(self) -> list[str]:
        """The SowKeys (decimal text) of the records, in order."""
        return self.awaited.keys

    copy = handed(AsyncLiveWindow.copy)
