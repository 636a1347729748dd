"""Conflation of recorded logs: the output of a conflated topic, a table at a time.

The embedded `FocusedConflator` folds each record as it comes; this folds millions at once with the
same windows and values, since both use the records' own times. A log may come in any number of
batches. The `State` carries what later ones need: the folded row of every open window, and the keys
that were emitted.

    State + batch ──order──> key by key, by time ──cut──> windows ──fold──> rows
                                            ended: emitted, the others: the next State

The idea that hides batch boundaries: an open window's row is put in front of the batch as if it
were one more record, at the time at which the window began. There is no second way to fold.

Windows are found for all keys at once (`cut`). The idea: lay all keys end to end on one line. A
step from one record to the next is as long as the time between them, but never longer than the
interval, and the step to another key is a whole interval. Shortening changes nothing, since a gap
of an interval always ends a window; and so one sorted search finds for every record where a window
that it opens would end, without regard to keys. What remains is to walk from window to window,
which costs one look-up per window and is as fast for one hot key as for a million.

It reads no clock and no file. Batches have to come in the order of their times;
`conflated_topics.state_partitions` sorts those of a stream.

A state travels as bytes (`Envelope`): its kind, the settings it depends on, and its parts.

    magic (4)  version (2)  size of about (4)  about, as JSON  part  part  …

An envelope is decoded completely or refused with a sentence, and so is one with other settings than
the current ones. The caller defines `about` and the parts. Parts that are tables are Arrow IPC
streams, each with its schema; so are tables wherever they travel as bytes.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.folds import (
    WINDOW_END,
    WINDOW_START,
    Flags,
    Groups,
    Ints,
    Policy,
    Spec,
    accumulator,
    fold,
    sortable,
)
from conflated_topics.user_texts import parse_interval

HEADER = struct.Struct("<4sHI")
SIZES = "sizes"
"""The key in `about` that holds the sizes of the parts."""


@dataclass(frozen=True)
class Envelope:
    """One kind of state. `magic` is four bytes of its own; `version` goes up when older releases
    cannot read it any more. Messages name what it is a state `of`, and how to begin `again` without
    it."""

    magic: bytes
    version: int
    of: str
    again: str

    def seal(self, about: Mapping[str, Any], parts: Sequence[bytes]) -> bytes:
        """The bytes that `open` reads."""
        text = json.dumps({**about, SIZES: list(map(len, parts))}).encode()
        return b"".join([HEADER.pack(self.magic, self.version, len(text)), text, *parts])

    def open(self, data: bytes) -> tuple[dict[str, Any], list[bytes]]:
        """The settings of the state, and its parts; raises ValueError for invalid bytes."""
        if len(data) < HEADER.size or data[:4] != self.magic:
            raise ValueError(f"this is not the state of any {self.of}; {self.again}")
        _, version, size = HEADER.unpack_from(data)
        if version != self.version:
            raise ValueError(
                f"this state has the version {version}, and this release reads {self.version}; "
                f"use the release that wrote it, or {self.again}"
            )
        at = HEADER.size + size
        about = json.loads(data[HEADER.size : at]) if at <= len(data) else None
        if about is None or at + sum(about[SIZES]) != len(data):
            raise ValueError(f"this state was cut short; use an earlier one, or {self.again}")
        parts = []
        for length in about[SIZES]:
            parts.append(data[at : at + length])
            at += length
        return about, parts

    def refuse_another(self, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        """Raise ValueError, with both values of each, if a state was `stored` with other settings
        than are `wanted` now."""
        differing = [name for name, value in wanted.items() if stored.get(name) != value]
        if differing:
            differences = (
                f"{name} {stored.get(name)!r}, not {wanted[name]!r}" for name in differing
            )
            raise ValueError(
                f"this state belongs to another {self.of}: it has {', '.join(differences)}; "
                f"continue with its settings, or {self.again}"
            )


def to_ipc(table: Any) -> bytes:
    """A table, or a part of one, as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def from_ipc(data: bytes) -> Any:
    """The table that `to_ipc` wrote."""
    return pa.ipc.open_stream(data).read_all()


__all__ = [
    "Policy",
    "Spec",
    "State",
    "conflate_table",
    "continued",
    "key_codes",
    "parse_interval",
    "refuse_missing_keys",
    "standing_alone",
    "step",
    "times_us",
]

ENVELOPE = Envelope(b"CTRS", 1, "conflation", "start again from the log")

# Longer lines are cut in two, so that positions on them stay within 64 bits.
LINE_US_MAX = 2**62
# Beyond this one key alone could overrun the line; it is 73 thousand years.
SPAN_US_MAX = 2**61


@dataclass(frozen=True)
class State:
    """The state of a log after a batch. Immutable; `step` makes the next one.

    `stream_us` is the latest time of any record, `pending` the open windows' rows, sorted like the
    result, and `held` the keys that were emitted and not deleted since (only if a spec has
    deletes).
    """

    spec: Spec
    stream_us: int | None = None
    pending: Any = None
    held: Any = None

    def to_bytes(self) -> bytes:
        """This state, for `from_bytes`: a header, its settings, and Arrow IPC streams."""
        tables = [b"" if table is None else to_ipc(table) for table in (self.pending, self.held)]
        about = {"spec": self.spec.fingerprint(), "stream_us": self.stream_us}
        return ENVELOPE.seal(about, tables)

    @classmethod
    def from_bytes(cls, data: bytes, spec: Spec) -> "State":
        """The state that `to_bytes` wrote; raises if it was written under another spec."""
        about, tables = ENVELOPE.open(data)
        ENVELOPE.refuse_another(about["spec"], spec.fingerprint())
        return cls(
            spec, about["stream_us"], *(from_ipc(table) if table else None for table in tables)
        )


def conflate_table(table: Any, spec: Spec) -> Any:
    """A whole log at once: the input's columns at the close of each window."""
    return step(State(spec), table, release_all=True)[1]


def step(
    state: State, batch: Any, now_us: int | None = None, release_all: bool = False
) -> tuple[State, Any]:
    """Process a batch; emit the windows that ended by `now_us` or the latest record's time.

    `now_us` means that every earlier record has been processed: a later one may open a window that
    overlaps an emitted one. Raises ValueError for a record that is older than those of an earlier
    batch, since it would replace newer values, and for one without a key.
    """
    log = _Log(state, batch)
    now_us = max((time_us for time_us in (log.stream_us, now_us) if time_us is not None), default=0)
    ended = (log.ends_us <= now_us) | release_all
    vanished = ended & log.removes & ~log.held_before
    # Emitted rows come first, in the order of the result; then those that stay open.
    by_start = log.by_start()
    out, still_open = by_start[(ended & ~vanished)[by_start]], by_start[~ended[by_start]]
    rows = log.fold(np.concatenate((out, still_open)))
    pending = rows.slice(len(out)).drop_columns(WINDOW_END)
    held = log.held_after(ended) if state.spec.delete is not None else None
    return State(state.spec, log.stream_us, pending, held), rows.slice(0, len(out))


def standing_alone(records: Any, spec: Spec) -> Any:
    """Records as rows of the result without a window: each folded by itself."""
    rows = _accumulating(records, spec.operations(records.schema))
    nowhere = pa.nulls(len(rows), records.schema.field(spec.time).type)
    return rows.append_column(WINDOW_START, nowhere).append_column(WINDOW_END, nowhere)


def refuse_missing_keys(records: Any, spec: Spec) -> None:
    """Raise ValueError if a record lacks a key: unrelated records would be folded together."""
    for name in spec.keys:
        if missing := records[name].null_count:
            raise ValueError(
                f"{missing:,} records have no {name!r}, which is a key, so they belong to no "
                "record; leave them out, or choose keys that all have"
            )


def continued(kept: Any, fresh: Any) -> Any:
    """The rows of a state in the zones of the batch that follows, since a moment is the same in
    all; raises ValueError if the columns differ otherwise."""
    for at, (was, now) in enumerate(zip(kept.schema, fresh.schema, strict=False)):
        if was.name == now.name and was.type != now.type and _are_moments(was.type, now.type):
            kept = kept.set_column(at, now, kept.column(at).cast(now.type))
    _refuse_other_columns(kept.schema, fresh.schema)
    return kept


def _are_moments(*kinds: pa.DataType) -> bool:
    """Whether these are all times with a zone."""
    return all(pa.types.is_timestamp(kind) and kind.tz is not None for kind in kinds)


def _refuse_other_columns(before: Any, now: Any) -> None:
    """Raise ValueError if a batch's schema is not that of the batches before it."""
    if before == now:
        return
    if before.names != now.names and sorted(before.names) == sorted(now.names):
        raise ValueError(
            f"the batch has its columns in another order than those before it, "
            f"{', '.join(now.names)}; select them as {', '.join(before.names)}"
        )
    theirs, ours = ({f"{field.name} {field.type}" for field in schema} for schema in (before, now))
    raise ValueError(
        f"the batch has other columns than those before it: {sorted(ours - theirs)} instead "
        f"of {sorted(theirs - ours)}; give all batches the same columns in the same order"
    )


def times_us(column: Any, name: str) -> Ints:
    """A column of times in microseconds; raises ValueError if there are nulls."""
    if column.null_count:
        raise ValueError(
            f"{column.null_count} records have no time in {name!r}; leave them out or fill it"
        )
    return np.asarray(column.cast(pa.int64()), np.int64)


class _Log:
    """The records of a state and a batch, ordered key by key and cut into windows.

    `order` has row numbers of `records`; `starts` and `stops` of windows are places in it. `codes`
    numbers the keys: of the records, followed by those of the held keys.
    """

    def __init__(self, state: State, batch: Any) -> None:
        spec = state.spec
        self.spec = spec
        self.operations = spec.operations(batch.schema)
        refuse_missing_keys(batch, spec)
        fresh = _accumulating(batch, self.operations)
        fresh_us = times_us(fresh[spec.time], spec.time)
        self.stream_us = state.stream_us
        if len(fresh_us):
            _refuse_older(fresh_us, state.stream_us)
            self.stream_us = int(fresh_us.max())
        self.records, time_us = _behind_pending(state.pending, fresh, fresh_us)
        carried = len(time_us) - len(fresh_us)

        keys = self.records.select(spec.keys)
        if state.held is not None:
            keys = pa.concat_tables([keys, state.held]).unify_dictionaries()
        self.keys = keys
        self.codes = key_codes(self.keys)
        self.held = np.zeros(int(self.codes.max(initial=-1)) + 1, np.bool_)
        self.held[self.codes[len(time_us) :]] = True

        arrival = _arrival(self.records, time_us, carried, spec.order)
        self.touched = _stable_order(self.codes[arrival])
        self.order = arrival[self.touched]
        codes, time_us = self.codes[self.order], time_us[self.order]
        leads = np.diff(codes, prepend=-1) != 0
        self.deletes = opens = None
        held = np.zeros(len(codes), np.bool_)
        if spec.delete is not None:
            self.deletes = np.asarray(self.records[spec.delete].fill_null(False))[self.order]
            # Where a window may begin, its key is held if the record before was live: a delete
            # would have ended the key's last window or have been ignored.
            held[1:] = ~self.deletes[:-1]
            held[leads] = self.held[codes[leads]]
            opens = ~self.deletes | held | (self.order < carried)
        self.starts, self.stops = cut(time_us, leads, spec.interval_us, opens)
        self.starts_us, self.held_before = time_us[self.starts], held[self.starts]
        self.ends_us = self.starts_us + spec.interval_us

    @property
    def removes(self) -> Flags:
        """Which windows end in a delete."""
        if self.deletes is None:
            return np.zeros(len(self.stops), np.bool_)
        return self.deletes[self.stops - 1]

    def by_start(self) -> Ints:
        """The windows, sorted by their beginnings, then by the times of their last records."""
        window_at = np.full(len(self.order), -1, np.int64)
        window_at[self.touched[self.stops - 1]] = np.arange(len(self.stops))
        by_last = window_at[window_at >= 0]
        return by_last[np.argsort(self.starts_us[by_last], kind="stable")]

    def fold(self, wanted: Ints) -> Any:
        """The rows of the wanted windows, with their times."""
        groups = self._groups(wanted)
        rows = {
            name: fold(self.records[name], operation, groups)
            for name, operation in self.operations.items()
        }
        kind = rows[self.spec.time].type
        rows[WINDOW_START] = pa.array(self.starts_us[wanted]).cast(kind)
        rows[WINDOW_END] = pa.array(self.ends_us[wanted]).cast(kind)
        return pa.table(rows)

    def _groups(self, wanted: Ints) -> Groups:
        """The rows that each window folds: only those after its last delete."""
        if self.deletes is None:
            return Groups(self.order, self.starts, wanted)
        lasts = self.stops - 1
        places = np.arange(len(self.order))
        latest = np.maximum.accumulate(np.where(self.deletes, places, -1))[lasts]
        # A delete that is a window's last record is the result of the window.
        begins = np.maximum(self.starts, np.where(latest == lasts, latest, latest + 1))
        # One up where a fold begins and one down where it ends: inside, the sum is one.
        edges = np.zeros(len(self.order) + 1, np.int8)
        edges[begins] += 1
        edges[self.stops] -= 1
        inside = np.cumsum(edges[:-1], dtype=np.int8) > 0
        sizes = self.stops - begins
        return Groups(self.order[inside], np.cumsum(sizes) - sizes, wanted)

    def held_after(self, ended: Flags) -> Any:
        """The keys that are held once these windows have been emitted."""
        held = self.held.copy()
        # Windows stand in the order of their times for each key, so its last one decides.
        held[self.codes[self.order[self.starts[ended]]]] = ~self.removes[ended]
        row_of = np.zeros(len(held), np.int64)
        row_of[self.codes] = np.arange(len(self.codes))
        return self.keys.take(pa.array(row_of[held])).combine_chunks()


def _accumulating(batch: Any, operations: dict[str, Any]) -> Any:
    """The batch as a first fold of one record each: widened sums, counts of one."""
    columns = []
    for field in batch.schema:
        operation = operations[field.name]
        column = batch[field.name]
        if operation == "count":
            column = pa.array(np.ones(len(batch), np.int64))
        columns.append(column.cast(accumulator(column.type, operation)))
    return pa.table(columns, names=batch.schema.names)


def _behind_pending(pending: Any, fresh: Any, fresh_us: Ints) -> tuple[Any, Ints]:
    """Pending rows and then the batch, and their effective times."""
    if pending is None:
        return fresh.unify_dictionaries().combine_chunks(), fresh_us
    rows = continued(pending.drop_columns(WINDOW_START), fresh)
    time_us = np.concatenate((times_us(pending[WINDOW_START], WINDOW_START), fresh_us))
    return pa.concat_tables([rows, fresh]).unify_dictionaries().combine_chunks(), time_us


def key_codes(keys: Any) -> Ints:
    """A number for each row, equal for equal keys."""
    codes: Any = None
    for column in keys.columns:
        own, count = _encoded(column)
        # Renumbered densely after each column, products stay within 64 bits.
        codes = own if codes is None else _encoded(pa.chunked_array([codes * count + own]))[0]
    return np.asarray(codes, np.int64)


def _encoded(column: Any) -> tuple[Ints, int]:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        # As in Spark: -0.0 is the key 0.0, and NaN is one key.
        column = pc.add(column, pa.scalar(0.0, column.type))
        column = pc.if_else(pc.is_nan(column), pa.scalar(np.nan, column.type), column)
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices, np.int64), len(encoded.dictionary)


def _arrival(records: Any, time_us: Ints, carried: int, order: tuple[str, ...]) -> Ints:
    """Row numbers in the order of folding: pending rows first, in their order."""
    columns = [sortable(records[name])[carried:] for name in reversed(order)]
    fresh = np.lexsort((*columns, time_us[carried:])) + carried
    return np.concatenate((np.arange(carried), fresh))


def _stable_order(codes: Ints) -> Ints:
    # Sorting by 16 bits is linear in numpy, and codes are below 2**31: two passes do.
    order = np.argsort(codes.astype(np.uint16), kind="stable")
    if codes.max(initial=0) < 2**16:
        return order
    return order[np.argsort((codes[order] >> 16).astype(np.uint16), kind="stable")]


def _refuse_older(fresh_us: Ints, stream_us: int | None) -> None:
    if stream_us is not None and (older := int(np.count_nonzero(fresh_us < stream_us))):
        raise ValueError(
            f"{older:,} records are older than those of an earlier batch; put records in the order "
            "of their times first, as conflated_topics.state_partitions does"
        )


# Windows.


def cut(
    time_us: Ints, leads: Flags, interval_us: int, opens: Flags | None = None
) -> tuple[Ints, Ints]:
    """First record of every window, and the record after its last one.

    `leads` marks the first record of each key, `opens` those that may open a window (None: all);
    records before one that may belong to no window.
    """
    if not len(time_us):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    ends = _ends(time_us, leads, interval_us)
    following = ends if opens is None else _next_open(opens)[ends]
    first = 0 if opens is None else int(_next_open(opens)[0])
    starts = _walk(following, first)
    return starts, ends[starts]


def _ends(time_us: Ints, leads: Flags, interval_us: int) -> Ints:
    """For every record, the end of the window that it would open."""
    span_us = int(time_us.max()) - int(time_us.min())
    if span_us > SPAN_US_MAX:
        raise ValueError(
            "the times lie more than 73,000 years apart; leave out records whose time is wrong"
        )
    # An interval longer than everything ends where everything does.
    reach_us = min(interval_us, span_us + 1)
    steps = np.diff(time_us, prepend=time_us[0])
    np.minimum(steps, reach_us, out=steps)
    steps[leads] = reach_us
    if steps.sum(dtype=np.float64) > LINE_US_MAX:
        return _ends_by_halves(time_us, leads, interval_us)
    line = np.cumsum(steps)
    return np.searchsorted(line, line + reach_us)


def _ends_by_halves(time_us: Ints, leads: Flags, interval_us: int) -> Ints:
    keys = np.flatnonzero(leads)
    middle = int(keys[len(keys) // 2])
    left = _ends(time_us[:middle], leads[:middle], interval_us)
    right = _ends(time_us[middle:], leads[middle:], interval_us)
    return np.concatenate((left, right + middle))


def _next_open(opens: Flags) -> Ints:
    """For every record and for the end, the first record from there on that opens a window."""
    count = len(opens)
    own = np.append(np.where(opens, np.arange(count), count), count)
    return np.minimum.accumulate(own[::-1])[::-1]


def _walk(following: Ints, first: int) -> Ints:
    # Where a window starts depends on where the one before ended, so this is a loop. A memory
    # view gives plain integers, which makes it several times faster than indexing an array.
    jump, count = np.ascontiguousarray(following).data, len(following)
    starts, at = [], first
    while at < count:
        starts.append(at)
        at = jump[at]
    return np.array(starts, np.int64)
