"""The client without asyncio; see `sow.client.client`."""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, overload

from sow.client.auth import Token
from sow.client.client import Client as AsyncClient
from sow.client.http import Http as AsyncHttp
from sow.client.live_view import Live as AsyncLive
from sow.client.live_window import LiveWindow as AsyncLiveWindow
from sow.client.query_request import QueryRequest
from sow.client.request_parameters import Interval, Paths
from sow.client.retry import Retry
from sow.client.sync.bridge import Bridge
from sow.client.sync.http import Http, Rows, TopicAnswer
from sow.client.sync.live_view import Live, LiveWindow
from sow.client.sync.publisher import Publisher
from sow.client.sync.subscription import Subscription
from sow.client.sync.sync_wrapper import SyncWrapper, mirrored, mirrored_coroutine, waited
from sow.core.definitions import URL_DEFAULT


def answered(bridge: Bridge, query: QueryRequest) -> TopicAnswer:
    """The answer to a query."""
    return TopicAnswer(bridge, bridge.wait(query.answer()))


class Client(SyncWrapper[AsyncClient]):
    """One server, until `close` or the end of `with`; methods as of `sow.client.Client`.

    Arguments are those of the client with asyncio. Every method that sends a request raises, beside
    what it names: Unreachable, Disconnected, and otherwise the error of `sow.errors` that the
    server reported. A closed client raises ClientError.
    """

    def __init__(
        self,
        url: str = URL_DEFAULT,
        *,
        name: str = "sow.client",
        retry: Retry | None = None,
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
            token=token,
            user=user,
            password=password,
            certificate=certificate,
            key=key,
            ca=ca,
        )
        super().__init__(Bridge(), made)

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
        """Close every connection and the client's thread; idempotent.

        Calls of other threads that still wait raise a ClientError.
        """
        self._bridge.close(self.awaited.close)

    @property
    def url(self) -> str:
        """The address of the server."""
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

    # Subscriptions.

    subscribe = mirrored(AsyncClient.subscribe, Subscription)
    sow_and_subscribe = mirrored(AsyncClient.sow_and_subscribe, Subscription)

    @overload
    def live(
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
    ) -> Live: ...

    @overload
    def live(
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
    ) -> LiveWindow: ...

    def live(
        self,
        topic: str,
        *,
        top_n: int | None = None,
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
    ) -> Live | LiveWindow:
        """The records of a topic as a mapping that is kept current (`with`).

        With `top_n` it is a list of so many records, after the first `skip_n` in the order of
        `order_by`, which is kept in that order (docs/queries.md); raises ClientError for one of
        these without `top_n`.

        The other arguments are those of `sow_and_subscribe`; `oof` is always set, and updates come
        as deltas unless `delta` is False. Entering it raises what `subscribe` raises.
        """

        # Without the overloads, which a type checker has resolved already.
        requested: Callable[..., AsyncLive | AsyncLiveWindow] = self.awaited.live

        async def view() -> AsyncLive | AsyncLiveWindow:
            return requested(
                topic,
                top_n=top_n,
                order_by=order_by,
                skip_n=skip_n,
                filter=filter,
                delta=delta,
                no_empties=no_empties,
                select=select,
                conflation=conflation,
                conflation_key=conflation_key,
                projection=projection,
                grouping=grouping,
            )

        made = self._bridge.wait(view())
        if isinstance(made, AsyncLive):
            return Live(self._bridge, made)
        return LiveWindow(self._bridge, made)
