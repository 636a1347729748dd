"""A view with Spark as its engine: the log of a topic as a stream, aggregated to rows of groups.

    log ──by record──> records' turn ──contributions, by group──> groups' turn ──> rows of the view

A record *contributes* to the group of its values: a contribution is a text, which can be retracted
later exactly as it was added. A group is the sum of all contributions, stored as a text too.
Reading records, arithmetic and writing rows are those of the server's own views
(`sow.topic.views`), so that rows are the same, byte for byte.

Two stateful operators follow one another: the rows of a batch reflect the whole batch, and both
states belong to one checkpoint. The first stores the last contribution of each record, so that it
can be retracted; only a record's last row in a batch counts. The second stores the aggregate of
each group. Records are divided into buckets by their keys, groups by theirs; the number of buckets
belongs to the state, not to the cores or partitions of a run, so that any run can continue another
(`conflated_topics.state_partitions`). State is columns, and a turn decodes only what has changed.
Turns are functions of state and rows, and do not use Spark.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.recorded import Envelope, from_ipc, to_ipc
from conflated_topics.spark.conflation import Turn, handed_on, state_of, turned, with_bucket
from conflated_topics.state_partitions import BUCKET, COUNT, divided, gathered
from sow.core.definitions import MessageTypeOptions, View
from sow.core.keys import sow_key
from sow.core.lossless_numbers import LosslessNumber
from sow.core.paths import Value
from sow.expressions import compile_filter, compile_projection
from sow.spark.columns import ROW
from sow.spark.pipeline_conflation import body_of, kind_of, text_of
from sow.topic.views.accumulators import Keeping
from sow.topic.views.groups import RowGroup, grouped_rows
from sow.topic.views.view import RowWriter

VIEWS_KEPT = 8
"""Compiled views cached in each Python of Spark's: a run has one."""
DIGITS = "digits"
"""The name that marks a number with all its digits, which JSON cannot represent otherwise."""
GROUP_KEY, GROUP_TEXTS, SPELLED, ARGUMENTS = range(4)
"""The parts of a contribution: the group's key, the texts and values to group by, and a value for
each argument of the projection."""


@dataclass(frozen=True)
class SparkView:
    """One view of records of the type `source_type`. Can be pickled; it compiles where it is
    used."""

    definition: View
    source_type: str
    kinds: tuple[MessageTypeOptions, ...] = ()

    @property
    def compiled(self) -> "CompiledView":
        """The compiled view, once in each process."""
        return _compiled(self)

    def purpose(self, filled_bookmark: str) -> str:
        """The identity of a matching state: everything that contributions depend on, and the topic
        that holds the rows from this bookmark on."""
        one = self.definition
        parts = [one.underlyings, one.projection, one.grouping, one.filter, one.domain]
        kinds = [repr(kind) for kind in self.kinds]
        return json.dumps([*parts, one.message_type, self.source_type, kinds, filled_bookmark])


class CompiledView:
    """Computes contributions of records, and groups."""

    def __init__(self, view: SparkView) -> None:
        definition = view.definition
        types = dict.fromkeys(definition.underlyings, view.source_type)
        self._projection = compile_projection(definition.projection, definition.grouping, types)
        self._keeping = Keeping(self._projection)
        self._paths = tuple(source.path for source in self._projection.inputs)
        self._filter = None if definition.filter is None else compile_filter(definition.filter)
        self._source = kind_of(view.source_type, view.kinds)
        self._kind = kind_of(definition.message_type, view.kinds)
        self._write = RowWriter(self._kind, self._projection, self._keeping)
        self._domain = definition.domain

    def contributions(self, texts: Sequence[str]) -> list[str | None]:
        """The contributions of records with these messages; None for a record that the view's
        filter excludes, or whose grouping values are too long."""
        bodies = [body_of(self._source, text) for text in texts]
        if not bodies:
            return []
        rows = grouped_rows(
            self._projection, self._source.decoder(self._paths).columns(bodies), len(bodies)
        )
        grouped = list(zip(*rows.texts, strict=True))
        inside = self._inside(bodies)
        columns = zip(inside, rows.keys, grouped, rows.spelled, rows.values(), strict=True)
        return [
            _as_text((key, texts, spelled, values)) if is_in and key is not None else None
            for is_in, key, texts, spelled, values in columns
        ]

    def _inside(self, bodies: Sequence[bytes]) -> Sequence[bool]:
        """Which messages pass the filter."""
        if self._filter is None:
            return [True] * len(bodies)
        columns = self._source.decoder(self._filter.paths).columns(bodies)
        return self._filter.matches(columns, len(bodies))

    def empty(self, texts: Sequence[str]) -> RowGroup:
        """A group of records that share these texts."""
        return RowGroup(self._keeping.group(), tuple([text or None for text in texts]))

    def row(self, group: RowGroup) -> str:
        """The row of a group, as text."""
        return text_of(self._kind, self._write([group])[0])

    def sow_key(self, key: str) -> str:
        """The SowKey of a group's row."""
        return str(sow_key(self._domain, key))


class KeptGroup:
    """A group that contributions enter and leave. It does not know which came first or changed
    last, so it supports only aggregates that ignore order
    (`sow.expressions.functions.ORDERLESS`)."""

    def __init__(self, view: CompiledView, key: str, state: str | None) -> None:
        self._view = view
        self._key = key
        self._group: RowGroup | None = None
        self._left: tuple[int, str] = (0, "match")
        """The bookmark and operation of the last removed contribution."""
        if state is not None:
            self._texts, kept = _of_text(state)
            self._group = view.empty(self._texts)
            self._group.restore(kept)
        self._before = self.row

    def change(
        self, contribution: Sequence[Any], sign: int, bookmark: int = 0, op: str = "publish"
    ) -> None:
        """Add (1) or retract (-1) a contribution, by the row of the log at a bookmark, which has
        done `op` to its record."""
        if sign < 0 and bookmark > self._left[0]:
            # A record that exists but is not in the group has moved, or left by the filter.
            self._left = bookmark, "match" if op == "publish" else op
        if self._group is None:
            self._texts = contribution[GROUP_TEXTS]
            self._group = self._view.empty(self._texts)
        spelled = contribution[SPELLED]
        self._group.change(
            contribution[ARGUMENTS], None if spelled is None else tuple(spelled), sign
        )

    @property
    def row(self) -> str | None:
        """The row of the group; None without records."""
        group = self._group
        return None if group is None or not group.count else self._view.row(group)

    @property
    def state(self) -> str | None:
        """The text to store; None: nothing."""
        group = self._group
        if group is None or not group.count:
            return None
        return _as_text((self._texts, group.state()))

    def changed_row(self) -> tuple[str, str, str | None] | None:
        """The change of its row since it was stored: SowKey, operation and text; None if it is
        unchanged."""
        row = self.row
        if row == self._before:
            return None
        return self._view.sow_key(self._key), self._left[1] if row is None else "publish", row


def contributed(text: str) -> Sequence[Any]:
    """The parts of a contribution."""
    parts: list[Any] = _of_text(text)
    return parts


def _as_text(value: Any) -> str:
    return json.dumps(_plain(value), separators=(",", ":"))


def _plain(value: Any) -> Any:
    """A value as JSON, which distinguishes values of Python: 1, 1.0, true, NaN and infinities."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return {DIGITS: value.text} if isinstance(value, LosslessNumber) else value


def _of_text(text: str) -> Any:
    return json.loads(text, object_hook=_digits)


def _digits(found: dict[str, str]) -> Value:
    return LosslessNumber(found[DIGITS])


@lru_cache(maxsize=VIEWS_KEPT)
def _compiled(view: SparkView) -> CompiledView:
    return CompiledView(view)


BEGIN_AGAIN = "remove pipelines/NAME of the data directory, and the view is built again"
RECORDS_STATE = Envelope(b"SOWR", 1, "view", BEGIN_AGAIN)
GROUPS_STATE = Envelope(b"SOWG", 1, "view", BEGIN_AGAIN)
STATE_OF = {"buckets": COUNT}
KEPT = pa.schema([("name", pa.string()), ("kept", pa.string())])
CHANGES = pa.schema(
    [
        ("sign", pa.int8()),
        ("contribution", pa.string()),
        ("op", pa.string()),
        ("bookmark", pa.int64()),
    ]
)
"""Added (1) or retracted (-1), and the row of the log that caused it."""
CHANGES_PACKED = pa.schema([(BUCKET, pa.int32()), ("rows", pa.binary())])
"""Contributions on their way to a bucket of groups."""
VIEW_ROWS = pa.schema([("key", pa.string()), ("op", pa.string()), ("value", pa.string())])
"""Rows for the server: the row of a group, or its removal."""
LOGGED = pa.schema([ROW.field(name) for name in ("key", "op", "bookmark", "value")])
"""The columns of the log that are read."""
PACKED = f"{BUCKET} int, rows binary"
CHECKED = "spark.sql.streaming.unsupportedOperationCheck"


class Turned(NamedTuple):
    """The result of a turn: the next state, and rows: contributions for buckets of groups, or rows
    of the view."""

    state: bytes
    rows: pa.Table


def take_records(view: SparkView, stored: bytes | None, packed: Iterable[bytes]) -> Turned:
    """One bucket's turn of records: processes rows of the log, in any order."""
    last = _last_of_each(map(from_ipc, packed))
    kept = KeptTexts(RECORDS_STATE, stored, last)
    there = {key: row.value for key, row in last.items() if row.value is not None}
    contributions = view.compiled.contributions([*there.values()])
    found = dict(zip(there, contributions, strict=True))
    changes: dict[int, list[tuple[int, str, str, int]]] = {}
    for key, row in last.items():
        before, after = kept.texts.get(key), found.get(key)
        if before == after:
            continue
        for sign, contribution in ((-1, before), (1, after)):
            if contribution is not None:
                bucket = _bucket_of(contributed(contribution)[GROUP_KEY])
                change = sign, contribution, row.op, row.bookmark
                changes.setdefault(bucket, []).append(change)
    moved = [(bucket, to_ipc(_table(CHANGES, some))) for bucket, some in sorted(changes.items())]
    return Turned(kept.state(found), _table(CHANGES_PACKED, moved))


def take_changes(view: SparkView, stored: bytes | None, packed: Iterable[bytes]) -> Turned:
    """One bucket's turn of groups: processes contributions, in any order.

    A retracted contribution comes from an earlier batch, since a record contributes once per batch.
    """
    came: dict[str, list[tuple[Sequence[Any], int, int, str]]] = {}
    for table in map(from_ipc, packed):
        columns = (table[name].to_pylist() for name in CHANGES.names)
        for sign, text, op, bookmark in zip(*columns, strict=True):
            contribution = contributed(text)
            change = contribution, sign, bookmark, op
            came.setdefault(contribution[GROUP_KEY], []).append(change)
    kept = KeptTexts(GROUPS_STATE, stored, map(_name, came))
    states: dict[str, str | None] = {}
    rows = []
    for key, changes in came.items():
        group = KeptGroup(view.compiled, key, kept.texts.get(_name(key)))
        for contribution, sign, bookmark, op in changes:
            group.change(contribution, sign, bookmark, op)
        states[_name(key)] = group.state
        if (row := group.changed_row()) is not None:
            rows.append(row)
    rows.sort(key=lambda row: row[1], reverse=True)  # as runs in which all rows do the same
    return Turned(kept.state(states), _table(VIEW_ROWS, rows))


class KeptTexts:
    """The state of a bucket, a text for each name: `texts` are those of the names in this turn. All
    others stay columns, since a bucket may hold very many."""

    def __init__(self, envelope: Envelope, stored: bytes | None, names: Iterable[str]) -> None:
        self._envelope = envelope
        table = KEPT.empty_table() if stored is None else self._opened(stored)
        touched = pc.is_in(table["name"], value_set=pa.array(list(names), pa.string()))
        self._others = table.filter(pc.invert(touched))
        some = table.filter(touched).to_pydict()
        self.texts: dict[str, str] = dict(zip(some["name"], some["kept"], strict=True))

    def _opened(self, stored: bytes) -> pa.Table:
        about, (part,) = self._envelope.open(stored)
        self._envelope.refuse_another(about, STATE_OF)
        return from_ipc(part)

    def state(self, texts: Mapping[str, str | None]) -> bytes:
        """The next state, with these texts for the turn's names."""
        some = _table(KEPT, [(name, text) for name, text in texts.items() if text is not None])
        table = pa.concat_tables([self._others, some]).combine_chunks()
        return self._envelope.seal(STATE_OF, [to_ipc(table)])


class LastRow(NamedTuple):
    """The last row of a record in a batch; without a message if it has removed the record."""

    bookmark: int
    op: str
    value: str | None


def _last_of_each(tables: Iterable[pa.Table]) -> dict[str, LastRow]:
    """The last row of each record."""
    last: dict[str, LastRow] = {}
    for table in tables:
        columns = (table[name].to_pylist() for name in LOGGED.names)
        for key, op, bookmark, value in zip(*columns, strict=True):
            found = last.get(key)
            if found is None or bookmark > found.bookmark:
                last[key] = LastRow(bookmark, op, value if op == "publish" else None)
    return last


def _bucket_of(key: str) -> int:
    return crc32(key.encode("utf-8", "surrogatepass")) % COUNT


def _name(key: str) -> str:
    """A group's key as a text that can be stored: it may contain half a surrogate pair."""
    return json.dumps(key)


def _table(schema: pa.Schema, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def rows_of_groups(frame: Any, view: SparkView) -> Any:
    """The log of a topic as changed rows of a view."""
    logged = with_bucket(frame.select(*LOGGED.names), ["key"], COUNT)
    packed = logged.mapInArrow(_packed, PACKED)
    changes = turned(packed, _turns(take_records, view), CHANGES_PACKED)
    return turned(changes, _turns(take_changes, view), VIEW_ROWS)


@contextmanager
def following_operators(spark: Any) -> Iterator[None]:
    """Allow queries in which one stateful operator follows another.

    Spark refuses two that are written in Python, because a query has one watermark, and output of
    the first may be late for the second. Neither of these operators uses time.
    """
    before = spark.conf.get(CHECKED)
    spark.conf.set(CHECKED, "false")
    try:
        yield
    finally:
        spark.conf.set(CHECKED, before)


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of one partition, packed for their buckets."""
    table, places = gathered(batches, LOGGED)
    some = [(at, rows) for at, rows in enumerate(divided(table, places, COUNT)) if rows]
    if some:
        buckets, packed = zip(*some, strict=True)
        columns = [pa.array(buckets, pa.int32()), pa.array(packed, pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, schema=CHANGES_PACKED)


def _turns(
    take: Callable[[SparkView, bytes | None, Iterable[bytes]], Turned], view: SparkView
) -> Turn:
    def turn(_bucket: Any, frames: Iterable[Any], stored: Any) -> Iterator[Any]:
        came = [bytes(rows) for frame in frames for rows in frame["rows"].tolist()]
        done = take(view, state_of(stored), came)
        stored.update((done.state,))
        yield from handed_on(done.rows)

    return turn
