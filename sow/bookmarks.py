"""Bookmarks: where in the log a subscription begins (contract §5a, S14).

A bookmark is the decimal of a change's sequence number, and a subscription begins after it. ``0``
is the beginning, ``now`` the present. A time means the last change before it; a comma list the
oldest of its bookmarks. A range ``[a:b]`` ends as well; a round bracket leaves its end out.
"""

import re
from datetime import UTC, datetime
from typing import NamedTuple

from sow.errors import ClientError
from sow.store.protocols import Journal

NOW = ("now", "0|1|")
RANGE = re.compile(r"(?P<open>[\[(])(?P<start>[^:\[\](),]*):(?P<end>[^:\[\](),]*)(?P<close>[\])])")
TIME = re.compile(r"(\d{8})T(\d{6})(?:\.(\d{1,6}))?Z?")


class Span(NamedTuple):
    """Changes after `after`, up to and with `until`; None: and then whatever comes."""

    after: int
    until: int | None = None


def parse_bookmark(text: str, journal: Journal, newest: int, not_found: str = "fail") -> Span:
    """The changes that a subscription asks for.

    `newest` is the sequence number of the newest change; `not_found` says what becomes of a
    bookmark that is not kept any more: ``fail`` refuses it, ``epoch`` begins with the oldest
    change that is kept, ``now`` with the next one. Raises ClientError.
    """
    found = RANGE.fullmatch(text.strip())
    if found is None:
        starts = [_start(part.strip(), journal, newest) for part in text.split(",")]
        return Span(_kept(min(starts), journal, newest, not_found))
    after = _start(found["start"].strip() or "0", journal, newest)
    if found["open"] == "[" and after and not TIME.fullmatch(found["start"].strip()):
        after -= 1
    end = found["end"].strip()
    until = _start(end, journal, newest) if end else newest
    if found["close"] == ")" and not TIME.fullmatch(end):
        until -= 1
    if until > newest:
        raise ClientError(
            f"the range ends at {until} and the newest change is {newest}; leave the end out, "
            "or subscribe without a range to go on",
            reason="invalid bookmark",
        )
    return Span(_kept(after, journal, newest, not_found), until)


def _start(text: str, journal: Journal, newest: int) -> int:
    if text in NOW:
        return newest
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    if time_us := _time_us(text):
        return _last_before(time_us, journal)
    raise ClientError(
        f"{text!r} is not a bookmark; write one that the server gave, 0 for the beginning, now, "
        "or a time such as 20261121T093000Z",
        reason="invalid bookmark",
    )


def _time_us(text: str) -> int | None:
    """Microseconds since 1970 of ``YYYYmmddTHHMMSS[.ffffff][Z]`` or ISO 8601, taken as UTC."""
    try:
        if found := TIME.fullmatch(text):
            at = datetime.strptime(found[1] + found[2], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
            return int(at.timestamp()) * 1_000_000 + int((found[3] or "0").ljust(6, "0"))
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1e6)


def _last_before(time_us: int, journal: Journal) -> int:
    """The newest change older than a time, found by halving: times never go back in a log."""
    low, high = journal.first_seq - 1, journal.last_seq
    while low < high:
        middle = (low + high) // 2
        entry = next(journal.read(middle), None)
        if entry is None or entry.ts_us >= time_us:
            high = middle
        else:
            low = max(entry.seq + len(entry) - 1, middle + 1)
    return low


def _kept(after: int, journal: Journal, newest: int, not_found: str) -> int:
    oldest = journal.first_seq - 1
    if after == 0:
        return oldest
    if oldest <= after <= newest:
        return after
    if not_found == "epoch":
        return oldest
    if not_found == "now":
        return newest
    raise ClientError(
        f"bookmark {after} is not kept; the oldest to go on from is {oldest}, the newest {newest}",
        reason="invalid bookmark",
    )
