"""One LMDB environment that grows by itself and fails cleanly when the disk does.

LMDB wants a maximum size in advance; here the map doubles whenever it is full, so there is no
maximum. A write that the disk refuses raises DiskFull and leaves nothing behind. A reserve of
free space is kept from clients, so that deleting and checkpointing still work on a full disk.

One thread writes; any thread reads, in short transactions: a lock keeps the map in place while
one is open. Before LMDB sees a file, its structure is verified without LMDB, for LMDB trusts its
pages: a damaged or shortened file would otherwise end the process instead of raising.
"""

import errno
import mmap
import os
import shlex
import struct
import sys
import threading
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from queue import Queue
from typing import Any, TypeVar

import lmdb
import lmdb.verify

from sow.errors import NO_ROOM, DiskFull, StoreError, StoreFailing
from sow.store import FILE_MODE, close_to_others

MAP_BYTES = 256 * 1024**2
"""Addresses that are reserved at first. It costs no memory, and is doubled when the file outgrows
it."""
LOCK_BYTES = 8192
"""The size of LMDB's lock file for its default number of readers."""
RESERVE_BYTES = 16 * 1024**2
"""Room that stays free on the disk for removals, and for messages accepted before it was full."""
RESERVE_PART = 50  # a fiftieth of a small file system instead
WRITE_PART = 2
"""A block takes whole pages, and short texts have lengths: at most as much again."""
REUSED_PART = 2
"""Of the pages that are free one in so many is counted on."""
WRITE_BYTES = 256 * 1024
"""What a transaction writes in addition: copies of the pages above, and the free list."""
PIECES_AHEAD = 8
"""Pieces that are read before they are wanted, of about a MiB each: enough that their reader waits
for none, and little beside what becomes of them."""
_PAGE_HEADER_BYTES = 16
"""Of LMDB's, before a large value."""
_MAGIC = (0xBEEFC0DE).to_bytes(4, sys.byteorder)
# Of a meta page, from its magic on: the size of a page, the last one used, the transaction.
_META = struct.Struct("=24xI92xQQ")

Transaction = Any
"""A py-lmdb transaction; its stubs are generic over the value type in ways we do not need."""

Statvfs = Callable[[Path | str], os.statvfs_result]


class Environment:
    """The LMDB environment at `path`: a directory, or one file when `subdir` is false."""

    def __init__(
        self, path: Path, *, subdir: bool, map_bytes: int = MAP_BYTES, statvfs: Statvfs = os.statvfs
    ) -> None:
        self.path = path
        self._subdir = subdir
        self._data = path / "data.mdb" if subdir else path
        self._places = str(path), str(self._data)
        """The two as texts: each publish looks whether the file is there and has room."""
        self._map_bytes = map_bytes
        self._statvfs = statvfs
        self._map_lock = threading.Lock()
        self._closed = False
        _fill_up(self._data)
        self._env: lmdb.Environment | None = self._open()

    def _open(self) -> lmdb.Environment:
        data = self._data
        lock = data.with_name("lock.mdb" if self._subdir else f"{data.name}-lock")
        is_new = not data.exists() or not data.stat().st_size
        try:
            _allot(lock)
            env = lmdb.open(
                str(self.path), subdir=self._subdir, map_size=self._map_bytes, mode=FILE_MODE
            )
        except lmdb.Error as error:
            if is_new:
                data.unlink(missing_ok=True)  # half of a first page would pass for damage
            raise StoreError(f"{self.path} cannot be opened: {error}") from error
        except OSError as error:
            raise StoreError(f"{self.path} cannot be opened: {error.strerror}") from error
        for path in (data, lock):
            close_to_others(path)
        self._identity = _identity(data)
        return env

    def _opened(self) -> lmdb.Environment:
        """The files, opened again after a failed commit, under the lock: once, and not closed while
        someone is about to use them."""
        if self._closed:
            raise StoreError(f"{self.path} has been closed")
        if self._env is None:
            self._env = self._open()
        return self._env

    def write(self, work: Callable[[Transaction], None]) -> None:
        """Run `work` in one durable transaction, again from its start if the map had to grow.

        Raises DiskFull when the disk has no room; then nothing of `work` is kept.
        """
        while True:
            env = self._env  # which only this thread releases
            if env is None:
                with self._map_lock:
                    env = self._opened()
            try:
                with env.begin(write=True, buffers=True) as txn:
                    work(txn)
                return
            except lmdb.MapFullError:
                self._grow()
            except lmdb.Error as error:
                self._release()  # after a failed commit only a fresh environment is trusted
                raise self._failure(error) from error

    def put(self, blocks: Collection[tuple[bytes, bytes]]) -> None:
        """Store these values under their keys, in one durable transaction as `write` does."""

        def put(txn: Transaction) -> None:
            for key, block in blocks:
                txn.put(key, block)

        self.write(put)

    def _grow(self) -> None:
        with self._map_lock:
            env = self._opened()
            self._map_bytes = 2 * int(env.info()["map_size"])
            env.set_mapsize(self._map_bytes)

    def _failure(self, error: lmdb.Error) -> StoreError:
        # LMDB reports a partial write, the usual face of a full disk or quota, as EIO.
        if error.code in (*NO_ROOM, errno.EIO):
            return DiskFull(
                # An earlier commit may have kept some of a large request.
                f"{self.path}: the disk has no room or cannot be written ({error}); "
                "nothing of the request is acknowledged; free some space and send it again"
            )
        return StoreError(f"{self.path} cannot be written: {error}")

    @contextmanager
    def read(self, *, views: bool = False) -> Iterator[Transaction]:
        """A short read transaction; the map cannot grow until it is closed.

        With `views` it gives memoryviews that end with it, instead of bytes.
        """
        with self._map_lock:
            begin: Callable[..., Transaction] = self._opened().begin
            with begin(buffers=views) as txn:
                yield txn

    def has_room(self, size_bytes: int = 0) -> bool:
        """Would a write of so many bytes leave more free space than the reserve? Costs one system
        call, and on a full disk a look at the free pages."""
        free_bytes, reserve_bytes = self._space()
        wanted = reserve_bytes + (WRITE_PART * size_bytes + WRITE_BYTES if size_bytes else 0)
        return free_bytes > wanted or (bool(reserve_bytes) and self._reusable_bytes() > wanted)

    def takes(self, size_bytes: int) -> bool:
        """Whether a write of so many bytes fits, with the reserve. Costs what `has_room` does."""
        free_bytes, reserve_bytes = self._space()
        wanted = WRITE_PART * size_bytes + WRITE_BYTES
        return free_bytes > wanted or (bool(reserve_bytes) and self._reusable_bytes() > wanted)

    def lost(self) -> StoreFailing | None:
        """The error if the file is not at its path any more: the next start would not find what is
        written to it. Costs one system call."""
        try:
            if _identity(self._places[1]) == self._identity:
                return None
            why = "another file is in its place"
        except OSError as error:
            why = (error.strerror or str(error)).lower()
        return StoreFailing(
            f"the data directory has changed under the server: {self._data}: {why}; nothing was "
            "stored, reads are still served, so that sow dump can write down what is held; then "
            "start again on the directory, or on a backup"
        )

    def _reusable_bytes(self) -> int:
        """Room in the file's free pages, of those that can be counted on: a block wants pages that
        lie together, and which pages are free has to be written down, too."""
        with self.read() as txn:
            size = (self._opened().info()["last_pgno"] + 1) * int(txn.stat()["psize"])
            return (int(size) - used_bytes(txn)) // REUSED_PART

    @property
    def room_bytes(self) -> int:
        """Free space above the reserve."""
        free_bytes, reserve_bytes = self._space()
        return max(0, free_bytes - reserve_bytes)

    def _space(self) -> tuple[int, int]:
        return (0, 0) if self.lost() else space(self._places[0], self._statvfs)

    @property
    def size_bytes(self) -> int:
        """Bytes of the pages in use; the file also holds pages free for reuse."""
        with self.read() as txn:
            return used_bytes(txn)

    def close(self) -> None:
        """Release the files, for good."""
        self._closed = True
        self._release()

    def _release(self) -> None:
        with self._map_lock:
            if self._env is not None:
                self._env.close()
            self._env = None


def space(path: Path | str, statvfs: Statvfs = os.statvfs) -> tuple[int, int]:
    """Bytes that are free on the disk of `path`, and those of them that are kept in reserve."""
    try:
        disk = statvfs(path)
    except OSError:
        return 0, 0
    reserve_bytes = min(RESERVE_BYTES, disk.f_blocks * disk.f_frsize // RESERVE_PART)
    return disk.f_bavail * disk.f_frsize, reserve_bytes


def _identity(file: Path | str) -> tuple[int, int]:
    """Distinguishes a file from another one of its name; raises OSError."""
    found = os.stat(file)
    return found.st_dev, found.st_ino


def _allot(lock: Path) -> None:
    """Make LMDB's lock file with room on the disk for all of it; raises OSError.

    LMDB writes it through a map, where the process would meet its end on a full disk.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, FILE_MODE)
    try:
        if hasattr(os, "posix_fallocate"):  # macOS has none
            os.posix_fallocate(handle, 0, LOCK_BYTES)
    finally:
        os.close(handle)


def used_bytes(txn: Transaction) -> int:
    """Bytes of the pages that hold the transaction's data."""
    stat = txn.stat()
    pages: int = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
    return pages * int(stat["psize"])


def footprint_bytes(length: int) -> int:
    """About how many bytes a value of `length` bytes takes: a large one has pages of its own."""
    pages = -(-(length + _PAGE_HEADER_BYTES) // mmap.PAGESIZE)
    return length if length < mmap.PAGESIZE // 2 else pages * mmap.PAGESIZE


def structural_damage(data_file: Path) -> str:
    """What is wrong with the pages of an LMDB file, or "" when it is safe to open.

    Reads the file without LMDB. Contents are not looked at: the blocks have checksums.
    """
    find_problems: Callable[..., list[str]] = lmdb.verify.verify
    try:
        problems = find_problems(str(data_file), subdir=False)
    except OSError as error:
        raise StoreError(f"{data_file} cannot be read: {error.strerror}") from error
    except lmdb.verify.VerifyError as error:
        return str(error)
    return "; ".join(problems[:3])


def stored_in(data_file: Path, key: bytes) -> bytes | None:
    """The value of a key in a file; None if it has none, or is not a whole file of LMDB's."""
    try:
        with data_file.open("rb") as file:
            if _MAGIC not in file.read(64):
                return None
        if structural_damage(data_file):
            return None
        env = Environment(data_file, subdir=False)
    except (OSError, StoreError):
        return None
    try:
        with env.read() as txn:
            value: bytes | None = txn.get(key)
        return value
    finally:
        env.close()


def _fill_up(data_file: Path) -> None:
    """Extend a truncated file to the length that its pages need.

    LMDB would crash the process where a value continues behind the end of the file. The checksum of
    the block detects zeros in its place.
    """
    try:
        with data_file.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            at = file.read(64).find(_MAGIC)
            if at < 0:
                return
            metas = []
            offset = at
            for _ in range(2):
                file.seek(offset)
                page_bytes, last_page, txn = _META.unpack(file.read(_META.size))
                metas.append((txn, (last_page + 1) * page_bytes))
                offset = page_bytes + at
        wanted = max(metas)[1]
        if wanted > size:
            os.truncate(data_file, wanted)
    except FileNotFoundError:
        return
    except (OSError, struct.error) as error:
        raise StoreError(f"{data_file} cannot be read: {error}") from error


def repair_command(data_directory: Path, path: Path, after_seq: int = 0) -> str:
    """The command line that repairs `path`, for errors to recommend."""
    words = [Path(sys.executable).name or "python", "-m", "sow.store.repair"]
    words += [str(data_directory), str(path)]
    if after_seq:
        words += ["--after", str(after_seq)]
    return shlex.join(words)


Piece = TypeVar("Piece")


def ahead(pieces: Generator[Piece, None, None]) -> Iterator[Piece]:
    """The same pieces, read in a thread while their reader is busy with the ones before.

    Reading and checksums take no turns of the interpreter. When this iterator ends or is closed the
    thread has closed `pieces` and is over. What `pieces` raises comes in its place.
    """
    read: Queue[list[Piece]] = Queue(PIECES_AHEAD)
    failed: list[Exception] = []
    over = threading.Event()

    def go_ahead() -> None:
        try:
            with closing(pieces):
                for one in pieces:
                    read.put([one])
                    if over.is_set():
                        break
        except Exception as error:
            failed.append(error)
        finally:
            read.put([])  # nothing follows

    thread = threading.Thread(target=go_ahead, name="sow-ahead", daemon=True)
    thread.start()
    piece = read.get()
    try:
        while piece:
            yield from piece
            piece = read.get()
        for error in failed:
            raise error
    finally:
        over.set()
        while piece:
            piece = read.get()
        thread.join()


def sync_directory(directory: Path) -> None:
    """Make the names of files just created or renamed in `directory` durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
