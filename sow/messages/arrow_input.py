"""Arrow streams from clients: validated completely before any value is read.

Arrow trusts its buffers: a wrong offset reads foreign memory, or crashes the process. So nothing
here is lenient. Messages are read one by one, and for each the *plan* comes first: its buffers,
their places in the message's body, and their uncompressed sizes, which a stream of a few bytes may
claim to be petabytes. Only then is the batch decoded, and every offset, length and text of it
validated.

Columns are plain: types that refer to other buffers (dictionaries, views, runs, nested values,
extensions) would let a few bytes expand to any number, and are not needed to write rows.
"""

import struct
from collections.abc import Iterator

import pyarrow as pa

from sow.errors import ClientError, TooLarge, clipped, shown

ROWS_MAX = 1_000_000
"""Rows of a stream: each becomes objects of some hundred bytes."""
BATCHES_MAX = 10_000
"""Batches of a stream. Each has to be looked at, however few rows it has."""
METADATA_BYTES_MAX = 64 * 1024
"""Metadata of one message: that of pandas and Spark takes a few thousand bytes."""
FIELDS_MAX = 16
"""Columns of a stream. Those that mean something to a write are fewer."""
END = b"\xff\xff\xff\xff\0\0\0\0"
ALIGNMENT = 8
"""Alignment of buffers in the format: readers read eight bytes at a time."""
FORMAT_5 = 4
"""The number of the fifth version of the format, of 2020."""
UNPACKED = -1
"""The size in front of an uncompressed buffer in a compressed batch."""
PLAIN = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_timestamp,
    pa.types.is_date,
    # Other types have numbers with as many zeros as they claim.
    lambda kind: pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision,
)


def read_stream(content: bytes, size_max: int) -> pa.Table:
    """The table that a stream holds, safe to be read.

    `size_max` bounds the bytes of all its buffers once unpacked. Raises ClientError for what is no
    such stream or has columns that are not plain, TooLarge for too much.
    """
    try:
        return _read(content, size_max)
    except (pa.ArrowException, OSError, ValueError, struct.error, MemoryError) as error:
        raise ClientError(f"the body is not an Arrow stream: {clipped(str(error))}") from None


def _read(content: bytes, size_max: int) -> pa.Table:
    if not content.endswith(END):
        raise ClientError(
            "the body is not an Arrow stream, or not all of one: it has no end mark; close the "
            "writer before sending"
        )
    messages = _messages(content)
    first = next(messages, None)
    if first is None or first.type != "schema":
        raise ClientError("the body is not an Arrow stream: it does not begin with a schema")
    schema = _schema(first)
    room = _Room(size_max)
    batches = []
    for message in messages:
        if message.type != "record batch":
            raise ClientError(f"the stream has a {message.type}; send a schema and record batches")
        room.take(_Plan(message), message.body)
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        batches.append(batch)
    return pa.Table.from_batches(batches, schema)


def _messages(content: bytes) -> Iterator[pa.ipc.Message]:
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(content))
    for number, message in enumerate(reader):
        if number > BATCHES_MAX:
            raise TooLarge(f"the stream has more than {BATCHES_MAX} batches; send larger ones")
        if message.metadata.size > METADATA_BYTES_MAX:
            raise TooLarge(
                f"a message of the stream has {message.metadata.size} bytes of metadata, over "
                f"{METADATA_BYTES_MAX}; leave the metadata of the schema away"
            )
        yield message


def _schema(message: pa.ipc.Message) -> pa.Schema:
    header = _header(message)
    if header.small(0):
        raise ClientError("the stream is big-endian; write it little-endian")
    if header.length(1) > FIELDS_MAX:
        raise TooLarge(f"the stream has {header.length(1)} columns, over {FIELDS_MAX}")
    schema = pa.ipc.read_schema(message)
    for field in schema:
        if not any(fits(field.type) for fits in PLAIN):
            raise ClientError(
                f"the column {shown(field.name)} is {clipped(str(field.type))}: the columns of a "
                "stream are plain texts, numbers and times, so cast it to string"
            )
    if len(set(schema.names)) < len(schema):
        raise ClientError("the stream has a column twice")
    return schema


class _Room:
    """The remaining budget of a stream."""

    def __init__(self, size_max: int) -> None:
        self._size_max = self._size_left = size_max
        self._rows_left = ROWS_MAX

    def take(self, plan: "_Plan", body: pa.Buffer) -> None:
        """Let a batch in; raises TooLarge, and ClientError if its plan is not one of its body."""
        self._rows_left -= plan.rows
        if self._rows_left < 0:
            raise TooLarge(f"the stream has more than {ROWS_MAX} rows; send fewer at a time")
        self._size_left -= sum(plan.sizes(body))
        if self._size_left < 0:
            raise TooLarge(
                f"the buffers of the stream are over {self._size_max} bytes (Limits/FrameSize); "
                "send fewer rows at a time"
            )


class _Plan:
    """The description of a batch in its message."""

    def __init__(self, message: pa.ipc.Message) -> None:
        header = _header(message)
        self.rows = header.large(0)
        if self.rows < 0:
            raise ValueError("a batch has a negative number of rows")
        self._places = header.pairs(2)
        self._packed = header.has(3)

    def sizes(self, body: pa.Buffer) -> Iterator[int]:
        """The uncompressed size of each buffer; raises ValueError."""
        if self._places and body.address % ALIGNMENT:
            raise ValueError("a body is not aligned to 8 bytes")
        view = memoryview(body)
        for start, size in self._places:
            if start < 0 or size < 0 or start + size > len(view) or start % ALIGNMENT:
                raise ValueError(f"a buffer of {size} bytes at {start} is not in its body")
            yield self._unpacked(view[start : start + size]) if self._packed and size else size

    def _unpacked(self, buffer: memoryview) -> int:
        (size,) = struct.unpack_from("<q", buffer)
        if size == UNPACKED:
            return len(buffer)
        if size < 0:
            raise ValueError(f"a compressed buffer is of {size} bytes")
        return int(size)


def _header(message: pa.ipc.Message) -> "_Flat":
    """The header of a message."""
    metadata = _Flat.root(memoryview(message.metadata))
    if metadata.small(0) != FORMAT_5:
        # Batches of earlier versions mark compression elsewhere.
        raise ClientError("the stream is in an old format; write the fifth version (V5)")
    return metadata.table(2)


class _Flat:
    """A table of FlatBuffers (https://flatbuffers.dev/internals): fields by their number.

    Arrow has verified the places that the metadata points to when it made the message.
    """

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - self._number("<i", at)

    @classmethod
    def root(cls, data: memoryview) -> "_Flat":
        """The table that a buffer is about."""
        return cls(data, struct.unpack_from("<I", data)[0])

    def _number(self, kind: str, at: int) -> int:
        if at < 0:
            raise ValueError("its metadata is damaged")
        return int(struct.unpack_from(kind, self._data, at)[0])

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry >= self._number("<H", self._fields):
            return None
        offset = self._number("<H", self._fields + entry)
        return self._at + offset if offset else None

    def has(self, field: int) -> bool:
        """Whether a field is there."""
        return self._place(field) is not None

    def small(self, field: int) -> int:
        """A field of two bytes, 0 if it is not there."""
        place = self._place(field)
        return 0 if place is None else self._number("<h", place)

    def large(self, field: int) -> int:
        """A field of eight bytes."""
        place = self._place(field)
        return 0 if place is None else self._number("<q", place)

    def _target(self, field: int) -> int | None:
        place = self._place(field)
        return None if place is None else place + self._number("<I", place)

    def table(self, field: int) -> "_Flat":
        """A field that is a table."""
        target = self._target(field)
        if target is None:
            raise ValueError("a message is about nothing")
        return _Flat(self._data, target)

    def length(self, field: int) -> int:
        """The number of items of a list field."""
        target = self._target(field)
        return 0 if target is None else self._number("<I", target)

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """A field that is a list of two numbers each."""
        target = self._target(field)
        if target is None:
            return []
        end = target + 4 + 16 * self.length(field)
        if end > len(self._data):
            raise ValueError("its metadata is cut short")
        return list(struct.iter_unpack("<qq", self._data[target + 4 : end]))
