"""Leases over HTTP: messages of a queue are taken, acknowledged, given back and kept for longer.

A lease has an id that only its holder knows; it is the server's proof that an acknowledgement is
the holder's, also after a restart. A request that finds no message may wait for one: it stands in
line with all other consumers, and takes what comes in one step. An answer is sent when its leases
are durable; where the client has gone meanwhile, they are given back.
"""

import asyncio
import secrets
from collections.abc import Sequence

import msgspec
import orjson
from aiohttp import web

from conflated_topics.user_texts import IntervalError, interval_us
from sow.core.media_types import JSON
from sow.engine.queues import GIVEN_AT_ONCE, DeliveredMessage, ReceivingConsumer, RunningQueue
from sow.errors import ClientError, UnknownRecord, clipped, shown
from sow.protocol.replies import timestamp
from sow.server.api.response_schemas import LeaseChange, Leased
from sow.server.http.authn_middleware import permissions_of
from sow.server.http.body_reading import read_body
from sow.server.http.route import operation, parameters_of, read_count, read_seconds, route
from sow.server.loop.runtime import ServerRuntime
from sow.server.net.connection_supervisor import end_with_client
from sow.sessions.commands.executor import Executor
from sow.sessions.commands.queue_commands import check_readable

LEASE_PATH = "/v1/topics/{topic}/lease"
LEASED_MAX = GIVEN_AT_ONCE
"""Messages of one answer: they are leased in the step of the request."""
WAIT_S_MAX = 60.0
"""Proxies close a connection that is silent for much longer; a client asks again."""
EXTENDED_US_MAX = 86_400_000_000
"""A day: who works for longer extends the lease again, and so shows that it lives."""
ID_BYTES = 16
"""Random bytes of an id: nobody guesses one."""
CHANGES = 'send {"cancel":true} or {"extend":"30s"}'
"""What a body may be."""


class LeasesHandler:
    """`/v1/topics/{topic}/lease` of one server."""

    def __init__(self, runtime: ServerRuntime, executor: Executor) -> None:
        self._runtime = runtime
        self._commands = executor.queues

    @route("POST", LEASE_PATH, "read", "Lease messages of a queue", ("n", "wait"))
    @operation("lease_messages", list[Leased])
    async def lease(self, request: web.Request) -> web.Response:
        """`POST …/lease`: up to `n` messages, and where there is none, what comes within `wait`."""
        queue = self._commands.find(request.match_info["topic"])
        check_readable(queue, permissions_of(request))
        count, wait_s = _requested(request)
        got: asyncio.Future[list[DeliveredMessage]] = asyncio.get_running_loop().create_future()

        def deliver(messages: list[DeliveredMessage]) -> None:
            queue.leave(consumer)
            got.set_result(messages)

        consumer = ReceivingConsumer(
            count, lambda bookmark: f"{bookmark}-{secrets.token_hex(ID_BYTES)}", deliver
        )
        if wait_s:
            end_with_client(request)  # else a message would be leased to nobody
        queue.join(consumer, self._runtime.now_us())
        try:
            if not got.done() and wait_s:
                await asyncio.wait((got,), timeout=wait_s)
            messages = got.result() if got.done() else []
            queue.leave(consumer)
            await self._runtime.durable()
        except BaseException:
            queue.leave(consumer)
            self._give_back(queue, got)
            raise
        documents = _documents(queue, messages)
        return web.Response(body=b"[" + b",".join(documents) + b"]", content_type=JSON)

    def _give_back(
        self, queue: RunningQueue, got: "asyncio.Future[list[DeliveredMessage]]"
    ) -> None:
        """Nobody waits for these any more."""
        for one in got.result() if got.done() and not got.cancelled() else ():
            queue.cancel([one.bookmark], one.lease, self._runtime.now_us())
        queue.settle(self._runtime.now_us())

    @route("DELETE", LEASE_PATH + "/{id}", "delete", "Acknowledge a message of a queue")
    @operation("acknowledge_message", answers=(), also=(204,))
    async def acknowledge(self, request: web.Request) -> web.Response:
        """`DELETE …/lease/{id}`: the message is done. 404 where the lease is over."""
        queue, bookmark, lease = self._named(request)
        self._check(queue, queue.acknowledge([bookmark], lease, self._runtime.now_us()), lease)
        await self._runtime.durable()
        return web.Response(status=204)

    @route("PATCH", LEASE_PATH + "/{id}", "read", "Give a message of a queue back, or keep it")
    @operation("change_lease", answers=(), body=LeaseChange, takes=(JSON,), also=(204,))
    async def change(self, request: web.Request) -> web.Response:
        """`PATCH …/lease/{id}`: `{"cancel":true}`, or `{"extend":"30s"}` from now on."""
        queue, bookmark, lease = self._named(request)
        extended_us = _extended_us(await read_body(request))
        now_us = self._runtime.now_us()
        if extended_us is None:
            count = queue.cancel([bookmark], lease, now_us)
        else:
            count = queue.extend([bookmark], lease, now_us + extended_us, now_us)
        self._check(queue, count, lease)
        await self._runtime.durable()
        return web.Response(status=204)

    def _named(self, request: web.Request) -> tuple[RunningQueue, int, str]:
        """The queue of an address, and the bookmark in the id of the lease."""
        queue, lease = self._commands.find(request.match_info["topic"]), request.match_info["id"]
        bookmark, _, secret = lease.partition("-")
        if not (bookmark.isascii() and bookmark.isdigit() and len(bookmark) < 19 and secret):
            self._check(queue, 0, lease)
        return queue, int(bookmark), lease

    def _check(self, queue: RunningQueue, count: int, lease: str) -> None:
        if not count:
            raise UnknownRecord(
                f"queue {queue.topic.name} has no lease {shown(lease)}: it is over, or never was; "
                "the message goes to another consumer, unless it was acknowledged"
            )
        queue.settle(self._runtime.now_us())


def _requested(request: web.Request) -> tuple[int, float]:
    requested = parameters_of(request)
    count, wait_s = read_count(requested, "n"), read_seconds(requested, "wait")
    if count is not None and not 1 <= count <= LEASED_MAX:
        raise ClientError(f"n={count}: lease 1 to {LEASED_MAX} messages at a time")
    if wait_s is not None and wait_s > WAIT_S_MAX:
        raise ClientError(
            f"wait={wait_s:g}: a request waits up to {WAIT_S_MAX:g} seconds; send it again then"
        )
    return count or 1, wait_s or 0.0


def _extended_us(body: bytes) -> int | None:
    """How long a lease is to last from now on; None: it is given back. Raises ClientError."""
    try:
        change = msgspec.json.decode(body, type=LeaseChange)
    except msgspec.MsgspecError as error:
        raise ClientError(f"the body is no change of a lease: {error}; {CHANGES}") from None
    if change.cancel is bool(change.extend):
        raise ClientError(f"a lease is given back or kept for longer: {CHANGES}")
    if change.cancel:
        return None
    try:
        extended_us = interval_us(change.extend)
    except IntervalError as error:
        raise ClientError(f"extend is {shown(change.extend)}: {error.instead}") from None
    if not 0 < extended_us <= EXTENDED_US_MAX:
        raise ClientError(
            f"extend is {clipped(change.extend)}: a lease is kept for up to a day at a time"
        )
    return extended_us


def _documents(queue: RunningQueue, messages: Sequence[DeliveredMessage]) -> list[bytes]:
    bodies = queue.topic.records.renderer.line_bodies([one.body for one in messages])
    return [
        b'{"lease":%b,"bm":"%d","k":%b,"d":%b,"deliveries":%d,"until":"%b"}'
        % (
            orjson.dumps(one.lease),
            one.bookmark,
            orjson.dumps(one.key),
            body,
            one.deliveries,
            timestamp(one.until_us).encode(),
        )
        for one, body in zip(messages, bodies, strict=True)
    ]
