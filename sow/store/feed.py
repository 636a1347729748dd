"""The feed: the log as a follower reads it from another server, in the frames of a backup.

    a   accounts that a follower needs, as a block: starts, reloads, the types of columns
    b   a block of the log as it is stored
    w   open windows as of a record and a time, if they were requested; first of all
    t   a beat: everything up to a record has been sent, and nothing that comes has an earlier time
    x   why there is no more

An account stands before the records that were logged after it. Blocks carry their checksums, so a
flipped bit is seen on the way.
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
    """Everything up to record `seq` is there, and nothing that follows has a time before
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
    """What was open after record `seq` at a time, in the form of who made it."""

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
        raise Damaged(f"what came of open windows: {error}") from None


def entries_of(block: bytes) -> Sequence[LogEntry]:
    """The entries in a block of the log; raises Damaged."""
    try:
        unseal(block, GROUP)
    except ValueError as error:
        raise Damaged(f"what came of the log: {error}") from None
    return [*decode_entries(block)]


def account_of(block: bytes) -> LogEntry:
    """The account in a block; raises Damaged."""
    try:
        unseal(block, ACCOUNT)
    except ValueError as error:
        raise Damaged(f"what came of an account: {error}") from None
    return accounts_in([block])[0]


def beat_of(content: bytes) -> Beat:
    """A beat; raises Damaged."""
    if len(content) != _BEAT.size:
        raise Damaged("what came is no beat of a log")
    return Beat(*_BEAT.unpack(content))
