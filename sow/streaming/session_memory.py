"""Session memory: what one session holds of queue memory (`sow.streaming.queue_memory`).

That is its queue, what was sent and is kept, what waits in windows, and what is beside these. Each
reports to the share of the session's client what it holds and drops. A queue is counted
(`QueueCount`) from when something is left waiting until all of that has left: nothing is counted
for a client that keeps up.

A session whose client goes on from elsewhere counts for another share. What comes counts for that
at once, and what waits in steps: a queue may have ten thousand entries.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Protocol

from sow.core.cooperative import Task
from sow.streaming.queue_memory import (
    ENTRY_BYTES,
    Holders,
    KeptStates,
    QueueMemory,
    QueueShare,
    State,
)

ROW_BYTES = 50
"""A row of an answer that is not read yet."""
UNCOUNTED_BYTES = 4096
"""A queue of no more than that is not counted while its client is connected: a page each, which for
the largest number of connections is a twelfth of the default."""
UNCOUNTED_MESSAGES = 16
"""Nor one of no more than so many: a short line may keep a long record."""
WAITING_BYTES = 64 * 1024
"""Nor is one of no more bytes while its client reads: it waits for the disk, and leaves with the
next commit."""
AGAIN_PART = 0.1
"""What could not be given up or folded is tried again when it has grown by so much."""
MOVED_AT_ONCE = 1_000
"""Entries of a queue that are counted for another client in one step, each some ten
microseconds."""


class Entry(Protocol):
    """An entry of a queue, with what it keeps beside its frame."""

    frame: bytes

    @property
    def kept(self) -> KeptStates | None:
        """What it keeps."""
        ...


class WaitingAlone(Entry, KeptStates, Protocol):
    """An entry that keeps what no other one does: a single update. `size` is what its frame takes,
    whether it is there or was dropped."""

    size: int


class QueueCount:
    """What the entries of one queue take, counted for `share`: `own` bytes wait there alone, and
    `common` ones others may wait for too."""

    __slots__ = ("_behind", "common", "own", "share")

    def __init__(self, share: QueueShare) -> None:
        self.share = share
        self.own = self.common = 0
        self._behind: dict[Entry, QueueShare] = {}
        """Entries that still count for a former client."""

    def add(self, entry: Entry) -> None:
        """An entry waits."""
        self._change(entry, 1)
        share, kept = self.share, entry.kept
        share.hold(None if kept is None else kept.holders, len(entry.frame), ENTRY_BYTES)
        share.keep(kept)

    def remove(self, entry: Entry) -> None:
        """It waits no more."""
        self._change(entry, -1)
        share, kept = self.share, entry.kept
        if self._behind:
            share = self._behind.pop(entry, share)
        share.drop(None if kept is None else kept.holders, len(entry.frame), ENTRY_BYTES)
        share.release(kept)

    def _change(self, entry: Entry, times: int) -> None:
        own, common = taken(entry)
        self.own += times * own
        self.common += times * common
        self.share.memory.common += times * common

    def change(self, entry: WaitingAlone, change: Callable[[], None]) -> None:
        """Change an entry that waits. What `remove` and `add` do, by the differences: each update
        that is folded into another one does this."""
        if self._behind:
            self.remove(entry)
            change()
            self.add(entry)
            return
        frame, beside, states = len(entry.frame), entry.beside_bytes, entry.states_bytes
        gone, held = entry.states(), max(states, entry.size)
        change()
        beside = entry.beside_bytes - beside
        common = entry.states_bytes - states
        alone = len(entry.frame) - frame + beside
        self.own += alone
        self.common += common
        self.share.memory.common += common
        held = max(states + common, entry.size) - held
        self.share.exchange(beside + held, alone, gone, entry.states())

    def grow(self, entry: Entry, grown: int, gone: State, come: State) -> None:
        """A state in an entry without its line becomes another one, and what the entry takes so
        many bytes more: what `change` does of most updates."""
        share = self._behind.get(entry, self.share)
        self.common += grown
        share.memory.common += grown
        share.exchange(grown, 0, (gone,), (come,))

    def note_stripped(self, size: int) -> None:
        """Lines of so many bytes were dropped. Not counted again, at ten microseconds an entry."""
        self.own -= size
        self.share.memory.note_stripped(size)

    def bytes(self, common_part: float = 1.0) -> float:
        """All of it; of what others may wait for too a part."""
        return self.own + self.common * common_part

    def move(self, share: QueueShare, waiting: Iterable[Entry]) -> None:
        """From now on what comes counts for another client, and what waits once `moved` is done."""
        self._behind = dict.fromkeys(waiting, self.share) | self._behind
        self.share = share

    def moved(self) -> Task[None]:
        """Count what waits for the present client, some of it in each step."""
        while self._behind:
            for entry in [*islice(self._behind, MOVED_AT_ONCE)]:
                self.remove(entry)
                self.add(entry)
            if self._behind:
                yield


def taken(entry: Entry) -> tuple[int, int]:
    """What an entry takes that waits here alone, and what others may wait for too."""
    kept, size = entry.kept, len(entry.frame)
    if kept is None:
        return ENTRY_BYTES + size, 0
    if kept.keepers is None:
        return ENTRY_BYTES + size + kept.beside_bytes, kept.states_bytes
    return ENTRY_BYTES, size + kept.beside_bytes + kept.states_bytes


class Counted(Protocol):
    """What counts for a client, None for nobody."""

    def count_for(self, share: QueueShare | None) -> None:
        """From now on it counts for this one."""


class CountedQueue(Counted, Protocol):
    """A queue; `count` is what its entries take, None while its client keeps up."""

    count: QueueCount | None

    def living(self) -> Iterable[Entry]:
        """What waits."""
        ...


class Window(Protocol):
    """A conflated channel, in which `held_bytes` wait for the clients `holders`."""

    held_bytes: int
    holders: Holders


class SessionMemory:
    """What one session holds: its queue, what was sent and is kept, what waits in windows, and what
    is beside these."""

    def __init__(self, session: object, queue: CountedQueue, *parts: Counted) -> None:
        self.share = QueueMemory().share(self)
        self.share.join(session)
        self._queue = queue
        self._parts = dict.fromkeys(parts)
        self._windows: dict[Window, None] = {}
        self._beside_bytes = 0
        self._shrunk_to = 0.0
        for part in parts:
            part.count_for(self.share)

    def move(self, session: object, share: QueueShare) -> None:
        """From now on what its session holds counts for another client."""
        former, self.share = self.share, share
        share.join(session)
        for part in self._parts:
            part.count_for(share)
        for window in self._windows:
            former.drop(window.holders, window.held_bytes, 0)
            share.hold(window.holders, window.held_bytes, 0)
        former.add(-self._beside_bytes)
        share.add(self._beside_bytes)
        count = self._queue.count
        if count is not None:
            count.move(share, self._queue.living())
        share.memory.go_on(self._leaving(session, former, count))

    def _leaving(self, session: object, former: QueueShare, count: QueueCount | None) -> Task[None]:
        """Leave a former client once nothing that waits counts for it."""
        if count is not None:
            yield from count.moved()
        if former is not self.share:
            former.leave(session)

    def count_queue(self) -> None:
        """From now on its queue counts, until all of it has left."""
        self._queue.count_for(self.share)
        self._shrunk_to = 0

    @property
    def may_shrink(self) -> bool:
        """Its queue has not been looked through for what can be freed, or has grown since."""
        return self._queue_bytes() * (1 - AGAIN_PART) > self._shrunk_to

    def _queue_bytes(self, common_part: float = 1.0) -> float:
        count = self._queue.count
        return 0 if count is None else count.bytes(common_part)

    def note_shrunk(self) -> None:
        """Nothing in its queue can be given up or folded until it grows."""
        self._shrunk_to = self._queue_bytes()

    def take(self, part: Counted) -> None:
        """It holds one more part."""
        self._parts[part] = None
        part.count_for(self.share)

    def give_back(self, part: Counted) -> None:
        """It does not hold a part any more; it may have let go of all."""
        if part in self._parts:
            del self._parts[part]
            part.count_for(None)

    def hold_beside(self, size: int) -> None:
        """So many bytes wait for it beside, or fewer if negative."""
        self._beside_bytes += size
        self.share.add(size)

    def hold_rows(self, rows: int) -> None:
        """Rows of an answer wait for it, or fewer."""
        self.hold_beside(rows * ROW_BYTES)

    def wait_in(self, window: Window) -> None:
        """It has joined a conflated channel."""
        if window not in self._windows:
            self._windows[window] = None
            self.share.hold(window.holders, window.held_bytes, 0)

    def leave(self, window: Window) -> None:
        """It has left a conflated channel."""
        if window in self._windows:
            del self._windows[window]
            self.share.drop(window.holders, window.held_bytes, 0)

    def waiting_bytes(self, common_part: float) -> float:
        """What waits, without what was sent; of frames that others may wait for only a part."""
        windows = sum(one.held_bytes / len(one.holders) for one in self._windows)
        return self._queue_bytes(common_part) + windows + self._beside_bytes

    def end(self, session: object) -> None:
        """The session is gone for good."""
        self.let_go()
        self.share.leave(session)

    def let_go(self) -> None:
        """Hold nothing any more, but for what is beside and goes by itself."""
        for part in [*self._parts, self._queue]:
            part.count_for(None)
        self._parts.clear()
        for window in list(self._windows):
            self.leave(window)
