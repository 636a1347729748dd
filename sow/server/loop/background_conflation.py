"""Folding queues, as work on the loop: those of clients that do not read, a step at a time.

A queue that is over its bounds may hold ten thousand updates, and with a hundred slow clients there
may be a hundred such queues. Each step goes through some fifty messages of one of them, and in
between everybody else has his turn; what is said meanwhile to a client whose queue is being folded
is put behind (`sow.streaming.outbox.outbox`).
"""

import asyncio
from collections.abc import Callable

from sow.server.loop.scheduler import FairScheduler
from sow.sessions.commands.session_manager import SessionManager


class BackgroundConflation:
    """Has queues of `sessions` folded in `turns`; `now_us` gives the time."""

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
        """Take steps until `until_s` by the loop's time; whether there are more."""
        self._in_line = True
        while self._sessions.fold_some(self._now_us()):
            if self._loop.time() >= until_s:
                return True
        self._in_line = False
        return False
