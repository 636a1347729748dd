"""The feed: frames in which a follower receives the log of its primary, as in a backup.

    a   an account that a follower needs, as a block: a start, a reload, the types of columns
    b   a block of the log, in its stored form
    w   the open windows as of a record and a time; the first frame, sent on request
    t   a beat: the server has sent everything up to a record, and later frames have later times
    x   an error that ends the feed

An account comes before the records that were logged after it. Each block carries its checksum, so
the follower detects a flipped bit.
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from sow.errors import Damaged
from sow.store.backup import BLOCK_FRAME, frame
from sow.store.journal import accounts_in
from sow.store.layout import ACCOUNT, GROUP, decode_entries, encode_entries, seal, unseal
from sow.store.protocols import LogEntry

ACCOUNT_FRAME, BEAT_FRAME, WINDOWS_FRAME = b"a", b"t", b"w"
_BEAT = struct.Struct("=qq")


class Beat(NamedTuple):
    """The server has sent everything up to record `seq`; what follows has no time before
    `time_us`."""

    seq: int
    time_us: int


def block_frame(block: bytes) -> bytes:
    """A block of the log."""
    return frame(BLOCK_FRAME, block)


def account_frame(entry: LogEntry) -> bytes:
    """An account, as an entry of its only record."""
    block, _ = seal(ACCOUNT, encode_entries([entry]), seq=entry.seq, count=1, ts_us=entry.ts_us)
    return frame(ACCOUNT_FRAME, block)


def beat_frame(beat: Beat) -> bytes:
    """A beat."""
    return frame(BEAT_FRAME, _BEAT.pack(*beat))


class OpenWindows(NamedTuple):
    """The windows that were open after record `seq` at `time_us`, encoded by their copies."""

    seq: int
    time_us: int
    windows: list[Any]


def windows_frame(found: OpenWindows) -> bytes:
    """Open windows."""
    return frame(WINDOWS_FRAME, msgspec.msgpack.encode(found))


def windows_in(content: bytes) -> OpenWindows:
    """Open windows; raises Damaged."""
    try:
        return msgspec.msgpack.decode(content, type=OpenWindows)
    except msgspec.MsgspecError as error:
        raise Damaged(f"the primary sent damaged windows: {error}") from None


def entries_of(block: bytes) -> Sequence[LogEntry]:
    """The entries in a block of the log; raises Damaged."""
    try:
        unseal(block, GROUP)
    except ValueError as error:
        raise Damaged(f"the primary sent a damaged block of the log: {error}") from None
    return [*decode_entries(block)]


def account_of(block: bytes) -> LogEntry:
    """The account in a block; raises Damaged."""
    try:
        unseal(block, ACCOUNT)
    except ValueError as error:
        raise Damaged(f"the primary sent a damaged account: {error}") from None
    return accounts_in([block])[0]


def beat_of(content: bytes) -> Beat:
    """A beat; raises Damaged."""
    if len(content) != _BEAT.size:
        raise Damaged("the primary sent a damaged beat")
    return Beat(*_BEAT.unpack(content))
