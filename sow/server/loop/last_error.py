"""The last error that the log had, for whoever asks how a server is and does not read its log.

Of all lines only this one is kept, and only in memory: `/readyz` and `sow doctor` tell it until the
server ends or another one takes its place.
"""

import logging

from sow.errors import clipped
from sow.server.loop.log_lines import component, message_of, time_of


class LastError(logging.Handler):
    """Keeps the newest record of the level error, whoever logs it; `begin` to `end`."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._when = self._what = ""

    def begin(self) -> None:
        """Listen to all that this process logs."""
        logging.getLogger().addHandler(self)

    def end(self) -> None:
        """Listen no more."""
        logging.getLogger().removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record; `logging` calls this under the handler's lock."""
        said = clipped(f"{component(record)}: {message_of(record)}")
        self._when, self._what = time_of(record), said

    @property
    def is_there(self) -> bool:
        """Whether there was one."""
        return bool(self._when)

    def told(self, whole: bool) -> str:
        """When it was, and, if the `whole` is told, what it said."""
        return f"last error {self._when}" + (f": {self._what}" if whole else "")
