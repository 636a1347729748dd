"""The envelope of an entry: what it follows, and who may have written it.

    offset  bytes
         0      4   "SOWL"
         4      1   format of everything behind the envelope
         5      1   kind
         6      2   flags: 1, the group goes on in the next entry; 2, the content is packed
         8      8   term
        16      8   time of the log, microseconds since 1970 UTC
        24     16   prev: the hash of the last valid entry, as the writer knows it
        40     16   token: random, another one for every attempt
        56     16   digest of the content
        72      4   bytes of content, which follows

Numbers are big-endian. The hash of an entry is that of its envelope, which has the digest of the
content: the chain can be followed without content. The envelope is the same in every format, so
that a release recognises what it cannot read. Bytes that are no entry, or not all of one, are none
on every node alike; no error, since anybody may have written them.

Packed content is its size (4 bytes) and a block of LZ4. An engine sends each byte to all of its
servers, writes and syncs it there, and sends it to each node, the primary too, which reads it back:
packing costs less than the hash of what it saves.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import cache
from hashlib import blake2b
from struct import Struct
from typing import Any, NamedTuple

import orjson

from sow.shared_log.protocol import BLOCK_BYTES_MAX

ENTRY_FORMAT = 2
"""The newest format of entries that this release reads, and that of those it packs."""
PLAIN_FORMAT = 1
"""Of the others, which earlier releases read."""
MAGIC = b"SOWL"
ENVELOPE = Struct(">4sBBHQQ16s16s16sI")
HASH_BYTES = 16
"""No two entries of a log have one hash by accident, and nobody chooses a whole envelope."""
GENESIS = bytes(HASH_BYTES)
"""What the first entry of a log follows."""
CONTENT_BYTES_MAX = BLOCK_BYTES_MAX - ENVELOPE.size
GOES_ON, PACKED = 1, 2
"""Flags."""
PACKED_BYTES_MIN = 1024
"""Of less there is nothing to win."""
SIZE = Struct(">I")


class EntryKind(IntEnum):
    """What an entry is for. The content of all but leads and reloads is of no concern here."""

    LEAD = 1
    BEAT = 2
    RECORDS = 3
    RELOAD = 4
    RESIGN = 5
    """Who leads leads no more: the last entry of its term."""
    BACKUP = 6
    """A part of a data directory, with which a log begins."""
    END = 7
    """The log goes on elsewhere."""


class LogEnvelope(NamedTuple):
    """An entry as it is stored. `kind` is a number: a later release may have more kinds."""

    kind: int
    term: int
    time_us: int
    prev: bytes
    token: bytes
    content: bytes
    goes_on: bool = False
    format: int = PLAIN_FORMAT

    def encode(self) -> tuple[bytes, bytes]:
        """The block, and the hash of the entry."""
        content, layout = self.content, self.format
        flags = GOES_ON if self.goes_on else 0
        # Earlier releases read who leads, and with which format: it is what they refuse by name.
        packed = None if self.kind == EntryKind.LEAD else pack(content)
        if packed is not None:
            content, layout, flags = packed, max(layout, ENTRY_FORMAT), flags | PACKED
        head = ENVELOPE.pack(
            MAGIC,
            layout,
            self.kind,
            flags,
            self.term,
            self.time_us,
            self.prev,
            self.token,
            digest(content),
            len(content),
        )
        return head + content, digest(head)


def decode(block: bytes) -> tuple[LogEnvelope, bytes] | None:
    """The entry that a block is, and its hash; None where it is none, or was changed or cut."""
    if len(block) < ENVELOPE.size or not block.startswith(MAGIC):
        return None
    _, layout, kind, flags, term, time_us, prev, token, check, size = ENVELOPE.unpack_from(block)
    content = block[ENVELOPE.size :]
    if len(content) != size or digest(content) != check:
        return None
    unpacked = unpack(content) if flags & PACKED and layout <= ENTRY_FORMAT else content
    if unpacked is None:
        return None
    entry = LogEnvelope(kind, term, time_us, prev, token, unpacked, bool(flags & GOES_ON), layout)
    return entry, digest(block[: ENVELOPE.size])


@cache
def _lz4() -> Any:
    from pyarrow import Codec

    return Codec("lz4_raw")


def pack(content: bytes) -> bytes | None:
    """A content packed; None where that is not worth it."""
    if len(content) < PACKED_BYTES_MIN:
        return None
    packed: bytes = SIZE.pack(len(content)) + _lz4().compress(content, asbytes=True)
    return packed if len(packed) < len(content) else None


def unpack(packed: bytes) -> bytes | None:
    """The content; None for what nobody has packed."""
    size = SIZE.unpack_from(packed)[0] if len(packed) > SIZE.size else 0
    if not 0 < size <= CONTENT_BYTES_MAX:
        return None
    # The library does not say how much of the room it has filled: all, if one byte less is too few.
    content = _unpacked(packed[SIZE.size :], size)
    return content if _unpacked(packed[SIZE.size :], size - 1) is None else None


def _unpacked(packed: bytes, size: int) -> bytes | None:
    try:
        content: bytes = _lz4().decompress(packed, size, asbytes=True)
    except (OSError, ValueError):
        return None
    return content


def digest(content: bytes) -> bytes:
    """The hash that entries and contents have."""
    return blake2b(content, digest_size=HASH_BYTES).digest()


class Lead(NamedTuple):
    """The content of a `lead` entry: who leads from there on, and by which rules."""

    node: str
    address: str
    lease_us: int
    fingerprint: str = ""
    """Of the configuration: nodes that have another one do not join."""
    format: int = ENTRY_FORMAT
    """The newest format of the entries that this node writes."""
    log: str = ""
    """The name of the log, which bookmarks have: that of the first lead, also under later ones."""
    configuration: str = ""
    """That configuration, to say in what another one differs; of no concern here."""

    def encode(self) -> bytes:
        """As JSON, where a later release may add members."""
        return orjson.dumps(self._asdict())


def decode_lead(content: bytes) -> Lead | None:
    """What a `lead` says; None where it is not readable, or promises nothing."""
    try:
        found = orjson.loads(content)
        # Of an earlier release some are missing.
        lead = Lead(**{name: found[name] for name in Lead._fields if name in found})
    except (ValueError, KeyError, TypeError):
        return None
    kinds = (str, str, int, str, int, str, str)
    if any(type(value) is not kind for value, kind in zip(lead, kinds, strict=True)):
        return None
    return lead if lead.lease_us > 0 else None


class Reload(NamedTuple):
    """The content of a `reload`: another configuration holds from there on, as `Lead` has it, and
    what else was logged with it."""

    fingerprint: str
    configuration: str
    records: bytes

    def encode(self) -> bytes:
        """A line of JSON, then the records."""
        said = {"fingerprint": self.fingerprint, "configuration": self.configuration}
        return orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE) + self.records


def decode_reload(content: bytes) -> Reload | None:
    """What a `reload` says; None where it is not readable."""
    line, _, records = content.partition(b"\n")
    try:
        said = orjson.loads(line)
        found = Reload(said["fingerprint"], said["configuration"], records)
    except (ValueError, KeyError, TypeError):
        return None
    return found if type(found.fingerprint) is type(found.configuration) is str else None


def parts_of(content: bytes) -> Iterator[tuple[bytes, bool]]:
    """What is too much for one entry in several, each with whether it goes on."""
    step = CONTENT_BYTES_MAX
    for start in range(0, max(1, len(content)), step):
        yield content[start : start + step], start + step < len(content)


NewToken = Callable[[], bytes]
"""Makes a token; injected, as all randomness."""
