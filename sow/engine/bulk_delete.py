"""Bulk delete: many records are removed in steps, as if all had been removed at one moment.

Which records are removed is fixed at the start: their slots, and the number of the newest change. A
slot is reused when its record is gone, but a record newer than that change is not meant. Each step
removes some and routes them like any batch; other clients write between two steps. A change of a
record that still waits for removal removes it first (`make_way`), so that all changes come out as
if the removal had been one step.

A removal that is cancelled has removed what it has removed; the rest stays. This module does not
know why records are removed.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sow.core.cooperative import Task
from sow.engine.capacity import DiskReserve
from sow.engine.running_topics import SourceTopic
from sow.errors import DiskFull, InvalidTopic
from sow.store.columns import Slots
from sow.store.memory import Table

RECORDS_AT_ONCE = 100
"""Records of one step: a batch so long shares its costs, and takes a millisecond at most."""

Remove = Callable[[SourceTopic, Sequence[str], int], int]


class PendingDelete:
    """Records of one table to remove: those in `slots` that are not newer than the change `seq`."""

    def __init__(self, table: Table, slots: Slots, seq: int) -> None:
        self._table = table
        self._slots = slots
        self._seq = seq
        self._wanted: NDArray[np.bool_] = np.zeros(len(table.bodies), np.bool_)
        self._wanted[slots] = True
        self.removed = 0
        """How many of them this removal has removed."""

    def __len__(self) -> int:
        return len(self._slots)

    def pieces(self) -> Iterator[list[str]]:
        """The identities of those that still wait when their piece comes, in the given order."""
        for start in range(0, len(self._slots), RECORDS_AT_ONCE):
            yield self._there(self._slots[start : start + RECORDS_AT_ONCE])

    def among(self, identities: Sequence[str]) -> list[str]:
        """Those of `identities` that wait for removal."""
        find, wanted = self._table.slots.get, self._wanted
        slots = [slot for name in identities if (slot := find(name)) is not None]
        waiting = [slot for slot in slots if slot < len(wanted) and wanted[slot]]
        return self._there(np.array(waiting, np.int64)) if waiting else []

    def _there(self, slots: Slots) -> list[str]:
        held = self._table.identities
        old = slots[self._table.born[slots] <= self._seq].tolist()
        return [identity for slot in old if (identity := held[slot]) is not None]


class BulkDelete:
    """The removals under way in the topics of one engine.

    `remove(topic, identities, now_us)` removes records and routes the change. `is_there` returns
    whether a topic itself still exists. `make_ready` runs the steps that have to precede a change
    of a topic.
    """

    def __init__(
        self,
        disk: DiskReserve,
        remove: Remove,
        is_there: Callable[[SourceTopic], bool],
        make_ready: Callable[[str], Task[None]],
    ) -> None:
        self._disk = disk
        self._make_ready = make_ready
        self._remove = remove
        self._is_there = is_there
        self.running: dict[SourceTopic, list[PendingDelete]] = {}
        """Those under way, by topic. Read only."""

    def begin(
        self,
        topic: SourceTopic,
        slots: Slots,
        seq: int,
        now_us: int,
        counted: Callable[[int], object] | None = None,
    ) -> Task[int]:
        """Remove the records that are in `slots` now, after the change `seq`; returns how many it
        removed, and calls `counted` in the step that removes the last.

        Records that others removed first do not count. Raises DiskFull where the disk has no room
        to log it, also later on, and InvalidTopic when the topic is gone: both state how many
        records were removed.
        """
        going = PendingDelete(topic.records.table, slots, seq)
        self.running.setdefault(topic, []).append(going)
        try:
            with self._disk.share_writes(len(going) // RECORDS_AT_ONCE + 1):
                yield from self._run(topic, going, now_us, counted)
            return going.removed
        finally:
            self._end(topic, going)

    def _run(
        self,
        topic: SourceTopic,
        going: PendingDelete,
        now_us: int,
        counted: Callable[[int], object] | None,
    ) -> Task[None]:
        yield from self._check_room(going)
        left = len(going)
        for identities in going.pieces():
            self._check_goes_on(topic, going, identities)
            going.removed += self._remove(topic, identities, now_us)
            left -= RECORDS_AT_ONCE
            if left <= 0 and counted is not None:
                counted(going.removed)
            yield
            yield from self._make_ready(topic.name)
        if not len(going) and counted is not None:
            counted(0)

    def make_way(self, topic: SourceTopic, identities: Sequence[str], now_us: int) -> None:
        """Remove at once those of these records that wait for removal: they are about to change."""
        for going in self.running.get(topic, ()):
            waiting = going.among(identities)
            if waiting:
                going.removed += self._remove(topic, waiting, now_us)

    def clear_way(self, topic: SourceTopic, now_us: int) -> Task[None]:
        """Remove all records of a topic that wait for removal: any of them may be about to
        change."""
        for going in list(self.running.get(topic, ())):
            for identities in going.pieces():
                if identities:
                    going.removed += self._remove(topic, identities, now_us)
                yield

    def _check_room(self, going: PendingDelete) -> Task[None]:
        """Check the room for all of them before the first is removed; long only on a full disk."""
        if self._disk.is_full:
            size_bytes = 0
            for identities in going.pieces():
                size_bytes += self._disk.removal_bytes(identities)
                yield
            self._disk.check_reserve(lambda: size_bytes)

    def _check_goes_on(
        self, topic: SourceTopic, going: PendingDelete, identities: Sequence[str]
    ) -> None:
        done = f"{going.removed} of {len(going)} records were deleted"
        if not self._is_there(topic):
            raise InvalidTopic(f"{topic.name} was removed from the configuration; {done} before")
        try:
            self._disk.check_removal(identities)
        except DiskFull:
            if not going.removed:
                raise
            raise DiskFull(
                f"the disk is full, and so is its reserve; {done}, and the others stay: free some "
                "space, and delete again"
            ) from None

    def _end(self, topic: SourceTopic, going: PendingDelete) -> None:
        running = self.running[topic]
        running.remove(going)
        if not running:
            del self.running[topic]

    def check(self) -> None:
        """Assert the invariants of removals, between two steps."""
        assert all(self.running.values()), "a topic without a removal"
        for topic, running in self.running.items():
            for going in running:
                assert going.removed <= len(going), f"more records left {topic.name} than requested"
