"""The lines that an upstream server sends, read as far as a chained server has to know them.

A line is passed on as it came but for the name of its subscription, which each server gives itself.
Beside it goes the update that it stands for, so that a slow client's queue folds it by the same
rules as upstream's would (`sow.streaming.outbox`).
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from sow.protocol.replies import SentPlace

KEY = b',"k":"'
CLOSE, END = b'{"c":"close"', b'{"c":"unsubscribed"'
QUOTE, BACKSLASH = b'"\\'


class UpstreamLine(msgspec.Struct):
    """The fields of a line that matter here."""

    c: str = ""
    s: str = ""
    t: str = ""
    k: str = ""
    d: msgspec.Raw = msgspec.Raw(b"")
    bm: str = ""
    ts: str = ""
    delta: bool = False
    reason: str = ""
    cid: str | None = None
    a: str = ""
    status: str = ""
    matches: int | None = None
    advice: tuple[str, ...] = ()
    at: int | None = None


read_line = msgspec.json.Decoder(UpstreamLine).decode


def place_of(bookmark: str) -> int:
    """A bookmark, ``SEQ`` or ``SEQ.N``, as a number that compares with others."""
    if "." not in bookmark:
        return int(bookmark)
    seq, _, time_us = bookmark.partition(".")
    return SentPlace(int(seq), int(time_us))


def is_later(place: int, than: int) -> bool:
    """Whether a line of one place comes after another place of the same subscription. Places in
    what a conflated topic or a view of one has sent are ordered by their times: their number, that
    of the newest change in it, may be smaller than that of a snapshot before."""
    if isinstance(place, SentPlace) and isinstance(than, SentPlace):
        return (place.time_us, int(place)) > (than.time_us, int(than))
    return int(place) > int(than)


def time_of(timestamp: str) -> int:
    """The time of a line in microseconds; 0 where it has none."""
    if not timestamp:
        return 0
    seconds, _, rest = timestamp.removesuffix("Z").partition(".")
    whole = int(datetime.fromisoformat(f"{seconds}+00:00").timestamp())
    return whole * 1_000_000 + int(rest or 0)


def renamed(line: bytes, old: bytes, new: bytes) -> bytes:
    """A line under another name of its subscription; `old` and `new` are fields, ``"s":"f1"``. The
    field stands before everything that a client has written."""
    return line.replace(old, new, 1)


def without_key(line: bytes) -> bytes:
    """A line without its SowKey, which stands before everything that a client has written but the
    key itself, where quotes are escaped."""
    start = line.find(KEY)
    if not 0 <= start < line.find(b',"d":'):
        return line
    end = start + len(KEY)
    while line[end] != QUOTE:
        end += 2 if line[end] == BACKSLASH else 1
    return line[:start] + line[end + 1 :]


def without_ends(lines: Sequence[bytes]) -> Sequence[bytes]:
    """The lines of a frame; where its last one closes the session, without those that end its
    subscriptions, since the clients are sent these by their own sessions that end."""
    if not lines[-1].startswith(CLOSE):
        return lines
    return [line for line in lines if not line.startswith(END)]


def name_field(name: str) -> bytes:
    """The field of a subscription's name."""
    return b'"s":"%b"' % name.encode()
