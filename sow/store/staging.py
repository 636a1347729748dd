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

What a commit makes of very many rows is written to the journal ahead of it, in parts, each in a
transaction of its own (`PreparedLoads`). So nobody waits for more than a part, and nothing is held
in memory. They lie beside the log, where nobody reads them, until one small entry *links* them:
with it they are in the log, all or none. A load that was given up, or was not linked when its
process ended, is removed, and so is one whose link was trimmed.
"""

import os
import secrets
import shutil
import threading
import zlib
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from sow.errors import NO_ROOM, Damaged, DiskFull, StoreError, StoreFailing
from sow.store import close_to_others, make_directory, rewrite
from sow.store.environment import Environment, Statvfs, Transaction, space
from sow.store.layout import (
    BASE_KEY,
    HEADER_BYTES,
    LOAD_PART,
    BlockHeader,
    decode_entries,
    decode_link,
    encode_entries,
    linked,
    read_header,
    seal,
    unseal,
)
from sow.store.protocols import Load, LogEntry

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


LOADS_KEY = BASE_KEY + b"\xff" * 17
"""The beginning of the keys of loads: behind the accounts of a journal, and before its groups."""
LOAD_NAME_BYTES = 16
"""Of a digest: enough that no two loads share a key by chance."""
BEHIND_PARTS = b"\xff" * 5
"""With a load's key, the key that follows those of all its parts."""
PARTS_REMOVED_AT_ONCE = 64
"""Parts of a load that one transaction removes, since appends wait for it: some 32 MiB."""
NOT_LINKED = 0
"""Stands for the record at which a load begins that is not in the log."""


def load_key(name: str) -> bytes:
    """The key under which the record is noted at which a load begins in the log; its parts
    follow."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=LOAD_NAME_BYTES).digest()
    return LOADS_KEY + digest


def part_key(name: str, number: int) -> bytes:
    """The key of a part of a load."""
    return load_key(name) + number.to_bytes(4, "big")


class PreparedLoads:
    """The loads in the environment of a journal that begins after record `base_seq`. Only its
    writer thread changes anything; any thread reads. `damaged` makes an error of what is wrong."""

    def __init__(self, env: Environment, base_seq: int, damaged: Callable[[str], Damaged]) -> None:
        self._env = env
        self._damaged = damaged
        self._open: dict[str, Load] = {}
        """Those that are being prepared."""
        self._linked: dict[bytes, int] = {}
        """By key, the record at which each begins in the log."""
        self._going: deque[bytes] = deque()
        """The keys of those that are to be removed."""
        self._find(base_seq)

    def _find(self, base_seq: int) -> None:
        """What an earlier life has left; what it has not linked is removed."""
        with self._env.read() as txn:
            cursor = txn.cursor()
            found = cursor.set_range(LOADS_KEY)
            while found and cursor.key().startswith(LOADS_KEY):
                key = cursor.key()
                self._linked[key] = int.from_bytes(cursor.value(), "big")
                found = cursor.set_range(key + BEHIND_PARTS)
        self.pass_over(base_seq)

    def put(self, name: str, entries: Sequence[LogEntry]) -> None:
        """Make these entries durable, as the next part of a load."""
        load = self.load(name)
        block, checksum = seal(
            LOAD_PART,
            encode_entries(entries),
            seq=load.records + 1,
            count=sum(map(len, entries)),
            chain=load.checksum,
        )
        blocks = [(part_key(name, load.parts), block)]
        if not load.parts:
            blocks.append((load_key(name), NOT_LINKED.to_bytes(8, "big")))
        self._env.put(blocks)
        records = load.records + sum(map(len, entries))
        size_bytes = load.size_bytes + len(block)
        self._open[name] = Load(name, load.parts + 1, records, size_bytes, checksum)

    def load(self, name: str) -> Load:
        """What was put so far."""
        return self._open.get(name, Load(name, 0, 0, 0, 0))

    def link(self, load: Load, seq: int) -> tuple[bytes, bytes]:
        """What is to be noted in the transaction in which a load becomes part of the log, beginning
        with record `seq`."""
        return load_key(load.name), seq.to_bytes(8, "big")

    def note(self, load: Load, seq: int) -> None:
        """A load is part of the log now."""
        self._open.pop(load.name, None)
        self._linked[load_key(load.name)] = seq

    def discard(self, name: str) -> None:
        """Have a load removed that is not in the log, if there is one."""
        if self._open.pop(name, None) is not None:
            self._going.append(load_key(name))

    def pass_over(self, base_seq: int) -> None:
        """The log begins after record `base_seq` now: have removed what is not in it."""
        gone = [key for key, seq in self._linked.items() if seq <= base_seq]
        for key in gone:
            del self._linked[key]
        self._going.extend(gone)

    @property
    def has_gone(self) -> bool:
        """Whether there is something to remove."""
        return bool(self._going)

    def sweep(self) -> None:
        """Remove some parts of what is to be removed."""
        if self._going and self._remove(self._going[0]):
            self._going.popleft()

    def _remove(self, key: bytes) -> bool:
        """Remove some parts of a load from its end; whether nothing of it is left. What is noted of
        it goes last, so that the rest is found by the next life."""
        with self._env.read() as txn:
            cursor, some = txn.cursor(), list[bytes]()
            found = cursor.set_range(key + BEHIND_PARTS) and cursor.prev()
            found = found or cursor.last()
            while found and len(some) < PARTS_REMOVED_AT_ONCE and cursor.key().startswith(key):
                some.append(cursor.key())
                found = cursor.prev()

        def remove(txn: Transaction) -> None:
            for one in some:
                txn.delete(one)

        self._env.write(remove)
        return key in some or not some

    def groups(
        self, header: BlockHeader, link: bytes, after_seq: int, until_seq: int
    ) -> Iterator[tuple[BlockHeader, bytes]]:
        """The groups that a verified link stands for, from the one holding record `after_seq + 1`
        to that which holds record `until_seq`. Raises Damaged."""
        load, expires_us = decode_link(link)
        first = header.seq - 1
        for part_header, part in self._parts(load, after_seq - first):
            yield linked(part, header, expires_us)
            if first + part_header.last_seq >= until_seq:
                return

    def entries(self, load: Load) -> Iterator[LogEntry]:
        """The entries of a load as they were put. Raises Damaged."""
        for _, part in self._parts(load, 0):
            yield from decode_entries(part)

    def _parts(self, load: Load, after: int) -> Iterator[tuple[BlockHeader, bytes]]:
        """The parts of a load from the one that holds its record `after + 1`, verified."""
        before = None
        for number in range(self._place(load, after), load.parts):
            part = self._part(load, number)
            try:
                header = unseal(part, LOAD_PART)
            except ValueError as error:
                raise self._damaged(f"part {number} of a load: {error}") from error
            follows = (0, 0) if before is None else (before.last_seq, before.checksum)
            if (before or not number) and (header.seq - 1, header.chain) != follows:
                raise self._damaged(f"part {number} of a load belongs elsewhere")
            if number == load.parts - 1 and header.checksum != load.checksum:
                raise self._damaged("the last part of a load is another one")
            yield header, part
            before = header

    def _place(self, load: Load, after: int) -> int:
        """The number of the part that holds record `after + 1` of a load."""
        if after <= 0:
            return 0

        def last_seq(number: int) -> int:
            return read_header(self._part(load, number, HEADER_BYTES)).last_seq

        return bisect_right(range(load.parts), after, key=last_seq)

    def _part(self, load: Load, number: int, size_bytes: int | None = None) -> bytes:
        """A part, or so many bytes of it."""
        with self._env.read(views=True) as txn:
            block = txn.get(part_key(load.name, number))
            found = b"" if block is None else bytes(block[:size_bytes])
            del block
        if not found:
            raise self._damaged(f"part {number} of a load is missing")
        return found
