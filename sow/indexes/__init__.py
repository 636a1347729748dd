"""Indexes: what makes the queries of one topic fast, and never changes their answers.

Three kinds: the key fields, served by the table's own dictionary; hash indexes, which the
configuration names and every publish maintains; memo columns, made when a query first needs them
and refreshed by the next. This module keeps a topic's indexes together and passes changes to them,
and knows nothing of queries: `sow.query` chooses among them. An index of a single query receives
changes too, for as long as it is held (`hold`).

What one query computes: a `ConditionCache` is for conditions that cannot be evaluated for all
records in one step: they calculate, or no column can answer them, and each record's body has to be
read. A query sets the records it wants to know of, and evaluates them in steps. A record that
changes meanwhile is forgotten, so that cached results are always true. An order by ``/qty * /px``
needs a value of each record that the query has found, and of no other: a `ComputedColumn` reads the
wanted records only, and is otherwise a memo column. A memo column cannot rank numbers beside texts,
lists, or integers that no double equals; to order by such a field a query makes a column of
`SortKeys`: each value's sort key, each distinct one once, as a memo column has texts.
"""

from collections.abc import Callable, Sequence, Set
from copy import copy
from math import ceil

import numpy as np

from sow.core.cooperative import Task
from sow.core.paths import Path
from sow.expressions import Filter, MessageColumns, OrderTerm
from sow.indexes.column_cache import Bodies, MemoColumn
from sow.indexes.equal_values import KeyIndex, SowKeyIndex
from sow.indexes.field_presence import FieldPresence
from sow.indexes.hash import HashIndex
from sow.indexes.pending_rows import CHUNK_ROWS, Deferred, parts_cost
from sow.indexes.sorting import SortedNumbers
from sow.indexes.stored_values import StoredValues, ValuesWriter
from sow.messages.base import Column, Decoder
from sow.store.columns import Mask, Slots
from sow.store.memory import Table
from sow.store.protocols import Slice


class ConditionCache:
    """By slot, whether a condition is true; `read` evaluates it for some slots.

    `cost` is the cost of a slot, as a multiple of reading one field of a body: it scales how many
    slots are evaluated at a time.
    """

    def __init__(self, read: Callable[[Slots], Mask], cost: float = 1) -> None:
        self._read = read
        self._cost = cost
        self._known = np.zeros(0, np.bool_)
        self._true = np.zeros(0, np.bool_)
        self._wanted = np.zeros(0, np.int64)

    def touch(self, slots: Sequence[int]) -> None:
        """The records in these slots are new, changed or gone."""
        self._known[[slot for slot in slots if slot < len(self._known)]] = False

    def want(self, slots: Slots) -> None:
        """The records of the next `of`, after `refresh`."""
        more = int(slots.max(initial=-1)) + 1 - len(self._known)
        if more > 0:
            self._known = np.concatenate([self._known, np.zeros(more, np.bool_)])
            self._true = np.concatenate([self._true, np.zeros(more, np.bool_)])
        self._wanted = slots[~self._known[slots]]

    @property
    def dirty_count(self) -> int:
        """The cost of the wanted records that are not evaluated yet, in notes."""
        return ceil(len(self._wanted) * self._cost)

    def refresh(self, limit: int | None = None) -> int:
        """Evaluate wanted records: all, or as many as cost what `limit` notes do."""
        count = len(self._wanted) if limit is None else max(1, int(limit / self._cost))
        slots, self._wanted = self._wanted[:count], self._wanted[count:]
        for start in range(0, len(slots), CHUNK_ROWS):
            chunk = slots[start : start + CHUNK_ROWS]
            self._true[chunk] = self._read(chunk)
            self._known[chunk] = True
        return ceil(len(slots) * self._cost)

    def of(self, slots: Slots) -> Mask:
        """For which of these records, all wanted and evaluated, the condition is true."""
        mask: Mask = self._true[slots]
        return mask


class ComputedColumn(MemoColumn):
    """The values of `term` by slot, or with `as_keys` their sort keys; `decoder` reads its paths,
    and `messages` gives the other attributes of the records in some slots."""

    def __init__(
        self,
        term: OrderTerm,
        decoder: Decoder,
        bodies: Bodies,
        messages: Callable[[Slots], MessageColumns],
        as_keys: bool = False,
    ) -> None:
        super().__init__(term.path or Path(()), decoder, bodies)
        self._term = term
        self._messages = messages
        self._key = term.key if as_keys else None
        self._cost = 1 + parts_cost(term.value)
        self._known = np.zeros(0, np.bool_)
        self._wanted: Slots = np.zeros(0, np.int64)

    def touch(self, slots: Sequence[int]) -> None:
        """The records in these slots are new, changed or gone."""
        self._known[[slot for slot in slots if slot < len(self._known)]] = False

    def want(self, slots: Slots) -> None:
        """The records that the query needs next, after `refresh`."""
        self._reserve(len(self._bodies))
        more = len(self.kinds) - len(self._known)
        if more > 0:
            self._known = np.concatenate([self._known, np.zeros(more, np.bool_)])
        self._wanted = slots[~self._known[slots]]

    @property
    def dirty_count(self) -> int:
        """How much there is to read of wanted records, in notes."""
        return len(self._wanted) * self._cost

    def refresh(self, limit: int | None = None) -> int:
        """Read wanted records: all, or as many as cost what `limit` notes do."""
        count = len(self._wanted) if limit is None else max(1, limit // self._cost)
        slots, self._wanted = self._wanted[:count], self._wanted[count:]
        for start in range(0, len(slots), CHUNK_ROWS):
            chunk = slots[start : start + CHUNK_ROWS]
            self._read(chunk.tolist())
            self._known[chunk] = True
        return len(slots) * self._cost

    def _values(self, slots: Slots, bodies: list[bytes]) -> Column:
        columns = self._decoder.columns(bodies) if self._term.paths else []
        if self._term.traits:
            columns = [*columns, *self._messages(slots).columns(self._term.traits)]
        return self._term.calculate(columns, len(bodies))

    def _store(self, where: Slots, values: Column) -> None:
        if self._key is None:
            super()._store(where, values)
        else:
            self._store_texts(where, list(map(self._key, values)))


class SortKeys(MemoColumn):
    """The sort keys of `term` by slot, in the place of texts; `decoder` reads its path alone."""

    def __init__(self, term: OrderTerm, decoder: Decoder, bodies: Bodies) -> None:
        super().__init__(term.path or Path(()), decoder, bodies)
        self._key = term.key

    def _store(self, where: Slots, values: Column) -> None:
        self._store_texts(where, list(map(self._key, values)))


__all__ = [
    "ComputedColumn",
    "ConditionCache",
    "Deferred",
    "HashIndex",
    "Indexes",
    "KeyIndex",
    "MemoColumn",
    "SortedNumbers",
]

MEMO_COLUMNS_MAX = 64
"""Columns of one topic. Each takes some 14 bytes a record, and notes every change; beyond it the
least recently used one is dropped."""
STEP_NOTES_MAX = 1000
"""Notes that one step works off: about a millisecond."""
STEP_BYTES_MAX = 512 << 10
"""Bytes of bodies that one step reads, on average: large records take longer."""
FROZEN_NOTES_MAX = 20_000
"""Notes of a column that are worked off to copy it: twenty milliseconds."""
STEP_ROWS = 250
"""Records that one step adds to hash indexes: some three microseconds each."""

NO_MEMOS: dict[Path, MemoColumn] = {}
"""Shared by all indexes without columns, and never added to."""
NONE_HIDDEN: Set[int] = frozenset()
"""Shared by all of topics that are no queues."""


class Indexes:
    """The indexes of the topic kept in `table`.

    `decoder` gives a decoder of any paths. `keys` are the topic's key fields, () if it has none.
    `memos` are the fields whose columns are to exist from the start (`Index` elements). `name` is
    the topic's.
    """

    __slots__ = (
        "_decoder", "_held", "_key", "_keys", "_listeners", "_memos", "_pinned", "_sow_keys",
        "_stored", "hashes", "hidden", "name", "presence", "table", "watched",
    )  # fmt: skip

    def __init__(
        self,
        table: Table,
        decoder: Callable[[tuple[Path, ...]], Decoder],
        keys: tuple[Path, ...] = (),
        hash_indexes: Sequence[tuple[Path, ...]] = (),
        memos: Sequence[Path] = (),
        name: str = "",
    ) -> None:
        self.table = table
        self.name = name
        self._decoder = decoder
        self._keys = keys
        self._key: KeyIndex | None = None
        self._sow_keys: SowKeyIndex | None = None
        # The key fields have their index already.
        wanted = {frozenset(paths): paths for paths in hash_indexes if set(paths) != set(keys)}
        self.hashes = tuple(HashIndex(tuple(dict.fromkeys(paths))) for paths in wanted.values())
        self.watched = tuple(dict.fromkeys(path for index in self.hashes for path in index.paths))
        """The fields whose values `put` reads at every publish."""
        self.hidden: Set[int] = NONE_HIDDEN
        """Slots that queries pass over: messages of a queue that are leased."""
        self._pinned = tuple(memos)
        self._stored: StoredValues | None = None
        """Index contents of a checkpoint, until `fill` has used them."""
        self._memos = NO_MEMOS
        self.presence: FieldPresence | None = None
        """What is known of the fields that records have, once somebody has looked for one."""
        self._held: tuple[Deferred, ...] = ()
        self._listeners: tuple[Deferred, ...] | None = ()
        """What changes are noted in; None: to be listed at the next change, as queries hold and
        release what they need more often than that."""
        for path in memos:
            self.memo(path)

    def freezing(self, table: Table) -> Task["Indexes"]:
        """A copy for a frozen copy of the table, made in steps between which no record changes;
        without columns that have still much to read."""
        frozen = copy(self)
        frozen.table, frozen._sow_keys, frozen._stored = table, None, None
        frozen._held, frozen._listeners, frozen.presence = (), None, None
        hashes: list[HashIndex] = []
        for index in self.hashes:
            hashes.append((yield from index.freezing()))
        frozen.hashes, frozen._memos = tuple(hashes), {}
        for path, memo in list(self._memos.items()):
            if memo.dirty_count <= FROZEN_NOTES_MAX:
                frozen._memos[path] = yield from memo.freezing(table.bodies)
        frozen._key = self._key and self._key.frozen(table)
        return frozen

    def parts(self) -> list[object]:
        """What it consists of: to free all of that at once takes long."""
        return [*self.hashes, *self._memos.values()]

    @property
    def memos(self) -> tuple[Path, ...]:
        """The fields that have a memo column now."""
        return tuple(self._memos)

    @property
    def key(self) -> KeyIndex | None:
        """The index of the key fields, made on first use; None without key fields."""
        if self._key is None and self._keys:
            self._key = KeyIndex(self.table, self._keys)
        return self._key

    @property
    def sow_keys(self) -> SowKeyIndex:
        """The index of SowKeys, made on first use."""
        if self._sow_keys is None:
            self._sow_keys = SowKeyIndex(self.table)
        return self._sow_keys

    # Changes of records.

    def put(self, slots: Sequence[int], column: Callable[[Path], Column]) -> None:
        """Records were inserted or replaced; `column` gives their values of a `watched` field."""
        for index in self.hashes:
            index.put(slots, list(map(column, index.paths)))
        self.touch(slots)

    def fill(self) -> Task[None]:
        """Add all records of the table, without any `put` before; nothing may change between two
        steps."""
        if not self.watched and not self._memos:
            return
        bodies = self.table.bodies
        held = np.zeros(len(bodies), np.bool_)
        held[self.table.occupied()] = True
        stored, self._stored = self._stored, None
        if stored is not None:
            for slots in stored.taking(held, self.table.seqs):
                held[slots] = False
                yield
        for memo in self._memos.values():
            memo.pass_over(len(bodies))
        paths = tuple(dict.fromkeys((*self.watched, *self._memos)))
        decoder, unread = self._decoder(paths), np.flatnonzero(held)
        for start in range(0, len(unread), CHUNK_ROWS):
            slots = unread[start : start + CHUNK_ROWS]
            read = decoder.columns([bodies[slot] or b"" for slot in slots.tolist()])
            columns = dict(zip(paths, read, strict=True))
            for index in self.hashes:
                index.take_in(slots, [columns[path] for path in index.paths], len(bodies))
            for path, memo in self._memos.items():
                memo.put(slots, columns[path], len(bodies))
            yield

    def restored(self, start: int, part: Slice, binding: str) -> None:
        """A part of a checkpoint, for a topic of this `binding`, is in the slots from `start` on;
        `fill` uses its index contents."""
        if self._stored is None:
            self._stored = StoredValues(binding, self.hashes, self._pinned_columns())
        self._stored.add(start, part.seqs, part.values)

    def writer(self, binding: str) -> ValuesWriter:
        """Makes the parts of one checkpoint of a topic of this `binding`."""
        return ValuesWriter(binding, self.hashes, self._pinned_columns(), self.columns)

    def refresh_columns(self) -> None:
        """Work off some notes of the configured columns, for a checkpoint."""
        for column in self._pinned_columns():
            column.refresh(self.step_notes)

    def _pinned_columns(self) -> list[MemoColumn]:
        return [self._memos[path] for path in dict.fromkeys(self._pinned)]

    @property
    def definition(self) -> object:
        """The indexed paths, as JSON: in their parsed form, since different paths may be written
        the same."""
        return [[index.paths for index in self.hashes], list(dict.fromkeys(self._pinned))]

    def filling(self) -> Task[None]:
        """`fill` in steps, of a table that changes meanwhile: `put` and `drop` have to report
        changes from the first step on."""
        bodies, decoder = self.table.bodies, self._decoder(self.watched)
        start = 0
        while self.hashes and start < len(bodies):
            places = range(start, min(start + STEP_ROWS, len(bodies)))
            slots = [slot for slot in places if bodies[slot] is not None]
            read = decoder.columns([bodies[slot] or b"" for slot in slots])
            columns = dict(zip(self.watched, read, strict=True))
            for index in self.hashes:
                index.put(slots, [columns[path] for path in index.paths])
                index.refresh()
            start = places.stop
            yield
        for column in list(self._memos.values()):
            while column.dirty_count > self.step_notes:
                column.refresh(self.step_notes)
                yield

    def drop(self, slots: Sequence[int]) -> None:
        """Records have left the table."""
        for index in self.hashes:
            index.drop(slots)
        self.touch(slots)

    def touch(self, slots: Sequence[int]) -> None:
        """Note the slots in all indexes that are refreshed later."""
        if self._listeners is None:
            self._listeners = tuple(dict.fromkeys([*self._memos.values(), *self._held]))
        for index in self._listeners:
            index.touch(slots)
        if self._key is not None:
            self._key.touch(slots)

    def hold(self, index: Deferred) -> None:
        """Pass changes to `index` until it is released, and do not drop it until then."""
        self._held += (index,)
        self._listeners = None

    def release(self, indexes: Sequence[Deferred]) -> None:
        """Undo one `hold` of each."""
        held = list(self._held)
        for index in indexes:
            held.remove(index)
        self._held = tuple(held)
        self._listeners = None

    @property
    def step_notes(self) -> int:
        """How many notes may be worked off in one step of a millisecond or so."""
        mean = self.table.bytes // (len(self.table) or 1) or 1
        return max(1, min(STEP_NOTES_MAX, STEP_BYTES_MAX // mean))

    @property
    def dirty_count(self) -> int:
        """How many notes wait for `refresh`, over all indexes."""
        return sum([index.dirty_count for index in self._deferring()])

    def _deferring(self) -> list[HashIndex | MemoColumn | SortedNumbers]:
        columns = self._memos.values()
        orders = [column.sorted for column in columns if column.sorted is not None]
        return [*self.hashes, *columns, *orders]

    def refresh(self, limit: int | None = None) -> int:
        """Work off up to `limit` notes, all of them when None; returns how many.

        A server calls it with 1000 or so when it is idle.
        """
        done = 0
        for index in self._deferring():
            done += index.refresh(None if limit is None else max(0, limit - done))
        for column in self._memos.values():
            column.forget_unused()
        return done

    def check(self) -> None:
        """Assert that every index agrees with the body of every record; reads all of them."""
        if self.hashes:
            slots = self.table.live()
            values = dict(zip(self.watched, self.columns(self.watched, slots), strict=True))
            for index in self.hashes:
                index.check(slots.tolist(), [values[path] for path in index.paths])
        for column in self._memos.values():
            column.check()
        if self._key is not None:
            self._key.check()

    # What queries use.

    def hide(self, slots: Set[int]) -> None:
        """From now on queries pass over these slots, as they are at each moment."""
        self.hidden = slots

    def fields(self) -> FieldPresence:
        """What is known of the fields that records have, kept from now on."""
        if self.presence is None:
            self.presence = FieldPresence(self.table)
        return self.presence

    def memo(self, path: Path) -> MemoColumn:
        """The column of a field, made if necessary; it may have much to read yet."""
        column = self._memos.pop(path, None)
        if column is None:
            self._make_room()
            column = MemoColumn(path, self._decoder((path,)), self.table.bodies)
            if self._memos is NO_MEMOS:
                self._memos = {}
            self._listeners = None
        self._memos[path] = column  # last: the most recently used
        return column

    def _make_room(self) -> None:
        """Drop the least recently used columns, except configured and held ones."""
        for path, column in list(self._memos.items()):
            if len(self._memos) < MEMO_COLUMNS_MAX:
                break
            if path not in self._pinned and column not in self._held:
                del self._memos[path]

    def has_memo(self, path: Path, stale_max: int | None = None) -> bool:
        """Whether a field has a column, with no more than `stale_max` notes waiting."""
        column = self._memos.get(path)
        return column is not None and (stale_max is None or column.dirty_count <= stale_max)

    def columns(self, paths: tuple[Path, ...], slots: Slots) -> list[Column]:
        """Values of fields, one column for each path, read from the bodies of `slots`."""
        bodies, decoder = self.table.bodies, self._decoder(paths)
        columns: list[Column] = [[] for _ in paths]
        for start in range(0, len(slots), CHUNK_ROWS):
            chunk = slots[start : start + CHUNK_ROWS].tolist()
            read = decoder.columns([bodies[slot] or b"" for slot in chunk])
            for column, more in zip(columns, read, strict=True):
                column.extend(more)
        return columns

    def condition_cache(self, condition: Filter) -> ConditionCache:
        """Evaluates a condition by bodies, for a query that holds it."""

        def read(slots: Slots) -> Mask:
            # Some may have been removed since `want`.
            bodies = self.table.bodies
            mask = np.array([bodies[slot] is not None for slot in slots.tolist()], np.bool_)
            mask[mask] = self.passing(condition, slots[mask])
            return mask

        return ConditionCache(read, max(1, len(condition.paths)) + parts_cost(condition.expression))

    def sort_keys(self, term: OrderTerm) -> SortKeys:
        """Sort keys of a term, for values of any type, for a query that holds it."""
        return SortKeys(term, self._decoder(term.paths), self.table.bodies)

    def computed_column(self, term: OrderTerm, as_keys: bool = False) -> ComputedColumn:
        """The values of a term, or its sort keys, of the records that the query wants; for a query
        that holds it."""
        decoder = self._decoder(term.paths)
        return ComputedColumn(term, decoder, self.table.bodies, self.messages, as_keys)

    def passing(self, condition: Filter, slots: Slots) -> Mask:
        """Which of these records match, by their bodies; a filter may read thousands of fields, so
        their values are never held for all records at once."""
        passing = np.zeros(len(slots), np.bool_)
        for start in range(0, len(slots), CHUNK_ROWS):
            chunk = slots[start : start + CHUNK_ROWS]
            columns = self.columns(condition.paths, chunk) if condition.paths else []
            if condition.traits:
                columns += self.messages(chunk).columns(condition.traits)
            passing[start : start + len(chunk)] = condition.matches(columns, len(chunk))
        return passing

    def messages(self, slots: Slots) -> MessageColumns:
        """The records in these slots, for expressions that need more than fields."""
        table, places = self.table, slots.tolist()
        identities = [table.identities[slot] or "" for slot in places]
        return MessageColumns(
            self.name,
            [table.bodies[slot] for slot in places],
            lambda: table.sow_keys(places, identities),
            None,  # a record of a query has no bookmark, as in AMPS
            table.ts_us[slots].tolist(),
        )
