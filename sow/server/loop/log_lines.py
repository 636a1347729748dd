"""Log lines: the format of the server log, each line with time, level and component.

    2026-11-23T03:50:22.123Z WARNING checkpointer: the disk has no room for one of orders …
    {"time":"2026-11-23T03:50:22.123Z","level":"warning","component":"checkpointer","message":"…"}

A component is the module that logs, so that a line leads to its code. Many lines contain text from
clients, so no text is trusted: control and bidirectional characters are escaped, long texts are
clipped, and what follows words such as "password" is redacted. So a line of the log is always one
record of the server. Here a `logging` record becomes a line, and the newest error is kept for
`/readyz` and `sow doctor`; `sow.server.boot.server_log` limits how many lines are written.
"""

import logging
import re
import traceback
from datetime import UTC, datetime

import orjson

from sow.core.definitions import LogFormat
from sow.errors import clipped

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
