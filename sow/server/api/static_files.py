"""Pages: the console, which is all files of one folder of the package.

They are what the table of addresses serves below `/console`: a name that is none of theirs is not
looked for anywhere. The headers say what the page may do, which is to load from where it came
itself and nowhere else. The files are for anybody: what there is to see comes from the addresses
that the page asks, with the rights of whoever uses it.
"""

from pathlib import Path

from aiohttp import web

from sow.errors import UnknownRecord, shown
from sow.server.api.client_files import CONSOLE_FOLDER, HEADERS, SHIPPED_TYPES, ShippedFile

INDEX = "index.html"
PAGE_HEADERS = {
    **HEADERS,
    # A proxy's path prefix needs no word here: all that the page asks for is relative to it.
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
        """What there is, as it is called below the folder."""
        return sorted(self._files)

    async def index(self, request: web.Request) -> web.Response:
        """`GET /`."""
        return await self._answer(request, INDEX)

    async def file(self, request: web.Request) -> web.Response:
        """`GET /console/{file}` and `GET /console/{folder}/{file}`."""
        folder, name = request.match_info.get("folder"), request.match_info["file"]
        return await self._answer(request, f"{folder}/{name}" if folder else name)

    async def _answer(self, request: web.Request, name: str) -> web.Response:
        found = self._files.get(name)
        if found is None:
            raise UnknownRecord(f"the console has no file {shown(name)}")
        return await found.handle(request)
