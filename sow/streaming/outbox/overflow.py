"""Overflow: since when a queue has been over its bounds, and what was done about it.

A session acts (`sow.streaming.sessions`): it gives up subscriptions, folds the queue, or closes.
Here is what it decides by: whether the queue has grown enough to be folded again, and whether the
client has had enough time to read.
"""

from collections import deque
from typing import NamedTuple

from sow.core.definitions import SessionSettings
from sow.streaming.outbox.outbox import Outbox

PATIENCE_US = 1_000_000
"""A queue may be over its bounds for so long while the client's socket takes nothing: a server that
has had no time for a client is no reason to close it."""
BURST_FACTOR = 4
"""A queue may be over its bounds by so much in bytes: a burst that a client is reading is no reason
to close it."""
AGAIN_FRACTION = 0.1
"""A queue that conflation could not bring under its bounds is conflated again when it has grown by
so much: what has just been folded will not fold again."""
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
        "_folded_to",
        "_full_since_us",
        "_outbox",
        "_settings",
        "dropped",
        "given_up",
        "is_noted",
    )

    def __init__(self, outbox: Outbox, settings: SessionSettings) -> None:
        self._outbox = outbox
        self._settings = settings
        self.dropped = 0
        """Messages dropped with subscriptions that were given up."""
        self.given_up: deque[GivenUp] = deque(maxlen=GIVEN_UP_MAX)
        """The last times that subscriptions were given up."""
        self.is_noted = False
        """Something is known of the queue: looked for without a call, as it is for most not."""
        self._full_since_us: int | None = None
        self._folded_to: tuple[int, int] | None = None

    def note_given_up(self, now_us: int, topics: list[str], lines: int) -> None:
        """Subscriptions to these topics were given up, and so many lines dropped with them."""
        self.dropped += lines
        self.given_up.append(GivenUp(now_us, tuple(topics[:GIVEN_UP_MAX]), len(topics), lines))

    def note_folded(self) -> None:
        """All of the queue was folded."""
        self.is_noted = True
        self._folded_to = (self._outbox.message_count, self._outbox.size_bytes)

    def end(self) -> None:
        """Nothing waits any more."""
        self.is_noted, self._full_since_us, self._folded_to = False, None, None

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
        return self._outbox.size_bytes > BURST_FACTOR * self._settings.queue_bytes_max

    @property
    def is_worth_folding(self) -> bool:
        """The queue has not been folded, or has grown enough since."""
        if self._folded_to is None:
            return True
        message_count, size = self._folded_to
        return (
            self._outbox.message_count - message_count
            > AGAIN_FRACTION * self._settings.queue_messages_max
            or self._outbox.size_bytes - size > AGAIN_FRACTION * self._settings.queue_bytes_max
        )
