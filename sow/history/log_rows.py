"""The log as rows of topics: which part of it is requested, and its records.

A range of the log is cut once (`extent`), so that reading it again after a failure gives the same
rows. Only what is durable is in the log.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sow.core.cooperative import Task, run_to_completion
from sow.core.keys import sow_key
from sow.expressions import Filter, MessageColumns
from sow.security.row_level_security import RowPolicy
from sow.store.protocols import Journal, LogEntry, Op
from sow.topic.records import Records
from sow.topic.rendering import Shape

RECORDS_AT_ONCE = 500
"""Records of one entry that are made rows at once: a millisecond, with their keys and as text."""
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

    `bodies` is empty unless the operation is publish.
    """

    topic: Records
    op: Op
    seqs: Sequence[int]
    ts_us: int
    keys: list[str]
    bodies: Sequence[bytes]


def extent(
    journal: Journal,
    after: int,
    until: int | None,
    limit: int,
    topics: Mapping[str, Records],
) -> Extent:
    """The part of the log after `after` that holds at most `limit` rows of some topics.

    It extends as far as it can without another row, so that the next one starts with a row.
    """
    return run_to_completion(cutting(journal, after, until, limit, topics))


def cutting(
    journal: Journal,
    after: int,
    until: int | None,
    limit: int,
    topics: Mapping[str, Records],
) -> Task[Extent]:
    """The same in steps, one entry of the topics or one piece of the log each."""
    reached, rows = after, 0
    end = sys.maxsize if until is None else until
    for piece in journal.pieces(after, topics):
        for entry in piece.entries:
            start, stop = _bounds(entry, after, end)
            if topics[entry.topic].has_logged(entry) and stop > start:
                taken = min(stop - start, limit - rows)
                rows += taken
                if taken < stop - start:
                    return Extent(after, entry.seq + start + taken - 1, rows)
            yield
        reached = min(piece.last_seq, end)
        if piece.last_seq >= end:
            break
        yield
    return Extent(after, reached, rows)


def _bounds(entry: LogEntry, after: int, until: int) -> tuple[int, int]:
    """The places of the records of an entry that lie after one record, up to another."""
    return max(0, after + 1 - entry.seq), min(len(entry), until + 1 - entry.seq)


def log_rows(
    journal: Journal,
    part: Extent,
    topics: Mapping[str, Records],
    condition: Filter | None = None,
    guards: Mapping[str, RowPolicy] = NO_GUARDS,
) -> Iterator[LogRows]:
    """The rows of a part of the log, in order; of publishes only those that pass a filter, and of
    topics with a row policy only what it shows."""
    pieces = log_pieces(journal, part, topics, condition, guards)
    return (rows for rows in pieces if rows is not None)


def log_pieces(
    journal: Journal,
    part: Extent,
    topics: Mapping[str, Records],
    condition: Filter | None = None,
    guards: Mapping[str, RowPolicy] = NO_GUARDS,
) -> Iterator[LogRows | None]:
    """The same in pieces; None for what was read and skipped."""
    if part.until <= part.after:
        return
    known: dict[str, SowKeys | None] = {}
    for piece in journal.pieces(part.after, topics):
        for entry in piece.entries:
            start, stop = _bounds(entry, part.after, part.until)
            topic = topics[entry.topic]
            if not topic.has_logged(entry):
                yield None
                continue
            if entry.topic not in known:
                known[entry.topic] = SowKeys(topic.domain) if topic.keys else None
            for at in range(start, stop, RECORDS_AT_ONCE):
                rows = _rows(topic, known[entry.topic], entry, at, min(at + RECORDS_AT_ONCE, stop))
                if (guard := guards.get(entry.topic)) is not None:
                    yield _seen(rows, condition, guard)
                else:
                    yield rows if condition is None else _passing(rows, condition)
        yield None
        if piece.last_seq >= part.until:
            return


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


def _rows(
    topic: Records, sow_keys: SowKeys | None, entry: LogEntry, start: int, stop: int
) -> LogRows:
    bodies = entry.bodies[start:stop]
    identities = (
        topic.identities_of(bodies) if entry.identities is None else entry.identities[start:stop]
    )
    keys = list(identities) if sow_keys is None else [sow_keys[identity] for identity in identities]
    seqs = range(entry.seq + start, entry.seq + stop)
    return LogRows(topic, entry.op, seqs, entry.ts_us, keys, bodies)


def _seen(rows: LogRows, condition: Filter | None, guard: RowPolicy) -> LogRows | None:
    """The visible part of rows. Whether a deleted record was visible is not known here, so a user
    with a row filter gets no deletes."""
    if rows.op != "publish":
        return rows if guard.rows is None else None
    joined = guard.condition(condition)
    passing = rows if joined is None else _passing(rows, joined)
    if passing is None or guard.select is None:
        return passing
    shown = rows.topic.renderer.shown(Shape(select=guard.select), passing.bodies)
    return replace(passing, bodies=shown)


def _passing(rows: LogRows, condition: Filter) -> LogRows | None:
    """Whether a deleted record had passed is not known here, so all deletes are kept."""
    if rows.op != "publish":
        return rows
    columns = rows.topic.decoder(condition.paths).columns(rows.bodies)
    messages = MessageColumns(
        rows.topic.name, rows.bodies, lambda: rows.keys, rows.seqs, [rows.ts_us] * len(rows.keys)
    )
    inside = condition.matches_messages(columns, messages)
    places = [at for at, hit in enumerate(inside) if hit]
    if not places:
        return None
    return LogRows(
        rows.topic,
        rows.op,
        [rows.seqs[at] for at in places],
        rows.ts_us,
        [rows.keys[at] for at in places],
        [rows.bodies[at] for at in places],
    )
