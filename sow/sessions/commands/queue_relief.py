"""Relief of queue memory: what is done when what waits for sessions is over its bound.

    recovery buffers   are shortened, the largest first
    give-ups           subscriptions to topics with the policy `unsubscribe` end
    folding            the largest queues are folded
    closing            the session for which most waits is closed, one after the other

Each only until it fits, in steps between which others are served; publishes wait for it
(`sow.streaming.outbox.conflate.ConflationBudget`), so that no more comes than each has under way. A
client that is over its part is treated before all together are, and no other one pays for it.

What is held is counted elsewhere (`sow.streaming.queue_memory`).
"""

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Protocol

from sow.core.cooperative import Task
from sow.protocol.replies import QUEUE_MEMORY
from sow.streaming.queue_memory import QueueMemory, QueueShare
from sow.streaming.sessions import Session

Bounded = QueueMemory | QueueShare


class Sessions(Protocol):
    """All sessions, and what can be done with one."""

    def __iter__(self) -> Iterator[Session]:
        """Those that there are now."""

    def give_up(self, session: Session) -> None:
        """End its subscriptions that may be given up."""

    def fold(self, session: Session) -> Task[None]:
        """Fold its queue."""

    def close_for(self, session: Session, reason: str) -> None:
        """Close it, and end its subscriptions at once."""


class QueueRelief:
    """Brings `memory` under its bound."""

    def __init__(self, memory: QueueMemory, sessions: Sessions) -> None:
        self._memory = memory
        self._sessions = sessions
        self._steps: Task[None] | None = None

    @property
    def is_due(self) -> bool:
        """There is something to do."""
        return self._steps is not None or self._memory.is_over

    def go_on(self) -> bool:
        """Do a step; whether there is more to do."""
        if not self.is_due:
            return False
        if self._steps is None:
            self._steps = self._relieve()
        if next(self._steps, self) is self:
            self._steps = None
        return self.is_due

    def _relieve(self) -> Task[None]:
        yield from self._memory.freed()
        while (over := self._memory.excess()) is not None:
            for act in (self._shorten, self._give_up, self._fold, self._close):
                # Each looks through all sessions first, which is a step.
                yield
                if not over.fits:
                    yield from act(over)
            if not over.fits:
                over.accept()
        if self._memory.fits:
            self._memory.settle()

    def _shorten(self, over: Bounded) -> Task[None]:
        """Halve recovery buffers, the largest first, until it fits or they are empty."""
        while held := self._largest(over, lambda session: session.recovery.held_bytes):
            yield
            for session in held:
                session.recovery.halve()
                yield
                if over.fits:
                    return

    def _give_up(self, over: Bounded) -> Task[None]:
        for session in self._waiting(over):
            if session.memory.may_shrink:
                self._sessions.give_up(session)
                yield
                if over.fits:
                    return

    def _fold(self, over: Bounded) -> Task[None]:
        """Fold the largest queues that are shorter then: one of frames that many wait for gets
        lines of its own by that, and so does one in which no record comes twice."""
        for session in self._waiting(over):
            if session.memory.may_shrink:
                folded = yield from session.outbox.folded_bytes(self._memory.common_part)
                if folded < self._weight(session):
                    yield from self._sessions.fold(session)
                session.memory.note_shrunk()
                yield
                if over.fits:
                    return

    def _close(self, over: Bounded) -> Task[None]:
        """Close those for which most waits, one after the other."""
        for session in self._waiting(over):
            self._sessions.close_for(session, QUEUE_MEMORY)
            yield from self._memory.freed()
            yield
            if over.fits:
                return

    def _waiting(self, over: Bounded) -> list[Session]:
        """Sessions for which something waits, the largest first."""
        return self._largest(over, self._weight)

    def _weight(self, session: Session) -> float:
        """What waits for a session; of frames that others wait for too its part."""
        return session.memory.waiting_bytes(self._memory.common_part)

    def _largest(self, over: Bounded, size_of: Callable[[Session], float]) -> list[Session]:
        sessions = [*over.sessions] if isinstance(over, QueueShare) else self._sessions
        sizes = [(size_of(session), session) for session in sessions if session.ended is None]
        sizes.sort(key=itemgetter(0), reverse=True)
        return [session for size, session in sizes if size]
