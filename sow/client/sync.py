"""The client without asyncio: the same methods, each of which returns when it is done.

One event loop in a thread does the work; what is called here waits for it. There is no second
implementation: every method hands over to that of the same name in `sow.client`, and a test insists
that none is missing.
"""

import asyncio
import contextlib
import threading
from collections.abc import (
    AsyncIterator,
    Coroutine,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    ValuesView,
)
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, Unpack

from sow.client import client as asynchronous
from sow.client.bodies import Document
from sow.client.client import URL_DEFAULT
from sow.client.http import Answer
from sow.client.http import Http as AsyncHttp
from sow.client.http import Rows as AsyncRows
from sow.client.live import Change, table_of
from sow.client.live import Live as AsyncLive
from sow.client.messages import Message
from sow.client.publisher import WINDOW_FRAMES
from sow.client.publisher import Publisher as AsyncPublisher
from sow.client.questions import Focus, LiveFocus, Question, Selection, SnapshotFocus
from sow.client.retry import Retry
from sow.client.subscription import Subscription as AsyncSubscription
from sow.client.tables import to_pandas
from sow.errors import ClientError

Result = TypeVar("Result")

__all__ = ["Client", "Http", "Live", "Publisher", "Response", "Rows", "Subscription"]


class Bridge:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, Result], timeout_s: float | None = None) -> Result:
        """What a coroutine returns or raises; TimeoutError when it takes longer."""
        if self._loop.is_closed():
            work.close()
            raise ClientError("the client is closed; make another one")
        limited = work if timeout_s is None else asyncio.wait_for(work, timeout_s)
        future = asyncio.run_coroutine_threadsafe(limited, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C: what nobody waits for any more must not take a message and lose it.
            future.cancel()
            raise

    @contextmanager
    def entered(self, manager: AbstractAsyncContextManager[Result]) -> Iterator[Result]:
        """An asynchronous context as one of `with`."""
        entered = self.wait(_enter(manager))
        try:
            yield entered
        except BaseException as error:
            if not self.wait(_leave(manager, error)):
                raise
        else:
            self.wait(_leave(manager, None))

    def each(self, items: AsyncIterator[Result]) -> Iterator[Result]:
        """An asynchronous iterator as one of `for`."""
        with contextlib.suppress(StopAsyncIteration):
            while True:
                yield self.wait(_next(items))

    def close(self) -> None:
        """Stop the loop and its thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be waited for any more."""
        return self._loop.is_closed()


async def _enter(manager: AbstractAsyncContextManager[Result]) -> Result:
    return await manager.__aenter__()


async def _leave(
    manager: AbstractAsyncContextManager[Any], error: BaseException | None
) -> bool | None:
    kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
    return await manager.__aexit__(kind, error, traceback)


async def _next(items: AsyncIterator[Result]) -> Result:
    return await anext(items)


class Client:
    """One server, until `close` or the end of `with`; methods as of `sow.client.Client`."""

    def __init__(
        self, url: str = URL_DEFAULT, *, name: str = "sow.client", retry: Retry | None = None
    ) -> None:
        self._client = asynchronous.Client(url, name=name, retry=retry)
        self._bridge = Bridge()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every connection; once is enough."""
        if not self._bridge.is_closed:
            self._bridge.wait(self._client.close())
            self._bridge.close()

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._client.url

    @property
    def name(self) -> str:
        """What the server lists the client under."""
        return self._client.name

    @property
    def retry(self) -> Retry:
        """How long subscriptions try to come back."""
        return self._client.retry

    @property
    def http(self) -> "Http":
        """Requests that have no method here."""
        return Http(self._bridge, self._bridge.wait(self._http()))

    async def _http(self) -> AsyncHttp:
        return self._client.http  # on the loop, since it may make a session

    # Publishing.

    def publisher(self, topic: str, *, window: int = WINDOW_FRAMES) -> "Publisher":
        """The fast way in: a connection of its own for many bodies. Close it after use."""
        made = self._bridge.wait(self._client.publisher(topic, window=window))
        return Publisher(self._bridge, made)

    def publish(
        self,
        topic: str,
        messages: Document | Iterable[Document],
        *,
        key: str | None = None,
        expires_s: float | None = None,
    ) -> str:
        """Publish one message or many; returns the last one's bookmark once all are durable."""
        work = self._client.publish(topic, messages, key=key, expires_s=expires_s)
        return self._bridge.wait(work)

    def delta_publish(
        self,
        topic: str,
        messages: Document | Iterable[Document],
        *,
        key: str | None = None,
        expires_s: float | None = None,
    ) -> str:
        """The same, but each message is merged into its record."""
        work = self._client.delta_publish(topic, messages, key=key, expires_s=expires_s)
        return self._bridge.wait(work)

    def delete(self, topic: str, **which: Unpack[Selection]) -> int:
        """Delete by `filter` or by `keys`, exactly one of them; returns how many there were."""
        return self._bridge.wait(self._client.delete(topic, **which))

    # Asking.

    def topics(self) -> list[dict[str, Any]]:
        """All topics of the server, described."""
        return self._bridge.wait(self._client.topics())

    def topic(self, name: str) -> dict[str, Any]:
        """One topic, described; raises UnknownTopic."""
        return self._bridge.wait(self._client.topic(name))

    def query(self, topic: str, **question: Unpack[Question]) -> Answer:
        """The records that match, decoded."""
        return self._bridge.wait(self._client.query(topic, **question))

    def rows(self, topic: str, *, meta: bool = False, **question: Unpack[Question]) -> "Rows":
        """The records that match as JSON texts, read as they arrive (`with` or `for`)."""
        return Rows(self._bridge, self._client.rows(topic, meta=meta, **question))

    def explain(self, topic: str, **question: Unpack[Question]) -> dict[str, Any]:
        """How the server answers a query: its terms, their indexes, the rows it touched."""
        return self._bridge.wait(self._client.explain(topic, **question))

    # Following.

    def subscribe(self, topic: str, **focus: Unpack[LiveFocus]) -> "Subscription":
        """Updates from now on, or from a bookmark on."""
        return Subscription(self._bridge, self._client.subscribe(topic, **focus))

    def sow_and_subscribe(self, topic: str, **focus: Unpack[SnapshotFocus]) -> "Subscription":
        """The records as they stand, then their updates."""
        return Subscription(self._bridge, self._client.sow_and_subscribe(topic, **focus))

    def live(self, topic: str, **focus: Unpack[Focus]) -> "Live":
        """The records of a topic as a mapping that keeps itself current (`with`)."""
        return Live(self._bridge, self._client.live(topic, **focus))


class Response(NamedTuple):
    """An answer over HTTP that is no error."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Http:
    """The HTTP side of one server, as `sow.client.http.Http`."""

    def __init__(self, bridge: Bridge, http: AsyncHttp) -> None:
        self._bridge = bridge
        self._http = http

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._http.url

    @contextmanager
    def request(
        self, method: str, path: str, asked: Mapping[str, object] | None = None, **more: Any
    ) -> Iterator[Response]:
        """A response that is no error, read whole."""
        with self._bridge.entered(self._http.request(method, path, asked, **more)) as response:
            body = self._bridge.wait(response.read())
            yield Response(response.status, response.headers, body)

    def json(
        self, method: str, path: str, asked: Mapping[str, object] | None = None, **more: Any
    ) -> Any:
        """The decoded answer of a request."""
        return self._bridge.wait(self._http.json(method, path, asked, **more))

    def rows(self, topic: str, asked: Mapping[str, object]) -> "Rows":
        """A query answer that is read as it arrives."""
        return Rows(self._bridge, self._http.rows(topic, asked))


class Rows:
    """A query answer while it arrives; iterate it for the rows as JSON texts.

    It is asked for when it is first read or entered, and given back at its end or that of `with`.
    """

    def __init__(self, bridge: Bridge, opening: AbstractAsyncContextManager[AsyncRows]) -> None:
        self._bridge = bridge
        self._opening = opening
        self._rows: AsyncRows | None = None
        self._open = False

    def _opened(self) -> AsyncRows:
        if self._rows is None:
            self._rows = self._bridge.wait(_enter(self._opening))
            self._open = True
        return self._rows

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._bridge.wait(_leave(self._opening, None))

    @property
    def matches(self) -> int:
        """How many records match, before paging."""
        return self._opened().matches

    @property
    def index(self) -> str:
        """What served the query."""
        return self._opened().index

    @property
    def bookmark(self) -> str:
        """The moment that it shows."""
        return self._opened().bookmark

    def chunks(self) -> Iterator[list[bytes]]:
        """The rows in groups, as they come off the network."""
        try:
            yield from self._bridge.each(self._opened().chunks())
        finally:
            self._close()

    def __iter__(self) -> Iterator[bytes]:
        for rows in self.chunks():
            yield from rows

    def all(self) -> Answer:
        """Everything, decoded."""
        try:
            return self._bridge.wait(self._opened().all())
        finally:
            self._close()

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._close()


class Publisher:
    """Publishes to one topic over its own connection, as `sow.client.Publisher`."""

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
        """Send bodies as one frame, waiting while the window is full."""
        self._bridge.wait(self._publisher.send(bodies, key=key, expires_s=expires_s, delta=delta))

    def delete(self, bodies: Sequence[Document]) -> None:
        """Delete the records that the key fields of these bodies name, in order with `send`."""
        self._bridge.wait(self._publisher.delete(bodies))

    def drain(self) -> None:
        """Wait until everything sent is durable; raises what any frame failed with."""
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
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bridge.wait(self._publisher.__aexit__(kind, error, traceback))


class Subscription:
    """Messages one by one; `next(timeout_s)` raises TimeoutError when none comes in time."""

    def __init__(self, bridge: Bridge, subscription: AsyncSubscription) -> None:
        self._bridge = bridge
        self.subscription = subscription

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
        """Subscribe; raises SowError with the server's reason and detail."""
        self._bridge.wait(self.subscription.open())

    def batch(self, timeout_s: float | None = None) -> Sequence[Message]:
        """Every message that has arrived, at least one; none when the subscription has ended."""
        return self._bridge.wait(self.subscription.batch(), timeout_s)

    def next(self, timeout_s: float | None = None) -> Message:
        """The next message; raises StopIteration when the subscription has ended."""
        try:
            return self._bridge.wait(_next(self.subscription), timeout_s)
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """End the subscription and its connection."""
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

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        return self.next()


class Live(Mapping[str, Any]):
    """Records by SowKey, kept current by the client's thread.

    Whoever goes through them goes through those of one moment.
    """

    def __init__(self, bridge: Bridge, live: AsyncLive) -> None:
        self._bridge = bridge
        self.live = live

    def __getitem__(self, key: str) -> Any:
        return self.live[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.copy())

    def __len__(self) -> int:
        return len(self.live)

    def items(self) -> ItemsView[str, Any]:
        """The records with their SowKeys."""
        return self.copy().items()

    def values(self) -> ValuesView[Any]:
        """The records."""
        return self.copy().values()

    def copy(self) -> dict[str, Any]:
        """The records as they stand, in a dictionary that does not change."""
        return self.live.copy()

    @property
    def subscription(self) -> Subscription:
        """What the records come from."""
        return Subscription(self._bridge, self.live.subscription)

    def change(self, timeout_s: float | None = None) -> Change:
        """The next change of a record; raises TimeoutError when there is none in time.

        As often as one likes: what comes later is given later.
        """
        return self._bridge.wait(self.live.change(timeout_s))

    def changes(self) -> Iterator[Change]:
        """Each change of a record, from what was last given of it to what holds now."""
        return self._bridge.each(self.live.changes())

    def synced(self) -> None:
        """Return when the snapshot is complete, also the one after a gap; raises what ended it."""
        self._bridge.wait(self.live.synced())

    def to_arrow(self) -> Any:
        """The records as a pyarrow Table."""
        return table_of(self.copy())

    def to_pandas(self) -> Any:
        """The records as a pandas DataFrame."""
        return to_pandas(self.to_arrow())

    def __enter__(self) -> Self:
        self._bridge.wait(_enter(self.live))
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._bridge.wait(_leave(self.live, None))
