"""Rows of changes (`changeFormat` cdc): what each change made of a record, as tables take it.

The server gives the record before and after each change of the log; here they become rows: an
insert, a delete, or both images of an update. The columns of the body come first; those of the
change have a prefix. Written to a topic, such rows apply the changes (`sow.spark.writer`);
`merge_into` applies them to a table by one MERGE.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from sow.core.humanize import did_you_mean
from sow.errors import ClientError, shown
from sow.spark.columns import OF_THE_ROW, ROW, Messages, decoder, holds, requested_columns
from sow.spark.http import SourceOptions, any_option, segment

CHANGE_TYPE = "_change_type"
INSERT, PREIMAGE, POSTIMAGE, DELETE = CHANGE_TYPES = (
    "insert",
    "update_preimage",
    "update_postimage",
    "delete",
)
TYPES = pa.array(CHANGE_TYPES)
OF_THE_CHANGE = {"_commit_version": "_bookmark", "_commit_timestamp": "_ts"}
"""Columns of a change that the row has under another name."""
CHANGE = pa.schema(
    [
        ("value", pa.string()),
        (CHANGE_TYPE, pa.string()),
        ("_commit_version", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", tz="UTC")),
        ("_topic", pa.string()),
        ("_key", pa.string()),
    ]
)
"""The columns without a schema."""
BESIDE_THE_BODY = frozenset({CHANGE_TYPE, *OF_THE_CHANGE, *OF_THE_ROW})
"""Columns that are never fields of a body."""
OF_LOG = {"before": "keys"}
"""The parameter by which the log has what a change needs."""


def check_change_columns(schema: pa.Schema, options: SourceOptions) -> None:
    """Raise ClientError for a column of the change in a type that may not hold it, and for a field
    that may not be null, as all but the keys are in a delete."""
    keys: Sequence[str] | None = None
    for field in schema:
        own = CHANGE.field(field.name).type if field.name in (CHANGE_TYPE, *OF_THE_CHANGE) else None
        if own is not None and not holds(field.type, own):
            raise ClientError(
                f"the column {field.name} cannot be read as {field.type}: it belongs to the "
                "change, not to the body; read it in its own type, and cast it afterwards"
            )
        if own is None and not field.nullable and field.name not in OF_THE_ROW:
            if keys is None:
                path = f"/v1/topics/{segment(options.topic)}"
                keys = options.server.json("GET", path, expected=True).get("keys", ())
            if f"/{field.name}" not in keys:
                raise ClientError(
                    f"the column {field.name} is NOT NULL, and a delete has the key fields only: "
                    "leave out NOT NULL"
                )


class ChangeRows:
    """Makes rows of changes of rows of the log, in a schema."""

    def __init__(self, schema: pa.Schema, messages: Messages | None) -> None:
        self._schema = schema
        fields = [one for one in schema if one.name not in BESIDE_THE_BODY]
        names = {OF_THE_CHANGE.get(name, name) for name in schema.names} & OF_THE_ROW.keys()
        # Without `_op` rows that have no body would be left out.
        of_row = [
            pa.field(name, ROW.field(own).type)
            for name, own in OF_THE_ROW.items()
            if name in names or name == "_op"
        ]
        if messages is None:
            of_row = [one.with_name(OF_THE_ROW[one.name]) for one in of_row]
        self._inner = pa.schema([*fields, *of_row])
        self._is_typed = messages is not None
        self._decode = decoder(self._inner, messages)
        self.needed: Mapping[str, str] = requested_columns(self._inner, messages)
        if messages is None and "value" not in self._inner.names:
            self.needed = {"columns": ",".join([*self._inner.names, "value"])}

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The changes of some rows; records without `before` are inserts."""
        rows, types = _images(batch)
        decoded = self._decode(rows)
        columns = []
        for field in self._schema:
            if field.name == CHANGE_TYPE:
                columns.append(types.cast(field.type))
                continue
            name = OF_THE_CHANGE.get(field.name, field.name)
            name = name if self._is_typed else OF_THE_ROW.get(name, name)
            column = decoded.column(name)
            columns.append(column if name == field.name else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _images(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
    """Each change as one row, or as two for an update, with their types."""
    after = batch.column("value")
    names = [name for name in batch.schema.names if name != "before"]
    if len(names) == len(batch.schema.names):
        return batch, pa.array([INSERT] * len(batch), pa.string())
    before = batch.column("before")
    is_there = after.is_valid().to_numpy(zero_copy_only=False)
    was_there = before.is_valid().to_numpy(zero_copy_only=False)
    counts = np.where(is_there & was_there, 2, 1)
    places = np.repeat(np.arange(len(batch)), counts)
    is_last = np.ones(len(places), np.bool_)
    is_last[np.cumsum(counts)[counts == 2] - 2] = False
    is_new = is_there[places] & is_last
    kinds = np.where(is_new, np.where(was_there[places], 2, 0), np.where(is_there[places], 1, 3))
    rows = pa.Table.from_batches([batch.select(names)]).take(pa.array(places))
    at = pa.array(places)
    values = pc.if_else(pa.array(is_new), after.take(at), before.take(at))
    found = rows.set_column(names.index("value"), "value", values).combine_chunks().to_batches()
    return (found or [batch.select(names)])[0], TYPES.take(pa.array(kinds))


# Writing them.


def check_applied(given: Mapping[str, Any], schema: StructType) -> None:
    """Raise ClientError for rows of changes that say in another way, too, what they do."""
    if CHANGE_TYPE not in schema.names:
        return
    if "op" in schema.names:
        raise ClientError(
            f"the column {CHANGE_TYPE} says what each row does, and op stands beside it: leave one "
            "of them out"
        )
    for name in ("mode", "opColumn"):
        if any_option(given, name) is not None:
            raise ClientError(
                f"the column {CHANGE_TYPE} says what each row does: leave out the option {name}"
            )


def applied(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
    """The rows that are written, without preimages, and the operation of each; raises ClientError
    for another type of change."""
    types = batch.column(CHANGE_TYPE).cast(pa.string())
    unknown = types.filter(pc.invert(pc.is_in(types, TYPES)))
    if len(unknown):
        text = unknown[0].as_py()
        meant = "null" if text is None else f"{shown(text)}{did_you_mean(text, CHANGE_TYPES)}"
        raise ClientError(f"{CHANGE_TYPE} is {meant}; it must be {', '.join(CHANGE_TYPES)}")
    stays = pc.not_equal(types, PREIMAGE)
    operations = pc.if_else(pc.equal(types.filter(stays), DELETE), "delete", "publish")
    return batch.filter(stays), operations


def merge_into(df: Any, table: str, keys: Sequence[str]) -> None:
    """Apply a batch of rows of changes to a table of Delta or Iceberg by one MERGE.

    Of each key the newest change counts; a delete of a row that is not there does nothing. `keys`
    are the columns that name a row, also in the table. Raises ClientError for a missing one.
    """
    named = [keys] if isinstance(keys, str) else list(keys)
    if not named:
        raise ClientError("merge_into needs keys: the columns that name a row")
    for name in (*named, CHANGE_TYPE, "_commit_version"):
        if name not in df.columns:
            raise ClientError(f"there is no column {name!r} to merge by{_meant(name, df.columns)}")
    if taken := next((name for name in named if name in BESIDE_THE_BODY), None):
        raise ClientError(
            f"{taken} belongs to the change and is no column of the table: merge by the key "
            f"fields, or rename it in both, as .withColumnRenamed({taken!r}, 'record') does"
        )
    view = f"sow_changes_{uuid.uuid4().hex}"
    df.createOrReplaceTempView(view)
    try:
        df.sparkSession.sql(merge_statement(table, view, df.columns, named))
    finally:
        df.sparkSession.catalog.dropTempView(view)


def _meant(name: str, columns: Sequence[str]) -> str:
    if name in (CHANGE_TYPE, "_commit_version"):
        return '; read with .option("changeFormat", "cdc"), and keep it'
    return did_you_mean(name, list(columns))


def merge_statement(table: str, view: str, columns: Sequence[str], keys: Sequence[str]) -> str:
    """The MERGE that applies the changes in a view of these columns to a table."""
    written = [_quoted(name) for name in columns if name not in BESIDE_THE_BODY]
    by = [_quoted(name) for name in keys]
    others = [name for name in written if name not in by]
    pairs = [f"t.{name} = s.{name}" for name in others or by]
    lines = [
        f"MERGE INTO {table} AS t",
        f"USING (SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY {', '.join(by)} "
        # It may be read as a text, too.
        f"ORDER BY CAST(`_commit_version` AS BIGINT) DESC) AS `_newest` FROM {view} "
        f"WHERE `{CHANGE_TYPE}` <> '{PREIMAGE}') WHERE `_newest` = 1) AS s",
        "ON " + " AND ".join(f"t.{name} <=> s.{name}" for name in by),
        f"WHEN MATCHED AND s.`{CHANGE_TYPE}` = '{DELETE}' THEN DELETE",
        f"WHEN MATCHED THEN UPDATE SET {', '.join(pairs)}",
        f"WHEN NOT MATCHED AND s.`{CHANGE_TYPE}` <> '{DELETE}' THEN INSERT "
        f"({', '.join(written)}) VALUES ({', '.join(f's.{name}' for name in written)})",
    ]
    return "\n".join(lines)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
