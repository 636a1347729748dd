"""Progress of a long start, for `/readyz` and the log.

`Progress` counts restored records; with the loop's clock the remaining time is estimated. A start
of more than a few seconds logs it from time to time.
"""

import asyncio
import logging

from sow.engine.recovery.redo import Progress

log = logging.getLogger("sow")

LOGGED_EVERY_S = 5.0
"""Interval of log lines: an operator sees progress, and a start of a few million records logs
nothing."""
GUESSED_FROM_S = 0.5
"""Before that there is no estimate."""


class StartupProgress:
    """Watches `progress` until `end`. The public status names topics and counts only if `public`:
    they may not be for strangers."""

    def __init__(self, progress: Progress, public: bool = True) -> None:
        self.progress = progress
        self._public = public
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self.is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, where: str) -> None:
        """Log the progress from time to time; requests to the address `where` wait meanwhile."""
        self._timer = self._loop.call_later(LOGGED_EVERY_S, self._report, where)

    def _report(self, where: str) -> None:
        log.warning("%s; requests to %s wait", self.status(), where)
        self.begin(where)

    def end(self) -> None:
        """The start has ended, or failed."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def public_status(self) -> str:
        """The progress as a sentence, for any client."""
        if self._public:
            return self.status()
        left_s = self.left_s()
        return "replaying" if left_s is None else f"replaying, about {left_s:.0f} s left"

    def status(self) -> str:
        """The progress as a sentence, with topics and counts."""
        progress = self.progress
        if progress.is_settling:
            return f"replaying: making indexes and copies of {progress.topic}"
        if not progress.of:
            return "replaying: opening files"
        text = f"replaying: {progress.topic}, {progress.done} of {progress.of} records"
        left_s = self.left_s()
        return text if left_s is None else f"{text}, about {left_s:.0f} s left"

    def left_s(self) -> float | None:
        """Estimated seconds until all records are restored; None while there is no estimate."""
        progress, taken_s = self.progress, self._loop.time() - self._began_s
        if not progress.done or progress.is_settling or taken_s < GUESSED_FROM_S:
            return None
        return taken_s * (progress.of - progress.done) / progress.done
