"""Joins: the input of the grouping of a view over several topics.

Changes of all topics are noted as they come. When a turn has ended, `work` applies them in steps
and yields the changes of the joined rows. What comes between two steps is left to the next time, so
that after the last one the rows are those of one moment.

    batches ──> join_state         what has changed, and its old state
                join_propagation   which rows that concerns
                JoinedRows         their values ──> RowDeltas

One record may be part of very many rows. That takes as many steps as it takes; but more rows of one
change than `fan_out_max` are a mistake, such as a field that is 'N/A' on both sides, which makes
the square of its records. It would take too long, and too much memory.

`JoinedRows` has the rows as columns: their values and numbers. The birth of a row consists of those
of its records: rows are in the order of the records of the first topic, then of those of the
second, and so on; a missing one comes after all others. Its number is that of the newest change
among its records. So both are functions of the present records, and of nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from sow.core.cooperative import Task
from sow.core.join_tree import JoinLevel
from sow.core.paths import Path
from sow.errors import TooLarge, shown
from sow.messages.base import Column
from sow.store.memory import Usage
from sow.topic.batch import Batch, Reason
from sow.topic.records import Records
from sow.topic.views import Forgettable, RowDeltas, Take
from sow.topic.views.join_propagation import (
    LEAVES,
    NEXT,
    NO_ROW,
    STAYS,
    Flowing,
    JoinedRow,
    JoinPropagation,
    fields_of,
)
from sow.topic.views.join_state import (
    STATE_BORN,
    STATE_SEQ,
    STATE_TS_US,
    STATE_VALUES,
    Fields,
    JoinState,
    RecordChange,
    RecordState,
)

BIRTH_BITS = 63
"""Births are numbers of 64 bits with a sign, and none is negative."""
NOT_THERE = 2**BIRTH_BITS - 1
"""The birth of a missing record."""
States = list[RecordState]
"""Of one topic, the record of each row."""


class JoinedRows:
    """Some rows that a few changes of the topic at `at` concern, each with the change that causes
    it. All that leave do so for one reason."""

    __slots__ = ("_stays", "at", "causes", "changes", "kinds", "reason", "rows")

    def __init__(self, at: int, changes: dict[str, RecordChange]) -> None:
        self.at = at
        self.changes = changes
        self.kinds: list[int] = []
        self.rows: list[JoinedRow] = []
        self.causes: list[RecordChange] = []
        self.reason: Reason | None = None
        self._stays = False
        """All records keep their positions."""

    def stay(self, rows: list[JoinedRow]) -> None:
        """Add rows that stay, all that have the changed records of the first topic."""
        self._stays = True
        self.kinds = [STAYS] * len(rows)
        self.rows = rows
        self.causes = [self.changes[row[0] or ""] for row in rows]

    def add(self, one: Flowing, cause: RecordChange) -> bool:
        """Add a row; False: it leaves for another reason than those that are here."""
        kind, row = one
        if kind < STAYS:
            reason: Reason = cause.reason or "match" if kind == LEAVES else "match"
            if self.reason is not None and self.reason != reason:
                return False
            self.reason = reason
        self.kinds.append(kind)
        self.rows.append(row)
        self.causes.append(cause)
        return True

    def as_columns(
        self, topics: Sequence[JoinState], columns: Sequence[tuple[int, int]]
    ) -> RowDeltas:
        """The rows with their values: for each column, the topic and the place among the fields
        read of its records."""
        kinds = self.kinds
        was_in, is_in = [kind <= STAYS for kind in kinds], [kind >= STAYS for kind in kinds]
        befores = [self._states(at, topic, True) for at, topic in enumerate(topics)]
        afters = list(befores)
        afters[self.at] = self._states(self.at, topics[self.at], False)
        olds = [[state[STATE_VALUES][place] for state in befores[at]] for at, place in columns]
        news = [
            old if at != self.at else [state[STATE_VALUES][place] for state in afters[at]]
            for old, (at, place) in zip(olds, columns, strict=True)
        ]
        shown = list(afters)
        if not all(is_in):
            pairs = zip(befores[self.at], afters[self.at], is_in, strict=True)
            shown[self.at] = [after if there else before for before, after, there in pairs]
        newest = self._newest(shown)
        moved = not self._stays and any(map(_has_moved, self.changes.values()))
        seqs, ts_us = self._stamps(newest)
        return RowDeltas(
            self.rows,
            _of_those(olds, was_in),
            _of_those(news, is_in),
            was_in,
            is_in,
            _births(shown),
            seqs,
            ts_us,
            self.reason or "match",
            [state[STATE_SEQ] for state in newest],
            _births(befores) if moved else None,
        )

    def _states(self, at: int, topic: JoinState, before: bool) -> States:
        """The records of a topic in the rows, before or after the change."""
        missing = ((None,) * len(topic.paths), NOT_THERE, 0, 0)
        names = [row[at] for row in self.rows]
        if at != self.at:
            found = topic.states([name for name in dict.fromkeys(names) if name is not None])
            return [missing if name is None else found[name] for name in names]
        changes = self.changes
        if before:
            return [missing if name is None else changes[name].old or missing for name in names]
        return [missing if name is None else changes[name].new or missing for name in names]

    @staticmethod
    def _newest(states: Sequence[States]) -> States:
        """Of each row, the record that changed last."""
        newest = states[0]
        for more in states[1:]:
            pairs = zip(newest, more, strict=True)
            newest = [one if one[STATE_SEQ] >= other[STATE_SEQ] else other for one, other in pairs]
        return newest

    def _stamps(self, newest: States) -> tuple[list[int], list[int]]:
        """The newest change that made each row what it is, or removed it."""
        seqs: list[int] = []
        ts_us: list[int] = []
        for state, cause in zip(newest, self.causes, strict=True):
            if cause.seq >= state[STATE_SEQ]:
                seqs.append(cause.seq)
                ts_us.append(cause.ts_us)
            else:
                seqs.append(state[STATE_SEQ])
                ts_us.append(state[STATE_TS_US])
        return seqs, ts_us


def _has_moved(change: RecordChange) -> bool:
    """Whether a record, the row of a view, has another position than before."""
    old, new = change.old, change.new
    return old is not None and new is not None and old[STATE_BORN] != new[STATE_BORN]


def _of_those(columns: list[Column], there: Sequence[bool]) -> list[Column] | None:
    """Columns with the values of rows that exist, None if none does."""
    if all(there):
        return columns
    if not any(there):
        return None
    return [
        [value if is_there else None for value, is_there in zip(column, there, strict=True)]
        for column in columns
    ]


def _births(states: Sequence[States]) -> list[int]:
    """Numbers in the order of the rows: the births of their records, concatenated."""
    births = [state[STATE_BORN] for state in states[0]]
    for more in states[1:]:
        pairs = zip(births, more, strict=True)
        births = [birth << BIRTH_BITS | state[STATE_BORN] for birth, state in pairs]
    return births


ROWS_AT_ONCE = 250
"""Rows of one step: a millisecond or so, reading the records included."""


class Joins:
    """The rows of the records of `topics`, joined by `levels`: one for each.

    `wanted` are the fields of a row, each with the name of its topic. `joins_nulls`: NULL matches
    NULL; a missing record has no fields, and matches nothing all the same. `fan_out_max` gives how
    many rows a change of one record may concern. The memory of indexes is counted in `usage`.
    """

    def __init__(
        self,
        topics: Sequence[Records],
        levels: Sequence[JoinLevel],
        wanted: Sequence[tuple[str, Path]],
        joins_nulls: bool,
        fan_out_max: Callable[[], int],
        usage: Usage | None = None,
    ) -> None:
        self.underlyings = tuple(topics)
        self._fan_out_max = fan_out_max
        self._topics = [
            JoinState(
                records,
                [path for name, path in wanted if name == level.topic],
                _looked_up(at, levels),
                joins_nulls,
                usage,
            )
            for at, (records, level) in enumerate(zip(topics, levels, strict=True))
        ]
        self._flow = JoinPropagation(self._topics, levels)
        self._by_name = {level.topic: at for at, level in enumerate(levels)}
        self._columns = [
            (self._by_name[name], self._topics[self._by_name[name]].place(path))
            for name, path in wanted
        ]
        """Of each field of a row, its topic and its place among the fields read of a record."""

    def stop(self) -> None:
        """The view is removed: the topics need not read its fields any more."""
        for topic in self._topics:
            topic.stop()

    def kept(self) -> Iterable[Forgettable]:
        """The states of all topics."""
        return self._topics

    may_be_late = False
    """The records of all topics are read as they are when a change comes."""

    def on_batch(self, batch: Batch) -> Iterable[RowDeltas]:
        """Note a batch of changes of one of the topics, for `work` to apply."""
        self._topics[self._by_name[batch.changes.topic]].on_batch(batch)
        return ()

    @property
    def is_behind(self) -> bool:
        """Noted changes are left for `work`."""
        return any(topic.is_behind for topic in self._topics)

    def work(self) -> Iterator[RowDeltas]:
        """The changes of rows from everything noted until now, some of them at a time.

        To be iterated to the end. Raises TooLarge where a change concerns more rows than it may:
        the join cannot continue after it.
        """
        for topic in self._topics:
            topic.take()
        for at, topic in enumerate(self._topics):
            while changes := topic.next_taken(ROWS_AT_ONCE):
                yield from self._carry_out(at, changes)

    def rows(self) -> Iterator[RowDeltas]:
        """All rows as if they had just come, some at a time, for a join that has none.

        Changes that come meanwhile are left to `work`. Raises what that does.
        """
        held = [topic.records.table.held_names(ROWS_AT_ONCE) for topic in self._topics]
        # The first topic comes last: so hardly any row comes before its matches.
        for at in reversed(range(len(self._topics))):
            for some in held[at]:
                yield from self._carry_out(at, self._topics[at].arrivals(some))

    def filling(self, take: Take) -> Task[None]:
        """Give `take` all rows, some in each step, while records change. What comes in the last
        steps may be left to `work`."""
        for changes in self.rows():
            take(changes)
            yield
        for changes in self.work():
            take(changes)
            yield

    @property
    def kept_bytes(self) -> int:
        """The memory of its indexes."""
        indexes = (index for topic in self._topics for index in topic.indexes.values())
        return sum(index.bytes for index in indexes)

    def check(self) -> None:
        """Assert what is always true of joins between two calls; reads all records."""
        self._flow.check()

    def _carry_out(self, at: int, changes: dict[str, RecordChange]) -> Iterator[RowDeltas]:
        """The rows that result from changes of the topic at `at`, a bounded number of scanned or
        changed rows each, which leave for one reason."""
        keys, most = self._flow.keys(at, changes), self._fan_out_max()
        some = JoinedRows(at, changes)
        staying = self._flow.staying(at, keys, min(most, ROWS_AT_ONCE))
        if staying is not None:
            some.stay(staying)
            yield self._as_columns(some)
            return
        causes, name, looked, concerned = iter(changes.items()), "", 0, 0
        for one in self._flow.of(at, keys):
            if looked == ROWS_AT_ONCE:
                yield self._as_columns(some)
                some, looked = JoinedRows(at, changes), 0
            looked += 1
            if one is NEXT:
                name, cause = next(causes)
                concerned = 0
                continue
            concerned += 1
            if concerned > most:
                raise self._too_many(at, name, most)
            if one is not NO_ROW and not some.add(one, cause):
                yield self._as_columns(some)
                some, looked = JoinedRows(at, changes), 1
                some.add(one, cause)
        yield self._as_columns(some)

    def _as_columns(self, some: JoinedRows) -> RowDeltas:
        return some.as_columns(self._topics, self._columns)

    def _too_many(self, at: int, name: str, most: int) -> TooLarge:
        return TooLarge(
            f"a change of the record {shown(name)} of {self.underlyings[at].name} concerns more "
            f"than {most:,} joined rows (Limits/JoinFanOut); join by a field that fewer records "
            "share, or raise the limit"
        )


def _looked_up(at: int, levels: Sequence[JoinLevel]) -> list[Fields]:
    """The fields by which records of the topic at `at` are looked up: from above, and from
    below."""
    own = [] if at == 0 else [levels[at].fields]
    return list(
        dict.fromkeys(
            map(fields_of, [*own, *(one.parent_fields for one in levels if one.parent == at)])
        )
    )
