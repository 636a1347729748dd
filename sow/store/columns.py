"""Columns: the records of a table by slot, and the dictionaries that find a slot.

Each record has a *slot*, its position in a set of columns: body, identity, SowKey, sequence number
and time of the last change, and `born`, the sequence number of its first publication. A dictionary
maps identity to slot, or an index where they are many, and another one, made on first use, SowKey
to slot. Tables that need it have two more columns: an explicit place in the order, and the number
of the newest record that a record is made of.

The table assigns records to slots (`sow.store.memory`).

Two things are done in steps, because they take tens of milliseconds for a million records, which
would delay all clients. A nearly full block of numbers is copied into a larger one while it is used
(`GrowableArray`). A reader that needs a column as of one moment takes a hold, which is empty at
first: from then on every replaced or removed value is saved in it. The value of a slot is the one
saved in the hold, or else the current one. The references are copied in steps, and then the hold is
released: it is weakly referenced, so nothing is saved any more (`CopyOnWrite`).

A reader that needs all of a table as of one moment, while very many records change, reads a copy of
its columns (`freezing`). Its dictionaries are the table's own: what they lead to counts only if it
is what was there (`FrozenPlaces`), and what is removed is kept for that time.
"""

import re
from array import array
from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
    Set,
)
from copy import copy
from typing import Any, Generic, Self, TypeVar, cast
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from sow.core.containers import get_all
from sow.core.cooperative import Task, untracked

Block = NDArray[np.int64]

COPIED_AT_ONCE = 32
"""Places that are copied for each that is written to: twice as many as have to be for the larger
block to be complete when a sixteenth of the smaller one, which was free, has been filled; 30 ns
each."""


class GrowableArray:
    """A block of `size` places that replaces the smaller `block`, filled while that is used.

    The copy starts before the smaller block is full, and each change copies some more columns.
    Slots written meanwhile are noted, and copied again at the end.
    """

    __slots__ = ("_copied", "_smaller", "_written", "block")

    def __init__(self, block: Block, size: int) -> None:
        self._smaller = block
        # Memory that is not written to is not there yet, so that this takes no time.
        self.block: Block = np.zeros((len(block), size), np.int64)
        self._copied = 0
        """Places below it were copied."""
        self._written: list[NDArray[np.int64]] = []

    def write(self, places: NDArray[np.int64]) -> bool:
        """These places were written to, and more may be to them until the next call: copy some;
        whether the larger block is complete then, and to be used."""
        self._written.append(places)
        size = self._smaller.shape[1]
        start, stop = self._copied, min(self._copied + COPIED_AT_ONCE * len(places), size)
        self.block[:, start:stop] = self._smaller[:, start:stop]
        self._copied = stop
        if stop < size:
            return False
        written = np.concatenate(self._written)
        self.block[:, written] = self._smaller[:, written]
        return True


Slots = NDArray[np.int64]
Mask = NDArray[np.bool_]
NO_SLOTS: Slots = np.zeros(0, np.int64)

SEQ, TS_US, BORN, KEY = range(4)
"""The rows of the block in which a table has its numbers: a column of its own for each would take
hundreds of bytes more of every topic, and those of a pattern may be a hundred thousand."""
KEY_BITS = 2**64 - 1
"""SowKeys are unsigned, and lie in the block as the signed numbers of the same bits."""
NO_NUMBERS = np.zeros((4, 0), np.int64)
NONE_KEYED: dict[int, int] = {}
"""Shared by all tables without lookups by SowKey, and never added to."""
GROWTH_PART = 4
"""Columns grow by this part of them: a number is copied four times or so, and no more than a fifth
of the room is idle."""
LONG_COLUMNS = 200_000
"""Columns of more places are copied a little at a time when they grow; those of fewer take some
five milliseconds."""
FREE_PART = 16
"""When less than this part of long columns is free they begin to grow."""
SowKeys = Callable[[str, Sequence[str]], "array[int]"]
"""Makes the SowKeys of identities in a domain (`sow.core.keys.sow_keys`)."""
SOW_KEY = re.compile(r"0|[1-9][0-9]{0,19}")


Value = TypeVar("Value")


class Before(dict[int, Value]):
    """By slot, the value at the time of the hold, if it was replaced since."""

    __slots__ = ("__weakref__",)


class CopyOnWrite(Generic[Value]):
    """The holds of one column that are still referenced."""

    __slots__ = ("_refs",)

    def __init__(self) -> None:
        self._refs: list[ref[Before[Value]]] = []

    def take(self) -> Before[Value]:
        """A new one, of this moment."""
        hold = Before[Value]()
        self._refs.append(ref(hold))
        return hold

    def save(self, slots: Sequence[int], values: Iterable[Value]) -> bool:
        """Save these replaced values; returns whether any hold is left."""
        there = [hold for one in self._refs if (hold := one()) is not None]
        self._refs = list(map(ref, there))
        if there:
            saved = list(zip(slots, values, strict=True))
            for hold in there:
                for slot, value in saved:
                    # If a slot is named twice, its first value is the old one.
                    hold.setdefault(slot, value)
        return bool(there)


COPIED_ROWS = 100_000
"""References that one step copies: some two milliseconds with their counts."""
EMPTIED_ROWS = 5_000
"""References that one step lets go of: half a millisecond, with what only they refer to."""
Key = TypeVar("Key", bound=Hashable)


class FrozenPlaces(Mapping[Key, int]):
    """Where `count` records were, by what a table knows `now`, and by what is `gone` since.
    `is_at` decides whether a slot had the record of a key."""

    __slots__ = ("_count", "_gone", "_is_at", "_now")

    def __init__(
        self,
        now: Callable[[], Mapping[Key, int]],
        gone: Mapping[Key, int],
        is_at: Callable[[int, Key], bool],
        count: int,
    ) -> None:
        self._now = now
        self._gone = gone
        self._is_at = is_at
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Key]:
        return (key for key in {**self._now(), **self._gone} if key in self)

    def __getitem__(self, key: Key) -> int:
        slot = self.get(key)
        if slot is None:
            raise KeyError(key)
        return cast("int", slot)

    def __contains__(self, key: object) -> bool:
        return self.get(cast("Key", key)) is not None

    def get(self, key: Key, default: Any = None) -> Any:
        """The slot of a key, or `default`."""
        for places in (self._gone, self._now()):
            slot = places.get(key)
            if slot is not None and self._is_at(slot, key):
                return slot
        return default


def copied(column: list[Value]) -> Task[list[Value]]:
    """The same list, copied in steps between which it does not change."""
    found: list[Value] = untracked([])
    for start in range(0, len(column), COPIED_ROWS):
        found += column[start : start + COPIED_ROWS]
        yield
    return found


def copied_numbers(numbers: NDArray[np.int64]) -> Task[NDArray[np.int64]]:
    """The same of an array, or of a block of them."""
    found = np.empty_like(numbers)
    for start in range(0, numbers.shape[-1], COPIED_ROWS):
        some = slice(start, start + COPIED_ROWS)
        found[..., some] = numbers[..., some]
        yield
    return found


class Columns:
    """Columns of records. `sow_keys` makes the SowKeys of identities in `domain`; None: these are
    the keys themselves."""

    __slots__ = (
        "_body_holds", "_by_sow_key", "_domain", "_gone", "_gone_keys", "_identity_holds",
        "_keyed_to", "_larger", "_make_sow_keys", "_newest", "_numbers", "_places", "bodies",
        "expires_us", "identities", "slots",
    )  # fmt: skip

    def __init__(self, sow_keys: SowKeys | None, domain: str) -> None:
        self._make_sow_keys = sow_keys
        self._domain = domain
        self.slots: MutableMapping[str, int] = {}
        self.bodies: list[bytes | None] = untracked([])
        self.identities: list[str | None] = untracked([])
        self._numbers = NO_NUMBERS
        self._larger: GrowableArray | None = None
        """The block that will replace the block of numbers."""
        self.expires_us: NDArray[np.int64] | None = None
        self._body_holds: CopyOnWrite[bytes | None] | None = None
        """Holds on replaced bodies; None while there are none."""
        self._identity_holds: CopyOnWrite[str | None] | None = None
        """The same of what is removed."""
        self._by_sow_key = NONE_KEYED
        self._keyed_to = 0
        """Slots below it are in `_by_sow_key`; a lookup by SowKey adds the others."""
        self._places: NDArray[np.int64] | None = None
        """By slot its place in the order, where that was given (`Table.arrange`)."""
        self._newest: NDArray[np.int64] | None = None
        """By slot, the number of the newest record that it is made of, where that was given."""
        self._gone: dict[str, int] | None = None
        """Where removed records were, by identity, while there is a frozen copy."""
        self._gone_keys: dict[int, int] = NONE_KEYED
        """The same by SowKey."""

    def freezing(self) -> Task[Self]:
        """A copy for readers, which stays as it is now: made in steps between which no record
        changes, and good until `thaw`."""
        while self._by_sow_key is not NONE_KEYED and self.unkeyed_count:
            self.key(COPIED_ROWS // 20)
            yield
        frozen = copy(self)
        frozen.bodies = yield from copied(self.bodies)
        frozen.identities = yield from copied(self.identities)
        for name in ("_numbers", "expires_us", "_places", "_newest"):
            column = getattr(self, name)
            if column is not None:
                setattr(frozen, name, (yield from copied_numbers(column)))
        frozen._larger = frozen._body_holds = frozen._identity_holds = None
        self._gone, self._gone_keys = {}, {}
        frozen._freeze(self, self._gone, self._gone_keys)
        return frozen

    def _freeze(self, now: "Columns", gone: dict[str, int], gone_keys: dict[int, int]) -> None:
        """Find records by the dictionaries of the table that this is a copy of."""
        identities, sow_keys, count = self.identities, self._sow_keys, len(self.bodies)

        def is_at(slot: int, identity: str) -> bool:
            return slot < count and identities[slot] == identity

        def is_key_at(slot: int, key: int) -> bool:
            return slot < count and identities[slot] is not None and int(sow_keys[slot]) == key

        held = len(now.slots)
        self.slots = cast(
            "MutableMapping[str, int]", FrozenPlaces(lambda: now.slots, gone, is_at, held)
        )
        self._by_sow_key, self._keyed_to = NONE_KEYED, 0
        if now._by_sow_key is not NONE_KEYED and not now.unkeyed_count:
            places = FrozenPlaces(lambda: now._by_sow_key, gone_keys, is_key_at, held)
            self._by_sow_key, self._keyed_to = cast("dict[int, int]", places), count

    def thaw(self) -> None:
        """The frozen copy is not read any more."""
        self._gone, self._gone_keys = None, NONE_KEYED

    def emptying(self) -> Task[None]:
        """Let go of the records of a frozen copy that nobody reads any more, some at a time: all at
        once takes long. Who holds a column keeps what was in it."""
        columns = (self.bodies, self._body_holds), (self.identities, self._identity_holds)
        for column, holds in columns:
            for start in range(0, len(column), EMPTIED_ROWS):
                some = column[start : start + EMPTIED_ROWS]
                if holds is not None:
                    holds.save(range(start, start + len(some)), some)  # type: ignore[arg-type]
                column[start : start + len(some)] = [None] * len(some)
                yield

    def _keep_gone(self, identities: Sequence[str], slots: Sequence[int]) -> None:
        """Keep where removed records were; one that came later counts no less."""
        if self._gone is not None:
            for identity, slot, key in zip(
                identities, slots, self._sow_keys[list(slots)].tolist(), strict=True
            ):
                self._gone.setdefault(identity, slot)
                self._gone_keys.setdefault(key, slot)

    def __len__(self) -> int:
        return len(self.slots)

    def __contains__(self, identity: object) -> bool:
        return identity in self.slots

    def among(self, identities: Set[str]) -> set[str]:
        """Those of these records that are there."""
        names = list(identities)
        slots = get_all(self.slots, names)
        return {name for name, slot in zip(names, slots, strict=True) if slot is not None}

    def expiries(self, identities: Sequence[str], other_us: int) -> list[int]:
        """When these records expire, 0 for never; those that are not there at another time."""
        found = get_all(self.slots, identities)
        slots = list(found)
        if self.expires_us is None:
            return [other_us if slot is None else 0 for slot in slots]
        return _numbers_in(self.expires_us, slots, [other_us] * len(slots))

    def hold_bodies(self) -> Before[bytes | None]:
        """Saves replaced and removed `bodies` from now on, while it is referenced."""
        if self._body_holds is None:
            self._body_holds = CopyOnWrite()
        return self._body_holds.take()

    def hold_identities(self) -> Before[str | None]:
        """The same of `identities`."""
        if self._identity_holds is None:
            self._identity_holds = CopyOnWrite()
        return self._identity_holds.take()

    # Numbers.

    @property
    def seqs(self) -> NDArray[np.int64]:
        """By slot, the number of the last change."""
        column: NDArray[np.int64] = self._numbers[SEQ]
        return column

    @property
    def ts_us(self) -> NDArray[np.int64]:
        """By slot, the time of the last change."""
        column: NDArray[np.int64] = self._numbers[TS_US]
        return column

    @property
    def born(self) -> NDArray[np.int64]:
        """By slot, the number of the first publication."""
        column: NDArray[np.int64] = self._numbers[BORN]
        return column

    @property
    def order(self) -> NDArray[np.int64]:
        """By slot, the place of the record in the order of all."""
        return self.born if self._places is None else self._places

    @property
    def keeps_newest(self) -> bool:
        """Which of its records is the newest is not read off `seqs`."""
        return self._newest is not None

    @property
    def newest(self) -> NDArray[np.int64]:
        """By slot, the number that decides which record is the newest: that of the newest record
        that it is made of, where `Table.arrange` has set it, else that of its last change."""
        return self.seqs if self._newest is None else self._newest

    @property
    def shares_places(self) -> bool:
        """Several records may share a place; their SowKeys then order them."""
        return self._places is not None

    # Places.

    def tie(self, slot: int) -> int | tuple[int, int]:
        """That of one record of `ties`."""
        if self._places is None:
            return int(self.born[slot])
        return int(self._places[slot]), int(self._sow_keys[slot])

    def ties(self, slots: Slots) -> list[int] | list[tuple[int, int]]:
        """The final sort key of records in these slots, the order of `live`: first publication, or
        the explicit place and the SowKey."""
        if self._places is None:
            births: list[int] = self.born[slots].tolist()
            return births
        columns = self._places[slots].tolist(), self._sow_keys[slots].tolist()
        return list(zip(*columns, strict=True))

    def places_of(self, slots: Sequence[int | None], others: Sequence[int]) -> list[int]:
        """The places of the records in these slots in the order of all; where there is none, None
        in its place, that of `others`."""
        return _numbers_in(self.order, slots, others)

    def newest_of(self, slots: Sequence[int | None], others: Sequence[int]) -> list[int] | None:
        """The same of `newest`; None where nothing was given."""
        return None if self._newest is None else _numbers_in(self._newest, slots, others)

    def reserve(self, count: int) -> None:
        """Reserve columns of at least `count` slots, where the number of records is known: else
        they are copied from time to time as they grow."""
        size = self._numbers.shape[1]
        if count <= size:
            return
        self._use(grown(self._numbers, max(count, size + size // GROWTH_PART)))

    def _grow(self, written: Sequence[int]) -> None:
        """Continue to fill a larger block of numbers, after a write to these slots, or start one if
        this one is nearly full."""
        size = self._numbers.shape[1]
        if self._larger is None and len(self.bodies) > size - size // FREE_PART:
            self._larger = GrowableArray(self._numbers, size + size // GROWTH_PART)
        if self._larger is not None and self._larger.write(np.array(written, np.int64)):
            self._use(self._larger.block)

    def _use(self, numbers: NDArray[np.int64]) -> None:
        """Have a larger block of numbers, and columns of its size."""
        size = numbers.shape[1]
        self._numbers, self._larger = numbers, None
        if self._places is not None:
            self._places = grown(self._places, size)
        if self._newest is not None:
            self._newest = grown(self._newest, size)
        if self.expires_us is not None:
            self.expires_us = grown(self.expires_us, size)

    # SowKeys.

    @property
    def _sow_keys(self) -> NDArray[np.uint64]:
        column: NDArray[np.uint64] = self._numbers[KEY].view(np.uint64)
        return column

    def _name(self, slots: Sequence[int], identities: Sequence[str]) -> None:
        """Make the SowKeys of records that are new in these slots."""
        if self._make_sow_keys is None:
            return
        sow_keys = self._make_sow_keys(self._domain, identities)
        if len(slots) == 1:
            # As `sow_keys` reads one: without a view of the row.
            (key,) = sow_keys
            self._numbers[KEY, slots[0]] = key - (key >> 63 << 64)
        else:
            self._sow_keys[slots] = sow_keys
        if self._keyed_to:
            keyed = zip(sow_keys, slots, strict=True)
            self._by_sow_key.update([pair for pair in keyed if pair[1] < self._keyed_to])

    def sow_keys(self, slots: Sequence[int], identities: Sequence[str]) -> list[str]:
        """SowKeys as text; `identities` are those of the slots, which may just have been freed."""
        if self._make_sow_keys is None:
            return list(identities)
        if len(slots) == 1:
            return [self.sow_key(slots[0])]
        return [str(key) for key in self._sow_keys[np.asarray(slots, np.int64)].tolist()]

    def sow_key_numbers(self, slots: Slots) -> NDArray[np.uint64] | None:
        """SowKeys as numbers; None where the records' own keys take their place."""
        return None if self._make_sow_keys is None else self._sow_keys[slots]

    def sow_key(self, slot: int) -> str:
        """The SowKey of the record in a slot, as text."""
        if self._make_sow_keys is None:
            return self.identities[slot] or ""
        # Without a view of the row, which would cost more than all the rest.
        return str(int(self._numbers[KEY, slot]) & KEY_BITS)

    def find(self, sow_key: str) -> int | None:
        """The slot of a SowKey given as text, or None."""
        if self._make_sow_keys is None:
            return self.slots.get(sow_key)
        self.key()
        # Only the canonical decimal is a SowKey: no sign, blank, leading zero or other digits.
        if not SOW_KEY.fullmatch(sow_key):
            return None
        return self._by_sow_key.get(int(sow_key))

    @property
    def unkeyed_count(self) -> int:
        """How many slots `find` has to add first."""
        return 0 if self._make_sow_keys is None else len(self.bodies) - self._keyed_to

    def key(self, limit: int | None = None) -> int:
        """Add up to `limit` more slots to the dictionary of SowKeys; returns how many.

        It is made on first use: most topics have no lookups by SowKey.
        """
        start, stop = self._keyed_to, len(self.bodies)
        if start == stop:
            return 0
        if limit is not None:
            stop = min(stop, start + limit)
        self._keyed_to = stop
        if self._by_sow_key is NONE_KEYED:
            self._by_sow_key = {}
        held = [slot for slot in range(start, stop) if self.identities[slot] is not None]
        self._by_sow_key.update(zip(self._sow_keys[held].tolist(), held, strict=True))
        return stop - start


def _numbers_in(
    column: NDArray[np.int64], slots: Sequence[int | None], others: Sequence[int]
) -> list[int]:
    """The values of a column in these slots; where there is none, a default."""
    if None not in slots:
        numbers: list[int] = column[slots].tolist()  # type: ignore[index]  # no None
        return numbers
    return [
        other if slot is None else int(column[slot])
        for slot, other in zip(slots, others, strict=True)
    ]


def grown(column: NDArray[Any], size: int) -> NDArray[Any]:
    """A column, or a block of them, with zeros up to `size` places."""
    grown = np.zeros((*column.shape[:-1], size), column.dtype)
    grown[..., : column.shape[-1]] = column
    return grown
