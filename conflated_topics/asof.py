"""As-of joins: each row of one table with the latest row of another one, at that moment.

A row on the left is joined with the last row on the right of its keys that is not younger than it,
and not older by more than a tolerance; without such a row it stands alone. Whole tables are joined
at once: all rows are sorted by key and time, and the last row of the right is carried forward.

Streams are joined table by table (`conflated_topics.asof_streams`): `joined` joins rows whose time
has come, and `wanted` selects the rows of the right to keep. It reads no clock, and does not use
Spark.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from conflated_topics.folds import sortable
from conflated_topics.recorded import key_codes, times_us
from conflated_topics.windows import Flags, Ints


@dataclass(frozen=True)
class AsOf:
    """The columns of a join.

    `keys`, at least one, and `time` (timestamp[us]) are columns of both tables. `tolerance_us` is
    how much older the row on the right may be, inclusive. `order` names columns of the right that
    order rows of the same time; rows that remain equal keep their order in the table.
    """

    keys: tuple[str, ...]
    time: str
    tolerance_us: int
    order: tuple[str, ...] = ()

    def result_schema(self, left: pa.Schema, right: pa.Schema) -> pa.Schema:
        """The columns of the left, then the additional ones of the right.

        Raises ValueError for columns that do not fit: missing, of other types, or duplicate names.
        """
        if not self.keys:
            raise ValueError("rows are joined by key; name at least one column of both sides")
        for name in (*self.keys, self.time):
            for side, schema in (("left", left), ("right", right)):
                if name not in schema.names:
                    raise ValueError(
                        f"the {side} side has no column {name!r}; keys and time are columns of both"
                    )
            if left.field(name).type != right.field(name).type:
                raise ValueError(
                    f"the column {name!r} is {left.field(name).type} on the left and "
                    f"{right.field(name).type} on the right; cast one of them"
                )
        kind = left.field(self.time).type
        if not (pa.types.is_timestamp(kind) and kind.unit == "us"):
            raise ValueError(f"the time column {self.time!r} is {kind}; cast it to a timestamp")
        for name in self.order:
            if name not in right.names:
                raise ValueError(f"the right side has no column {name!r}, which order names")
        own = [field for field in right if field.name not in self._shared]
        if alike := sorted({field.name for field in own} & set(left.names)):
            raise ValueError(
                f"both sides have a column {alike[0]!r}, which is neither key nor time; rename it "
                "on one of them"
            )
        return pa.schema([field.with_nullable(True) for field in (*left, *own)])

    @property
    def _shared(self) -> tuple[str, ...]:
        return (*self.keys, self.time)

    def joined(self, left: Any, right: Any) -> Any:
        """Each row of the left, in its place, with the columns of the right.

        A null in a key matches nothing. Raises ValueError for a row without a time.
        """
        rows = _Rows(self, left, right)
        own = right.drop_columns(list(self._shared)).take(rows.matches())
        for name in own.column_names:
            left = left.append_column(name, own[name])
        return left

    def wanted(self, right: Any, since_us: int | None) -> Any:
        """The rows that left rows from `since_us` on (None: of any time) may still be joined with:
        all younger ones, and the last older one of each key."""
        if since_us is None or not len(right):
            return right
        time_us = times_us(right[self.time], self.time)
        before = np.flatnonzero(time_us <= since_us)
        codes = key_codes(right.select(self.keys))
        by_key = before[np.lexsort((self._ranks(right)[before], time_us[before], codes[before]))]
        lasts = by_key[np.diff(codes[by_key], append=-1) != 0]
        kept = time_us > since_us
        kept[lasts] = since_us - time_us[lasts] <= self.tolerance_us
        return right.filter(pa.array(kept & ~_lacks_key(right, self.keys))).combine_chunks()

    def _ranks(self, right: Any) -> Ints:
        """The place of each row among those of the same time."""
        ranks = np.arange(len(right))
        if self.order:
            ranks[np.lexsort([sortable(right[name]) for name in reversed(self.order)])] = np.arange(
                len(right)
            )
        return ranks


class _Rows:
    """The numbered rows of both sides: those of the right, then those of the left."""

    def __init__(self, join: AsOf, left: Any, right: Any) -> None:
        sides = [right, left]
        keys = pa.concat_tables([side.select(join.keys) for side in sides]).unify_dictionaries()
        self.rights = len(right)
        self.tolerance_us = join.tolerance_us
        self.lacks_key = _lacks_key(keys, join.keys)
        self.codes = key_codes(keys)
        self.time_us = np.concatenate([times_us(side[join.time], join.time) for side in sides])
        # At equal times the right comes first, since the left may be joined with it.
        self.is_left = np.arange(len(keys)) >= self.rights
        ranks = np.concatenate([join._ranks(right), np.zeros(len(left), np.int64)])
        self.order = np.lexsort((ranks, self.is_left, self.time_us, self.codes))

    def matches(self) -> Any:
        """For each row of the left the row of the right, or null."""
        is_left = self.is_left[self.order]
        places = np.where(is_left, -1, np.arange(len(self.order)))
        last = np.maximum.accumulate(places)[is_left]
        rows, found = self.order[is_left], self.order[last]
        fits = (last >= 0) & (self.codes[found] == self.codes[rows]) & ~self.lacks_key[rows]
        fits &= self.time_us[rows] - self.time_us[found] <= self.tolerance_us
        matches = np.zeros(len(rows), np.int64)
        matches[rows - self.rights] = np.where(fits, found, -1)
        return pa.array(matches, mask=matches < 0)


def _lacks_key(table: Any, keys: tuple[str, ...]) -> Flags:
    lacks = np.zeros(len(table), np.bool_)
    for name in keys:
        lacks |= np.asarray(table[name].is_null())
    return lacks
