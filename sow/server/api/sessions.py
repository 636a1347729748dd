"""Sessions over HTTP: who is connected, what waits for them, and what is done to them.

Everybody is shown his own sessions; who administers the server is shown everybody's, and what he
does to another's is noted. Sessions are opened and used elsewhere (`sow.server.net.websocket`,
`sow.server.net.sse`), and why one is told less says `sow.server.api.explain_session`.
"""

from typing import Any

import orjson
from aiohttp import web

from sow.core.cooperative import Task
from sow.core.paths import value_at
from sow.errors import ClientError, UnknownRecord, shown
from sow.expressions import Filter, check_fields_alone
from sow.security.authorization import Permissions
from sow.server.api.describe import describe_followed, describe_gone, describe_session
from sow.server.http.authn_middleware import AUTHN, permissions_of
from sow.server.http.chunked_response import answer_array
from sow.server.http.parameters import parameters_of, read_flag
from sow.server.http.request_memory import read_body
from sow.server.http.responses import json_response
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.executor import Executor
from sow.sessions.session_manager import OPERATOR, GoneSession
from sow.streaming.sessions import Session

SESSIONS_PARAMETERS = ("filter",)
SESSIONS_LIST_PARAMETERS = ("closed",)


class SessionsHandler:
    """The handlers of one server's sessions."""

    def __init__(self, driver: ServerRuntime, executor: Executor) -> None:
        self._driver = driver
        self._executor = executor

    async def listed(self, request: web.Request) -> web.StreamResponse:
        """Who is connected, and what waits for them; each as it is when it is written. With
        `closed`, the last that are gone."""
        rights = permissions_of(request)
        if read_flag(parameters_of(request), "closed"):
            gone = [one for one in reversed(self._executor.sessions.gone) if is_of(one, rights)]
            return json_response([describe_gone(one, self._driver.now_us()) for one in gone])
        sessions = [one for one in self._executor.sessions if is_of(one, rights)]
        return await answer_array(self._driver.turns, request, sessions, self._described)

    def _described(self, session: Session) -> dict[str, Any]:
        followed = self._executor.subscriptions.of(session)
        return describe_session(session, len(followed), self._driver.now_us())

    async def one(self, request: web.Request) -> web.Response:
        """One session, and what it follows."""
        session = self._found(request)
        followed = self._executor.subscriptions.of(session)
        following = describe_followed(followed.values(), self._driver.now_us())
        return json_response({**self._described(session), "following": following})

    async def change(self, request: web.Request) -> web.Response:
        """Allow or forbid that a session's queue is conflated."""
        self._found(request)
        conflated = await _conflated(request)
        session = self._session(request)  # it may have gone meanwhile
        session.allow_folding(conflated)
        return json_response(self._described(session))

    async def change_some(self, request: web.Request) -> web.Response:
        """The same for all sessions whose description matches a filter."""
        requested = parameters_of(request)
        if "filter" not in requested:
            raise ClientError("give a filter over sessions, such as filter=/client LIKE '^grid'")
        condition = self._driver.filter(requested["filter"])
        check_fields_alone(condition, "a filter over sessions")
        conflated = await _conflated(request)
        rights = permissions_of(request)
        if rights.may("admin"):
            request.app[AUTHN].note_admin(request, rights)
        changing = self._changing(condition, conflated, rights)
        return json_response({"changed": await self._driver.turns.run("sessions", changing)})

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

    async def end(self, request: web.Request) -> web.Response:
        """Close a session."""
        session = self._session(request)
        self._executor.sessions.end(session, OPERATOR)
        self._driver.wake()
        return json_response({"closed": session.id})

    def _found(self, request: web.Request) -> Session:
        session_id = request.match_info["id"]
        session = self._executor.sessions.find(session_id)
        if session is None or not is_of(session, permissions_of(request)):
            raise UnknownRecord(f"no session {shown(session_id)}; GET /v1/sessions lists them")
        return session

    def _session(self, request: web.Request) -> Session:
        """The session that is to be changed; who changes another's administers the server."""
        session, rights = self._found(request), permissions_of(request)
        if session.rights.owner != rights.owner:
            request.app[AUTHN].note_admin(request, rights)
        return session


def is_of(session: Session | GoneSession, rights: Permissions) -> bool:
    """Whether a session is there for who has these rights: his own, or, for who administers the
    server, anybody's."""
    return rights.may("admin") or session.rights.owner == rights.owner


async def _conflated(request: web.Request) -> bool:
    """What the body ``{"conflated": true}`` says; raises ClientError."""
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
