"""Row groups: which input rows of a view are in which group, and the result of each group.

Row deltas are applied as they come: values are added to and removed from the accumulators of the
groups that they concern, and those groups are *dirty* until they are released. A group is a
function of its present rows, whatever came and went: its row, its position in the order of all rows
(that of its row that first appeared), and the spelling that it shows of a value that several rows
spell differently. A group without rows is dropped, with all its state.

Values are in one group if they are the same text in a key (`sow.core.keys`); NULL, missing and
empty are one value, and so is anything that is no single value.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Any, NamedTuple

from sow.core.containers import LazyHeap
from sow.core.keys import are_written_alike, joined, key_text, parted
from sow.core.lossless_numbers import LosslessNumber
from sow.core.paths import Value
from sow.errors import TooLarge
from sow.expressions import Projection
from sow.store.memory import Usage
from sow.topic.batch import Reason
from sow.topic.views import RowDeltas
from sow.topic.views.accumulators import Accumulators, Columns, Keeping, looks_through

KEY_LENGTH_MAX = 16 * 1024
"""Characters of the values of a group: they are held as its key and as its fields. A row with more
is left out of the view, and counted."""
PLAIN = frozenset({str, type(None)})
VALUES_AS_ROW = 50
"""Values of a group that a scan for the least passes in the time that a row takes."""
GROUP_BYTES = 500
"""The memory of a group beside its key and the states of its aggregates, about, measured."""
ROW_BYTES = 50
"""The memory of a row's place in its group, about, measured."""
FORGOTTEN_ROWS = 10_000
"""Rows of groups that are dropped in one step: the state of each takes a tenth of a microsecond or
two to free."""
GROUP_OBJECTS, ARGUMENT_OBJECTS, VALUE_OBJECTS = 10, 3, 2
"""Objects that Python's cycle collector tracks, at most: of a group, of its state for an argument,
and of a record's value in that or its place among what it joins."""

Spelling = tuple[tuple[str, str], ...]
"""How a row writes the values that it is grouped by: the type and the text of each."""


class GroupedRows(NamedTuple):
    """Rows before or after their changes, as columns of equal length.

    `keys` are the keys of their groups, None for one that is too long; `texts` has a column for
    each field that they are grouped by, and `spelled` its values, where they are not the texts
    themselves. `arguments` has a column for each argument.
    """

    keys: Sequence[str | None]
    texts: Sequence[Sequence[str]]
    spelled: Sequence[tuple[Value, ...] | None]
    arguments: Columns

    def values(self) -> Sequence[tuple[Value, ...]]:
        """By row its values for the arguments."""
        count = len(self.keys)
        return list(zip(*self.arguments, strict=True)) if self.arguments else [()] * count


class RowGroup:
    """A group of `count` rows; `seq` is the number of its last change."""

    __slots__ = (
        "_gone", "_order", "_shown", "accumulators", "count", "grouped", "reason", "seq",
        "spellings", "ts_us",
    )  # fmt: skip

    def __init__(self, accumulators: Accumulators, grouped: tuple[Value, ...]) -> None:
        self.accumulators = accumulators
        self.grouped = grouped
        """The values that all its rows share, as texts."""
        self.count = 0
        self.seq = self.ts_us = 0
        self.reason: Reason = "match"
        """Why the last row that left did so."""
        self.spellings: dict[Spelling, list[int | tuple[Value, ...]]] | None = None
        self._shown: tuple[Value, ...] | None = None
        """The values that are shown of them, until one comes or goes."""
        self._order: LazyHeap[int] = LazyHeap()
        """A heap of the births of its rows, and of those in `_gone`."""
        self._gone: dict[int, int] | None = None

    def touch(self, seq: int, ts_us: int) -> None:
        """A change concerns the group."""
        if seq > self.seq:
            self.seq, self.ts_us = seq, ts_us

    def enter(self, born: int) -> None:
        """Add a row."""
        self.count += 1
        gone = self._gone
        if gone and born in gone:
            _take_one(gone, born)
        else:
            heappush(self._order, born)

    def leave(self, born: int) -> None:
        """Remove a row."""
        self.count -= 1
        if not self.count:
            self._order.clear()
            self._gone = None
            return
        if self._gone is None:
            self._gone = {}
        self._gone[born] = self._gone.get(born, 0) + 1
        order, gone = self._order, self._gone
        while order[0] in gone:
            _take_one(gone, heappop(order))
        if len(order) > 2 * self.count:
            self._tidy()

    def _tidy(self) -> None:
        """Drop births of removed rows, which would collect below the top of the heap."""
        gone, kept = self._gone or {}, []
        for born in self._order:
            if born in gone:
                _take_one(gone, born)
            else:
                kept.append(born)
        self._order.rebuild(kept)

    @property
    def born(self) -> int:
        """The birth of the first of its rows."""
        return self._order[0]

    def spell(self, values: tuple[Value, ...] | None, times: int) -> None:
        """Add or remove rows, `times`, that spell the values they are grouped by in this way."""
        if values is None:
            return
        if self.spellings is None:
            self.spellings = {}
        self._shown = None
        spelling = tuple([_spelling(value) for value in values])
        found = self.spellings.setdefault(spelling, [0, values])
        found[0] += times  # type: ignore[operator]
        if not found[0]:
            del self.spellings[spelling]

    # Saved state, without the order and the newest row.

    def change(self, values: Sequence[Value], spelled: tuple[Value, ...] | None, sign: int) -> None:
        """Add (1) or remove (-1) a row with its values for the arguments and its spelling of the
        values it is grouped by."""
        self.count += sign
        if sign > 0:
            self.accumulators.add(values, None, 0, 0)
        else:
            self.accumulators.remove(values, None, 0)
        self.spell(spelled, sign)

    def state(self) -> list[Any]:
        """The whole state of such a group, as numbers, texts and lists of them."""
        spellings = list((self.spellings or {}).values())
        return [self.count, spellings, self.accumulators.states()]

    def restore(self, state: Sequence[Any]) -> None:
        """Continue, while it is empty, from such a group's state."""
        self.count, spellings, states = state
        self.accumulators.restore(states)
        for times, values in spellings:
            self.spell(tuple(values), times)

    # Results.

    def values(self) -> Sequence[Value]:
        """The values of the fields that it is grouped by: a number before a text that spells it."""
        if self._shown is None:
            self._shown = self.grouped
            if found := self.spellings:
                values = found[min(found)][1]
                assert isinstance(values, tuple)
                self._shown = values
        return self._shown


class RowGroups:
    """All groups of a view with this projection; `keeping` has the states of each.
    `keeps_newest`: the number of the newest row of each is kept, whatever the projection. Their
    memory is counted in `usage`, too.
    """

    def __init__(
        self, projection: Projection, keeps_newest: bool = False, usage: Usage | None = None
    ) -> None:
        self.projection = projection
        self.left_out = 0
        """Rows that are in no group, since their key is too long."""
        self.keeping = Keeping(projection, keeps_newest)
        self.kept_bytes = 0
        """Their memory, about, without that of the view's rows."""
        self.usage = usage or Usage()
        self._group_bytes = GROUP_BYTES + self.keeping.group_bytes
        self._row_bytes = ROW_BYTES + self.keeping.row_bytes
        self.taken_weight = 0
        self._looks_through = looks_through(projection)
        self._groups: dict[str, RowGroup] = {}
        self._empty = 0
        """How many of them have no rows: they are dropped when the turn ends."""
        self._dirty: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, key: str) -> bool:
        return key in self._groups

    def objects_max(self, records: int) -> int:
        """How many objects groups of so many records may hold."""
        arguments = len(self.projection.arguments)
        of_groups = len(self) * (GROUP_OBJECTS + ARGUMENT_OBJECTS * arguments)
        return of_groups + records * VALUE_OBJECTS * (arguments + 1)

    def __getitem__(self, key: str) -> RowGroup:
        return self._groups[key]

    def check_count(self, most: int) -> None:
        """Raise TooLarge if more than `most` of them have rows."""
        count = len(self) - self._empty
        if count > most:
            raise TooLarge(
                f"it has {count:,} groups, and the limit is {most:,} (Limits/ViewGroups); group by "
                "fields with fewer values, filter the records, or raise ViewGroups"
            )

    @property
    def dirty_count(self) -> int:
        """How many groups have changed since they were taken."""
        return len(self._dirty)

    def take_dirty(self, limit: int) -> list[tuple[str, RowGroup]]:
        """Some groups that have changed, in the order in which they did, one at least; those
        without rows are dropped. `taken_weight` is the cost of reading them, about `limit` at most:
        as many rows as that, where reading scans nothing."""
        some = [*islice(self._dirty, limit)]
        found = []
        self.taken_weight = 0
        for key in some:
            del self._dirty[key]
            group = self._groups[key]
            found.append((key, group))
            self.taken_weight += 1
            if self._looks_through:
                self.taken_weight += group.count // VALUES_AS_ROW
            if not group.count:
                del self._groups[key]
                self._empty -= 1
                self._count(-self._group_bytes - len(key))
            if self.taken_weight >= limit:
                break
        return found

    def forget_some(self, count: int) -> None:
        """Drop so many groups of a view that was removed or has stopped, or all that are left;
        fewer where they have many rows, since each may have state."""
        rows = 0
        for _ in range(min(count, len(self._groups))):
            key, group = self._groups.popitem()
            self._dirty.pop(key, None)
            self._empty -= not group.count
            self._count(-self._group_bytes - len(key) - group.count * self._row_bytes)
            rows += group.count
            if rows > FORGOTTEN_ROWS:
                return

    def _count(self, by_bytes: int) -> None:
        self.kept_bytes += by_bytes
        self.usage.count(by_bytes)

    def let_go(self, key: str, seq: int, ts_us: int) -> None:
        """A row with this key exists, made by other groups, and has no group here: it is removed,
        unless rows enter the group before its release."""
        if key not in self._groups:
            group = self._made(key, parted(key, len(self.projection.grouping)))
            group.touch(seq, ts_us)
            self._dirty[key] = None

    # Row deltas.

    def take(self, changes: RowDeltas) -> None:
        """Apply rows that enter, change, move and leave."""
        if self._all_stay(changes) and self._take_values(changes):
            return
        before = self._side(changes.olds, len(changes))
        after = self._side(changes.news, len(changes))
        if before is None and after is not None and all(changes.is_in) and None not in after.keys:
            self._take_new(changes, after)
        elif before is not None or after is not None:
            self._take_one_by_one(changes, before or _no_rows(changes), after or _no_rows(changes))

    def _all_stay(self, changes: RowDeltas) -> bool:
        """Whether all rows exist before and after, with the same values and spellings of what they
        are grouped by. Rows may stay otherwise, too; this is a quick check."""
        olds, news, count = changes.olds, changes.news, len(self.projection.grouping)
        return (
            olds is not None
            and news is not None
            and changes.old_borns is None
            and all(changes.was_in)
            and all(changes.is_in)
            and all(map(are_written_alike, olds[:count], news[:count]))
        )

    def _side(self, columns: Columns | None, count: int) -> GroupedRows | None:
        return None if columns is None else grouped_rows(self.projection, columns, count)

    def _arguments(self, columns: Columns, count: int) -> Columns:
        return [one.values(columns, count) for one in self.projection.arguments]

    def _take_one_by_one(self, changes: RowDeltas, before: GroupedRows, after: GroupedRows) -> None:
        """Apply rows that may come, change, move or leave, in order."""
        groups, dirty = self._groups, self._dirty
        olds, news = before.values(), after.values()
        columns = zip(
            changes.identities, changes.was_in, changes.is_in, before.keys, after.keys, olds,
            news, changes.borns, changes.newest_seqs or changes.seqs, changes.seqs,
            changes.ts_us, range(len(changes)), strict=True,
        )  # fmt: skip
        olds_born = changes.old_borns or changes.borns
        for identity, was, now, old_key, key, old, new, born, newest, seq, ts_us, at in columns:
            stays = was and now and key == old_key and key is not None
            if stays and key is not None and born == olds_born[at]:
                group = groups[key]
                group.accumulators.replace(old, new, identity, born, newest)
                if before.spelled[at] is not None or after.spelled[at] is not None:
                    group.spell(before.spelled[at], -1)
                    group.spell(after.spelled[at], 1)
                group.touch(seq, ts_us)
                dirty[key] = None
                continue
            if was:
                self._leave(changes, before, at, old, "match" if now else changes.reason)
            if now:
                self._enter(changes, after, at, new)

    def _take_values(self, changes: RowDeltas) -> bool:
        """Apply rows that stay in their groups: the most common case, in the quickest way. False if
        one of them is in no group."""
        count, olds, news = len(changes), changes.olds, changes.news
        assert olds is not None
        assert news is not None
        keys = _keys([_texts(one) for one in news[: len(self.projection.grouping)]], count)
        if None in keys:
            return False
        groups = list(map(self._groups.__getitem__, keys))  # type: ignore[arg-type]
        newest = changes.newest_seqs or changes.seqs
        after = self._arguments(news, count)
        before = [
            values if one.is_constant else one.values(olds, count)
            for one, values in zip(self.projection.arguments, after, strict=True)
        ]
        self.keeping.replace(
            [group.accumulators for group in groups], before, after, changes.identities,
            changes.borns, newest,
        )  # fmt: skip
        for group, seq, ts_us in zip(groups, changes.seqs, changes.ts_us, strict=True):
            if seq > group.seq:
                group.seq, group.ts_us = seq, ts_us
        self._dirty.update(dict.fromkeys(keys))  # type: ignore[arg-type]
        return True

    def _take_new(self, changes: RowDeltas, after: GroupedRows) -> None:
        """Apply rows that are new: how a view is filled, in the quickest way."""
        keys, find = after.keys, self._groups.get
        groups = [
            find(key) or self._group(key, after, at)  # type: ignore[arg-type]
            for at, key in enumerate(keys)
        ]
        newest = changes.newest_seqs or changes.seqs
        self.keeping.add(
            [group.accumulators for group in groups], after.arguments, changes.identities,
            changes.borns, newest,
        )  # fmt: skip
        columns = zip(
            groups, changes.borns, changes.seqs, changes.ts_us, after.spelled, strict=True
        )
        self._count(len(groups) * self._row_bytes)
        for group, born, seq, ts_us, spelled in columns:
            if not group.count:
                self._empty -= 1
            if group._gone:
                group.enter(born)
            else:
                group.count += 1
                heappush(group._order, born)
            if spelled is not None:
                group.spell(spelled, 1)
            if seq > group.seq:
                group.seq, group.ts_us = seq, ts_us
        self._dirty.update(dict.fromkeys(keys))  # type: ignore[arg-type]

    def _enter(
        self, changes: RowDeltas, after: GroupedRows, at: int, values: tuple[Value, ...]
    ) -> None:
        key = after.keys[at]
        if key is None:
            self.left_out += 1
            return
        group = self._groups.get(key) or self._group(key, after, at)
        newest, born = changes.newest_seqs or changes.seqs, changes.borns[at]
        group.accumulators.add(values, changes.identities[at], born, newest[at])
        self._empty -= not group.count
        group.enter(born)
        self._count(self._row_bytes)
        group.spell(after.spelled[at], 1)
        group.touch(changes.seqs[at], changes.ts_us[at])
        self._dirty[key] = None

    def _leave(
        self,
        changes: RowDeltas,
        before: GroupedRows,
        at: int,
        values: tuple[Value, ...],
        reason: Reason,
    ) -> None:
        key = before.keys[at]
        if key is None:
            self.left_out -= 1
            return
        group, born = self._groups[key], (changes.old_borns or changes.borns)[at]
        group.accumulators.remove(values, changes.identities[at], born)
        group.leave(born)
        self._empty += not group.count
        self._count(-self._row_bytes)
        group.spell(before.spelled[at], -1)
        group.touch(changes.seqs[at], changes.ts_us[at])
        group.reason = reason
        self._dirty[key] = None

    def _group(self, key: str, side: GroupedRows, at: int) -> RowGroup:
        return self._made(key, [texts[at] for texts in side.texts])

    def _made(self, key: str, texts: Iterable[str]) -> RowGroup:
        group = RowGroup(self.keeping.group(), tuple([text or None for text in texts]))
        self._groups[key] = group
        self._empty += 1
        self._count(self._group_bytes + len(key))
        return group

    def check(self, keys: Iterable[str]) -> None:
        """Assert what is always true of groups between two releases; `keys` are those of the rows
        that were made of them."""
        held = set(keys)
        assert self._dirty.keys() <= self._groups.keys()
        assert held <= self._groups.keys(), "a row of a group that was dropped"
        clean = self._groups.keys() - self._dirty.keys()
        assert clean <= held, "a clean group without a row"
        for key, group in self._groups.items():
            assert group.count or key in self._dirty, "an empty group that is not dropped"
            assert group.count >= 0
        assert self._empty == sum(not group.count for group in self._groups.values())
        rows = sum(group.count for group in self._groups.values())
        keys_bytes = sum(map(len, self._groups)) + len(self._groups) * self._group_bytes
        assert self.kept_bytes == keys_bytes + rows * self._row_bytes


def grouped_rows(projection: Projection, columns: Columns, count: int) -> GroupedRows:
    """Rows from a column for each of the projection's inputs."""
    grouped = columns[: len(projection.grouping)]
    texts = list(map(_texts, grouped))
    arguments = [one.values(columns, count) for one in projection.arguments]
    return GroupedRows(_keys(texts, count), texts, _spelled(grouped, count), arguments)


def _no_rows(changes: RowDeltas) -> GroupedRows:
    """Rows that do not exist, before or after."""
    nones = [None] * len(changes)
    return GroupedRows(nones, (), nones, ())


def _texts(column: Sequence[Value]) -> list[str]:
    """The texts of values in a key, "" for none."""
    kinds = set(map(type, column))
    if kinds == {str}:
        return list(column)  # type: ignore[arg-type]  # just checked
    if kinds == {int}:
        return list(map(str, column))
    return [value if type(value) is str else key_text(value) or "" for value in column]


def _keys(texts: Sequence[list[str]], count: int) -> Sequence[str | None]:
    keys = joined(texts) if texts else [""] * count
    if max(map(len, keys), default=0) > KEY_LENGTH_MAX:
        return [key if len(key) <= KEY_LENGTH_MAX else None for key in keys]
    return keys


def _spelled(columns: Sequence[Sequence[Value]], count: int) -> Sequence[tuple[Value, ...] | None]:
    """By row its values, None for those that are texts or nothing."""
    if all(set(map(type, column)) <= PLAIN for column in columns):
        return [None] * count
    rows = zip(*[map(_single, column) for column in columns], strict=True)
    return [None if {type(value) for value in row} <= PLAIN else row for row in rows]


def _single(value: Value) -> Value:
    """A value that may be shown as a group's."""
    return None if value == "" or isinstance(value, list) else value


def _spelling(value: Value) -> tuple[str, str]:
    text = value.text if isinstance(value, LosslessNumber) else repr(value)
    return type(value).__name__, text


def _take_one(counts: dict[int, int], born: int) -> None:
    if counts[born] == 1:
        del counts[born]
    else:
        counts[born] -= 1
