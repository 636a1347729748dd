"""Static files, served without authentication: the JavaScript client, and the console.

They are read once, when the server starts, so that all of them are of one version; no other name is
looked up on the disk. A browser or a proxy revalidates its copy with each request (`ETag`), and
gets a 304. The headers restrict the console to its own origin: all its data comes from requests
with the permissions of its user.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from aiohttp import web

from sow.core.media_types import PLAIN_TEXT
from sow.errors import UnknownRecord, shown
from sow.server.http.negotiation import is_known
from sow.server.http.route import operation, route

CONSOLE_FOLDER = Path(__file__).parents[1] / "console"
SHIPPED_TYPES: Mapping[str, str] = {
    ".js": "text/javascript",
    ".ts": "application/typescript",
    ".html": "text/html",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".LICENSE": PLAIN_TEXT,
}
SHIPPED_FORMATS = tuple(sorted({*SHIPPED_TYPES.values()}))
HEADERS: Mapping[str, str] = {
    # Cached, but revalidated: an upgrade of the server is seen with the next request.
    "Cache-Control": "no-cache",
    # A file opened by itself runs nothing, and its content type is not guessed.
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class ShippedFile:
    """One file, by its path below `folder`; `headers` are sent with it."""

    def __init__(
        self, name: str, folder: Path = CONSOLE_FOLDER, headers: Mapping[str, str] = HEADERS
    ) -> None:
        path = folder / name
        self._headers = headers
        self.body = path.read_bytes()
        self.etag = f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'
        self._type = SHIPPED_TYPES[path.suffix]

    async def handle(self, request: web.Request) -> web.Response:
        """The file, or 304 if the client has it."""
        headers = {**self._headers, "ETag": self.etag}
        if is_known(request, self.etag):
            return web.Response(status=304, headers=headers)
        return web.Response(
            body=self.body, content_type=self._type, charset="utf-8", headers=headers
        )


INDEX = "index.html"
PAGE_HEADERS = {
    **HEADERS,
    # A proxy's path prefix needs no entry here: all requests of the page are relative.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Pages:
    """The files below `folder`, by default the console's, and the JavaScript client."""

    def __init__(self, folder: Path = CONSOLE_FOLDER) -> None:
        found = [
            path for path in folder.rglob("*") if path.is_file() and path.suffix in SHIPPED_TYPES
        ]
        names = [path.relative_to(folder).as_posix() for path in found]
        self._files = {name: ShippedFile(name, folder, PAGE_HEADERS) for name in names}
        self._client, self._types = ShippedFile("sow.js"), ShippedFile("sow.d.ts")

    def names(self) -> list[str]:
        """The paths of all files, below the folder."""
        return sorted(self._files)

    @route("GET", "/", "nothing", "The console")
    @operation("open_console", answers=("text/html",), tagged=True)
    async def index(self, request: web.Request) -> web.Response:
        """`GET /`: the console's page."""
        return await self._answer(request, INDEX)

    @route("GET", "/console/{file}", "nothing", "A file of the console")
    @operation("read_console_file", answers=SHIPPED_FORMATS, tagged=True)
    @route("GET", "/console/{folder}/{file}", "nothing", "A file of the console")
    @operation("read_console_page", answers=SHIPPED_FORMATS, tagged=True)
    async def file(self, request: web.Request) -> web.Response:
        """`GET /console/{file}` and `GET /console/{folder}/{file}`; raises UnknownRecord."""
        folder, name = request.match_info.get("folder"), request.match_info["file"]
        return await self._answer(request, f"{folder}/{name}" if folder else name)

    @route("GET", "/sow.js", "nothing", "The JavaScript client")
    @operation("read_javascript_client", answers=("text/javascript",), tagged=True)
    async def client(self, request: web.Request) -> web.Response:
        """`GET /sow.js`."""
        return await self._client.handle(request)

    @route("GET", "/sow.d.ts", "nothing", "Its types")
    @operation("read_javascript_types", answers=("application/typescript",), tagged=True)
    async def types(self, request: web.Request) -> web.Response:
        """`GET /sow.d.ts`."""
        return await self._types.handle(request)

    async def _answer(self, request: web.Request, name: str) -> web.Response:
        found = self._files.get(name)
        if found is None:
            raise UnknownRecord(f"the console has no file {shown(name)}")
        return await found.handle(request)
