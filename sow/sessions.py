"""Sessions: who is connected, and what waits to be written to each of them.

A session says lines and is handed frames. Both go into its *outbox*, in order, with exact counts
of messages and bytes. Lines said one after the other leave in one frame. Frames of a feed are
shared: the outbox holds a reference, so a thousand sessions cost one bytes object. A large
snapshot goes in as an iterator that is pulled only as fast as the socket takes it.

Every entry carries the number of the commit group it was said in; it may leave once that group
is durable, so that nothing a client has seen can be lost in a crash.

The outbox is bounded. A session whose queue stays full is closed with a reason. No I/O here: an
edge calls `Outbox.pull` when its socket can take more, and `Session.end_if_full` after it has.
"""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from sow import replies
from sow.replies import Reply
from sow.topics import SessionSettings
from sow.wire import Encoding

if TYPE_CHECKING:
    from sow.feeds import Feed

Frames = Iterator[tuple[bytes, int]]

PATIENCE_US = 1_000_000
BURST_FACTOR = 4
"""A queue may be over its bounds for so long, and by so much in bytes: a burst that a client is
reading away is no reason to give it up."""
SLOW = "slow client: the session's queue is full"


class Waiting(NamedTuple):
    """Something in an outbox: a frame of `messages` lines, or frames still to be made."""

    group: int
    frame: bytes
    messages: int
    frames: Frames | None = None


class Outbox:
    """What waits for one socket, in order; exact counts of what is held."""

    def __init__(self, settings: SessionSettings) -> None:
        self._settings = settings
        self._waiting: deque[Waiting] = deque()
        self.messages = 0
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def full(self) -> bool:
        """Over one of the bounds."""
        return (
            self.messages > self._settings.queue_messages_max
            or self.bytes > self._settings.queue_bytes_max
        )

    @property
    def bursting(self) -> bool:
        """So far over the bounds that no patience is due."""
        return self.bytes > BURST_FACTOR * self._settings.queue_bytes_max

    def push(self, frame: bytes, messages: int, group: int) -> None:
        """Queue a frame; may leave the queue over its bounds, which the session judges later."""
        self._waiting.append(Waiting(group, frame, messages))
        self.messages += messages
        self.bytes += len(frame)

    def push_frames(self, frames: Frames, group: int) -> None:
        """Queue frames that are made when they are pulled, and so are not counted until then."""
        self._waiting.append(Waiting(group, b"", 0, frames))

    def pull(self, released: int) -> bytes | None:
        """The next frame of a group up to `released`, or None when none may leave."""
        while self._waiting and self._waiting[0].group <= released:
            head = self._waiting[0]
            if head.frames is not None:
                made = next(head.frames, None)
                if made is not None:
                    return made[0]
                self._waiting.popleft()
                continue
            self._waiting.popleft()
            self.messages -= head.messages
            self.bytes -= len(head.frame)
            return head.frame
        return None

    def clear(self) -> None:
        """Drop all that waits."""
        self._waiting.clear()
        self.messages = 0
        self.bytes = 0

    def check(self) -> None:
        """Assert that the counts are those of what is held."""
        assert self.messages == sum(entry.messages for entry in self._waiting)
        assert self.bytes == sum(len(entry.frame) for entry in self._waiting)
        groups = [entry.group for entry in self._waiting]
        assert groups == sorted(groups)


class Session:
    """One connected client. `ended` is the reason once the server has given it up."""

    def __init__(
        self, name: str, encoding: Encoding, settings: SessionSettings, connected_us: int
    ) -> None:
        self.name = name
        self.encoding = encoding
        self.client: str | None = None
        self.connected_us = connected_us
        self.outbox = Outbox(settings)
        self.subscriptions: dict[str, Feed] = {}
        self.ended: str | None = None
        self._lines: list[bytes] = []
        self._full_since_us: int | None = None

    def say(self, reply: Reply) -> None:
        """Add a line; it leaves with the lines said before and after it."""
        self._lines.append(self.encoding.reply(reply))

    def say_lines(self, lines: list[bytes]) -> None:
        """Add lines that the session's encoding has rendered."""
        self._lines.extend(lines)

    def seal(self, group: int) -> None:
        """Put the lines said so far into the outbox as one frame."""
        if self._lines:
            lines, self._lines = self._lines, []
            self._push(self.encoding.frame(lines), len(lines), group)

    def deliver(self, frame: bytes, messages: int, group: int) -> None:
        """Queue a feed's shared frame."""
        self.seal(group)
        self._push(frame, messages, group)

    def stream(self, frames: Frames, group: int) -> None:
        """Queue a snapshot that is made as the socket takes it."""
        self.seal(group)
        if self.ended is None:
            self.outbox.push_frames(frames, group)

    def end(self, reason: str) -> None:
        """Give the session up: drop what waits and say why as the last line."""
        if self.ended is None:
            self.ended = reason
            self._lines.clear()
            self.outbox.clear()
            line = self.encoding.reply(replies.close(reason))
            # Group 0: there is nothing this line would have to wait for.
            self.outbox.push(self.encoding.frame([line]), 1, 0)

    def end_if_full(self, now_us: int) -> None:
        """Give the session up if its queue stays over a bound, or is far over it.

        For the edge to call once the socket has taken what it takes: a large batch may fill the
        queue of a client that reads, and only what stays there means that it does not.
        """
        if not self.outbox.full:
            self._full_since_us = None
            return
        if self._full_since_us is None:
            self._full_since_us = now_us
        if self.outbox.bursting or now_us - self._full_since_us > PATIENCE_US:
            self.end(SLOW)

    def _push(self, frame: bytes, messages: int, group: int) -> None:
        if self.ended is None:
            self.outbox.push(frame, messages, group)
