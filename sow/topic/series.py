"""Series: the events of a topic's records, by record.

In a topic with a `Series` each publish is an *event*: a body with a number, a time and an author.
The record is the newest of its events, and stays what it is elsewhere: a row of the table, with its
indexes, lines and rights. The events stand beside the table. An event has the number of the change
that it was published by, so that a bookmark names it, and the log has it like any publish. An edit
replaces the body of an event, which keeps its number and its time; of the newest event it is a
change of the record too.

Which events are retained follows from those there are (`Retain`): the newest so many, and those at
most so much older than the newest. So nothing is logged when one goes. All this depends on the
events alone, in their order: a restart, which adds them again from a checkpoint and from the log,
may add one twice.

A record may have a million events, and to free so many takes a tenth of a second. So they are held
in chunks; what is not retained, and what a delete removes, is put aside by the chunk and freed some
chunks at a time (`clear_some`).
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from sow.core.cooperative import Task
from sow.core.definitions import Series
from sow.store.memory import Table, Usage
from sow.store.protocols import EVENT_ROWS, EventOrigin, Slice, numbers

CHUNK_EVENTS = 128
"""Events of one chunk: to free them takes some ten microseconds, and a chunk by itself takes as
much memory as four of them."""
CHUNKS_CLEARED = 40
"""Chunks that are freed in one step: half a millisecond."""
EVENT_BYTES = 70
"""What an event takes beside its body: its number, its time, two references, and what Python needs
for the body."""
RECORD_EVENTS_BYTES = 500
"""What a record takes for its events, beside these: its first chunk, and its place."""
RECORDS_AT_ONCE = 1_000
"""Records that one step of a restart or of a reload looks at: a millisecond."""


class SeriesEvent(NamedTuple):
    """One event of a record; `seq` is its number."""

    seq: int
    ts_us: int
    author: str
    body: bytes


class EventChunk:
    """Some events that follow each other, as columns; those before `start` are not retained."""

    __slots__ = ("authors", "bodies", "seqs", "size_bytes", "start", "ts_us")

    def __init__(self) -> None:
        self.seqs, self.ts_us = array("q"), array("q")
        self.authors: list[str] = []
        self.bodies: list[bytes] = []
        self.start = 0
        self.size_bytes = 0
        """What the retained ones take."""

    def __len__(self) -> int:
        return len(self.seqs) - self.start

    def add(self, seq: int, ts_us: int, author: str, body: bytes) -> int:
        """Add the newest event; returns what it takes."""
        self.seqs.append(seq)
        self.ts_us.append(ts_us)
        self.authors.append(author)
        self.bodies.append(body)
        size_bytes = len(body) + EVENT_BYTES
        self.size_bytes += size_bytes
        return size_bytes

    def drop_first(self) -> int:
        """Let the oldest event go; returns what it took."""
        size_bytes = len(self.bodies[self.start]) + EVENT_BYTES
        self.bodies[self.start] = b""
        self.start += 1
        self.size_bytes -= size_bytes
        return size_bytes

    def at(self, place: int) -> SeriesEvent:
        """The event at a place."""
        return SeriesEvent(
            self.seqs[place], self.ts_us[place], self.authors[place], self.bodies[place]
        )


Aside = Callable[[Sequence[EventChunk]], object]
"""Takes chunks that are to be freed."""


def _newest_seq(chunk: EventChunk) -> int:
    return chunk.seqs[-1]


class RecordEvents:
    """The events of one record, the oldest first."""

    __slots__ = ("chunks", "count")

    def __init__(self) -> None:
        self.chunks: list[EventChunk] = []
        self.count = 0

    def add(self, seq: int, ts_us: int, author: str, body: bytes) -> int:
        """Add the newest event; returns what it takes, 0 where it was added before."""
        chunk = self.chunks[-1] if self.chunks else None
        if chunk is not None and seq <= chunk.seqs[-1]:
            return 0
        if chunk is None or len(chunk.seqs) >= CHUNK_EVENTS:
            chunk = EventChunk()
            self.chunks.append(chunk)
        self.count += 1
        return chunk.add(seq, ts_us, author, body)

    def trim(self, retain: Series, aside: Aside) -> int:
        """Let go what is not retained; returns what that took. Whole chunks are put `aside`."""
        most, age_us, whole = retain.events_max, retain.age_us, 0
        extra = 0 if most is None else max(0, self.count - most)
        oldest_us = -1 if age_us is None else self.chunks[-1].ts_us[-1] - age_us
        first = self.chunks[0]
        # It ends at the last chunk: the newest event is retained in any case.
        while len(first) <= extra or first.ts_us[-1] < oldest_us:
            extra = max(0, extra - len(first))
            whole += 1
            first = self.chunks[whole]
        late = bisect_left(first.ts_us, oldest_us, first.start) - first.start
        return self._drop(whole, max(extra, late), aside)

    def drop_before(self, seq: int, aside: Aside) -> int:
        """Let go all events before a number; returns what they took."""
        whole = bisect_left(self.chunks, seq, key=_newest_seq)
        left = 0
        if whole < len(self.chunks):
            first = self.chunks[whole]
            left = bisect_left(first.seqs, seq, first.start) - first.start
        return self._drop(whole, left, aside)

    def _drop(self, whole: int, more: int, aside: Aside) -> int:
        """Let go the oldest chunks, and so many events of the one after them."""
        freed_bytes = 0
        if whole:
            going = self.chunks[:whole]
            del self.chunks[:whole]
            self.count -= sum(map(len, going))
            freed_bytes = sum(chunk.size_bytes for chunk in going)
            aside(going)
        for _ in range(more):
            freed_bytes += self.chunks[0].drop_first()
        self.count -= more
        return freed_bytes

    def place(self, seq: int) -> tuple[EventChunk, int] | None:
        """Where the event of a number is."""
        at = bisect_left(self.chunks, seq, key=_newest_seq)
        if at < len(self.chunks):
            chunk = self.chunks[at]
            place = bisect_left(chunk.seqs, seq, chunk.start)
            if chunk.seqs[place] == seq:
                return chunk, place
        return None

    def newest_first(self, until: "Bound | None" = None) -> Iterator[SeriesEvent]:
        """The events up to a bound, from the newest on; while they stay as they are."""
        end = len(self.chunks)
        if until is not None:
            end = bisect_right(self.chunks, until.value, key=until.first)
        for chunk in islice(reversed(self.chunks), len(self.chunks) - end, None):
            stop = len(chunk.seqs)
            if until is not None:
                stop = bisect_right(until.column(chunk), until.value, chunk.start)
            for place in reversed(range(chunk.start, stop)):
                yield chunk.at(place)

    def after(self, seq: int) -> Iterator[SeriesEvent]:
        """The events after a number, from the oldest on; while they stay as they are."""
        at = bisect_right(self.chunks, seq, key=_newest_seq)
        for chunk in islice(self.chunks, at, None):
            for place in range(bisect_right(chunk.seqs, seq, chunk.start), len(chunk.seqs)):
                yield chunk.at(place)


class Bound(NamedTuple):
    """One end of a range of events, inclusive: a number, or a time in microseconds."""

    value: int
    is_time: bool = False

    def column(self, chunk: EventChunk) -> "array[int]":
        """The column that it is compared with."""
        return chunk.ts_us if self.is_time else chunk.seqs

    def first(self, chunk: EventChunk) -> int:
        """The first value of a chunk that it is compared with."""
        return self.column(chunk)[chunk.start]

    def of(self, event: SeriesEvent) -> int:
        """The value of an event that it is compared with."""
        return event.ts_us if self.is_time else event.seq


class TopicEvents:
    """The events of all records of one topic, by identity; `usage` counts what they take."""

    def __init__(self, retain: Series, usage: Usage) -> None:
        self.retain = retain
        self._usage = usage
        self._by_record: dict[str, RecordEvents] = {}
        self._aside: deque[EventChunk] = deque()
        self.count = self.size_bytes = 0
        """How many events there are, and what they take."""

    def __contains__(self, identity: str) -> bool:
        return identity in self._by_record

    @property
    def has_aside(self) -> bool:
        """There are events to free."""
        return bool(self._aside)

    def clear_some(self) -> None:
        """Free some of what is not retained."""
        for _ in range(min(CHUNKS_CLEARED, len(self._aside))):
            self._aside.popleft()

    def _count(self, more: int, more_bytes: int) -> None:
        self.count += more
        self.size_bytes += more_bytes
        self._usage.count(more_bytes)

    # Changes.

    def add(
        self,
        identities: Sequence[str],
        bodies: Sequence[bytes],
        seqs: Sequence[int],
        ts_us: Sequence[int],
        author: str,
    ) -> None:
        """Add events, each the newest of its record, and let go what is not retained any more."""
        retain, aside, more, more_bytes = self.retain, self._aside.extend, 0, 0
        most = sys.maxsize if retain.events_max is None else retain.events_max
        by_record, ages = self._by_record, retain.age_us is not None
        for identity, body, seq, time_us in zip(identities, bodies, seqs, ts_us, strict=True):
            events = by_record.get(identity)
            if events is None:
                events = by_record[identity] = RecordEvents()
                more_bytes += RECORD_EVENTS_BYTES
            size_bytes = events.add(seq, time_us, author, body)
            if not size_bytes:
                continue  # by a checkpoint, before
            more += 1
            more_bytes += size_bytes
            if ages or events.count > most:
                more -= events.count
                more_bytes -= events.trim(retain, aside)
                more += events.count
        self._count(more, more_bytes)

    def edit(self, identity: str, seq: int, body: bytes, author: str) -> None:
        """Replace the body of an event, if it is there; `author` has done it."""
        events = self._by_record.get(identity)
        place = None if events is None else events.place(seq)
        if place is not None:
            chunk, at = place
            more_bytes = len(body) - len(chunk.bodies[at])
            chunk.bodies[at], chunk.authors[at] = body, author
            chunk.size_bytes += more_bytes
            self._count(0, more_bytes)

    def drop(self, identities: Iterable[str]) -> None:
        """Remove all events of records."""
        for identity in identities:
            events = self._by_record.pop(identity, None)
            if events is not None:
                size_bytes = sum(chunk.size_bytes for chunk in events.chunks)
                self._count(-events.count, -size_bytes - RECORD_EVENTS_BYTES)
                self._aside.extend(events.chunks)

    def drop_before(self, identities: Iterable[str], seq: int) -> None:
        """Remove the events of records that came before a change; for one that may have been taken
        in already."""
        for identity in identities:
            events = self._by_record.get(identity)
            if events is not None:
                count = events.count
                freed_bytes = events.drop_before(seq, self._aside.extend)
                self._count(events.count - count, -freed_bytes)
                if not events.chunks:
                    self.drop((identity,))

    def forget(self) -> None:
        """The topic is removed: its events are not counted any more."""
        self._count(-self.count, -self.size_bytes)

    def trimming(self, retain: Series) -> Task[None]:
        """Retain others from now on; let go what that excludes, some records in each step."""
        self.retain = retain
        for at, identity in enumerate(list(self._by_record)):
            events = self._by_record.get(identity)
            if events is not None:
                count, freed_bytes = events.count, events.trim(retain, self._aside.extend)
                self._count(events.count - count, -freed_bytes)
            if at % RECORDS_AT_ONCE == 0:
                yield

    # Reading.

    def count_of(self, identity: str) -> int:
        """How many events a record has."""
        events = self._by_record.get(identity)
        return 0 if events is None else events.count

    def find(self, identity: str, seq: int) -> SeriesEvent | None:
        """The event of a number."""
        events = self._by_record.get(identity)
        place = None if events is None else events.place(seq)
        return None if place is None else place[0].at(place[1])

    def newest(self, identity: str) -> SeriesEvent | None:
        """The newest event of a record."""
        return next(iter(self.last(identity, 1)), None)

    def last(self, identity: str, count: int) -> list[SeriesEvent]:
        """The newest events of a record, the oldest of them first."""
        return self.part(identity, None, None, count)[0]

    def part(
        self, identity: str, start: Bound | None, until: Bound | None, count: int
    ) -> tuple[list[SeriesEvent], bool]:
        """The newest events of a record in a range, the oldest of them first; and whether the range
        has more."""
        events, found = self._by_record.get(identity), list[SeriesEvent]()
        for event in () if events is None else events.newest_first(until):
            if start is not None and start.of(event) < start.value:
                break
            if len(found) == count:
                return found[::-1], True
            found.append(event)
        return found[::-1], False

    def growth(self, identity: str) -> int:
        """What the next event of a record takes beside its body, less what goes because of it."""
        events, most = self._by_record.get(identity), self.retain.events_max
        if events is None:
            return RECORD_EVENTS_BYTES + EVENT_BYTES
        if most is None or events.count < most:
            return EVENT_BYTES
        first = events.chunks[0]
        return -len(first.bodies[first.start])

    # Checkpoints.

    def slices(self, count: int) -> Iterator[Slice]:
        """All events as slices of a checkpoint, so many in each. Events published meanwhile may or
        may not be included; those that are follow each other."""
        rows: list[tuple[str, SeriesEvent]] = []
        for identity in list(self._by_record):
            seq = 0
            while (events := self._by_record.get(identity)) is not None:
                some = list(islice(events.after(seq), count - len(rows)))
                rows += [(identity, event) for event in some]
                if len(rows) < count:
                    break
                seq = some[-1].seq if some else seq
                yield _slice(rows)
                rows = []
        if rows:
            yield _slice(rows)

    def restore(self, part: Slice) -> None:
        """Take events of a checkpoint back."""
        rows = zip(part.identities, part.bodies, part.seqs, part.ts_us, strict=True)
        authors: dict[str, str] = {}
        for identity, packed, seq, time_us in rows:
            author, body = _unpacked(packed)
            author = authors.setdefault(author, author)  # one text for all of the slice
            self.add((identity,), (body,), (seq,), (time_us,), author)

    def replay(
        self,
        identities: Sequence[str],
        bodies: Sequence[bytes],
        seq: int,
        ts_us: int,
        origin: EventOrigin | None,
    ) -> None:
        """Take in what a log entry has published or edited, from number `seq` on, which may be
        known already."""
        if origin is not None and origin.edits:
            self.edit(identities[0], origin.edits, bodies[0], origin.author)
            return
        seqs = range(seq, seq + len(bodies))
        author = "" if origin is None else origin.author
        self.add(identities, bodies, seqs, [ts_us] * len(bodies), author)

    def settle(self, table: Table) -> Task[None]:
        """The table is restored, too: a record that has no event, of a time before there were any,
        is its own. What a changed `Retain` excludes goes."""
        for at, (identity, slot) in enumerate(list(table.slots.items())):
            if identity not in self._by_record:
                stamps = [int(table.seqs[slot])], [int(table.ts_us[slot])]
                self.add((identity,), (table.bodies[slot] or b"",), *stamps, "")
            if at % RECORDS_AT_ONCE == 0:
                yield
        for identity in [one for one in self._by_record if one not in table.slots]:
            self.drop((identity,))
        yield from self.trimming(self.retain)

    def check(self, table: Table) -> None:
        """Assert what is always true of events; reads all of them."""
        assert self._by_record.keys() == set(table.slots), "events without a record, or without any"
        count = size_bytes = 0
        for identity, events in self._by_record.items():
            found = list(events.after(0))
            assert found == list(events.newest_first())[::-1]
            assert len(found) == events.count > 0
            assert all(len(chunk) for chunk in events.chunks)
            assert [one.seq for one in found] == sorted({one.seq for one in found})
            assert found[-1].body == table.bodies[table.slots[identity]], "not the newest event"
            most, age_us = self.retain.events_max, self.retain.age_us
            assert most is None or events.count <= most
            assert age_us is None or found[0].ts_us >= found[-1].ts_us - age_us
            count += len(found)
            size_bytes += RECORD_EVENTS_BYTES + sum(len(one.body) + EVENT_BYTES for one in found)
        assert (count, size_bytes) == (self.count, self.size_bytes)


def _slice(rows: Sequence[tuple[str, SeriesEvent]]) -> Slice:
    """Events as they stand in a checkpoint: their authors in front of their bodies."""
    seqs = numbers(event.seq for _, event in rows)
    return Slice(
        [identity for identity, _ in rows],
        [_packed(event) for _, event in rows],
        seqs,
        numbers(event.ts_us for _, event in rows),
        seqs,
        numbers([EVENT_ROWS] * len(rows)),
    )


def _packed(event: SeriesEvent) -> bytes:
    author = event.author.encode("utf-8", "surrogatepass")
    return len(author).to_bytes(2, "little") + author + event.body


def _unpacked(packed: bytes) -> tuple[str, bytes]:
    end = 2 + int.from_bytes(packed[:2], "little")
    return packed[2:end].decode("utf-8", "surrogatepass"), packed[end:]
