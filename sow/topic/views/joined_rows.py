"""The rows of a join as columns: their values and numbers.

The birth of a row consists of those of its records: rows are in the order of the records of the
first topic, then of those of the second, and so on; a missing one comes after all others. Its
number is that of the newest change among its records. So both are functions of the present records,
and of nothing else.

Which rows there are is determined by `sow.topic.views.join_propagation`.
"""

from collections.abc import Sequence

from sow.messages.base import Column
from sow.topic.batch import Reason
from sow.topic.views.join_propagation import LEAVES, STAYS, Flowing, JoinedRow
from sow.topic.views.join_state import (
    STATE_BORN,
    STATE_SEQ,
    STATE_TS_US,
    STATE_VALUES,
    JoinState,
    RecordChange,
    RecordState,
)
from sow.topic.views.row_deltas import RowDeltas

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
