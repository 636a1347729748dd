"""The bytes of a state: its kind, the settings it depends on, and its parts.

    magic (4)  version (2)  size of about (4)  about, as JSON  part  part  …

An envelope is decoded completely or refused with a sentence, and so is one with other settings than
the current ones. The caller defines `about` and the parts. Parts that are tables are Arrow IPC
streams, each with its schema; so are tables wherever they travel as bytes.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

HEADER = struct.Struct("<4sHI")
SIZES = "sizes"
"""The key in `about` that holds the sizes of the parts."""


@dataclass(frozen=True)
class Envelope:
    """One kind of state. `magic` is four bytes of its own; `version` goes up when older releases
    cannot read it any more. Messages name what it is a state `of`, and how to begin `again` without
    it."""

    magic: bytes
    version: int
    of: str
    again: str

    def seal(self, about: Mapping[str, Any], parts: Sequence[bytes]) -> bytes:
        """The bytes that `open` reads."""
        text = json.dumps({**about, SIZES: list(map(len, parts))}).encode()
        return b"".join([HEADER.pack(self.magic, self.version, len(text)), text, *parts])

    def open(self, data: bytes) -> tuple[dict[str, Any], list[bytes]]:
        """The settings of the state, and its parts; raises ValueError for invalid bytes."""
        if len(data) < HEADER.size or data[:4] != self.magic:
            raise ValueError(f"this is not the state of any {self.of}; {self.again}")
        _, version, size = HEADER.unpack_from(data)
        if version != self.version:
            raise ValueError(
                f"this state has the version {version}, and this release reads {self.version}; "
                f"use the release that wrote it, or {self.again}"
            )
        at = HEADER.size + size
        about = json.loads(data[HEADER.size : at]) if at <= len(data) else None
        if about is None or at + sum(about[SIZES]) != len(data):
            raise ValueError(f"this state was cut short; use an earlier one, or {self.again}")
        parts = []
        for length in about[SIZES]:
            parts.append(data[at : at + length])
            at += length
        return about, parts

    def refuse_another(self, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        """Raise ValueError, with both values of each, if a state was `stored` with other settings
        than are `wanted` now."""
        differing = [name for name, value in wanted.items() if stored.get(name) != value]
        if differing:
            differences = (
                f"{name} {stored.get(name)!r}, not {wanted[name]!r}" for name in differing
            )
            raise ValueError(
                f"this state belongs to another {self.of}: it has {', '.join(differences)}; "
                f"continue with its settings, or {self.again}"
            )


def to_ipc(table: Any) -> bytes:
    """A table, or a part of one, as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def from_ipc(data: bytes) -> Any:
    """The table that `to_ipc` wrote."""
    return pa.ipc.open_stream(data).read_all()
