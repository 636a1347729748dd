"""Arrow streams from outside: what is not wholly right is refused before a value of it is read."""

import struct

import pyarrow as pa
import pytest

from sow.errors import ClientError, TooLarge
from sow.messages import arrow_input
from sow.messages.arrow_input import END, read_stream

SIZE_MAX = 1024**2
VALUES = [f'{{"id":"{number:08d}"}}' for number in range(4)]
WIDTH = len(VALUES[0])
TABLE = pa.table({"value": VALUES, "op": ["publish", None, "", "delete"], "key": [1, 2, None, 4]})


def stream(table, rows=None, **options):
    sink = pa.BufferOutputStream()
    how = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, table.schema, options=how) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue().to_pybytes()


def replaced(content, kind, old, new):
    """The stream with some numbers exchanged for others."""
    old, new = struct.pack(kind, *old), struct.pack(kind, *new)
    assert content.count(old) == 1
    return content.replace(old, new)


def refusal(content, size_max=SIZE_MAX, kind=ClientError):
    with pytest.raises(kind) as caught:
        read_stream(content, size_max)
    assert len(caught.value.detail) < 400
    return caught.value.detail


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("rows", [None, 1, 3])
def test_a_stream_is_read_as_it_was_written(compression, rows):
    assert read_stream(stream(TABLE, rows, compression=compression), SIZE_MAX) == TABLE
    assert len(read_stream(stream(TABLE.slice(0, 0), compression=compression), SIZE_MAX)) == 0


@pytest.mark.parametrize(
    "offsets",
    [
        (0, -100_000, 2 * WIDTH, 3 * WIDTH, 4 * WIDTH),
        (0, WIDTH, 2 * WIDTH, 3 * WIDTH, 2**31 - 1),
        (0, WIDTH, 2 * WIDTH, 3 * WIDTH, 4 * WIDTH + 1000),
        (64, 64 + WIDTH, 64 + 2 * WIDTH, 64 + 3 * WIDTH, 64 + 4 * WIDTH),
        (0, 3 * WIDTH, WIDTH, 3 * WIDTH, 4 * WIDTH),
    ],
)
def test_offsets_that_point_elsewhere_are_refused(offsets):
    good = tuple(range(0, 5 * WIDTH, WIDTH))
    assert "not an Arrow stream" in refusal(
        replaced(stream(TABLE.select(["value"])), "<5i", good, offsets)
    )


def test_text_that_is_no_text_is_refused():
    assert "UTF8" in refusal(stream(TABLE).replace(b"publish", b"publi\xff\xfe"))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_what_would_be_too_large_once_unpacked_is_refused_before_it_is(compression):
    bomb = stream(pa.table({"value": ["a" * 64 * SIZE_MAX]}), compression=compression)
    assert len(bomb) < SIZE_MAX
    before = pa.default_memory_pool().max_memory()
    assert "over 1048576 bytes" in refusal(bomb, kind=TooLarge)
    said = struct.pack("<q", 64 * SIZE_MAX)
    head, body = bomb[: bomb.rindex(said)], bomb[bomb.rindex(said) + len(said) :]
    refusal(head + struct.pack("<q", 2**62) + body, kind=TooLarge)
    assert pa.default_memory_pool().max_memory() == before
    assert "of -2 bytes" in refusal(head + struct.pack("<q", -2) + body)
    assert read_stream(bomb, 65 * SIZE_MAX).nbytes > 64 * SIZE_MAX


def test_the_batches_of_a_stream_are_bounded_together():
    table = pa.table({"value": ["a" * 1000] * 10})
    assert len(read_stream(stream(table, 1), 11_000)) == 10
    refusal(stream(table, 1), 9_000, TooLarge)


def test_rows_that_take_no_bytes_are_bounded_too():
    nothing = stream(pa.table({"value": pa.nulls(arrow_input.ROWS_MAX + 1)}))
    assert len(nothing) < 1000
    assert "more than 1000000 rows" in refusal(nothing, kind=TooLarge)


def test_batches_columns_and_metadata_are_bounded():
    few = pa.table({"value": pa.nulls(arrow_input.BATCHES_MAX + 1)})
    assert "10000 batches" in refusal(stream(few, 1), kind=TooLarge)
    wide = pa.table({f"c{number}": ["a"] for number in range(17)})
    assert "17 columns" in refusal(stream(wide), kind=TooLarge)
    much = TABLE.replace_schema_metadata({"pandas": "x" * 70_000})
    assert "metadata" in refusal(stream(much), kind=TooLarge)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "b"]).dictionary_encode(),
        pa.array(["a", "b"], pa.string_view()),
        pa.array(["a", "b"], pa.json_()),
        pa.array([["a"], []]),
        pa.array([{"a": 1}, None]),
        pa.RunEndEncodedArray.from_arrays([2], ["a"]),
        pa.array([1000, None], pa.decimal128(9, -3)),
        pa.array([1, 2], pa.duration("s")),
    ],
    ids=lambda column: str(column.type)[:20],
)
def test_columns_that_are_not_plain_are_refused_by_name(column):
    detail = refusal(stream(pa.table({"value": column})))
    assert detail.startswith("the column 'value' is ")
    assert detail.endswith("cast it to string")


def test_a_column_that_is_there_twice_is_refused():
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["value", "value"])
    assert "twice" in refusal(stream(twice))


def test_a_stream_that_was_cut_short_is_refused():
    whole = stream(TABLE, 1)
    for end in range(len(whole)):
        refusal(whole[:end])


def test_older_formats_are_refused():
    old = stream(TABLE, metadata_version=pa.ipc.MetadataVersion.V4)
    assert "old format" in refusal(old)


def test_a_stream_of_the_other_byte_order_is_refused():
    whole = bytearray(stream(TABLE.select(["value"])))
    metadata = memoryview(whole)[8:]
    header = arrow_input._Flat.root(metadata).table(2)
    # The byte order is the first field; it is left out where it is little.
    struct.pack_into("<H", metadata, header._fields + 4, 4)
    del metadata
    assert "big-endian" in refusal(bytes(whole))


@pytest.mark.parametrize("content", [b"", END, b"PAR1", b"\xff" * 64 + END, bytes(64) + END])
def test_other_bytes_are_refused(content):
    assert "not an Arrow stream" in refusal(content)
