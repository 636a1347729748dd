"""A checkpoint on disk: one LMDB file per topic, holding its table in slices.

A checkpoint is written beside the one before it, under the next *generation*; a last transaction
replaces the table of *contents*, and from then on the new generation counts. Blocks of any other
generation, replaced or never finished, are removed in small transactions; one that is being copied
stays until that is done.

A generation may be *kept* when the next one replaces it, for the History of its topic: its contents
stand under a key of their own, with the record from which on it is exact. Earlier releases remove
the slices of such a generation, and then it is none.

A slice may have *values*, the index contents of its records, chained to it by its checksum. They
make a start faster, and are optional: if they are damaged, that is reported once, and none is used.

The contents also hold the topic's *fingerprint*, so that a file is never read as the table of a
topic whose records have other keys. One thread writes; loading happens before that, copying at any
time and in any thread.
"""

import logging
import os
import struct
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from itertools import islice, takewhile
from operator import gt
from pathlib import Path
from secrets import randbits

from sow.errors import Damaged, StoreError, clipped
from sow.store import make_directory
from sow.store.environment import (
    MAP_BYTES,
    Environment,
    Statvfs,
    Transaction,
    ahead,
    repair_command,
    stored_in,
    structural_damage,
    sync_directory,
)
from sow.store.layout import (
    CONTENTS,
    HEADER_BYTES,
    INDEX_VALUES,
    KEPT_CONTENTS,
    SLICE,
    BlockHeader,
    decode_slice,
    encode_slice,
    read_header,
    seal,
    slice_records,
    unseal,
)
from sow.store.protocols import Exact, KeptCheckpoint, Slice

log = logging.getLogger("sow")

SLICES_PER_COMMIT = 4
"""Of about a MiB each: a commit flushes the disk, which others wait for."""
SWEEP_SLICES = 64
"""Slices that one commit removes. Their pages go to a list that the commit writes."""
CONTENTS_KEY = b"contents"
_SLICES, _VALUES, _KEPT = b"s", b"i", b"h"
"""First bytes of the keys of slices, of values, and of contents that are kept. Earlier releases,
which have no others, look for slices of other generations from the first key of one on: they skip
what sorts before."""
_SLICE_KEY = struct.Struct(">cQI")
_KEPT_KEY = struct.Struct(">cQ")
_EXACT = struct.Struct("=q")  # the record from which on it is exact; the contents follow
_CONTENTS = struct.Struct("=IQ")  # slices, records; the fingerprint follows


def slice_key(generation: int, number: int) -> bytes:
    """The key of a slice; keys sort by generation, then by number."""
    return _SLICE_KEY.pack(_SLICES, generation, number)


def values_key(generation: int, number: int) -> bytes:
    """The key of the values of a slice."""
    return _SLICE_KEY.pack(_VALUES, generation, number)


def kept_key(generation: int) -> bytes:
    """The key of the contents of a generation that is kept."""
    return _KEPT_KEY.pack(_KEPT, generation)


def generation_of(key: bytes) -> int:
    """The generation of the slice with this key."""
    return int(_SLICE_KEY.unpack(key)[1])


class LmdbCheckpoint:
    """The stored table of topic `topic` in the file `path`, created if it does not exist.

    A new one is the empty table of a topic that begins after record `since_seq` of the log. Raises
    StoreError when the file was written under another `fingerprint`, and Damaged when its structure
    is damaged.
    """

    def __init__(
        self,
        path: Path,
        *,
        topic: str,
        fingerprint: str = "",
        since_seq: int = 0,
        data_directory: Path | None = None,
        map_bytes: int = MAP_BYTES,
        statvfs: Statvfs = os.statvfs,
    ) -> None:
        self._path = path
        self._topic = topic
        self._fingerprint = fingerprint
        self._since_seq = since_seq
        self._data_directory = data_directory or path.parent
        self._lock = threading.Lock()
        self._copied: Counter[int] = Counter()
        """Generations that are being copied."""
        self._seq = self._generation = self._slices = self._records = self._mark = 0
        self._kept: tuple[bytes, ...] = ()
        """The blocks of generations that are kept, the oldest first."""
        # An empty one was just being made: there was no room for it, or no time.
        is_there = path.exists() and path.stat().st_size
        if is_there and (problem := structural_damage(path)):
            raise self._damaged(f"its pages are not as they were written ({problem})")
        make_directory(path.parent)
        self._env = Environment(path, subdir=False, map_bytes=map_bytes, statvfs=statvfs)
        try:
            self._begin()
        except BaseException:
            self._env.close()
            raise
        sync_directory(path.parent)

    def _begin(self) -> None:
        with self._env.read() as txn:
            block: bytes | None = txn.get(CONTENTS_KEY)
            empty = txn.stat()["entries"] == 0
        if block is not None:
            self._adopt(block)
            self._find_kept()
            self._sweep()
        elif empty:
            contents = seal_contents(self._fingerprint, self._since_seq)
            self._env.put([(CONTENTS_KEY, contents)])
            self._adopt(contents)
        else:
            raise self._damaged("its table of contents is missing")

    def _adopt(self, block: bytes) -> None:
        header = self._unseal(block, CONTENTS)
        with self._lock:
            self._seq, self._generation, self._mark = header.seq, header.count, header.chain
            self._slices, self._records = contents_sizes(block)
            self._contents = block
        written_for = contents_fingerprint(block)
        if written_for != self._fingerprint:
            raise StoreError(
                f"topic {self._topic}: {self._path} was written for a topic with another Key, "
                f"KeyDomain or MessageType (then {written_for}, now {self._fingerprint}); "
                "restore the old definition, give the topic another Name and FileName, or move "
                "the file away to begin with an empty topic"
            )

    def _find_kept(self) -> None:
        """Find what is kept of earlier generations; what is not whole, since an earlier release has
        removed some of it, or a disk, is none."""
        with self._env.read() as txn:
            cursor = txn.cursor()
            is_there = cursor.set_range(kept_key(0))
            keys = takewhile(partial(gt, _VALUES), cursor.iternext(values=False))
            blocks = [txn.get(key) for key in list(keys)] if is_there else []
        whole = [block for block in blocks if self._is_whole(block)]
        if len(whole) < len(blocks):
            lost = [kept_key(read_header(block).count) for block in blocks if block not in whole]
            log.warning(
                "topic %s: %d of %d checkpoints that History keeps are not whole, and left out",
                clipped(self._topic),
                len(lost),
                len(blocks),
            )
            self._env.write(partial(_delete, keys=lost))
        self._kept = tuple(whole)

    def _is_whole(self, block: bytes) -> bool:
        """Whether a generation that is kept has all its slices; their bytes are not looked at."""
        try:
            header = unseal(block, KEPT_CONTENTS)
        except ValueError:
            return False
        slices, _ = contents_sizes(contents_kept(block))
        with self._env.read() as txn:
            cursor = txn.cursor()
            if not slices or not cursor.set_range(slice_key(header.count, 0)):
                return not slices
            behind = slice_key(header.count + 1, 0)
            keys = takewhile(partial(gt, behind), cursor.iternext(values=False))
            return sum(1 for _ in keys) == slices

    @property
    def seq(self) -> int:
        """Every log record up to here is contained; replay starts after it. 0: none yet."""
        return self._seq

    @property
    def records(self) -> int:
        """How many records it holds."""
        return self._records

    @property
    def size_bytes(self) -> int:
        """Bytes of the slices kept, in whole pages."""
        return self._env.size_bytes

    def load(self) -> Iterator[Slice]:
        """The last complete checkpoint, in the slices it was written in; raises Damaged.

        A thread reads and verifies some of the next slices while one is used.
        """
        blocks = self._with_values()
        for block, values in ahead(blocks) if self._slices > 1 else blocks:
            part = decode_slice(block)
            part.values = values
            yield part

    @property
    def kept(self) -> list[KeptCheckpoint]:
        """Generations that are kept, the oldest first; the last may be the current one."""
        return [_kept_in(block) for block in self._kept]

    def load_kept(self, kept: KeptCheckpoint) -> Iterator[Slice]:
        """The slices of one of them; raises Damaged, and StoreError if it is kept no more."""
        blocks = self.blocks(kept)
        next(blocks)
        for block in blocks:
            yield decode_slice(block)

    def forget(self, count: int) -> None:
        """Keep the oldest `count` of them no more."""
        gone = [kept_key(read_header(block).count) for block in self._kept[:count]]
        with self._lock:
            self._kept = self._kept[count:]
        self._env.write(partial(_delete, keys=gone))
        self._sweep()

    def _with_values(self) -> Generator[tuple[bytes, bytes | None], None, None]:
        """The block of each slice, with its values until the first ones that are damaged."""
        blocks = self.blocks()
        generation, is_whole = read_header(next(blocks)).count, True
        for number, block in enumerate(blocks):
            values = None
            if is_whole:
                try:
                    values = self._values(generation, number, block)
                except ValueError as error:
                    is_whole = False
                    log.warning(
                        "topic %s: what indexes know of the records of the checkpoint %s is not as "
                        "it was written (slice %d: %s); it is read from the records instead",
                        clipped(self._topic),
                        self._path,
                        number + 1,
                        error,
                    )
            yield block, values

    def all_blocks(self) -> Iterator[bytes]:
        """The same as `blocks`, with the values of each slice; where these are damaged it raises
        Damaged, too, after everything else was read."""
        for kept in self.kept:
            yield from self.blocks(kept)
        blocks, problem = self.blocks(), ""
        yield (contents := next(blocks))
        for number, block in enumerate(blocks):
            yield block
            try:
                values = self._values(read_header(contents).count, number, block)
            except ValueError as error:
                problem = problem or f"slice {number + 1}: {error}"
                continue
            if values is not None:
                yield values
        if problem:
            raise Damaged(
                f"topic {self._topic}: what indexes know of the records of the checkpoint "
                f"{self._path} is not as it was written ({problem}). Nothing is lost and nothing "
                "need be done: a start reads it from the records instead, and the next checkpoint "
                "has it again. But check the disk"
            )

    def _values(self, generation: int, number: int, block: bytes) -> bytes | None:
        """The values of a slice; raises ValueError where they are damaged."""
        with self._env.read() as txn:
            values: bytes | None = txn.get(values_key(generation, number))
        if values is None:
            return None
        header = unseal(values, INDEX_VALUES)
        if (header.seq, header.count, header.chain) != place_of_values(block):
            raise ValueError("it belongs elsewhere")
        return values[HEADER_BYTES:]

    def blocks(self, kept: KeptCheckpoint | None = None) -> Iterator[bytes]:
        """The stored blocks: the table of contents, then each slice, of one that is kept the block
        that keeps it first; raises Damaged, and StoreError if that is kept no more.

        Meanwhile another checkpoint may be written: this generation stays until this is closed.
        """
        with self._lock:
            first, generation = self._contents, self._generation
            if kept is not None:
                generation = kept.generation
                first = self._block_of(kept)
            self._copied[generation] += 1
        try:
            yield first
            yield from self._slices_of(first if kept is None else contents_kept(first))
        finally:
            with self._lock:
                self._copied[generation] -= 1

    def _block_of(self, kept: KeptCheckpoint) -> bytes:
        for block in self._kept:
            if _kept_in(block) == kept:
                return block
        raise StoreError(
            f"topic {self._topic}: the checkpoint as of record {kept.seq} is no longer kept"
        )

    def _slices_of(self, contents: bytes) -> Iterator[bytes]:
        table, (slices, promised) = read_header(contents), contents_sizes(contents)
        records = 0
        for number in range(slices):
            with self._env.read() as txn:
                block: bytes | None = txn.get(slice_key(table.count, number))
            if block is None:
                raise self._damaged(f"slice {number + 1} of {slices} is missing")
            header = self._unseal(block, SLICE, f"slice {number + 1} of {slices}: ")
            if (header.seq, header.count, header.chain) != (table.count, number, table.chain):
                raise self._damaged(f"slice {number + 1} of {slices} belongs elsewhere")
            records += slice_records(block)
            yield block
        if records != promised:
            raise self._damaged(f"{records} of {promised} records are there")

    def write(self, seq: int, slices: Iterable[Slice], exact: Exact | None = None) -> None:
        """Replace the checkpoint, atomically: until it is complete the old one counts. It is kept
        when the next one replaces it, if `exact` says from where on it is exact.

        Keep slices at about a MiB. Raises DiskFull, and then the old one stays.
        """
        self._sweep()
        generation, mark = self._generation + 1, randbits(32)
        count = records = 0
        source = iter(slices)
        while batch := list(islice(source, SLICES_PER_COMMIT)):
            blocks = []
            for number, part in enumerate(batch, count):
                block = seal_slice(part, generation, number, mark)
                blocks.append((slice_key(generation, number), block))
                if part.values is not None:
                    values = seal_values(part.values, block)
                    blocks.append((values_key(generation, number), values))
            self._env.put(blocks)
            count += len(batch)
            records += sum(len(part.identities) for part in batch)
        contents = seal_contents(self._fingerprint, seq, generation, count, records, mark)
        moment = None if exact is None else exact()
        kept = [] if moment is None else [seal_kept(contents, *moment)]
        self._env.put(
            [(CONTENTS_KEY, contents), *((kept_key(generation), block) for block in kept)]
        )
        self._adopt(contents)
        with self._lock:
            self._kept += tuple(kept)
        self._sweep()

    def _sweep(self) -> None:
        """Remove every slice of another generation, a few at a time."""
        while stale := self._stale():
            self._env.write(partial(_delete, keys=stale))

    def _stale(self) -> list[bytes]:
        """The first few keys of slices of other generations, but for those that are copied."""
        with self._lock:
            copied = {self._generation, *(+self._copied)}
            kept = {read_header(block).count for block in self._kept}
        found: list[bytes] = []
        with self._env.read() as txn:
            cursor = txn.cursor()
            for begins, wanted in ((_VALUES, copied), (_SLICES, copied | kept)):
                generation = 0
                while not found and cursor.set_range(_SLICE_KEY.pack(begins, generation, 0)):
                    if not cursor.key().startswith(begins):
                        break
                    generation = generation_of(cursor.key())
                    if generation not in wanted:
                        behind = _SLICE_KEY.pack(begins, generation + 1, 0)
                        keys = takewhile(partial(gt, behind), cursor.iternext(values=False))
                        found = list(islice(keys, SWEEP_SLICES))
                    generation += 1
        return found

    def _unseal(self, block: bytes, kind: int, where: str = "") -> BlockHeader:
        try:
            return unseal(block, kind)
        except ValueError as error:
            raise self._damaged(f"{where}{error}") from error

    def _damaged(self, what: str) -> Damaged:
        return Damaged(
            f"topic {self._topic}: the checkpoint {self._path} is not safe to read: {what}. To "
            "keep what is whole and set the rest aside, stop the server and run: "
            + repair_command(self._data_directory, self._path)
        )

    def close(self) -> None:
        """Release the file."""
        self._env.close()


def held_in(path: Path) -> int:
    """How many records the checkpoint in a file holds; 0 for any other file."""
    block = stored_in(path, CONTENTS_KEY) or b""
    try:
        unseal(block, CONTENTS)
    except ValueError:
        return 0
    return contents_sizes(block)[1]


def seal_slice(part: Slice, generation: int, number: int, mark: int) -> bytes:
    """The block of one slice; `mark` distinguishes this write from an abandoned one."""
    return seal(SLICE, encode_slice(part), seq=generation, count=number, chain=mark)[0]


def seal_values(values: bytes, block: bytes) -> bytes:
    """The block of the values of the slice in `block`."""
    generation, number, checksum = place_of_values(block)
    return seal(INDEX_VALUES, values, seq=generation, count=number, chain=checksum)[0]


def place_of_values(block: bytes) -> tuple[int, int, int]:
    """`seq`, `count` and `chain` of the values of the slice in `block`."""
    header = read_header(block)
    return header.seq, header.count, header.checksum


def seal_contents(
    fingerprint: str,
    seq: int = 0,
    generation: int = 0,
    slices: int = 0,
    records: int = 0,
    mark: int = 0,
) -> bytes:
    """The block that makes a generation the current one; by default, of an empty table."""
    payload = _CONTENTS.pack(slices, records) + fingerprint.encode("utf-8", "surrogatepass")
    return seal(CONTENTS, payload, seq=seq, count=generation, chain=mark)[0]


def seal_kept(contents: bytes, exact_seq: int, exact_us: int) -> bytes:
    """The block that keeps a generation: its contents, and from which record and time on it is
    exact."""
    table = read_header(contents)
    payload = _EXACT.pack(exact_seq) + contents
    return seal(KEPT_CONTENTS, payload, seq=table.seq, count=table.count, ts_us=exact_us)[0]


def contents_kept(block: bytes) -> bytes:
    """The contents in the block that keeps a generation."""
    return block[HEADER_BYTES + _EXACT.size :]


def exact_in(block: bytes) -> tuple[int, int] | None:
    """From which record and time on a checkpoint is exact, by its first block, if it is kept."""
    if read_header(block).kind != KEPT_CONTENTS:
        return None
    kept = _kept_in(block)
    return kept.exact_seq, kept.exact_us


def _kept_in(block: bytes) -> KeptCheckpoint:
    header, (exact_seq,) = read_header(block), _EXACT.unpack_from(block, HEADER_BYTES)
    return KeptCheckpoint(header.seq, exact_seq, header.ts_us, header.count)


def contents_sizes(block: bytes) -> tuple[int, int]:
    """How many slices and records a table of contents promises."""
    slices, records = _CONTENTS.unpack_from(block, HEADER_BYTES)
    return slices, records


def contents_fingerprint(block: bytes) -> str:
    """The fingerprint in a table of contents."""
    return block[HEADER_BYTES + _CONTENTS.size :].decode("utf-8", "surrogatepass")


def _delete(txn: Transaction, keys: Iterable[bytes]) -> None:
    for key in keys:
        txn.delete(key)
