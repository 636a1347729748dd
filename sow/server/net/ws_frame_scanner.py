"""The frames of a WebSocket, followed in the bytes as they come, none of which are kept.

aiohttp puts messages together and hands them out whole; what it holds of one that is not whole yet
nobody can ask it. This reads the lengths in the frames' headers (RFC 6455 §5.2), which is enough to
know it. It also refuses what aiohttp accepts and RFC 6455 forbids: frames of a client without a
mask (§5.1), messages that begin within another one (§5.4), and codes that no close frame may have
(§7.4). Pure, and a few steps for each frame.
"""

FINAL, OPCODE = 0x80, 0x0F
CONTROL = 0x8  # and above: frames that are no part of a message
PING = 0x9
"""The opcode of a ping (RFC 6455 §5.5.2)."""
MASKED, LENGTH = 0x80, 0x7F
MASK_BYTES = 4
"""Of the mask, which stands before what it masks (RFC 6455 §5.3)."""
NO_CODE, NORMAL, PROTOCOL_ERROR = 0, 1000, 1002
"""Of a close frame without a code, as aiohttp reads it, and codes of RFC 6455 §7.4.1."""
CLOSE_CODES = frozenset((*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)))
"""Codes that a close frame may have: those of RFC 6455 and of IANA's registry, and those that
libraries and applications define (RFC 6455 §7.4.2)."""


class BadFrame(Exception):
    """A frame that RFC 6455 forbids; it begins after `good` bytes of those that were given."""

    def __init__(self, good: int) -> None:
        super().__init__(good)
        self.good = good


def close_answer(code: int) -> int:
    """The code of the close frame that answers one with `code`: the same one (RFC 6455 §5.5.1), or
    what says that the client must not send it."""
    if code == NO_CODE:
        return NORMAL
    return code if code in CLOSE_CODES else PROTOCOL_ERROR


class FrameScanner:
    """What has come of one client's frames."""

    __slots__ = (
        "_begun",
        "_first",
        "_head",
        "_in_frame",
        "_left",
        "complete",
        "controls",
        "held",
        "pings",
    )

    def __init__(self) -> None:
        self.complete = 0
        """Messages that are whole."""
        self.pings = 0
        """Pings that the client has sent of its own accord."""
        self.controls = 0
        """Pings, and what else is no part of a message."""
        self.held = 0
        """Bytes that came after the last whole message: what there is of the next one."""
        self._begun = False
        self._in_frame = False
        self._first = 0
        self._left = 0
        self._head = b""

    def feed(self, data: bytes) -> None:
        """The next bytes of the connection; raises BadFrame, after which nothing may be fed."""
        self.held += len(data)
        before = len(self._head)
        if before:
            data, self._head = self._head + data, b""
        at, size = self._left, len(data)
        while at <= size:
            if self._in_frame:
                self._in_frame = False
                self._end_frame(size - at)
            if size - at < 2:
                break
            if not data[at + 1] & MASKED or (self._begun and 0 < data[at] & OPCODE < CONTROL):
                raise BadFrame(max(0, at - before))
            length, start = data[at + 1] & LENGTH, at + 2
            if length > 125:
                start += 2 if length == 126 else 8
                if start > size:
                    break
                length = int.from_bytes(data[at + 2 : start], "big")
            self._first, self._in_frame = data[at], True
            at = start + MASK_BYTES + length
        if self._in_frame:
            self._left = at - size
        else:
            self._left, self._head = 0, data[at:]

    def _end_frame(self, rest: int) -> None:
        """A frame is whole, and so many bytes come after it."""
        opcode = self._first & OPCODE
        if opcode < CONTROL and self._first & FINAL:
            self.complete += 1
            self._begun = False
            self.held = rest
            return
        self._begun |= opcode < CONTROL
        self.pings += opcode == PING
        self.controls += opcode >= CONTROL
        if not self._begun:
            self.held = rest  # a control frame between two messages is gone with its answer
