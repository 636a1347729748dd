"""A live view without asyncio; see `sow.client.live`."""

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from types import TracebackType
from typing import Any, Self

from sow.client.live import Change
from sow.client.live import Live as AsyncLive
from sow.client.notebooks import ShownTable, checked_interval, table_widget
from sow.client.sync.bridge import Bridge
from sow.client.sync.subscription import Subscription


class Live(Mapping[str, Any]):
    """Records by SowKey (decimal text), kept current by the client's thread (`with`).

    Over a pattern of topics the key is the topic's name and the SowKey: ``/desk/1:4711``. Whoever
    goes through the records goes through those of one moment. Entering the view raises what the
    subscription is refused with.
    """

    def __init__(self, bridge: Bridge, live: AsyncLive) -> None:
        self._bridge = bridge
        self.live = live
        """The one with asyncio, which does the work."""

    def __getitem__(self, key: str) -> Any:
        return self.live[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy())

    def __len__(self) -> int:
        return len(self.live)

    def items(self) -> ItemsView[str, Any]:
        """The records of this moment with their SowKeys."""
        return self.copy().items()

    def values(self) -> ValuesView[Any]:
        """The records of this moment."""
        return self.copy().values()

    def copy(self) -> dict[str, Any]:
        """The records as they stand, in a dictionary that does not change."""
        return self.live.copy()

    def _repr_html_(self) -> str:
        """What notebooks show: the first records as they stand."""
        return self.live._repr_html_()

    def preview(self) -> ShownTable:
        """The first records as they stand, as a table of bounded texts."""
        return self.live.preview()

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
        self._bridge.wait(self.live.keep_drawing(widget, interval_s))

    @property
    def subscription(self) -> Subscription:
        """What the records come from."""
        return Subscription(self._bridge, self.live.subscription)

    def change(self, timeout_s: float | None = None) -> Change:
        """The next change of a record; waits for `timeout_s` seconds, or as long as it takes.

        Raises TimeoutError when there is none in time, as often as one likes: what comes later is
        given later. Raises what ended the view, or Disconnected when it was closed.
        """
        return self._bridge.wait(self.live.change(timeout_s))

    def changes(self) -> Iterator[Change]:
        """Each change of a record (`for`), from what was last given of it to what holds now.

        So a slow reader gets fewer changes and never wrong ones. Ends with the view; raises what
        ended it if that was an error.
        """
        return self._bridge.each(self.live.changes())

    def synced(self) -> None:
        """Return when the snapshot is complete, also the one after a gap; raises what ended it."""
        self._bridge.wait(self.live.synced())

    def to_arrow(self) -> Any:
        """The records that the view holds as a pyarrow Table: a column for the SowKey, ``sow_key``,
        and those that the server has for the topic, of the same types, which it is asked for."""
        return self._bridge.wait(self.live.to_arrow())

    def to_pandas(self) -> Any:
        """The same as a pandas DataFrame; raises ClientError where there is no pandas."""
        return self._bridge.wait(self.live.to_pandas())

    def to_polars(self) -> Any:
        """The same as a polars DataFrame; raises ClientError where there is no polars."""
        return self._bridge.wait(self.live.to_polars())

    def __enter__(self) -> Self:
        self._bridge.enter(self.live)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._bridge.leave(self.live)
