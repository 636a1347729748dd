"""The table: the current record of every key of one topic, in memory.

A record is the bytes of its message. It is in a slot of a set of columns (`sow.store.columns`), and
records are ordered by `born`, the number of their first publication (docs/semantics.md, Rule 9).
Freed slots are reused, so a slot number is invalid once its record is removed and the next batch is
applied.

The table knows nothing of fields, indexes, filters or the disk.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from sow.core.containers import add_all, get_all, indexed_if_many, sharded_if_long
from sow.core.inner_loops import INNER_LOOPS
from sow.store.columns import (
    BORN,
    GROWTH_PART,
    LONG_COLUMNS,
    SEQ,
    TS_US,
    Before,
    Columns,
    Slots,
    SowKeys,
)
from sow.store.protocols import Numbers, Slice, numbers

NONE_FREE: "array[int]" = array("q")
"""Shared by all tables without removed records, and never added to."""
Births = Callable[[], Sequence[int]]
RECORD_BYTES = 300
"""What a record takes beside its body, about; 274 were measured (short key, two indexes)."""
MARKED_SHARE_MIN = 1 / 128
"""From this share of the slots on, marking them among all is faster than sorting them."""


class Usage:
    """Memory of the records of several tables, updated by them; `named_bytes` is the length of
    their identities, in characters: what it takes to log the removal of all of them."""

    __slots__ = ("bytes", "named_bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self.named_bytes = 0

    def count(self, more_bytes: int) -> None:
        """What is kept of records elsewhere takes so much more."""
        self.bytes += more_bytes


class ReportedUsage(Usage):
    """One that calls `report` with each difference."""

    __slots__ = ("_bytes", "_report")

    def __init__(self, report: Callable[[int], None]) -> None:
        self._bytes = 0
        self._report = report
        super().__init__()

    def _count_to(self, now: int) -> None:
        more_bytes, self._bytes = now - self._bytes, now
        if more_bytes:
            self._report(more_bytes)

    bytes = property(attrgetter("_bytes"), _count_to)


class Table(Columns):
    """Records of one topic. `sow_keys` makes the SowKeys of identities in `domain`; None: these are
    the keys themselves.

    `by_arrival`: records are ordered by when they came, not by their sequence numbers, until they
    are given another order: that of what they are made of (`bear`, `arrange`). What the table takes
    is counted in `usage` too.
    """

    __slots__ = ("_arrivals", "_bears", "_free", "_in_order", "_usage", "bytes")

    def __init__(
        self,
        sow_keys: SowKeys | None,
        domain: str = "",
        by_arrival: bool = False,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(sow_keys, domain)
        self._usage = usage or Usage()
        self._free = NONE_FREE
        self._in_order = True
        self._arrivals = 0 if by_arrival else None
        """How many were inserted, where that is their order."""
        self._bears = False
        """Records have been given their births."""
        self.bytes = 0

    @property
    def keeps_all(self) -> bool:
        """No record has ever been removed or moved: each was born when it was first put."""
        return self._free is NONE_FREE and not self.is_arranged

    def has_removed(self) -> None:
        """Records have been removed before this table was made, and others know of them."""
        if self._free is NONE_FREE:
            self._free = array("q")

    @property
    def is_arranged(self) -> bool:
        """Records have explicit places or births: a new one may come anywhere."""
        return self._bears or self._places is not None

    def put(
        self,
        identities: Sequence[str],
        bodies: Sequence[bytes],
        seqs: Sequence[int],
        ts_us: Sequence[int],
        expires_us: int | Sequence[int] = 0,
        births: Births | None = None,
    ) -> tuple[list[int], list[bytes | None]]:
        """Insert or replace records; returns their slots and old bodies.

        The same identity may occur twice in a batch: its second old body is its first new one.
        `expires_us` is one for all of them, or one for each. `births` returns their numbers of
        first publication, unique in the table, and is called if there are new ones; None: these are
        first published now.
        """
        found: list[int | None] = [*get_all(self.slots, identities)]
        current = self.bodies
        if births is not None:
            self._bears = True
        fresh: dict[str, int] = {}
        if None in found:
            numbers = seqs if births is None else births()
            fresh = self._insert(self._born(identities, found, numbers, births is None))
            slots = [
                fresh[name] if slot is None else slot
                for name, slot in zip(identities, found, strict=True)
            ]
        else:
            slots = found  # type: ignore[assignment]  # none is missing
        olds: list[bytes | None] = INNER_LOOPS.swap(current, slots, bodies)
        grown = sum(map(len, bodies)) - sum(map(len, filter(None, olds)))
        self.bytes += grown
        self._usage.bytes += grown + RECORD_BYTES * len(fresh)
        if fresh:
            self._take_in(fresh)
        if self._body_holds is not None and not self._body_holds.save(slots, olds):
            self._body_holds = None
        self._stamp(slots, seqs, ts_us, expires_us)
        if len(current) > LONG_COLUMNS:
            self._grow(slots)
        return slots, olds

    def _born(
        self,
        identities: Sequence[str],
        found: Sequence[int | None],
        numbers: Sequence[int],
        now: bool,
    ) -> dict[str, int]:
        """Records that were not `found`, and their numbers of first publication; `now`: none were
        given, so where the order is that of arrival they are counted."""
        born: dict[str, int] = {}
        for name, number, slot in zip(identities, numbers, found, strict=True):
            if slot is None and name not in born:
                born[name] = number
        if now and self._arrivals is not None:
            first = self._arrivals + 1
            self._arrivals += len(born)
            return dict(zip(born, range(first, first + len(born)), strict=True))
        return born

    def _take_in(self, fresh: dict[str, int]) -> None:
        """Count new records in these slots."""
        new = list(fresh.values())
        self.slots.update(fresh)
        self.slots = sharded_if_long(indexed_if_many(self.slots, self.identities))
        self._name(new, list(fresh))
        self._count_names(fresh, 1)
        if self._bears:
            self._see_order(new)

    def _count_names(self, identities: Iterable[str], times: int) -> None:
        """Count inserted or removed records; removals from a copy are not logged."""
        if self._arrivals is None:
            self._usage.named_bytes += times * sum(map(len, identities))

    def _stamp(
        self,
        slots: list[int],
        seqs: Sequence[int],
        ts_us: Sequence[int],
        expires_us: int | Sequence[int],
    ) -> None:
        if expires_us and self.expires_us is None and _any(expires_us):
            self.expires_us = np.zeros(len(self.seqs), np.int64)
        numbers = self._numbers
        if len(slots) == 1:  # without a buffer, for which numpy keeps 88 bytes with each array
            slot = slots[0]
            numbers[SEQ, slot], numbers[TS_US, slot] = seqs[0], ts_us[0]
        else:
            INNER_LOOPS.stamp(numbers, slots, seqs, ts_us)
        if self.expires_us is not None:
            # numpy keeps the last of repeated indices, which is what a repeated record needs.
            self.expires_us[slots] = expires_us

    def _insert(self, born: dict[str, int]) -> dict[str, int]:
        """Make room for new records, by their numbers of first publication; returns their slots."""
        slots: list[int] = []
        while self._free and len(slots) < len(born):
            slots.append(self._free.pop())
            self._in_order = False
        names, reused, size = list(born), len(slots), len(self.bodies)
        for slot, name in zip(slots, names, strict=False):
            self.identities[slot] = name
        self.identities += names[reused:]
        self.bodies += [None] * (len(names) - reused)
        slots += range(size, len(self.bodies))
        self.reserve(len(self.bodies))
        if len(slots) == 1:
            self._numbers[BORN, slots[0]] = born[names[0]]
        else:
            self._numbers[BORN, slots] = list(born.values())
        return dict(zip(names, slots, strict=True))

    def arrange(
        self, identities: Iterable[str], places: Sequence[int], newest: Sequence[int] | None = None
    ) -> None:
        """Set the places of these existing records in the order, instead of their order of
        insertion; a table has places for all records or for none. `newest` are their numbers in the
        column of that name."""
        if self._places is None:
            self._places = np.zeros(self._numbers.shape[1], np.int64)
            self._in_order = False
        if newest is not None and self._newest is None:
            # Those that are not given one are as new as their last change, as they were before.
            self._newest = self.seqs.copy()
        if not places:
            return
        where = list(map(self.slots.__getitem__, identities))
        self._places[where] = places
        if newest is not None and self._newest is not None:
            self._newest[where] = newest

    def bear(self, slots: Sequence[int], births: Sequence[int]) -> None:
        """Set the births of the records in these slots, unique numbers."""
        born = self.born
        born[slots] = births
        if self._larger is not None:
            self._grow(slots)
            born = self.born
        self._bears = True
        self._see_order(slots)

    def _see_order(self, slots: Sequence[int]) -> None:
        """Check whether slots are still in order, after these records got their births."""
        if self._in_order and slots:
            # From the first to the last with their neighbours: new ones are at the end, and
            # what moves from further ahead ends the order, so that it is looked for no more.
            start, stop = max(0, min(slots) - 1), min(max(slots) + 2, len(self.bodies))
            born = self._numbers[BORN, start:stop]
            self._in_order = bool((born[:-1] < born[1:]).all())

    def drop(self, identities: Iterable[str]) -> tuple[list[str], list[int], list[bytes]]:
        """Remove the records that are there; returns their identities, slots and bodies."""
        gone: list[str] = []
        slots: list[int] = []
        olds: list[bytes] = []
        for identity in identities:
            slot = self.slots.pop(identity, None)
            if slot is None:
                continue
            body = self.bodies[slot]
            assert body is not None
            gone.append(identity)
            slots.append(slot)
            olds.append(body)
            self.bodies[slot] = None
            self.identities[slot] = None
            if slot < self._keyed_to:
                self._by_sow_key.pop(int(self._sow_keys[slot]), None)
        shrunk = sum(map(len, olds))
        self.bytes -= shrunk
        self._usage.bytes -= shrunk + RECORD_BYTES * len(olds)
        self._count_names(gone, -1)
        if self._body_holds is not None and not self._body_holds.save(slots, olds):
            self._body_holds = None
        if self._identity_holds is not None and not self._identity_holds.save(slots, gone):
            self._identity_holds = None
        if self._gone is not None:
            self._keep_gone(gone, slots)
        self._set_free(slots)
        return gone, slots, olds

    def _freeze(self, now: Columns, gone: dict[str, int], gone_keys: dict[int, int]) -> None:
        super()._freeze(now, gone, gone_keys)
        self._free = self._free if self._free is NONE_FREE else self._free[:]

    def _set_free(self, slots: list[int]) -> None:
        if slots and self._free is NONE_FREE:
            # Numbers as in memory, to be marked among a million at once (`live`).
            self._free = array("q")
        self._free.extend(slots)

    def held_names(self, count: int) -> Iterator[list[str]]:
        """What the records of this moment are called, so many at a time, whatever becomes of them
        meanwhile; in their order, which does not depend on starts, as that of slots does."""
        return self._held_names(self.live(), self.hold_identities(), count)

    def _held_names(
        self, slots: Slots, before: Before[str | None], count: int
    ) -> Iterator[list[str]]:
        for start in range(0, len(slots), count):
            some = slots[start : start + count].tolist()
            stood = (before[slot] if slot in before else self.identities[slot] for slot in some)
            yield [name for name in stood if name is not None]

    def live(self) -> Slots:
        """Slots of all records, in order of first publication, or in the one that was given."""
        slots = self.occupied()
        return slots if self._in_order else self.ordered(slots)

    def occupied(self) -> Slots:
        """Slots of all records, as they rise."""
        occupied = np.ones(len(self.bodies), np.bool_)
        occupied[np.frombuffer(self._free, np.int64)] = False
        return np.flatnonzero(occupied)

    def ordered(self, slots: Slots) -> Slots:
        """The same slots, each once, in order of first publication."""
        if self._in_order:
            if len(slots) < len(self.bodies) * MARKED_SHARE_MIN:
                return np.sort(slots)
            marked = np.zeros(len(self.bodies), np.bool_)
            marked[slots] = True
            return np.flatnonzero(marked)
        places = self.order[slots]
        by_place = np.argsort(places, kind="stable")  # soon done where they nearly are in order
        ordered: Slots = slots[by_place]
        if self._places is not None:
            self._part(ordered, places[by_place])
        return ordered

    def _part(self, ordered: Slots, places: NDArray[np.int64]) -> None:
        """Order slots that share a place by their SowKeys: joined rows may share one."""
        same = places[1:] == places[:-1]
        if same.any():
            shares = np.zeros(len(places), np.bool_)
            shares[1:] |= same
            shares[:-1] |= same
            some = np.flatnonzero(shares)
            keys = self._sow_keys[ordered[some]]
            ordered[some] = ordered[some[np.lexsort((keys, places[some]))]]

    def held(self, start: int, count: int) -> list[int]:
        """Which of the `count` slots from `start` on have records."""
        places = range(start, min(start + count, len(self.bodies)))
        return [slot for slot in places if self.bodies[slot] is not None]

    def slice(self, start: int, count: int) -> Slice:
        """The records in `count` slots from `start` on, as columns."""
        return self.part(self.held(start, count))

    def part(self, slots: Sequence[int]) -> Slice:
        """The records in these slots, all there, as columns."""
        expires, where = self.expires_us, np.array(slots, np.int64)
        return Slice(
            [self.identities[slot] or "" for slot in slots],
            [self.bodies[slot] or b"" for slot in slots],
            _column(self.seqs[where]),
            _column(self.ts_us[where]),
            _column(self.born[where]),
            _column(np.zeros(len(slots), np.int64) if expires is None else expires[where]),
            None if self._make_sow_keys is None else array("Q", self._sow_keys[where].tobytes()),
        )

    def replay(
        self,
        identities: Sequence[str],
        bodies: Sequence[bytes],
        seqs: Sequence[int],
        ts_us: Sequence[int],
        expires_us: Sequence[int],
    ) -> None:
        """`put` for a table that is being rebuilt: new records come as columns.

        Call `settle` once everything is restored.
        """
        stamps = seqs, ts_us, expires_us
        if self._free or self._arrivals is not None:
            self.put(identities, bodies, *stamps)  # which reuses slots, and counts new records
            return
        found = [*get_all(self.slots, identities)]
        if len(set(identities)) == found.count(None) == len(found):
            self._introduce(list(identities), list(bodies), *stamps)
        else:
            new: dict[str, int] = {}
            again: list[int] = []
            for at, (identity, slot) in enumerate(zip(identities, found, strict=True)):
                if slot is not None or new.setdefault(identity, at) != at:
                    again.append(at)
            for places, take in ((list(new.values()), self._introduce), (again, self.put)):
                columns = (identities, bodies, *stamps)
                take(*([column[at] for at in places] for column in columns))  # type: ignore[arg-type]

    def _introduce(
        self,
        identities: list[str],
        bodies: list[bytes],
        seqs: Sequence[int],
        ts_us: Sequence[int],
        expires_us: Sequence[int],
    ) -> None:
        """Append records that are new, each once, born now."""
        start = len(self.bodies)
        columns = numbers(seqs), numbers(ts_us), numbers(seqs), numbers(expires_us)
        self._append(Slice(identities, bodies, *columns))
        self.slots.update(zip(identities, range(start, len(self.bodies)), strict=True))
        self.slots = indexed_if_many(self.slots, self.identities)
        self._in_order = False

    def expect(self, count: int) -> None:
        """So many records will be put back: have room for them, and some more."""
        if not self.bodies and not self._numbers.shape[1]:
            self.reserve(count + count // GROWTH_PART)

    def restore(self, part: Slice) -> None:
        """Put back records of a checkpoint, as they were; of each one the newest state stays.

        Call `settle` once everything is back.
        """
        start, count, before = len(self.bodies), len(part.identities), len(self.slots)
        self._append(part)
        places = add_all(self.slots, part.identities, range(start, start + count))
        self.slots = indexed_if_many(self.slots, self.identities)
        if len(self.slots) < before + count:
            for at, slot in enumerate(places):
                if slot != start + at:
                    self._replace(slot, start + at)
        self._in_order = False

    def _append(self, part: Slice) -> None:
        """Fill as many slots as there are records, a column at a time."""
        start, end = len(self.bodies), len(self.bodies) + len(part.bodies)
        self.reserve(end)
        self._larger = None  # what it has copied is written to
        self.identities += part.identities
        self.bodies += part.bodies
        self.seqs[start:end] = part.seqs
        self.ts_us[start:end] = part.ts_us
        self.born[start:end] = part.born
        if self.expires_us is None and np.any(part.expires_us):
            self.expires_us = np.zeros(len(self.seqs), np.int64)
        if self.expires_us is not None:
            self.expires_us[start:end] = part.expires_us
        self._take_sow_keys(part, start, end)
        grown = sum(map(len, part.bodies))
        self.bytes += grown
        self._usage.bytes += grown + RECORD_BYTES * len(part.bodies)
        self._count_names(part.identities, 1)

    def _take_sow_keys(self, part: Slice, start: int, end: int) -> None:
        """Fill in the SowKeys: those that were stored, if they were made in this domain."""
        if self._make_sow_keys is None or start == end:
            return
        stored, first = part.sow_keys, self._make_sow_keys(self._domain, part.identities[:1])
        if stored is None or stored[0] != first[0]:
            stored = self._make_sow_keys(self._domain, part.identities)
        self._sow_keys[start:end] = stored

    def _replace(self, slot: int, other: int) -> None:
        """Of two slots with one record keep the first, with the newer of both states."""
        older, newer = sorted((slot, other), key=lambda one: int(self.seqs[one]))
        shrunk = len(self.bodies[older] or b"")
        self.bytes -= shrunk
        self._usage.bytes -= shrunk + RECORD_BYTES
        self._count_names([self.identities[other] or ""], -1)
        self.bodies[slot] = self.bodies[newer]
        for column in (self.seqs, self.ts_us, self.born, self.expires_us):
            if column is not None:
                column[slot] = column[newer]
        self.bodies[other] = self.identities[other] = None
        self._set_free([other])

    def forget(self) -> None:
        """The table is removed with all its records: they are not counted any more."""
        self._usage.bytes -= self.bytes + RECORD_BYTES * len(self.slots)
        self._count_names(self.slots, -1)
        self._usage = Usage()

    def settle(self) -> None:
        """Check whether the restored records are in order of first publication."""
        born = self.born[: len(self.bodies)]
        self._in_order = (
            not self._free and self._places is None and bool(np.all(born[:-1] < born[1:]))
        )

    def check(self) -> None:
        """Assert what is always true of a table."""
        assert len(self.bodies) == len(self.identities) <= len(self._sow_keys) == len(self.born)
        held = dict(self.slots.items())
        assert len(held) == len(self.slots) == len(self.bodies) - len(self._free)
        assert not set(self._free) & set(held.values())
        assert all(self.bodies[slot] is None for slot in self._free)
        assert all(self.identities[slot] == identity for identity, slot in held.items())
        assert [*get_all(self.slots, [*held])] == [*held.values()]
        assert self.bytes == sum(len(self.bodies[slot] or b"") for slot in held.values())
        step_min = 0 if self._places is not None else 1
        assert not self.slots or np.diff(self.order[self.live()]).min(initial=1) >= step_min


def _any(expires_us: int | Sequence[int]) -> bool:
    return bool(expires_us) if isinstance(expires_us, int) else any(expires_us)


def _column(values: NDArray[np.int64]) -> Numbers:
    column = numbers(())
    column.frombytes(values.tobytes())
    return column
