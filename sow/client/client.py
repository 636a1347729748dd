"""The client: one server, all that can be asked of it.

Questions and deletes go over HTTP; publishes and subscriptions over WebSockets, one for the
client's publishes to each topic and one for each subscription.
"""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, Unpack

import aiohttp

from sow.client.bodies import Document, encode_all
from sow.client.http import (
    CONNECT_S,
    FRAMES,
    Answer,
    Http,
    Rows,
    length_prefixed,
    records_of,
    topic_path,
)
from sow.client.live import Live
from sow.client.publisher import WINDOW_FRAMES, Publisher
from sow.client.questions import (
    Focus,
    LiveFocus,
    Question,
    Selection,
    SnapshotFocus,
    parameters,
    subscription,
)
from sow.client.retry import Retry
from sow.client.socket import Socket
from sow.client.subscription import Subscription
from sow.errors import BadMessage, ClientError

URL_DEFAULT = "http://127.0.0.1:8080"
FRAME_MESSAGES = 1000


class Client:
    """One server, from `async with` to its end. `name` is what the server lists it under.

    `retry` says how long subscriptions try to come back when their connection has broken.
    """

    def __init__(
        self, url: str = URL_DEFAULT, *, name: str = "sow.client", retry: Retry | None = None
    ) -> None:
        self.url = checked_url(url)
        self.name = name
        self.retry = retry or Retry()
        self._session: aiohttp.ClientSession | None = None
        self._publishers: dict[str, Publisher] = {}
        self._subscriptions: list[Subscription] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every connection of this client."""
        for followed in self._subscriptions:
            await followed.close()
        for publisher in self._publishers.values():
            await publisher.close()
        self._subscriptions.clear()
        self._publishers.clear()
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
            self._session = aiohttp.ClientSession(timeout=timeout)
        return self._session

    async def _connect(self, session: str | None = None, seen: int | None = None) -> Socket:
        return await Socket.connect(self._http(), self.url, self.name, session, seen)

    @property
    def http(self) -> Http:
        """Requests that have no method here."""
        return Http(self.url, self._http())

    # Publishing.

    async def publisher(self, topic: str, *, window: int = WINDOW_FRAMES) -> Publisher:
        """The fast way in: a connection of its own for many raw bodies. Close it after use."""
        return Publisher(await self._connect(), topic, window)

    async def publish(
        self,
        topic: str,
        messages: Document | Iterable[Document],
        *,
        key: str | None = None,
        expires_s: float | None = None,
    ) -> str:
        """Publish one message or many; returns the last one's bookmark once all are durable.

        Up to 1000 messages are all or nothing; more go in frames of as many. `key` names the
        record where the topic has no Key. Raises BadMessage with the index of the first bad one;
        for what JSON does not have, such as NaN, before anything is sent.
        """
        return await self._publish(topic, messages, key, expires_s, delta=False)

    async def delta_publish(
        self,
        topic: str,
        messages: Document | Iterable[Document],
        *,
        key: str | None = None,
        expires_s: float | None = None,
    ) -> str:
        """The same, but each message is merged into its record."""
        return await self._publish(topic, messages, key, expires_s, delta=True)

    async def _publish(
        self,
        topic: str,
        messages: Document | Iterable[Document],
        key: str | None,
        expires_s: float | None,
        delta: bool,
    ) -> str:
        bodies = encode_all(messages)
        if any(b"\n" in body for body in bodies):
            return await self._publish_over_http(topic, bodies, key, expires_s, delta)
        publisher = await self._kept(topic) or await self.publisher(topic)
        first = publisher.sent
        try:
            for start in range(0, len(bodies), FRAME_MESSAGES):
                frame = bodies[start : start + FRAME_MESSAGES]
                await publisher.send(frame, key=key, expires_s=expires_s, delta=delta)
            await publisher.drain()
        except BaseException as error:
            # A publisher that failed sends no more: the next publish makes a fresh one.
            await publisher.close()
            if isinstance(error, BadMessage):
                error.index -= first
            raise
        await self._keep(topic, publisher)
        return publisher.bookmark

    async def _kept(self, topic: str) -> Publisher | None:
        """The publisher of an earlier publish, unless its connection has ended since."""
        publisher = self._publishers.pop(topic, None)
        if publisher is None or publisher.is_open:
            return publisher
        await publisher.close()
        return None

    async def _keep(self, topic: str, publisher: Publisher) -> None:
        """Keep a publisher for the next publish, unless one made meanwhile is kept already."""
        if self._publishers.setdefault(topic, publisher) is not publisher:
            await publisher.close()

    async def _publish_over_http(
        self, topic: str, bodies: list[bytes], key: str | None, expires_s: float | None, delta: bool
    ) -> str:
        answer = await self.http.json(
            "PATCH" if delta else "POST",
            records_of(topic),
            {"k": key, "expiration": expires_s},
            body=length_prefixed(bodies),
            content_type=FRAMES,
        )
        return str(answer["bookmark"])

    async def delete(self, topic: str, **which: Unpack[Selection]) -> int:
        """Delete by `filter` or by `keys`, exactly one of them; returns how many there were."""
        answer = await self.http.json("DELETE", records_of(topic), parameters(which))
        return int(answer["deleted"])

    # Asking.

    async def topics(self) -> list[dict[str, Any]]:
        """All topics of the server, described."""
        found: list[dict[str, Any]] = await self.http.json("GET", "/v1/topics")
        return found

    async def topic(self, name: str) -> dict[str, Any]:
        """One topic, described; raises UnknownTopic."""
        found: dict[str, Any] = await self.http.json("GET", topic_path(name))
        return found

    async def query(self, topic: str, **question: Unpack[Question]) -> Answer:
        """The records that match, decoded."""
        async with self.rows(topic, **question) as rows:
            return await rows.all()

    def rows(
        self, topic: str, *, meta: bool = False, **question: Unpack[Question]
    ) -> AbstractAsyncContextManager[Rows]:
        """The records that match as JSON texts, read as they arrive (`async with`).

        With `meta` each is wrapped as ``{"k", "bm", "ts", "d"}``.
        """
        return self.http.rows(topic, {**parameters(question), "meta": meta})

    async def explain(self, topic: str, **question: Unpack[Question]) -> dict[str, Any]:
        """How the server answers a query: its terms, their indexes, the rows it touched."""
        asked = {**parameters(question), "explain": True}
        found: dict[str, Any] = await self.http.json("GET", records_of(topic), asked)
        return found

    # Following.

    def subscribe(self, topic: str, **focus: Unpack[LiveFocus]) -> Subscription:
        """Updates from now on, or from a bookmark on."""
        return self._subscription(*subscription(topic, focus, snapshot=False))

    def sow_and_subscribe(self, topic: str, **focus: Unpack[SnapshotFocus]) -> Subscription:
        """The records as they stand, then their updates: no gap, no repeat."""
        return self._subscription(*subscription(topic, focus, snapshot=True))

    def live(self, topic: str, **focus: Unpack[Focus]) -> Live:
        """The records of a topic as a mapping that keeps itself current (`async with`)."""
        asked: dict[str, object] = {"delta": True, **focus, "oof": True}
        return Live(self._subscription(*subscription(topic, asked, snapshot=True)), topic)

    def _subscription(self, command: str, asked: dict[str, object]) -> Subscription:
        made = Subscription(self._connect, command, asked, self.retry)
        self._subscriptions.append(made)
        return made


def checked_url(url: str) -> str:
    """The address without its final slash, http:// where no scheme is given."""
    text = (url if "://" in url else f"http://{url}").rstrip("/")
    scheme, _, rest = text.partition("://")
    if scheme not in ("http", "https") or not rest:
        raise ClientError(f"{url!r} is not an address such as {URL_DEFAULT}")
    return text
