"""When a replay from the log may go on: not while its client has paused it, and at most so many
messages a second.

A replay that may not go on hands its session's queue back, so that everything else of the session
is sent meanwhile, and is queued again later: by `resume`, or by a timer of the engine. It keeps its
place in the log, and no entries of it while it is paused; the log is not held back for it, so one
that has waited for too long ends as any late one does.

A rate is kept in turns, each of a tenth of what is sent in a second, or of one message: after a
turn the replay waits for as long as its messages take at the rate. What was not sent in time is not
made up for. Nothing here knows of sessions or of the log (`sow.sessions.subscriptions.log_replay`).
"""

from collections.abc import Callable

from sow.core.clock import SECOND_US
from sow.engine.engine import Engine
from sow.engine.timers import Deadline
from sow.errors import ClientError, invalid_options, shown

TURNS_PER_SECOND = 10
"""Often enough to look steady, and seldom enough that a timer costs nothing."""

AHEAD_MIN = 100
"""Records that are read ahead at least, whatever the rate: a look into the log costs as much as
some hundreds. Thousands of slow replays would hold more for a client than it may have."""


class ReplayControl:
    """Of one replay. `rate`: so many messages a second, None: as fast as its client reads."""

    def __init__(self, engine: Engine, rate: int | None = None, is_paused: bool = False) -> None:
        self._engine = engine
        self._rate = rate
        self.is_paused = is_paused
        self._left = 0
        """Messages that may still be sent in this turn."""
        self._free_us = 0
        """When the messages of this turn have taken their time."""
        self._again: Callable[[], None] | None = None
        """Queues the replay again, while it is paused."""
        self._deadline: Deadline | None = None

    def room(self, at_most: int) -> int:
        """How many messages may be sent now."""
        return at_most if self._rate is None else min(at_most, self._left)

    def ahead(self, at_most: int) -> int:
        """How many records may be read ahead: those of a second."""
        return at_most if self._rate is None else min(at_most, max(AHEAD_MIN, self._rate))

    def note_sent(self, count: int) -> None:
        """So many messages were sent."""
        if self._rate is not None:
            self._left -= count
            begun_us = max(self._free_us, self._engine.now_us)
            self._free_us = begun_us - (-count * SECOND_US // self._rate)

    def waits(self, again: Callable[[], None]) -> bool:
        """Whether the replay has to wait; if so, `again` is called when it may go on."""
        if self.is_paused:
            self._again = again
            return True
        if self._rate is None or self._left > 0:
            return False
        if self._engine.now_us >= self._free_us:
            self._left = max(1, self._rate // TURNS_PER_SECOND)
            return False
        self._wait_for_turn(again)
        return True

    def _wait_for_turn(self, again: Callable[[], None]) -> None:
        def act() -> None:
            self.stop()
            again()

        self._deadline = Deadline(lambda: self._free_us, act)
        self._engine.timers.add(self._deadline)
        self._engine.notify_work()

    def pause(self) -> None:
        """Wait until `resume`."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on; nothing happens to one that is not paused."""
        self.is_paused = False
        again, self._again = self._again, None
        if again is not None:
            again()

    def stop(self) -> None:
        """Wait no more: the replay has ended, or its turn has come."""
        self._again = None
        if self._deadline is not None:
            self._engine.timers.remove(self._deadline)
            self._deadline = None


def held_by_pause(what: str) -> ClientError:
    """It is not paused for a long time, since it keeps more than a place in the log."""
    return invalid_options(
        f"{what} goes by records that a pause would hold in memory; unsubscribe, and subscribe "
        "later with the bm of the last line"
    )


def not_controlled(topic: str) -> ClientError:
    """What a conflated topic or a view has sent is neither paused nor held to a rate."""
    return invalid_options(
        f"what {shown(topic)} has sent is computed from the log again, in turns of its own; leave "
        "out pause and rate, or subscribe to the topic that it is made of"
    )
