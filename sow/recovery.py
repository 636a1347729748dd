"""The recovery buffer: what was handed to a socket and may not have arrived.

Both sides count the lines of a session. A client that comes back says how many it has seen; what
was handed over after that is sent again, to the line. The buffer is bounded by messages, by bytes
and by age: what it no longer holds cannot be made up for, and the client is told so.
"""

from collections import deque
from collections.abc import Callable

from sow.topics import SessionSettings

Skip = Callable[[bytes, int], bytes]

AGE_US_MAX = 60_000_000
"""A frame that a socket took so long ago has arrived, or the socket is known to be dead."""


class Recovery:
    """Frames handed over, newest last. `sent` counts lines since the session was named."""

    def __init__(self, settings: SessionSettings) -> None:
        self._messages_max = settings.recovery_messages_max
        self._bytes_max = settings.queue_bytes_max
        self._frames: deque[tuple[bytes, int, int]] = deque()
        self._messages = 0
        self._bytes = 0
        self.sent = 0

    def restart(self) -> None:
        """The session has just been named: the next line is the first."""
        self._frames.clear()
        self._messages = self._bytes = self.sent = 0

    def add(self, frame: bytes, messages: int, now_us: int) -> None:
        """A frame was handed to the socket."""
        self.sent += messages
        self._frames.append((frame, messages, now_us))
        self._messages += messages
        self._bytes += len(frame)
        frames = self._frames
        while len(frames) > 1 and (
            self._messages - frames[0][1] >= self._messages_max
            or self._bytes > self._bytes_max
            or frames[0][2] < now_us - AGE_US_MAX
        ):
            old, count, _ = frames.popleft()
            self._messages -= count
            self._bytes -= len(old)

    def after(self, seen: int, skip: Skip) -> list[tuple[bytes, int]] | None:
        """Frames with the lines after line `seen`, taken back; None if some are not held.

        `skip(frame, n)` is the frame without its first n lines. Afterwards `sent` is `seen`.
        """
        first = self.sent - self._messages
        if not first <= seen <= self.sent:
            return None
        frames: list[tuple[bytes, int]] = []
        for frame, messages, _ in self._frames:
            known = max(0, seen - first)
            if known < messages:
                frames.append(
                    (skip(frame, known), messages - known) if known else (frame, messages)
                )
            first += messages
        self._frames.clear()
        self._messages = self._bytes = 0
        self.sent = seen
        return frames
