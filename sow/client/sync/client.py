"""The client itself, without asyncio; see `sow.client.client`."""

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, Unpack, overload

from sow.client.access import Token
from sow.client.asking import Asking
from sow.client.bodies import Document
from sow.client.client import Client as AsyncClient
from sow.client.http import Http as AsyncHttp
from sow.client.publisher import WINDOW_FRAMES
from sow.client.questions import Focus, LiveFocus, Question, Selection, SnapshotFocus
from sow.client.retry import Retry
from sow.client.sync.bridge import Bridge
from sow.client.sync.http import Http, Rows, TopicAnswer
from sow.client.sync.live import Live
from sow.client.sync.live_window import LiveWindow
from sow.client.sync.publisher import Publisher
from sow.client.sync.subscription import Subscription
from sow.definitions import URL_DEFAULT


class Client:
    """One server, until `close` or the end of `with`; methods as of `sow.client.Client`.

    Arguments are those of the client with asyncio. Every method that asks the
    server raises, beside what it names: Unreachable, Disconnected, and otherwise the error of
    `sow.errors` that the server gave. A client that is closed raises ClientError.
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
        self._client = AsyncClient(
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
        """End every connection and the client's thread; once is enough."""
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
        """For how long subscriptions try to come back."""
        return self._client.retry

    @property
    def http(self) -> Http:
        """Requests that have no method here (docs/http.md)."""
        return Http(self._bridge, self._bridge.wait(self._http()))

    async def _http(self) -> AsyncHttp:
        return self._client.http  # on the loop, since it may make a session

    # Publishing.

    def publisher(self, topic: str, *, window: int = WINDOW_FRAMES) -> Publisher:
        """The fast way in: a connection of its own for many messages to one topic.

        `window` is how many frames may be on their way unacknowledged before `send` waits. Close
        the publisher after use, or enter it with `with`.
        """
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
        """Publish one message or many; returns the last one's bookmark once all are durable.

        `messages` is one message or an iterable of them: bytes and str are bodies as they are,
        anything else is written as JSON. `key` names the record, for one message to a topic without
        `Key`. `expires_s` is their lifetime in seconds, where the topic has `Expiration`. Up to
        1,000 are stored all or none; more go in frames of as many, in order.

        Raises BadMessage with the index of the first bad one, UnknownTopic, InvalidTopic, TooLarge,
        StoreError.
        """
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
        """Publish changes: each message is merged into its record (docs/semantics.md, Rule 8).

        Arguments, result and errors are those of `publish`.
        """
        work = self._client.delta_publish(topic, messages, key=key, expires_s=expires_s)
        return self._bridge.wait(work)

    def delete(self, topic: str, **which: Unpack[Selection]) -> int:
        """Delete records; returns how many there were, once that is durable.

        `which` is either `filter`, an expression, or `keys`, SowKeys as decimal text; raises
        ClientError for both or neither, BadFilter with the position, UnknownTopic.
        """
        return self._bridge.wait(self._client.delete(topic, **which))

    # Asking.

    def topics(self) -> list[dict[str, Any]]:
        """All topics of the server: for each a dictionary as of `GET /v1/topics`
        (docs/http.md)."""
        return self._bridge.wait(self._client.topics())

    def topic(self, name: str) -> dict[str, Any]:
        """One topic by its exact name, as of `GET /v1/topics/{topic}`; raises UnknownTopic."""
        return self._bridge.wait(self._client.topic(name))

    def query(self, topic: str, **question: Unpack[Question]) -> TopicAnswer:
        """The records that match, decoded, as they stood at one moment.

        `question` may have `filter`, `keys`, `order_by`, `top_n`, `skip_n`, `select`, `projection`
        and `grouping`, as for `sow.client.Client.query`. Raises BadFilter with the position,
        UnknownTopic, ClientError.
        Tables of the answer have the types of the topic; they are asked for when they are wanted.
        """
        bridge = self._bridge
        asked = bridge.wait(self._asked(topic, question))
        return TopicAnswer(bridge, bridge.wait(asked.answer()))

    async def _asked(self, topic: str, question: Question) -> Asking:
        return self._client.query(topic, **question)  # on the loop, since it may make a session

    def rows(self, topic: str, *, meta: bool = False, **question: Unpack[Question]) -> Rows:
        """The records that match as JSON texts, read as they arrive (`with` or `for`).

        `question` and errors are those of `query`. With `meta` each text is an object with `k` (the
        SowKey), `bm` (the bookmark of its newest change), `ts` (when that was) and `d`, the record.
        """
        return Rows(self._bridge, self._client.rows(topic, meta=meta, **question))

    def explain(self, topic: str, **question: Unpack[Question]) -> dict[str, Any]:
        """How the server answers a query: a dictionary of its terms, what index serves each, and
        the rows it touched (docs/queries.md). `question` and errors are those of `query`."""
        return self._bridge.wait(self._client.explain(topic, **question))

    # Following.

    def subscribe(self, topic: str, **focus: Unpack[LiveFocus]) -> Subscription:
        """Updates from now on, or from a bookmark on.

        `focus` is that of `sow.client.Client.subscribe`. Nothing is asked yet: the subscription is
        opened when it is entered or first read, and then raises what it is refused with.
        """
        return Subscription(self._bridge, self._client.subscribe(topic, **focus))

    def sow_and_subscribe(self, topic: str, **focus: Unpack[SnapshotFocus]) -> Subscription:
        """The records as they stand, then their updates: no gap, no repeat.

        `focus` and errors are those of `subscribe`, but for `bookmark`; `order_by` and `top_n`
        are for the records as they stand.
        """
        return Subscription(self._bridge, self._client.sow_and_subscribe(topic, **focus))

    @overload
    def live(self, topic: str, **focus: Unpack[Focus]) -> Live: ...

    @overload
    def live(
        self,
        topic: str,
        *,
        top_n: int,
        order_by: str | None = None,
        skip_n: int = 0,
        **focus: Unpack[Focus],
    ) -> LiveWindow: ...

    def live(
        self,
        topic: str,
        *,
        top_n: int | None = None,
        order_by: str | None = None,
        skip_n: int = 0,
        **focus: Unpack[Focus],
    ) -> Live | LiveWindow:
        """The records of a topic as a mapping that keeps itself current (`with`); with `top_n` as
        a list of so many, after the first `skip_n`, that stays in the order of `order_by`.

        `focus` is that of `subscribe`, but for `bookmark`; `oof` is always on, and updates come as
        deltas unless `delta` is False.
        """
        if top_n is None:
            return Live(self._bridge, self._client.live(topic, **focus))
        window = self._client.live(topic, top_n=top_n, order_by=order_by, skip_n=skip_n, **focus)
        return LiveWindow(self._bridge, window)
