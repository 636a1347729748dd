"""Scans the frames of a WebSocket in the bytes as they arrive, without keeping them.

aiohttp assembles messages and returns complete ones; how much it holds of an incomplete one cannot
be queried. This parses the frame headers (RFC 6455 §5.2), which is enough to know it. It also
rejects what aiohttp accepts and RFC 6455 forbids: client frames without a mask (§5.1), messages
that begin within another one (§5.4), and invalid close codes (§7.4). Pure, and a few steps per
frame.
"""

FINAL, OPCODE = 0x80, 0x0F
CONTROL = 0x8  # and above: frames that are not part of a message
PING = 0x9
"""The opcode of a ping (RFC 6455 §5.5.2)."""
MASKED, LENGTH = 0x80, 0x7F
MASK_BYTES = 4
"""Size of the mask before the payload (RFC 6455 §5.3)."""
NO_CODE, NORMAL, PROTOCOL_ERROR = 0, 1000, 1002
"""The code of a close frame without one, as aiohttp reports it, and codes of RFC 6455 §7.4.1."""
CLOSE_CODES = frozenset((*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)))
"""Valid close codes: those of RFC 6455 and of IANA's registry, and those for libraries and
applications (RFC 6455 §7.4.2)."""


class BadFrame(Exception):
    """A frame that RFC 6455 forbids; it begins after `good` bytes of the input."""

    def __init__(self, good: int) -> None:
        super().__init__(good)
        self.good = good


def close_answer(code: int) -> int:
    """The close code that answers `code`: the same one (RFC 6455 §5.5.1), or a protocol error for
    an invalid one."""
    if code == NO_CODE:
        return NORMAL
    return code if code in CLOSE_CODES else PROTOCOL_ERROR


class FrameScanner:
    """The state of one client's frames."""

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
        """Complete messages."""
        self.pings = 0
        """Pings that the client has sent."""
        self.controls = 0
        """Control frames."""
        self.held = 0
        """Bytes since the last complete message: the part of the next one."""
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
        """A frame is complete, followed by `rest` bytes."""
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
            self.held = rest  # a control frame between two messages is answered and gone
