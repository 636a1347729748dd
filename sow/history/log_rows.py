"""The log as rows of topics: which part of it is requested, and its records.

A range of the log is cut once (`cutting`), so that reading it again after a failure gives the same
rows. Only what is durable is in the log.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sow.core.cooperative import Task
from sow.core.keys import sow_key
from sow.expressions import Filter, MessageColumns
from sow.security.row_level_security import RowPolicy
from sow.store.protocols import EntryHead, Journal, LogEntry, LogStretch, Op
from sow.topic.records import Records
from sow.topic.rendering import WHOLE, Shape

RECORDS_AT_ONCE = 500
"""Records of one entry that are made rows at once: a millisecond, with their keys and as text."""
NOTHING_SHOWN = (None, None)
NO_GUARDS: Mapping[str, RowPolicy] = {}
SOW_KEYS_MAX = 100_000
"""Keys that one reader of the log caches, since the same records come again: some 17 MB."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Part of the log: what comes after `after`, up to and including `until`; it has `rows`
    requested rows."""

    after: int
    until: int
    rows: int


@dataclass(frozen=True, slots=True)
class LogRows:
    """Consecutive records of one topic that share operation and time, as columns.

    `bodies` is empty where the records leave; a reader is shown them in `shape`. `identities` name
    the records within the topic. `edits` is the number of the event that the only one replaces, 0
    for none; of an older event (operation edit), its record has not changed.
    """

    topic: Records
    op: Op
    seqs: Sequence[int]
    ts_us: int
    keys: list[str]
    identities: Sequence[str]
    bodies: Sequence[bytes]
    shape: Shape = WHOLE
    edits: int = 0

    @property
    def shown(self) -> Sequence[bytes]:
        """The bodies in their shape."""
        return self.topic.renderer.shown(self.shape, self.bodies)


def cutting(
    journal: Journal, after: int, until: int | None, limit: int, topics: Mapping[str, Records]
) -> Task[Extent]:
    """The part of the log after `after` that holds at most `limit` rows of some topics, in steps of
    one entry of the topics or one stretch of the log.

    It extends as far as it can without another row, so that the next one starts with a row.
    """
    reached, rows = after, 0
    end = sys.maxsize if until is None else until
    for stretch in journal.stretches(after, topics):
        counted = _counted(stretch, after, end, topics)
        if counted is not None and counted <= limit - rows:
            rows += counted
        else:
            for head in stretch.heads():
                start, stop = _bounds(head.seq, head.records, after, end)
                if topics[head.topic].has_logged(head) and stop > start:
                    taken = min(stop - start, limit - rows)
                    rows += taken
                    if taken < stop - start:
                        return Extent(after, head.seq + start + taken - 1, rows)
                yield
        reached = max(after, min(stretch.last_seq, end))
        if stretch.last_seq >= end:
            break
        yield
    return Extent(after, reached, rows)


def first_time(
    journal: Journal, after: int, until: int, topics: Mapping[str, Records]
) -> Task[int | None]:
    """The time of the first row of some topics in a range of the log, in steps."""
    for piece in journal.pieces(after, topics):
        for entry in piece.entries:
            start, stop = _bounds(entry.seq, len(entry), after, until)
            if stop > start and topics[entry.topic].has_logged(entry):
                return entry.ts_us
        yield
        if piece.last_seq >= until:
            break
    return None


def _counted(
    stretch: LogStretch, after: int, end: int, topics: Mapping[str, Records]
) -> int | None:
    """The rows of a stretch, if all of it is in the range and known without reading it."""
    if stretch.rows is None or stretch.first_seq <= after or stretch.last_seq > end:
        return None
    heads = [EntryHead(name, stretch.first_seq, n, 0) for name, n in stretch.rows.items()]
    if not all(topics[head.topic].has_logged(head) for head in heads):
        return None
    return sum(head.records for head in heads)


def _bounds(seq: int, count: int, after: int, until: int) -> tuple[int, int]:
    """The places of the records of an entry that lie after one record, up to another."""
    return max(0, after + 1 - seq), min(count, until + 1 - seq)


def log_pieces(
    journal: Journal,
    part: Extent,
    topics: Mapping[str, Records],
    condition: Filter | None = None,
    guards: Mapping[str, RowPolicy] = NO_GUARDS,
    shape: Shape = WHOLE,
) -> Iterator[LogRows | None]:
    """The rows of a part of the log, in order; of publishes only those that pass a filter, in the
    given shape, and of topics with a row policy only what it shows. None for what was read and
    skipped."""
    if part.until <= part.after:
        return
    known: dict[str, _TopicRows] = {}
    for piece in journal.pieces(part.after, topics):
        for entry in piece.entries:
            start, stop = _bounds(entry.seq, len(entry), part.after, part.until)
            topic = topics[entry.topic]
            if not topic.has_logged(entry):
                yield None
                continue
            if entry.topic not in known:
                guard = guards.get(entry.topic)
                known[entry.topic] = _TopicRows(topic, condition, guard, shape)
            for at in range(start, stop, RECORDS_AT_ONCE):
                yield known[entry.topic].of(entry, at, min(at + RECORDS_AT_ONCE, stop))
        yield None
        if piece.last_seq >= part.until:
            return


@dataclass(frozen=True, slots=True)
class Images:
    """Changes with the record before and after each: a body, or None where there is none that the
    reader is shown; never both.

    Where a record leaves, what it was is shown in the shape `gone`; None: not at all.
    """

    rows: LogRows
    before: Sequence[bytes | None]
    after: Sequence[bytes | None]
    gone: Shape | None = WHOLE

    def parts(self, bytes_max: int) -> Iterator["Images"]:
        """The same in parts of at most so many bytes, or of one change: small changes of one entry
        may be of records that are large."""
        sizes = [
            len(old or b"") + len(new or b"")
            for old, new in zip(self.before, self.after, strict=True)
        ]
        start = size = 0
        for at, more in enumerate(sizes):
            if at > start and size + more > bytes_max:
                yield self._part(start, at)
                start, size = at, 0
            size += more
        yield self if start == 0 else self._part(start, len(sizes))

    def _part(self, start: int, stop: int) -> "Images":
        rows = _at(self.rows, range(start, stop))
        return replace(
            self, rows=rows, before=self.before[start:stop], after=self.after[start:stop]
        )


def image_pieces(
    journal: Journal,
    part: Extent,
    topic: Records,
    before: Callable[[LogRows], Sequence[bytes | None]],
    condition: Filter | None = None,
    guard: RowPolicy | None = None,
    shape: Shape = WHOLE,
    gone: Shape | None = WHOLE,
) -> Iterator[Images | None]:
    """The changes of a topic in a part of the log, in order and in pieces; None for what was read
    and skipped.

    `before` is called with each piece in order and returns what its records were. A change counts
    if the record passes the filter, or is the reader's to see, on one side at least.
    """
    seen = _TopicRows(topic, condition, guard, shape)
    for rows in log_pieces(journal, part, {topic.name: topic}):
        if rows is None or rows.op == "edit":  # which is no change of the record
            yield None
        else:
            yield seen.images(rows, before(rows), gone)


class _TopicRows:
    """Makes rows of one topic's entries: what one reader is shown of them."""

    def __init__(
        self, topic: Records, condition: Filter | None, guard: RowPolicy | None, shape: Shape
    ) -> None:
        self._topic = topic
        self._condition = condition if guard is None else guard.condition(condition)
        self._guard = guard
        self._shape = shape if guard is None else Shape(select=guard.shape(shape.select))
        self._hides_records = guard is not None and guard.rows is not None
        self._sow_keys = SowKeys(topic.domain) if topic.keys else None

    def of(self, entry: LogEntry, start: int, stop: int) -> LogRows | None:
        """The rows of some records of an entry. Whether a deleted record had passed the filter is
        not known here, so all deletes are shown, unless a row policy hides records."""
        if entry.op in ("delete", "expire"):
            return None if self._hides_records else self._all(entry, start, stop)
        rows = self._all(entry, start, stop)
        return rows if self._condition is None else _passing(rows, self._condition)

    def _all(self, entry: LogEntry, start: int, stop: int) -> LogRows:
        bodies = entry.bodies[start:stop]
        identities = (
            self._topic.identities_of(bodies)
            if entry.identities is None
            else entry.identities[start:stop]
        )
        sow_keys = self._sow_keys
        keys = list(identities) if sow_keys is None else [sow_keys[one] for one in identities]
        seqs = range(entry.seq + start, entry.seq + stop)
        return LogRows(
            self._topic, entry.op, seqs, entry.ts_us, keys, identities, bodies, self._shape,
            0 if entry.origin is None else entry.origin.edits,
        )  # fmt: skip

    def images(
        self, rows: LogRows, before: Sequence[bytes | None], gone: Shape | None
    ) -> Images | None:
        """Rows with what was before each; None if none counts."""
        after: Sequence[bytes | None] = rows.bodies or [None] * len(rows.keys)
        if self._condition is not None:
            before = _hidden(rows, before, self._condition)
            after = _hidden(rows, after, self._condition)
        places = [
            at for at, sides in enumerate(zip(before, after, strict=True)) if sides != NOTHING_SHOWN
        ]
        if not places:
            return None
        shown = replace(_at(rows, places), shape=self._shape)
        guard = self._guard
        if guard is not None and gone is not None:
            gone = Shape(select=guard.shape(gone.select))
        return Images(shown, [before[at] for at in places], [after[at] for at in places], gone)


class SowKeys(dict[str, str]):
    """SowKeys as text by identity, computed on demand.

    A log is mostly updates of records that it has named before, and the hash is half of the work of
    reading it. Drops all when it has too many.
    """

    def __init__(self, domain: str) -> None:
        super().__init__()
        self._domain = domain

    def __missing__(self, identity: str) -> str:
        if len(self) >= SOW_KEYS_MAX:
            self.clear()
        found = self[identity] = str(sow_key(self._domain, identity))
        return found


def _passing(rows: LogRows, condition: Filter) -> LogRows | None:
    """The publishes that pass a filter."""
    places = [at for at, hit in enumerate(_hits(rows, rows.bodies, condition)) if hit]
    return _at(rows, places) if places else None


def _hidden(
    rows: LogRows, bodies: Sequence[bytes | None], condition: Filter
) -> Sequence[bytes | None]:
    """Bodies of the rows' records; None in place of those that do not pass a filter."""
    there = [at for at, body in enumerate(bodies) if body is not None]
    found: list[bytes | None] = [None] * len(bodies)
    if there:
        held = [body for body in bodies if body is not None]
        for at, hit in zip(there, _hits(_at(rows, there), held, condition), strict=True):
            if hit:
                found[at] = bodies[at]
    return found


def _hits(rows: LogRows, bodies: Sequence[bytes], condition: Filter) -> Sequence[bool]:
    """Which bodies of the rows' records pass a filter."""
    columns = rows.topic.decoder(condition.paths).columns(bodies)
    messages = MessageColumns(
        rows.topic.name, bodies, lambda: rows.keys, rows.seqs, [rows.ts_us] * len(rows.keys)
    )
    return condition.matches_messages(columns, messages)


def _at(rows: LogRows, places: Sequence[int]) -> LogRows:
    """Some of the rows."""
    return replace(
        rows,
        seqs=[rows.seqs[at] for at in places],
        keys=[rows.keys[at] for at in places],
        identities=[rows.identities[at] for at in places],
        bodies=[rows.bodies[at] for at in places] if rows.bodies else (),
    )
