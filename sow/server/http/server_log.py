"""The server log: how a line looks, how many are written, the newest error, and the access log.

    2026-11-23T03:50:22.123Z WARNING checkpointer: the disk has no room for one of orders …
    {"time":"2026-11-23T03:50:22.123Z","level":"warning","component":"checkpointer","message":"…"}

A component is the module that logs, so that a line leads to its code. Many lines contain text from
clients, so no text is trusted: control and bidirectional characters are escaped, long texts are
clipped, and what follows words such as "password" is redacted. So a line of the log is always one
record of the server.

Lines that one place in the code repeats, because of one client or of thousands, are written some
times a second and then counted; the count is written after that second when something else is
logged, or when the log ends. Settings are queried with every line, so that a reload changes them.
The newest error is kept for `/readyz` and `sow doctor`.

The access log is a line for each request, where the configuration enables it: user, address,
method, path, status and duration. It has no filters and parameters: they contain what users look
for, and pages put tokens there. A stream or a WebSocket is one line, when it ends.
"""

import logging
import re
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from sow.core.definitions import LogFormat, LogSettings
from sow.errors import clipped
from sow.server.http.authn_middleware import ADMISSION
from sow.server.http.request_origin import client_address

LINE_CHARS_MAX = 2_000
"""Longest message: more than any sentence of the server, less than what terminals and log
collectors cut."""
TRACE_LINES_MAX = 60
"""Lines of a traceback that are kept: the last ones, where the error happened."""
REDACTED = "***"
SECRETS = re.compile(
    # Words before a secret in headers, URLs and JSON; then what looks like a token.
    r"""((?:bearer|basic)\s+|(?:pass(?:word|wd)?|token|secret|authorization|api_?key)["']?\s*[=:]\s*"""
    r"""(?:(?:bearer|basic)\s+)?["']?)[^\s"'&,;]+"""
    r"""|(\b)eyJ[\w-]{8,}\.[\w-]+\.[\w-]*"""
    r"""|(://[^\s/:@]*:)[^\s/@]+(?=@)""",
    re.IGNORECASE,
)
PROGRAM = "sow"
"""The logger of this program; the component of its records is their module."""
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


# A record as a line.


def safe(text: str) -> str:
    """A text that may contain client input as one line: bounded, printable, without what looks like
    a secret."""
    shown = text[:LINE_CHARS_MAX]
    if not shown.isprintable():
        shown = "".join(map(_printable, shown))
    shown = SECRETS.sub(_redacted, shown)
    if len(shown) > LINE_CHARS_MAX:
        shown = shown[:LINE_CHARS_MAX]
    left_out = len(text) - LINE_CHARS_MAX
    return f"{shown}… ({left_out} more characters)" if left_out > 0 else shown


def _printable(char: str) -> str:
    # Escapes control characters, line ends and lone surrogates.
    if char.isprintable():
        return char
    return char.encode("unicode_escape", "surrogatepass").decode()


def _redacted(found: re.Match[str]) -> str:
    return (found[1] or found[3] or "") + REDACTED


def component(record: logging.LogRecord) -> str:
    """The component of a record: a module of ours, or the name of a foreign logger."""
    own, _, part = record.name.partition(".")
    return (part or record.module) if own == PROGRAM else record.name


def time_of(record: logging.LogRecord) -> str:
    """The time of a record: ISO 8601, UTC, with milliseconds."""
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def message_of(record: logging.LogRecord) -> str:
    """The message of a record; one that cannot be formatted is still logged, with a remark."""
    try:
        return safe(record.getMessage())
    except Exception:
        return safe(f"{record.msg!s} (with arguments that do not fit)")


def trace_of(record: logging.LogRecord) -> list[str]:
    """The lines of a record's traceback."""
    if not record.exc_info or record.exc_info[1] is None:
        return []
    lines = "".join(traceback.format_exception(record.exc_info[1])).splitlines()
    return [safe(line) for line in lines[-TRACE_LINES_MAX:]]


def line_of(record: logging.LogRecord, form: LogFormat) -> str:
    """A record as it is written. In text a traceback follows indented, so that none of its lines
    looks like a log line; in JSON it is a field."""
    trace = trace_of(record)
    if form == "text":
        head = f"{time_of(record)} {record.levelname} {component(record)}: {message_of(record)}"
        return "\n".join([head, *(f"    {line}" for line in trace)])
    document: dict[str, object] = {
        "time": time_of(record),
        "level": record.levelname.lower(),
        "component": component(record),
        "message": message_of(record),
    }
    fields: dict[str, object] = getattr(record, "fields", {})
    document |= {name: safe(v) if isinstance(v, str) else v for name, v in fields.items()}
    if trace:
        document["trace"] = trace
    return orjson.dumps(document).decode()


# What is written.


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


class LastError(logging.Handler):
    """A log handler that keeps the newest record of level error, of any logger; from `begin` to
    `end`."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._when = self._what = ""

    def begin(self) -> None:
        """Attach to the root logger of this process."""
        logging.getLogger().addHandler(self)

    def end(self) -> None:
        """Detach."""
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record; `logging` calls this under the handler's lock."""
        what = clipped(f"{component(record)}: {message_of(record)}")
        self._when, self._what = time_of(record), what

    @property
    def is_there(self) -> bool:
        """Whether there was an error."""
        return bool(self._when)

    def summary(self, with_message: bool) -> str:
        """Its time and, `with_message`, its message."""
        return f"last error {self._when}" + (f": {self._what}" if with_message else "")


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
        self, request: web.Request, status: int, response: web.StreamResponse | None, took_us: int
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
