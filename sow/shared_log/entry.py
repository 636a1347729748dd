"""Entries of a shared log: the envelope of each, and the chain that says which of them are valid.

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

One rule says which entries are valid, and every node comes to the same result (`Chain`):

    an entry is valid if and only if its `prev` is the hash of the last valid entry, and its `term`
    is the current one; a `lead` opens the next term, and so has a term that is higher by one

Everything else is void and passed over: what an old primary had on its way behind a foreign lead,
the second copy of a doubled append, an attempt that comes late, a lead of a node that had not read
everything, bytes that are no entry. So no condition of the engine is needed, and no clock.

A group of records that is too large for one entry is several; it counts once the last one is there.
A lead drops what was not complete. Time is that of the log and never goes back. A reload changes
under which configuration is led, and the one before is not led under again: that is an old file.
"""

from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import cache
from hashlib import blake2b
from struct import Struct
from typing import Any, NamedTuple

import orjson

from sow.errors import StoreError
from sow.shared_log import BLOCK_BYTES_MAX

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


KNOWN_KINDS = frozenset(EntryKind)
WITHOUT_CONTENT = (EntryKind.BEAT, EntryKind.RESIGN)
REPLACED_MAX = 100
"""Configurations that are remembered as replaced: nobody has a file of so many reloads ago."""


class ChainState(NamedTuple):
    """What follows from the log up to a position, and all that a reader needs to go on there; kept
    beside a checkpoint."""

    position: int = 0
    hash: bytes = GENESIS
    """Of the last valid entry."""
    term: int = 0
    """0: nobody has led yet."""
    time_us: int = 0
    lead: Lead | None = None
    replaced: tuple[str, ...] = ()
    """Fingerprints of the configurations that reloads have replaced, since all nodes have started
    under another one."""


class LogGroup(NamedTuple):
    """What was appended as one, complete."""

    kind: int
    content: bytes
    time_us: int
    term: int
    end: ChainState
    """The state behind it, where a reader may begin again that has it."""


class ReadEntry(NamedTuple):
    """What became of a block that was read."""

    hash: bytes | None
    """None: it was no entry at all."""
    is_valid: bool
    lead: Lead | None = None
    """Who leads from here on."""
    group: LogGroup | None = None
    """What is complete now."""
    kind: int = 0


class LogChain:
    """Reads the blocks of a log in order, from a state on."""

    def __init__(self, state: ChainState | None = None) -> None:
        self.state = state or ChainState()
        self.settled = self.state
        """The newest state behind a valid entry with no half of a group before it: where a reader
        may begin again, since the block at its position has its hash."""
        self.void_count = 0
        """Blocks that were passed over."""
        self._parts: list[bytes] = []

    def take(
        self, position: int, block: bytes, known: tuple[LogEnvelope, bytes] | None = None
    ) -> ReadEntry | None:
        """Take the next block, which need not be decoded if it is `known`; None for one that was
        read before.

        Raises StoreError for a valid entry of a format or kind that this release does not know.
        """
        state = self.state
        if position <= state.position:
            return None
        found = known or decode(block)
        if found is None or not self._is_valid(found[0]):
            self.state = state._replace(position=position)
            self.void_count += 1
            return ReadEntry(found and found[1], is_valid=False)
        return self._advance(position, *found)

    def _is_valid(self, entry: LogEnvelope) -> bool:
        state = self.state
        if entry.kind == EntryKind.LEAD:
            opens = entry.term == state.term + 1 and decode_lead(entry.content) is not None
            return opens and entry.prev == state.hash
        return entry.prev == state.hash and entry.term == state.term > 0

    def _advance(self, position: int, entry: LogEnvelope, entry_hash: bytes) -> ReadEntry:
        lead = decode_lead(entry.content) if entry.kind == EntryKind.LEAD else None
        self._check_known(position, entry, lead)
        time_us = max(self.state.time_us, entry.time_us)
        before, leads = self.state.lead, lead or self.state.lead
        is_same = leads is None or before is None or leads.fingerprint == before.fingerprint
        replaced = self.state.replaced if is_same else ()
        self.state = ChainState(position, entry_hash, entry.term, time_us, leads, replaced)
        group = None
        if lead is not None:
            self._parts.clear()
        elif entry.kind not in WITHOUT_CONTENT:
            self._parts.append(entry.content)
            if not entry.goes_on:
                content = b"".join(self._parts)
                if entry.kind == EntryKind.RELOAD:
                    self._reload(content)
                group = LogGroup(entry.kind, content, time_us, entry.term, self.state)
                self._parts.clear()
        if not self._parts:
            self.settled = self.state
        return ReadEntry(entry_hash, True, lead, group, entry.kind)

    def _reload(self, content: bytes) -> None:
        """Another configuration holds."""
        reload = decode_reload(content)
        before = self.state.lead
        if reload is None or before is None:
            return
        lead = before._replace(fingerprint=reload.fingerprint, configuration=reload.configuration)
        all_before = [*self.state.replaced, before.fingerprint][-REPLACED_MAX:]
        replaced = tuple(one for one in all_before if one != reload.fingerprint)
        self.state = self.state._replace(lead=lead, replaced=replaced)

    def _check_known(self, position: int, entry: LogEnvelope, lead: Lead | None) -> None:
        newest = max(entry.format, lead.format if lead else 0)
        if newest <= ENTRY_FORMAT and entry.kind in KNOWN_KINDS:
            return
        lead = lead or self.state.lead
        what = f"format {newest}" if newest > ENTRY_FORMAT else f"kind {entry.kind}"
        raise StoreError(
            f"the shared log has an entry of {what} at position {position}, written by node "
            f"{lead.node if lead else '?'}; this release reads format {ENTRY_FORMAT}. Nothing is "
            "passed over: install the release of that node here, too"
        )
