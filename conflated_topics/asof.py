"""As-of joins: each row of one table with the latest row of another one, at that moment.

A row on the left is joined with the last row on the right of its keys that is not younger than it,
and not older by more than a tolerance; without such a row it stands alone. Whole tables (`AsOf`)
are joined at once: all rows are sorted by key and time, and the last row of the right is carried
forward.

Streams (`JoinBuckets`) are joined table by table. A row on the left is joined once no further row
on the right can precede it: when the right, of any key, has passed its time. Until then it waits.
Rows of the right are kept while rows on the left, waiting or still to come, may be joined with
them. So each side waits for the other, and batch boundaries do not change the result.

    left  ──not late──> waiting ──older than the right's watermark──> joined
    right ──not late──> kept    ──older than both watermarks: but for the last of each key──> gone

The *watermark* of a side is its newest time, less the allowed lateness; a row is late if it is
older than the watermark after earlier batches. Late rows are left out.

Buckets, packed rows and bytes are those of a conflated stream
(`conflated_topics.state_partitions`). It reads no clock and does not use Spark.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.folds import Flags, Ints, sortable
from conflated_topics.recorded import Envelope, from_ipc, key_codes, times_us, to_ipc
from conflated_topics.state_partitions import (
    AGAIN,
    BUCKET,
    COUNT,
    NEVER_US,
    behind,
    check_count,
    divided,
    gathered,
    latest,
)


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


OUTCOME = "__outcome"
TAKES_PART = "takes part"
TIME_ONLY = "time only"
"""No row: only its time counts."""
LEFT_OUT = ("late_left", "late_right", "ahead_left", "ahead_right")
"""Outcomes of rows that are left out, and the names under which they are counted."""
OUTCOME_FIELD = pa.field(OUTCOME, pa.string())
SideName = Literal["left", "right"]
PACKED = pa.schema(
    [
        (BUCKET, pa.int32()),
        ("left_us", pa.int64()),
        ("right_us", pa.int64()),
        ("left", pa.binary()),
        ("right", pa.binary()),
    ]
)
ENVELOPE = Envelope(b"CTRJ", 1, "as-of join", AGAIN)


@dataclass(frozen=True)
class Side:
    """The state of one side: the rows kept, the newest time, and the time before which rows are
    late."""

    rows: Any
    newest_us: int | None = None
    watermark_us: int | None = None

    def take_in(
        self, join: AsOf, came: Any, newest_us: int | None, lateness_us: int
    ) -> tuple["Side", int]:
        """The side with the new rows, and the number of late ones."""
        late = np.zeros(len(came), np.bool_)
        if self.watermark_us is not None:
            late = times_us(came[join.time], join.time) < self.watermark_us
        rows = behind(self.rows, came.filter(pa.array(~late)))
        newest_us = latest(self.newest_us, newest_us)
        watermark_us = None if newest_us is None else newest_us - lateness_us
        return Side(rows, newest_us, latest(self.watermark_us, watermark_us)), int(late.sum())


@dataclass(frozen=True)
class Sides:
    """The state of a stream after a batch. Immutable; `take_in` makes the next one."""

    left: Side
    right: Side


class Came(NamedTuple):
    """The rows of a batch on both sides, and the newest time of each, whatever the keys; None:
    there was none."""

    left: Any
    right: Any
    left_us: int | None
    right_us: int | None


def take_in(
    sides: Sides, join: AsOf, came: Came, lateness_us: int
) -> tuple[Sides, Any, dict[str, int]]:
    """Process a batch; returns the next state, the joined rows, and the number of late rows on each
    side."""
    left, late_left = sides.left.take_in(join, came.left, came.left_us, lateness_us)
    right, late_right = sides.right.take_in(join, came.right, came.right_us, lateness_us)
    ready = np.zeros(len(left.rows), np.bool_)
    if right.watermark_us is not None:
        ready = times_us(left.rows[join.time], join.time) < right.watermark_us
    joined = join.joined(left.rows.filter(pa.array(ready)), right.rows)
    waiting = left.rows.filter(pa.array(~ready)).combine_chunks()
    since_us = None
    if left.watermark_us is not None and right.watermark_us is not None:
        # Waiting rows are not older than the right's watermark, nor are later ones than the left's.
        since_us = min(left.watermark_us, right.watermark_us)
    kept = join.wanted(right.rows, since_us)
    after = Sides(replace(left, rows=waiting), replace(right, rows=kept))
    return after, joined, {"late_left": late_left, "late_right": late_right}


@dataclass(frozen=True)
class JoinBuckets:
    """The buckets of one join: its columns, the schemas of both sides, and the number of buckets.

    Raises ValueError for columns that do not fit, and for an invalid number.
    """

    join: AsOf
    left: pa.Schema
    right: pa.Schema
    lateness_us: int = 0
    count: int = COUNT

    def __post_init__(self) -> None:
        check_count(self.count)
        self.join.result_schema(self.left, self.right)

    def result_schema(self) -> pa.Schema:
        """The columns of the results of turns: those of the join, and the outcome of the row."""
        schema = self.join.result_schema(self.left, self.right)
        return schema.append(pa.field(OUTCOME, pa.string()))

    def pack(self, side: SideName, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of one partition of a side, with their buckets and outcomes, as packed rows."""
        schema = (self.left if side == "left" else self.right).append(OUTCOME_FIELD)
        table, places = gathered(batches, schema)
        if not len(table):
            return
        counts = pc.is_in(table[OUTCOME], pa.array([TAKES_PART, TIME_ONLY]))
        newest = pc.max(table[self.join.time].filter(counts)).cast(pa.int64()).as_py()
        kept = np.asarray(pc.not_equal(table[OUTCOME], TIME_ONLY))
        nothing = [b""] * self.count, np.full(self.count, NEVER_US)
        rows = divided(table.filter(pa.array(kept)), places[kept], self.count)
        side_rows = rows, np.full(self.count, NEVER_US if newest is None else newest)
        left, right = (side_rows, nothing) if side == "left" else (nothing, side_rows)
        buckets = pa.array(np.arange(self.count, dtype=np.int32))
        yield pa.RecordBatch.from_arrays(
            [
                buckets,
                pa.array(left[1]),
                pa.array(right[1]),
                pa.array(left[0], pa.binary()),
                pa.array(right[0], pa.binary()),
            ],
            schema=PACKED,
        )

    def turn(
        self,
        stored: bytes | None,
        lefts: Iterable[bytes],
        rights: Iterable[bytes],
        left_us: int,
        right_us: int,
    ) -> tuple[bytes, Any]:
        """One bucket's turn: its next state, and rows with their outcomes. `stored` is its state,
        None at first, the others are packed rows."""
        left, aside_left = _unpacked(lefts, self.left)
        right, aside_right = _unpacked(rights, self.right)
        came = Came(left, right, _time(left_us), _time(right_us))
        sides, rows, late = take_in(self._sides(stored), self.join, came, self.lateness_us)
        outcomes = aside_left + aside_right
        for name, number in late.items():
            outcomes += [name] * number
        return self._bytes(sides), self.with_outcomes(rows, outcomes)

    def whole(self, left: Any, right: Any) -> Any:
        """Both sides at once, each with its outcomes: the join of a batch."""
        left, aside_left = _taken(left)
        right, aside_right = _taken(right)
        return self.with_outcomes(self.join.joined(left, right), aside_left + aside_right)

    def with_outcomes(self, rows: Any, outcomes: Sequence[str]) -> Any:
        """The joined rows, followed by one for each row that is left out."""
        schema = self.result_schema()
        rows = rows.append_column(OUTCOME, pa.array([TAKES_PART] * len(rows), pa.string()))
        aside = {field.name: pa.nulls(len(outcomes), field.type) for field in schema}
        aside[OUTCOME] = pa.array(outcomes, pa.string())
        return pa.concat_tables([rows.cast(schema), pa.table(aside, schema)])

    def _sides(self, stored: bytes | None) -> Sides:
        if stored is None:
            return Sides(Side(self.left.empty_table()), Side(self.right.empty_table()))
        about, tables = ENVELOPE.open(stored)
        ENVELOPE.refuse_another(about, self._about())
        both = zip(tables, about["times"], strict=True)
        return Sides(*(Side(from_ipc(table), *times) for table, times in both))

    def _bytes(self, sides: Sides) -> bytes:
        tables = [to_ipc(side.rows) for side in (sides.left, sides.right)]
        times = [[side.newest_us, side.watermark_us] for side in (sides.left, sides.right)]
        return ENVELOPE.seal({**self._about(), "times": times}, tables)

    def _about(self) -> dict[str, Any]:
        """The settings that a state must share to be continued."""
        join = self.join
        return {
            "keys": list(join.keys),
            "time": join.time,
            "tolerance_us": join.tolerance_us,
            "order": list(join.order),
            "buckets": self.count,
        }


def _time(reported_us: int) -> int | None:
    return None if reported_us == NEVER_US else reported_us


def _unpacked(packed: Iterable[bytes], schema: pa.Schema) -> tuple[Any, list[str]]:
    tables = [from_ipc(rows) for rows in packed if rows]
    return _taken(pa.concat_tables([schema.append(OUTCOME_FIELD).empty_table(), *tables]))


def _taken(table: Any) -> tuple[Any, list[str]]:
    """The rows that take part, and the outcomes of those that are left out and counted."""
    takes_part = pc.equal(table[OUTCOME], TAKES_PART)
    aside = table[OUTCOME].filter(pc.is_in(table[OUTCOME], pa.array(LEFT_OUT))).to_pylist()
    return table.filter(takes_part).drop_columns(OUTCOME), aside
