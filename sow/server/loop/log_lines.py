"""Log lines: what the server tells whoever runs it, each line with its time, level and component.

    2026-11-23T03:50:22.123Z WARNING checkpointer: the disk has no room for one of orders …
    {"time":"2026-11-23T03:50:22.123Z","level":"warning","component":"checkpointer","message":"…"}

A component is the module that speaks, so that a line leads to its code. What others have sent is in
many lines, so nothing is believed of a text: control characters and what turns the direction of
writing are escaped, what is long is clipped, and what follows the words that secrets come after is
struck out. One line of the log therefore is one thing that the server has said. Here a line is
made of a record of `logging`; how many of them are written is decided by
`sow.server.boot.server_log`.
"""

import logging
import re
import traceback
from datetime import UTC, datetime

import orjson

from sow.core.definitions import LogFormat

LINE_CHARS_MAX = 2_000
"""Of a message: more than any sentence of the server's, less than what a terminal or a collector of
logs cuts by itself."""
TRACE_LINES_MAX = 60
"""Of a traceback, the last ones: those in which it happened."""
STRUCK_OUT = "***"
SECRETS = re.compile(
    # Words before a secret, in headers, addresses and JSON; then what has the form of one.
    r"""((?:bearer|basic)\s+|(?:pass(?:word|wd)?|token|secret|authorization|api_?key)["']?\s*[=:]\s*"""
    r"""(?:(?:bearer|basic)\s+)?["']?)[^\s"'&,;]+"""
    r"""|(\b)eyJ[\w-]{8,}\.[\w-]+\.[\w-]*"""
    r"""|(://[^\s/:@]*:)[^\s/@]+(?=@)""",
    re.IGNORECASE,
)
PROGRAM = "sow"
"""The logger of this program; its records are told apart by their modules."""


def safe(text: str) -> str:
    """One line of a text that anybody may have had a part in: bounded, printable, without what
    looks like a secret."""
    shown = text[:LINE_CHARS_MAX]
    if not shown.isprintable():
        shown = "".join(map(_printable, shown))
    shown = SECRETS.sub(_strike_out, shown)
    if len(shown) > LINE_CHARS_MAX:
        shown = shown[:LINE_CHARS_MAX]
    left_out = len(text) - LINE_CHARS_MAX
    return f"{shown}… ({left_out} more characters)" if left_out > 0 else shown


def _printable(char: str) -> str:
    # What is not: controls, what turns the direction of writing, ends of lines, halves.
    if char.isprintable():
        return char
    return char.encode("unicode_escape", "surrogatepass").decode()


def _strike_out(found: re.Match[str]) -> str:
    return (found[1] or found[3] or "") + STRUCK_OUT


def component(record: logging.LogRecord) -> str:
    """Which part of the program speaks: a module of ours, or somebody else's logger."""
    own, _, part = record.name.partition(".")
    return (part or record.module) if own == PROGRAM else record.name


def time_of(record: logging.LogRecord) -> str:
    """When it spoke: ISO 8601, UTC, with milliseconds."""
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def message_of(record: logging.LogRecord) -> str:
    """What it says; a record that cannot be put together says so, and does no harm."""
    try:
        return safe(record.getMessage())
    except Exception:
        return safe(f"{record.msg!s} (with arguments that do not fit)")


def trace_of(record: logging.LogRecord) -> list[str]:
    """The lines of the traceback that belongs to it."""
    if not record.exc_info or record.exc_info[1] is None:
        return []
    lines = "".join(traceback.format_exception(record.exc_info[1])).splitlines()
    return [safe(line) for line in lines[-TRACE_LINES_MAX:]]


def line_of(record: logging.LogRecord, form: LogFormat) -> str:
    """A record as it is written. In text a traceback follows indented, so that no line of it looks
    like one of the server's own; in JSON it is a field of the one line."""
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
