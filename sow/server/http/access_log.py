"""The access log: a line for each request, where the configuration asks for it.

It says who has asked from where for which address, what he was answered and how long that took. It
says nothing of filters and parameters: they hold what users look for, and pages put tokens there.
A stream and a WebSocket are one line, when they end.
"""

import logging
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler

from sow.errors import clipped
from sow.server.http.authn_middleware import RIGHTS
from sow.server.http.middleware import client_address

ACCESS_LOG = "access"
log = logging.getLogger(f"sow.{ACCESS_LOG}")

CLIENT_CLOSED = 499
"""What nginx writes of a client that went before it was answered, and others after it."""


class AccessLog:
    """Notes requests while `is_wanted` says so; `now_us` is a clock that only goes forward."""

    def __init__(self, is_wanted: Callable[[], bool], now_us: Callable[[], int]) -> None:
        self._is_wanted = is_wanted
        self._now_us = now_us

    @web.middleware
    async def note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request, and note it."""
        if not self._is_wanted():
            return await handler(request)
        began_us, response, status = self._now_us(), None, CLIENT_CLOSED
        try:
            response = await handler(request)
            status = response.status
            return response
        finally:
            self._note(request, status, response, self._now_us() - began_us)

    def _note(
        self,
        request: web.Request,
        status: int,
        response: web.StreamResponse | None,
        took_us: int,
    ) -> None:
        rights = request.get(RIGHTS)
        user = rights.user.name if rights is not None and rights.user is not None else "-"
        path, address = clipped(request.path), client_address(request)
        body = getattr(response, "body", None)
        fields = {
            "address": address,
            "user": user,
            "method": request.method,
            "path": path,
            "status": status,
            "bytes": len(body) if isinstance(body, bytes) else None,
            "took_ms": round(took_us / 1000, 1),
        }
        log.info(
            "%s %s %s %s %d %.1f ms",
            address,
            clipped(user),
            clipped(request.method),
            path,
            status,
            fields["took_ms"],
            extra={"fields": fields},
        )
