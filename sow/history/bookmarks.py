"""Bookmarks: where in the log a subscription begins (docs/semantics.md, Rule 14).

A bookmark is the decimal of a change's sequence number, and a subscription begins after it. ``0``
is the beginning, ``now`` the present, after everything there is. A time means the last change
before it; a comma list the oldest of its bookmarks. A range ``[a:b]`` ends as well; a round bracket
excludes the change, or those of the time, beside it, and so nothing where that side is empty.

What a conflated topic has sent has places of its own, ``SEQ.N``: after all that was due up to N,
microseconds since 1970. SEQ is the newest change in that, and elsewhere it is all that counts. A
view may have taken it in at N itself, as one that has just changed, or on a follower.

Each log has a name, and numbers of one mean nothing in another. A number may name its log,
``LOG-NUMBER``: then it is refused for another log. Clients always write it so.
"""

import re
from collections.abc import Container, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

from sow.core.cooperative import Task
from sow.errors import AnotherLog, ClientError, NotKept, NotReached, invalid_bookmark
from sow.store.protocols import KeptCheckpoint, Log, LogEntry, goes_on

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
PAUSE_SOUGHT = 1_000
"""Records of the log in which a pause is sought first; then in the twice as many before these."""
POSITION = re.compile(r"(?:([0-9a-f]{16})-)?([0-9]{1,19})(?:\.([0-9]{1,19}))?")
RANGE = re.compile(r"([\[(])(.*)([\])])", re.DOTALL)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
TIME = re.compile(r"(\d{8})T(\d{6})(?:\.(\d{1,6}))?Z?")


class Span(NamedTuple):
    """Changes after `after`, up to and including `until`; None: and then all that come."""

    after: int
    until: int | None = None


class Moment(NamedTuple):
    """A place in the log and a time: after record `seq`, at `time_us`, not before that record's."""

    seq: int
    time_us: int


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
    log, number, _ = found.groups()
    if log is not None and log != log_id:
        raise AnotherLog(
            f"bookmark {text} is of the log {log}, and this is the log {log_id}: the data "
            "directory was replaced or restored, or another server has the address; begin again, "
            "with a snapshot or at 0"
        )
    return int(number)


def turn_time(text: str) -> int:
    """The time that a place in what was sent names, ``SEQ.N``; 0 for any other text."""
    found = POSITION.fullmatch(text)
    return int(found[3] or 0) if found else 0


def is_of_log(text: str, log_id: str) -> bool:
    """Whether a text is the number of a change in the log `log_id`."""
    found = POSITION.fullmatch(text)
    return found is not None and found[1] in (None, log_id)


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


def parse_bookmark(text: str, journal: Log, newest: int, not_found: str = "fail") -> Span:
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
                    raise invalid_bookmark(
                        f"the range ends at {end}, before its beginning {start}; write "
                        f"{opening}{end}:{start}{closing}"
                    )
                after = first.before if opening == "[" else first.through
                until = last.through if closing == "]" else last.before
                return _checked(Span(after, until), journal, newest, not_found)
        raise _not_a_bookmark(text)
    if text.count(",") >= LIST_MAX:
        raise invalid_bookmark(
            f"a list of bookmarks has at most {LIST_MAX} members; the oldest of them is enough"
        )
    after = _oldest([part.strip() for part in text.split(",")], journal, newest)
    return Span(_kept(after, journal, newest, not_found))


def parse_start(name: str, text: str, journal: Log, newest: int, instead: str) -> int:
    """The change after which something without an end of its own begins: a bookmark as above, but
    no range. `name` is the parameter that has it, and `instead` is what to write for a range.
    Raises ClientError."""
    if RANGE.fullmatch(text.strip()[:RANGE_CHARS_MAX]):
        raise invalid_bookmark(f"{name}={_shown(text)} is a range; {instead}")
    return parse_bookmark(text, journal, newest).after


def parse_moment(
    name: str,
    text: str,
    journal: Log,
    newest: int,
    now_us: int,
    kept: Sequence[KeptCheckpoint] = (),
) -> Moment:
    """The moment that the parameter `name` names: a time, or a bookmark, which is the time of its
    change; inside a change of several records it is the state before all of them. A place in what a
    conflated topic has sent is the moment behind that.

    `newest` is the sequence number of the newest change, `kept` what a History keeps. Raises
    ClientError, and NotKept, with the range that is kept, for a moment that the log does not cover.
    """
    text, oldest = text.strip(), journal.first_seq - 1
    time_us = moment_us(text) if is_time(text) else None
    try:
        if time_us is not None and time_us > now_us:
            raise NotKept(
                f"{name}={_shown(text)} is in the future: it is {time_text(now_us)} now; write a "
                "time up to that"
            )
        instead = "a state is of one moment: write a bookmark or a time"
        seq = parse_start(name, text, journal, newest, instead)
        if time_us is not None and oldest and seq <= oldest and not _says(kept, seq, time_us):
            raise NotKept(
                f"{name}={text}: the log no longer covers that time; the oldest moment it covers "
                f"is bookmark {_end_of_change(kept[0].exact_seq, journal) if kept else oldest}"
            )
    except NotKept as error:
        error.bounds = covered(journal, newest, now_us, kept)
        raise
    if time_us is not None:
        return Moment(min(seq, newest), time_us)
    if text in NOW:
        return Moment(newest, now_us)
    found = POSITION.fullmatch(text)
    if found is not None and found[3] is not None:
        return _behind_place(found, journal, now_us)
    return _after_change(seq, journal) if seq > oldest else Moment(seq, 0)


def _says(kept: Sequence[KeptCheckpoint], seq: int, time_us: int) -> bool:
    """Whether what is kept says that a state after the last entry that was removed was there at a
    time: it is known, but from the log not since when."""
    return any(one.exact_seq <= seq and one.exact_us < time_us for one in kept)


def parse_sent(
    text: str, journal: Log, newest: int, now_us: int, not_found: str = "fail"
) -> Moment:
    """The moment after which what a conflated topic or a view has sent is requested: of several the
    oldest. Raises ClientError."""
    if is_range(text):
        raise invalid_bookmark(
            f"{_shown(text)} is a range, and what a conflated topic or a view has sent is read up "
            "to the present; write where to begin"
        )
    after = parse_bookmark(text, journal, newest, not_found).after
    parts = text.strip().split(",")
    return min(_sent_at(part.strip(), after, journal, newest, now_us) for part in parts)


def _sent_at(text: str, after: int, journal: Log, newest: int, now_us: int) -> Moment:
    """The moment of one bookmark; of one that names none any more, that of record `after`."""
    found, oldest = POSITION.fullmatch(text), journal.first_seq - 1
    time_us = moment_us(text) if is_time(text) else None
    if found is not None and found[3] is not None:
        return _behind_place(found, journal, now_us)
    if time_us is not None:
        return _behind_turn(0, time_us - 1, journal, now_us)  # what was due at that time is sent
    seq = after if found is None else int(found[2])
    if not oldest <= seq <= newest:
        seq = after
    if seq <= oldest:
        return Moment(oldest, 0)
    return Moment(seq, next(journal.read(seq - 1)).ts_us)


def _behind_place(found: re.Match[str], journal: Log, now_us: int) -> Moment:
    """The moment behind a place in what was sent; raises NotReached for one that is still to
    come."""
    if int(found[3]) > now_us:
        raise NotReached(
            f"bookmark {found[0]} is of a time that this server has not come to; send this again "
            "later, or to another server"
        )
    return _behind_turn(int(found[2]), int(found[3]), journal, now_us)


def _behind_turn(seq: int, time_us: int, journal: Log, now_us: int) -> Moment:
    """The moment behind what a conflated topic or a view has sent at a time. Of the changes at that
    time itself a view, which has no windows, has taken in those up to `seq`."""
    time_us = min(time_us, now_us)
    before = last_before(time_us, journal)
    if before < seq <= journal.last_seq and next(journal.read(seq - 1)).ts_us == time_us:
        before = seq
    return Moment(before, time_us)


def _after_change(seq: int, journal: Log) -> Moment:
    """The moment of record `seq`: after the change that ends with it, or before the one that it is
    inside of."""
    entries = journal.read(seq - 1)
    entry = next(entries)
    following = next(entries, None)
    is_last = entry.seq + len(entry) - 1 == seq
    if is_last and (following is None or not goes_on(entry, following)):
        return Moment(seq, entry.ts_us)
    # The change is of one time, which began where the log was older.
    first = before = None
    for one in journal.read(last_before(entry.ts_us, journal)):
        if before is None or not goes_on(before, one):
            first = one
        before = one
        if one.seq >= entry.seq:
            break
    return Moment((first or entry).seq - 1, entry.ts_us)


def _end_of_change(seq: int, journal: Log) -> int:
    """The last record of the change that record `seq` is part of: inside it the state is that
    before it."""
    entry = next(journal.read(seq - 1), None) if seq >= journal.first_seq else None
    return seq if entry is None else last_before(entry.ts_us + 1, journal)


def covered(
    journal: Log, newest: int, now_us: int, kept: Sequence[KeptCheckpoint]
) -> dict[str, object]:
    """The oldest and the newest moment that the log, with what a History keeps, covers, for
    people."""
    oldest = journal.first_seq - 1
    if oldest and kept:
        oldest, since_us = _end_of_change(kept[0].exact_seq, journal), kept[0].exact_us + 1
    else:
        first = next(journal.read(oldest), None)
        # A time includes everything before it.
        since_us = now_us if first is None else first.ts_us + (oldest > 0)
    return {
        "oldest": {"bookmark": str(oldest), "time": time_text(since_us)},
        "newest": {"bookmark": str(newest), "time": time_text(now_us)},
    }


def time_text(time_us: int) -> str:
    """A time as text, in UTC."""
    return (EPOCH + time_us * MICROSECOND).isoformat().replace("+00:00", "Z")


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


def _checked(span: Span, journal: Log, newest: int, not_found: str) -> Span:
    assert span.until is not None
    if span.until > newest:
        raise invalid_bookmark(
            f"the range ends at {span.until} and the newest change is {newest}; leave the end out, "
            "or subscribe without a range to go on"
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


def _oldest(texts: Sequence[str], journal: Log, newest: int) -> int:
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


def _place(text: str, journal: Log, newest: int) -> LogPlace | None:
    """The place that a text names; None if it is no bookmark."""
    place, time_us = _numbered(text, journal.log_id, newest), moment_us(text)
    if place is not None or time_us is None:
        return place
    before = last_before(time_us, journal)
    return LogPlace(before, last_before(time_us + 1, journal, before))


def _not_a_bookmark(text: str) -> ClientError:
    return invalid_bookmark(
        f"{_shown(text)!r} is not a bookmark; write one that the server gave, 0 for the "
        "beginning, now, a time such as 20261121T093000Z, or a range such as [1:9]"
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


def last_before(time_us: int, journal: Log, at_least: int | None = None) -> int:
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


def pause_before(
    moment: Moment, log: Log, topics: Container[str], long_us: int, others_us: Sequence[int] = ()
) -> Task[Moment | None]:
    """The end of the last pause in which for `long_us` none of some topics has changed, and nothing
    was at `others_us`; the change after it is so much older than a moment. None: there is none. The
    log is read backwards, the more at once the further it goes."""
    until, count, oldest = moment.seq, PAUSE_SOUGHT, log.first_seq - 1
    following: LogEntry | None = None
    while until > oldest:
        after = max(oldest, until - count)
        found: Moment | None = None
        first: LogEntry | None = None
        before: LogEntry | None = None
        for piece in log.pieces(after, topics):
            for entry in piece.entries:
                if entry.seq > until:
                    break
                first = first or entry
                if before is not None:
                    found = _pause(before, entry, moment, long_us, others_us) or found
                before = entry
            yield
            if piece.last_seq >= until:
                break
        if before is not None and following is not None:
            found = _pause(before, following, moment, long_us, others_us) or found
        if found is not None:
            return found
        following, until, count = first or following, after, 2 * count
    return None


def _pause(
    before: LogEntry, entry: LogEntry, moment: Moment, long_us: int, others_us: Sequence[int]
) -> Moment | None:
    """The end of the pause before an entry, if it is one."""
    end_us = entry.ts_us - 1
    is_long = end_us - before.ts_us >= long_us and entry.ts_us + long_us <= moment.time_us
    if not is_long or any(end_us - long_us <= at_us <= end_us for at_us in others_us):
        return None
    return Moment(entry.seq - 1, end_us)


def _kept(after: int, journal: Log, newest: int, not_found: str) -> int:
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
