"""Staging: chunks that writers have sent ahead of a commit, in files of their own.

An atomic batch arrives in chunks, from many tasks; some tasks fail and are retried. Each chunk is a
file under its writer, epoch, topic, part and attempt; a commit names the successful attempts.
Chunks have checksums and are not synced: a commit detects one that a crash has damaged or lost, and
the batch is sent again.

A client that may write may stage, and never commit. So batches may take a bounded part of the
disk's free room, each writer half of it, and abandoned ones are removed: after a day, or after an
hour when others need the room. They are counted by their size on disk, in whole pages. The day
starts again with each start, so that no clock can end it early.

The engine decides what is in a chunk, and what becomes of it.
"""

import os
import secrets
import shutil
import threading
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from sow.errors import NO_ROOM, DiskFull, StoreError, StoreFailing
from sow.store.environment import Statvfs, space
from sow.store.files import close_to_others, make_directory, rewrite

CHECKSUM_BYTES = 4
"""Of a CRC-32, before a chunk."""
PAGE_BYTES = 4096
"""What a file system gives to the smallest file. Chunks are counted as they fill the disk."""
ROOM_PART = 4
"""Batches may take a quarter of the room that they and all else find: the rest is the journal's."""
WRITER_PART = 2
"""One writer may take half of that, so that another can still stage."""
CHUNKS_MAX = 100_000
"""Files, which a start has to count: in less than a second."""
BATCH_KEPT_US = 24 * 3600 * 1_000_000
"""A batch without new chunks for a day is removed: its writer has given up."""
ABANDONED_US = 3600 * 1_000_000
"""A batch without new chunks for so long is removed when others need the room."""
DROPPED = "."
"""What the name of a directory begins with that is about to be removed."""


class StagedBatch(NamedTuple):
    """What is applied as a whole: the `epoch`-th batch of a writer for a topic."""

    writer: str
    epoch: int
    topic: str


class Attempt(NamedTuple):
    """One try of one task at its part of a batch."""

    part: int
    name: str


@dataclass(slots=True, eq=False)
class _Staged:
    """What is staged for a batch."""

    used_us: int
    size_bytes: int = 0
    chunks: int = 0


class Staging:
    """The staged chunks under `directory`, which the first chunk creates.

    `now_us` is the time of the start: batches staged before count as used then. Thread-safe.
    """

    def __init__(self, directory: Path, now_us: int = 0, statvfs: Statvfs = os.statvfs) -> None:
        self._directory = directory
        self._statvfs = statvfs
        self._lock = threading.Lock()
        self._batches: dict[Path, _Staged] = {}
        self._size_bytes = self._chunks = 0
        self._of_writer: Counter[Path] = Counter()
        if directory.is_dir():
            close_to_others(directory)
            self._count(now_us)

    def _count(self, now_us: int) -> None:
        """What an earlier life has staged; what it has not finished is removed."""
        for writer in self._directory.iterdir():
            if writer.name.startswith(DROPPED):
                shutil.rmtree(writer, ignore_errors=True)
                continue
            for batch in writer.iterdir():
                self._batches[batch] = _Staged(now_us)
                for path in batch.iterdir():
                    if path.suffix:
                        path.unlink(missing_ok=True)
                    else:
                        self._account(batch, 1, _on_disk(path.stat().st_size))

    @property
    def size_bytes(self) -> int:
        """Bytes of all chunks, in whole pages."""
        return self._size_bytes

    def put(
        self, batch: StagedBatch, attempt: Attempt, chunk: int, content: bytes, now_us: int = 0
    ) -> None:
        """Keep a chunk; the same one sent again replaces itself.

        Raises DiskFull where there is no room, StoreFailing where the disk refuses for another
        reason, and StoreError if the batch was dropped meanwhile.
        """
        path = self._path(batch, attempt, chunk)
        size_bytes = _on_disk(CHECKSUM_BYTES + len(content))
        # A client that has timed out sends it again while the first is still being written.
        unfinished = path.with_suffix(f".{secrets.token_hex(4)}")
        held, gone = self._admit(path.parent, size_bytes, now_us)
        _remove(gone)
        try:
            with rewrite(unfinished) as file:
                file.write(zlib.crc32(content).to_bytes(CHECKSUM_BYTES, "big") + content)
            with self._lock:
                before_bytes = _on_disk(path.stat().st_size) if path.exists() else 0
                unfinished.rename(path)
                if before_bytes:
                    self._account(path.parent, -1, -before_bytes)
        except OSError as error:
            with suppress(OSError):
                unfinished.unlink()  # half a file would take what room is left
            with self._lock:
                if self._batches.get(path.parent) is not held:
                    raise _dropped() from error
                self._account(path.parent, -1, -size_bytes)
            kind = DiskFull if error.errno in NO_ROOM else StoreFailing
            raise kind(f"{path} cannot be written: {error.strerror}") from error

    def _admit(self, batch: Path, size_bytes: int, now_us: int) -> tuple[_Staged, list[Path]]:
        """Reserve room; returns the abandoned batches that have to be removed for it."""
        gone: list[Path] = []
        with self._lock:
            problem = self._problem(batch, size_bytes)
            for idle in self._idle_since(now_us - ABANDONED_US) if problem else ():
                gone += self._set_aside(idle)
                problem = self._problem(batch, size_bytes)
                if not problem:
                    break
            if problem:
                raise DiskFull(
                    f"{problem}; commit batches or discard them "
                    "(DELETE /v1/writes/{writer}/{epoch}), or free some space"
                )
            try:
                make_directory(batch)
            except OSError as error:
                raise DiskFull(f"{batch} cannot be made: {error.strerror}") from error
            held = self._batches.setdefault(batch, _Staged(now_us))
            held.used_us = now_us
            self._account(batch, 1, size_bytes)
        return held, gone

    def _account(self, batch: Path, chunks: int, size_bytes: int) -> None:
        """Count bytes added to a batch, or removed from it."""
        held = self._batches[batch]
        held.chunks += chunks
        held.size_bytes += size_bytes
        self._chunks += chunks
        self._size_bytes += size_bytes
        self._of_writer[batch.parent] += size_bytes

    def _problem(self, batch: Path, size_bytes: int) -> str:
        """Why there is no room for a chunk; empty if there is."""
        there = self._directory if self._directory.exists() else self._directory.parent
        free_bytes, reserve_bytes = space(there, self._statvfs)
        # Chunks with only deletes are accepted on a full disk, into a little of the reserve.
        room = max(self._size_bytes + free_bytes - reserve_bytes, reserve_bytes) // ROOM_PART
        of_writer = self._of_writer[batch.parent]
        if self._chunks >= CHUNKS_MAX:
            return f"{CHUNKS_MAX} chunks are staged, and more are not kept"
        if self._size_bytes + size_bytes > room:
            return f"staged batches have {self._size_bytes} bytes, and may have {room} of the disk"
        if of_writer + size_bytes > room // WRITER_PART:
            return f"the writer has staged {of_writer} bytes, and may stage {room // WRITER_PART}"
        return ""

    def _idle_since(self, time_us: int) -> list[Path]:
        """Batches without new chunks since then, the oldest first."""
        found = [path for path, held in self._batches.items() if held.used_us < time_us]
        return sorted(found, key=lambda path: self._batches[path].used_us)

    def get(self, batch: StagedBatch, attempt: Attempt, chunk: int) -> bytes | None:
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

    def drop(self, writer: str, epoch: int, topic: str | None = None) -> None:
        """Forget what was staged for a batch, or for those of all topics; nothing may be."""
        with self._lock:
            if topic is None:
                batches = self._of_epoch(writer, epoch)
            else:
                batches = [self._batch(StagedBatch(writer, epoch, topic))]
            gone = [path for batch in batches for path in self._set_aside(batch)]
        _remove(gone)

    def _of_epoch(self, writer: str, epoch: int) -> list[Path]:
        directory = self._directory / _file_name(writer)
        return [
            batch
            for batch in self._batches
            if batch.parent == directory and batch.name.partition("-")[0] == str(epoch)
        ]

    def sweep(self, now_us: int) -> int:
        """Remove batches without new chunks for a day; returns how many."""
        with self._lock:
            old = self._idle_since(now_us - BATCH_KEPT_US)
            gone = [path for batch in old for path in self._set_aside(batch)]
        _remove(gone)
        return len(old)

    def _set_aside(self, batch: Path) -> list[Path]:
        """Free the name of a batch at once; its files are removed in the background."""
        held = self._batches.get(batch)
        if held is None:
            return []
        self._account(batch, -held.chunks, -held.size_bytes)
        del self._batches[batch]
        if not self._of_writer[batch.parent]:
            del self._of_writer[batch.parent]
        gone = self._directory / f"{DROPPED}{secrets.token_hex(8)}"
        try:
            batch.rename(gone)
        except OSError:
            return [batch]
        with suppress(OSError):
            batch.parent.rmdir()  # a writer's last
        return [gone]

    def _batch(self, batch: StagedBatch) -> Path:
        # Writers are free to choose their names, files are not.
        name = f"{batch.epoch}-{_file_name(batch.topic)}"
        return self._directory / _file_name(batch.writer) / name

    def _path(self, batch: StagedBatch, attempt: Attempt, chunk: int) -> Path:
        return self._batch(batch) / f"{attempt.part}-{_file_name(attempt.name)}-{chunk}"


def _file_name(name: str) -> str:
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def _on_disk(size_bytes: int) -> int:
    return -(-size_bytes // PAGE_BYTES) * PAGE_BYTES


def _dropped() -> StoreError:
    error = StoreError("the batch was dropped meanwhile; send it again", reason="not staged")
    error.status = 409
    return error


def _remove(directories: list[Path]) -> None:
    for path in directories:
        shutil.rmtree(path, ignore_errors=True)
