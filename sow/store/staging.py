"""Staging: what writers have sent ahead of a commit, in files of its own.

A batch that is to be applied as a whole arrives in chunks, from many tasks, some of which fail and
are tried again. Each chunk is a file under its writer, epoch, part and attempt; a commit names
the attempts that won. Chunks have checksums and are not synced: one that a crash has damaged or
lost is found missing by the commit, and the batch is sent again.

What is in a chunk, and what becomes of it, is the engine's business.
"""

import secrets
import shutil
import zlib
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from sow.errors import DiskFull, StoreError
from sow.store.private import close_to_others, make_directory, write_anew

CHECKSUM_BYTES = 4


class Batch(NamedTuple):
    """What is applied as a whole: the `epoch`-th batch of a writer."""

    writer: str
    epoch: int


class Attempt(NamedTuple):
    """One try of one task at its part of a batch."""

    part: int
    name: str


class Staging:
    """The staged chunks under `directory`, which is made when the first one comes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        if directory.is_dir():
            close_to_others(directory)

    def put(self, batch: Batch, attempt: Attempt, chunk: int, content: bytes) -> None:
        """Keep a chunk; the same one sent again replaces itself. Raises DiskFull."""
        path = self._path(batch, attempt, chunk)
        # One who has given up waiting sends it again while the first is still being written.
        unfinished = path.with_suffix(f".{secrets.token_hex(4)}")
        try:
            make_directory(path.parent)
            with write_anew(unfinished) as file:
                file.write(zlib.crc32(content).to_bytes(CHECKSUM_BYTES, "big") + content)
            unfinished.rename(path)
        except OSError as error:
            with suppress(OSError):
                unfinished.unlink()  # half a file would take what room is left
            raise DiskFull(f"{path} cannot be written: {error.strerror}") from error

    def get(self, batch: Batch, attempt: Attempt, chunk: int) -> bytes | None:
        """A chunk as it was put, or None if it is not there whole."""
        try:
            found = self._path(batch, attempt, chunk).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"a staged chunk cannot be read: {error.strerror}") from error
        content = found[CHECKSUM_BYTES:]
        whole = zlib.crc32(content).to_bytes(CHECKSUM_BYTES, "big") == found[:CHECKSUM_BYTES]
        return content if whole else None

    def drop(self, batch: Batch) -> None:
        """Forget what was staged for a batch; nothing may be."""
        shutil.rmtree(self._batch(batch), ignore_errors=True)

    def sweep(self, older_than_s: float) -> int:
        """Forget batches last written to before a time (seconds since 1970) and say how many."""
        old = [path for path in self._directory.glob("*/*") if path.stat().st_mtime < older_than_s]
        for path in old:
            shutil.rmtree(path, ignore_errors=True)
        return len(old)

    def _batch(self, batch: Batch) -> Path:
        # Writers are free to choose their names, files are not.
        return self._directory / _file_name(batch.writer) / str(batch.epoch)

    def _path(self, batch: Batch, attempt: Attempt, chunk: int) -> Path:
        return self._batch(batch) / f"{attempt.part}-{_file_name(attempt.name)}-{chunk}"


def _file_name(name: str) -> str:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
