"""Routes of the server: their parameters, who may use them, and HEAD and OPTIONS beside them.

Every GET route answers HEAD, by the same handler with the same permissions; a streamed answer ends
after its headers. OPTIONS lists the methods of an address, for any client, since `/openapi.json`
does the same. It does not look at topics, so a hidden topic looks like a missing one. Requests of
other sites' pages (CORS) are handled by `sow.server.http.middleware`. The table of all routes is
`sow.server.boot.routes`.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from aiohttp import hdrs, web

from sow.core.security_definitions import OF_TOPICS
from sow.errors import SowError
from sow.security.authorization import Demand, Permissions
from sow.server.http.authn_middleware import AUTHN, reauthorize_stream
from sow.server.http.compression import CODING, coding_of
from sow.server.http.parameters import admit

WEBSOCKET = "/v1/ws"
READ_METHODS = ("GET", "HEAD")
"""Methods that change nothing: HEAD is added to GET routes by `sow.server.http.route`."""

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
        rights = authn.anonymous
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


def with_heads(table: Iterable[Route]) -> list[Route]:
    """The table, with HEAD for every GET; a WebSocket has nothing but its upgrade."""
    return [
        one
        for route in table
        for one in (route, route._replace(method=hdrs.METH_HEAD))
        if one is route or (route.method == hdrs.METH_GET and route.path != WEBSOCKET)
    ]


def allowed(table: Iterable[Route]) -> dict[str, str]:
    """The methods of each path, as the header `Allow` lists them."""
    methods: dict[str, list[str]] = {}
    for route in with_heads(table):
        methods.setdefault(route.path, [hdrs.METH_OPTIONS]).append(route.method)
    return {path: ", ".join(sorted(names)) for path, names in methods.items()}


def add_routes(router: web.UrlDispatcher, table: Iterable[Route]) -> None:
    """Add the routes of the table to a router, with HEAD and OPTIONS."""
    table = list(table)
    for route in with_heads(table):
        router.add_route(route.method, route.path, route.handle)
    for path, methods in allowed(table).items():
        router.add_route(hdrs.METH_OPTIONS, path, AllowedMethods(methods).handle)


class AllowedMethods:
    """The handler of OPTIONS for one path."""

    def __init__(self, methods: str) -> None:
        self._headers = {hdrs.ALLOW: methods}

    async def handle(self, _request: web.Request) -> web.Response:
        """Answer with the methods of the path."""
        return web.Response(status=204, headers=self._headers)
