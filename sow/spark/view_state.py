"""The buckets of a view that Spark runs: two turns per batch, functions of state and rows.

    log ──by record──> records' turn ──contributions, by group──> groups' turn ──> rows of the view

The first stores the last contribution of each record, so that it can be retracted; only a record's
last row in a batch counts. The second stores the aggregate of each group. Records are divided into
buckets by their keys, groups by theirs; the number of buckets belongs to the state, not to the
cores or partitions of a run, so that any run can continue another
(`conflated_topics.state_partitions`). State is columns, and a turn decodes only what has changed.
Nothing here uses Spark.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.envelope import Envelope
from conflated_topics.ipc import from_ipc, to_ipc
from conflated_topics.state_partitions import BUCKET, COUNT
from sow.spark.grouped_view import GROUP_KEY, SparkView, contributed

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
LOGGED = ("key", "op", "bookmark", "value")
"""The columns of the log that are read."""


class RecordsTurn(NamedTuple):
    """The result of a turn of records: the next state, and contributions for buckets of groups."""

    state: bytes
    changes: pa.Table


class GroupsTurn(NamedTuple):
    """The result of a turn of groups: the next state, and the rows to write."""

    state: bytes
    rows: pa.Table


def take_records(view: SparkView, stored: bytes | None, packed: Iterable[bytes]) -> RecordsTurn:
    """One bucket's turn of records: processes rows of the log, in any order."""
    last = _last_of_each([from_ipc(rows) for rows in packed])
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
    return RecordsTurn(kept.state(found), _table(CHANGES_PACKED, moved))


def take_changes(view: SparkView, stored: bytes | None, packed: Iterable[bytes]) -> GroupsTurn:
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
        group = view.compiled.group(key, kept.texts.get(_name(key)))
        for contribution, sign, bookmark, op in changes:
            group.change(contribution, sign, bookmark, op)
        states[_name(key)] = group.state
        if (row := group.changed_row()) is not None:
            rows.append(row)
    rows.sort(key=lambda row: row[1], reverse=True)  # as runs in which all rows do the same
    return GroupsTurn(kept.state(states), _table(VIEW_ROWS, rows))


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


def _last_of_each(tables: Sequence[pa.Table]) -> dict[str, LastRow]:
    """The last row of each record."""
    last: dict[str, LastRow] = {}
    for table in tables:
        columns = (table[name].to_pylist() for name in LOGGED)
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
