"""Arrow streams that are nearly right, and what the door makes of them."""

import random

import pyarrow as pa

from sow.errors import ClientError
from sow.server.http.tables import read_rows, without_rows
from sow.sessions.commands.staged_writes import StagedWrites
from tests.laws.harness import World

SIZE_MAX = 1024**2
TEXT_MAX = 500
TYPES = (
    *[pa.string(), pa.large_string(), pa.binary(), pa.large_binary()] * 4, pa.string_view(),
    pa.null(), pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.string()),
    pa.struct([("a", pa.string())]), pa.json_(pa.string()), pa.binary(8),
)  # fmt: skip
OTHERS = (
    (pa.int64(), [1, None, 3]),
    (pa.float16(), [1.0, None, 3.0]),
    (pa.bool_(), [True, None, False]),
    (pa.decimal128(20, 2), [1, None, 3]),
    (pa.decimal256(60, 0), [1, None, 3]),
    (pa.timestamp("us", "UTC"), [1, None, 3]),
    (pa.timestamp("s", "Europe/Paris"), [1, 2, 3]),
    (pa.date32(), [1, None, 3]),
    (pa.run_end_encoded(pa.int16(), pa.string()), ["a", "a", "b"]),
    (pa.map_(pa.string(), pa.int8()), [[("a", 1)], None, []]),
)
VALUES = ['{"id":1}', '{"id":"two","v":[null]}', '{"id":3}']
EVIL = (0, 1, 2, 3, 4, 7, 8, 16, 24, 64, 255, 1000, 100_000, 1 << 20, -1, -2, -8, -100_000)
EDGES = {2: 15, 4: 31, 8: 63}


def stream(table, **options):
    sink = pa.BufferOutputStream()
    how = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, table.schema, options=how) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue().to_pybytes()


def values_of(kind):
    if pa.types.is_list(kind):
        return [[value] for value in VALUES]
    if pa.types.is_struct(kind):
        return [{"a": value} for value in VALUES]
    if pa.types.is_null(kind):
        return [None] * 3
    return [value[:8] for value in VALUES] if pa.types.is_fixed_size_binary(kind) else VALUES


def corpus():
    """Whole streams, of all types and compressions."""
    tables = [pa.table({"value": pa.array(values_of(kind), kind)}) for kind in TYPES]
    tables += [
        pa.table({"value": VALUES, "key": pa.array(values, kind)}) for kind, values in OTHERS
    ]
    tables.append(pa.table({"value": VALUES, "op": ["publish", "delta", "delete"]}))
    tables.append(
        pa.table({"value": VALUES, "bookmark": [1, 2, 3]}).append_column(
            "ts", pa.array([1, 2, 3], pa.timestamp("us", "UTC"))
        )
    )
    tables.append(pa.table({"value": VALUES, "op": [None, "", "é" * 50], "key": ["a", None, "b"]}))
    streams = [
        stream(table, compression=compression, **more)
        for table in tables
        for compression, more in (
            (None, {}),
            ("lz4", {}),
            ("zstd", {}),
            (None, {"emit_dictionary_deltas": True, "unify_dictionaries": False}),
        )
    ]
    return [*streams, stream(tables[0], metadata_version=pa.ipc.MetadataVersion.V4), b""]


def changed(rng: random.Random, whole: bytes, other: bytes) -> bytes:
    """A stream after some edits: numbers replaced, bytes flipped, pieces left out or exchanged."""
    data = bytearray(whole)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8)) if whole else 0):
        if not data:
            break
        at = rng.randrange(len(data))
        match rng.randrange(8):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.randrange(256)
            case 2:
                del data[at:]
            case 3:
                at -= at % 8
                del data[at : at + 8 * rng.randrange(1, 20)]
            case 4:
                start = rng.randrange(len(other) + 1)
                at -= at % 8
                data[at : at + 8 * rng.randrange(20)] = other[start - start % 8 :][:160]
            case _:
                size = rng.choice((2, 4, 4, 8, 8))
                at -= at % size
                number = rng.choice((*EVIL, 2 ** EDGES[size] - 1, -(2 ** EDGES[size])))
                number += rng.choice((0, 0, 0, 1, -1)) if abs(number) < 2**15 - 2 else 0
                room = max(-(2 ** EDGES[size]), min(number, 2 ** EDGES[size] - 1))
                data[at : at + size] = room.to_bytes(size, "little", signed=True)
    if rng.random() < 0.9 and not data.endswith(b"\xff\xff\xff\xff\0\0\0\0"):
        data += bytes(-len(data) % 8) + b"\xff\xff\xff\xff\0\0\0\0"
    return bytes(data)


class ArrowDoor:
    """Staged rows: a stream is read and checked, and its good rows are written out again."""

    def __init__(self) -> None:
        self._streams = corpus()
        world = World()
        self._writes = StagedWrites(world.engine)
        self._topic = world.engine.topic("orders")

    def input(self, rng: random.Random) -> bytes:
        """The next stream."""
        return changed(rng, rng.choice(self._streams), rng.choice(self._streams))

    def knock(self, data: bytes) -> bool:
        """Whether it is let in; an assertion fails where it is answered badly."""
        refusal = ""
        try:
            rows = read_rows(self._topic.records, data, SIZE_MAX)
        except ClientError as error:
            refusal = error.detail
        assert len(refusal) < TEXT_MAX
        if refusal:
            return False
        steps, rejected = self._writes.read(self._topic, rows)
        assert all(len(row.reason) < TEXT_MAX for row in rejected)
        rest = without_rows(data, [row.index for row in rejected])
        again = read_rows(self._topic.records, rest, SIZE_MAX)
        assert len(again) == len(rows) - len(rejected)
        return bool(steps)
