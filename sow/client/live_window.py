"""A live window: the records of a stretch of an ordered topic, as a list that stays in order.

It is a live view (`sow.client.live`) whose records also have places. What is seen is the window as
it was at the end of a turn of the server's: half a turn, in which what has left has not been made
up for yet, is never seen.
"""

from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self, overload

from sow.client.live import Change, Document, Live, LiveChanges
from sow.client.messages import Message
from sow.client.notebooks import ShownTable, checked_interval, shown_table, table_widget
from sow.client.subscription import Subscription


class PlacedRecords(Live):
    """A live view that knows the places of its records; `shown` are their SowKeys in order, as of
    the end of the last turn, and `documents` the records."""

    def __init__(
        self,
        subscription: Subscription,
        topic: str,
        columns: Callable[[str], Awaitable[Any]],
    ) -> None:
        super().__init__(subscription, topic, columns)
        self.shown: list[str] = []
        self.documents: list[Document] = []
        self._order: list[str] = []

    async def to_arrow(self) -> Any:
        """The records in order; otherwise as of any live view."""
        return await self._table(dict(zip(self.shown, self.documents, strict=True)))

    def _hear(self, message: Message) -> None:
        super()._hear(message)
        if message.c == "group_begin":
            self._order = []
        elif message.c in ("sow", "p", "oof"):
            key = message.k or ""
            if key in self._order:
                self._order.remove(key)
            if message.c != "oof":
                self._order.insert(message.at or 0, key)
        elif message.c in ("group_end", "turn_end"):
            self.shown = self._order.copy()
            self.documents = [self[key] for key in self.shown]


class LiveWindow(Sequence[Document]):
    """Records in the order that was asked for, current while the window is open (`async with`).

    ``window[0]`` is the first one, `keys` are their SowKeys. Entering it raises what the
    subscription is refused with. Documents are those of `Message.document`; they are the window's
    own and not to be changed. `columns` asks the server for the schema of a topic's tables.
    """

    def __init__(
        self,
        subscription: Subscription,
        topic: str,
        columns: Callable[[str], Awaitable[Any]],
    ) -> None:
        self._topic = topic
        self._live = PlacedRecords(subscription, topic, columns)

    @property
    def subscription(self) -> Subscription:
        """What the records come from."""
        return self._live.subscription

    # The list.

    @overload
    def __getitem__(self, at: int) -> Document: ...

    @overload
    def __getitem__(self, at: slice) -> list[Document]: ...

    def __getitem__(self, at: int | slice) -> Document:
        return self._live.documents[at]

    def __len__(self) -> int:
        return len(self._live.documents)

    @property
    def keys(self) -> list[str]:
        """The SowKeys (decimal text) of the records, in order."""
        return self._live.shown.copy()

    def copy(self) -> list[Document]:
        """The records as they stand, in a list that does not change."""
        return self._live.documents.copy()

    def _repr_html_(self) -> str:
        """What notebooks show: the first records as they stand, in order."""
        return self.preview().html()

    def preview(self) -> ShownTable:
        """The first records as they stand, in order, as a table of bounded texts."""
        documents = self.copy()
        return shown_table(self._topic, self.keys, documents, len(documents))

    async def widget(self, interval_s: float = 1.0) -> Any:
        """A widget for notebooks, as that of a live view."""
        checked_interval(interval_s)
        made = table_widget(self.preview)
        await self._live.keep_drawing(made, interval_s)
        return made

    async def keep_drawing(self, widget: Any, interval_s: float) -> None:
        """Refresh a widget on the running loop for as long as the window is open."""
        await self._live.keep_drawing(widget, interval_s)

    async def to_arrow(self) -> Any:
        """The records as a pyarrow Table, in order: a column for the SowKey, ``sow_key``, and those
        that the server has for the topic, of the same types, which it is asked for."""
        return await self._live.to_arrow()

    async def to_pandas(self) -> Any:
        """The same as a pandas DataFrame; raises ClientError where there is no pandas."""
        return await self._live.to_pandas()

    async def to_polars(self) -> Any:
        """The same as a polars DataFrame; raises ClientError where there is no polars."""
        return await self._live.to_polars()

    # Following.

    async def synced(self) -> None:
        """Return when the snapshot is complete, also the one after a gap; raises what ended it."""
        await self._live.synced()

    def changes(self) -> LiveChanges:
        """Each change of a record (`async for`): it has entered, changed or left. From what was
        last given of it to what holds now, as of a live view."""
        return self._live.changes()

    async def change(self, timeout_s: float | None = None) -> Change:
        """The next change of a record; waits for `timeout_s` seconds, or as long as it takes.

        Raises TimeoutError when there is none in time, as often as one likes. Raises what ended the
        window, or Disconnected when it was closed.
        """
        return await self._live.change(timeout_s)

    async def __aenter__(self) -> Self:
        await self._live.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._live.__aexit__(kind, error, traceback)
