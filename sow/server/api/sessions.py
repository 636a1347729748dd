"""Sessions over HTTP: list and describe them, switch conflation of their queues, close them.

A user sees their own sessions; an administrator sees all, and changes to another user's session are
logged. Sessions are opened elsewhere (`sow.server.net.websocket`, `sow.server.net.sse`), and
`sow.server.api.explain_session` explains why one gets fewer updates.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any

import orjson
from aiohttp import web

from sow.core.cooperative import Task
from sow.core.media_types import JSON
from sow.core.paths import value_at
from sow.errors import ClientError, UnknownRecord, shown
from sow.expressions import Filter, check_fields_alone
from sow.protocol.replies import timestamp
from sow.security.authorization import Permissions
from sow.server.api.response_schemas import (
    Conflated,
    SessionClosed,
    SessionDescribed,
    SessionsChanged,
)
from sow.server.api.topics import waits_ms
from sow.server.http.authn_middleware import AUTHN, permissions_of
from sow.server.http.body_reading import read_body
from sow.server.http.chunked_response import answer_array
from sow.server.http.responses import json_response
from sow.server.http.route import operation, parameters_of, read_flag, route
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.commands.executor import Executor
from sow.sessions.commands.session_manager import OPERATOR, GoneSession
from sow.sessions.subscriptions.subscription import Subscription
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.sessions import Session

SESSIONS_PATH, SESSION_PATH = "/v1/sessions", "/v1/sessions/{id}"
DESCRIBED_MAX = 1000
"""Subscriptions of a session that are described: as many as a person reads, in a millisecond."""


class SessionsHandler:
    """`/v1/sessions` of one server."""

    def __init__(self, runtime: ServerRuntime, executor: Executor) -> None:
        self._runtime = runtime
        self._executor = executor

    @route("GET", SESSIONS_PATH, "logon", "Sessions and their queues", ("closed",))
    @operation("list_sessions", list[SessionDescribed], tagged=True)
    async def listed(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/sessions`: all sessions and their queues, each as of the moment at which it is
        written; with `closed`, the last closed ones."""
        rights = permissions_of(request)
        if read_flag(parameters_of(request), "closed"):
            gone = [one for one in reversed(self._executor.sessions.gone) if is_of(one, rights)]
            return json_response([describe_gone(one, self._runtime.now_us()) for one in gone])
        sessions = [one for one in self._executor.sessions if is_of(one, rights)]
        return await answer_array(self._runtime.turns, request, sessions, self._described)

    def _described(self, session: Session) -> dict[str, Any]:
        followed = self._executor.subscriptions.of(session)
        return describe_session(session, len(followed), self._runtime.now_us())

    @route("GET", SESSION_PATH, "logon", "One session, and what it follows")
    @operation("describe_session", SessionDescribed)
    async def one(self, request: web.Request) -> web.Response:
        """`GET /v1/sessions/{id}`: one session and its subscriptions."""
        session = self._found(request)
        followed = self._executor.subscriptions.of(session)
        following = describe_followed(followed.values(), self._runtime.now_us())
        return json_response({**self._described(session), "following": following})

    @route("POST", SESSION_PATH, "logon", "Switch a session's conflation")
    @operation("change_session", SessionDescribed, body=Conflated, takes=(JSON,))
    async def change(self, request: web.Request) -> web.Response:
        """`POST /v1/sessions/{id}`: allow or forbid conflation of a session's queue."""
        self._found(request)
        conflated = await _conflated(request)
        session = self._session(request)  # it may have been closed meanwhile
        session.allow_folding(conflated)
        return json_response(self._described(session))

    @route("POST", SESSIONS_PATH, "logon", "Conflate or not", ("filter",))
    @operation(
        "change_sessions", SessionsChanged, body=Conflated, takes=(JSON,), requires=("filter",)
    )
    async def change_some(self, request: web.Request) -> web.Response:
        """`POST /v1/sessions`: the same for all sessions whose description matches a filter."""
        requested = parameters_of(request)
        if "filter" not in requested:
            raise ClientError("give a filter over sessions, such as filter=/client LIKE '^grid'")
        condition = self._runtime.filter(requested["filter"])
        check_fields_alone(condition, "a filter over sessions")
        conflated = await _conflated(request)
        rights = permissions_of(request)
        if rights.may("admin"):
            request.app[AUTHN].note_admin(request, rights)
        changing = self._changing(condition, conflated, rights)
        return json_response({"changed": await self._runtime.turns.run("sessions", changing)})

    def _changing(self, condition: Filter, conflated: bool, rights: Permissions) -> Task[list[str]]:
        changed = []
        for session in self._executor.sessions:
            if not is_of(session, rights):
                continue
            described = self._described(session)
            values = [value_at(described, path) for path in condition.paths]
            if condition.holds(values):
                session.allow_folding(conflated)
                changed.append(session.id)
            yield
        return changed

    @route("DELETE", SESSION_PATH, "logon", "Close a session")
    @operation("end_session", SessionClosed)
    async def end(self, request: web.Request) -> web.Response:
        """`DELETE /v1/sessions/{id}`: close a session."""
        session = self._session(request)
        self._executor.sessions.end(session, OPERATOR)
        self._runtime.wake()
        return json_response({"closed": session.id})

    def _found(self, request: web.Request) -> Session:
        session_id = request.match_info["id"]
        session = self._executor.sessions.find(session_id)
        if session is None or not is_of(session, permissions_of(request)):
            raise UnknownRecord(f"no session {shown(session_id)}; GET /v1/sessions lists them")
        return session

    def _session(self, request: web.Request) -> Session:
        """The session to change; if it is another user's, the administrator is logged."""
        session, rights = self._found(request), permissions_of(request)
        if session.rights.owner != rights.owner:
            request.app[AUTHN].note_admin(request, rights)
        return session


def is_of(session: Session | GoneSession, rights: Permissions) -> bool:
    """Whether these permissions allow to see a session: the user's own, or any for Admin."""
    return rights.may("admin") or session.rights.owner == rights.owner


async def _conflated(request: web.Request) -> bool:
    """The value in the body ``{"conflated": true}``; raises ClientError."""
    try:
        requested = orjson.loads(await read_body(request))
    except orjson.JSONDecodeError:
        requested = None
    if not isinstance(requested, dict) or list(requested) != ["conflated"]:
        raise ClientError('the body must be {"conflated": true} or {"conflated": false}')
    if not isinstance(requested["conflated"], bool):
        raise ClientError(
            f"conflated is {shown(str(requested['conflated']))}; it must be true or false"
        )
    return requested["conflated"]


def describe_session(session: Session, subscriptions: int, now_us: int) -> dict[str, Any]:
    """A connected session and its queue."""
    oldest_us = session.outbox.oldest_us()
    return {
        "id": session.id,
        "client": session.client,
        **_peer(session),
        "connected": session.connected and session.ended is None,
        "connected_ms": max(0, now_us - session.connected_us) / 1000,
        "subscriptions": subscriptions,
        "queue_messages": session.outbox.message_count,
        "queue_bytes": session.outbox.size_bytes,
        "client_bytes": session.memory.share.used,
        "conflated": session.conflates,
        "conflated_messages": session.outbox.folded,
        "dropped_messages": session.overflow.dropped,
        "lag_ms": waits_ms(oldest_us, now_us),
        "reason": session.ended,
    }


def _peer(session: Session | GoneSession) -> dict[str, Any]:
    """The user of a session, the address of its client, and when it connected."""
    user = session.rights.user
    return {
        "user": None if user is None else user.name,
        "address": session.address,
        "since": timestamp(session.connected_us),
    }


def describe_followed(followed: Iterable[Subscription], now_us: int) -> list[dict[str, Any]]:
    """The subscriptions of a session and their conflation counters."""
    return [_describe_one(one, now_us) for one in islice(followed, DESCRIBED_MAX)]


def _describe_one(one: Subscription, now_us: int) -> dict[str, Any]:
    key, channel = one.key, one.channel
    described: dict[str, Any] = {
        "s": one.name,
        "topic": one.topic,
        "filter": key.filter,
        "interval_ms": None if key.interval_us is None else key.interval_us / 1000,
        "auto": key.auto,
        "window": key.window is not None,
    }
    if isinstance(channel, ConflatedChannel):
        oldest_us = channel.conflator.oldest_us()
        described |= {
            "pending": len(channel.conflator),
            "oldest_pending_ms": waits_ms(oldest_us, now_us),
            "updates_in": channel.updates_in,
            "updates_out": channel.lines_out,
        }
    return described


def describe_gone(gone: GoneSession, now_us: int) -> dict[str, Any]:
    """A closed session and the reason."""
    return {
        "id": gone.id,
        "client": gone.client,
        **_peer(gone),
        "connected": False,
        "connected_ms": max(0, gone.closed_us - gone.connected_us) / 1000,
        "closed_ms": max(0, now_us - gone.closed_us) / 1000,
        "conflated_messages": gone.folded,
        "dropped_messages": gone.dropped,
        "reason": gone.reason,
    }
