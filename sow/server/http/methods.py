"""HEAD and OPTIONS: what an address answers beside its routes.

Every GET route answers HEAD, by the same handler with the same permissions; a streamed answer ends
after its headers. OPTIONS lists the methods of an address, for any client, since `/openapi.json`
does the same. It does not look at topics, so a hidden topic looks like a missing one. Requests of
other sites' pages (CORS) are handled by `sow.server.http.middleware`.
"""

from collections.abc import Iterable

from aiohttp import hdrs, web

from sow.server.http.route import WEBSOCKET, Route


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
