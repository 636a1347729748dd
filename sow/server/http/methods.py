"""Methods: what an address answers beside what the table of routes says of it.

Whatever can be got can be asked for its headers alone (HEAD), by the same handler and with the same
rights; an answer that is streamed as it is made ends after them. OPTIONS says which
methods an address takes, to anybody, since it says nothing but what `/openapi.json` says. It looks
at no topic, so one that somebody may not see is as one that is not there. Requests of other sites'
pages (CORS) are the gate's business.
"""

from collections.abc import Iterable

from aiohttp import hdrs, web

from sow.server.http.route import WEBSOCKET, Route


def with_heads(table: Iterable[Route]) -> list[Route]:
    """The table, and HEAD for all that can be got; a WebSocket has nothing but its upgrade."""
    return [
        one
        for route in table
        for one in (route, route._replace(method=hdrs.METH_HEAD))
        if one is route or (route.method == hdrs.METH_GET and route.path != WEBSOCKET)
    ]


def allowed(table: Iterable[Route]) -> dict[str, str]:
    """By its path, which methods an address takes, as the header `Allow` says it."""
    methods: dict[str, list[str]] = {}
    for route in with_heads(table):
        methods.setdefault(route.path, [hdrs.METH_OPTIONS]).append(route.method)
    return {path: ", ".join(sorted(names)) for path, names in methods.items()}


def add_routes(router: web.UrlDispatcher, table: Iterable[Route]) -> None:
    """Have a router answer all that the table says, and what follows from it."""
    table = list(table)
    for route in with_heads(table):
        router.add_route(route.method, route.path, route.handle)
    for path, methods in allowed(table).items():
        router.add_route(hdrs.METH_OPTIONS, path, AllowedMethods(methods).handle)


class AllowedMethods:
    """OPTIONS of one address."""

    def __init__(self, methods: str) -> None:
        self._headers = {hdrs.ALLOW: methods}

    async def handle(self, _request: web.Request) -> web.Response:
        """Which methods the address takes."""
        return web.Response(status=204, headers=self._headers)
