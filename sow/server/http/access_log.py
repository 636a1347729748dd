"""The access log: one line per request, where the configuration enables it.

A line has the user, address, method, path, status and duration. It has no filters and parameters:
they contain what users look for, and pages put tokens there. A stream or a WebSocket is one line,
when it ends.
"""

import logging
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler

from sow.errors import clipped
from sow.server.http.authn_middleware import RIGHTS
from sow.server.http.request_origin import client_address

ACCESS_LOG = "access"
log = logging.getLogger(f"sow.{ACCESS_LOG}")

CLIENT_CLOSED = 499
"""The status that nginx and others log for a client that disconnected before its answer."""


class AccessLog:
    """Logs requests while `is_enabled` returns true; `now_us` is a monotonic clock."""

    def __init__(self, is_enabled: Callable[[], bool], now_us: Callable[[], int]) -> None:
        self._is_enabled = is_enabled
        self._now_us = now_us

    @web.middleware
    async def note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request and log it."""
        if not self._is_enabled():
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
