"""One route of the server: its parameters, and who may use it.

The table of all routes is `sow.server.boot.routes`.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import web

from sow.core.security_definitions import OF_TOPICS
from sow.errors import SowError
from sow.security.authorization import Demand, Permissions
from sow.server.http.authn_middleware import AUTHN, reauthorize_stream
from sow.server.http.content_codings import CODING, coding_of
from sow.server.http.parameters import admit

WEBSOCKET = "/v1/ws"
READ_METHODS = ("GET", "HEAD")
"""Methods that change nothing: HEAD is added to GET routes by `sow.server.http.methods`."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Route(NamedTuple):
    """One route: `parameters` are the names that the query string may have, now or `later`.

    `demand` is the permission that the client needs: on the topic in the path or in the parameter
    `topic`, if there is one. If the body names it, the handler checks.
    """

    method: str
    path: str
    demand: Demand
    handler: Handler
    summary: str
    parameters: tuple[str, ...] = ()
    later: tuple[str, ...] = ()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Authenticate and check a request, and answer it."""
        authn = request.app[AUTHN]
        rights = authn.nobody
        try:
            rights = await authn.admit(request, self.demand)
            if not rights.is_open:
                self._check(request, rights)
            admit(request, self.parameters, self.later)
            if self.method in READ_METHODS:
                request[CODING] = coding_of(request)
            if self.demand == "admin" and self.method not in READ_METHODS:
                authn.note_admin(request, rights)
            answer = await self.handler(request)
            if self.method in READ_METHODS and self.demand != "nothing" and not answer.prepared:
                # It may have waited for the scheduler or the disk since it was produced.
                await reauthorize_stream(request)
            return answer
        except SowError as error:
            authn.note_refused(request, rights, error)
            raise authn.redact(error, rights) from None

    def _check(self, request: web.Request, rights: Permissions) -> None:
        """Raise NotEntitled if these permissions do not allow the request."""
        named = request.match_info.get("topic")
        if named is None and "topic" in self.parameters:
            # A parameter that is given twice is refused later.
            named = request.query.get("topic")
        if named is not None:
            rights.check(self.demand, named)
        elif self.demand not in OF_TOPICS:
            rights.check(self.demand)
