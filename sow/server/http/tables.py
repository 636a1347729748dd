"""Rows as tables: the Arrow, Parquet and CSV that readers get, and the Arrow that writers send.

Rows of the log and of snapshots have the same six columns in Arrow: a record is represented by the
publish that produced it. Bodies are text there, as in a line to a client: JSON as published, other
types as the text of their string. A query of records has one column per field instead
(`sow.messages.arrow`). Writers send those of the six columns that say what to do.

Arrow's stream, its file and Parquet have the same columns; `ColumnWriter` writes each of them batch
by batch.

CSV has cells of the fields (`sow.messages.csv_rows`). With `meta` a row is wrapped as in JSON, so
the fields of the record are those of its field `d`.
"""

import asyncio
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from conflated_topics.recorded import from_ipc, to_ipc
from sow.core.comma_lists import comma_list, parse_select, read_list
from sow.core.containers import kept
from sow.core.cooperative import Task, untracked
from sow.core.media_types import ARROW, ARROW_FILE, PARQUET
from sow.errors import ClientError, TooLarge, clipped
from sow.history.log_rows import Images, LogRows
from sow.history.snapshot import Snapshot
from sow.messages.arrow import Apart, ArrowColumns, Making, Result, UnfitError
from sow.messages.arrow_input import read_stream
from sow.messages.base import base64_line
from sow.messages.column_types import pieces
from sow.messages.csv_rows import Cells, cells, column_of, csv_pieces, header
from sow.messages.declared import DeclaredFields
from sow.messages.json_texts import FieldTexts
from sow.server.http.negotiation import Written
from sow.server.loop.scheduler import FairScheduler
from sow.sessions.commands.commit_plan import StagedRows
from sow.topic.records import Records
from sow.topic.rendering import WHOLE, Shape

ROWS_AT_ONCE = 4_000
"""Rows of one batch: a millisecond to encode, and still few batches for the reader."""
BATCH_BYTES = 1024**2
"""Approximate bytes of bodies in one batch, where bodies are long."""
SCHEMA = pa.schema(
    [
        ("bookmark", pa.int64()),
        ("topic", pa.string()),
        ("key", pa.string()),
        ("op", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("value", pa.string()),
    ]
)
TEXT = pa.string()
RECORD_BEFORE = pa.field("before", pa.string())
"""The column of a row of the log with the record before the change."""
RowColumns: TypeAlias = Mapping[str, Callable[[], Any]]
"""How each column of some rows is made."""
SMALL_ROWS = 500
"""Rows from which on a batch is written: a reader takes as long for a batch as for some hundred."""
GROUP_ROWS = 16_000
"""Rows from which on a group of Parquet is written: some ten milliseconds, and few groups."""
GROUP_BYTES = 2 * 1024**2
"""The same in bytes, where rows are long."""
DICTIONARIES_MAX = 500
"""Columns that get dictionaries in Parquet: a group of more has few rows, and would take 50 ms."""
PARQUET_PARTS_MAX = 20_000
"""Columns of all batches of one answer; some batches are written together. Their list is made in
one step, of some forty milliseconds."""
SELECTS_KEPT = 256
"""Select lists whose decoders are cached: each takes a tenth of a millisecond to make."""
WRITTEN = ("op", "key", "value", "bookmark", "ts")
SEQ_MAX = 2**63 - 1
"""The largest value of the column `bookmark`."""
TS_US_MAX = 253_402_300_799_999_999
"""The end of the year 9999: the last one that is written as a date."""


def shape_of(requested: Mapping[str, str], topics: Iterable[Records]) -> Shape:
    """The parameter `select`: the shape of rows of these topics; raises ClientError where it cannot
    be applied to their messages."""
    if "select" not in requested:
        return WHOLE
    select = read_list(requested["select"])
    for topic in topics:
        topic.renderer.check_select(select)
    return Shape(select=tuple(map(str, select)))


def keys_shape(topic: Records) -> Shape | None:
    """The key fields of a topic's records alone; None where these have none."""
    return Shape(select=tuple(map(str, topic.keys))) if topic.keys else None


def columns_of(requested: Mapping[str, str], kind: str = ARROW) -> tuple[str, ...]:
    """The parameter `columns`: which columns a row has in Arrow, in their own order; raises
    ClientError for others, and other formats."""
    names = comma_list(requested.get("columns", ",".join(SCHEMA.names)))
    if "columns" in requested and kind not in IN_COLUMNS:
        raise ClientError("columns is for Arrow and Parquet: leave it out, or write format=arrow")
    if not names:
        raise ClientError(f"columns names none; write some of {', '.join(SCHEMA.names)}")
    if unknown := next((name for name in names if name not in SCHEMA.names), None):
        raise ClientError(
            f"columns: a row has no column {clipped(unknown)}; it has {', '.join(SCHEMA.names)}"
        )
    return tuple(name for name in SCHEMA.names if name in names)


@kept(SELECTS_KEPT)
def _documents_of(names: tuple[str, ...]) -> Callable[[Sequence[bytes]], Sequence[bytes]]:
    return FieldTexts(names).documents


def texts(topic: Records, bodies: Sequence[bytes], shape: Shape = WHOLE) -> Sequence[bytes | str]:
    """Bodies, in the given shape, as the text of the column `value`."""
    if topic.message_type.name == "json":
        names = None if shape.select is None else parse_select(shape.select).whole_fields
        if names is not None:
            return _documents_of(names)(bodies)
        return topic.renderer.shown(shape, bodies)
    return [
        value if isinstance(value, str) else text.decode()
        for text in topic.renderer.json_texts(topic.renderer.shown(shape, bodies))
        for value in (orjson.loads(text),)
    ]


def of_log(piece: LogRows, columns: Sequence[str] = SCHEMA.names) -> pa.RecordBatch:
    """Rows of the log."""

    def values() -> Sequence[bytes | str | None]:
        if not piece.bodies:
            return [None] * len(piece.keys)
        return texts(piece.topic, piece.bodies, piece.shape)

    return _batch(columns, _columns_of_log(piece, values))


def of_images(images: Images, columns: Sequence[str] = SCHEMA.names) -> pa.RecordBatch:
    """The same with the column `before`."""
    rows, before, after = images.rows, images.before, images.after
    values = _texts_of_some(rows.topic, after, rows.shape)
    stays = [None if new is None else old for old, new in zip(before, after, strict=True)]
    leaves = [old if new is None else None for old, new in zip(before, after, strict=True)]
    was = _texts_of_some(rows.topic, stays, rows.shape)
    if images.gone is not None:
        for at, text in enumerate(_texts_of_some(rows.topic, leaves, images.gone)):
            was[at] = was[at] if text is None else text
    found = _batch(columns, _columns_of_log(rows, lambda: values))
    return found.append_column(RECORD_BEFORE, pa.array(was, RECORD_BEFORE.type))


def _texts_of_some(
    topic: Records, bodies: Sequence[bytes | None], shape: Shape
) -> list[bytes | str | None]:
    """The texts of bodies; None where there is none."""
    made = iter(texts(topic, [body for body in bodies if body is not None], shape))
    return [None if body is None else next(made) for body in bodies]


def _columns_of_log(
    piece: LogRows, values: Callable[[], Sequence[bytes | str | None]]
) -> RowColumns:
    count = len(piece.keys)
    return {
        "bookmark": lambda: np.array(piece.seqs, np.int64),
        "topic": lambda: pa.repeat(pa.scalar(piece.topic.name), count),
        "key": lambda: piece.keys,
        "op": lambda: pa.repeat(pa.scalar(piece.op), count),
        "ts": lambda: np.full(count, piece.ts_us, np.int64),
        "value": values,
    }


def of_snapshot(
    snapshot: Snapshot, shape: Shape = WHOLE, columns: Sequence[str] = SCHEMA.names
) -> Iterator[pa.RecordBatch]:
    """The records of a snapshot, in the given shape."""
    for start, stop in snapshot.chunks(ROWS_AT_ONCE, BATCH_BYTES):
        yield _batch(columns, _columns_of(snapshot, shape, start, stop))


def _columns_of(snapshot: Snapshot, shape: Shape, start: int, stop: int) -> RowColumns:
    stamps, topic = snapshot.stamps, snapshot.topic
    assert stamps is not None
    sow_keys, count = stamps.sow_keys, stop - start
    numbers = sow_keys.numbers
    return {
        "bookmark": lambda: stamps.seqs[start:stop],
        "topic": lambda: pa.repeat(pa.scalar(topic.name), count),
        "key": lambda: (
            sow_keys.part(start, stop)
            if numbers is None
            else pa.array(numbers[start:stop]).cast(pa.string())
        ),
        "op": lambda: pa.repeat(pa.scalar("publish"), count),
        "ts": lambda: stamps.ts_us[start:stop],
        "value": lambda: texts(topic, snapshot.bodies.part(start, stop), shape),
    }


def _batch(columns: Sequence[str], made: RowColumns) -> pa.RecordBatch:
    """The chosen columns; the others are not made."""
    schema = schema_of(columns)
    values = [made[field.name]() for field in schema]
    arrays = [
        one if isinstance(one, pa.Array) else pa.array(one, field.type)
        for one, field in zip(values, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The schema of rows with some columns."""
    return pa.schema([SCHEMA.field(name) for name in columns])


async def warm_up() -> None:
    """Call this before the first rows: with its first array pyarrow imports pandas, if installed,
    which takes a third of a second, and Parquet takes a tenth; both are done in a thread."""
    if "pandas" not in sys.modules or "pyarrow.parquet" not in sys.modules:
        await asyncio.to_thread(_import_all)


def _import_all() -> None:
    pa.array([])
    importlib.import_module("pyarrow.parquet")


class _Parquet:
    """Parquet with groups of rows that are long enough for readers, and written in one step."""

    def __init__(self, sink: pa.NativeFile, schema: pa.Schema) -> None:
        # Imported by `warm_up`.
        parquet = importlib.import_module("pyarrow.parquet")
        self._schema = schema
        # Of all codings Snappy costs least where a topic has thousands of columns.
        self._file = parquet.ParquetWriter(
            sink, schema, compression="snappy", use_dictionary=len(schema) <= DICTIONARIES_MAX
        )
        self._group: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._group.append(batch)
        self._rows += len(batch)
        self._bytes += batch.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        self._file.write_table(pa.Table.from_batches(self._group, self._schema))
        self._group.clear()
        self._rows = self._bytes = 0

    def close(self) -> None:
        if self._rows:
            self._write_group()
        self._file.close()


def check_parts(batches: Sequence[pa.RecordBatch], kind: str) -> None:
    """Raise TooLarge for rows whose Parquet would have too many parts."""
    columns = batches[0].num_columns
    if kind == PARQUET and len(batches) * columns > PARQUET_PARTS_MAX:
        raise TooLarge(
            f"{sum(map(len, batches))} rows of {columns} columns are too many for Parquet, which "
            "lists each part of each column at its end; select fewer fields, or take .arrows"
        )


IN_COLUMNS: Mapping[str, Callable[[pa.NativeFile, pa.Schema], Any]] = {
    ARROW: pa.ipc.new_stream,
    ARROW_FILE: pa.ipc.new_file,
    PARQUET: _Parquet,
}
"""What writes the batches of each format that has columns."""


class ColumnWriter:
    """A table in a format of `IN_COLUMNS`, written piece by piece. Small batches, such as those of
    single publishes in the log, are written together."""

    def __init__(self, schema: pa.Schema = SCHEMA, kind: str = ARROW) -> None:
        self._sink = Written()
        self._file = IN_COLUMNS[kind](pa.PythonFile(self._sink, mode="w"), schema)
        self._small: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def piece(self, batches: Iterable[pa.RecordBatch]) -> bytes:
        """The next bytes, of these batches or of earlier ones."""
        for batch in batches:
            self._small.append(batch)
            self._rows += len(batch)
            self._bytes += batch.nbytes
            if self._rows >= SMALL_ROWS or self._bytes >= BATCH_BYTES:
                self._write()
        return self._sink.taken()

    def _write(self) -> None:
        small = self._small
        self._file.write_batch(small[0] if len(small) == 1 else pa.concat_batches(small))
        self._rows = self._bytes = 0
        small.clear()

    def end(self) -> bytes:
        """The last bytes."""
        if self._small:
            self._write()
        self._file.close()
        return self._sink.taken()


def streamed(
    batches: Iterable[pa.RecordBatch], columns: Sequence[str] = SCHEMA.names, kind: str = ARROW
) -> Iterator[bytes]:
    """Batches in the format `kind`, piece by piece; they are of one schema, and have these columns
    if there are none."""
    writer: ColumnWriter | None = None
    for batch in batches:
        writer = writer or ColumnWriter(batch.schema, kind)
        yield writer.piece([batch])
    yield (writer or ColumnWriter(schema_of(columns), kind)).end()


class UnfitRecord(ClientError):
    """A record from before the topic's Schema has a value that no column of it can hold."""

    reason = "does not fit the schema"
    status = 409


def of_documents(
    snapshot: Snapshot, columns: ArrowColumns, shape: Shape = WHOLE
) -> Making[list[pa.RecordBatch]]:
    """Records as columns of their fields, in steps; those without fields as one column, `value`.
    Of a field that is selected in part that part is shown.

    Raises UnfitRecord where a column is declared and a value is from before that and does not fit.
    """
    batches = []
    for start, stop in snapshot.chunks(ROWS_AT_ONCE, BATCH_BYTES):
        bodies: Sequence[bytes] = snapshot.bodies.part(start, stop)
        if shape.select is not None:
            shown: list[bytes] = untracked([])
            for some in pieces(bodies):
                shown += snapshot.topic.renderer.shown(shape, some)
                yield None
            bodies = shown
        try:
            batches.append((yield from columns.making(bodies)))
        except UnfitError as error:
            raise _unfit(snapshot, start + error.row, str(error)) from None
        yield None
    return batches or [pa.RecordBatch.from_pylist([], schema=columns.schema)]


def _unfit(snapshot: Snapshot, row: int, what: str) -> UnfitRecord:
    name, stamps = snapshot.topic.name, snapshot.stamps
    (key,) = ("",) if stamps is None else stamps.sow_keys.part(row, row + 1)
    return UnfitRecord(
        f"record {key} of {name} is from before its Schema: {what}. Publish it again, leave the "
        "field out of the Schema, or ask for JSON, which shows it as it is"
    )


async def in_turns(turns: FairScheduler, name: str, making: Making[Result]) -> Result:
    """Run steps in slices of the scheduler, and in a thread what they yield for it."""
    sent: object = None
    while True:
        apart, results = await turns.run(name, _until_apart(making, sent))
        if apart is None:
            return results[0]
        sent = await asyncio.to_thread(apart)


def _until_apart(making: Making[Result], sent: object) -> Task[tuple[Apart | None, list[Result]]]:
    """Steps until there is work for a thread, or up to the result."""
    while True:
        try:
            apart = making.send(sent)
        except StopIteration as over:
            return None, [over.value]
        if apart is not None:
            return apart, []
        sent = None
        yield


def read_rows(topic: Records, content: bytes, size_max: int) -> StagedRows:
    """The rows of a writer: `value`, and optionally `key` and `op` (default publish).

    `size_max` bounds the bytes of the stream once decompressed. Raises ClientError for anything
    else.
    """
    return rows_of(topic, read_stream(content, size_max))


def rows_of(topic: Records, table: pa.Table) -> StagedRows:
    """The same, from a table."""
    unknown = [name for name in table.column_names if name not in WRITTEN]
    if unknown or "value" not in table.column_names:
        raise ClientError(
            f"the stream has the columns {clipped(', '.join(table.column_names))}; it must have "
            "value, and may have key, op, bookmark and ts"
        )
    columns = {name: _texts_of(table, name) for name in ("key", "op") if name in table.column_names}
    nothing = [None] * len(table)
    operations = columns.get("op", ["publish"] * len(table))
    return StagedRows(
        ["publish" if operation is None else operation for operation in operations],
        columns.get("key", nothing),
        _bodies(topic, table),
        _stamps(table),
    )


def _stamps(table: pa.Table) -> list[tuple[int, int]] | None:
    if "bookmark" not in table.column_names or "ts" not in table.column_names:
        return None
    try:
        seqs = _listed(table.column("bookmark").cast(pa.int64()))
        times = table.column("ts").cast(pa.timestamp("us", tz="UTC"))
        ts_us = _listed(times.cast(pa.int64()))
    except pa.ArrowException as error:
        raise ClientError(
            f"bookmark and ts are a number and a time in each row: {clipped(str(error))}"
        ) from None
    for column, most in ((seqs, SEQ_MAX), (ts_us, TS_US_MAX)):
        if not all(value is not None and 0 <= value <= most for value in column):
            raise ClientError("bookmark and ts are a number and a time in each row, since 1970")
    return list(zip(seqs, ts_us, strict=True))


def _texts_of(table: pa.Table, name: str, kind: pa.DataType = TEXT) -> list[Any]:
    """The texts of a column, or None, in this kind."""
    try:
        return _listed(table.column(name).cast(TEXT).cast(kind))
    except pa.ArrowException as error:
        raise ClientError(f"the column {name} must hold text: {clipped(str(error))}") from None


def _listed(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column, some at a time: no other thread runs while Arrow makes them."""
    starts = range(0, len(column), ROWS_AT_ONCE)
    return [one for at in starts for one in column.slice(at, ROWS_AT_ONCE).to_pylist()]


def _bodies(topic: Records, table: pa.Table) -> list[bytes | None]:
    """The JSON texts of the bodies: where a type is binary, a column of bytes holds raw bodies, and
    a column of text their base64."""
    kind = table.column("value").type
    if topic.message_type.enc and (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        bodies = _listed(table.column("value"))
        return [None if body is None else base64_line(body) for body in bodies]
    if topic.message_type.name == "json":
        return _texts_of(table, "value", pa.binary())
    return [None if text is None else orjson.dumps(text) for text in _texts_of(table, "value")]


def without_rows(content: bytes, places: Sequence[int]) -> bytes:
    """A stream without some of its rows."""
    if not places:
        return content
    table = from_ipc(content)
    kept = np.ones(len(table), bool)
    kept[list(places)] = False
    return to_ipc(table.filter(pa.array(kept)))


META = ("k", "bm", "ts")
"""Columns of a row that are not from its record."""
RECORD = "d"


class CsvTable:
    """Rows of one topic as CSV; `declared` columns come first."""

    def __init__(
        self, rows: Snapshot, meta: bool, shape: Shape, declared: DeclaredFields | None
    ) -> None:
        self._rows = rows
        self._meta = meta
        self._shape = shape
        above = (RECORD,) if meta else ()
        select = None if shape.select is None else parse_select(shape.select)
        paths = [
            path
            for path in (declared.paths if declared else ())
            if select is None or select.may_show(path.steps[0])
        ]
        known = [path.steps for path in paths]
        if select is not None and not len(rows):
            # No row says which of them there are.
            begun = {steps[:1] for steps in known}
            known += [steps for steps in select.fields or () if steps[:1] not in begun]
        self._declared = [column_of((*above, *steps)) for steps in known]

    def header(self) -> Task[list[str]]:
        """The names of the columns, in steps; raises TooLarge."""
        first = [*META, *self._declared] if self._meta else self._declared
        return header(first, self._cells())

    def pieces(self, names: Sequence[str]) -> Iterator[bytes]:
        """The answer, piece by piece."""
        return csv_pieces(names, self._cells())

    def _cells(self) -> Iterator[list[Cells]]:
        renderer = self._rows.topic.renderer
        for start, stop in self._rows.chunks():
            columns = self._rows.part(start, stop)
            texts = renderer.json_documents(renderer.shown(self._shape, columns.bodies))
            if self._meta:
                texts = renderer.wrapped(columns, texts)
            yield [cells(text, self._declared) for text in texts]
