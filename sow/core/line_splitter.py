"""The lines of a client's frame, cut off as they are wanted.

A frame may have 64 MiB and a line two bytes: all its lines at once would take fifteen times the
frame. So a frame is cut a piece at a time, by one fast split a piece; one that is no longer than a
piece, as nearly all are, is cut at once. What the lines say is read by `sow.protocol.wire`.
"""

import re

FRAME_PIECE_BYTES = 64 * 1024
"""What is cut of a large frame in one go. A frame of nothing but line breaks becomes no more lines
than this at a time."""
_TEXT = re.compile(rb"\S")


class LineSplitter:
    """The lines of `frame`, each once, in order; they are what ``frame.split(b"\\n")`` gives."""

    __slots__ = ("_at", "_frame", "_lines", "_next")

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._next = 0
        short = len(frame) <= FRAME_PIECE_BYTES
        self._lines: list[bytes] = frame.split(b"\n") if short else []
        self._at: int | None = None if short else 0
        """Where the next piece begins; None: all is cut."""

    @property
    def cut_bytes(self) -> int:
        """How much of the frame has been cut into lines."""
        return len(self._frame) if self._at is None else self._at

    @property
    def is_cut(self) -> bool:
        """All of the frame has been cut into lines."""
        return self._at is None

    def next(self) -> bytes | None:
        """The next line, or None at the end."""
        at = self._next
        if at == len(self._lines):
            self._pass_blanks()
            if self._at is None:
                return None
            self._cut()
            at = 0
        self._next = at + 1
        return self._lines[at]

    def cut_towards(self, count: int) -> bool:
        """Cut one piece more where so many lines are left, or may be; False if that needs none."""
        if len(self._lines) - self._next >= count or self._at is None:
            return False
        self._cut()
        return True

    def has(self, count: int) -> bool:
        """Whether so many lines are left."""
        while self.cut_towards(count):
            pass
        return len(self._lines) - self._next >= count

    def peek(self, count: int) -> list[bytes]:
        """The next so many lines, or what is left of them; they stay the next ones."""
        self.has(count)
        return self._lines[self._next : self._next + count]

    def skip(self, count: int) -> None:
        """Pass over so many lines, which are there."""
        self._next += count

    def leave(self) -> bool:
        """End here; whether there was anything left but blanks."""
        left = self._lines[self._next :]
        begins, self._at = self._at, None
        self._lines, self._next = [], 0
        if any(line and not line.isspace() for line in left):
            return True
        return begins is not None and _TEXT.search(self._frame, begins) is not None

    def _pass_blanks(self) -> None:
        """Pass over pieces in which there is nothing, which would be many lines."""
        while self._at and self._frame[self._at : self._at + FRAME_PIECE_BYTES].isspace():
            at = self._at + FRAME_PIECE_BYTES
            self._at = at if at < len(self._frame) else None

    def _cut(self) -> None:
        assert self._at is not None
        end = self._frame.find(b"\n", self._at + FRAME_PIECE_BYTES)
        piece = self._frame[self._at :] if end < 0 else self._frame[self._at : end]
        self._at = None if end < 0 else end + 1
        if self._next == len(self._lines):
            self._lines = piece.split(b"\n")
        else:
            del self._lines[: self._next]
            self._lines += piece.split(b"\n")
        self._next = 0
