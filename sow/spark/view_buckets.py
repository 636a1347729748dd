"""The buckets of a view that Spark runs: two turns in each batch, functions of state and rows.

    log ──by record──> records' turn ──contributions, by group──> groups' turn ──> rows of the view

The first keeps of each record what it has last contributed, so that it can be taken back; of a
batch only a record's last row counts. The second keeps what each group has come to. Records are
divided into buckets by their keys, groups by theirs; how many there are belongs to the state, and
not to the cores or partitions of a run, so that any run goes on where another ended
(`conflated_topics.buckets`). What is kept is bytes, of which a turn reads and writes all, and takes
apart only what has changed. Nothing here knows of Spark.
"""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa

from conflated_topics.buckets import BUCKET, COUNT
from conflated_topics.envelope import Envelope
from conflated_topics.ipc import from_ipc, to_ipc
from sow.spark.grouped_view import GROUP_KEY, KeptGroup, SparkView, contributed

BEGIN_AGAIN = "remove pipelines/NAME of the data directory, and the view is made anew"
RECORDS_STATE = Envelope(b"SOWR", 1, "view", BEGIN_AGAIN)
GROUPS_STATE = Envelope(b"SOWG", 1, "view", BEGIN_AGAIN)
KEPT = pa.schema([("name", pa.string()), ("kept", pa.string())])
CHANGES = pa.schema([("sign", pa.int8()), ("contribution", pa.string())])
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
    kept = _opened(RECORDS_STATE, stored)
    last = _last_of_each([from_ipc(rows) for rows in packed])
    there = [key for key, (_, text) in last.items() if text is not None]
    texts = [text for _, text in last.values() if text is not None]
    found = dict(zip(there, view.compiled.contributions(texts), strict=True))
    changes: dict[int, list[tuple[int, str]]] = {}
    for key in last:
        before, after = kept.get(key), found.get(key)
        if before == after:
            continue
        for sign, contribution in ((-1, before), (1, after)):
            if contribution is not None:
                bucket = _bucket_of(contributed(contribution)[GROUP_KEY])
                changes.setdefault(bucket, []).append((sign, contribution))
        if after is None:
            del kept[key]
        else:
            kept[key] = after
    told = [(bucket, to_ipc(_table(CHANGES, some))) for bucket, some in sorted(changes.items())]
    return RecordsTurn(_sealed(RECORDS_STATE, kept), _table(CHANGES_PACKED, told))


def take_changes(view: SparkView, stored: bytes | None, packed: Iterable[bytes]) -> GroupsTurn:
    """One bucket's turn of groups: contributions have come and gone, in any order.

    What goes has come in an earlier batch, since a record is told of once in each.
    """
    compiled, groups = view.compiled, dict[str, KeptGroup]()
    kept = _opened(GROUPS_STATE, stored)
    for rows in packed:
        table = from_ipc(rows)
        columns = (table[name].to_pylist() for name in CHANGES.names)
        for sign, text in zip(*columns, strict=True):
            contribution = contributed(text)
            key = contribution[GROUP_KEY]
            group = groups.get(key)
            if group is None:
                group = groups[key] = compiled.group(key, kept.get(_name(key)))
            group.change(contribution, sign)
    for key, group in groups.items():
        state = group.state
        if state is None:
            kept.pop(_name(key), None)
        else:
            kept[_name(key)] = state
    told = [row for group in groups.values() if (row := group.told()) is not None]
    told.sort(key=lambda row: row[1], reverse=True)  # what is published in one run, then what goes
    return GroupsTurn(_sealed(GROUPS_STATE, kept), _table(VIEW_ROWS, told))


def _last_of_each(tables: Sequence[pa.Table]) -> dict[str, tuple[int, str | None]]:
    """By record the bookmark and message of its last row, None where that has taken it away."""
    last: dict[str, tuple[int, str | None]] = {}
    for table in tables:
        columns = (table[name].to_pylist() for name in LOGGED)
        for key, op, bookmark, value in zip(*columns, strict=True):
            found = last.get(key)
            if found is None or bookmark > found[0]:
                last[key] = (bookmark, value if op == "publish" else None)
    return last


def _bucket_of(key: str) -> int:
    return crc32(key.encode("utf-8", "surrogatepass")) % COUNT


def _name(key: str) -> str:
    """A group's key as a text that can be kept: it may have half a surrogate pair in it."""
    return json.dumps(key)


def _opened(envelope: Envelope, stored: bytes | None) -> dict[str, str]:
    if stored is None:
        return {}
    about, (part,) = envelope.open(stored)
    envelope.refuse_another(about, {"buckets": COUNT})
    table = from_ipc(part)
    return dict(zip(table["name"].to_pylist(), table["kept"].to_pylist(), strict=True))


def _sealed(envelope: Envelope, kept: dict[str, str]) -> bytes:
    return envelope.seal({"buckets": COUNT}, [to_ipc(_table(KEPT, list(kept.items())))])


def _table(schema: pa.Schema, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
