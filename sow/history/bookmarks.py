"""Bookmarks: where in the log a subscription begins (docs/semantics.md, Rule 14).

A bookmark is the decimal of a change's sequence number, and a subscription begins after it. ``0``
is the beginning, ``now`` the present, after everything there is. A time means the last change
before it; a comma list the oldest of its bookmarks. A range ``[a:b]`` ends as well; a round bracket
excludes the change, or those of the time, beside it, and so nothing where that side is empty.

Each log has a name, and numbers of one mean nothing in another. A number may name its log,
``LOG-NUMBER``: then it is refused for another log. Clients always write it so.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

from sow.errors import AnotherLog, ClientError, NotKept
from sow.store.protocols import Journal

NOW = ("now", "0|1|")
BEGINNING = -1
"""Before the oldest change that is kept."""
SHOWN_MAX = 40
"""So much of a text that is no bookmark is shown in the error."""
RANGE_CHARS_MAX = 100
"""No range of two times is longer; splitting is tried at each of its colons."""
LIST_MAX = 100
"""The oldest is enough; no client resumes from so many servers."""
FOLLOWING_MAX = 16
"""Entries after a place that are scanned before the search halves the log again."""
POSITION = re.compile(r"(?:([0-9a-f]{16})-)?([0-9]{1,19})")
RANGE = re.compile(r"([\[(])(.*)([\])])", re.DOTALL)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
TIME = re.compile(r"(\d{8})T(\d{6})(?:\.(\d{1,6}))?Z?")


class Span(NamedTuple):
    """Changes after `after`, up to and including `until`; None: and then all that come."""

    after: int
    until: int | None = None


class LogPlace(NamedTuple):
    """A place in the log: the newest change before it, and the newest that is not after it."""

    before: int
    through: int


def number_of(text: str, log_id: str) -> int | None:
    """The number that a bookmark names in the log `log_id`: ``NUMBER`` or ``LOG-NUMBER``; None for
    a text that is neither. Raises AnotherLog."""
    found = POSITION.fullmatch(text)
    if found is None:
        return None
    log, number = found.groups()
    if log is not None and log != log_id:
        raise AnotherLog(
            f"bookmark {text} is of the log {log}, and this is the log {log_id}: the data "
            "directory was replaced or restored, or another server has the address; begin again, "
            "with a snapshot or at 0"
        )
    return int(number)


def with_log(text: str, log_id: str) -> str:
    """A bookmark whose numbers name their log: `log_id` where they name none. 0 is the beginning of
    any log. Returns `text` itself where the log's name is unknown."""
    if not log_id:
        return text
    for opening, start, end, closing in _ranges(text):
        if _is_place(start) and _is_place(end):
            return f"{opening}{_named(start, log_id)}:{_named(end, log_id)}{closing}"
    return ",".join(_named(part, log_id) for part in text.split(","))


def _named(text: str, log_id: str) -> str:
    found = POSITION.fullmatch(text.strip())
    is_bare = found is not None and found[1] is None and int(found[2]) > 0
    return f"{log_id}-{text.strip()}" if is_bare else text


def parse_bookmark(text: str, journal: Journal, newest: int, not_found: str = "fail") -> Span:
    """The changes that a subscription requests.

    `newest` is the sequence number of the newest change; `not_found` decides about a bookmark that
    is not kept any more: ``fail`` refuses it, ``epoch`` begins with the oldest change that is kept,
    ``now`` with the next one. Raises ClientError.
    """
    text = text.strip()
    if len(text) <= RANGE_CHARS_MAX and RANGE.fullmatch(text):
        for opening, start, end, closing in _ranges(text):
            first = _place(start, journal, newest) if start else LogPlace(BEGINNING, BEGINNING)
            last = _place(end, journal, newest) if end else LogPlace(newest, newest)
            if first is not None and last is not None:
                if _is_reversed(start, end, journal.log_id):
                    raise ClientError(
                        f"the range ends at {end}, before its beginning {start}; write "
                        f"{opening}{end}:{start}{closing}",
                        reason="invalid bookmark",
                    )
                after = first.before if opening == "[" else first.through
                until = last.through if closing == "]" else last.before
                return _checked(Span(after, until), journal, newest, not_found)
        raise _not_a_bookmark(text)
    if text.count(",") >= LIST_MAX:
        raise ClientError(
            f"a list of bookmarks has at most {LIST_MAX} members; the oldest of them is enough",
            reason="invalid bookmark",
        )
    after = _oldest([part.strip() for part in text.split(",")], journal, newest)
    return Span(_kept(after, journal, newest, not_found))


def parse_start(name: str, text: str, journal: Journal, newest: int, instead: str) -> int:
    """The change after which something without an end of its own begins: a bookmark as above, but
    no range. `name` is the parameter that has it, and `instead` is what to write for a range.
    Raises ClientError."""
    if RANGE.fullmatch(text.strip()[:RANGE_CHARS_MAX]):
        raise ClientError(f"{name}={_shown(text)} is a range; {instead}", reason="invalid bookmark")
    return parse_bookmark(text, journal, newest).after


def _is_reversed(start: str, end: str, log_id: str) -> bool:
    """Whether a range of two numbers or of two times ends before it begins, whatever the log
    has."""
    first, last = number_of(start, log_id), number_of(end, log_id)
    if first is not None and last is not None:
        return first > last
    start_us, end_us = moment_us(start), moment_us(end)
    return start_us is not None and end_us is not None and start_us > end_us


def going_on(text: str, bookmark: str) -> str:
    """What to request in place of `text` when everything up to `bookmark` has been received: a
    range keeps its end."""
    for _, start, end, closing in _ranges(text):
        if _is_place(start) and _is_place(end):
            return f"({bookmark}:{end}{closing}"
    return bookmark


def is_range(text: str) -> bool:
    """Whether a bookmark has an end, so that what begins at it ends as well."""
    return RANGE.fullmatch(text.strip()) is not None


def is_time(text: str) -> bool:
    """Whether a bookmark is a time: what it names depends on when changes came."""
    text = text.strip()
    is_number = text in NOW or POSITION.fullmatch(text)
    return not is_number and moment_us(text) is not None


def _is_place(text: str) -> bool:
    is_number = not text or text in NOW or POSITION.fullmatch(text)
    return bool(is_number) or moment_us(text) is not None


def _checked(span: Span, journal: Journal, newest: int, not_found: str) -> Span:
    assert span.until is not None
    if span.until > newest:
        raise ClientError(
            f"the range ends at {span.until} and the newest change is {newest}; leave the end out, "
            "or subscribe without a range to go on",
            reason="invalid bookmark",
        )
    return Span(_kept(span.after, journal, newest, not_found), span.until)


def _ranges(text: str) -> Iterator[tuple[str, str, str, str]]:
    """The brackets, beginning and end of a range, in each way to split it: a time may have colons
    of its own, so the last one first. Nothing for a text that is no range."""
    found = RANGE.fullmatch(text.strip())
    if found is None:
        return
    opening, inner, closing = found.groups()
    at = len(inner)
    while (at := inner.rfind(":", 0, at)) >= 0:
        yield opening, inner[:at].strip(), inner[at + 1 :].strip(), closing


def _oldest(texts: Sequence[str], journal: Journal, newest: int) -> int:
    """Where a subscription with several bookmarks begins: after the oldest of them, or with what
    came at the earliest of their times, the only one that is searched for."""
    starts: list[int] = []
    times_us: list[int] = []
    for text in texts:
        place = _numbered(text, journal.log_id, newest)
        if place is not None:
            starts.append(place.through)
        elif (time_us := moment_us(text)) is not None:
            times_us.append(time_us)
        else:
            raise _not_a_bookmark(text)
    if times_us:
        starts.append(last_before(min(times_us), journal))
    return min(starts)


def _numbered(text: str, log_id: str, newest: int) -> LogPlace | None:
    """The place that a text names, unless it is a time; None if it names none. Raises
    AnotherLog."""
    if text in NOW:
        return LogPlace(newest, newest)
    seq = number_of(text, log_id)
    if seq is None:
        return None
    return LogPlace(seq - 1, seq) if seq else LogPlace(BEGINNING, BEGINNING)


def _place(text: str, journal: Journal, newest: int) -> LogPlace | None:
    """The place that a text names; None if it is no bookmark."""
    place, time_us = _numbered(text, journal.log_id, newest), moment_us(text)
    if place is not None or time_us is None:
        return place
    before = last_before(time_us, journal)
    return LogPlace(before, last_before(time_us + 1, journal, before))


def _not_a_bookmark(text: str) -> ClientError:
    return ClientError(
        f"{_shown(text)!r} is not a bookmark; write one that the server gave, 0 for the "
        "beginning, now, a time such as 20261121T093000Z, or a range such as [1:9]",
        reason="invalid bookmark",
    )


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "…"


def moment_us(text: str) -> int | None:
    """Microseconds since 1970 of ``YYYYmmddTHHMMSS[.ffffff][Z]`` or ISO 8601, taken as UTC;
    None for what is no time."""
    try:
        if found := TIME.fullmatch(text):
            at = datetime.strptime(found[1] + found[2], "%Y%m%d%H%M%S")
            at = at.replace(microsecond=int((found[3] or "0").ljust(6, "0")))
        else:
            at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return (at - EPOCH) // MICROSECOND


def last_before(time_us: int, journal: Journal, at_least: int | None = None) -> int:
    """The newest change older than a time, by binary search: times never go back in a log.

    `at_least` is known to be no newer: mostly it is the answer.
    """
    low, high = journal.first_seq - 1, journal.last_seq
    if at_least is not None:
        low = at_least
        for following in islice(journal.read(at_least), FOLLOWING_MAX):
            if following.ts_us >= time_us:
                return low
            low = following.seq + len(following) - 1
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
    if after == BEGINNING:
        return oldest
    if oldest <= after <= newest:
        return after
    if not_found == "epoch":
        return oldest
    if not_found == "now":
        return newest
    raise NotKept(
        f"bookmark {after} is not kept; the oldest to go on from is {oldest}, the newest {newest}"
    )
