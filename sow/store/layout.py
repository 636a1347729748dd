"""The bytes of the files: how log entries and checkpoint slices are laid out.

Every stored value is a *block*: a fixed header (magic, checksum, length, kind, and numbers that
place the block among its neighbours) and a payload of columns. The checksum covers everything
after itself, and a journal block also carries the checksum of the block before it, so that a
missing or foreign block is as visible as a flipped bit. Columns are written whole: one array of
lengths and one joined text, never a loop over records.

Numbers are in the machine's byte order, as LMDB's own are. Nothing here opens a file.
"""

import struct
import zlib
from array import array
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from typing import get_args

from sow.store.protocols import EntryHead, LogEntry, Op, Slice, numbers, part_of

BLOCK_MAGIC = b"SOW1"
GROUP, BASE, SLICE, CONTENTS, ACCOUNT, INDEX_VALUES = 1, 2, 3, 4, 5, 6

# magic, checksum, length of the whole block, kind, checksum of the block before, seq, count, ts
_HEADER = struct.Struct("=4sIIB3xIqqq")
HEADER_BYTES = _HEADER.size
_CHECKED_FROM = 8
"""The checksum is of everything behind itself: magic and checksum take the bytes before."""

# op, has identities, bytes of the topic's name, records, seq, ts_us, expires_us,
# bytes of the identities, bytes of the bodies
_ENTRY = struct.Struct("=BBHIqqqQQ")
_SLICE = struct.Struct("=IQQ")
RECORD_BYTES_MIN = 64
"""The least size that a record counts where entries are split: one of a few bytes takes as long to
read as one of a hundred, and a reader of a block reads an entry at once."""
_OPS: tuple[Op, ...] = get_args(Op)


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The header of a block.

    `seq` and `count` are, by kind: of a group, its first record and how many it holds; of a base,
    the last record no longer kept and 0; of a slice and of values, the generation and the
    place in it; of contents, the checkpoint's seq and its generation. `ts_us` is the newest
    record's time.
    """

    checksum: int
    length: int
    kind: int
    chain: int
    seq: int
    count: int
    ts_us: int

    @property
    def last_seq(self) -> int:
        """The last record of a group."""
        return self.seq + self.count - 1


def read_header(block: bytes | memoryview, offset: int = 0) -> BlockHeader:
    """The header at `offset`, unverified; raises ValueError where there is none."""
    if len(block) - offset < HEADER_BYTES:
        raise ValueError("the block is cut short")
    magic, *fields = _HEADER.unpack_from(block, offset)
    if magic != BLOCK_MAGIC:
        raise ValueError("the block does not begin like one")
    return BlockHeader(*fields)


def seal(
    kind: int, payload: bytes, *, seq: int, count: int, ts_us: int = 0, chain: int = 0
) -> tuple[bytes, int]:
    """A whole block, and its checksum."""
    length = HEADER_BYTES + len(payload)
    header = _HEADER.pack(BLOCK_MAGIC, 0, length, kind, chain, seq, count, ts_us)
    checksum = zlib.crc32(payload, zlib.crc32(header[_CHECKED_FROM:]))
    header = _HEADER.pack(BLOCK_MAGIC, checksum, length, kind, chain, seq, count, ts_us)
    return header + payload, checksum


def unseal(block: bytes, kind: int) -> BlockHeader:
    """The verified header of `block`; raises ValueError with what is wrong."""
    header = read_header(block)
    if header.length != len(block):
        raise ValueError(f"the block has {len(block)} of {header.length} bytes")
    if zlib.crc32(memoryview(block)[_CHECKED_FROM:]) != header.checksum:
        raise ValueError("the checksum does not match: bytes were changed")
    if header.kind != kind:
        raise ValueError(f"a block of kind {header.kind} stands where {kind} belongs")
    return header


def split(entries: Sequence[LogEntry], bytes_max: int) -> Iterator[list[LogEntry]]:
    """Groups of about `bytes_max` bytes, and `RECORD_BYTES_MIN` a record and an entry; a large
    entry is cut into several of the same meaning."""
    group: list[LogEntry] = []
    room = bytes_max
    for entry in entries:
        for piece, size in _pieces(entry, bytes_max):
            size = max(size, RECORD_BYTES_MIN)
            if group and size > room:
                yield group
                group, room = [], bytes_max
            group.append(piece)
            room -= size
    if group:
        yield group


def _sizes(entry: LogEntry) -> list[int]:
    if not entry.bodies:
        return list(map(len, entry.identities or ()))
    if entry.identities is None:
        return list(map(len, entry.bodies))
    return [len(b) + len(i) for b, i in zip(entry.bodies, entry.identities, strict=True)]


def _pieces(entry: LogEntry, bytes_max: int) -> Iterator[tuple[LogEntry, int]]:
    sizes = _sizes(entry)
    if len(sizes) * RECORD_BYTES_MIN > bytes_max:
        sizes = [max(size, RECORD_BYTES_MIN) for size in sizes]
    total = sum(sizes)
    if total <= bytes_max:
        if sizes:
            yield entry, total
        return
    start = filled = 0
    for index, size in enumerate(sizes):
        if index > start and filled + size > bytes_max:
            yield part_of(entry, start, index), filled
            start, filled = index, 0
        filled += size
    yield part_of(entry, start, len(sizes)), filled


def encode_entries(entries: Sequence[LogEntry]) -> bytes:
    """The payload of a group.

    Where each record has its own expiry, these follow the bodies, where earlier releases do not
    read.
    """
    parts: list[bytes] = []
    for entry in entries:
        topic = entry.topic.encode("utf-8", "surrogatepass")
        identities = _encode_texts(entry.identities or ())
        bodies = _encode_bodies(entry.bodies)
        expires_us = entry.expires_us
        if not isinstance(expires_us, int):
            bodies += numbers(expires_us).tobytes()
            expires_us = 0
        parts += (
            _ENTRY.pack(
                _OPS.index(entry.op), entry.identities is not None, len(topic), len(entry),
                entry.seq, entry.ts_us, expires_us, len(identities), len(bodies),
            ),
            topic, identities, bodies,
        )  # fmt: skip
    return b"".join(parts)


def entry_heads(block: bytes, topics: Container[str] | None = None) -> Iterator[EntryHead]:
    """The heads of the entries of a verified group, of some topics."""
    at = HEADER_BYTES
    while at < len(block):
        _, _, topic_bytes, count, seq, ts_us, _, texts_bytes, bodies_bytes = _ENTRY.unpack_from(
            block, at
        )
        topic_at = at + _ENTRY.size
        texts_at = topic_at + topic_bytes
        at = texts_at + texts_bytes + bodies_bytes
        topic = block[topic_at:texts_at].decode("utf-8", "surrogatepass")
        if topics is None or topic in topics:
            yield EntryHead(topic, seq, count, ts_us)


def rows_by_topic(block: bytes) -> dict[str, int]:
    """How many records of each topic a verified group has."""
    found: dict[str, int] = {}
    for topic, _, count, _ in entry_heads(block):
        found[topic] = found.get(topic, 0) + count
    return found


def decode_entries(
    block: bytes, after_seq: int = 0, topics: Container[str] | None = None
) -> Iterator[LogEntry]:
    """The entries of a verified group, without those that end at record `after_seq` or before, and
    those of other topics than `topics`."""
    at = HEADER_BYTES
    while at < len(block):
        op, named, topic_bytes, count, seq, ts_us, expires_us, texts_bytes, bodies_bytes = (
            _ENTRY.unpack_from(block, at)
        )
        topic_at = at + _ENTRY.size
        texts_at = topic_at + topic_bytes
        bodies_at = texts_at + texts_bytes
        at = bodies_at + bodies_bytes
        if seq + count - 1 <= after_seq:
            continue
        topic = block[topic_at:texts_at].decode("utf-8", "surrogatepass")
        if topics is not None and topic not in topics:
            continue
        bodies, bodies_end = _decode_bodies(block, bodies_at, count) if bodies_bytes else ([], at)
        yield LogEntry(
            op=_OPS[op],
            topic=topic,
            seq=seq,
            ts_us=ts_us,
            identities=_decode_texts(block[texts_at:bodies_at], count) if named else None,
            bodies=bodies,
            expires_us=array("q", block[bodies_end:at]) if bodies_end < at else expires_us,
        )


def encode_slice(part: Slice) -> bytes:
    """The payload of a checkpoint's slice.

    SowKeys are at its end, where earlier releases do not read.
    """
    identities = _encode_texts(part.identities)
    bodies = _encode_bodies(part.bodies)
    columns = [c.tobytes() for c in (part.seqs, part.ts_us, part.born, part.expires_us)]
    sizes = _SLICE.pack(len(part.identities), len(identities), len(bodies))
    sow_keys = b"" if part.sow_keys is None else part.sow_keys.tobytes()
    return b"".join((sizes, *columns, identities, bodies, sow_keys))


def slice_records(block: bytes) -> int:
    """The number of records in a slice, by its header."""
    return int(_SLICE.unpack_from(block, HEADER_BYTES)[0])


def decode_slice(block: bytes) -> Slice:
    """The records of a verified slice."""
    count, texts_bytes, bodies_bytes = _SLICE.unpack_from(block, HEADER_BYTES)
    at = HEADER_BYTES + _SLICE.size
    columns = []
    for _ in range(4):
        columns.append(array("q", block[at : at + 8 * count]))
        at += 8 * count
    seqs, ts_us, born, expires_us = columns
    keys_at = at + texts_bytes + bodies_bytes
    return Slice(
        identities=_decode_texts(block[at : at + texts_bytes], count),
        bodies=_decode_bodies(block, at + texts_bytes, count)[0],
        seqs=seqs,
        ts_us=ts_us,
        born=born,
        expires_us=expires_us,
        sow_keys=array("Q", block[keys_at:]) if keys_at < len(block) else None,
    )


def _encode_texts(texts: Sequence[str]) -> bytes:
    """Lengths in characters, then all characters: cut again after one decode of the whole."""
    joined = "".join(texts).encode("utf-8", "surrogatepass")
    return array("I", map(len, texts)).tobytes() + joined


def _decode_texts(column: bytes, count: int) -> list[str]:
    # Read one after the other: to cut them out takes twice as long, with objects for start and end.
    joined = StringIO(column[4 * count :].decode("utf-8", "surrogatepass"), newline="")
    return list(map(joined.read, array("I", column[: 4 * count])))


def _encode_bodies(bodies: Sequence[bytes]) -> bytes:
    return array("I", map(len, bodies)).tobytes() + b"".join(bodies)


def _decode_bodies(block: bytes, at: int, count: int) -> tuple[list[bytes], int]:
    """Bodies, and where they end."""
    first = at + 4 * count
    joined = BytesIO(block)  # not a copy of it
    joined.seek(first)
    return list(map(joined.read, array("I", block[at:first]))), joined.tell()
