"""The server log: writes log lines, limited to a rate that somebody can read; and the access log.

Lines that one place in the code repeats, because of one client or of thousands, are written some
times a second and then counted; the count is written after that second when something else is
logged, or when the log ends. Settings are queried with every line, so that a reload changes them.

The access log is a line for each request, where the configuration enables it: user, address,
method, path, status and duration. It has no filters and parameters: they contain what users look
for, and pages put tokens there. A stream or a WebSocket is one line, when it ends.
"""

import logging
from collections import Counter
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler

from sow.core.definitions import LogSettings
from sow.errors import clipped
from sow.server.http.authn_middleware import ADMISSION
from sow.server.http.request_origin import client_address
from sow.server.loop.log_lines import PROGRAM, component, line_of

ACCESS_LOG = "access"
access_log = logging.getLogger(f"sow.{ACCESS_LOG}")

CLIENT_CLOSED = 499
"""The status that nginx and others log for a client that disconnected before its answer."""
LINES_PER_SECOND_MAX = 10
"""Lines from one place in the code: a person sees that it continues, and a disk has room for years
of it."""
ACCESS_PER_SECOND_MAX = 1_000
"""Lines of the access log: about what one core answers beside its other work, some 100 KB a
second."""
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
LEVELS["error"] = logging.ERROR

Place = tuple[str, int, str]
"""A place in the code that logs, and its component."""


class ServerLog(logging.Handler):
    """A log handler that writes records as lines with `write`, by the current `settings`."""

    def __init__(self, write: Callable[[str], object], settings: Callable[[], LogSettings]) -> None:
        super().__init__()
        self._write = write
        self._settings = settings
        self._second = 0
        self._counts: Counter[Place] = Counter()
        self.left_out = 0
        """Lines that were not written, ever."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it; `logging` calls this under the handler's lock."""
        settings = self._settings()
        if record.levelno < LEVELS[settings.level]:
            return
        if int(record.created) != self._second:
            self._report_left_out(settings)
            self._second = int(record.created)
        place = (record.pathname, record.lineno, component(record))
        self._counts[place] += 1
        if self._counts[place] > _lines_max(place):
            self.left_out += 1
        else:
            self._put(record, settings)

    def _put(self, record: logging.LogRecord, settings: LogSettings) -> None:
        try:
            self._write(line_of(record, settings.format) + "\n")
        except OSError:
            # Nobody reads, or the log's disk is full: no reason to stop serving.
            self.left_out += 1

    def _report_left_out(self, settings: LogSettings) -> None:
        counts, self._counts = self._counts, Counter()
        for place, count in counts.items():
            over = count - _lines_max(place)
            if over > 0:
                what = f"{over} more lines of {place[2]}, like the last of it, were left out"
                self._put(
                    logging.LogRecord(
                        f"{PROGRAM}.log", logging.WARNING, *place[:2], what, None, None
                    ),
                    settings,
                )

    def close(self) -> None:
        """Write how much was left out; nothing is written after that."""
        self.acquire()
        try:
            self._report_left_out(self._settings())
        finally:
            self.release()
        super().close()


def _lines_max(place: Place) -> int:
    return ACCESS_PER_SECOND_MAX if place[2] == ACCESS_LOG else LINES_PER_SECOND_MAX


def begin(write: Callable[[str], object], settings: Callable[[], LogSettings]) -> ServerLog:
    """Write everything that this process logs to such a handler; returns it, to be passed to
    `end`."""
    handler = ServerLog(write, settings)
    root = logging.getLogger()
    root.addHandler(handler)
    # Libraries log from warnings on; the settings decide about our own levels.
    root.setLevel(logging.WARNING)
    logging.getLogger(PROGRAM).setLevel(logging.DEBUG)
    return handler


def end(handler: ServerLog) -> None:
    """Write what is left, and detach the handler."""
    logging.getLogger().removeHandler(handler)
    handler.close()


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
        admission = request.get(ADMISSION)
        known = admission.rights.user if admission is not None else None
        user = known.name if known is not None else "-"
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
        access_log.info(
            "%s %s %s %s %d %.1f ms",
            address,
            clipped(user),
            clipped(request.method),
            path,
            status,
            fields["took_ms"],
            extra={"fields": fields},
        )
