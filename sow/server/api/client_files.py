"""Static files of the server, served without authentication: the JavaScript client and the console.

They are read once, when the server starts, so that all of them are of one version. A browser or a
proxy revalidates its copy with each request (`ETag`), and gets a 304.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from aiohttp import web

from sow.core.media_types import PLAIN_TEXT
from sow.server.http.negotiation import is_known

CONSOLE_FOLDER = Path(__file__).parents[1] / "console"
SHIPPED_TYPES: Mapping[str, str] = {
    ".js": "text/javascript",
    ".ts": "application/typescript",
    ".html": "text/html",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".LICENSE": PLAIN_TEXT,
}
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
