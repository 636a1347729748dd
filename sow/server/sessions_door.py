"""Sessions over HTTP: who is connected, what waits for them, and what is done to them.

Everybody is shown his own sessions; who administers the server is shown everybody's, and what he
does to another's is noted. Sessions are opened and used elsewhere (`sow.server.websocket`,
`sow.server.sse`), and why one is told less says `sow.server.session_story`.
"""

from typing import Any

import orjson
from aiohttp import web

from sow.delivery.sessions import Session
from sow.errors import ClientError, UnknownRecord, shown
from sow.expressions import Filter, check_fields_alone
from sow.paths import value_at
from sow.requests.executor import Executor
from sow.requests.open_sessions import OPERATOR, GoneSession
from sow.rights import Rights
from sow.server.arrays import answer_array
from sow.server.describe import describe_followed, describe_gone, describe_session
from sow.server.doorman import DOORMAN, rights_of
from sow.server.driver import Driver
from sow.server.parameters import asked_of, read_flag
from sow.server.requests import read_body
from sow.server.responses import json_response
from sow.steps import Steps

SESSIONS_PARAMETERS = ("filter",)
SESSIONS_LIST_PARAMETERS = ("closed",)


class SessionsDoor:
    """The handlers of one server's sessions."""

    def __init__(self, driver: Driver, executor: Executor) -> None:
        self._driver = driver
        self._executor = executor

    async def listed(self, request: web.Request) -> web.StreamResponse:
        """Who is connected, and what waits for them; each as it is when it is written. With
        `closed`, the last that are gone."""
        rights = rights_of(request)
        if read_flag(asked_of(request), "closed"):
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
        asked = asked_of(request)
        if "filter" not in asked:
            raise ClientError("give a filter over sessions, such as filter=/client LIKE '^grid'")
        condition = self._driver.filter(asked["filter"])
        check_fields_alone(condition, "a filter over sessions")
        conflated = await _conflated(request)
        rights = rights_of(request)
        if rights.may("admin"):
            request.app[DOORMAN].note_admin(request, rights)
        changing = self._changing(condition, conflated, rights)
        return json_response({"changed": await self._driver.turns.take("sessions", changing)})

    def _changing(self, condition: Filter, conflated: bool, rights: Rights) -> Steps[list[str]]:
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
        if session is None or not is_of(session, rights_of(request)):
            raise UnknownRecord(f"no session {shown(session_id)}; GET /v1/sessions lists them")
        return session

    def _session(self, request: web.Request) -> Session:
        """The session that is to be changed; who changes another's administers the server."""
        session, rights = self._found(request), rights_of(request)
        if session.rights.owner != rights.owner:
            request.app[DOORMAN].note_admin(request, rights)
        return session


def is_of(session: Session | GoneSession, rights: Rights) -> bool:
    """Whether a session is there for who has these rights: his own, or, for who administers the
    server, anybody's."""
    return rights.may("admin") or session.rights.owner == rights.owner


async def _conflated(request: web.Request) -> bool:
    """What the body ``{"conflated": true}`` says; raises ClientError."""
    try:
        asked = orjson.loads(await read_body(request))
    except orjson.JSONDecodeError:
        asked = None
    if not isinstance(asked, dict) or list(asked) != ["conflated"]:
        raise ClientError('the body must be {"conflated": true} or {"conflated": false}')
    if not isinstance(asked["conflated"], bool):
        raise ClientError(
            f"conflated is {shown(str(asked['conflated']))}; it must be true or false"
        )
    return asked["conflated"]
