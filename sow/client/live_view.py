"""Live views: a view follows a topic, reports changes, makes tables, and displays itself.

Snapshot, updates, deltas and removals are folded into a dictionary from SowKey to document. After a
gap the new snapshot replaces the old content at once, when it is complete: a partial state is never
visible. A slow reader of the changes gets fewer of them, each from the state that it last saw to
the current one. `Live` exposes the records as a mapping, `LiveWindow` as an ordered list: a range
of an ordered topic as of the end of a turn of the server, so that a partial turn, in which a record
has left and its replacement has not come, is never visible.

Reading a view that has ended raises the error that ended it; otherwise its records would look like
those of a quiet topic. While the subscription reconnects, the last records can be read.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, Self, TypeVar, overload

from sow.client.errors import ClosedByServer, Disconnected
from sow.client.requests import Interval, Paths
from sow.client.socket import Message
from sow.client.subscription import Subscription
from sow.client.tables import (
    Chosen,
    KeptTable,
    ShownTable,
    checked_interval,
    faceted_table,
    fields_html,
    refreshing,
    shown_nothing,
    shown_table,
    table_widget,
    to_pandas,
    to_polars,
)
from sow.core.delta import merged
from sow.errors import ClientError, shown

Document = Any
CLOSED = "it was closed"
"""The reason of a view that ended without an error."""
NOT_OPEN = "not open: `with` opens it"
"""What a view is before; without records it would read as a topic that has none."""


class Change(NamedTuple):
    """A change of one record: without `old` it entered, without `new` it left.

    `key` is as in the live view, `old` and `new` are documents.
    """

    key: str
    old: Document | None
    new: Document | None

    def _repr_html_(self) -> str:
        """What notebooks show: both records."""
        return fields_html("Change", self._asdict())


class LiveChanges:
    """The changes of a live view, one by one.

    An object rather than a generator: a generator ends when one of its `anext` calls is cancelled,
    as `asyncio.wait_for` does at its timeout; this goes on.
    """

    def __init__(self, take: Callable[[], Awaitable[Change | None]]) -> None:
        self._take = take

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        change = await self._take()
        if change is None:
            raise StopAsyncIteration
        return change


class LiveView:
    """Records of a topic, current while the view is open (`async with`).

    Entering it raises the errors of the subscription. Once it has `ended`, every method that reads
    records raises the error that ended it. Documents are those of `Message.document`; they belong
    to the view and must not be changed. `columns` requests the schema of a topic's tables.
    """

    def __init__(
        self,
        subscription: Subscription,
        topic: str,
        columns: Callable[[str], Awaitable[Any]],
    ) -> None:
        self.subscription = subscription
        """The source of the records."""
        self.bookmark = ""
        """The bookmark that the records are as of, with the name of its log."""
        self._topic = topic
        self._columns = columns
        self._topics: dict[str, None] = {}
        """The topics that had records."""
        self._records: dict[str, Document] = {}
        self._table = KeptTable()
        self._coming: dict[str, Document] | None = None
        self._changes: dict[str, Change] = {}
        self._moved = asyncio.Event()
        self._synced = asyncio.Event()
        self._is_open = False
        """The first records have come, or will before somebody can read them."""
        self._failure: Exception | None = None
        """The error that ended the view; None if its owner closed it."""
        self._over = asyncio.Event()
        """The view has ended."""
        self._task: asyncio.Task[None] | None = None
        self._drawing: set[asyncio.Task[None]] = set()
        """The tasks that refresh widgets."""

    @property
    def ended(self) -> str | None:
        """Why the view has ended; None while it is current, or reconnects."""
        if not self._over.is_set():
            return None
        failure = self._failure
        return CLOSED if failure is None else str(failure) or type(failure).__name__

    def _check(self) -> None:
        """Raise the error that ended the view, Disconnected if its owner closed it, ClientError if
        nobody has opened it."""
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._over.is_set():
            raise Disconnected(f"the live view has ended: {CLOSED}; open another")
        if not self._is_open:
            raise ClientError(f"the live view of {shown(self._topic)} is {NOT_OPEN}")

    def _shown(self) -> dict[str, Document]:
        """The current records by SowKey, in order."""
        self._check()
        return self._records.copy()

    # Display.

    def _repr_html_(self) -> str:
        """What notebooks show: the first records, or why the view has ended."""
        return self.preview().html()

    def preview(self) -> ShownTable:
        """The first records, as a table of bounded texts; the reason if there are none to show."""
        if self.ended is not None:
            return shown_nothing(self._topic, f"ended: {self.ended}")
        if not self._is_open:
            return shown_nothing(self._topic, NOT_OPEN)
        records = self._shown()
        return shown_table(self._topic, records, records.values(), len(records))

    async def widget(self, interval_s: float = 1.0, facets: Sequence[str] = ()) -> Any:
        """A widget for notebooks, which shows the first records and redraws them every `interval_s`
        seconds, 0.1 or more, until the view ends, and then the reason.

        Of the fields `facets`, paths such as ``"/symbol"``, it shows the commonest values, by which
        its user chooses records. Raises BadFilter for what is no path, and ClientError if anywidget
        is not installed (``pip install 'sow[notebook]'``).
        """
        checked_interval(interval_s)
        made = table_widget(partial(self.faceted, facets))
        await self.keep_drawing(made, interval_s)
        return made

    def faceted(self, facets: Sequence[str], chosen: Chosen) -> ShownTable:
        """The same as `preview`, of the records with the values that are `chosen` of fields, and
        with the commonest values of the fields `facets`."""
        if self.ended is not None or not (facets or chosen):
            return self.preview()
        return faceted_table(self._topic, self._shown(), facets, chosen)

    async def keep_drawing(self, widget: Any, interval_s: float) -> None:
        """Refresh a widget every `interval_s` seconds, and once more when the view ends."""
        task = asyncio.get_running_loop().create_task(refreshing(widget, interval_s, self._over))
        self._drawing.add(task)
        task.add_done_callback(self._drawing.discard)

    # Tables.

    async def to_arrow(self) -> Any:
        """The records of the view as a pyarrow Table: the SowKey in the column ``sow_key``, and the
        columns of the topic, with the types that the server gives.

        Rows of records that have not changed are copied from the previous table.
        """
        self._check()
        topics = list(self._topics) or [self._topic]
        schemas = [await self._columns(topic) for topic in topics]
        # Nothing is awaited from here on, so the records cannot change meanwhile.
        return self._table.of(self._shown(), schemas)

    async def to_pandas(self) -> Any:
        """The same as a pandas DataFrame; raises ClientError without pandas."""
        return to_pandas(await self.to_arrow())

    async def to_polars(self) -> Any:
        """The same as a polars DataFrame; raises ClientError without polars."""
        return to_polars(await self.to_arrow())

    # Changes.

    async def synced(self) -> None:
        """Wait until the snapshot is complete, also after a gap; raises the error that ended the
        view."""
        await self._synced.wait()
        self._check()

    def changes(self) -> LiveChanges:
        """The changes of records (`async for`): each from the state last returned to the current
        one.

        So a slow reader gets fewer changes, and never wrong ones. Ends when the owner closes the
        view; raises any other error that ended it.
        """
        return LiveChanges(self._next_change)

    async def change(self, timeout_s: float | None = None) -> Change:
        """The next change of a record; waits for `timeout_s` seconds, or as long as it takes.

        Raises TimeoutError when there is none in time; no change is lost by that. Raises the error
        that ended the view, or Disconnected when it was closed.
        """
        async with asyncio.timeout(timeout_s):
            found = await self._next_change()
        if found is None:
            raise Disconnected(f"the live view has ended: {CLOSED}; open another")
        if not self._is_open:
            raise ClientError(f"the live view of {shown(self._topic)} is {NOT_OPEN}")
        return found

    async def _next_change(self) -> Change | None:
        """The next change, None at the end; no change is lost by a cancellation."""
        while True:
            if self._failure is not None:
                self._check()
            if self._changes:
                # Nothing is awaited here, so a cancellation cannot lose it.
                return self._changes.pop(next(iter(self._changes)))
            if self._task is None or self._over.is_set():
                return None
            self._moved.clear()
            await self._moved.wait()

    async def _follow(self) -> None:
        """Apply messages until the view ends, and keep the error that ended it."""
        try:
            while messages := await self.subscription.batch():
                for message in messages:
                    if is_text_delta(message):
                        await self.subscription._take_whole()
                        break
                    self._on_message(message)
                self.bookmark = self.subscription.bookmark
                self._moved.set()
        except Exception as error:
            if not self.subscription._is_closed:
                # Any error: a view that follows nothing is not current.
                self._failure = error
        finally:
            self._over.set()
            self._moved.set()
            self._synced.set()

    def _on_message(self, message: Message) -> None:
        if message.c == "unsubscribed":
            raise withdrawn(message)
        key = message.k or ""
        if message.t not in ("", self._topic):
            key = f"{message.t}:{key}"
        records = self._records if self._coming is None else self._coming
        if message.c == "group_begin":
            self._coming = {}
            self._synced.clear()
        elif message.c == "group_end":
            self._replace(self._coming or {})
        elif message.past:
            pass  # an edit of an older event than the one that the record is
        elif message.c in ("sow", "p"):
            self._topics.setdefault(message.t or self._topic)
            document = message.exact_document()
            if message.delta:
                document = merged(records[key], document)
            self._put(records, key, document)
        elif message.c == "oof":
            self._put(records, key, None)

    def _replace(self, records: dict[str, Document]) -> None:
        self._coming = None
        for key in self._records.keys() - records.keys():
            self._put(self._records, key, None)
        for key, document in records.items():
            if self._records.get(key) != document:
                self._put(self._records, key, document)
        self._synced.set()

    def _put(self, records: dict[str, Document], key: str, document: Document | None) -> None:
        if records is self._records:
            known = self._changes.pop(key, None)
            old = self._records.get(key) if known is None else known.old
            if old is not None or document is not None:
                # A record that came and went unseen is no change; they would pile up.
                self._changes[key] = Change(key, old, document)
        if document is None:
            records.pop(key, None)
        else:
            records[key] = document

    async def __aenter__(self) -> Self:
        await self.subscription.open()
        self._is_open = True
        self._task = asyncio.get_running_loop().create_task(self._follow())
        await self.synced()
        # The snapshot is visible to the caller, and not part of the changes.
        self._changes.clear()
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._over.set()  # also if the task had not started
        await asyncio.gather(*self._drawing, return_exceptions=True)
        await self.subscription.close()


def withdrawn(message: Message) -> ClosedByServer:
    """The error of a subscription that the server ended with this message."""
    why = f": {message.detail}" if message.detail else ""
    reason = message.reason or ClosedByServer.reason
    return ClosedByServer(f"the server has ended the subscription: {reason}{why}", reason=reason)


def is_text_delta(message: Message) -> bool:
    """Whether it is a delta of a text format, which the client cannot merge."""
    return message.delta and not bytes(message.d).startswith(b"{")


class Live(LiveView, Mapping[str, Document]):
    """Records by SowKey (decimal text), current while the view is open (`async with`).

    For a pattern of topics the key is the topic and the SowKey: ``/desk/1:4711``. Entering it
    raises the errors of the subscription. Documents are those of `Message.document`; they belong to
    the view and must not be changed.
    """

    def __getitem__(self, key: str) -> Document:
        self._check()
        return self._records[key]

    def __iter__(self) -> Iterator[str]:
        self._check()
        return iter(self._records)

    def __len__(self) -> int:
        self._check()
        return len(self._records)

    def copy(self) -> dict[str, Document]:
        """The current records, in a dictionary that does not change."""
        return self._shown()


class LiveWindow(LiveView, Sequence[Document]):
    """Records in the requested order, current while the window is open (`async with`).

    ``window[0]`` is the first one, `keys` are their SowKeys. Entering it raises the errors of the
    subscription. Documents are those of `Message.document`; they belong to the window and must not
    be changed.
    """

    def __init__(
        self,
        subscription: Subscription,
        topic: str,
        columns: Callable[[str], Awaitable[Any]],
    ) -> None:
        super().__init__(subscription, topic, columns)
        self._placed: list[str] = []
        """The SowKeys in order, within the current turn."""
        self._keys: list[str] = []
        self._documents: list[Document] = []
        """The SowKeys and the records at the end of the last turn."""

    @overload
    def __getitem__(self, at: int) -> Document: ...

    @overload
    def __getitem__(self, at: slice) -> list[Document]: ...

    def __getitem__(self, at: int | slice) -> Document:
        self._check()
        return self._documents[at]

    def __len__(self) -> int:
        self._check()
        return len(self._documents)

    @property
    def keys(self) -> list[str]:
        """The SowKeys (decimal text) of the records, in order."""
        self._check()
        return self._keys.copy()

    def copy(self) -> list[Document]:
        """The current records, in a list that does not change."""
        self._check()
        return self._documents.copy()

    def _shown(self) -> dict[str, Document]:
        self._check()
        return dict(zip(self._keys, self._documents, strict=True))

    def _on_message(self, message: Message) -> None:
        super()._on_message(message)
        if message.c == "group_begin":
            self._placed = []
        elif message.c in ("sow", "p", "oof"):
            key = message.k or ""
            if key in self._placed:
                self._placed.remove(key)
            if message.c != "oof":
                self._placed.insert(message.at or 0, key)
        elif message.c in ("group_end", "turn_end"):
            self._keys = self._placed.copy()
            self._documents = [self._records[key] for key in self._keys]


View = TypeVar("View", covariant=True)
Window = TypeVar("Window", covariant=True)


class LiveCall(Protocol[View, Window]):
    """The method `live` of a client, with asyncio or without: with `top_n` it is a window."""

    @overload
    def __call__(
        self,
        topic: str,
        *,
        top_n: None = None,
        order_by: None = None,
        skip_n: int = 0,
        filter: str | None = None,
        delta: bool = True,
        no_empties: bool = False,
        select: Paths | None = None,
        conflation: Interval | None = None,
        conflation_key: Sequence[str] | None = None,
        projection: Paths | None = None,
        grouping: Paths | None = None,
        last: int | None = None,
        as_of: str | None = None,
    ) -> View: ...

    @overload
    def __call__(
        self,
        topic: str,
        *,
        top_n: int,
        order_by: str | None = None,
        skip_n: int = 0,
        filter: str | None = None,
        delta: bool = True,
        no_empties: bool = False,
        select: Paths | None = None,
        conflation: Interval | None = None,
        conflation_key: Sequence[str] | None = None,
        projection: Paths | None = None,
        grouping: Paths | None = None,
        last: None = None,
        as_of: None = None,
    ) -> Window: ...
