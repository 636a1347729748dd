"""A memo column: the values of one field of all records, kept as numpy columns.

Made when a query first needs the field. A publish only notes which slots it touched
(`sow.indexes.pending_rows`); the next query, or the server when idle, reads those records' bodies.
By slot there are a kind, a number (NaN unless the kind is NUMBER), whether it is an integer, and
the code of a text (-1 unless it is TEXT), so that a test is one numpy operation over numbers and
one look per distinct text. What cannot be held exactly (lists, integers that no double equals) is
OTHER: for those records the bodies decide. `sow.indexes.vector_filter` runs tests; this module only
keeps the values.

A `PerValueCache` has the texts of a column that pass a test, each text evaluated once. A test such
as LIKE is evaluated for each distinct text instead of each record, and its outcome is cached, a
byte a text. The first time that may be a million texts, so it works in steps, of as many characters
as the test has time for; texts that come later are evaluated when needed. What a test is does not
matter here.
"""

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from math import isfinite
from typing import Any, TypeVar
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from sow.core.containers import Cache
from sow.core.cooperative import Task
from sow.core.paths import Path, Scalar, Value
from sow.indexes.pending_rows import PendingRows
from sow.indexes.sorting import SortedNumbers, TextOrder
from sow.messages.base import Column, Decoder
from sow.store.columns import Mask

CHARS_AT_ONCE = 256 * 1024
"""Characters that a test of cost 1 reads in one step: at worst some 5 to 10 ns each."""

Judge = Callable[[list[str]], list[bool]]


class PerValueCache:
    """The results of `judge` for the texts of `texts_of`: a list that grows at its end, or another
    list. `cost` is how many times a character is read (`Filter.search_cost`)."""

    def __init__(self, texts_of: Callable[[], list[str]], judge: Judge, cost: int = 1) -> None:
        self._texts_of = texts_of
        self._judge = judge
        self._chars_at_once = CHARS_AT_ONCE // max(1, cost)
        self._texts = texts_of()
        self._passing = bytearray()
        self._mask = np.zeros(0, np.bool_)

    def _left(self) -> int:
        texts = self._texts_of()
        if texts is not self._texts:
            self._texts, self._passing = texts, bytearray()
        return len(texts) - len(self._passing)

    @property
    def dirty_count(self) -> int:
        """How many texts are not evaluated yet."""
        return self._left()

    def touch(self, slots: Sequence[int]) -> None:
        """Nothing: the column maintains the texts."""

    def refresh(self, limit: int | None = None) -> int:
        """Evaluate up to `limit` texts, fewer where they are long, or all; returns how many."""
        left = self._left()
        count = left if limit is None else self._within(min(left, limit))
        start = len(self._passing)
        self._passing += bytes(self._judge(self._texts[start : start + count])) if count else b""
        return count

    def _within(self, most: int) -> int:
        """How many of the next texts have no more characters than one step may read."""
        start, chars = len(self._passing), 0
        for at in range(start, start + most):
            chars += len(self._texts[at])
            if chars > self._chars_at_once:
                return max(1, at - start)
        return most

    def of_all(self) -> Mask:
        """By code, which texts pass; evaluates those that were not yet."""
        if self.refresh() or len(self._mask) != len(self._passing):
            self._mask = np.array(self._passing, np.bool_)
        return self._mask


Item = TypeVar("Item", bound=np.generic)
KINDS = ABSENT, NULL, NUMBER, TEXT, OTHER = range(5)
NO_TEXT = -1
"""The code of other values than texts."""
NOTES_AT_ONCE = 1_000
"""Notes that one step of a copy works off: a millisecond or two."""
TEXTS_SPARE = 1024
"""A small column need not be swept for every few texts that come and go."""
SWEPT_AT_ONCE = 4_096
"""Texts that one step of a sweep of unused texts visits: a millisecond. A step runs with each
thousand notes or so, so a sweep ends before as many new texts can come."""
TESTS_CACHED_MAX = 16
"""Tests whose outcome is cached for each text of the column, a byte a text: those of filters that
recur."""

EXACT_WHOLE_MAX = 2**53
"""Integers up to here are doubles too."""

Bodies = Sequence[bytes | None]


class MemoColumn:
    """The values of `path` by slot; `decoder` is one of this path alone, `bodies` are all, by slot.

    It begins with everything still to be read; how many slots that are, and how many were touched
    since, is its `dirty_count`.
    """

    def __init__(self, path: Path, decoder: Decoder, bodies: Bodies) -> None:
        self.path = path
        self._decoder = decoder
        self._bodies = bodies
        self._notes = PendingRows()
        self.kinds = np.zeros(0, np.uint8)
        self.numbers = np.zeros(0, np.float64)
        self.whole = np.zeros(0, np.bool_)
        """Which of the numbers are integers; undefined for other values."""
        self.codes = np.zeros(0, np.int32)
        self.texts: list[str] = []
        self.counts = np.zeros(len(KINDS), np.int64)
        """How many slots are of each kind; undefined for ABSENT."""
        self._code_of: dict[str, int] = {}
        self.era = 0
        """While it is the same, codes keep their meaning."""
        self._texts_max = TEXTS_SPARE
        self._sweep: Task[None] | None = None
        self._frozen: ref[MemoColumn] | None = None
        """The last copy that changes do not reach."""
        self._per_value: Cache[object, PerValueCache] | None = None
        self.text_order = TextOrder(self.texts)
        self.sorted: SortedNumbers | None = None
        """The order of its numbers, once it was needed."""

    def freezing(self, bodies: Bodies) -> Task["MemoColumn"]:
        """A copy for these bodies, made in steps between which no record changes. What queries add
        to a column, such as orders, it has to make for itself. The texts, which may be a million,
        are those of the column: it only adds some while the copy is there."""
        while self.dirty_count:  # readers would read them meanwhile
            self.refresh(NOTES_AT_ONCE)
            yield
        frozen = copy(self)
        frozen._bodies, frozen._notes = bodies, self._notes.copy()
        for name in ("kinds", "numbers", "whole", "codes", "counts"):
            setattr(frozen, name, getattr(self, name).copy())
            yield
        frozen.text_order = TextOrder(frozen.texts)
        frozen._sweep = frozen._per_value = frozen.sorted = frozen._frozen = None
        self._frozen = ref(frozen)
        return frozen

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def dirty_count(self) -> int:
        """How many slots wait to be read; one may count more than once."""
        return self._notes.count(len(self._bodies))

    def touch(self, slots: Sequence[int]) -> None:
        """The records in these slots are new, changed or gone."""
        self._notes.touch(slots)

    def put(self, slots: NDArray[np.int64], values: Column, count: int) -> None:
        """Add records without values yet; there are `count` slots."""
        self._reserve(count)
        self._store(slots, values)
        self.counts += np.bincount(self.kinds[slots], minlength=len(KINDS))
        self._notes.pass_over(count)

    def take_in(
        self,
        slots: NDArray[np.int64],
        kinds: NDArray[np.uint8],
        numbers: NDArray[np.float64],
        whole: Mask,
        codes: NDArray[np.int32],
        count: int,
    ) -> None:
        """`put` for records whose columns are known."""
        self._reserve(count)
        self.kinds[slots], self.numbers[slots] = kinds, numbers
        self.whole[slots], self.codes[slots] = whole, codes
        self.counts += np.bincount(kinds, minlength=len(KINDS))
        self._notes.pass_over(count)

    def pass_over(self, count: int) -> None:
        """There are `count` slots; only `put` fills them."""
        self._reserve(count)
        self._notes.pass_over(count)

    def codes_of(self, texts: Sequence[str]) -> list[int]:
        """The codes of texts that may be new."""
        return list(map(self._code, texts))

    def has_noted(self, start: int, stop: int) -> bool:
        """Whether a slot from `start` up to `stop` waits to be read; True also where finding out
        would take long."""
        return self._notes.may_have(start, stop)

    def refresh(self, limit: int | None = None) -> int:
        """Read up to `limit` slots that wait for it; returns how many."""
        self._reserve(len(self._bodies))
        done = self._notes.work_off(len(self._bodies), limit, self._read)
        if done and self._notes.is_filled(len(self._bodies)):
            self._bound()
        return done

    def _bound(self) -> None:
        """Keep the texts in proportion to used ones, a step at a time."""
        if self._frozen is not None and self._frozen() is not None:
            return
        if self._sweep is None and len(self.texts) > self._texts_max:
            self._sweep = self._sweeping()
        if self._sweep is not None and next(self._sweep, self) is self:
            self._sweep = None

    def check(self) -> None:
        """Assert that the column agrees with all records that are not noted.

        Works by reading them again.
        """
        counts = np.bincount(self.kinds, minlength=len(KINDS))
        assert self.counts[NULL:].tolist() == counts[NULL:].tolist(), "kinds are counted wrongly"
        assert [self._code_of[text] for text in self.texts] == list(range(len(self.texts)))
        fresh = MemoColumn(self.path, self._decoder, self._bodies)
        fresh.refresh()
        if self.sorted is not None:
            self.sorted.check(self.numbers)
        noted = self._notes.slots(len(self._bodies))
        for slot in range(len(self._bodies)):
            if slot not in noted:
                assert self._value(slot) == fresh._value(slot), f"slot {slot} has another value"

    def values(self, slots: NDArray[np.int64]) -> list[Scalar]:
        """The values of these records, the same as in their bodies; None for OTHER."""
        kinds = self.kinds[slots]
        whole = (kinds == NUMBER) & self.whole[slots]
        parts: list[tuple[Mask, list[Scalar]]] = [
            (whole, list(map(int, self.numbers[slots[whole]].tolist()))),
            ((double := (kinds == NUMBER) & ~whole), self.numbers[slots[double]].tolist()),
            ((text := kinds == TEXT), [self.texts[at] for at in self.codes[slots[text]].tolist()]),
        ]
        values: list[Scalar] = [None] * len(slots)
        for where, those in parts:
            if len(those) == len(slots):
                return those
            for at, value in zip(np.flatnonzero(where).tolist(), those, strict=True):
                values[at] = value
        return values

    def _value(self, slot: int) -> tuple[int, str]:
        """The value of a record, for comparison."""
        kind = int(self.kinds[slot]) if slot < len(self.kinds) else ABSENT
        return kind, repr(self.values(np.array([slot]))[0]) if kind else ""

    def _reserve(self, count: int) -> None:
        more = count - len(self.kinds)
        if more > 0:
            more = max(more, len(self.kinds) // 2)
            self.kinds = _longer(self.kinds, more, ABSENT)
            self.numbers = _longer(self.numbers, more, np.nan)
            self.whole = _longer(self.whole, more, False)
            self.codes = _longer(self.codes, more, NO_TEXT)

    def _read(self, slots: list[int]) -> None:
        bodies = self._bodies
        where = np.array(slots, np.int64)
        before = self.numbers[where]
        self.counts -= np.bincount(self.kinds[where], minlength=len(KINDS))
        self.kinds[where] = ABSENT
        self.numbers[where] = np.nan
        self.codes[where] = NO_TEXT
        found = [(slot, body) for slot in slots if (body := bodies[slot]) is not None]
        if found:
            held = where
            if len(found) < len(slots):
                held = np.array([slot for slot, _ in found], np.int64)
            self._store(held, self._values(held, [body for _, body in found]))
        self.counts += np.bincount(self.kinds[where], minlength=len(KINDS))
        if self.sorted is not None:
            now = self.numbers[where]
            same = (before == now) | (np.isnan(before) & np.isnan(now))
            self.sorted.moved(where[~same], self.numbers)

    def _values(self, _slots: NDArray[np.int64], bodies: list[bytes]) -> Column:
        """The values of the records in these slots, which have these bodies."""
        return self._decoder.columns(bodies)[0]

    @property
    def is_numeric(self) -> bool:
        """Whether it holds nothing but numbers and NULLs."""
        return not self.counts[TEXT] and not self.counts[OTHER]

    def in_order(self) -> SortedNumbers:
        """The order of its numbers, which it keeps from now on."""
        if self.sorted is None:
            self.sorted = SortedNumbers(self.numbers)
        return self.sorted

    def forget_unused(self) -> None:
        """Drop the order of its numbers if it was not used for long."""
        if self.sorted is not None and self.sorted.is_unused:
            self.sorted = None

    def _store(self, where: NDArray[np.int64], values: Column) -> None:
        types = set(map(type, values))
        if types == {float} and isfinite(sum(values)):  # type: ignore[arg-type]
            self.kinds[where] = NUMBER
            self.numbers[where] = values
            self.whole[where] = False
            return
        if types == {int} and min(values) >= -EXACT_WHOLE_MAX and max(values) <= EXACT_WHOLE_MAX:  # type: ignore[type-var, operator]
            self.kinds[where] = NUMBER
            self.numbers[where] = values
            self.whole[where] = True
            return
        if types == {str} and "" not in values:
            self._store_texts(where, values)
            return
        kinds = np.array([_kind(value) for value in values], np.uint8)
        self.kinds[where] = kinds
        numbers = np.flatnonzero(kinds == NUMBER)
        self.numbers[where[numbers]] = [float(values[at]) for at in numbers]  # type: ignore[arg-type]
        self.whole[where[numbers]] = [not isinstance(values[at], float) for at in numbers]
        texts = np.flatnonzero(kinds == TEXT)
        self.codes[where[texts]] = [self._code(values[at]) for at in texts]  # type: ignore[arg-type]

    def _store_texts(self, where: NDArray[np.int64], values: Sequence[Any]) -> None:
        """Texts, or keys in their place."""
        self.kinds[where] = TEXT
        self.codes[where] = [self._code(value) for value in values]

    def _code(self, text: str) -> int:
        code = self._code_of.get(text)
        if code is None:
            code = self._code_of[text] = len(self.texts)
            self.texts.append(text)
        return code

    def _sweeping(self) -> Task[None]:
        """Drop the codes of unused texts: new ones are built beside them, and replace them in one
        step."""
        # One more place, for the code -1 of no text.
        marked = np.zeros(len(self.texts) + 1, np.bool_)
        marked[self.codes] = True
        used = np.flatnonzero(marked[:-1])
        self._texts_max = 2 * len(used) + TEXTS_SPARE
        if len(used) == len(self.texts):
            return
        yield
        texts: list[str] = []
        code_of: dict[str, int] = {}
        for start in range(0, len(used), SWEPT_AT_ONCE):
            some = [self.texts[code] for code in used[start : start + SWEPT_AT_ONCE].tolist()]
            code_of.update(zip(some, range(start, start + len(some)), strict=True))
            texts += some
            yield
        old, old_code_of = self.texts, self._code_of
        self.texts, self._code_of = texts, code_of
        self._renumber(used, old)
        self.era += 1
        self.text_order = TextOrder(self.texts)
        for start in range(0, len(old), SWEPT_AT_ONCE):
            yield
            # Freeing a long list also takes long; a query may still use it.
            for code in range(start, min(start + SWEPT_AT_ONCE, len(old))):
                del old_code_of[old[code]]
                old[code] = ""

    def _renumber(self, used: NDArray[np.int64], old: Sequence[str]) -> None:
        """Give records the new codes of the texts that were `used` among the old ones, or add codes
        for texts that came into use since."""
        renumbered = np.full(len(old) + 1, NO_TEXT, np.int32)  # the last is for NO_TEXT
        renumbered[used] = np.arange(len(used))
        codes = renumbered[self.codes]
        since = np.flatnonzero((codes == NO_TEXT) & (self.codes != NO_TEXT))
        codes[since] = [self._code(old[code]) for code in self.codes[since].tolist()]
        self.codes = codes

    def text_code(self, text: str) -> int | None:
        """The code of a text, or None if no record has had it."""
        return self._code_of.get(text)

    def per_value_cache(self, test: object, judge: Judge, cost: int = 1) -> PerValueCache:
        """Which texts pass a test, cached under `test`; `cost` is that of `PerValueCache`."""
        if self._per_value is None:
            self._per_value = Cache(TESTS_CACHED_MAX)
        found = self._per_value.get(test)
        if found is None:
            found = PerValueCache(partial(_texts_of, ref(self)), judge, cost)
            self._per_value.keep(test, found, 1)
        return found


def _texts_of(column: "ref[MemoColumn]") -> list[str]:
    """Without a reference cycle: an unused column is freed at once."""
    made = column()
    return [] if made is None else made.texts


def _longer(column: NDArray[Item], more: int, filler: float) -> NDArray[Item]:
    """A column with `more` places; each is written once, since it may be a million."""
    longer = np.empty(len(column) + more, column.dtype)
    longer[: len(column)] = column
    longer[len(column) :] = filler
    return longer


def _kind(value: Value) -> int:
    match value:
        case None | "":
            return NULL
        case str():
            return TEXT
        case float():
            return NUMBER if isfinite(value) else OTHER
        case int():
            return NUMBER if _is_double(value) else OTHER
    return OTHER


def _is_double(value: int) -> bool:
    try:
        return float(value) == value
    except OverflowError:
        return False
