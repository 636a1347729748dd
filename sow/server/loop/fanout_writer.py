"""Writing to sessions, as work on the loop: to a hundred at once, to the others in turns.

What a commit has made durable may be for ten thousand sessions, and each takes a send of some
twenty microseconds. Who waits here and is told more meanwhile is written all of it at once.
"""

import asyncio
from collections.abc import Callable, Iterable

from sow.core.histograms import Histogram
from sow.server.loop.scheduler import FairScheduler
from sow.streaming.sessions import Session

WRITTEN_AT_ONCE = 100
"""Sessions that are written to in the step in which there is something for them, without a turn of
the loop between: two milliseconds."""
WRITTEN_BETWEEN_LOOKS = 10
"""Sessions between two looks at the time: a fifth of a millisecond."""


class FanoutWriter:
    """Has `write` called, in `turns`, for each session that there is something for."""

    name = "writing"

    def __init__(self, turns: FairScheduler, write: Callable[[Session], None]) -> None:
        self._turns = turns
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Session, float | None] = {}
        """Those that are still to be written to, with when they were told the first of it, by the
        loop's time; None where nobody knows."""
        self._in_line = False
        self.times = Histogram()
        """Of each session told something in a turn, until its socket had all that it would take."""

    def begin(self, sessions: Iterable[Session], begun_s: float | None) -> None:
        """There is something for these sessions, since `begun_s` of the loop's time."""
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
        """Write until `until_s` by the loop's time; whether there are more."""
        self._in_line = False
        while self._waiting:
            self._write_some(WRITTEN_BETWEEN_LOOKS)
            if self._loop.time() >= until_s:
                break
        self._in_line = bool(self._waiting)
        return self._in_line

    def finish(self) -> None:
        """Write to all that wait."""
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
