"""The propagation of changes through a join: which joined rows a change concerns.

Topics form a tree (`sow.core.join_tree`), and a row is a tuple of identities, one of each topic,
None where nothing matches. The rows of the topics up to one are extended by the next topic by
looking up what matches each of them:

    orders      quotes             ratings                (orders left quotes left ratings)
    (o1)   ──>  (o1, ACME)   ──>   (o1, ACME, A+)         made by all three
    (o2)   ──>  (o2, None)   ──>   (o2, None, None)       nothing matches o2

No row is kept. A change of a topic concerns the rows up to it that have the record, found by
following fields up the tree and down again; these flow on through the topics behind it. Where a
record is the first or the last one that matches others, the rows that these make without it are
removed, or replace it: removals flow first. Changes are applied one after the other, topic by
topic, which is the rule for products, (A + a)(B + b) = AB + aB + (A + a)b: two versions of a topic
are never needed.

One change may concern very many rows, so they flow on demand. Where many are scanned without a
result, signs flow in their place, so that the caller can pause.

The most common case is that records of the first topic change and match as before, a few rows each:
then the same rows have them, nothing comes or goes, and all rows are found at once, as columns.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import TypeVar

from sow.core.join_tree import JoinLevel
from sow.core.paths import parse_path
from sow.topic.views.join_state import (
    STATE_BORN,
    Fields,
    JoinIndex,
    JoinKey,
    JoinState,
    RecordChange,
    in_order,
)

JoinedRow = tuple[str | None, ...]
"""Identities of records, one of each topic up to some level."""
Flowing = tuple[int, JoinedRow]
"""The change of a row, or one of two signs, which have none."""
ENTERS, STAYS, LEAVES, REPLACED = 1, 0, -1, -2
"""A row comes; stays with other values; goes; goes since another one replaces it."""
NO_ROW: Flowing = (2, ())
"""A row was scanned without a result."""
NEXT: Flowing = (3, ())
"""What follows results from the next change."""
FETCHED_AT_ONCE = 250
"""Records that are read together to find their matches: as many as a step has rows."""

Item = TypeVar("Item", bound=Hashable)
Keys = dict[str, JoinKey | None]


class ChangedKeys:
    """The keys by which changed records of a topic joined, and now join, for each of its
    indexes."""

    def __init__(self, topic: JoinState, changes: dict[str, RecordChange]) -> None:
        self.topic = topic
        self.changes = changes
        olds = {name: one.old for name, one in changes.items() if one.old is not None}
        news = {name: one.new for name, one in changes.items() if one.new is not None}
        self.olds: dict[Fields, Keys] = {}
        self.news: dict[Fields, Keys] = {}
        staying = {
            name for name in olds.keys() & news if olds[name][STATE_BORN] == news[name][STATE_BORN]
        }
        for fields in topic.indexes:
            keys = self.news[fields] = topic.keys(news, fields)
            if len(staying) == len(changes) and topic.join_alike(olds, news, fields):
                self.olds[fields] = keys
                continue
            before = self.olds[fields] = topic.keys(olds, fields)
            staying = {name for name in staying if before[name] == keys[name]}
        self.staying = staying
        """Those that exist before and after, with the same keys: the same rows have them."""

    @property
    def all_stay(self) -> bool:
        """Whether this holds for all of the records."""
        return len(self.staying) == len(self.changes)

    def take_out(self, name: str) -> None:
        """Remove the record's old keys from the indexes."""
        for fields, index in self.topic.indexes.items():
            index.discard(self.olds[fields][name], name)

    def take_in(self, name: str) -> None:
        """Add the record's new keys to the indexes."""
        for fields, index in self.topic.indexes.items():
            index.add(self.news[fields][name], name)


class JoinPropagation:
    """The rows of `topics`, joined by `levels`: one for each."""

    def __init__(self, topics: Sequence[JoinState], levels: Sequence[JoinLevel]) -> None:
        self._topics = topics
        self._levels = levels
        self._fields = [fields_of(level.fields) for level in levels]
        self._parent_fields = [fields_of(level.parent_fields) for level in levels]
        self._meeting: list[Counter[JoinKey]] = [Counter() for _ in levels]
        """Of a full join, how many rows of the topics before it have each key: its records make
        rows of their own as long as there are none."""

    def keys(self, at: int, changes: dict[str, RecordChange]) -> ChangedKeys:
        """The keys by which these records of the topic at `at` joined, and now join."""
        return ChangedKeys(self._topics[at], changes)

    def of(self, at: int, keys: ChangedKeys) -> Iterator[Flowing]:
        """The changes of rows as records of the topic at `at` change, in this order; NEXT before
        each record. The topic's indexes change with it."""
        flow = self._root(keys) if at == 0 else self._level(at, keys)
        for behind in range(at + 1, len(self._levels)):
            flow = self._through(behind, flow, at, keys)
        return flow

    def staying(self, at: int, keys: ChangedKeys, most: int) -> list[JoinedRow] | None:
        """The rows that have these records, in the order of `of`; None where they are more than
        `most`, or not all of them stay, or are of another topic than the first."""
        if at or not keys.all_stay:
            return None
        rows: list[JoinedRow] = [(name,) for name in keys.changes]
        for behind in range(1, len(self._levels)):
            found = self._staying_through(behind, rows, keys, most)
            if found is None:
                return None
            rows = found
        return rows

    def _staying_through(
        self, at: int, rows: list[JoinedRow], keys: ChangedKeys, most: int
    ) -> list[JoinedRow] | None:
        """These rows with all their matches in the topic at `at`, up to `most`."""
        level, fields = self._levels[at], self._parent_fields[at]
        index, parent = self._topics[at].indexes[self._fields[at]], level.parent
        names = [row[parent] for row in rows]
        by_name = keys.news[fields] if parent == 0 else self._keys_of(names, parent, fields)
        found = index.each([None if name is None else by_name[name] for name in names])
        if all(map(isinstance, found, repeat(str))):
            return [(*row, other) for row, other in zip(rows, found, strict=True)]  # type: ignore[arg-type]  # just checked
        alone = (None,) if level.type != "inner" else ()
        met: list[JoinedRow] = []
        for row, others in zip(rows, found, strict=True):
            if isinstance(others, str):
                met.append((*row, others))
                continue
            some = in_order(others) if others else alone
            met += [(*row, other) for other in islice(some, most + 1)]
            if len(met) > most:
                return None
        return met

    # The topic that changes.

    def _root(self, keys: ChangedKeys) -> Iterator[Flowing]:
        for name, change in keys.changes.items():
            yield NEXT
            if name in keys.staying:
                yield STAYS, (name,)
                continue
            if change.old is not None:
                keys.take_out(name)
                yield LEAVES, (name,)
            if change.new is not None:
                keys.take_in(name)
                yield ENTERS, (name,)

    def _level(self, at: int, keys: ChangedKeys) -> Iterator[Flowing]:
        fields, alone = self._fields[at], (None,) * at
        is_full = self._levels[at].type == "full"
        for name, change in keys.changes.items():
            yield NEXT
            if name in keys.staying:
                found = False
                for kind, row in self._before(at, keys.news[fields][name]):
                    found |= kind == STAYS
                    yield (STAYS, (*row, name)) if kind == STAYS else NO_ROW
                if is_full and not found:
                    yield STAYS, (*alone, name)
                continue
            if change.old is not None:
                keys.take_out(name)
                yield from self._without(at, name, keys.olds[fields][name])
            if change.new is not None:
                yield from self._with(at, name, keys.news[fields][name])
                keys.take_in(name)

    def _without(self, at: int, name: str, key: JoinKey | None) -> Iterator[Flowing]:
        """A record was removed: what it matched stands alone if nothing else matches it."""
        is_last = self._is_alone(at, key)
        found = False
        for kind, row in self._before(at, key):
            if kind != STAYS:
                yield NO_ROW
                continue
            found = True
            yield REPLACED if is_last else LEAVES, (*row, name)
            if is_last:
                yield ENTERS, (*row, None)
        if not found and self._levels[at].type == "full":
            yield LEAVES, (None,) * at + (name,)

    def _with(self, at: int, name: str, key: JoinKey | None) -> Iterator[Flowing]:
        """A record is about to be added: what it matches no longer stands alone."""
        is_first = self._is_alone(at, key)
        found = False
        for kind, row in self._before(at, key):
            if kind != STAYS:
                yield NO_ROW
                continue
            found = True
            if is_first:
                yield REPLACED, (*row, None)
            yield ENTERS, (*row, name)
        if not found and self._levels[at].type == "full":
            yield ENTERS, (None,) * at + (name,)

    def _is_alone(self, at: int, key: JoinKey | None) -> bool:
        """Whether rows with this key make rows without a record of the topic."""
        if key is None or self._levels[at].type == "inner":
            return False
        return key not in self._topics[at].indexes[self._fields[at]]

    # The topics before it.

    def _before(self, at: int, key: JoinKey | None) -> Iterator[Flowing]:
        """The rows of all topics before `at` that match a record with this key."""
        if key is None:
            return iter(())
        parent = self._levels[at].parent
        names = self._topics[parent].indexes[self._parent_fields[at]].get(key)
        flow = self._holding(parent, names)
        for behind in range(parent + 1, at):
            flow = self._through(behind, flow)
        return flow

    def _holding(self, at: int, names: Iterable[str]) -> Iterator[Flowing]:
        """The rows of the topics up to `at` that have these records of it."""
        if at == 0:
            for name in names:
                yield STAYS, (name,)
            return
        topic, alone = self._topics[at], (None,) * at
        for some in in_parts(names):
            keys = topic.keys(topic.states(some), self._fields[at])
            for name in some:
                found = False
                for kind, row in self._before(at, keys[name]):
                    found |= kind == STAYS
                    yield (STAYS, (*row, name)) if kind == STAYS else NO_ROW
                if not found:
                    yield (STAYS, (*alone, name)) if self._levels[at].type == "full" else NO_ROW

    # The topics behind it.

    def _through(
        self, at: int, flow: Iterator[Flowing], changing: int = -1, keys: ChangedKeys | None = None
    ) -> Iterator[Flowing]:
        """Rows of the topics before `at` with all their matches there. `keys` are those of the
        topic at `changing`, whose records have different ones before and after."""
        level, fields = self._levels[at], self._parent_fields[at]
        index = self._topics[at].indexes[self._fields[at]]
        is_inner, is_full = level.type == "inner", level.type == "full"
        parent = level.parent
        for some in in_parts(flow):
            if keys is not None and parent == changing:
                olds, news = keys.olds[fields], keys.news[fields]
            else:
                olds = news = self._keys_in(some, parent, fields)
            for one in some:
                kind, row = one
                if kind > ENTERS:
                    yield one
                    continue
                name = row[parent]
                key = None if name is None else (olds if kind < STAYS else news)[name]
                if key is None:
                    yield NO_ROW if is_inner else (kind, (*row, None))
                    continue
                if is_full and kind == ENTERS:
                    yield from self._met(at, index, key)
                met = False
                for other in index.get(key):
                    met = True
                    yield kind, (*row, other)
                if not met:
                    yield NO_ROW if is_inner else (kind, (*row, None))
                if is_full and kind < STAYS:
                    yield from self._unmet(at, index, key)

    def _keys_in(self, flow: Sequence[Flowing], at: int, fields: Fields) -> Keys:
        """The keys of the records of the topic at `at` in these rows."""
        return self._keys_of([row[at] for kind, row in flow if kind <= ENTERS], at, fields)

    def _keys_of(self, names: Iterable[str | None], at: int, fields: Fields) -> Keys:
        """The keys of these records of the topic at `at`."""
        topic, names = self._topics[at], dict.fromkeys(names)
        return topic.keys(topic.states([name for name in names if name is not None]), fields)

    def _met(self, at: int, index: JoinIndex, key: JoinKey) -> Iterator[Flowing]:
        """A row comes: the records that it is the first to match no longer stand alone."""
        meeting = self._meeting[at]
        meeting[key] += 1
        if meeting[key] == 1:
            for name in index.get(key):
                yield REPLACED, (None,) * at + (name,)

    def _unmet(self, at: int, index: JoinIndex, key: JoinKey) -> Iterator[Flowing]:
        """A row has gone: the records that it was the last to match stand alone."""
        meeting = self._meeting[at]
        meeting[key] -= 1
        if not meeting[key]:
            del meeting[key]
            for name in index.get(key):
                yield ENTERS, (None,) * at + (name,)

    def check(self) -> None:
        """Assert what is always true between two changes; reads all records."""
        for topic in self._topics:
            topic.check()
        for at, meeting in enumerate(self._meeting):
            assert self._levels[at].type == "full" or not meeting
            for key, count in meeting.items():
                rows = [row for kind, row in self._before(at, key) if kind == STAYS]
                assert len(rows) == count > 0, f"{key} matches {len(rows)} rows, not {count}"


def fields_of(texts: Sequence[str]) -> Fields:
    """The paths that a level names."""
    return tuple(map(parse_path, texts))


def in_parts(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Items in lists of some, each made on demand."""
    rest = iter(items)
    while some := list(islice(rest, FETCHED_AT_ONCE)):
        yield some
