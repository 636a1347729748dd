"""Rows as Arrow streams and as CSV, and the rows that writers send."""

import io
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Declared, Topic
from sow.core.media_types import ARROW, ARROW_FILE, PARQUET
from sow.errors import ClientError
from sow.history.snapshot import Snapshot
from sow.messages.arrow import ArrowColumns, made
from sow.messages.declared import DeclaredFields
from sow.server.http import tables
from sow.server.http.tables import (
    SCHEMA,
    ColumnWriter,
    CsvTable,
    UnfitRecord,
    in_turns,
    of_documents,
    of_log,
    of_snapshot,
    rows_of,
    streamed,
    without_rows,
)
from sow.server.loop.scheduler import FairScheduler, LoopLatency
from sow.topic.rendering import Shape
from tests.history.reading import extent, log_rows
from tests.server.stand_ins import ORDERS, World, run
from tests.topic.making import put, records

NOTES = Topic("notes", "string")
PACKED = Topic("packed", "msgpack", keys=("/id",))


def with_world(work):
    """What a function makes of a world with two orders and a note, all durable."""

    async def go():
        world = World(ORDERS, NOTES, PACKED)
        world.publish(b'{"id":1,"px":1.50}', b'{"id":2,"name":"x"}')
        world.engine.publish("notes", [b'say "hi"'], world.clock.now_us(), key="n")
        run_to_completion(world.engine.removal("orders", np.array([0]), world.clock.now_us()))
        await world.runtime.durable()
        try:
            return work(world)
        finally:
            await world.runtime.close()

    return run(go())


def snapshot_of(world, topic):
    records = world.engine.topic(topic).records
    return Snapshot.take(records, records.table.live())


def records_of(topic="orders"):
    return with_world(lambda world: world.engine.topic(topic).records)


def test_rows_of_the_log_are_what_was_done_in_order():
    def read(world):
        topics = {name: world.engine.topic(name).records for name in ("orders", "notes")}
        part = extent(world.journal, 0, None, 100, topics)
        return pa.Table.from_batches(map(of_log, log_rows(world.journal, part, topics)))

    table = with_world(read)
    assert table.schema == SCHEMA
    assert table.column("bookmark").to_pylist() == [1, 2, 3, 4]
    assert table.column("op").to_pylist() == ["publish", "publish", "publish", "delete"]
    assert table.column("value").to_pylist() == [
        '{"id":1,"px":1.50}',
        '{"id":2,"name":"x"}',
        'say "hi"',
        None,
    ]


def test_a_record_as_it_stands_is_the_publish_that_made_it_so(monkeypatch):
    monkeypatch.setattr(tables, "ROWS_AT_ONCE", 1)
    batches = with_world(lambda world: list(of_snapshot(snapshot_of(world, "orders"))))
    assert [batch.num_rows for batch in batches] == [1]
    (row,) = batches[0].to_pylist()
    assert (row["bookmark"], row["topic"], row["op"]) == (2, "orders", "publish")
    assert row["value"] == '{"id":2,"name":"x"}'


@pytest.mark.parametrize(
    ("topic", "columns"),
    [("orders", {"id": [2], "name": ["x"]}), ("notes", {"value": ['say "hi"']})],
)
def test_fields_become_columns_and_what_has_none_becomes_one(topic, columns):
    batches = with_world(lambda world: made(of_documents(*in_columns(world, topic))))
    assert pa.Table.from_batches(batches).to_pydict() == columns


def in_columns(world, name):
    """The records of a topic and the columns that it has."""
    run_to_completion(world.engine.columns.making(world.engine.topic(name)))
    records = world.engine.topic(name).records
    return snapshot_of(world, name), ArrowColumns(records.message_type, records.types)


def test_of_a_field_that_is_selected_in_part_that_part_is_shown():
    def read(world):
        world.publish(b'{"id":3,"leg":{"a":1,"b":2}}')
        return made(of_documents(*in_columns(world, "orders"), Shape(select=("/id", "/leg/b"))))

    rows = pa.Table.from_batches(with_world(read)).to_pylist()
    assert [row["leg"] for row in rows] == [None, '{"b":2}']


def test_a_record_that_does_not_fit_a_later_schema_is_refused_by_its_key():
    def read(world):
        rows, columns = in_columns(world, "orders")
        records = world.engine.topic("orders").records
        schema = (Declared("/name", "date"),)
        declared = DeclaredFields(records.message_type, schema)
        columns = ArrowColumns(records.message_type, records.types, declared)
        with pytest.raises(UnfitRecord) as caught:
            made(of_documents(rows, columns))
        assert f"record {records.sow_key_of('2')} of orders" in caught.value.detail

    with_world(read)


FIRST_ROWS = """
import asyncio, sys
import pyarrow as pa
from sow.server.http.tables import warm_up
asyncio.run(warm_up())
there = set(sys.modules)
pa.array(["a"], pa.string())
print(sorted(set(sys.modules) - there))
"""


def test_the_first_rows_wait_for_no_import():
    said = subprocess.run(
        [sys.executable, "-c", FIRST_ROWS], capture_output=True, text=True, check=True
    )
    assert said.stdout == "[]\n"


def test_columns_are_made_in_turns_and_what_takes_long_in_a_thread():
    async def go():
        turns, threads = FairScheduler(LoopLatency(), lambda: None), []

        def apart():
            threads.append(threading.current_thread())
            return 5

        def making():
            yield None
            found = yield apart
            yield None
            return found + 1

        assert await in_turns(turns, "columns", making()) == 6
        assert threads != [threading.current_thread()]

    run(go())


def test_a_stream_can_be_read_whole_however_many_pieces_it_came_in():
    batch = pa.RecordBatch.from_pydict({"a": [1, 2]})
    stream = ColumnWriter(batch.schema)
    pieces = [stream.piece([batch]), stream.piece([]), stream.piece([batch, batch]), stream.end()]
    assert pieces[1] == b""
    table = pa.ipc.open_stream(io.BytesIO(b"".join(pieces))).read_all()
    assert table.column("a").to_pylist() == [1, 2] * 3


@pytest.mark.parametrize("kind", tables.IN_COLUMNS)
def test_single_rows_are_written_together(kind):
    rows = tables.SMALL_ROWS * 2 + 7
    batches = [pa.RecordBatch.from_pydict({"a": [row]}) for row in range(rows)]
    writer = ColumnWriter(batches[0].schema, kind)
    written = b"".join([*(writer.piece([one]) for one in batches), writer.end()])
    if kind == PARQUET:
        file = pq.ParquetFile(io.BytesIO(written))
        assert file.num_row_groups == 1
        assert file.read().column("a").to_pylist() == [*range(rows)]
        return
    opened = (pa.ipc.open_stream if kind == ARROW else pa.ipc.open_file)(written)
    found = opened.read_all().column("a")
    assert found.to_pylist() == [*range(rows)]
    assert [len(chunk) for chunk in found.chunks] == [tables.SMALL_ROWS, tables.SMALL_ROWS, 7]


def test_parquet_is_written_in_groups_of_some_batches():
    batch = pa.RecordBatch.from_pydict({"a": list(range(7_000)), "b": ["x" * 9] * 7_000})
    made = []
    for _ in range(2):
        writer = ColumnWriter(batch.schema, PARQUET)
        made.append([*(writer.piece([batch]) for _ in range(5)), writer.end()])
    pieces, again = made
    assert pieces == again, "the same rows are the same bytes"
    assert [bool(piece) for piece in pieces] == [True, False, True, False, False, True]
    file = pq.ParquetFile(io.BytesIO(b"".join(pieces)))
    groups = [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)]
    assert groups == [21_000, 14_000]
    assert file.read().column("a").to_pylist() == [*range(7_000)] * 5


def test_long_rows_make_groups_of_fewer():
    batch = pa.RecordBatch.from_pydict({"a": ["x" * (tables.GROUP_BYTES + 1)]})
    writer = ColumnWriter(batch.schema, PARQUET)
    file = pq.ParquetFile(io.BytesIO(writer.piece([batch, batch]) + writer.end()))
    assert file.num_row_groups == 2


@pytest.mark.parametrize("kind", tables.IN_COLUMNS)
def test_a_table_without_rows_has_its_columns(kind):
    written = b"".join(streamed([], ("key", "ts"), kind))
    read = {
        ARROW: lambda: pa.ipc.open_stream(written).read_all(),
        ARROW_FILE: lambda: pa.ipc.open_file(written).read_all(),
        PARQUET: lambda: pq.read_table(io.BytesIO(written)),
    }
    assert read[kind]().schema == tables.schema_of(("key", "ts"))


def test_what_a_writer_leaves_out_is_a_publish_without_a_key():
    rows = rows_of(records_of(), pa.table({"value": ['{"id":1}', None]}))
    assert list(rows.operations) == ["publish", "publish"]
    assert list(rows.keys) == [None, None]
    assert list(rows.bodies) == [b'{"id":1}', None]
    assert rows.stamps is None


def test_text_of_other_types_is_quoted_as_in_a_line():
    assert list(rows_of(records_of("notes"), pa.table({"value": ['a"b']})).bodies) == [b'"a\\"b"']


def test_bytes_of_a_type_of_bytes_are_as_they_are_and_texts_their_base64():
    packed = records_of("packed")
    for value in (pa.array([b"\x81", None]), pa.array([b"\x81", None], pa.large_binary())):
        assert list(rows_of(packed, pa.table({"value": value})).bodies) == [b'"gQ=="', None]
    assert list(rows_of(packed, pa.table({"value": ["gQ=="]})).bodies) == [b'"gQ=="']
    texts = pa.table({"value": pa.array([b"a=1"])})
    assert list(rows_of(records_of("notes"), texts).bodies) == [b'"a=1"']


class Column:
    """A column that notes how many of its values were made at once."""

    def __init__(self, values, made):
        self.values, self.made = values, made

    def __len__(self):
        return len(self.values)

    def slice(self, start, count):
        return Column(self.values[start : start + count], self.made)

    def to_pylist(self):
        self.made.append(len(self))
        return self.values


def test_of_a_long_column_some_values_are_made_at_once_since_no_other_thread_runs_meanwhile():
    made, values = [], list(range(2 * tables.ROWS_AT_ONCE + 1))
    assert tables._listed(Column(values, made)) == values
    assert made == [tables.ROWS_AT_ONCE, tables.ROWS_AT_ONCE, 1]


def test_stamps_are_a_number_and_a_time_of_every_row():
    times = pa.array([7], pa.timestamp("us", tz="UTC"))
    table = pa.table({"value": ["x"], "bookmark": [5], "ts": times})
    assert rows_of(records_of(), table).stamps == [(5, 7)]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"values": ["x"]}, "it must have value, and may have key, op, bookmark and ts"),
        ({"value": ["x"], "more": [1]}, "it must have value"),
        ({"value": ["x"], "bookmark": [-1], "ts": [0]}, "since 1970"),
        ({"value": ["x"], "bookmark": [None], "ts": [0]}, "a number and a time in each row"),
        ({"value": ["x"], "bookmark": ["x"], "ts": [0]}, "a number and a time in each row"),
    ],
)
def test_columns_that_make_no_rows_say_why(columns, says):
    with pytest.raises(ClientError, match=says):
        rows_of(records_of(), pa.table(columns))


def test_rows_are_taken_out_of_a_stream_and_the_others_stay():
    sink = pa.BufferOutputStream()
    table = pa.table({"value": ["a", "b", "c"]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content = bytes(sink.getvalue())
    assert without_rows(content, []) is content
    rest = pa.ipc.open_stream(without_rows(content, [0, 2])).read_all()
    assert rest.to_pydict() == {"value": ["b"]}


ROWS = {"id": 1, "a": {"b": 1.5}}, {"id": 2, "px": "x"}


def answer(meta=False, select=None, schema=(), documents=ROWS):
    target = records()
    if documents:
        put(target, *documents, seq=7)
    rows = Snapshot.take(target, target.table.live())
    declared = DeclaredFields(target.message_type, schema) if schema else None
    table = CsvTable(rows, meta, Shape(select=select), declared)
    names = run_to_completion(table.header())
    return b"".join(table.pieces(names)).decode().split("\r\n")[:-1]


def test_fields_are_columns():
    assert answer() == ["id,/a/b,px", "1,1.5,", "2,,x"]


def test_what_is_declared_comes_first_and_whole():
    schema = (Declared("/px", "string"), Declared("/a", "json"))
    assert answer(schema=schema) == ["px,a,id", ',"{""b"":1.5}",1', "x,,2"]


def test_only_what_is_selected_is_there():
    schema = (Declared("/px", "string"), Declared("/a", "json"))
    assert answer(select=("/id", "/a"), schema=schema) == ["a,id", '"{""b"":1.5}",1', ",2"]


def test_without_rows_there_is_what_is_declared_or_selected():
    schema = (Declared("/px", "string"), Declared("/a/b", "json"))
    assert answer(documents=()) == []
    assert answer(documents=(), schema=schema) == ["px,/a/b"]
    assert answer(documents=(), select=("/id", "/a/b", "/c~d/e")) == ["id,/a/b,/c~0d/e"]
    assert answer(documents=(), select=("/id", "/a"), schema=schema) == ["/a/b,id"]
    assert answer(documents=(), select=("-/id",)) == []
    assert answer(documents=(), select=("/id",), meta=True) == ["k,bm,ts,/d/id"]


def test_with_meta_the_record_is_one_field():
    head, first, _ = answer(meta=True, schema=(Declared("/px", "string"),))
    assert head == "k,bm,ts,/d/px,/d/id,/d/a/b"
    key, bookmark, ts, *fields = first.split(",")
    assert key.isdigit()
    assert (bookmark, ts[:10], fields) == ("7", "1970-01-01", ["", "1", "1.5"])


@pytest.mark.parametrize("count", [500, 501])
def test_many_columns_are_written_without_dictionaries(count):
    batch = pa.RecordBatch.from_pydict({f"f{column}": ["x", "x"] for column in range(count)})
    writer = ColumnWriter(batch.schema, PARQUET)
    file = pq.ParquetFile(io.BytesIO(writer.piece([batch]) + writer.end()))
    assert file.metadata.row_group(0).column(0).has_dictionary_page is (count == 500)
    assert file.read().to_pylist() == batch.to_pylist()
