"""Storage of records and of the log: formats of bytes, LMDB files, and tables in memory.

Here are the files of a data directory: only the server's user can open them; one names the newest
record. The server decides which records a client may read, not the file system: files are created
as 0600 and directories as 0700, so the umask can only remove permissions. Wider permissions, of an
older version or set by hand, are narrowed when a file is opened again; an error reports where that
fails.

The file `newest` has the sequence number of the last acknowledged record, with a checksum. LMDB has
two meta pages without checksums and uses the newer one; if that one is damaged it may silently use
the other, and the newest group is lost. `newest`, rewritten after every commit, detects such a
journal. It is not synced: after a power failure it may lag behind the journal. It never runs ahead.
"""

import logging
import os
import stat
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

log = logging.getLogger("sow")

FILE_MODE = 0o600
"""What is stored is for the server's user alone (docs/security.md)."""
DIRECTORY_MODE = 0o700
"""The same for a directory, which its user has to enter."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_directory(path: Path) -> None:
    """The directory at `path`, and those above it that are not there yet, for us alone."""
    if path.is_dir():
        close_to_others(path)
        return
    if not path.parent.exists():
        make_directory(path.parent)
    path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)


def open_file(path: Path, flags: int = 0) -> int:
    """A file to read and write, made if it is not there, as a descriptor of the system's."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, FILE_MODE)
    close_to_others(path)
    return descriptor


def rewrite(path: Path) -> BinaryIO:
    """A file to write from its beginning, whatever is there."""
    return os.fdopen(open_file(path, os.O_TRUNC), "wb")


def is_open_to_others(path: Path) -> bool:
    """Whether other users have any right to it."""
    return bool(path.stat().st_mode & OTHERS)


def close_to_others(path: Path) -> bool:
    """Take what rights other users have to a file or directory; True if they had any."""
    if not is_open_to_others(path):
        return False
    try:
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~OTHERS)
    except OSError as error:
        log.warning("other users can open %s, and that cannot be changed: %s", path, error.strerror)
    return True


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
