"""The server log: writes log lines, and never more of them than somebody could read.

What the same place in the code says again and again, because of one client or of thousands, is
written some times a second and then counted; the count is written when that second is over and
something is said again, or when the log ends. Settings are asked for with every line, so that a
reload changes them.
"""

import logging
from collections import Counter
from collections.abc import Callable

from sow.core.definitions import LogSettings
from sow.server.http.access_log import ACCESS_LOG
from sow.server.loop.log_lines import PROGRAM, component, line_of

LINES_PER_SECOND_MAX = 10
"""From one place in the code: a person sees that it goes on, a disk takes it for years."""
ACCESS_PER_SECOND_MAX = 1_000
"""Of the access log, which was asked for: about what one core answers beside its other work, some
100 KB a second."""
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
LEVELS["error"] = logging.ERROR

Place = tuple[str, int, str]
"""Where in the code something is said, and by which component."""


class ServerLog(logging.Handler):
    """Writes records as lines by `write`, as `settings` say at that time."""

    def __init__(self, write: Callable[[str], object], settings: Callable[[], LogSettings]) -> None:
        super().__init__()
        self._write = write
        self._settings = settings
        self._second = 0
        self._said: Counter[Place] = Counter()
        self.left_out = 0
        """Lines that were not written, ever."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it; `logging` calls this under the handler's lock."""
        settings = self._settings()
        if record.levelno < LEVELS[settings.level]:
            return
        if int(record.created) != self._second:
            self._tell_left_out(settings)
            self._second = int(record.created)
        place = (record.pathname, record.lineno, component(record))
        self._said[place] += 1
        if self._said[place] > _lines_max(place):
            self.left_out += 1
        else:
            self._put(record, settings)

    def _put(self, record: logging.LogRecord, settings: LogSettings) -> None:
        try:
            self._write(line_of(record, settings.format) + "\n")
        except OSError:
            # Nobody reads, or the disk of the log is full: that is no reason to serve nobody.
            self.left_out += 1

    def _tell_left_out(self, settings: LogSettings) -> None:
        said, self._said = self._said, Counter()
        for place, count in said.items():
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
        """Say how much was left out; nothing is written after that."""
        self.acquire()
        try:
            self._tell_left_out(self._settings())
        finally:
            self.release()
        super().close()


def _lines_max(place: Place) -> int:
    return ACCESS_PER_SECOND_MAX if place[2] == ACCESS_LOG else LINES_PER_SECOND_MAX


def begin(write: Callable[[str], object], settings: Callable[[], LogSettings]) -> ServerLog:
    """Have everything that this process logs written so; returns what is to be closed."""
    handler = ServerLog(write, settings)
    root = logging.getLogger()
    root.addHandler(handler)
    # Libraries are heard from warnings on; what is ours is judged by the settings.
    root.setLevel(logging.WARNING)
    logging.getLogger(PROGRAM).setLevel(logging.DEBUG)
    return handler


def end(handler: ServerLog) -> None:
    """Write what is left to say, and no more."""
    logging.getLogger().removeHandler(handler)
    handler.close()
