"""Queue memory: the sum of what waits for sessions, of all and of each client.

Queues, windows, recovery buffers, unread answers and replays hold bytes for a client. One sum
(`QueueMemory`) is kept by differences, and beside it one for each client (`QueueShare`): each part
of a session reports to the share of the session what it holds and drops. A frame that many wait for
counts once in all and once for each client: it knows in how many places each holds it (`Holders`).
So do the updates that are kept in case that it has to be folded (`KeptStates`); a state of a record
in these counts once in all, in however many updates it is.

Only sums are here. What a session reports is `sow.streaming.session_memory`, and what is done where
they are over their bounds is up to `sow.sessions.commands.queue_relief`.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol

from sow.core.cooperative import Task
from sow.core.quota import SHARE, fill_warning

UNBOUNDED = 1 << 62
"""The bound of a session that belongs to no server."""
ENTRY_BYTES = 150
"""An entry of a queue or of a recovery buffer, beside its frame."""
DELIVERY_BYTES = 400
"""What a channel has sent at one time, beside its frame and its updates."""
COLUMN_BYTES = 40
"""An update of it, kept in case that it has to be folded: a place in the columns of a batch, which
those of all without a filter are."""
UNFOLDED_BYTES = 250
"""The same of one that was evaluated by itself."""
DELTA_BYTES = 200
"""What changed in it, for a delta: a document, whose values are those of the batch."""
UPDATE_BYTES = 700
"""A single update in a queue or a window, beside its line and its states: itself, its place, and
how it is found."""
STATE_BYTES = 130
"""A state of a record, beside its text: the object, and its place among those that are counted."""


State = bytes | Sequence[str]
"""A state of a record; or, for the columns of a batch, one of them."""


class QueueShare:
    """What is held for one client, by its `sessions`."""

    __slots__ = ("client", "memory", "sessions", "used")

    def __init__(self, memory: "QueueMemory", client: Hashable) -> None:
        self.memory = memory
        self.client = client
        self.sessions: dict[Any, None] = {}
        self.used = 0

    def add(self, size: int) -> None:
        """Count bytes that nobody else waits for; fewer if negative."""
        memory = self.memory
        self.used += size
        memory.used += size
        if self.used > memory.share_bytes or memory.used > memory.over_bytes:
            memory.note(self)

    def keep(self, kept: "KeptStates | None") -> None:
        """Count what is kept beside a frame, in case that it has to be folded."""
        if kept is None:
            return
        keepers, memory = kept.keepers, self.memory
        if keepers is not None:
            keepers[self] = keepers.get(self, 0) + 1
            if keepers[self] > 1:
                return
        self.used += kept.beside_bytes + kept.more_bytes
        if keepers is None or len(keepers) == 1:
            memory.keep(kept, keepers is not None)
        if self.used > memory.share_bytes or memory.used > memory.over_bytes:
            memory.note(self)

    def release(self, kept: "KeptStates | None") -> None:
        """Count it no more."""
        if kept is None:
            return
        keepers = kept.keepers
        if keepers is not None:
            keepers[self] -= 1
            if keepers[self]:
                return
            del keepers[self]
        self.used -= kept.beside_bytes + kept.more_bytes
        if not keepers:
            self.memory.release(kept, keepers is not None)

    def hold(self, holders: "Holders | None", size: int, beside: int) -> None:
        """Count a frame once more, and what is kept beside it; `holders` are those of a frame that
        others may hold too."""
        memory = self.memory
        own = common = beside
        if holders is None:
            own = common = beside + size
        elif self in holders:
            holders[self] += 1
        else:
            own += size
            if not holders:
                common += size
                memory.shared += size
            holders[self] = 1
        self.used += own
        memory.used += common
        if self.used > memory.share_bytes or memory.used > memory.over_bytes:
            memory.note(self)

    def drop(self, holders: "Holders | None", size: int, beside: int) -> None:
        """Count a frame once less, and what is kept beside it."""
        memory = self.memory
        own = common = beside
        if holders is None:
            own = common = beside + size
        elif holders[self] > 1:
            holders[self] -= 1
        else:
            own += size
            del holders[self]
            if not holders:
                common += size
                memory.shared -= size
        self.used -= own
        memory.used -= common

    def exchange(self, own: int, alone: int, gone: Iterable[State], come: Iterable[State]) -> None:
        """Count so much more for the client, `alone` of it for nobody else, where it keeps other
        states than before."""
        memory = self.memory
        self.used += own
        memory.used += alone
        memory.exchange(gone, come)
        if self.used > memory.share_bytes or memory.used > memory.over_bytes:
            memory.note(self)

    @property
    def fits(self) -> bool:
        """It is within the part of one client."""
        return self.used <= self.memory.share_bytes

    def accept(self) -> None:
        """Nothing can be done for it until it grows."""
        self.memory.accept_share(self)

    def join(self, session: object) -> None:
        """A session counts for it."""
        self.sessions[session] = None

    def leave(self, session: object) -> None:
        """A session does not any more, and holds nothing."""
        self.sessions.pop(session, None)
        if not self.sessions:
            self.memory.forget(self)


Holders = dict[QueueShare, int]
"""In how many places each client holds a frame."""


class KeptStates(Protocol):
    """Updates that are kept, by `keepers` where several may keep them, and then `holders` hold
    their frame. They take `beside_bytes`, and what the `states` of records in them take. For a
    client the longer of the frame and these states counts, whether the frame is there or was
    dropped; `more_bytes` is what that is beyond the frame."""

    holders: Holders | None
    keepers: Holders | None

    @property
    def beside_bytes(self) -> int:
        """Beside the states."""
        ...

    @property
    def states_bytes(self) -> int:
        """What the states take."""
        ...

    @property
    def more_bytes(self) -> int:
        """What counts for a client beyond the frame that is there."""
        ...

    def states(self) -> Iterable[State]:
        """The states, and a column of each batch; the same ones as long as it is counted."""
        ...


def size_of(state: State) -> int:
    """What a state of a record takes, or a column of a batch stands for."""
    if isinstance(state, bytes):
        return len(state) + STATE_BYTES
    return COLUMN_BYTES * len(state)


def resize(holders: Holders, change: int) -> None:
    """What all of these hold has become longer by so much, or shorter."""
    for number, share in enumerate(holders):
        if number:
            share.memory.used -= change
        else:
            share.memory.shared += change
        share.add(change)


class QueueMemory:
    """What is held for all clients. `limit` is the bound, and `on_over` is called when it, or a
    client, is over its bound."""

    def __init__(
        self,
        limit: Callable[[], int] = lambda: UNBOUNDED,
        on_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._limit = limit
        self._on_over = on_over
        self._shares: dict[Hashable, QueueShare] = {}
        self._states: dict[int, int] = {}
        """In how many updates each state of a record is kept, by its id: each keeps it."""
        self._full: dict[QueueShare, None] = {}
        """Clients that have come over their part."""
        self._steps: deque[Task[None]] = deque()
        """Steps that free what nobody waits for any more, or count it for another client."""
        self.used = 0
        self.shared = 0
        """The part of it that several sessions may hold,"""
        self.common = 0
        """and what that is if it counts once for each of their queues."""
        self.limit_bytes = self.share_bytes = self.over_bytes = 0
        """The bound, what one client may hold, and from where on something has to be done."""
        self.look()

    def look(self) -> None:
        """The bound may be another one."""
        self.limit_bytes = self.over_bytes = self._limit()
        self.share_bytes = self.limit_bytes // SHARE
        for share in self._shares.values():
            share.add(0)

    def keep(self, kept: KeptStates, is_shared: bool) -> None:
        """Count updates once for all, and the states in them that are not counted yet."""
        self._grow(self._add(kept.states()), kept.beside_bytes, is_shared)

    def release(self, kept: KeptStates, is_shared: bool) -> None:
        """Count them no more."""
        self._grow(-self._remove(kept.states()), -kept.beside_bytes, is_shared)

    def exchange(self, gone: Iterable[State], come: Iterable[State]) -> None:
        """Count other states than before."""
        self._grow(self._add(come) - self._remove(gone), 0, is_shared=False)

    def _add(self, states: Iterable[State]) -> int:
        known, grown = self._states, 0
        for state in states:
            place = id(state)
            times = known.get(place, 0)
            known[place] = times + 1
            if not times:
                # Of each update of a client that does not read, so without a call.
                grown += len(state) + STATE_BYTES if type(state) is bytes else size_of(state)
        return grown

    def _remove(self, states: Iterable[State]) -> int:
        known, shrunk = self._states, 0
        for state in states:
            place = id(state)
            if known[place] > 1:
                known[place] -= 1
            else:
                del known[place]
                shrunk += len(state) + STATE_BYTES if type(state) is bytes else size_of(state)
        return shrunk

    def _grow(self, states: int, beside: int, is_shared: bool) -> None:
        self.used += states + beside
        self.shared += states + beside if is_shared else states

    def note(self, share: QueueShare) -> None:
        """A client has come over its part, or all together over the bound."""
        if not share.fits:
            self._full[share] = None
        self._on_over()

    def note_stripped(self, size: int) -> None:
        """Lines of so many bytes were dropped that can be made again: for their client the longer
        one of line and states counts, whether the line is there or not."""
        self.used -= size

    def go_on(self, steps: Task[None]) -> None:
        """Take a step now, and the others soon, of what frees what nobody waits for any more or
        counts it for another client; it counts as before until then."""
        for _ in steps:
            self._steps.append(steps)
            self._on_over()
            break

    def stepping(self) -> Task[None]:
        """Take all of these steps."""
        while self._steps:
            for _ in self._steps[0]:
                yield
                break
            else:
                self._steps.popleft()

    def share(self, client: Hashable) -> QueueShare:
        """The share of a client."""
        found = self._shares.get(client)
        if found is None:
            found = self._shares[client] = QueueShare(self, client)
        return found

    def forget(self, share: QueueShare) -> None:
        """No session counts for a client any more."""
        self._full.pop(share, None)
        if self._shares.get(share.client) is share:
            del self._shares[share.client]

    def settle(self) -> bool:
        """Hold all to the bound again once they fit; whether something has to be done."""
        if self.used <= self.limit_bytes:
            self.over_bytes = self.limit_bytes
        return bool(self._steps or self._full) or self.used > self.over_bytes

    def excess(self) -> "QueueMemory | QueueShare | None":
        """What is over its bound: a client before all of them together."""
        while self._full:
            share = next(iter(self._full))
            if not share.fits:
                return share
            del self._full[share]
        return self if self.used > self.over_bytes else None

    @property
    def fits(self) -> bool:
        """It is within its bound."""
        return self.used <= self.limit_bytes

    @property
    def common_part(self) -> float:
        """What several queues may hold counts so much for one of them."""
        return min(1.0, self.shared / self.common) if self.common else 1.0

    @property
    def warning(self) -> str | None:
        """How full it is, where that is nearly full."""
        return fill_warning("queue memory", self.used, self.limit_bytes)

    def accept(self) -> None:
        """Nothing can be done for it until it grows."""
        self.over_bytes = max(self.limit_bytes, self.used)

    def accept_share(self, share: QueueShare) -> None:
        """Nothing can be done for a client until it grows."""
        self._full.pop(share, None)

    def check(self) -> None:
        """Assert what is true of the sums."""
        shares = self._shares.values()
        assert 0 <= self.shared <= self.used, "more is shared than there is"
        assert all(share.used >= 0 and share.sessions for share in shares)
        # For a client only the longer one of a frame and of the states in it counts.
        held = sum(share.used for share in shares)
        assert self._steps or self.used <= 2 * held, "held for no client"
