"""The console: all files of one folder of the package, served below `/console`.

The names are listed once at start; no other name is looked up on the disk. The headers restrict the
page to its own origin. The files need no authentication: all data comes from the requests that the
page makes, with the permissions of its user.
"""

from pathlib import Path

from aiohttp import web

from sow.errors import UnknownRecord, shown
from sow.server.api.client_files import CONSOLE_FOLDER, HEADERS, SHIPPED_TYPES, ShippedFile

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
    """The files below `folder`, by default the console's."""

    def __init__(self, folder: Path = CONSOLE_FOLDER) -> None:
        found = [
            path for path in folder.rglob("*") if path.is_file() and path.suffix in SHIPPED_TYPES
        ]
        names = [path.relative_to(folder).as_posix() for path in found]
        self._files = {name: ShippedFile(name, folder, PAGE_HEADERS) for name in names}

    def names(self) -> list[str]:
        """The paths of all files, below the folder."""
        return sorted(self._files)

    async def index(self, request: web.Request) -> web.Response:
        """`GET /`: the console's page."""
        return await self._answer(request, INDEX)

    async def file(self, request: web.Request) -> web.Response:
        """`GET /console/{file}` and `GET /console/{folder}/{file}`; raises UnknownRecord."""
        folder, name = request.match_info.get("folder"), request.match_info["file"]
        return await self._answer(request, f"{folder}/{name}" if folder else name)

    async def _answer(self, request: web.Request, name: str) -> web.Response:
        found = self._files.get(name)
        if found is None:
            raise UnknownRecord(f"the console has no file {shown(name)}")
        return await found.handle(request)
