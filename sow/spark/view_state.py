"""The buckets of a view that Spark runs: two turns in each batch, functions of state and rows.

    log ──by record──> records' turn ──contributions, by group──> groups' turn ──> rows of the view

The first keeps of each record what it has last contributed, so that it can be taken back; of a
batch only a record's last row counts. The second keeps what each group has come to. Records are
divided into buckets by their keys, groups by theirs; how many there are belongs to the state, and
not to the cores or partitions of a run, so that any run goes on where another ended
(`conflated_topics.state_partitions`). What is kept is columns, of which a turn takes apart only
what has changed. Nothing here knows of Spark.
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

BEGIN_AGAIN = "remove pipelines/NAME of the data directory, and the view is made anew"
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
"""What has come (1) or gone (-1), and the row of the log by which it has."""
CHANGES_PACKED = pa.schema([(BUCKET, pa.int32()), ("rows", pa.binary())])
"""Changes on their way: a bucket of groups, and what it is told."""
VIEW_ROWS = pa.schema([("key", pa.string()), ("op", pa.string()), ("value", pa.string())])
"""What the server takes: the row of a group, or that it is gone."""
LOGGED = ("key", "op", "bookmark", "value")
"""The columns of the log that are read."""


class RecordsTurn(NamedTuple):
    """What comes of a turn of records: the next state, and what each bucket of groups is told."""

    state: bytes
    changes: pa.Table


class GroupsTurn(NamedTuple):
    """What comes of a turn of groups: the next state, and the rows to be written."""

    state: bytes
    rows: pa.Table


def take_records(view: SparkView, stored: bytes | None, packed: Iterable[bytes]) -> RecordsTurn:
    """One bucket's turn of records: rows of the log have come for it, in any order."""
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
    told = [(bucket, to_ipc(_table(CHANGES, some))) for bucket, some in sorted(changes.items())]
    return RecordsTurn(kept.state(found), _table(CHANGES_PACKED, told))


def take_changes(view: SparkView, stored: bytes | None, packed: Iterable[bytes]) -> GroupsTurn:
    """One bucket's turn of groups: contributions have come and gone, in any order.

    What goes has come in an earlier batch, since a record is told of once in each.
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
    told = []
    for key, changes in came.items():
        group = view.compiled.group(key, kept.texts.get(_name(key)))
        for contribution, sign, bookmark, op in changes:
            group.change(contribution, sign, bookmark, op)
        states[_name(key)] = group.state
        if (row := group.told()) is not None:
            told.append(row)
    told.sort(key=lambda row: row[1], reverse=True)  # as runs in which all rows do the same
    return GroupsTurn(kept.state(states), _table(VIEW_ROWS, told))


class KeptTexts:
    """What a bucket keeps, a text for each name: `texts` are those of the names that a turn is
    about. All others stay columns, since a bucket may keep very many."""

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
        """All that is kept from now on, with these texts of the turn's names."""
        some = _table(KEPT, [(name, text) for name, text in texts.items() if text is not None])
        table = pa.concat_tables([self._others, some]).combine_chunks()
        return self._envelope.seal(STATE_OF, [to_ipc(table)])


class LastRow(NamedTuple):
    """The last row of a record in a batch; without a message where it has taken the record away."""

    bookmark: int
    op: str
    value: str | None


def _last_of_each(tables: Sequence[pa.Table]) -> dict[str, LastRow]:
    """By record its last row."""
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
    """A group's key as a text that can be kept: it may have half a surrogate pair in it."""
    return json.dumps(key)


def _table(schema: pa.Schema, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
