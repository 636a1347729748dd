"""Leases of snapshots: how long each is pinned, and which are released to make room.

A snapshot costs no copy until its records change: then it alone holds the old bodies. These bytes
are bounded in all and per client; beyond the bounds the least recently used snapshots are released.
The bytes are not counted at each change, which would slow down every publish, but estimated from
above by the number of changes and the largest body, and counted in steps when the estimate exceeds
a bound.

Times are parameters, in microseconds.
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
"""How long an unused snapshot is pinned: a failed task is retried before that."""
IDLE_US = 60_000_000
"""Unused for so long, a snapshot may be released to make room: the tasks of a running job read more
often."""
SNAPSHOTS_MAX = 1_000
"""Of all clients: more than all jobs of a cluster take at a time."""
ROWS_MAX = 20_000_000
"""Of all snapshots: each row takes some fifty bytes of references and numbers."""
ROWS_AT_ONCE = 2_000
"""Rows measured in one step: a fraction of a millisecond."""
CLIENT_PART = 4
"""One client may have a quarter of all snapshots and of their memory, so that others find room."""
CLIENT_ROWS_PART = 2
"""And half of all rows: the table read may be the largest there is."""


@dataclass(slots=True, eq=False)
class SnapshotLease:
    """A snapshot pinned under a name.

    Its bodies have `size_bytes`, none more than `largest_bytes`. At `updates` changes of its topic,
    `held_bytes` of them belonged to no record any more.
    """

    name: str
    client: str
    topic: LiveTopic
    parts: list[Snapshot]
    bookmark: int
    used_us: int
    owner: tuple[str, ...] = ()
    """The user (`Permissions.owner`)."""
    guard: RowPolicy | None = None
    """The row policy of the user when it was taken."""
    form: object = None
    """How a cursor renders its pages (`sow.server.api.cursors`); None: a snapshot."""
    size_bytes: int = 0
    largest_bytes: int = 0
    held_bytes: int = 0
    updates: int = 0
    rests: bool = False
    """Released before others: it may not be read any more."""

    @property
    def unused_since_us(self) -> int:
        """When it was last used; if it rests, long enough ago to be released."""
        return self.used_us - IDLE_US - 1 if self.rests else self.used_us

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(map(len, self.parts))

    def touch(self, now_us: int) -> None:
        """Mark it as used now."""
        self.used_us, self.rests = now_us, False

    def rest(self, now_us: int) -> None:
        """Mark it as the first to release: it was read to its end, or only its first page."""
        self.used_us, self.rests = now_us, True

    def measure(self) -> Task[None]:
        """Measure its bodies."""
        for _slots, bodies in self._chunks():
            sizes = list(map(len, bodies))
            self.size_bytes += sum(sizes)
            self.largest_bytes = max(self.largest_bytes, *sizes)
            yield
        yield from self.count()

    def count(self) -> Task[None]:
        """Count the bytes that it alone holds."""
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
        """Slots and bodies, as many as one step handles."""
        for part in self.parts:
            for start in range(0, len(part), ROWS_AT_ONCE):
                stop = start + ROWS_AT_ONCE
                yield part.slots[start:stop].tolist(), part.bodies.part(start, stop)

    def at_most_bytes(self, is_there: bool) -> int:
        """An upper bound of the bytes that it alone holds; all of them if its topic is gone."""
        changed_bytes = (self.topic.updates - self.updates) * self.largest_bytes
        return (
            min(self.size_bytes, self.held_bytes + changed_bytes) if is_there else self.size_bytes
        )


class SnapshotLeases:
    """The leases of one server, by name."""

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
        """The rows of all leases."""
        return sum(taken.rows for taken in self._by_name.values())

    def add(self, taken: SnapshotLease) -> None:
        """Pin a snapshot under its name."""
        self._by_name[taken.name] = taken

    def use(self, name: str, now_us: int, owner: tuple[str, ...] = ()) -> SnapshotLease:
        """The snapshot of a name, marked as used; raises UnknownRecord, also for another owner."""
        taken = self._by_name.get(name)
        if taken is None or taken.owner != owner:
            raise UnknownRecord(
                f"no snapshot {shown(name)}: it was released, not used for "
                f"{SNAPSHOT_KEPT_US // 1_000_000} s, dropped because its records have changed "
                "(Limits/SnapshotMemory), or the server was restarted; take another one"
            )
        taken.touch(now_us)
        return taken

    def rest(self, name: str, now_us: int) -> None:
        """Mark a snapshot as the first to release, if it is still there."""
        if name in self._by_name:
            self._by_name[name].rest(now_us)

    def drop(self, name: str) -> None:
        """Release a snapshot, if it is still there."""
        self._by_name.pop(name, None)

    def expire(self, now_us: int) -> None:
        """Release snapshots that were not used for long."""
        for name, taken in list(self._by_name.items()):
            if now_us - taken.used_us > SNAPSHOT_KEPT_US:
                del self._by_name[name]

    def make_room(self, client: str, rows: int, now_us: int) -> None:
        """Release idle snapshots until there is room for another one of `client`, of so many rows.

        Raises Busy if all are in use, TooLarge if a client can never have so many rows.
        """
        if rows > ROWS_MAX // CLIENT_ROWS_PART:
            raise TooLarge(
                f"the snapshot has {rows} rows, over {ROWS_MAX // CLIENT_ROWS_PART}; take it of "
                "fewer records, by a filter"
            )
        idle_since_us = now_us - IDLE_US
        for of, part, rows_part in ((client, CLIENT_PART, CLIENT_ROWS_PART), (None, 1, 1)):
            found = self._longest_unused(of)
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
        """All snapshots, or those of a client, the least recently used first."""
        found = [one for one in self._by_name.values() if client in (None, one.client)]
        return sorted(found, key=lambda taken: taken.unused_since_us)

    def over(self) -> list[SnapshotLease]:
        """The snapshots of a client, or all, if together they exceed a bound; otherwise none."""
        held: Counter[str] = Counter()
        for taken in self._by_name.values():
            topic = self._engine.topics.get(taken.topic.name)
            held[taken.client] += taken.at_most_bytes(topic is taken.topic)
        for client, size_bytes in held.items():
            if size_bytes > self.client_bytes_max:
                return self._longest_unused(client)
        return self._longest_unused() if held.total() > self._bytes_max else []
