"""A live window without asyncio; see `sow.client.live_window`."""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self, overload

from sow.client.live import Change
from sow.client.live_window import LiveWindow as AsyncLiveWindow
from sow.client.notebooks import ShownTable, checked_interval, table_widget
from sow.client.sync.bridge import Bridge
from sow.client.sync.subscription import Subscription


class LiveWindow(Sequence[Any]):
    """Records in the order that was asked for, kept current by the client's thread (`with`).

    Whoever goes through a `copy` goes through the records of one moment. Entering the window raises
    what the subscription is refused with.
    """

    def __init__(self, bridge: Bridge, window: AsyncLiveWindow) -> None:
        self._bridge = bridge
        self.window = window
        """The one with asyncio, which does the work."""

    @overload
    def __getitem__(self, at: int) -> Any: ...

    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...

    def __getitem__(self, at: int | slice) -> Any:
        return self.window[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.copy())

    def __len__(self) -> int:
        return len(self.window)

    @property
    def keys(self) -> list[str]:
        """The SowKeys (decimal text) of the records, in order."""
        return self.window.keys

    def copy(self) -> list[Any]:
        """The records as they stand, in a list that does not change."""
        return self.window.copy()

    def _repr_html_(self) -> str:
        """What notebooks show: the first records as they stand."""
        return self.window._repr_html_()

    def preview(self) -> ShownTable:
        """The first records as they stand, as a table of bounded texts."""
        return self.window.preview()

    def widget(self, interval_s: float = 1.0) -> Any:
        """A widget for notebooks, which shows the first records and draws them again every
        `interval_s` seconds, 0.1 or more, until the view is closed.

        Raises ClientError where anywidget is not installed (``pip install 'sow[notebook]'``).
        """
        checked_interval(interval_s)
        made = table_widget(self.preview)
        self.keep_drawing(made, interval_s)
        return made

    def keep_drawing(self, widget: Any, interval_s: float) -> None:
        """Refresh a widget in the client's thread for as long as it is open."""
        self._bridge.wait(self.window.keep_drawing(widget, interval_s))

    @property
    def subscription(self) -> Subscription:
        """What the records come from."""
        return Subscription(self._bridge, self.window.subscription)

    def change(self, timeout_s: float | None = None) -> Change:
        """The next change of a record; waits for `timeout_s` seconds, or as long as it takes.

        Raises TimeoutError when there is none in time, as often as one likes. Raises what ended the
        window, or Disconnected when it was closed.
        """
        return self._bridge.wait(self.window.change(timeout_s))

    def changes(self) -> Iterator[Change]:
        """Each change of a record (`for`): it has entered, changed or left."""
        return self._bridge.each(self.window.changes())

    def synced(self) -> None:
        """Return when the snapshot is complete, also the one after a gap; raises what ended it."""
        self._bridge.wait(self.window.synced())

    def to_arrow(self) -> Any:
        """The records as a pyarrow Table, in order: a column for each field and one for the
        SowKey."""
        return self._bridge.wait(self.window.to_arrow())

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame; raises ClientError where there is no pandas."""
        return self._bridge.wait(self.window.to_pandas())

    def to_polars(self) -> Any:
        """The same as a polars DataFrame; raises ClientError where there is no polars."""
        return self._bridge.wait(self.window.to_polars())

    def __enter__(self) -> Self:
        self._bridge.enter(self.window)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._bridge.leave(self.window)
