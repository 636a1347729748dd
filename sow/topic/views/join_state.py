"""The state of one topic of a join, as far as the join has applied its changes, without a copy.

A join applies changes in bounded steps, and the topics go on changing meanwhile. So the join's
state of a topic is not the present one but the *applied* one: changes that came and are not applied
yet are noted with the values before, and these count until the change is applied. For all other
records the table itself has the state. Notes of one record become one, from its first old state to
its newest: states in between are never seen.

Changes are applied from two dictionaries. Those that are *taken* are being applied; what comes from
then on waits for the next time. So after the last of the taken changes, the join is as all its
topics were at the moment of taking, though all of them have changed since.

The indexes by which the join finds records have the applied state, too. The consequences of a
change are not determined here.

`JoinIndex` is the index of one side of a join: records by their values in the fields of the join.
Values match as texts, spelled as in keys: 1 and 1.0 are one, and '01' another. An array stands for
its first value, as everywhere but in functions of arrays. NULL, the empty text and a missing field
are one, NULL, and match nothing; or, where a view is configured so, each other.

It exists beside `sow.indexes.hash`, which serves queries, for three reasons: that one finds *equal*
values, so that 1 matches '01'; it links what has moved when the server is idle, and a join looks up
at every change; and its records are in slots, which are reused while a join still needs their
former records. A value of one record costs its text and a place in a dictionary; of many, a place
each in another. That is counted with the memory of records.

Records of one key are in the order of their identities, whatever came and went: so a replay, which
begins with other records than the join did, has the rows of a turn in the same order.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from sow.core.keys import are_written_alike, key_text
from sow.core.paths import Path, Value
from sow.expressions.values import first
from sow.messages.base import Column
from sow.store.memory import Usage
from sow.topic.batch import Batch, Reason
from sow.topic.records import Records

JoinKey = str | tuple[str, ...]
"""The texts of one field or several; NULL is the empty text."""
NO_RECORDS: tuple[str, ...] = ()
PLACE_BYTES = 100
"""The memory of a record in an index beside the text of its key, about: 94 were measured where no
two have a key in common, 139 for two of one key, 26 for a thousand."""
SORTED_MAX = 10_000
"""Records with one key that are put in order where they are read: three milliseconds. More
are in the order in which they came."""
FORGOTTEN_AT_ONCE = 10_000
"""Records with one key that are dropped in one step: a millisecond. It may have a million."""


def join_keys(columns: Sequence[Column], joins_nulls: bool) -> list[JoinKey | None]:
    """The keys of records with these values in the fields of a join; None: it matches nothing."""
    texts = list(map(_texts, columns))
    keys: list[JoinKey | None]
    if len(texts) == 1:
        keys = list(texts[0]) if joins_nulls else [text or None for text in texts[0]]
        return keys
    rows = list(zip(*texts, strict=True))
    keys = list(rows) if joins_nulls else [None if "" in row else row for row in rows]
    return keys


def _texts(column: Column) -> Sequence[str]:
    kinds = set(map(type, column))
    if kinds == {str}:
        return column  # type: ignore[return-value]  # just checked, in the quickest way
    if kinds == {int}:
        return list(map(str, column))
    return [value if type(value) is str else _text(value) for value in column]


def _text(value: Value) -> str:
    return key_text(first(value)) or ""


class JoinIndex:
    """Identities of records by their join keys; its memory is counted in `usage` too."""

    __slots__ = ("_held", "_usage", "bytes")

    def __init__(self, usage: Usage | None = None) -> None:
        self._held: dict[JoinKey, str | dict[str, None]] = {}
        """One identity, or several."""
        self._usage = usage or Usage()
        self.bytes = 0

    def _grow(self, by_bytes: int) -> None:
        self.bytes += by_bytes
        self._usage.count(by_bytes)

    def forget(self) -> None:
        """The index is dropped: it counts no more."""
        self._grow(-self.bytes)

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: JoinKey) -> bool:
        return key in self._held

    def get(self, key: JoinKey) -> Iterable[str]:
        """The records with this key; valid until the next change of the index."""
        held = self._held.get(key)
        if held is None:
            return NO_RECORDS
        return (held,) if held.__class__ is str else in_order(held)  # type: ignore[arg-type]

    def each(self, keys: Sequence[JoinKey | None]) -> list[str | dict[str, None] | None]:
        """For each key the record that has it, or all of them, not `in_order`; valid like the
        result of `get`."""
        return list(map(self._held.get, keys))  # type: ignore[arg-type]  # None is no key

    def add(self, key: JoinKey | None, identity: str) -> None:
        """A record that is not here has this key; with None it is not added."""
        if key is None:
            return
        held = self._held.get(key)
        if held is None:
            self._held[key] = identity
            self._grow(PLACE_BYTES + _length(key))
            return
        self._grow(PLACE_BYTES)
        if isinstance(held, str):
            self._held[key] = {held: None, identity: None}
        else:
            held[identity] = None

    def discard(self, key: JoinKey | None, identity: str) -> None:
        """A record that was added with this key no longer has it."""
        if key is None:
            return
        held = self._held[key]
        if isinstance(held, str):
            del self._held[key]
            self._grow(-PLACE_BYTES - _length(key))
            return
        self._grow(-PLACE_BYTES)
        del held[identity]
        if len(held) == 1:
            self._held[key] = next(iter(held))

    def forget_some(self, count: int) -> None:
        """Drop so many entries of an index that is no longer used: keys, or records of one."""
        for _ in range(count):
            key, held = self._held.popitem()
            if isinstance(held, dict) and len(held) > FORGOTTEN_AT_ONCE:
                for _ in range(FORGOTTEN_AT_ONCE):
                    held.popitem()
                self._held[key] = held
                return

    def check(self, keys: dict[str, JoinKey | None]) -> None:
        """Assert that just these records are here, each under its key; reads all of them."""
        found = {(key, name) for key, held in self._held.items() for name in self.get(key)}
        assert all(self._held.values()), "a key without records"
        texts = sum(map(_length, self._held))
        assert self.bytes == PLACE_BYTES * len(found) + texts, "what it takes is counted wrongly"
        assert found == {(key, name) for name, key in keys.items() if key is not None}


def in_order(held: dict[str, None]) -> Iterable[str]:
    """The records of one key in their order."""
    return sorted(held) if len(held) <= SORTED_MAX else held


def _length(key: JoinKey) -> int:
    """Characters of the texts of a key."""
    return len(key) if isinstance(key, str) else sum(map(len, key))


Fields = tuple[Path, ...]
Values = tuple[Value, ...]
"""Of one record, a value for each of the paths that are read."""


RecordState = tuple[Values, int, int, int]
"""A record as it is applied: its values, then numbers of its table: its birth, the number and the
time of its last change. These two may be newer where it has changed since: then it comes again when
that change is applied. A tuple without names: one is made for each record of each row."""
STATE_VALUES: Final = 0
STATE_BORN: Final = 1
STATE_SEQ: Final = 2
STATE_TS_US: Final = 3
"""The indexes of these."""


class RecordChange(NamedTuple):
    """The change of a record, from one state to another; None: it did, or does not exist.

    `seq` and `ts_us` are of the newest change, `reason` is why the record has left, if it has.
    """

    old: RecordState | None
    new: RecordState | None
    seq: int
    ts_us: int
    reason: Reason | None


class JoinState:
    """One topic of a join.

    `wanted` are its fields that rows consist of, `joined` has the fields of each index that the
    join needs, which is counted in `usage`.
    """

    __slots__ = ("_joins_nulls", "_pending", "_places", "_taken", "indexes", "paths", "records")

    def __init__(
        self,
        records: Records,
        wanted: Sequence[Path],
        joined: Sequence[Fields],
        joins_nulls: bool,
        usage: Usage | None = None,
    ) -> None:
        self.records = records
        self.indexes = {fields: JoinIndex(usage) for fields in joined}
        self.paths = tuple(dict.fromkeys([*(path for one in joined for path in one), *wanted]))
        self._places = {path: at for at, path in enumerate(self.paths)}
        self._joins_nulls = joins_nulls
        self._pending: dict[str, RecordChange] = {}
        self._taken: dict[str, RecordChange] = {}
        records.watched.add(self.paths)

    def stop(self) -> None:
        """The join is removed: the topic need not read its fields any more, and the indexes are no
        longer counted."""
        for index in self.indexes.values():
            index.forget()
        self.records.watched.remove(self.paths)

    def __len__(self) -> int:
        """How much state it has of its records."""
        return sum(map(len, self.indexes.values())) + len(self._pending) + len(self._taken)

    def forget_some(self, count: int) -> None:
        """Drop so much of it, once it has been stopped."""
        for index in self.indexes.values():
            going = min(count, len(index))
            index.forget_some(going)
            count -= going
        for noted in (self._pending, self._taken):
            going = min(count, len(noted))
            for _ in range(going):
                noted.popitem()
            count -= going

    def place(self, path: Path) -> int:
        """The place of a field's value among those of a record."""
        return self._places[path]

    # Batches.

    def on_batch(self, batch: Batch) -> None:
        """Note a batch of its changes."""
        changes, table = batch.changes, self.records.table
        borns = table.order[changes.slots].tolist()
        newest = table.newest[changes.slots].tolist() if table.keeps_newest else changes.seqs
        stood = changes.stood or borns
        olds = self._rows_of(batch, old=True)
        news = None if changes.news is None else self._rows_of(batch, old=False)
        pending, reason = self._pending, changes.reason
        columns = changes.identities, stood, borns, olds, newest, changes.seqs, changes.ts_us
        for at, (identity, before_born, born, old, new_seq, seq, ts_us) in enumerate(
            zip(*columns, strict=True)
        ):
            before = pending.get(identity)
            if before is not None:
                was = before.old
            else:
                was = None if old is None else (old, before_born, seq, ts_us)
            now = None if news is None else (news[at] or (), born, new_seq, ts_us)
            pending[identity] = RecordChange(was, now, seq, ts_us, reason)

    def _rows_of(self, batch: Batch, old: bool) -> list[Values | None]:
        """The values of each record of a batch; None where it did not exist."""
        batch.read(self.paths, old=old)
        column = batch.old_column if old else batch.column
        rows: list[Values | None] = list(zip(*map(column, self.paths), strict=True))
        if old and None in batch.changes.olds:
            pairs = zip(rows, batch.changes.olds, strict=True)
            return [None if body is None else row for row, body in pairs]
        return rows

    @property
    def is_behind(self) -> bool:
        """Something is noted that is not applied."""
        return bool(self._pending or self._taken)

    def take(self) -> None:
        """Everything noted so far is to be applied."""
        assert not self._taken
        self._taken, self._pending = self._pending, {}

    def next_taken(self, count: int) -> dict[str, RecordChange]:
        """Up to `count` of the changes that were taken; they count as applied, except in the
        indexes, which the caller updates one by one."""
        names = list(islice(self._taken, count))
        return {name: self._taken.pop(name) for name in names}

    def arrivals(self, identities: Iterable[str]) -> dict[str, RecordChange]:
        """Those of these records that exist, as changes from nothing."""
        return {
            name: RecordChange(None, state, state[STATE_SEQ], state[STATE_TS_US], None)
            for name, state in self.states(identities).items()
        }

    # Applied state.

    def states(self, identities: Iterable[str]) -> dict[str, RecordState]:
        """These records as they are applied, those that exist."""
        found: dict[str, RecordState] = {}
        there = identities
        if self._taken or self._pending:
            there = []
            for name in identities:
                change = self._taken.get(name) or self._pending.get(name)
                if change is None:
                    there.append(name)
                elif change.old is not None:
                    found[name] = change.old
        table = self.records.table
        names = [name for name in there if name in table.slots]
        if names:
            slots = list(map(table.slots.__getitem__, names))
            where = np.array(slots, np.int64)
            bodies = [table.bodies[slot] or b"" for slot in slots]
            rows = zip(*self.records.decoder(self.paths).columns(bodies), strict=True)
            numbers = [
                column[where].tolist() for column in (table.order, table.newest, table.ts_us)
            ]
            states = zip(rows, *numbers, strict=True)
            found.update(zip(names, states, strict=True))
        return found

    def keys(self, states: dict[str, RecordState], fields: Fields) -> dict[str, JoinKey | None]:
        """The key of `fields` by which each record joins."""
        if not states:
            return {}
        columns = self._columns(states, fields)
        return dict(zip(states, join_keys(columns, self._joins_nulls), strict=True))

    def join_alike(
        self, olds: dict[str, RecordState], news: dict[str, RecordState], fields: Fields
    ) -> bool:
        """Whether the same records have the same values in these fields. Their keys may be equal
        otherwise, too; this is a quick check."""
        columns = self._columns(olds, fields), self._columns(news, fields)
        return all(map(are_written_alike, *columns))

    def _columns(self, states: dict[str, RecordState], fields: Fields) -> list[Column]:
        places = [self._places[path] for path in fields]
        return [[state[STATE_VALUES][at] for state in states.values()] for at in places]

    def check(self) -> None:
        """Assert that each index has the applied state; reads all records."""
        names = {*self.records.table.slots, *self._pending, *self._taken}
        states = self.states(names)
        for fields, index in self.indexes.items():
            index.check(self.keys(states, fields))
