"""What a follower reads: frames that say what is broken."""

import pytest

from sow.errors import Damaged
from sow.store.backup import (
    Beat,
    FrameReader,
    account_frame,
    account_of,
    beat_frame,
    beat_of,
    block_frame,
    entries_of,
)
from sow.store.layout import GROUP, encode_entries, seal
from sow.store.protocols import LogEntry

ENTRY = LogEntry("publish", "orders", 7, 1_000, None, [b'{"id":1}', b'{"id":2}'], [5, 0])
ACCOUNT = LogEntry("publish", "/sow/columns", 7, 1_000, ["a"], [b"{}"], account=True)


def read(*frames):
    found = []
    reader = FrameReader(lambda kind, content: found.append((kind, content)))
    for byte in b"".join(frames):
        reader.feed(bytes([byte]))
    return found


def block():
    return seal(GROUP, encode_entries([ENTRY]), seq=7, count=2)[0]


def test_what_is_sent_is_read_however_it_is_cut():
    sent = read(account_frame(ACCOUNT), block_frame(block()), beat_frame(Beat(8, 2_000)))
    assert [kind for kind, _ in sent] == [b"a", b"b", b"t"]
    account, entries, beat = (content for _, content in sent)
    assert account_of(account) == ACCOUNT
    (entry,) = entries_of(entries)
    assert (entry.topic, entry.seq, list(entry.expires_us)) == ("orders", 7, [5, 0])
    assert beat_of(beat) == Beat(8, 2_000)


def test_changed_bytes_are_seen():
    for reader, content in ((entries_of, block()), (account_of, account_frame(ACCOUNT)[5:])):
        with pytest.raises(Damaged):
            reader(content[:-1] + b"x")
    with pytest.raises(Damaged):
        beat_of(b"short")
    with pytest.raises(Damaged):
        account_of(block())
