"""Sessions over HTTP: list and describe them, switch conflation of their queues, close them.

A user sees their own sessions; an administrator sees all, and changes to another user's session are
logged. Sessions are opened elsewhere (`sow.server.net.websocket`, `sow.server.net.session_writer`).

`GET /v1/sessions/{id}/why` explains what a session's client does not get, since when, and why: a
list of sentences and advice, which the command line shows unchanged. It is built on request from
counters that the session keeps anyway (`sow.streaming.sessions`).
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import orjson
from aiohttp import web

from sow.core.cooperative import Task
from sow.core.humanize import counted, duration, size
from sow.core.media_types import JSON
from sow.core.paths import value_at
from sow.errors import ClientError, UnknownRecord, clipped, shown
from sow.expressions import Filter, check_fields_alone
from sow.protocol.replies import QUEUE_MEMORY, timestamp
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
from sow.sessions.commands.session_manager import NOT_ENTITLED, NOT_RECOVERED, OPERATOR, GoneSession
from sow.sessions.subscriptions import Subscription
from sow.streaming import sessions
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.outbox.entries import ConflationStats
from sow.streaming.outbox.overflow import GivenUp
from sow.streaming.sessions import SLOW, Session

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


EXPLAIN = "Explain a session: what it does not receive, since when, why, and what to do"
SENT_SUBSCRIPTIONS = 20
"""Subscriptions that are explained: as many as a person reads. `GET /v1/sessions/{id}` has more."""

SLOW_DOWN = (
    "to get fewer updates, by choice: follow with conflation=1s, a narrower filter, fewer fields "
    "(select), or a conflated topic instead of its original"
)
SEND_ALL = (
    "to get each update: read faster, or raise QueueMaxMessages and QueueMaxBytes in "
    'Sessions; POST /v1/sessions/{id} with {"conflated":false} folds nothing, and ends the session '
    "when its queue is full"
)
FOLD_AGAIN = 'to have its queue folded again: POST /v1/sessions/{id} with {"conflated":true}'
SUBSCRIBE_AGAIN = "a dropped subscription can be opened again, and begins with a new snapshot"
WHY_GONE: Mapping[str, str] = {
    "disconnected": "its client closed the connection, or lost it with nothing to come back to",
    "expired": "its client was away for longer than ReconnectTimeout",
    OPERATOR: "it was closed by request: DELETE /v1/sessions/{id}",
    NOT_RECOVERED: "its client reconnected, and had lost more than RecoveryBuffer keeps",
    NOT_ENTITLED: (
        "its client reconnected for lines that were sent before its user's permissions changed, "
        "which may be more than the user may see now"
    ),
    QUEUE_MEMORY: (
        "more waited for all sessions together, or for those of its client, than "
        "Limits/QueueMemory allows, and most of it for this one"
    ),
    SLOW: (
        "its client read more slowly than updates came, for a second and more, and folding did not "
        "bring its queue below its bounds"
    ),
    sessions.BARRED: "its user, or the credentials used, are not valid any more",
    sessions.OUTDATED: (
        "the permissions of its user changed while records selected by the old ones were queued"
    ),
}
"""What is said of a reason beside the reason itself."""
AFTER_GONE: Mapping[str, str] = {
    SLOW: SLOW_DOWN,
    QUEUE_MEMORY: SLOW_DOWN,
    NOT_RECOVERED: "raise RecoveryBuffer in Sessions, or resume from a bookmark",
    NOT_ENTITLED: "subscribe again, which begins with a new snapshot",
    "expired": "raise ReconnectTimeout in Sessions, or resume from a bookmark",
    sessions.BARRED: "log on again",
    sessions.OUTDATED: "log on again, and subscribe again",
}
"""And what to do about it."""

LATE_US = 1_000_000
"""A session that is so far behind shows what is no longer so: people see that."""

Story = dict[str, Any]


class ExplainSessionHandler:
    """Explains sessions to their own users, and to administrators."""

    def __init__(self, runtime: ServerRuntime, executor: Executor) -> None:
        self._runtime = runtime
        self._executor = executor

    @route("GET", SESSION_PATH + "/why", "logon", EXPLAIN)
    @operation("explain_session", dict[str, Any])
    async def handle(self, request: web.Request) -> web.Response:
        """`GET /v1/sessions/{id}/why`, of an open session or one of the last that were closed."""
        return json_response(self.explain(request.match_info["id"], permissions_of(request)))

    def explain(self, called: str, rights: Permissions) -> Story:
        """The story of a session, by its id or by the name that only its owner knows; raises
        UnknownRecord if there is none that these permissions allow to see."""
        now_us, opened = self._runtime.now_us(), self._executor.sessions
        session = opened.find(called)
        if session is not None and is_of(session, rights):
            followed = self._executor.subscriptions.of(session).values()
            return story_of(session, followed, now_us)
        for gone in opened.gone:
            if gone.id == called and is_of(gone, rights):
                return story_of_gone(gone, now_us)
        raise UnknownRecord(f"no session {shown(called)}; GET /v1/sessions lists them")


def story_of(session: Session, followed: Iterable[Subscription], now_us: int) -> Story:
    """The story of an open session."""
    why = [*_standing(session, now_us), *_waiting(session, now_us)]
    some = [*islice(followed, SENT_SUBSCRIPTIONS + 1)]
    for one in some[:SENT_SUBSCRIPTIONS]:
        why += _following(one, session)
    if len(some) > SENT_SUBSCRIPTIONS:
        why.append("it follows more: GET /v1/sessions/{id} lists them")
    why += map(_given_up, session.overflow.given_up)
    return {
        "id": session.id,
        "client": session.client,
        "why": why,
        "instead": [one.replace("{id}", session.id) for one in _advice(session, now_us)],
    }


def story_of_gone(gone: GoneSession, now_us: int) -> Story:
    """The story of a closed session."""
    reason = gone.reason.removeprefix("closed for ")
    end = f"it ended {timestamp(gone.closed_us)}, {_ago(now_us - gone.closed_us)}: {gone.reason}"
    known = WHY_GONE.get(reason)
    why = [end, *([known.replace("{id}", gone.id)] if known else [])]
    if gone.folded:
        why.append(f"folded into later ones while it lasted: {counted(gone.folded, 'message')}")
    if gone.dropped:
        dropped = counted(gone.dropped, "message")
        why.append(f"dropped, with subscriptions that were too slow: {dropped}")
    instead = AFTER_GONE.get(reason)
    return {
        "id": gone.id,
        "client": gone.client,
        "why": why,
        "instead": [] if instead is None else [instead],
    }


def _ago(us: int) -> str:
    return f"{duration(max(0, us) / 1_000_000)} ago"


def _whence(session: Session) -> str:
    user = session.rights.user
    return (f" from {session.address}" if session.address else "") + (
        f" as {clipped(user.name)}" if user is not None else ""
    )


def _standing(session: Session, now_us: int) -> Iterator[str]:
    if session.ended is not None:
        yield f"it is being closed: {session.ended}"
        return
    since = f"since {timestamp(session.connected_us)}"
    if session.connected:
        yield f"it is connected{_whence(session)}, {since} ({_ago(now_us - session.connected_us)})"
        return
    away = duration(session.settings.reconnect_timeout_us / 1_000_000)
    yield f"its client has gone; what it follows is kept for {away} at most (ReconnectTimeout)"


def _waiting(session: Session, now_us: int) -> Iterator[str]:
    outbox, settings = session.outbox, session.settings
    oldest_us = outbox.oldest_us()
    if oldest_us is None:
        yield "nothing waits for it: it keeps up"
    else:
        waiting = f"{counted(outbox.message_count, 'message')} ({size(outbox.size_bytes)})"
        yield (
            f"waiting: {waiting}, the first since {timestamp(oldest_us)} "
            f"({_ago(now_us - oldest_us)}), as its client reads more slowly than updates come; "
            f"{settings.queue_messages_max:,} and {size(settings.queue_bytes_max)} may wait"
        )
    if not session.conflates:
        yield "nothing is folded in its queue: that is switched off for it"


def _following(one: Subscription, session: Session) -> Iterator[str]:
    """One subscription: what was requested, and what a full queue made of it."""
    follows = f"it follows {one.topic}"
    follows += f" where {one.key.filter}" if one.key.filter else ""
    yield follows + _requested(one)
    saved = session.outbox.saved(one.name)
    if saved is not None:
        yield _folded(one, saved)


def _requested(one: Subscription) -> str:
    key, channel = one.key, one.channel
    if key.auto:
        requested = ", each record as fast as it reads, as requested by conflation=auto"
    elif key.interval_us is not None:
        seconds = f"{key.interval_us / 1_000_000:g}s"
        requested = f", each record once in {seconds} at most, as requested by conflation={seconds}"
    else:
        return ", each update as it comes"
    if isinstance(channel, ConflatedChannel):
        requested += (
            f"; updates in {channel.updates_in:,}, out {channel.lines_out:,}, "
            f"waiting {len(channel.conflator):,}"
        )
    return requested


def _folded(one: Subscription, saved: ConflationStats) -> str:
    policies = {feed.encoder.queue_policy.policy for feed in one.feeds.values()}
    because = (
        "its ConflationPolicy is always, and they waited"
        if policies == {"always"}
        else "its queue had filled"
    )
    since, until = timestamp(saved.since_us), timestamp(saved.until_us)
    return (
        f"folded into later updates of the same records, since {because}: "
        f"{counted(saved.lines, 'update')} of {one.topic}, by such as came from {since} to {until}"
    )


def _given_up(one: GivenUp) -> str:
    named = ", ".join(filter(None, one.topics))
    more = ", …" if one.subscriptions > len(one.topics) else ""
    subscriptions = counted(one.subscriptions, "subscription")
    return (
        f"dropped {timestamp(one.at_us)}, since its queue was full and ConflationPolicy there is "
        f"unsubscribe: {counted(one.lines, 'message')} of {named}{more}, with {subscriptions}"
    )


def _advice(session: Session, now_us: int) -> Iterator[str]:
    oldest_us = session.outbox.oldest_us()
    is_late = oldest_us is not None and now_us - oldest_us >= LATE_US
    if is_late or session.outbox.folded or session.overflow.given_up:
        yield SLOW_DOWN
    if session.outbox.folded and session.conflates:
        yield SEND_ALL
    if not session.conflates:
        yield FOLD_AGAIN
    if session.overflow.given_up:
        yield SUBSCRIBE_AGAIN
