"""Who leads: a node that follows the shared log and, when nobody else does, leads it.

    follower ──> reads; two leases without a valid entry, then read up to the end: appends a `lead`;
        │        at once where nobody has led yet
    primary ───> when its own lead was read back. It appends groups and, while there are none, beats
        │        one lease without a durable entry of its own: it is stale, until there is one
        ├──────> a valid entry of another node: it follows again, and what it had not released is
        │        not in the log
        └──────> it is to step down: it appends a `resign` behind all that it has, and follows;
                 others lead at once, and it does not for ten leases

Safety is in the chain: two nodes may believe that they lead, but only the entries of one are valid.
Clocks only decide when somebody tries, and when a primary has to say that it may be out of date:
a new lead comes two leases after the last valid entry was stored, at the earliest, and the one
before is stale one lease after it was sent.

A `LogNode` does no I/O: events go in, `take` returns orders in the order in which they are to be
carried out. `now_us` is a clock of its process that passes steadily; the log's time is a matter of
who submits. Answers may be lost, late or doubled, and orders may fail: whatever waits has a time at
which it is tried again (`due_us`).
"""

from collections.abc import Callable
from typing import NamedTuple

from sow.shared_log.entry import (
    ChainState,
    EntryKind,
    Lead,
    LogChain,
    LogGroup,
    NewToken,
    ReadEntry,
)
from sow.shared_log.writer import IN_FLIGHT_MAX, AppendBlock, EntryWriter

LEASES_OF_SILENCE = 2
"""After which a follower leads: one, in which the primary was heard, and one, in which it knows
that it was not."""
BEATS_A_LEASE = 3
"""One may be late, and one lost."""
LEASES_HELD_OFF = 10
"""A node that is not to lead lets others lead for so long: they need two, and a start takes
some seconds. After it, nobody else can."""
ANSWERS_A_LEASE = 2
"""An answer that takes longer is looked for, while there is time to send again."""


class FindEnd(NamedTuple):
    """Request the position of the newest block, and report `end_is`."""


class ReadFrom(NamedTuple):
    """Read what is behind a position, in place of what is read now, and report `read`."""

    after: int


class ApplyGroup(NamedTuple):
    """Apply what another node has appended, or this one in an earlier life."""

    group: LogGroup


class ReleaseGroup(NamedTuple):
    """A group that was submitted is durable."""

    number: int


class LeadFrom(NamedTuple):
    """This node leads now."""

    term: int


class FollowFrom(NamedTuple):
    """This node leads no more. Groups that it has not released are not in the log, and never will
    be, so their changes are to be taken back; those without numbers before them may be, and are
    applied then as those of others are."""

    lead: Lead | None
    unreleased: list[int]


class StandBack(NamedTuple):
    """Nobody leads, and this node does not: a reload has replaced its configuration."""


Order = (
    AppendBlock | FindEnd | ReadFrom | ApplyGroup | ReleaseGroup | LeadFrom | FollowFrom | StandBack
)


class EndSearch:
    """Reads up to the end that the log had when it was requested; again, where that takes long."""

    def __init__(self, answer_us: int) -> None:
        self._answer_us = answer_us
        self.began_us: int | None = None
        self.end: int | None = None

    def start(self, now_us: int) -> bool:
        """Whether to find the end now."""
        if self.began_us is not None and now_us < self.began_us + self._answer_us:
            return False
        self.began_us, self.end = now_us, None
        return True

    def stop(self) -> None:
        """It was reached, or need not be."""
        self.began_us = self.end = None

    def end_is(self, position: int) -> None:
        """The answer."""
        if self.began_us is not None:
            self.end = position

    def due_us(self) -> int | None:
        """When it is tried again."""
        return None if self.began_us is None else self.began_us + self._answer_us


class FailOver(NamedTuple):
    """The last change of who leads: at a time of the log, from one node to another, after so long
    without an entry, as this node has heard them, or as the one before `resigned`."""

    time_us: int
    before: str
    after: str
    silent_us: int
    resigned: bool


class LogNode:
    """A node of a shared log, a follower at first, that has read it up to `state`.

    `lead` is what it says when it leads; `log_time_us` returns the log's time for beats and leads.
    """

    def __init__(
        self,
        lead: Lead,
        state: ChainState,
        now_us: int,
        new_token: NewToken,
        log_time_us: Callable[[], int],
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self.chain = LogChain(state)
        self.is_primary = False
        self.failover: FailOver | None = None
        """None: none since it began to read."""
        self._lead = lead
        self._new_token = new_token
        self._log_time_us = log_time_us
        self._in_flight_max = in_flight_max
        self._heard_us = now_us
        """When the last valid entry was read."""
        self._read_us = now_us
        """When anything was read."""
        self._read_again_us: int | None = None
        self._said_us = 0
        """When it has last said that it leads."""
        self._answer_us = max(1, lead.lease_us // ANSWERS_A_LEASE)
        self._search = EndSearch(self._answer_us)
        self._writer: EntryWriter | None = None
        """Of a primary, or of a follower that tries to become one."""
        self._parts: list[LogGroup] = []
        """Groups of its own without a number, before the one with which they are released."""
        self._leads_after_us = now_us
        """Not to lead before."""
        self._stands_back = False
        self._is_vacant = state.lead is None
        """Who led has stepped down, or nobody ever has: no lease has to pass."""
        self._resigns = False
        self._orders: list[Order] = [ReadFrom(state.position)]

    def take(self) -> list[Order]:
        """Orders since the last call."""
        orders, self._orders = self._orders, []
        return orders

    @property
    def lease_us(self) -> int:
        """The lease that is in force."""
        lead = self.chain.state.lead
        return self._lead.lease_us if lead is None else lead.lease_us

    @property
    def has_parts(self) -> bool:
        """What it has read back is not released yet."""
        return bool(self._parts)

    def silent_us(self, now_us: int) -> int:
        """How long this node knows nothing for certain: a primary since it sent its last durable
        entry, a follower since it read a valid one. Beyond a lease it is stale."""
        if self.is_primary and self._writer is not None:
            return now_us - (self._writer.durable_us or 0)
        return now_us - self._heard_us

    def is_stale(self, now_us: int) -> bool:
        """Whether answers may be out of date without anybody knowing."""
        return self.silent_us(now_us) > self.lease_us

    def lead_with(self, lead: Lead) -> None:
        """Say this from the next `lead` on, at once where this node has only waited for that."""
        self._lead = lead
        if self._stands_back:
            self._stands_back, self._leads_after_us = False, 0

    def submit(self, number: int | None, kind: EntryKind, content: bytes, time_us: int) -> bool:
        """Append a group; False: this node does not lead."""
        if not self.is_primary or self._writer is None or self._resigns:
            return False
        self._writer.add(number, kind, content, time_us)
        return True

    def hold_off(self, now_us: int) -> None:
        """Let others lead for a while, if they can."""
        self._leads_after_us = now_us + LEASES_HELD_OFF * self.lease_us

    def step_down(self, now_us: int) -> bool:
        """Lead no more, once all that was submitted is in the log; False: it does not lead."""
        self.hold_off(now_us)
        if not self.is_primary or self._writer is None:
            return False
        if not self._resigns:
            self._resigns = True
            self._writer.add(None, EntryKind.RESIGN, b"", self._log_time_us())
        return True

    # What was read.

    def read(self, position: int, block: bytes, now_us: int) -> None:
        """A block was read. Raises StoreError for an entry that this release does not know."""
        before = self.chain.state.lead
        known = self._writer.sent(block) if self._writer is not None else None
        entry = self.chain.take(position, block, known)
        self._read_us = now_us
        if entry is None:
            return
        if entry.is_valid:
            if entry.lead is not None and before is not None and before.node != entry.lead.node:
                self.failover = FailOver(
                    self.chain.state.time_us,
                    before.node,
                    entry.lead.node,
                    now_us - self._heard_us,
                    self._is_vacant,
                )
            self._heard_us = now_us
            self._is_vacant = entry.kind == EntryKind.RESIGN
            self._take_valid(entry, now_us)
        if self._writer is not None:
            self._writer.passed(position, entry.hash)
        self._look_at_end(now_us)

    def _take_valid(self, entry: ReadEntry, now_us: int) -> None:
        writer = self._writer
        assert entry.hash is not None
        own = writer.found(entry.hash, now_us) if writer is not None else None
        if own is None or own.kind == EntryKind.RESIGN:
            if self.is_primary and writer is not None:
                self._orders.append(FollowFrom(self.chain.state.lead, writer.numbers))
            self.is_primary, self._writer, self._resigns = False, None, False
            self._search.stop()
            self._orders += map(ApplyGroup, self._parts)
            self._parts = []
            if entry.group is not None:
                self._orders.append(ApplyGroup(entry.group))
        elif own.kind == EntryKind.LEAD:
            self.is_primary = True
            self._orders.append(LeadFrom(self.chain.state.term))
        elif own.number is not None:
            self._parts = []
            self._orders.append(ReleaseGroup(own.number))
        elif entry.group is not None:
            self._parts.append(entry.group)

    def read_failed(self, now_us: int) -> None:
        """Nothing more will be read; it begins again after a while."""
        self._read_again_us = now_us + self._answer_us

    # What the engine answers.

    def acked(self, token: bytes, position: int, now_us: int) -> None:
        """A block was stored."""
        if self._writer is not None:
            self._writer.acked(token, position, now_us)

    def failed(self, token: bytes) -> None:
        """Nobody knows whether a block is stored."""
        if self._writer is not None:
            self._writer.failed(token)

    def end_is(self, position: int, now_us: int) -> None:
        """The newest block is at a position."""
        self._search.end_is(position)
        self._look_at_end(now_us)

    def _look_at_end(self, now_us: int) -> None:
        """What was waited for, if the end is reached: to send again, or to lead."""
        end = self._search.end
        if end is None or self.chain.state.position < end:
            return
        self._search.stop()
        if self._writer is not None:
            self._writer.send_again(now_us)
            return
        state = self.chain.state
        if self._lead.fingerprint in state.replaced:
            self.hold_off(now_us)
            self._stands_back = True
            self._orders.append(StandBack())
            return
        self._writer = EntryWriter(
            state.term + 1, state.hash, self._answer_us, self._new_token, self._in_flight_max
        )
        self._said_us = now_us
        self._writer.add(None, EntryKind.LEAD, self._says(), self._log_time_us())

    def _says(self) -> bytes:
        """What it says when it leads: of the log's name the first lead decides."""
        before = self.chain.state.lead
        return (self._lead if before is None else self._lead._replace(log=before.log)).encode()

    # Time.

    def due_us(self) -> int:
        """When `pass_time` has something to do, if nothing is reported before."""
        writer = self._writer
        due = [self._read_again_us]
        if (again_us := self._search.due_us()) is not None:
            due.append(again_us)
        elif writer is None:
            due.append(self._leads_us())
        else:
            due.append(self._beat_us(writer) if writer.is_idle else writer.due_us())
        return min(one for one in due if one is not None)

    def _leads_us(self) -> int:
        """When to lead, unless somebody else is heard."""
        silence_us = 0 if self._is_vacant else LEASES_OF_SILENCE * self.lease_us
        return max(self._heard_us + silence_us, self._leads_after_us)

    def _beat_us(self, writer: EntryWriter) -> int:
        return writer.sent_us + self.lease_us // BEATS_A_LEASE

    def _has_to_beat(self, writer: EntryWriter, now_us: int) -> bool:
        """Where nothing else is written; and once in a lease, for those who have not read the log
        and look at its end for who leads."""
        if writer.is_idle:
            return now_us >= self._beat_us(writer)
        return now_us >= self._said_us + self.lease_us and not writer.has(EntryKind.BEAT)

    def pass_time(self, now_us: int) -> None:
        """Do what is due, and send what waits; to be called after whatever is reported."""
        if self._read_again_us is not None and now_us >= self._read_again_us:
            self._read_again()
        writer = self._writer
        if writer is None:
            if now_us >= self._leads_us():
                self._find_end(now_us)
            return
        writer.pass_time(now_us)
        if self.is_primary and not self._resigns and self._has_to_beat(writer, now_us):
            self._said_us = now_us
            writer.add(None, EntryKind.BEAT, self._says(), self._log_time_us())
        if writer.is_in_doubt:
            self._find_end(now_us)
        else:
            self._orders += writer.send(now_us)

    def _find_end(self, now_us: int) -> None:
        """Find the end of the log; read again, where it is known and nothing more comes."""
        search = self._search
        began_us, end = search.began_us, search.end
        if not search.start(now_us):
            return
        if began_us is not None and end is not None and self._read_us < began_us:
            self._read_again()
        self._orders.append(FindEnd())

    def _read_again(self) -> None:
        self._read_again_us = None
        self._orders.append(ReadFrom(self.chain.state.position))
