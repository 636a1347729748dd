"""Fan-out of a commit to sessions: to a hundred at once, to the others as background work.

A commit may concern ten thousand sessions, and each takes a send of some twenty microseconds. A
session that waits here while more messages arrive gets all of them in one write.
"""

import asyncio
from collections.abc import Callable, Iterable

from sow.core.histograms import Histogram
from sow.server.loop.scheduler import FairScheduler
from sow.streaming.sessions import Session

WRITTEN_AT_ONCE = 100
"""Sessions written to in the step of the commit itself: two milliseconds."""
WRITTEN_BETWEEN_LOOKS = 10
"""Sessions between two checks of the time: a fifth of a millisecond."""


class FanoutWriter:
    """Calls `write` for each session with pending messages, as work of the scheduler `turns`."""

    name = "writing"

    def __init__(self, turns: FairScheduler, write: Callable[[Session], None]) -> None:
        self._turns = turns
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Session, float | None] = {}
        """Sessions still to be written to, with the loop time of their first pending message; None
        where it is not known."""
        self._in_line = False
        self.times = Histogram()
        """Latency from the flush that produced a message until it was handed to the session's
        socket."""

    def begin(self, sessions: Iterable[Session], begun_s: float | None) -> None:
        """These sessions have pending messages, since `begun_s` of the loop's time."""
        for session in sessions:
            self._waiting.setdefault(session, begun_s)
        if self._in_line:
            return
        try:
            self._write_some(WRITTEN_AT_ONCE)
        finally:
            if self._waiting:
                self._in_line = True
                self._turns.add(self)

    def go_on(self, until_s: float) -> bool:
        """Write until `until_s` (loop time); returns whether there is more."""
        self._in_line = False
        while self._waiting:
            self._write_some(WRITTEN_BETWEEN_LOOKS)
            if self._loop.time() >= until_s:
                break
        self._in_line = bool(self._waiting)
        return self._in_line

    def finish(self) -> None:
        """Write to all waiting sessions."""
        self._write_some(len(self._waiting))

    def _write_some(self, count: int) -> None:
        noted: dict[float, int] = {}
        while self._waiting and count:
            count -= 1
            session = next(iter(self._waiting))
            begun_s = self._waiting.pop(session)
            self._write(session)
            if begun_s is not None:
                noted[begun_s] = noted.get(begun_s, 0) + 1
        for begun_s, session_count in noted.items():
            self.times.note(self._loop.time() - begun_s, session_count)
