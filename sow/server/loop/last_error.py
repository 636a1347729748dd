"""The last error of the log, for `/readyz` and `sow doctor`.

Only the newest one is kept, in memory, until the server ends.
"""

import logging

from sow.errors import clipped
from sow.server.loop.log_lines import component, message_of, time_of


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
