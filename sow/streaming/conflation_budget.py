"""Arrears: the folding that sessions owe, all of them together.

The queue of a session that does not read is folded in steps (`sow.streaming.outbox.outbox`). To add
to it is one reference, so who changes records could be ahead of that for ever; and where hundreds
do not read, nobody may fold for all of them in the step in which they are told something. So

    as they are told     all sessions together fold so much in one step; the rest waits, counted
    before more is told  who changes records works off, step by step and in turns with everybody
                         else, what sessions owe whose queues are over twice their bounds

What waits beyond these bounds is what was told meanwhile: one slice of a publish or delete of each
client, and what falls due. Frames are held by reference, once for all sessions.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from sow.core.cooperative import Task

FOLDED_TOGETHER = 300
"""Messages that all sessions may fold in one step in which they are told something: two
milliseconds, as much as others wait for anybody's turn."""


class Backlogged(Protocol):
    """A session."""

    @property
    def backlogged(self) -> bool:
        """Its queue is being folded, and so long that nothing should be added before it is."""


Owing = TypeVar("Owing", bound=Backlogged)


class ConflationBudget(Generic[Owing]):
    """What the sessions of one engine owe."""

    def __init__(self) -> None:
        self._step = -1
        self._left = 0
        self._owing: dict[Owing, None] = {}
        self._fold: Callable[[Owing], object] = lambda _one: None

    def allowed(self, step: int, message_count: int) -> int:
        """How many of so many messages may be folded now; `step` is a number that is another one
        in another step."""
        if step != self._step:
            self._step, self._left = step, FOLDED_TOGETHER
        allowed = min(self._left, message_count)
        self._left -= allowed
        return allowed

    def worked_off_by(self, fold: Callable[[Owing], object]) -> None:
        """Have some of what one owes folded by `fold`, which goes on until it owes nothing."""
        self._fold = fold

    def note(self, one: Owing) -> None:
        """One of them may be in arrears."""
        if one.backlogged:
            self._owing[one] = None

    @property
    def exist(self) -> bool:
        """Somebody is in arrears."""
        while self._owing:
            if next(iter(self._owing)).backlogged:
                return True
            del self._owing[next(iter(self._owing))]
        return False

    def work_off(self) -> Task[None]:
        """Fold, one after the other, until nobody is in arrears."""
        while self.exist:
            one = next(iter(self._owing))
            # The next step is another one's.
            del self._owing[one]
            self._owing[one] = None
            self._fold(one)
            yield
