"""Tables as bytes and back: Arrow IPC streams, each with its schema."""

from typing import Any

import pyarrow as pa


def to_ipc(table: Any) -> bytes:
    """A table, or a part of one, as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def from_ipc(data: bytes) -> Any:
    """The table that `to_ipc` wrote."""
    return pa.ipc.open_stream(data).read_all()
