"""Overflow: since when a queue has been over its bounds, and what was done about it; and how much
of all queues is folded in one step.

A session acts (`sow.streaming.sessions`): it gives up subscriptions, folds the queue, or closes.
Here is what it decides by: whether the queue has grown enough to be folded again, whether the
client has had enough time to read, and what all sessions together may fold now.
"""

from collections import deque
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from sow.core.cooperative import Task
from sow.core.definitions import SessionSettings
from sow.streaming.outbox.conflate import Queue

PATIENCE_US = 1_000_000
"""A queue may be over its bounds for so long while the client's socket takes nothing: a server that
has had no time for a client is no reason to close it."""
BURST_FACTOR = 4
"""A queue may be over its bounds by so much in bytes: a burst that a client is reading is no reason
to close it."""
AGAIN_FRACTION = 0.1
"""A queue that conflation could not bring under its bounds is conflated again when it has grown by
so much: what has just been folded will not fold again."""
FOLDED_TOGETHER = 300
"""Messages that all sessions may fold in one step of delivery: two milliseconds, as long as
anybody waits for a turn."""
GIVEN_UP_MAX = 10
"""So many times that subscriptions were given up are remembered, and so many topics of each: the
last ones explain a gap."""


class GivenUp(NamedTuple):
    """Subscriptions that were given up at `at_us` because the session did not keep up: the first of
    their topics, their number, and how many lines were dropped with them."""

    at_us: int
    topics: tuple[str, ...]
    subscriptions: int
    lines: int


class Overflow:
    """What is known of a queue that is over its bounds, or has been."""

    __slots__ = (
        "_folded_to", "_full_since_us", "_queue", "_settings", "dropped", "folding_helps",
        "given_up", "is_noted",
    )  # fmt: skip

    def __init__(self, queue: Queue, settings: SessionSettings) -> None:
        self._queue = queue
        self._settings = settings
        self.dropped = 0
        """Messages dropped with subscriptions that were given up."""
        self.given_up: deque[GivenUp] = deque(maxlen=GIVEN_UP_MAX)
        """The last times that subscriptions were given up."""
        self.is_noted = False
        """Something is known of the queue: looked for without a call, as it is for most not."""
        self.folding_helps = False
        """Folding has brought it within its bounds: only what has come since can exceed them."""
        self._full_since_us: int | None = None
        self._folded_to: tuple[int, int] | None = None

    def note_given_up(self, now_us: int, topics: list[str], lines: int) -> None:
        """Subscriptions to these topics were given up, and so many lines dropped with them."""
        self.dropped += lines
        self.given_up.append(GivenUp(now_us, tuple(topics[:GIVEN_UP_MAX]), len(topics), lines))

    def note_folded(self, is_full: bool) -> None:
        """All of the queue was folded, and still `is_full` or not."""
        self.is_noted, self.folding_helps = True, not is_full
        self._folded_to = (self._queue.message_count, self._queue.bytes)

    def end(self) -> None:
        """Nothing waits any more."""
        self.is_noted = self.folding_helps = False
        self._full_since_us = self._folded_to = None

    def pause(self) -> None:
        """It is within its bounds, or does not wait for its client: no time counts."""
        self._full_since_us = None

    def lasts_too_long(self, now_us: int) -> bool:
        """Whether the client that it waits for has had its time, which counts from the first
        call."""
        if self._full_since_us is None:
            self.is_noted, self._full_since_us = True, now_us
        return now_us - self._full_since_us > PATIENCE_US

    @property
    def is_excessive(self) -> bool:
        """No time is left to the client at all."""
        return self._queue.bytes > BURST_FACTOR * self._settings.queue_bytes_max

    @property
    def is_worth_folding(self) -> bool:
        """The queue has not been folded, or has grown enough since."""
        if self._folded_to is None:
            return True
        message_count, size = self._folded_to
        return (
            self._queue.message_count - message_count
            > AGAIN_FRACTION * self._settings.queue_messages_max
            or self._queue.bytes - size > AGAIN_FRACTION * self._settings.queue_bytes_max
        )


class Relief(Protocol):
    """What frees queue memory, in steps."""

    def look(self) -> bool:
        """Look at what is held; whether there is something to do."""
        ...

    def go_on(self) -> bool:
        """Do a step; whether there is more to do."""
        ...


class Backlogged(Protocol):
    """A session."""

    @property
    def backlogged(self) -> bool:
        """Its queue is being folded, and is so long that nothing should be added before."""


Owing = TypeVar("Owing", bound=Backlogged)


class ConflationBudget(Generic[Owing]):
    """The folding budget and the backlogs of one engine's sessions.

    The queue of a session that does not read is folded in steps. Adding to it appends one
    reference, so a publisher could stay ahead of it for ever; and where hundreds of clients do not
    read, one step cannot fold for all of them. So

        on delivery           all sessions together fold up to a budget in one step; the rest stays
                              in their backlogs
        before more changes   the writer works off, step by step and in turns with everybody else,
                              the backlogs of sessions whose queues are over twice their bounds,
                              and queue memory that is over its bound is relieved

    What waits beyond these bounds is what was delivered meanwhile: one slice of a publish or delete
    of each client, and what falls due. Frames are held by reference, once for all sessions.
    """

    def __init__(self) -> None:
        self._step = -1
        self._left = 0
        self._owing: dict[Owing, Callable[[Owing], object]] = {}
        """Sessions with a backlog, and what folds a step of it."""
        self._relief: Relief | None = None

    def allowed(self, step: int, message_count: int) -> int:
        """How many of `message_count` messages may be folded now; `step` differs from step to
        step."""
        if step != self._step:
            self._step, self._left = step, FOLDED_TOGETHER
        allowed = min(self._left, message_count)
        self._left -= allowed
        return allowed

    def relieved_by(self, relief: Relief) -> None:
        """Free queue memory with this one, too, before more is added."""
        self._relief = relief

    def note(self, one: Owing, fold: Callable[[Owing], object]) -> None:
        """A session may have a backlog; `fold` is called until it is gone."""
        if one.backlogged:
            self._owing[one] = fold

    def must_work_off(self) -> bool:
        """Whether a session has a backlog, or memory has to be freed; forgets sessions that have
        none any more."""
        while self._owing:
            one = next(iter(self._owing))
            if one.backlogged:
                return True
            del self._owing[one]
        return self._relief is not None and self._relief.look()

    def work_off(self) -> Task[None]:
        """Fold, one session after the other, until there is no backlog."""
        while self.must_work_off():
            if self._owing:
                # Take turns: the next step folds for another session.
                one = next(iter(self._owing))
                self._owing[one] = fold = self._owing.pop(one)
                fold(one)
            elif self._relief is not None:
                self._relief.go_on()
            yield
