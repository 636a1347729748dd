"""Snapshots that readers have the names of: how long each is kept, and which go for others.

A snapshot costs no copy, until its records change: then it alone holds what they were. What all
snapshots, and those of one client, hold so is bounded, and beyond it those go that have not been
asked for the longest. It is not counted at every change, which would cost everybody, but estimated
from above by the number of changes and the largest body, and counted where that is too much, in
steps.

The time is given, in microseconds.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from sow.core.cooperative import Task
from sow.engine.engine import Engine
from sow.engine.running_topics import LiveTopic
from sow.errors import Busy, TooLarge, UnknownRecord, shown
from sow.history.snapshot import NOWHERE, Snapshot
from sow.security.row_level_security import RowPolicy

SNAPSHOT_KEPT_US = 600_000_000
"""How long one is kept that nobody reads: a task that failed is tried again before that."""
IDLE_US = 60_000_000
"""When there are too many, those go first that nobody has asked for in so long: the tasks of a job
that is under way read oftener."""
SNAPSHOTS_MAX = 1_000
"""Of all clients: more than all jobs of a cluster take at a time."""
ROWS_MAX = 20_000_000
"""Of all snapshots: each row takes some fifty bytes of references and numbers."""
ROWS_AT_ONCE = 2_000
"""Rows whose sizes are looked up in one step: a fraction of a millisecond."""
CLIENT_PART = 4
"""One client may have a quarter of all snapshots and of their memory, so that others find room."""
CLIENT_ROWS_PART = 2
"""And half of all rows: a table that is read whole may be the largest there is."""


@dataclass(slots=True, eq=False)
class SnapshotLease:
    """A snapshot that readers have the name of.

    Its bodies have `size_bytes`, none more than `largest_bytes`. When its topic had had `updates`,
    `held_bytes` of them were no record's any more.
    """

    name: str
    client: str
    topic: LiveTopic
    parts: list[Snapshot]
    bookmark: int
    used_us: int
    owner: tuple[str, ...] = ()
    """Whose it is (`Rights.owner`)."""
    guard: RowPolicy | None = None
    """What he might see of its topic."""
    form: object = None
    """By what the rows are told in pages (`sow.server.api.cursors`); None: it is a snapshot."""
    size_bytes: int = 0
    largest_bytes: int = 0
    held_bytes: int = 0
    updates: int = 0
    rests: bool = False
    """It goes before those that are read: nobody may ask for more of it."""

    @property
    def unused_since_us(self) -> int:
        """Since when nobody has asked for it; where it rests, long enough to go for others."""
        return self.used_us - IDLE_US - 1 if self.rests else self.used_us

    @property
    def rows(self) -> int:
        """How many rows are held."""
        return sum(map(len, self.parts))

    def touch(self, now_us: int) -> None:
        """Somebody reads it at this moment."""
        self.used_us, self.rests = now_us, False

    def rest(self, now_us: int) -> None:
        """It may well not be read any more: to its end it has been, or not past its beginning."""
        self.used_us, self.rests = now_us, True

    def measure(self) -> Task[None]:
        """See how large it is."""
        for _slots, bodies in self._chunks():
            sizes = list(map(len, bodies))
            self.size_bytes += sum(sizes)
            self.largest_bytes = max(self.largest_bytes, *sizes)
            yield
        yield from self.count()

    def count(self) -> Task[None]:
        """Count what is held by it alone."""
        updates, held_bytes = self.topic.updates, 0
        there = self.topic.records.table.bodies
        for slots, bodies in self._chunks():
            held_bytes += sum(
                len(body)
                for slot, body in zip(slots, bodies, strict=True)
                if slot == NOWHERE or there[slot] is not body
            )
            yield
        self.held_bytes, self.updates = held_bytes, updates

    def _chunks(self) -> Iterator[tuple[list[int], list[bytes]]]:
        """Slots and bodies, as many as one step may touch."""
        for part in self.parts:
            for start in range(0, len(part), ROWS_AT_ONCE):
                stop = start + ROWS_AT_ONCE
                yield part.slots[start:stop].tolist(), part.bodies.part(start, stop)

    def at_most_bytes(self, is_there: bool) -> int:
        """What may be held by it alone now; all if its topic is not there any more."""
        changed_bytes = (self.topic.updates - self.updates) * self.largest_bytes
        return (
            min(self.size_bytes, self.held_bytes + changed_bytes) if is_there else self.size_bytes
        )


class SnapshotLeases:
    """Those of one server, by name."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._by_name: dict[str, SnapshotLease] = {}

    @property
    def _bytes_max(self) -> int:
        return self._engine.configuration.limits.snapshot_bytes_max

    @property
    def client_bytes_max(self) -> int:
        """Bytes that the snapshots of one client may hold alone."""
        return self._bytes_max // CLIENT_PART

    @property
    def rows(self) -> int:
        """How many rows all of them hold."""
        return sum(taken.rows for taken in self._by_name.values())

    def add(self, taken: SnapshotLease) -> None:
        """Keep a snapshot for whoever has its name."""
        self._by_name[taken.name] = taken

    def use(self, name: str, now_us: int, owner: tuple[str, ...] = ()) -> SnapshotLease:
        """The snapshot of a name, which its owner asks for now; raises UnknownRecord."""
        taken = self._by_name.get(name)
        if taken is None or taken.owner != owner:
            raise UnknownRecord(
                f"no snapshot {shown(name)}: it was released, not used for "
                f"{SNAPSHOT_KEPT_US // 1_000_000} s, let go since its records have changed "
                "(Limits/SnapshotMemory), or the server was restarted; take another one"
            )
        taken.touch(now_us)
        return taken

    def rest(self, name: str, now_us: int) -> None:
        """Let a snapshot go before those that are read, if it is still there."""
        if name in self._by_name:
            self._by_name[name].rest(now_us)

    def drop(self, name: str) -> None:
        """Let a snapshot go, if it is still there."""
        self._by_name.pop(name, None)

    def expire(self, now_us: int) -> None:
        """Let those go that were not asked for in a long time."""
        for name, taken in list(self._by_name.items()):
            if now_us - taken.used_us > SNAPSHOT_KEPT_US:
                del self._by_name[name]

    def make_room(self, client: str, rows: int, now_us: int) -> None:
        """Let go what is idle until there is room for a snapshot more of `client`, of so many rows.

        Raises Busy when all that is held is in use, TooLarge for what a client can never have.
        """
        if rows > ROWS_MAX // CLIENT_ROWS_PART:
            raise TooLarge(
                f"the snapshot has {rows} rows, over {ROWS_MAX // CLIENT_ROWS_PART}; take it of "
                "fewer records, by a filter"
            )
        idle_since_us = now_us - IDLE_US
        for whose, part, rows_part in ((client, CLIENT_PART, CLIENT_ROWS_PART), (None, 1, 1)):
            found = self._longest_unused(whose)
            held = sum(taken.rows for taken in found)
            count = len(found)
            for taken in found:
                if count < SNAPSHOTS_MAX // part and held + rows <= ROWS_MAX // rows_part:
                    break
                if taken.unused_since_us > idle_since_us:
                    raise Busy(
                        f"{count} snapshots of {held} rows are in use; release some "
                        "(DELETE /v1/snapshots/{id}), or wait"
                    )
                held, count = held - taken.rows, count - 1
                del self._by_name[taken.name]

    def _longest_unused(self, client: str | None = None) -> list[SnapshotLease]:
        """All snapshots, or those of a client, from the one that was asked for the longest ago."""
        found = [one for one in self._by_name.values() if client in (None, one.client)]
        return sorted(found, key=lambda taken: taken.unused_since_us)

    def over(self) -> list[SnapshotLease]:
        """Snapshots that hold too much together; none, if none do."""
        held: Counter[str] = Counter()
        for taken in self._by_name.values():
            topic = self._engine.topics.get(taken.topic.name)
            held[taken.client] += taken.at_most_bytes(topic is taken.topic)
        for client, size_bytes in held.items():
            if size_bytes > self.client_bytes_max:
                return self._longest_unused(client)
        return self._longest_unused() if held.total() > self._bytes_max else []
