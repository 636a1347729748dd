"""Indexes: what makes the queries of one topic fast, and never changes their answers.

Three kinds: the key fields, served by the table's own dictionary; hash indexes, which the
configuration names and every publish maintains; memo columns, made when a query first needs
them and brought up to date by the next. This module keeps a topic's indexes together and tells
them what happened, and knows nothing of queries: `sow.query` chooses among them.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sow.expressions import Filter
from sow.indexes.hash import HashIndex
from sow.indexes.keys import KeyIndex
from sow.indexes.memo import MemoColumn
from sow.messages.base import Column, Decoder
from sow.paths import Path
from sow.store.memory import Table

__all__ = ["HashIndex", "Indexes", "KeyIndex", "MemoColumn"]

MEMO_COLUMNS_MAX = 64
"""Columns of one topic. Each takes some 13 bytes a record, and what it notes of every change;
beyond it the one used longest ago makes room."""
CHUNK_ROWS = 8192
"""Bodies that are read in one go: enough that the loop around them costs nothing, and few enough
that their values stay in the cache."""

Slots = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Indexes:
    """The indexes of the topic kept in `table`.

    `decoder` gives a decoder of any paths. `keys` are the topic's key fields, () if it has none.
    `memos` are the fields whose columns are to exist from the start (`Index` elements).
    """

    def __init__(
        self,
        table: Table,
        decoder: Callable[[tuple[Path, ...]], Decoder],
        keys: tuple[Path, ...] = (),
        hash_indexes: Sequence[tuple[Path, ...]] = (),
        memos: Sequence[Path] = (),
    ) -> None:
        self.table = table
        self._decoder = decoder
        self.key = KeyIndex(table, keys) if keys else None
        # The key fields have their index already.
        wanted = {frozenset(paths): paths for paths in hash_indexes if set(paths) != set(keys)}
        self.hashes = [HashIndex(tuple(dict.fromkeys(paths))) for paths in wanted.values()]
        self.watched = tuple(dict.fromkeys(path for index in self.hashes for path in index.paths))
        """The fields whose values every publish must hand to `put`."""
        self._pinned = frozenset(memos)
        self._memos = {path: MemoColumn(path, decoder((path,))) for path in memos}

    @property
    def memos(self) -> tuple[Path, ...]:
        """The fields that have a memo column now."""
        return tuple(self._memos)

    # What happened to the records.

    def put(self, slots: Sequence[int], columns: Mapping[Path, Column]) -> None:
        """Records were inserted or replaced, with these values of the `watched` fields."""
        for index in self.hashes:
            index.put(slots, [columns[path] for path in index.paths])
        self.touch(slots)

    def fill(self) -> None:
        """Take in all records of the table, of which nothing was said yet."""
        paths = tuple(dict.fromkeys((*self.watched, *self._memos)))
        bodies = self.table.bodies if paths else ()
        decoder = self._decoder(paths)
        for start in range(0, len(bodies), CHUNK_ROWS):
            end = min(start + CHUNK_ROWS, len(bodies))
            slots = [slot for slot in range(start, end) if bodies[slot] is not None]
            read = decoder.columns([bodies[slot] or b"" for slot in slots])
            columns = dict(zip(paths, read, strict=True))
            for index in self.hashes:
                index.put(slots, [columns[path] for path in index.paths])
            for path, memo in self._memos.items():
                memo.put(slots, columns[path], end)
        for index in self.hashes:
            index.refresh()

    def drop(self, slots: Sequence[int]) -> None:
        """Records have left the table."""
        for index in self.hashes:
            index.drop(slots)
        self.touch(slots)

    def touch(self, slots: Sequence[int]) -> None:
        """Note the slots in all that is brought up to date later."""
        for column in self._memos.values():
            column.touch(slots)
        if self.key is not None:
            self.key.touch(slots)

    @property
    def dirty_count(self) -> int:
        """How many notes wait for `refresh`, over all indexes."""
        deferring: list[HashIndex | MemoColumn] = [*self.hashes, *self._memos.values()]
        return sum([index.dirty_count for index in deferring])

    def refresh(self, limit: int | None = None) -> int:
        """Work off up to `limit` notes, all of them when None; returns how many.

        A server calls it with 1000 or so when it is idle.
        """
        done = 0
        for index in self.hashes:
            done += index.refresh(None if limit is None else limit - done)
        for column in self._memos.values():
            done += column.refresh(self.table.bodies, None if limit is None else limit - done)
        return done

    def check(self) -> None:
        """Assert that every index says of every record what its body says; reads all of them."""
        bodies = self.table.bodies
        slots = self.table.live()
        values = dict(zip(self.watched, self.columns(self.watched, slots), strict=True))
        for index in self.hashes:
            index.check(slots.tolist(), [values[path] for path in index.paths])
        for column in self._memos.values():
            column.check(bodies)
        if self.key is not None:
            self.key.check()

    # What queries use.

    def memo(self, path: Path) -> MemoColumn:
        """The up-to-date column of a field, made now if need be: about 1 µs a record."""
        column = self._memos.pop(path, None)
        if column is None:
            self._make_room()
            column = MemoColumn(path, self._decoder((path,)))
            column.fill(self.table.bodies)
        self._memos[path] = column  # last: the most recently used
        column.refresh(self.table.bodies)
        return column

    def _make_room(self) -> None:
        evictable = [path for path in self._memos if path not in self._pinned]
        if len(self._memos) >= MEMO_COLUMNS_MAX and evictable:
            del self._memos[evictable[0]]

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

    def passing(self, condition: Filter, slots: Slots) -> Mask:
        """Which of these records match, by their bodies; a filter may read thousands of fields, so
        their values are never held for all records at once."""
        passing = np.zeros(len(slots), np.bool_)
        for start in range(0, len(slots), CHUNK_ROWS):
            chunk = slots[start : start + CHUNK_ROWS]
            columns = self.columns(condition.paths, chunk)
            passing[start : start + len(chunk)] = condition.matches(columns, len(chunk))
        return passing
