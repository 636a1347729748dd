"""RowGroups: which input rows of a view are in which group, and what each group comes to.

Row changes are taken as they come: values go in and out of the accumulators of the groups that
they concern, and those groups are *dirty* until somebody asks what has become of them. A group is
a function of the rows that are in it, whatever came and went: its row, its place in the order of
all rows (that of the row in it that first appeared), and which spelling it shows of a value that
several rows spell differently. A group without rows is forgotten, with all that was kept of it.

Values make the same group that are the same text in a key (`sow.core.keys`); NULL, missing and
empty are one value, and so is what is no single value.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Any, NamedTuple

from sow.core.changes import Reason
from sow.core.keys import are_written_alike, joined, key_text, parted
from sow.core.lossless_numbers import LosslessNumber
from sow.core.paths import Value
from sow.errors import TooLarge
from sow.expressions import Projection
from sow.store.memory import Usage
from sow.topic.views.accumulators import Accumulators, Columns, Keeping, looks_through
from sow.topic.views.row_deltas import RowDeltas

KEY_LENGTH_MAX = 16 * 1024
"""Characters of the values that make a group: they are held as its key and as its fields. What has
more is left out of the view, and counted."""
PLAIN = frozenset({str, type(None)})
VALUES_AS_ROW = 50
"""Values of a group that are looked through, to find the least, in the time that a row takes."""
GROUP_BYTES = 500
"""What a group takes beside its key and what is kept for its aggregates, about, measured."""
ROW_BYTES = 50
"""What the place of a row in its group takes, about, measured."""
FORGOTTEN_ROWS = 10_000
"""Rows of groups that are forgotten in one step: what is kept of each takes a tenth of a
microsecond or two to free."""
GROUP_OBJECTS, ARGUMENT_OBJECTS, VALUE_OBJECTS = 10, 3, 2
"""Objects that Python's collector knows of, at most: of a group, of what a group keeps for an
argument, and of a record's value in it or its place among what it joins."""

Spelling = tuple[tuple[str, str], ...]
"""How a row writes the values that it is grouped by: the type and the text of each."""


class GroupedRows(NamedTuple):
    """Rows before or after their changes, as columns of equal length.

    `keys` say which groups they are in, None for one that is too long; `texts` has a column for
    each field that they are grouped by, and `spelled` its values, where they are not the texts
    themselves. `arguments` has a column for each argument.
    """

    keys: Sequence[str | None]
    texts: Sequence[Sequence[str]]
    spelled: Sequence[tuple[Value, ...] | None]
    arguments: Columns

    def values(self) -> Sequence[tuple[Value, ...]]:
        """By row what it has for the arguments."""
        count = len(self.keys)
        return list(zip(*self.arguments, strict=True)) if self.arguments else [()] * count


class RowGroup:
    """The rows of one group, of which `count` are there; changed last by the change `seq`."""

    __slots__ = (
        "_gone", "_order", "_shown", "accumulators", "count", "grouped", "reason", "seq",
        "spellings", "ts_us",
    )  # fmt: skip

    def __init__(self, accumulators: Accumulators, grouped: tuple[Value, ...]) -> None:
        self.accumulators = accumulators
        self.grouped = grouped
        """The values that all rows have in common, as texts."""
        self.count = 0
        self.seq = self.ts_us = 0
        self.reason: Reason = "match"
        """Why the last row left that has left."""
        self.spellings: dict[Spelling, list[int | tuple[Value, ...]]] | None = None
        self._shown: tuple[Value, ...] | None = None
        """The values that are shown of them, as long as none comes or goes."""
        self._order: list[int] = []
        """A heap of the births of its rows, and of those in `_gone`."""
        self._gone: dict[int, int] | None = None

    def touch(self, seq: int, ts_us: int) -> None:
        """A change concerns the group."""
        if seq > self.seq:
            self.seq, self.ts_us = seq, ts_us

    def enter(self, born: int) -> None:
        """A row more."""
        self.count += 1
        gone = self._gone
        if gone and born in gone:
            _take_one(gone, born)
        else:
            heappush(self._order, born)

    def leave(self, born: int) -> None:
        """A row less."""
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
        """Forget births of rows that have gone, which would gather below the top of the heap."""
        gone, kept = self._gone or {}, []
        for born in self._order:
            if born in gone:
                _take_one(gone, born)
            else:
                kept.append(born)
        heapify(kept)
        self._order = kept

    @property
    def born(self) -> int:
        """When the row first appeared that appeared first of those that are there."""
        return self._order[0]

    def spell(self, values: tuple[Value, ...] | None, times: int) -> None:
        """Rows more or less, by `times`, that write the values they are grouped by in this way."""
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

    # Kept elsewhere, where nobody asks which row came first or changed last.

    def change(self, values: Sequence[Value], spelled: tuple[Value, ...] | None, sign: int) -> None:
        """A row more (1), or one of those that came less (-1), with what it has for the arguments
        and how it writes what it is grouped by."""
        self.count += sign
        if sign > 0:
            self.accumulators.add(values, None, 0, 0)
        else:
            self.accumulators.remove(values, None, 0)
        self.spell(spelled, sign)

    def state(self) -> list[Any]:
        """All there is to know of such a group, as numbers, texts and lists of them."""
        spellings = list((self.spellings or {}).values())
        return [self.count, spellings, self.accumulators.states()]

    def restore(self, state: Sequence[Any]) -> None:
        """Go on, while nothing has come, with what such a group was."""
        self.count, spellings, states = state
        self.accumulators.restore(states)
        for times, values in spellings:
            self.spell(tuple(values), times)

    # What it shows.

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
    """All groups of a view with this projection; `keeping` says what is kept of each.
    `keeps_newest`: the number of the newest row of each is asked for, whatever the projection says.
    What they take is counted in `usage`, too.
    """

    def __init__(
        self, projection: Projection, keeps_newest: bool = False, usage: Usage | None = None
    ) -> None:
        self.projection = projection
        self.left_out = 0
        """Rows that are in no group, since their key is too long."""
        self.keeping = Keeping(projection, keeps_newest)
        self.kept_bytes = 0
        """What they take, about; that of a row of the view is not in it."""
        self._usage = usage or Usage()
        self._group_bytes = GROUP_BYTES + self.keeping.group_bytes
        self._row_bytes = ROW_BYTES + self.keeping.row_bytes
        self.taken_weight = 0
        self._looks_through = looks_through(projection)
        self._groups: dict[str, RowGroup] = {}
        self._empty = 0
        """How many of them have no rows: they are forgotten when the turn ends."""
        self._dirty: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, key: str) -> bool:
        return key in self._groups

    def objects_max(self, records: int) -> int:
        """How many objects the groups may hold that are made of so many records."""
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
        without rows are forgotten by it. `taken_weight` is what it takes to read them, which is
        about `limit` at most: as many rows as that, where nothing is looked through for them."""
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
        """Forget so many groups of a view that has gone or stopped, or all that are left; fewer
        where they have many rows, of each of which something may be kept."""
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
        self._usage.count(by_bytes)

    def let_go(self, key: str, seq: int, ts_us: int) -> None:
        """A row of this key is there, made by other groups, and there is no such group: it goes,
        unless rows enter the group before that is told."""
        if key not in self._groups:
            group = self._made(key, parted(key, len(self.projection.grouping)))
            group.touch(seq, ts_us)
            self._dirty[key] = None

    # Taking row changes.

    def take(self, changes: RowDeltas) -> None:
        """Let rows enter, change, move and leave."""
        if self._all_stay(changes) and self._take_values(changes):
            return
        before = self._side(changes.olds, len(changes))
        after = self._side(changes.news, len(changes))
        if before is None and after is not None and all(changes.is_in) and None not in after.keys:
            self._take_new(changes, after)
        elif before is not None or after is not None:
            self._take_one_by_one(changes, before or _no_rows(changes), after or _no_rows(changes))

    def _all_stay(self, changes: RowDeltas) -> bool:
        """Whether all rows were there and are, and what they are grouped by has not changed, nor
        how it is written. More than that may stay; this is soon seen."""
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
        """Rows of which each may come, change, move or leave, in the order in which they do."""
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
        """Rows that stay in their groups: what happens most, in the quickest way. False if one of
        them is in no group."""
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
        """Rows that were not there: what a view is filled with, in the quickest way."""
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
        assert held <= self._groups.keys(), "a row of a group that is forgotten"
        clean = self._groups.keys() - self._dirty.keys()
        assert clean <= held, "a group without a row that waits for nothing"
        for key, group in self._groups.items():
            assert group.count or key in self._dirty, "an empty group that nobody forgets"
            assert group.count >= 0
        assert self._empty == sum(not group.count for group in self._groups.values())
        rows = sum(group.count for group in self._groups.values())
        keys_bytes = sum(map(len, self._groups)) + len(self._groups) * self._group_bytes
        assert self.kept_bytes == keys_bytes + rows * self._row_bytes


def grouped_rows(projection: Projection, columns: Columns, count: int) -> GroupedRows:
    """So many rows, of which there is a column for each of the projection's inputs."""
    grouped = columns[: len(projection.grouping)]
    texts = list(map(_texts, grouped))
    arguments = [one.values(columns, count) for one in projection.arguments]
    return GroupedRows(_keys(texts, count), texts, _spelled(grouped, count), arguments)


def _no_rows(changes: RowDeltas) -> GroupedRows:
    """Of rows that are not there, before or after."""
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
    """By row the values, None for those that are texts or nothing."""
    if all(set(map(type, column)) <= PLAIN for column in columns):
        return [None] * count
    rows = zip(*[map(_single, column) for column in columns], strict=True)
    return [None if {type(value) for value in row} <= PLAIN else row for row in rows]


def _single(value: Value) -> Value:
    """A value that may be shown as that of a group."""
    return None if value == "" or isinstance(value, list) else value


def _spelling(value: Value) -> tuple[str, str]:
    text = value.text if isinstance(value, LosslessNumber) else repr(value)
    return type(value).__name__, text


def _take_one(counts: dict[int, int], born: int) -> None:
    if counts[born] == 1:
        del counts[born]
    else:
        counts[born] -= 1
