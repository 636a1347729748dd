"""The inbox: what one client has sent over its WebSocket and is not carried out yet.

Frames wait here as they came, and their commands are read a few at a time: as many as fit into a
turn of the loop. So a frame of millions of lines takes the memory of a few thousand, and frames of
one line, which come in numbers, are still taken together and share their cost.
"""

from collections import deque
from collections.abc import Iterator

from sow.core.line_splitter import FRAME_PIECE_BYTES, LineSplitter
from sow.protocol.commands import Command
from sow.protocol.publish_batching import Read, read_frames
from sow.protocol.wire import Refused, read_lines

TAKEN_BYTES_MAX = 2 * FRAME_PIECE_BYTES
"""Text that is read at once: some hundred messages, or a few thousand of the shortest commands,
about what a turn carries out (`sow.server.net.command_pump`)."""
READ_BYTES_MIN = 100
"""What a frame or a command counts for at least: however short it is, it takes a microsecond or two
to read."""
Commands = Iterator[Command | Refused | None]
NO_FRAMES: deque[bytes] = deque()
"""What waits of all of whom nothing does, and never anything else: an empty one takes 760 bytes."""


class ReceiveQueue:
    """Frames of one client. `bytes` is how much of them waits; a frame counts until it is read."""

    def __init__(self) -> None:
        self._frames = NO_FRAMES
        self._long: tuple[LineSplitter, Commands] | None = None
        """The first frame, if it is a long one of which some was read."""
        self.bytes = 0

    def add(self, frame: bytes) -> None:
        """A frame has come."""
        if not self._frames:
            self._frames = deque()
        self._frames.append(frame)
        self.bytes += len(frame)

    def take(self) -> list[Read]:
        """The next commands, in order. None come when nothing waits, and while the bodies of a long
        frame are cut; then `bytes` says that there is more."""
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
                    # Else it is seen next time whether that was all of the frame.
                    self._long = None
                    self._frames.popleft()
                    self.bytes -= len(frame)
        if not self._frames:
            self._frames = NO_FRAMES
        return taken

    def _take_short(self, bytes_max: int) -> list[bytes]:
        """Frames up to the next one of many lines, about so many bytes of them."""
        short: list[bytes] = []
        while self._frames and bytes_max > 0 and _is_short(self._frames[0]):
            frame = self._frames.popleft()
            short.append(frame)
            bytes_max -= _weight(frame)
            self.bytes -= len(frame)
        return short

    @staticmethod
    def _read_on(lines: LineSplitter, commands: Commands, taken: list[Read], bytes_max: int) -> int:
        """Read some commands of a long frame; returns how much of it was cut for them, or more
        where they are short."""
        begins, weight = lines.cut_bytes, 0
        for command in commands:
            if command is not None:
                taken.append(command)
            weight += READ_BYTES_MIN
            if max(lines.cut_bytes - begins, weight) >= bytes_max:
                break
        return max(lines.cut_bytes - begins, weight)

    def clear(self) -> None:
        """Forget it all."""
        self._frames.clear()
        self._long = None
        self.bytes = 0


def _is_short(frame: bytes) -> bool:
    """Whether a frame is read at once: it is a piece, or one line, of which there are no pieces."""
    return len(frame) <= FRAME_PIECE_BYTES or b"\n" not in frame


def _weight(frame: bytes) -> int:
    return max(len(frame), READ_BYTES_MIN)
