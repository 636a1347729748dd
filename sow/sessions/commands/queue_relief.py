"""Relief of queue memory: what is done when what waits for sessions is over its bound.

    recovery buffers   are shortened, the largest first
    give-ups           subscriptions to topics with the policy `unsubscribe` end
    folding            the largest queues are folded
    closing            the session for which most waits is closed, one after the other

Each only until it fits, in steps between which others are served; publishes wait for it
(`sow.streaming.outbox.overflow.ConflationBudget`), so that no more comes than each has under way. A
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

    def give_up(self, session: Session) -> Task[None]:
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

    def look(self) -> bool:
        """Look at what is held; whether there is something to do."""
        return self._memory.settle() or self._steps is not None

    def go_on(self) -> bool:
        """Do a step; whether there is more to do."""
        if not self.look():
            return False
        if self._steps is None:
            self._steps = self._relieve()
        if next(self._steps, self) is self:
            self._steps = None
        return self.look()

    def _relieve(self) -> Task[None]:
        yield from self._memory.stepping()
        while (over := self._memory.excess()) is not None:
            for act in (self._shorten_all, self._give_up_all, self._fold_all, self._close_all):
                # Each looks through all sessions first, which is a step.
                yield
                if not over.fits:
                    yield from act(over)
            if not over.fits:
                over.accept()

    def _each(
        self, over: Bounded, sessions: list[Session], act: Callable[[Session], Task[None]]
    ) -> Task[None]:
        """Act on one session after the other, until it fits."""
        for session in sessions:
            yield from act(session)
            yield from self._memory.stepping()
            yield
            if over.fits:
                return

    def _shorten_all(self, over: Bounded) -> Task[None]:
        """Halve recovery buffers, the largest first, until it fits or they are empty."""
        while not over.fits and (
            held := self._largest(over, lambda session: session.recovery.held_bytes)
        ):
            yield
            yield from self._each(over, held, self._shorten)

    def _shorten(self, session: Session) -> Task[None]:
        session.recovery.halve()
        yield

    def _give_up_all(self, over: Bounded) -> Task[None]:
        return self._each(over, self._shrinkable(over), self._sessions.give_up)

    def _fold_all(self, over: Bounded) -> Task[None]:
        """Fold the largest queues that are shorter then: one of frames that many wait for gets
        lines of its own by that, and so does one in which no record comes twice."""
        return self._each(over, self._shrinkable(over), self._fold)

    def _fold(self, session: Session) -> Task[None]:
        folded = yield from session.outbox.folded_bytes(self._memory.common_part)
        if folded < self._weight(session):
            yield from self._sessions.fold(session)
        session.memory.note_shrunk()

    def _close_all(self, over: Bounded) -> Task[None]:
        """Close those for which most waits, one after the other."""
        return self._each(over, self._waiting(over), self._close)

    def _close(self, session: Session) -> Task[None]:
        self._sessions.close_for(session, QUEUE_MEMORY)
        yield

    def _shrinkable(self, over: Bounded) -> list[Session]:
        """Those of them in whose queues something may be found that can be freed."""
        return [one for one in self._waiting(over) if one.memory.may_shrink]

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
