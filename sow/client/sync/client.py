"""The client without asyncio, its publisher, subscriptions and live views.

Each class is that of the same name in `sow.client`, which documents its methods.
"""

from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from functools import partial
from typing import Any, Self, TypeVar, cast, overload

from sow.client.client import Client as AsyncClient
from sow.client.connector import Token
from sow.client.consuming import LeasedMessage as AsyncLeasedMessage
from sow.client.consuming import MessageConsumer as AsyncMessageConsumer
from sow.client.http import Http as AsyncHttp
from sow.client.idempotent import IdempotentPublisher as AsyncIdempotentPublisher
from sow.client.live_view import Live as AsyncLive
from sow.client.live_view import LiveCall
from sow.client.live_view import LiveView as AsyncLiveView
from sow.client.live_view import LiveWindow as AsyncLiveWindow
from sow.client.publisher import Publisher as AsyncPublisher
from sow.client.requests import QueryRequest
from sow.client.socket import Message, Retry
from sow.client.subscription import Subscription as AsyncSubscription
from sow.client.sync.bridge import (
    Bridge,
    Each,
    Http,
    Rows,
    SyncContext,
    SyncWrapper,
    TopicAnswer,
    described,
    handed,
    mirrored,
    mirrored_coroutine,
    waited,
)
from sow.client.tables import checked_interval, table_widget
from sow.core.addresses import URL_DEFAULT


class Subscription(SyncContext[AsyncSubscription], Iterator[Message]):
    """Messages of one topic, in order; an iterator, and a context manager that ends it.

    It opens when first read or entered, and raises the errors of the server then. `next` and
    `batch` can wait for a limited time, and be called again after that.
    """

    @property
    def name(self) -> str:
        """The server's name of the subscription, once it is open."""
        return self.awaited.name

    @property
    def bookmark(self) -> str:
        """The bookmark of the newest update received."""
        return self.awaited.bookmark

    @property
    def resumed(self) -> int:
        """How often the session was resumed without a gap."""
        return self.awaited.resumed

    @property
    def gaps(self) -> int:
        """How often it could not be resumed, and the subscription started again."""
        return self.awaited.gaps

    @property
    def advice(self) -> tuple[str, ...]:
        """Sentences on fields that no record has, once it is open."""
        return self.awaited.advice

    open = waited(AsyncSubscription.open)
    batch = waited(AsyncSubscription.batch)
    close = waited(AsyncSubscription.close)

    def next(self, timeout_s: float | None = None) -> Message:
        """The next message; raises StopIteration when the subscription has ended, and what `batch`
        raises."""
        try:
            return self._bridge.wait(self.awaited.next(timeout_s))
        except StopAsyncIteration:
            raise StopIteration from None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        return self.next()


class Publisher(SyncContext[AsyncPublisher]):
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
    def duplicates(self) -> int:
        """Those of them that the server had before, by their numbers."""
        return self.awaited.duplicates

    @property
    def bookmark(self) -> str:
        """The bookmark of the newest acknowledged message."""
        return self.awaited.bookmark

    @property
    def seq(self) -> int | None:
        """The number of the next message, if they are numbered."""
        return self.awaited.seq

    @property
    def is_open(self) -> bool:
        """Whether no frame has failed and the connection has not ended, as far as is known."""
        return self.awaited.is_open

    send = waited(AsyncPublisher.send)
    delete = waited(AsyncPublisher.delete)
    drain = waited(AsyncPublisher.drain)
    settle = waited(AsyncPublisher.settle)
    close = waited(AsyncPublisher.close)


class IdempotentPublisher(SyncContext[AsyncIdempotentPublisher]):
    """Publishes as one name, each message exactly once; the end of `with` waits for all acks,
    unless its block raised an error."""

    @property
    def name(self) -> str:
        """The durable name."""
        return self.awaited.name

    @property
    def waiting(self) -> int:
        """How many messages the server has not acknowledged."""
        return self.awaited.waiting

    publish = waited(AsyncIdempotentPublisher.publish)
    delta_publish = waited(AsyncIdempotentPublisher.delta_publish)
    delete = waited(AsyncIdempotentPublisher.delete)
    drain = waited(AsyncIdempotentPublisher.drain)
    close = waited(AsyncIdempotentPublisher.close)

    def restart(self) -> None:
        """Go on after an error of the name: what waits is numbered again."""

        async def restarted() -> None:
            self.awaited.restart()

        self._bridge.wait(restarted())


View = TypeVar("View", bound=AsyncLiveView)


class LiveView(SyncContext[View]):
    """Records of a topic, kept current by the client's thread (`with`).

    Entering it raises the errors of the subscription. Once it has `ended`, every method that reads
    records raises the error that ended it.
    """

    @property
    def subscription(self) -> Subscription:
        """The source of the records."""
        return Subscription(self._bridge, self.awaited.subscription)

    @property
    def bookmark(self) -> str:
        """The bookmark that the records are as of, with the name of its log."""
        return self.awaited.bookmark

    @property
    def ended(self) -> str | None:
        """Why the view has ended; None while it is current, or reconnects."""
        return self.awaited.ended

    preview = handed(AsyncLiveView.preview)
    faceted = handed(AsyncLiveView.faceted)

    def widget(self, interval_s: float = 1.0, facets: Sequence[str] = ()) -> Any:
        """A widget for notebooks, which shows the first records and redraws them every `interval_s`
        seconds, 0.1 or more, until the view ends, and then the reason.

        Of the fields `facets`, paths such as ``"/symbol"``, it shows the commonest values, by which
        its user chooses records. Raises BadFilter for what is no path, and ClientError if anywidget
        is not installed (``pip install 'sow[notebook]'``).
        """
        checked_interval(interval_s)
        made = table_widget(partial(self.faceted, facets))  # in the thread that displays it
        self.keep_drawing(made, interval_s)
        return made

    keep_drawing = waited(AsyncLiveView.keep_drawing)
    to_arrow = waited(AsyncLiveView.to_arrow)
    to_pandas = waited(AsyncLiveView.to_pandas)
    to_polars = waited(AsyncLiveView.to_polars)
    synced = waited(AsyncLiveView.synced)
    changes = mirrored(AsyncLiveView.changes, Each)
    change = waited(AsyncLiveView.change)


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


def answered(bridge: Bridge, query: QueryRequest) -> TopicAnswer:
    """The answer to a query."""
    return TopicAnswer(bridge, bridge.wait(query.answer()))


class LeasedMessage(SyncWrapper[AsyncLeasedMessage]):
    """One message of a queue."""

    @property
    def bookmark(self) -> str:
        """The bookmark of its publish."""
        return self.awaited.bookmark

    @property
    def key(self) -> str:
        """The SowKey of the record that was published."""
        return self.awaited.key

    @property
    def deliveries(self) -> int:
        """How often it was delivered."""
        return self.awaited.deliveries

    @property
    def body(self) -> bytes:
        """The message as it was published."""
        return self.awaited.body

    document = handed(AsyncLeasedMessage.document)
    ack = waited(AsyncLeasedMessage.ack)
    cancel = waited(AsyncLeasedMessage.cancel)


class MessageConsumer(SyncContext[AsyncMessageConsumer], Iterator[LeasedMessage]):
    """Messages of one queue, as they come: an iterator, until `close` or the end of `with`."""

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self.awaited.queue

    open = waited(AsyncMessageConsumer.open)
    close = waited(AsyncMessageConsumer.close)

    def next(self, timeout_s: float | None = None) -> LeasedMessage | None:
        """The next message; None where none has come within `timeout_s` seconds."""
        found = self._bridge.wait(self.awaited.next(timeout_s))
        return None if found is None else LeasedMessage(self._bridge, found)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> LeasedMessage:
        found = self.next()
        assert found is not None
        return found


class Client(SyncContext[AsyncClient]):
    """One server, until `close` or the end of `with`; methods as of `sow.client.Client`.

    Arguments are those of the client with asyncio. Every method that sends a request raises, beside
    what it names: Unreachable, Disconnected, and otherwise the error of `sow.errors` that the
    server reported. A closed client raises ClientError.
    """

    def __init__(
        self,
        url: str | Sequence[str] = URL_DEFAULT,
        *,
        name: str = "sow.client",
        retry: Retry | None = None,
        read_your_writes: bool = False,
        token: Token | None = None,
        user: str | None = None,
        password: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
        ca: str | None = None,
    ) -> None:
        made = AsyncClient(
            url,
            name=name,
            retry=retry,
            read_your_writes=read_your_writes,
            token=token,
            user=user,
            password=password,
            certificate=certificate,
            key=key,
            ca=ca,
        )
        super().__init__(Bridge(), made)

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection and the client's thread; idempotent.

        Calls of other threads that still wait raise a ClientError.
        """
        self._bridge.close(self.awaited.close)

    @property
    def url(self) -> str:
        """The address of the server in use."""
        return self.awaited.url

    @property
    def name(self) -> str:
        """The name of the client in the server's lists."""
        return self.awaited.name

    @property
    def retry(self) -> Retry:
        """How long subscriptions try to reconnect."""
        return self.awaited.retry

    @property
    def http(self) -> Http:
        """Requests that have no method here (docs/http.md)."""
        return Http(self._bridge, self._bridge.wait(self._http()))

    async def _http(self) -> AsyncHttp:
        return self.awaited.http  # on the loop, since it may open a session

    # Publishing.

    publisher = mirrored_coroutine(AsyncClient.publisher, Publisher)
    idempotent_publisher = mirrored(AsyncClient.idempotent_publisher, IdempotentPublisher)
    publish = waited(AsyncClient.publish)
    delta_publish = waited(AsyncClient.delta_publish)
    publish_once = waited(AsyncClient.publish_once)
    delete = waited(AsyncClient.delete)

    # Queries.

    topics = waited(AsyncClient.topics)
    topic = waited(AsyncClient.topic)
    query = mirrored(AsyncClient.query, answered)
    rows = mirrored(AsyncClient.rows, Rows)
    explain = waited(AsyncClient.explain)
    events = waited(AsyncClient.events)
    edit_event = waited(AsyncClient.edit_event)

    # Subscriptions.

    subscribe = mirrored(AsyncClient.subscribe, Subscription)
    sow_and_subscribe = mirrored(AsyncClient.sow_and_subscribe, Subscription)
    consume = mirrored(AsyncClient.consume, MessageConsumer)

    def _live(self, *words: Any, **more: Any) -> Live | LiveWindow:
        requested: Callable[..., AsyncLive | AsyncLiveWindow] = self.awaited.live

        async def view() -> AsyncLive | AsyncLiveWindow:
            return requested(*words, **more)

        made = self._bridge.wait(view())
        if isinstance(made, AsyncLive):
            return Live(self._bridge, made)
        return LiveWindow(self._bridge, made)

    live = cast("LiveCall[Live, LiveWindow]", described(_live, AsyncClient.live, Live | LiveWindow))
