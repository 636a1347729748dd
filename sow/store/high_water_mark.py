"""The `newest` file: the sequence number of the last acknowledged record, kept twice.

LMDB has two meta pages without checksums and uses the newer one; if that one is damaged it may
silently use the other, and the newest group is lost. This file, rewritten after every commit,
detects such a journal.

It is not synced: after a power failure it may lag behind the journal. It never runs ahead.
"""

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path

from sow.store.secure_files import open_file

_SEQ = struct.Struct("=q")
_CHECKSUM = struct.Struct("=I")


class HighWaterMark:
    """The file at `path`, open for writing."""

    def __init__(self, path: Path) -> None:
        self._file = open_file(path)

    def mark(self, seq: int) -> None:
        """Note that everything up to `seq` is durable. A guard only: errors are ignored."""
        number = _SEQ.pack(seq)
        with suppress(OSError):
            os.pwrite(self._file, number + _CHECKSUM.pack(zlib.crc32(number)), 0)

    def close(self) -> None:
        """Release the file."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1


def read_high_water_mark(path: Path) -> int:
    """The record that the file names, or 0 when there is no such file or it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return 0
    number, checksum = content[: _SEQ.size], content[_SEQ.size :]
    if len(number) < _SEQ.size or checksum != _CHECKSUM.pack(zlib.crc32(number)):
        return 0
    seq: int = _SEQ.unpack(number)[0]
    return seq
