"""Sessions over HTTP: list and describe them, switch conflation of their queues, close them.

A user sees their own sessions; an administrator sees all, and changes to another user's session are
logged. Sessions are opened elsewhere (`sow.server.net.websocket`, `sow.server.net.sse`), and
`sow.server.api.explain_session` explains why one gets fewer updates.
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
from sow.sessions.commands.executor import Executor
from sow.sessions.commands.session_manager import OPERATOR, GoneSession
from sow.streaming.sessions import Session

SESSIONS_PARAMETERS = ("filter",)
SESSIONS_LIST_PARAMETERS = ("closed",)


class SessionsHandler:
    """`/v1/sessions` of one server."""

    def __init__(self, driver: ServerRuntime, executor: Executor) -> None:
        self._driver = driver
        self._executor = executor

    async def listed(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/sessions`: all sessions and their queues, each as of the moment at which it is
        written; with `closed`, the last closed ones."""
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
        """`GET /v1/sessions/{id}`: one session and its subscriptions."""
        session = self._found(request)
        followed = self._executor.subscriptions.of(session)
        following = describe_followed(followed.values(), self._driver.now_us())
        return json_response({**self._described(session), "following": following})

    async def change(self, request: web.Request) -> web.Response:
        """`POST /v1/sessions/{id}`: allow or forbid conflation of a session's queue."""
        self._found(request)
        conflated = await _conflated(request)
        session = self._session(request)  # it may have been closed meanwhile
        session.allow_folding(conflated)
        return json_response(self._described(session))

    async def change_some(self, request: web.Request) -> web.Response:
        """`POST /v1/sessions`: the same for all sessions whose description matches a filter."""
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
        """`DELETE /v1/sessions/{id}`: close a session."""
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
