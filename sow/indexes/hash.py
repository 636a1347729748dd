"""A hash index: which records have given values in given fields.

The one index that every publish keeps up to date, so that work is cut down to a dictionary
lookup and a store: each distinct value has a small number, its *code*, and each slot *stands*
under one. For exact lookups the slots of a code are also linked into a chain; a moved slot is
only noted, and linked into its new chain when the server is idle (`refresh`). Until then a
lookup looks at the notes beside the chain, and when chain and notes are long, at all codes at
once, which numpy does in a fraction of a millisecond per million.

A record whose field is a list stands under a code of that whole list; `Spellings` knows which
lists and which texts equal a literal. All state is in flat arrays: about 30 bytes a record.

Values that no record has any more are swept: every put looks at a few times its own number of
codes, and what is free stands for another value then. A frozen copy has arrays of its own, and the
codes of the index: none of them is given up while it is there, and under new ones nothing stands in
it. There may be a million values, and to copy them in one step takes 50 milliseconds.
"""

import math
from array import array
from collections.abc import Iterable, Sequence
from copy import copy
from itertools import product, repeat
from typing import Any
from weakref import ref

import numpy as np
import numpy.ma
from numpy.typing import NDArray

from sow.core.cooperative import Task
from sow.core.inner_loops import INNER_LOOPS
from sow.core.paths import Path, Scalar, Value
from sow.expressions.values import is_null
from sow.indexes.equal_values import Single, Spellings
from sow.messages.base import Column
from sow.store.columns import Mask, Slots

Codes = NDArray[np.int32]

NONE = -1
"""No code, no slot."""
UNKNOWN = -2
"""The code has yet to be found out."""
# Beyond this share of the table, comparing all codes is faster than following a chain.
CHAIN_SHARE_MAX = 1 / 64
NOTES_SHARE_MAX = 1 / 4
"""Beyond this share of the table, making all chains afresh is faster than moving records one by
one."""
COMBINATIONS_MAX = 100_000
"""Keys that a lookup may try, made of the literals of several fields. Beyond it, testing the
records is no slower."""
MANY = 1000
"""Records from which on it is quicker to take them in as columns than one by one."""
CODES_SPARE = 1024
"""A small table need not be tidied for every few values that come and go."""
MARKED_AT_ONCE = 65_536
"""Slots whose codes are marked as used in one go: a tenth of a millisecond."""
SWEPT_FACTOR = 8
"""So many codes are looked at for each record that is put: all have been long before as many can be
new again, and no put takes much longer than its own records."""


NOTES_AT_ONCE = 2_000
"""Notes that one step of a copy works off: a millisecond."""
COPIED = "_heads", "_sizes", "_standing", "_filed", "_next", "_previous", "_moved"
"""The arrays of an index."""


def _view(values: "array[int]") -> Codes:
    """An array as numpy, without copying; it must be gone before the array can grow."""
    return np.frombuffer(values, np.int32)


class HashIndex:
    """Slots by the values of `paths`. NULL in any field: the record is in no chain."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self.paths = paths
        self._single = len(paths) == 1
        # NULLs of a single field are found without the detour over `_code_of`.
        self._codes: dict[Any, int] = {None: NONE, "": NONE} if self._single else {}
        self._codes_max = CODES_SPARE
        self._old: dict[Any, int] = {}
        """While codes are swept: those not visited yet."""
        self._used = bytearray()
        """While codes are swept, by code: whether a record stood under it."""
        self._marked_to = 0
        """Codes of slots up to here were marked."""
        self._free = array("i")
        """Codes that no record stands under, to be used again."""
        self._frozen: ref[HashIndex] | None = None
        """The last copy that changes do not reach."""
        self.era = 0
        """While it is the same, codes mean what they meant."""
        self._spellings = [Spellings() for _ in paths]
        self._heads = array("i")
        self._sizes = array("i")
        self._standing = array("i")
        self._filed = array("i")
        self._next = array("i")
        self._previous = array("i")
        self._moved = array("i")

    def freezing(self) -> Task["HashIndex"]:
        """A copy that changes do not reach, made in steps between which no record changes."""
        while self.dirty_count:  # readers would move them meanwhile
            self.refresh(NOTES_AT_ONCE)
            yield
        frozen = copy(self)
        for name in COPIED:
            setattr(frozen, name, getattr(self, name)[:])
            yield
        frozen._frozen, self._frozen = None, ref(frozen)
        return frozen

    # Keeping up to date.

    def put(self, slots: Sequence[int], columns: Sequence[Column]) -> None:
        """Records of these slots have these values now: one column for each path."""
        if not slots:
            return
        self._reserve(max(slots) + 1)
        if len(slots) >= MANY:
            self._put_many(slots, columns)
            return
        values: Iterable[Any] = columns[0] if self._single else zip(*columns, strict=True)
        INNER_LOOPS.stand(self._codes, values, slots, self._standing, self._moved, self._code_of)
        self._bound(len(slots))

    def _put_many(self, slots: Sequence[int], columns: Sequence[Column]) -> None:
        """What `put` does, a column at a time."""
        where = np.array(slots, np.int64)
        codes = self._codes_of(columns)
        standing = _view(self._standing)
        moved = where[standing[where] != codes]
        standing[where] = codes
        self._moved.frombytes(moved.astype(np.int32).tobytes())
        del standing  # before the array may grow
        self._bound(len(slots))

    def take_in(self, slots: Slots, columns: Sequence[Column], count: int) -> None:
        """Add new records with these values, and link them at once.

        Slots rise, and there are `count` of them in all.
        """
        self.stand(slots, self._codes_of(columns), count)

    def stand(self, slots: Slots, codes: Codes, count: int) -> None:
        """What `take_in` does, of records that stand under these codes of the index."""
        self._reserve(count)
        _view(self._standing)[slots] = codes
        _view(self._filed)[slots] = codes
        self._link_many(slots, codes)

    def codes(self, slots: Slots) -> Codes:
        """The codes under which these records stand."""
        return _view(self._standing)[slots]

    def codes_of(self, columns: Sequence[Column]) -> list[int]:
        """The codes of values, a column for each path, that may be new."""
        values = columns[0] if self._single and columns else zip(*columns, strict=True)
        return list(map(self._code_of, values))

    def _link_many(self, slots: Slots, codes: Codes) -> None:
        """Put records that are in no chain at the beginning of those of their codes."""
        narrow = len(self._heads) <= np.iinfo(np.uint16).max
        # What fits into 16 bits is sorted without comparing; NONE comes first in either.
        order = np.argsort((codes + 1).astype(np.uint16) if narrow else codes, kind="stable")
        order = order[np.searchsorted(codes[order], 0) :]
        slots, codes = slots[order], codes[order]
        if not len(codes):
            return
        starts = np.flatnonzero(np.diff(codes, prepend=NONE))
        ends = np.append(starts[1:], len(codes)) - 1
        heads, following, previous = _view(self._heads), _view(self._next), _view(self._previous)
        following[slots[:-1]] = slots[1:]
        previous[slots[1:]] = slots[:-1]
        # Between the last of each run and what stood in its chain before.
        before = heads[codes[ends]]
        following[slots[ends]] = before
        previous[before[before != NONE]] = slots[ends][before != NONE]
        previous[slots[starts]] = NONE
        heads[codes[starts]] = slots[starts]
        _view(self._sizes)[codes[starts]] += ends - starts + 1

    def _codes_of(self, columns: Sequence[Column]) -> Codes:
        values: Sequence[Any] = columns[0] if self._single else list(zip(*columns, strict=True))
        try:
            found = map(self._codes.get, values, repeat(UNKNOWN))
            codes = np.fromiter(found, np.int32, len(values))
        except TypeError:  # lists are among them
            codes = np.full(len(values), UNKNOWN, np.int32)
        unknown = np.flatnonzero(codes == UNKNOWN)
        codes[unknown] = [self._code_of(values[at]) for at in unknown.tolist()]
        return codes

    def drop(self, slots: Sequence[int]) -> None:
        """These records are gone."""
        self._reserve(max(slots, default=NONE) + 1)
        for slot in slots:
            if self._standing[slot] != NONE:
                self._standing[slot] = NONE
                self._moved.append(slot)

    def _reserve(self, count: int) -> None:
        more = count - len(self._standing)
        if more > 0:
            nowhere = array("i", [NONE]) * more
            for column in (self._standing, self._filed, self._next, self._previous):
                column.extend(nowhere)

    def _code_of(self, value: Any) -> int:
        """The code of a value, or tuple of values, that is new, or has a list, or a NULL."""
        fields: tuple[Value, ...] = (value,) if self._single else value
        singles: list[Single] = []
        for field in fields:
            single = _hashable(field)
            if single is None:
                return NONE
            singles.append(single)
        key = singles[0] if self._single else tuple(singles)
        code = self._codes.get(key)
        if code is None and (code := self._old.pop(key, None)) is not None:
            self._codes[key] = code  # used now, whatever else is found out
        return self._new_code(key) if code is None else code

    def _new_code(self, key: Any) -> int:
        if self._free:
            code = self._free.pop()
        else:
            code = len(self._heads)
            self._heads.append(NONE)
            self._sizes.append(0)
        self._codes[key] = code
        for spellings, field in zip(self._spellings, self._fields(key), strict=True):
            spellings.note(field)
        return code

    def _fields(self, key: Any) -> tuple[Single, ...]:
        return (key,) if self._single else key

    def _bound(self, count: int) -> None:
        """Keep notes and codes in proportion to the records, however often they change; `count`
        were put."""
        if len(self._moved) > 2 * len(self._standing) + CODES_SPARE:
            moved = np.flatnonzero(_view(self._standing) != _view(self._filed))
            self._moved = array("i", moved.astype(np.int32).tobytes())
        if self._frozen is not None:
            if self._frozen() is not None:
                return
            self._frozen = None
        if self._old:
            self._sweep(SWEPT_FACTOR * count)
        elif len(self._codes) > self._codes_max:
            self._old, self._codes = self._codes, {}
            for null in (None, ""):
                if null in self._old:
                    self._codes[null] = self._old.pop(null)
            self._used, self._marked_to = bytearray(len(self._heads)), 0

    def _sweep(self, count: int) -> None:
        """Give up some of the codes of values that no record has any more.

        First all used codes are marked. A record that gets one
        meanwhile takes it out of the old ones, so what is left there and not marked is free.
        """
        if self._marked_to < len(self._standing):
            start, self._marked_to = self._marked_to, self._marked_to + MARKED_AT_ONCE
            codes = _view(self._standing)[start : self._marked_to]
            codes = codes[(codes != NONE) & (codes < len(self._used))]
            np.frombuffer(self._used, np.bool_)[codes] = True
            return
        for _ in range(min(count, len(self._old))):
            key, code = self._old.popitem()
            if self._used[code]:
                self._codes[key] = code
                continue
            self._free.append(code)
            self.era += 1
            for spellings, field in zip(self._spellings, self._fields(key), strict=True):
                spellings.forget(field)
        if not self._old:
            self._used = bytearray()
            self._codes_max = 2 * len(self._codes) + CODES_SPARE

    # Chains.

    @property
    def dirty_count(self) -> int:
        """How many notes of moved records wait for `refresh`."""
        return len(self._moved)

    def refresh(self, limit: int | None = None) -> int:
        """Link up to `limit` moved records into their chains; returns how many were noted."""
        count = len(self._moved) if limit is None else min(limit, len(self._moved))
        if limit is None and count > len(self._standing) * NOTES_SHARE_MAX:
            self._rebuild()
            return count
        if count:
            moved = self._moved[-count:]
            del self._moved[-count:]
            INNER_LOOPS.relink(
                *(moved, self._standing, self._filed, self._heads, self._sizes),
                *(self._next, self._previous),
            )
        return count

    def _rebuild(self) -> None:
        """Make all chains afresh: what `refresh` does, for very many records at once."""
        standing = _view(self._standing)
        order = np.argsort(standing, kind="stable").astype(np.int32)
        order = order[np.searchsorted(standing[order], 0) :]
        codes = standing[order]
        starts = np.flatnonzero(np.diff(codes, prepend=NONE))
        following, previous = _view(self._next), _view(self._previous)
        following[order[:-1]] = order[1:]
        following[order[starts[1:] - 1]] = NONE
        following[order[-1:]] = NONE
        previous[order[1:]] = order[:-1]
        previous[order[starts]] = NONE
        _view(self._heads)[:] = NONE
        _view(self._heads)[codes[starts]] = order[starts]
        _view(self._sizes)[:] = np.bincount(codes, minlength=len(self._sizes))
        _view(self._filed)[:] = standing
        self._moved = array("i")

    # Lookups.

    def look_up(self, literals: Sequence[Sequence[Scalar]]) -> list[int] | None:
        """The codes of records that in each path equal one of its literals; None: too many."""
        fields = [
            set[Single]().union(*map(spellings.equal, wanted))
            for spellings, wanted in zip(self._spellings, literals, strict=True)
        ]
        if math.prod(map(len, fields)) > COMBINATIONS_MAX:
            return None
        keys: Iterable[Any] = fields[0] if self._single else product(*fields)
        return list({code for key in keys if (code := self._code(key)) != NONE})

    def _code(self, key: Any) -> int:
        code = self._codes.get(key)
        if code is None:
            code = self._old.get(key, NONE)
        # Of a frozen copy it may be a later one.
        return code if code < len(self._heads) else NONE

    def estimate(self, codes: Sequence[int]) -> int:
        """About how many records stand under these codes."""
        return sum([self._sizes[code] for code in codes])

    def is_selective(self, codes: Sequence[int]) -> bool:
        """Whether chains lead to so few records that `slots` is faster than `among` all."""
        size = len(self._standing)
        few = self.estimate(codes) <= size * CHAIN_SHARE_MAX
        return few and len(self._moved) <= size * NOTES_SHARE_MAX

    def slots(self, codes: Sequence[int]) -> Slots:
        """The records that stand under these codes, each once, in no particular order."""
        standing = _view(self._standing)
        if not self.is_selective(codes):
            return np.flatnonzero(_member(standing, codes))
        found = np.array(self._chained(codes), np.int64)
        if self._moved:
            found = np.concatenate([found, _view(self._moved)])
            found = np.unique(found[_member(standing[found], codes)])
        return found

    def _chained(self, codes: Sequence[int]) -> list[int]:
        found: list[int] = []
        following = self._next
        for code in codes:
            slot = self._heads[code]
            while slot != NONE:
                found.append(slot)
                slot = following[slot]
        return found

    def among(self, slots: Slots | None, codes: Sequence[int]) -> Mask:
        """Which of `slots`, or of all slots when None, stand under these codes."""
        standing = _view(self._standing)
        return _member(standing if slots is None else standing[slots], codes)

    def find(self, literals: Sequence[Sequence[Scalar]]) -> Slots | None:
        """The records that in each path equal one of its literals; None: too many to combine.

        Exactly those for which the conjunction of the equalities is true.
        """
        codes = self.look_up(literals)
        return None if codes is None else self.slots(codes)

    def check(self, slots: Sequence[int], columns: Sequence[Column]) -> None:
        """Assert what is always true of an index of the records in `slots`, all there are.

        `columns` are their values, one column for each path.
        """
        self._check_codes()
        self._check_chains()
        assert max(slots, default=NONE) < len(self._standing)
        values = {
            slot: tuple(map(_hashable, row))
            for slot, row in zip(slots, zip(*columns, strict=True), strict=True)
        }
        for slot, code in enumerate(self._standing):
            fields = values.get(slot, (None,))
            key = fields[0] if self._single else fields
            expected = NONE if None in fields else self._code(key)
            assert code == expected, f"slot {slot} stands under another value than its record has"

    def _check_codes(self) -> None:
        assert not self._codes.keys() & self._old.keys()
        codes = {code for code in (*self._codes.values(), *self._old.values()) if code != NONE}
        assert sorted([*codes, *self._free]) == list(range(len(self._heads)))
        assert set(self._standing) <= codes | {NONE}, "a record stands under a code of no value"

    def _check_chains(self) -> None:
        assert len(self._standing) == len(self._filed) == len(self._next) == len(self._previous)
        waiting = set(self._moved)
        for slot, (filed, standing) in enumerate(zip(self._filed, self._standing, strict=True)):
            assert filed == standing or slot in waiting
        for code, size in enumerate(self._sizes):
            chain = self._chained([code])
            assert len(chain) == len(set(chain)) == size
            assert all(self._filed[slot] == code for slot in chain)
            assert [self._previous[slot] for slot in chain] == [NONE, *chain][:size]


def _member(standing: Codes, codes: Sequence[int]) -> Mask:
    member: Mask = standing == codes[0] if len(codes) == 1 else np.isin(standing, codes)
    return member


def _hashable(value: Value) -> Single:
    """A list as a tuple; None for every kind of NULL."""
    if isinstance(value, list):
        return None if is_null(value) else tuple(value)
    return None if value == "" else value
