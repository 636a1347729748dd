"""The client of one server, or of several that have one log.

Queries and deletes use HTTP; publishes and subscriptions use WebSockets: one per topic that the
client publishes to, and one per subscription.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Self, cast

import aiohttp

from sow.client.connector import ClientAuth, HttpSession, Token, checked_urls, refused_redirects
from sow.client.consuming import MessageConsumer, QueueRequests
from sow.client.encode import Document, RowBodies, encode_all, is_data_frame
from sow.client.errors import Disconnected
from sow.client.http import Http, Rows, length_prefixed, records_of, topic_path
from sow.client.idempotent import IdempotentPublisher
from sow.client.live_view import Live, LiveCall, LiveWindow
from sow.client.publish_store import PublishStore
from sow.client.publisher import WINDOW_FRAMES, Publisher, RepeatableBatch
from sow.client.requests import (
    EventRequests,
    Interval,
    Paths,
    QueryRequest,
    given,
    parameters,
    subscription,
)
from sow.client.socket import Retry, Sockets
from sow.client.subscription import Subscription
from sow.client.tables import ShownDict, ShownList, ShownPlan, ShownState
from sow.core.addresses import URL_DEFAULT, Addresses
from sow.core.media_types import FRAMES
from sow.errors import BadMessage, ClientError, SowError

FRAME_MESSAGES = 1000
"""Messages of a frame, which is stored completely or not at all: enough to share the cost of a
frame and of an fsync, few enough to find the bad message when one is refused."""


def live_call(method: Callable[..., Live | LiveWindow]) -> LiveCall[Live, LiveWindow]:
    """`Client.live`, as type checkers see it."""
    return cast("LiveCall[Live, LiveWindow]", method)


class Client(ShownState, EventRequests, QueueRequests):
    """One server, from `async with` to its end (or `close`).

    `url` is the server's address, ``http://`` if it names no scheme; raises ClientError for an
    invalid one. Several, as a list or text with commas, are servers of one log: the client uses
    the first that answers, and goes on at another when it is lost (docs/clients.md, "Several
    addresses"); with `read_your_writes` reads wait until the server in use has what this client
    has written. The client connects with its first request. `name` is the client's name in
    `/v1/sessions` and in the server's log. `retry` says how long subscriptions try to reconnect.

    Credentials are a `token` (or a function that returns one, for tokens that expire), or `user`
    and `password`, or the file of a `certificate`, in PEM form, and that of its `key`. `ca` is the
    file of certificates by which a server at https:// is trusted; None: those that the machine
    trusts.

    Every method that sends a request raises, beside what it names: Unreachable when no server
    answers, Disconnected when the connection ends before the answer, and otherwise the error of
    `sow.errors` that the server reported, over HTTP or a WebSocket.
    """

    _shown = ("name", "url")

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
        self._addresses = Addresses(checked_urls(url), read_your_writes)
        self._access = ClientAuth(
            token=token, user=user, password=password, certificate=certificate, key=key, ca=ca
        )
        self.name = name
        self.retry = retry or Retry()
        self._session = HttpSession(self._addresses, self._access, self._traces)
        session = self._session.opened
        self._sockets = Sockets(self._addresses, session, self._access, name)
        self._publishers: dict[str, Publisher] = {}
        self._numbered: list[IdempotentPublisher] = []
        self._subscriptions: dict[Subscription | MessageConsumer, None] = {}
        """Those that are not closed."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """The address of the server in use."""
        return self._addresses.current

    async def close(self) -> None:
        """Close every connection of this client: its subscriptions end, and messages that are not
        acknowledged may or may not be stored. The client can be used again."""
        self._session.check_loop()
        for followed in [*self._subscriptions]:
            await followed.close()
        for publisher in self._publishers.values():
            await publisher.close()
        self._publishers.clear()
        while self._numbered:
            await self._numbered.pop().close()
        await self._session.close()

    def _traces(self) -> list[aiohttp.TraceConfig]:
        """Hooks of the HTTP session: no redirect is followed."""
        return [refused_redirects(self._addresses)]

    @property
    def http(self) -> Http:
        """Requests that have no method here (docs/http.md); use it on the event loop."""
        return Http(self._addresses, self._session.opened(), self._access)

    # Publishing.

    async def publisher(
        self,
        topic: str,
        *,
        window: int = WINDOW_FRAMES,
        client: str | None = None,
        seq: int | None = None,
    ) -> Publisher:
        """A connection for many messages to one topic: the fastest way to publish.

        `window` is how many frames may be unacknowledged before `send` waits. Close the publisher
        after use, or enter it with `async with`. The server checks the topic with the first frame.
        With the durable name `client` messages are numbered, from `seq` on, or from behind what the
        server has of that name: what it has is not stored again, and what a broken connection has
        not answered goes to whichever server takes it, in the time of `retry`.
        """
        socket = await self._sockets.for_writes(client)
        numbers = None if client is None else socket.sequence + 1 if seq is None else seq
        move, noted = partial(self._sockets.after, owned=client), self._addresses.wrote
        return Publisher(socket, topic, window, numbers, move, noted, self.retry)

    def idempotent_publisher(
        self, name: str, store: str | os.PathLike[str] | None = None, *, adopt: bool = False
    ) -> IdempotentPublisher:
        """A publisher whose messages are stored exactly once, whatever dies (`async with`).

        `name` is durable: the server knows it again. `store` is the file in which messages wait
        until the server has them, also when this program is killed; None: memory. A file for
        another log is refused, unless the publisher may `adopt` it. Raises ClientError for a file
        in use, and Damaged for one that is not as it was written.
        """
        kept, wrote = PublishStore(name, store), self._addresses.wrote
        made = IdempotentPublisher(self._sockets.connect_as, self.retry, kept, adopt, wrote)
        self._numbered.append(made)
        return made

    async def publish(
        self,
        topic: str,
        messages: Document,
        *,
        key: str | None = None,
        expires_s: float | None = None,
        nan_as_null: bool = False,
    ) -> str:
        """Publish one message or many; returns the last one's bookmark once all are durable.

        `messages` is one message, an iterable of them, or a data frame of pandas, polars or Arrow,
        whose rows are messages. bytes and str are bodies as they are, anything else is encoded as
        JSON (docs/clients.md, "What is published"). `key` names the record, for one message to a
        topic without `Key`. `expires_s` is the lifetime of the records in seconds, up to 1e9, 0 for
        ever, if the topic has `Expiration`; None takes the topic's own. With `nan_as_null` NaN and
        pandas' NaT are encoded as null.

        Up to 1,000 messages are stored atomically; more are sent in frames of 1,000, in order.
        Raises BadMessage with the index of the first bad message, for values that JSON does not
        have, such as NaN, before anything is sent; UnknownTopic, InvalidTopic for a conflated
        topic, TooLarge, and StoreError or DiskFull while the server's disk cannot be written.
        `published` of a Disconnected is the number of messages that are certainly stored.
        """
        return await self._publish(topic, messages, key, expires_s, nan_as_null, delta=False)

    async def delta_publish(
        self,
        topic: str,
        messages: Document,
        *,
        key: str | None = None,
        expires_s: float | None = None,
        nan_as_null: bool = False,
    ) -> str:
        """Publish changes: each message is merged into its record (docs/semantics.md, Rule 8).

        Arguments, result and errors are those of `publish`. A message without a record becomes the
        record.
        """
        return await self._publish(topic, messages, key, expires_s, nan_as_null, delta=True)

    async def publish_once(
        self,
        topic: str,
        messages: Document,
        *,
        writer: str,
        epoch: int,
        delta: bool = False,
        nan_as_null: bool = False,
    ) -> str:
        """Publish messages as one batch, atomically and exactly once, however often it is retried;
        returns a bookmark once all are durable.

        `writer` names the publisher and `epoch` is the number of the batch, which increases with
        each one: the same number again changes nothing, so a program that does not know whether its
        batch was applied publishes it again. `messages` and `nan_as_null` are those of `publish`;
        with `delta` each is merged into its record.

        `retry` says how long to wait for a server that does not answer. Raises what `publish`
        raises, and a ClientError for an epoch older than the last one or an empty writer.
        """
        if not writer:
            raise ClientError("publish_once needs a name of the publisher as writer; this is empty")
        batch = RepeatableBatch(lambda: self.http, self.retry, topic, writer, epoch, delta=delta)
        try:
            for frame in await self._frames(messages, nan_as_null):
                await batch.add(frame)
            return await batch.commit()
        except ClientError:
            await batch.forget()
            raise

    async def _publish(
        self,
        topic: str,
        messages: Document,
        key: str | None,
        expires_s: float | None,
        nan_as_null: bool,
        delta: bool,
    ) -> str:
        frames = await self._frames(messages, nan_as_null)
        if isinstance(frames, list) and any(b"\n" in body for frame in frames for body in frame):
            bodies = [body for frame in frames for body in frame]
            return await self._publish_over_http(topic, bodies, key, expires_s, delta)
        self._session.check_loop()
        publisher = await self._kept(topic) or await self.publisher(topic)
        sent, published = publisher.sent, publisher.published
        try:
            for frame in frames:
                await publisher.send(frame, key=key, expires_s=expires_s, delta=delta)
            await publisher.drain()
        except BaseException as error:
            # A failed publisher sends nothing more: the next publish opens another one.
            await publisher.close()
            if isinstance(error, BadMessage):
                error.index -= sent
            if isinstance(error, Disconnected):
                raise error.midway(publisher.published - published) from error
            raise
        await self._keep(topic, publisher)
        return publisher.bookmark

    async def _frames(self, messages: Document, nan_as_null: bool) -> RowBodies | list[list[bytes]]:
        """The bodies of messages, frame by frame; all are checked when this returns."""
        if is_data_frame(messages):
            rows = RowBodies(messages, nan_as_null)
            for _ in rows:
                await asyncio.sleep(0)  # let other tasks run
            return rows
        bodies = encode_all(messages, nan_as_null)
        return [bodies[at : at + FRAME_MESSAGES] for at in range(0, len(bodies), FRAME_MESSAGES)]

    async def _kept(self, topic: str) -> Publisher | None:
        """The publisher of an earlier publish, unless its connection has ended."""
        publisher = self._publishers.pop(topic, None)
        if publisher is None or publisher.is_open:
            return publisher
        await publisher.close()
        return None

    async def _keep(self, topic: str, publisher: Publisher) -> None:
        """Keep a publisher for the next publish, unless another one is kept already."""
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

    async def delete(
        self, topic: str, *, filter: str | None = None, keys: Sequence[str] | None = None
    ) -> int:
        """Delete records; returns their number, once that is durable.

        They are selected either by `filter`, an expression (docs/expressions.md), or by `keys`,
        SowKeys as decimal text; raises ClientError for both or neither, BadFilter with the
        position, UnknownTopic. Keys without a record are ignored.
        """
        which = parameters(given({"filter": filter, "keys": keys}))
        answer = await self.http.json("DELETE", records_of(topic), which, kind=dict)
        return int(answer["deleted"])

    # Queries.

    async def topics(self) -> list[dict[str, Any]]:
        """All topics of the server: for each a dictionary as of `GET /v1/topics`
        (docs/http.md)."""
        found = await self.http.json("GET", "/v1/topics", kind=list)
        return ShownList("topics", found)

    async def topic(self, name: str) -> dict[str, Any]:
        """One topic by its exact name, as of `GET /v1/topics/{topic}`; raises UnknownTopic."""
        return ShownDict(name, await self.http.json("GET", topic_path(name), kind=dict))

    def query(
        self,
        topic: str,
        *,
        filter: str | None = None,
        keys: Sequence[str] | None = None,
        order_by: str | None = None,
        top_n: int | None = None,
        skip_n: int | None = None,
        select: Paths | None = None,
        projection: Paths | None = None,
        grouping: Paths | None = None,
        as_of: str | None = None,
    ) -> QueryRequest:
        """The records that match, as of one moment.

        With asyncio the query is sent when it is awaited. It returns an `Answer` with the decoded
        records, whose `to_arrow()`, `to_pandas()` and `to_polars()` return a table with the types
        of the topic (docs/http.md).

        `filter` is an expression (docs/expressions.md), `keys` are SowKeys as decimal text,
        `order_by` is such as ``"/px DESC, /id"`` or ``"/qty * /px"`` (without it the order of first
        publication, docs/semantics.md, Rule 9), `top_n` and `skip_n` are numbers of records,
        `select` is paths, as a list or as comma text. `projection` and `grouping` return aggregates
        over the records that match (docs/queries.md): lists such as
        ``["SUM(/qty) AS /qty", "/desk"]`` and ``["/desk"]``. With `as_of`, a bookmark or a time,
        the query is of the state at that moment. Raises BadFilter with the position if an
        expression does not compile, UnknownTopic, ClientError.
        """
        return QueryRequest(self.http, topic, parameters(given(locals())))

    def rows(
        self,
        topic: str,
        *,
        meta: bool = False,
        filter: str | None = None,
        keys: Sequence[str] | None = None,
        order_by: str | None = None,
        top_n: int | None = None,
        skip_n: int | None = None,
        select: Paths | None = None,
        projection: Paths | None = None,
        grouping: Paths | None = None,
        as_of: str | None = None,
    ) -> AbstractAsyncContextManager[Rows]:
        """The records that match as JSON texts, read as they arrive (`async with`).

        Arguments and errors are those of `query`. With `meta` each text is an object with `k` (the
        SowKey), `bm` (the bookmark of its newest change), `ts` (its time) and `d`, the record.
        """
        requested = parameters(given(locals()))
        del requested["meta"]  # which is sent last, after what the caller has chosen
        return self.http.rows(topic, {**requested, "meta": meta})

    async def explain(
        self,
        topic: str,
        *,
        filter: str | None = None,
        keys: Sequence[str] | None = None,
        order_by: str | None = None,
        top_n: int | None = None,
        skip_n: int | None = None,
        select: Paths | None = None,
        projection: Paths | None = None,
        grouping: Paths | None = None,
        as_of: str | None = None,
    ) -> dict[str, Any]:
        """The plan of a query: a dictionary of its terms, the index that serves each, and the rows
        it touched (docs/queries.md). Arguments and errors are those of `query`."""
        requested = {**parameters(given(locals())), "explain": True}
        found = await self.http.json("GET", records_of(topic), requested, kind=dict)
        return ShownPlan(f"plan of a query of {topic}", found)

    # Subscriptions.

    def subscribe(
        self,
        topic: str,
        *,
        filter: str | None = None,
        oof: bool = False,
        delta: bool = False,
        no_empties: bool = False,
        select: Paths | None = None,
        conflation: Interval | None = None,
        conflation_key: Sequence[str] | None = None,
        timestamp: bool = False,
        no_sowkey: bool = False,
        bookmark: str | None = None,
    ) -> Subscription:
        """Updates from now on, or from a bookmark on.

        `topic` is a name, or a regular expression over names. `filter` is an expression, `oof`
        sends a message for records that leave focus (docs/semantics.md, Rule 10), `delta` sends
        changed fields instead of whole records (Rule 11), and `no_empties` no empty deltas.
        `select` is paths. `conflation` (``"1s"``, ``"auto"`` or a timedelta) sends at most one
        update of a record per interval (Rule 1), and `conflation_key` gives the paths that identify
        a record. `timestamp` adds the time to each line, `no_sowkey` leaves SowKeys out. Updates
        start after `bookmark` (Rule 14).

        The subscription is opened when it is entered or first read, and raises errors then:
        BadFilter, UnknownTopic, ClientError.
        """
        return self._subscription(*subscription(topic, given(locals()), snapshot=False))

    def sow_and_subscribe(
        self,
        topic: str,
        *,
        filter: str | None = None,
        oof: bool = False,
        delta: bool = False,
        no_empties: bool = False,
        select: Paths | None = None,
        conflation: Interval | None = None,
        conflation_key: Sequence[str] | None = None,
        timestamp: bool = False,
        no_sowkey: bool = False,
        projection: Paths | None = None,
        grouping: Paths | None = None,
        order_by: str | None = None,
        top_n: int | None = None,
        skip_n: int | None = None,
        live: bool = False,
        positions: bool = False,
        as_of: str | None = None,
        last: int | None = None,
    ) -> Subscription:
        """The current records, then their updates, without gaps or repeats.

        Arguments and errors are those of `subscribe`, except `bookmark`; `order_by` and `top_n`
        apply to the snapshot, and of a series it has the `last` so many events of each record. With
        `as_of`, a bookmark or a time, it begins with the records of then, and sends what has
        changed since. With `live`, and optionally `skip_n`, it is a live window
        (docs/queries.md), whose lines have the positions of records if `positions` is True. With
        `projection` and `grouping`, as for `query`, it sends aggregates over the records that
        match instead of the records.
        """
        return self._subscription(*subscription(topic, given(locals()), snapshot=True))

    @live_call
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
        last: int | None = None,
        as_of: str | None = None,
    ) -> Live | LiveWindow:
        """The records of a topic as a mapping that is kept current (`async with`).

        With `top_n` it is a list of so many records, after the first `skip_n` in the order of
        `order_by`, which is kept in that order (docs/queries.md); raises ClientError for one of
        these without `top_n`.

        The other arguments are those of `sow_and_subscribe`; `oof` is always set, and updates come
        as deltas unless `delta` is False. With `as_of` it shows the records of then, and takes what
        has changed since, up to the present; a window has no past. Entering it raises what
        `subscribe` raises.
        """
        if top_n is None and (order_by is not None or skip_n):
            raise ClientError(
                "order_by and skip_n are for a live window, which has a size; give top_n"
            )
        if top_n is not None and as_of is not None:
            raise ClientError(
                "a live window has no past; leave out top_n, or query with as_of and top_n"
            )
        focus = {**given(locals()), "oof": True}
        if top_n is None:
            del focus["skip_n"]
        else:
            focus |= {"live": True, "positions": True}
        shown = {name: focus.get(name) for name in ("select", "projection", "grouping")}

        def columns(name: str) -> Awaitable[Any]:
            return self.http.columns(name, **parameters(shown))

        followed = self._subscription(*subscription(topic, focus, snapshot=True))
        return (Live if top_n is None else LiveWindow)(followed, topic, columns)

    def _subscription(self, command: str, requested: dict[str, object]) -> Subscription:
        made = Subscription(
            self._sockets, command, requested, self.retry, self._forget, self._is_logged
        )
        self._subscriptions[made] = None
        return made

    async def _is_logged(self, topic: str) -> bool:
        """Whether the records of a topic are the changes of the log: no copy, view or pattern."""
        try:
            return bool((await self.topic(topic))["kind"] == "topic")
        except SowError:
            return False

    def _consumer(self, queue: str, max_backlog: int) -> MessageConsumer:
        made = MessageConsumer(self._sockets, queue, max_backlog, self.retry, self._forget)
        self._subscriptions[made] = None
        return made

    def _forget(self, closed: Subscription | MessageConsumer) -> None:
        self._subscriptions.pop(closed, None)
