"""One address of the server: what it takes, and who is let in to it.

The table of all of them is `sow.server.boot.routes`.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import web

from sow.core.security_definitions import OF_TOPICS
from sow.errors import SowError
from sow.security.authorization import Demand, Permissions
from sow.server.http.authn_middleware import AUTHN, check_stream_continues
from sow.server.http.content_codings import CODING, coding_of
from sow.server.http.parameters import admit

WEBSOCKET = "/v1/ws"
READ_METHODS = ("GET", "HEAD")
"""Methods that change nothing: HEAD is added to what can be got by `sow.server.http.methods`."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Route(NamedTuple):
    """One address: `parameters` are the names the query string may hold, now or `later`.

    `demand` is what whoever asks has to be, or may do: with the topic that the path or the
    parameter `topic` names, where there is one. Where the body names it, the handler looks.
    """

    method: str
    path: str
    demand: Demand
    handler: Handler
    summary: str
    parameters: tuple[str, ...] = ()
    later: tuple[str, ...] = ()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Let a request in, and answer it."""
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
                # It has waited since it was found, for a turn or for the disk.
                await check_stream_continues(request)
            return answer
        except SowError as error:
            authn.note_refused(request, rights, error)
            raise authn.told(error, rights) from None

    def _check(self, request: web.Request, rights: Permissions) -> None:
        """Raise what speaks against a request of who has these rights."""
        named = request.match_info.get("topic")
        if named is None and "topic" in self.parameters:
            # One that is given twice is refused soon.
            named = request.query.get("topic")
        if named is not None:
            rights.check(self.demand, named)
        elif self.demand not in OF_TOPICS:
            rights.check(self.demand)
