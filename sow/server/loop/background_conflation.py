"""Conflation of slow clients' queues as background work on the loop.

A queue over its bounds may hold ten thousand updates, and a hundred slow clients may have a hundred
such queues. Each step conflates about fifty messages of one queue; other work runs in between.
Messages that arrive for a queue while it is conflated are appended behind it
(`sow.streaming.outbox.outbox`).
"""

import asyncio
from collections.abc import Callable

from sow.server.loop.scheduler import FairScheduler
from sow.sessions.session_manager import SessionManager


class BackgroundConflation:
    """Conflates queues of `sessions` as work of the scheduler `turns`; `now_us` returns the
    time."""

    name = "folding queues"

    def __init__(
        self, sessions: SessionManager, turns: FairScheduler, now_us: Callable[[], int]
    ) -> None:
        self._sessions = sessions
        self._turns = turns
        self._now_us = now_us
        self._loop = asyncio.get_running_loop()
        self._in_line = False
        sessions.on_backlog(self._begin)

    def _begin(self) -> None:
        if not self._in_line:
            self._in_line = True
            self._turns.add(self)

    def go_on(self, until_s: float) -> bool:
        """Conflate until `until_s` (loop time); returns whether there is more."""
        self._in_line = True
        while self._sessions.fold_some(self._now_us()):
            if self._loop.time() >= until_s:
                return True
        self._in_line = False
        return False
