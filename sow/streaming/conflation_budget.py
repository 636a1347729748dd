"""Conflation budget: bounds the folding that all sessions together do in one step.

The queue of a session that does not read is folded in steps (`sow.streaming.outbox.outbox`). Adding
to it appends one reference, so a publisher could stay ahead of it for ever; and where hundreds of
clients do not read, one step cannot fold for all of them. So

    on delivery           all sessions together fold up to a budget in one step; the rest stays in
                          their backlogs
    before more changes   the writer works off, step by step and in turns with everybody else, the
                          backlogs of sessions whose queues are over twice their bounds

What waits beyond these bounds is what was delivered meanwhile: one slice of a publish or delete of
each client, and what falls due. Frames are held by reference, once for all sessions.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from sow.core.cooperative import Task

FOLDED_TOGETHER = 300
"""Messages that all sessions may fold in one step of delivery: two milliseconds, as long as
anybody waits for a turn."""


class Backlogged(Protocol):
    """A session."""

    @property
    def backlogged(self) -> bool:
        """Its queue is being folded, and is so long that nothing should be added before."""


Owing = TypeVar("Owing", bound=Backlogged)


class ConflationBudget(Generic[Owing]):
    """The folding budget and the backlogs of one engine's sessions."""

    def __init__(self) -> None:
        self._step = -1
        self._left = 0
        self._owing: dict[Owing, None] = {}
        self._fold: Callable[[Owing], object] = lambda _one: None

    def allowed(self, step: int, message_count: int) -> int:
        """How many of `message_count` messages may be folded now; `step` differs from step to
        step."""
        if step != self._step:
            self._step, self._left = step, FOLDED_TOGETHER
        allowed = min(self._left, message_count)
        self._left -= allowed
        return allowed

    def worked_off_by(self, fold: Callable[[Owing], object]) -> None:
        """Work a backlog off with `fold`, which is called until the backlog is gone."""
        self._fold = fold

    def note(self, one: Owing) -> None:
        """A session may have a backlog."""
        if one.backlogged:
            self._owing[one] = None

    @property
    def exist(self) -> bool:
        """A session has a backlog."""
        while self._owing:
            if next(iter(self._owing)).backlogged:
                return True
            del self._owing[next(iter(self._owing))]
        return False

    def work_off(self) -> Task[None]:
        """Fold, one session after the other, until there is no backlog."""
        while self.exist:
            one = next(iter(self._owing))
            # Take turns: the next step folds for another session.
            del self._owing[one]
            self._owing[one] = None
            self._fold(one)
            yield
