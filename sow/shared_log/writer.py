"""What a primary has on its way to a shared log: several entries, released in order once they have
been read back.

    add ──> waits ──> sent, each with the hash of the one before as `prev`, up to `IN_FLIGHT_MAX`
    found ──────────> it was read back as valid: durable, and in its place on every node
    in doubt ───────> no answer came, or a void copy was read: the log is read up to its end, and
                      what is not found is sent again, with a new `prev` and a new token

An answer of the engine says that something is there, not what: it releases nothing. It only gives
its entry time to be read. Attempts differ by their tokens: an answer to an earlier one counts for
none that came later. An earlier attempt may arrive late all the same, and be the valid one, so
hashes of all attempts are known until their entry is found; only one of them can ever be valid.

A writer writes in one term. When a valid entry is not its own, another node leads, and what is
still here can never become valid: it is not in the log, for certain.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sow.shared_log.entry import EntryKind, LogEnvelope, NewToken, parts_of

IN_FLIGHT_MAX = 8
"""Entries on their way at once. Deeper brings little, and in doubt all of them are sent again."""
IN_FLIGHT_BYTES_MAX = 2 * 1024**2
"""Content of these, unless it is one entry: of more a slow engine would store the last ones so late
that the primary is stale meanwhile, and each doubt sends all of it again."""
GROUP_BYTES_MAX = 64 * 1024**2
"""Content of one group, which every reader holds: what is more has to be several, unless it is one
change that became so large, since what a node has taken it does not refuse any more."""


class AppendBlock(NamedTuple):
    """Append a block; report `acked` or `failed` with the token, whenever that is known."""

    token: bytes
    block: bytes


@dataclass(slots=True)
class OutgoingEntry:
    """An entry that is not known to be in the log: one group, or a part of it."""

    kind: int
    content: bytes
    goes_on: bool
    time_us: int
    number: int | None
    """Of the group that is complete with it."""
    token: bytes = b""
    prev: bytes = b""
    hash: bytes = b""
    """Of the newest attempt."""
    envelope: LogEnvelope | None = None
    block: bytes = b""
    """What that was, and its bytes."""
    since_us: int = 0
    """When it was sent or answered."""
    position: int | None = None
    """Where the engine says that it is."""
    attempts: dict[bytes, int] = field(default_factory=dict)
    """By hash, when each was sent."""

    def attempt(self, term: int, prev: bytes, token: bytes, now_us: int) -> AppendBlock:
        """What to send now."""
        self.envelope = LogEnvelope(
            self.kind, term, self.time_us, prev, token, self.content, self.goes_on
        )
        self.block, self.hash = self.envelope.encode()
        self.token, self.prev, self.since_us, self.position = token, prev, now_us, None
        self.attempts[self.hash] = now_us
        return AppendBlock(token, self.block)

    def answered(self, position: int, now_us: int) -> None:
        """The engine says that the newest attempt is at a position."""
        self.position, self.since_us = position, now_us


class EntryWriter:
    """The entries of one term, the first of them behind the valid entry `last_hash`.

    An answer may take `answer_us`, and so may reading after it.
    """

    def __init__(
        self,
        term: int,
        last_hash: bytes,
        answer_us: int,
        new_token: NewToken,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self.term = term
        self.is_in_doubt = False
        self.durable_us: int | None = None
        """When the newest entry that was found had been sent."""
        self.sent_us = 0
        self._hash = last_hash
        self._answer_us = answer_us
        self._new_token = new_token
        self._in_flight_max = in_flight_max
        self._entries: deque[OutgoingEntry] = deque()
        """In order; the first `_in_flight` are sent."""
        self._in_flight = 0
        self._send_after_us = 0
        self._was_in_vain = False
        """Nothing was found since entries were sent again."""

    @property
    def is_idle(self) -> bool:
        """Nothing waits, and nothing is on its way."""
        return not self._entries

    def has(self, kind: EntryKind) -> bool:
        """Whether one of a kind waits or is on its way."""
        return any(one.kind == kind for one in self._entries)

    @property
    def numbers(self) -> list[int]:
        """The groups that are not released, in order."""
        return [one.number for one in self._entries if one.number is not None]

    def add(self, number: int | None, kind: EntryKind, content: bytes, time_us: int) -> None:
        """Send a group when its turn comes."""
        for part, goes_on in parts_of(content):
            last = None if goes_on else number
            self._entries.append(OutgoingEntry(kind, part, goes_on, time_us, last))

    def send(self, now_us: int) -> Iterator[AppendBlock]:
        """What can be sent now."""
        while self._may_send(now_us):
            prev = self._entries[self._in_flight - 1].hash if self._in_flight else self._hash
            entry = self._entries[self._in_flight]
            self._in_flight += 1
            self.sent_us = now_us
            yield entry.attempt(self.term, prev, self._new_token(), now_us)

    def _may_send(self, now_us: int) -> bool:
        if self.is_in_doubt or now_us < self._send_after_us:
            return False
        if self._in_flight >= min(self._in_flight_max, len(self._entries)):
            return False
        size = sum(len(self._entries[at].content) for at in range(self._in_flight + 1))
        return not self._in_flight or size <= IN_FLIGHT_BYTES_MAX

    def due_us(self) -> int | None:
        """When `pass_time` or `send` has something to do."""
        if self._in_flight:
            return self._entries[0].since_us + self._answer_us
        return self._send_after_us if self._entries else None

    def pass_time(self, now_us: int) -> None:
        """Doubt what has taken too long."""
        if self._in_flight and now_us >= self._entries[0].since_us + self._answer_us:
            self.is_in_doubt = True

    # What the engine says.

    def acked(self, token: bytes, position: int, now_us: int) -> None:
        """An attempt was answered."""
        for entry in self._flying():
            if entry.token == token:
                entry.answered(position, now_us)

    def failed(self, token: bytes) -> None:
        """An attempt was not answered, and will not be."""
        if any(entry.token == token for entry in self._flying()):
            self.is_in_doubt = True

    def _flying(self) -> list[OutgoingEntry]:
        return [self._entries[at] for at in range(self._in_flight)]

    # What was read.

    def sent(self, block: bytes) -> tuple[LogEnvelope, bytes] | None:
        """The entry, and its hash, whose newest attempt a block is, byte by byte: it need not be
        decoded, which takes a hash of it all. None: another one, or it was changed on its way."""
        first = self._entries[0] if self._in_flight else None
        if first is None or first.envelope is None or block != first.block:
            return None
        return first.envelope, first.hash

    def found(self, entry_hash: bytes, now_us: int) -> OutgoingEntry | None:
        """A valid entry was read: which one of these it is, durable now; None: of none. The engine
        is at the next one now, however long that has been on its way."""
        if not self._entries or entry_hash not in self._entries[0].attempts:
            return None
        entry = self._entries.popleft()
        self._in_flight = max(0, self._in_flight - 1)
        self._hash = entry_hash
        self._was_in_vain = False
        self._send_after_us = 0
        self.durable_us = max(self.durable_us or 0, entry.attempts[entry_hash])
        if self._in_flight:
            self._entries[0].since_us = max(self._entries[0].since_us, now_us)
        return entry

    def passed(self, position: int, entry_hash: bytes | None) -> None:
        """A block was read: doubt what stands behind a gap, or is not where it should be."""
        if not self._in_flight:
            return
        first = self._entries[0]
        is_gone = first.position is not None and first.position <= position
        is_behind_gap = first.prev != self._hash
        is_void = any(one.hash == entry_hash for one in self._flying())
        if is_gone or is_behind_gap or is_void:
            self.is_in_doubt = True

    def send_again(self, now_us: int) -> None:
        """The log was read up to its end: what was not found is sent again."""
        self.is_in_doubt = False
        self._in_flight = 0
        if self._was_in_vain:
            self._send_after_us = now_us + self._answer_us
        self._was_in_vain = True
