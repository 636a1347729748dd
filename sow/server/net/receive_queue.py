"""The receive queue: frames of one WebSocket client that are not executed yet.

Frames are queued as they arrive, and their commands are parsed a few at a time: as many as fit into
a slice of the loop. So a frame of millions of lines takes the memory of a few thousand, and frames
of one line (there are many) are still parsed together and share their cost.
"""

from collections import deque
from collections.abc import Iterator

from sow.core.line_splitter import FRAME_PIECE_BYTES, LineSplitter
from sow.protocol.commands import Command
from sow.protocol.publish_batching import Read, read_frames
from sow.protocol.wire import Refused, read_lines

TAKEN_BYTES_MAX = 2 * FRAME_PIECE_BYTES
"""Text that is parsed at once: some hundred messages, or a few thousand of the shortest commands,
about what a slice executes (`sow.server.net.command_pump`)."""
READ_BYTES_MIN = 100
"""The minimum size of a frame or command for this purpose: however short it is, it takes a
microsecond or two to parse."""
Commands = Iterator[Command | Refused | None]
NO_FRAMES: deque[bytes] = deque()
"""The queue of all clients with no frames, never modified: an empty deque takes 760 bytes."""


class ReceiveQueue:
    """Frames of one client. `bytes` is the total size of what is queued; a frame counts until it is
    parsed."""

    def __init__(self) -> None:
        self._frames = NO_FRAMES
        self._long: tuple[LineSplitter, Commands] | None = None
        """The first frame, if it is long and partly parsed."""
        self.bytes = 0

    def add(self, frame: bytes) -> None:
        """Queue a frame."""
        if not self._frames:
            self._frames = deque()
        self._frames.append(frame)
        self.bytes += len(frame)

    def take(self) -> list[Read]:
        """The next commands, in order. None are returned when the queue is empty, and while the
        bodies of a long frame are split; then `bytes` shows that there is more."""
        taken: list[Read] = []
        left = TAKEN_BYTES_MAX
        while self._frames and left > 0:
            short = self._take_short(left)
            taken += read_frames(short)
            left -= sum(map(_weight, short))
            if self._frames and left > 0:
                frame = self._frames[0]
                if self._long is None:
                    lines = LineSplitter(frame)
                    self._long = lines, read_lines(lines)
                left -= self._read_on(*self._long, taken, left)
                if left > 0:
                    # Else the next call finds out whether that was all of the frame.
                    self._long = None
                    self._frames.popleft()
                    self.bytes -= len(frame)
        if not self._frames:
            self._frames = NO_FRAMES
        return taken

    def _take_short(self, bytes_max: int) -> list[bytes]:
        """Frames up to the next one of many lines, up to about `bytes_max`."""
        short: list[bytes] = []
        while self._frames and bytes_max > 0 and _is_short(self._frames[0]):
            frame = self._frames.popleft()
            short.append(frame)
            bytes_max -= _weight(frame)
            self.bytes -= len(frame)
        return short

    @staticmethod
    def _read_on(lines: LineSplitter, commands: Commands, taken: list[Read], bytes_max: int) -> int:
        """Parse some commands of a long frame; returns how much of it was split for them, or more
        if they are short."""
        begins, weight = lines.cut_bytes, 0
        for command in commands:
            if command is not None:
                taken.append(command)
            weight += READ_BYTES_MIN
            if max(lines.cut_bytes - begins, weight) >= bytes_max:
                break
        return max(lines.cut_bytes - begins, weight)

    def clear(self) -> None:
        """Drop everything."""
        self._frames.clear()
        self._long = None
        self.bytes = 0


def _is_short(frame: bytes) -> bool:
    """Whether a frame is parsed at once: it is small, or one line, which cannot be split."""
    return len(frame) <= FRAME_PIECE_BYTES or b"\n" not in frame


def _weight(frame: bytes) -> int:
    return max(len(frame), READ_BYTES_MIN)
