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
from hashlib import blake2b
from io import BytesIO, StringIO
from typing import get_args

from sow.core.cooperative import untracked_if_many
from sow.store.protocols import (
    TOPICS_LIFETIME,
    EntryHead,
    EventOrigin,
    Load,
    LogEntry,
    Op,
    Slice,
    accounts_of,
    numbers,
    part_of,
)

BLOCK_MAGIC = b"SOW1"
GROUP, BASE, SLICE, CONTENTS, ACCOUNT, INDEX_VALUES, LOAD_PART, LINK, KEPT_CONTENTS = range(1, 10)
OPEN_WINDOWS = KEPT_CONTENTS + 1

# magic, checksum, length of the whole block, kind, checksum of the block before, seq, count, ts
_HEADER = struct.Struct("=4sIIB3xIqqq")
HEADER_BYTES = _HEADER.size
LOG_KINDS = GROUP, LINK
"""The kinds of blocks that the log is made of."""
_CHECKED_FROM = 8
"""The checksum is of everything behind itself: magic and checksum take the bytes before."""

# op, what there is beside bodies (`NAMED` and others), bytes of the topic's name, records, seq,
# ts_us, expires_us, bytes of the identities, bytes of the bodies
_ENTRY = struct.Struct("=BBHIqqqQQ")
NAMED, SIGNED, JOINED = 1, 2, 4
"""An entry has identities; it has an origin, at the end of its bodies; it has a turn, behind its
identities, where earlier releases do not read."""
_TURN = b"%016x"
_TURN_BYTES = 16  # as `_TURN` writes it
# the event that is edited, bytes of the author, which stands before
_ORIGIN = struct.Struct("=qI")
_SLICE = struct.Struct("=IQQ")
# parts, checksum of the last, bytes, expires_us, and behind that the name
_LINK = struct.Struct("=IIQq")
RECORD_BYTES_MIN = 64
"""The least size that a record counts where entries are split: one of a few bytes takes as long to
read as one of a hundred, and a reader of a block reads an entry at once."""
_OPS: tuple[Op, ...] = get_args(Op)
BASE_KEY = bytes(8)
ACCOUNTS_KEY = BASE_KEY + b"\0"
"""The key before the accounts of a journal; its block shows that the accounts are complete."""


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The header of a block.

    `seq` and `count` are, by kind: of a group, its first record and how many it holds, and so of a
    link, which is a group whose records are those of a load; of a part of a load, the first record
    in the load and how many it holds; of a base, the last record no longer kept and 0; of a slice
    and of values, the generation and the place in it; of contents, and of what keeps them for
    History, the checkpoint's seq and its generation; of open windows, the last record before and of
    how many topics they are. `ts_us` is the newest record's time, and of what keeps contents the
    time from which on they are exact.
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


def unseal(block: bytes, *kinds: int) -> BlockHeader:
    """The verified header of `block`, of one of these kinds; raises ValueError with what is
    wrong."""
    header = read_header(block)
    if header.length != len(block):
        raise ValueError(f"the block has {len(block)} of {header.length} bytes")
    if zlib.crc32(memoryview(block)[_CHECKED_FROM:]) != header.checksum:
        raise ValueError("the checksum does not match: bytes were changed")
    if header.kind not in kinds:
        raise ValueError(f"a block of kind {header.kind} stands where {kinds[0]} belongs")
    return header


def split(entries: Sequence[LogEntry], bytes_max: int) -> Iterator[list[LogEntry]]:
    """Groups of about `bytes_max` bytes, and `RECORD_BYTES_MIN` a record and an entry; a large
    entry is cut into several of the same meaning, and one with a load is a group of its own."""
    group: list[LogEntry] = []
    room = bytes_max
    for entry in entries:
        if entry.load is not None:
            if group:
                yield group
            yield [entry]
            group, room = [], bytes_max
            continue
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
    count, total = len(entry), entry.bodies_bytes + sum(map(len, entry.identities or ()))
    if max(total, count * RECORD_BYTES_MIN) <= bytes_max:
        if count:
            yield entry, total
        return
    sizes = _sizes(entry)
    if len(sizes) * RECORD_BYTES_MIN > bytes_max:
        sizes = [max(size, RECORD_BYTES_MIN) for size in sizes]
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
    read. An entry that has kept its bytes is written as it was read.
    """
    parts: list[bytes | memoryview] = []
    for entry in entries:
        if entry.encoded is not None:
            parts.append(entry.encoded)
            continue
        topic = entry.topic.encode("utf-8", "surrogatepass")
        identities = _encode_texts(entry.identities or ())
        bodies = _encode_bodies(entry.bodies)
        expires_us = entry.expires_us
        if not isinstance(expires_us, int):
            bodies += numbers(expires_us).tobytes()
            expires_us = 0
        beside = NAMED if entry.identities is not None else 0
        if entry.origin is not None:
            author = entry.origin.author.encode("utf-8", "surrogatepass")
            bodies += author + _ORIGIN.pack(entry.origin.edits, len(author))
            beside |= SIGNED
        if entry.turn:
            identities += _TURN % entry.turn
            beside |= JOINED
        parts += (
            _ENTRY.pack(
                _OPS.index(entry.op), beside, len(topic), len(entry),
                entry.seq, entry.ts_us, expires_us, len(identities), len(bodies),
            ),
            topic, identities, bodies,
        )  # fmt: skip
    return b"".join(parts)


def seal_group(group: Sequence[LogEntry], last_seq: int, chain: int) -> tuple[bytes, int, int]:
    """The block of a group that follows `last_seq`; also its own last record and checksum."""
    first = last_seq + 1
    for entry in group:
        assert entry.seq == last_seq + 1, f"record {entry.seq} does not follow {last_seq}"
        last_seq += len(entry)
    load, expires_us = group[0].load, group[0].expires_us
    if load is not None and isinstance(expires_us, int):
        kind, payload = LINK, _encode_link(load, expires_us)
    else:
        kind, payload = GROUP, encode_entries(group)
    ts_us = max(entry.ts_us for entry in group)
    block, checksum = seal(
        kind, payload, seq=first, count=last_seq - first + 1, ts_us=ts_us, chain=chain
    )
    return block, last_seq, checksum


def _encode_link(load: Load, expires_us: int) -> bytes:
    """The payload of a link; `expires_us` is for records with the lifetime of their topic."""
    sizes = _LINK.pack(load.parts, load.checksum, load.size_bytes, expires_us)
    return sizes + load.name.encode("utf-8", "surrogatepass")


def decode_link(block: bytes | memoryview) -> tuple[Load, int]:
    """The load of a verified link, and when its records expire that have the lifetime of their
    topic."""
    parts, checksum, size_bytes, expires_us = _LINK.unpack_from(block, HEADER_BYTES)
    name = bytes(block[HEADER_BYTES + _LINK.size :]).decode("utf-8", "surrogatepass")
    return Load(name, parts, read_header(block).count, size_bytes, checksum), expires_us


def linked(part: bytes, link: BlockHeader, expires_us: int) -> tuple[BlockHeader, bytes]:
    """The group that a verified part of a load is in the log, by the header of its link."""
    header, payload = read_header(part), bytearray(part[HEADER_BYTES:])
    at, first = 0, link.seq - 1
    while at < len(payload):
        op, named, topic_bytes, count, seq, _, expires, texts_bytes, bodies_bytes = (
            _ENTRY.unpack_from(payload, at)
        )
        expires = expires_us if expires == TOPICS_LIFETIME else expires
        _ENTRY.pack_into(
            payload, at, op, named, topic_bytes, count, first + seq, link.ts_us, expires,
            texts_bytes, bodies_bytes,
        )  # fmt: skip
        at += _ENTRY.size + topic_bytes + texts_bytes + bodies_bytes
    seq = first + header.seq
    block, _ = seal(GROUP, bytes(payload), seq=seq, count=header.count, ts_us=link.ts_us)
    return read_header(block), block


def account_blocks(entry: LogEntry) -> Iterator[tuple[bytes, bytes | None]]:
    """Keys and blocks that an account entry changes; None: the account is removed."""
    yield ACCOUNTS_KEY, seal(ACCOUNT, b"", seq=entry.seq, count=0)[0]
    for name, record in accounts_of(entry):
        block = None
        if record is not None:
            payload = encode_entries([record])
            block, _ = seal(ACCOUNT, payload, seq=entry.seq, count=1, ts_us=entry.ts_us)
        yield account_key(entry.topic, name), block


def account_key(topic: str, name: str) -> bytes:
    """The key of an account, of bounded length whatever it is called."""
    text = f"{topic}\0{name}".encode("utf-8", "surrogatepass")
    return BASE_KEY + blake2b(text, digest_size=16).digest()


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
    block: bytes, after_seq: int = 0, topics: Container[str] | None = None, keeps: bool = False
) -> Iterator[LogEntry]:
    """The entries of a verified group, without those that end at record `after_seq` or before, and
    those of other topics than `topics`. Each `keeps` its bytes, and with them the block in memory,
    for who writes it once more."""
    at = HEADER_BYTES
    while at < len(block):
        first = at
        op, beside, topic_bytes, count, seq, ts_us, expires_us, texts_bytes, bodies_bytes = (
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
        origin, end = _decode_origin(block, at) if beside & SIGNED else (None, at)
        entry = LogEntry(
            op=_OPS[op],
            topic=topic,
            seq=seq,
            ts_us=ts_us,
            identities=_decode_texts(block[texts_at:bodies_at], count) if beside & NAMED else None,
            bodies=bodies,
            expires_us=array("q", block[bodies_end:end]) if bodies_end < end else expires_us,
            _bodies_bytes=bodies_end - bodies_at - 4 * count if bodies else 0,
            origin=origin,
            turn=int(block[bodies_at - _TURN_BYTES : bodies_at], 16) if beside & JOINED else 0,
        )
        if keeps:
            entry.keep(memoryview(block)[first:at])
        yield entry


def _decode_origin(block: bytes, end: int) -> tuple[EventOrigin, int]:
    """The origin that ends an entry, and where it begins."""
    at = end - _ORIGIN.size
    edits, author_bytes = _ORIGIN.unpack_from(block, at)
    author = block[at - author_bytes : at].decode("utf-8", "surrogatepass")
    return EventOrigin(author, edits), at - author_bytes


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
    bodies = list(map(joined.read, array("I", block[at:first])))
    return untracked_if_many(bodies), joined.tell()
