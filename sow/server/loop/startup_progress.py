"""The replay watch: what is told of a start that takes its time.

`Progress` counts what was put back; with the loop's clock it is known how long the rest will take.
`/readyz` says so to whoever asks, and a start of more than a few seconds says it in the log.
"""

import asyncio
import logging

from sow.engine.progress import Progress

log = logging.getLogger("sow")

SENT_EVERY_S = 5.0
"""How often that is said in the log: an operator sees that it goes on, and a start of a few million
records says nothing."""
GUESSED_FROM_S = 0.5
"""Before that nobody can say how long it will take."""


class StartupProgress:
    """Watches `progress` from now on, until it is ended. Whoever asks is told all of it only if it
    is `public`: what topics are called, and what they hold, is nothing for strangers."""

    def __init__(self, progress: Progress, public: bool = True) -> None:
        self.progress = progress
        self._public = public
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        self.is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, where: str) -> None:
        """Say how far it is in the log, from time to time; requests wait at the address `where`."""
        self._timer = self._loop.call_later(SENT_EVERY_S, self._tell, where)

    def _tell(self, where: str) -> None:
        log.warning("%s; requests to %s wait", self.words(), where)
        self.begin(where)

    def end(self) -> None:
        """All records are there, or never will be."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def told(self) -> str:
        """How far it is, in words, for whoever asks."""
        if self._public:
            return self.words()
        left_s = self.left_s()
        return "replaying" if left_s is None else f"replaying, about {left_s:.0f} s left"

    def words(self) -> str:
        """How far it is, in words, for whoever runs the server."""
        progress = self.progress
        if progress.is_settling:
            return f"replaying: making indexes and copies of {progress.topic}"
        if not progress.of:
            return "replaying: opening files"
        told = f"replaying: {progress.topic}, {progress.done} of {progress.of} records"
        left_s = self.left_s()
        return told if left_s is None else f"{told}, about {left_s:.0f} s left"

    def left_s(self) -> float | None:
        """For how many seconds more records will be put back; None while that cannot be said."""
        progress, taken_s = self.progress, self._loop.time() - self._began_s
        if not progress.done or progress.is_settling or taken_s < GUESSED_FROM_S:
            return None
        return taken_s * (progress.of - progress.done) / progress.done
