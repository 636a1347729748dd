"""The recovery buffer: frames that were handed to a socket and may not have arrived.

Both sides count the lines of a session. A client that reconnects sends how many it has received,
and the server resends exactly what came after. The buffer is bounded by messages, bytes and age:
where it no longer has the lines, the client is notified of the gap.
"""

from collections import deque
from collections.abc import Callable

from sow.core.definitions import SessionSettings
from sow.protocol.replies import Frames
from sow.streaming.outbox.outbox import Pulled
from sow.streaming.queue_memory import ENTRY_BYTES, QueueShare

Skip = Callable[[bytes, int], bytes]

AGE_US_MAX = 60_000_000
"""A frame that a socket took so long ago has arrived, or the socket is known to be dead."""
NO_FRAMES: deque[tuple[Pulled, int]] = deque()
"""Shared by all buffers that hold nothing, and never added to: an empty deque takes 760 bytes, and
sessions without a name hold nothing."""


class RecoveryBuffer:
    """Frames handed over, newest last. `sent` counts lines since the session was named."""

    def __init__(self, settings: SessionSettings) -> None:
        self._share: QueueShare | None = None
        self._messages_max = settings.recovery_messages_max
        self._bytes_max = settings.queue_bytes_max
        self._frames = NO_FRAMES
        self._message_count = 0
        self._bytes = 0
        self.sent = 0
        self._times_resumed = 0
        self.withdrawn = 0
        """Up to which line nothing may be resent, since its client's permissions have changed."""

    def named_by(self, frame: bytes) -> Frames:
        """The frame that names the session: lines are counted from when it has left."""
        yield frame, 0
        self.restart()

    def resumed_by(self, frame: bytes) -> Frames:
        """The frame by which a connection learns that it has resumed the session."""
        self._times_resumed += 1
        return self._unless_resumed_again(frame, self._times_resumed)

    def _unless_resumed_again(self, frame: bytes, time: int) -> Frames:
        # One that no socket has taken was for a connection that has gone: a client that gets it
        # after another one would count it.
        if time == self._times_resumed:
            yield frame, 0

    def restart(self) -> None:
        """The session has just been named: the next line is the first."""
        self.forget()
        self.sent = self.withdrawn = 0

    def forget(self) -> None:
        """Nothing that was sent is to be resent."""
        self._count(-1)
        self._frames = NO_FRAMES
        self._message_count = self._bytes = 0

    def count_for(self, share: QueueShare | None) -> None:
        """From now on all of it counts for another client, or for nobody."""
        self._count(-1)
        self._share = share
        self._count(1)

    def _count(self, times: int) -> None:
        if self._share is None:
            return
        for pulled, _ in self._frames:
            change = self._share.hold if times > 0 else self._share.drop
            change(pulled.holders, len(pulled.frame), ENTRY_BYTES)

    @property
    def held_bytes(self) -> int:
        """What it takes."""
        return self._bytes + ENTRY_BYTES * len(self._frames)

    def halve(self) -> None:
        """Give up the older half of it, one frame at least."""
        most = self._bytes // 2
        while self._frames:
            self._drop_first()
            if self._bytes <= most:
                break

    def withdraw(self) -> None:
        """What was sent may be more than its client may see now."""
        self.forget()
        self.withdrawn = self.sent

    def add(self, pulled: Pulled, now_us: int) -> None:
        """A frame was handed to the socket."""
        self.sent += pulled.message_count
        if not self._frames:
            self._frames = deque()
        self._frames.append((pulled, now_us))
        self._message_count += pulled.message_count
        self._bytes += len(pulled.frame)
        if self._share is not None:
            self._share.hold(pulled.holders, len(pulled.frame), ENTRY_BYTES)
        frames = self._frames
        while len(frames) > 1 and (
            self._message_count - frames[0][0].message_count >= self._messages_max
            or self._bytes > self._bytes_max
            or frames[0][1] < now_us - AGE_US_MAX
        ):
            self._drop_first()

    def _drop_first(self) -> None:
        old, _ = self._frames.popleft()
        self._message_count -= old.message_count
        self._bytes -= len(old.frame)
        if self._share is not None:
            self._share.drop(old.holders, len(old.frame), ENTRY_BYTES)

    def after(self, seen: int, skip: Skip) -> list[Pulled] | None:
        """Take back the frames with the lines after line `seen`; None if some are gone.

        `seen` is between 0 and `sent`. `skip(frame, n)` is the frame without its first n lines.
        Afterwards `sent` is `seen`.
        """
        first = self.sent - self._message_count
        if seen < first:
            return None
        frames: list[Pulled] = []
        for pulled, _ in self._frames:
            known = max(0, seen - first)
            if known < pulled.message_count:
                frames.append(_rest(pulled, known, skip) if known else pulled)
            first += pulled.message_count
        self.forget()
        self.sent = seen
        return frames

    def check(self) -> None:
        """Assert what resuming at a line relies on."""
        frames = [pulled for pulled, _ in self._frames]
        assert self._message_count == sum(pulled.message_count for pulled in frames)
        assert self._bytes == sum(len(pulled.frame) for pulled in frames)
        assert self._message_count <= self.sent, "more lines are held than were sent"
        assert self.withdrawn <= self.sent, "what was not sent was withdrawn"
        assert all(pulled.message_count > 0 for pulled in frames)
        handed_us = [when_us for _, when_us in self._frames]
        assert handed_us == sorted(handed_us), "frames are held in another order than they left in"
        rest = sum(pulled.message_count for pulled in frames[1:])
        assert rest < self._messages_max or not rest, "more is held than may be"


def _rest(pulled: Pulled, known: int, skip: Skip) -> Pulled:
    """A frame without the lines that were received already."""
    return Pulled(skip(pulled.frame, known), pulled.message_count - known, pulled.since_us)
