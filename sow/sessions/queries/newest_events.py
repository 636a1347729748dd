"""The newest events of series: what a subscription with `last` begins with, and what a snapshot of
a series has.

A record may have very many events, so they are looked at some at a time, while records change:
those that do are looked at again, and the answer is of its last step, with few of them left. That
holds for the topics of a pattern, too: each may change until the last one was looked at.
"""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress

import numpy as np

from sow.core.cooperative import CatchUpPacer, Task
from sow.engine.engine import Engine
from sow.errors import TooLarge, invalid_options
from sow.expressions import Filter
from sow.history.snapshot import NOWHERE, HeldKeys, PinnedColumn, Snapshot, Stamps, held_identities
from sow.protocol.commands import Command, Options
from sow.query import Query
from sow.query.query import QueryAnswer
from sow.sessions.queries.query_results import QueryResult
from sow.topic.records import Records
from sow.topic.series import SeriesEvent

EVENTS_AT_ONCE = 1_000
"""Events that are looked at in one step: a millisecond or two with a filter."""
RECORD_EVENTS = 4
"""To begin with a record takes as long as so many events."""
NAMES_AT_ONCE = 1_000
"""Identities that are fetched at once."""
LAST_MAX = 10_000
"""The newest events of one record: they are looked at in one step, of some 10 ms for so many."""
EVENTS_MAX = 100_000
"""Events of one answer, some 20 MB of them and their rows."""
READ_EVENTS_MAX = 1_000_000
"""Events of one snapshot: some 200 MB until they are read."""


class _EventRows:
    """Events that were found, as columns; of a record that is looked at again those before count
    no more."""

    def __init__(self, makes_keys: bool) -> None:
        self.makes_keys = makes_keys
        self.count = 0
        self._keys = list[str]()
        self._bodies = list[bytes]()
        self._counts = bytearray()
        """Whether each row counts."""
        self._sow_keys, self._seqs, self._ts_us = array("Q"), array("q"), array("q")
        self._slots = array("q")

    def add(self, events: Sequence[SeriesEvent], sow_key: str, slot: int) -> tuple[int, int]:
        """Add the events of a record, in their order; returns where they are. The slot is that of
        the last one."""
        start, count = len(self._bodies), len(events)
        self._bodies += [event.body for event in events]
        self._seqs.extend([event.seq for event in events])
        self._ts_us.extend([event.ts_us for event in events])
        self._slots.extend([NOWHERE] * (count - 1) + [slot])
        if self.makes_keys:
            self._sow_keys.extend([int(sow_key)] * count)
        else:
            self._keys += [sow_key] * count
        self._counts += b"\1" * count
        self.count += count
        return start, start + count

    def drop(self, start: int, stop: int) -> None:
        """These count no more."""
        self._counts[start:stop] = bytes(stop - start)
        self.count -= stop - start

    def snapshot(self, records: Records) -> Snapshot:
        """Those that count: a fifth of a microsecond each."""
        where = np.flatnonzero(np.frombuffer(self._counts, np.bool_))
        bodies = PinnedColumn([*compress(self._bodies, self._counts)])
        held = HeldKeys(None, PinnedColumn([*compress(self._keys, self._counts)]))
        if self.makes_keys:
            held = HeldKeys(np.frombuffer(self._sow_keys, np.uint64)[where], None)
        seqs, ts_us, slots = (
            np.frombuffer(one, np.int64)[where] for one in (self._seqs, self._ts_us, self._slots)
        )
        return Snapshot(records, slots, bodies, Stamps(held, seqs, ts_us))


class _NewestEvents:
    """The newest `last` events of records, those of them that pass a filter, by record; `most` in
    all."""

    def __init__(
        self, records: Records, last: int, condition: Filter | None, most: int = EVENTS_MAX
    ) -> None:
        self._most = most
        self._records = records
        self._last = last
        self._condition = condition
        self._found: dict[str, tuple[int, int]] = {}
        """Where the rows of each record are."""
        self._rows = _EventRows(records.makes_keys)
        self.wanted: set[str] | None = None
        """The records that it is about; None: all."""
        self.changed = _Changed()

    def weight(self, identity: str) -> int:
        """How many events it takes to look at a record."""
        events = self._records.events
        assert events is not None
        return RECORD_EVENTS + min(self._last, events.count_of(identity))

    def note(self, identities: Sequence[str]) -> None:
        """Records have changed."""
        wanted = self.wanted
        for one in identities if wanted is None else wanted.intersection(identities):
            self.changed.add(one, self.weight(one))

    def catch_up(self) -> None:
        """Look again at what has changed."""
        if self.changed.weight:
            self.take(self.changed.pop(self.changed.weight))

    def take(self, identities: Sequence[str]) -> None:
        """Look at some records, perhaps again; raises TooLarge."""
        events = self._records.events
        assert events is not None
        some = [(one, event) for one in identities for event in events.last(one, self._last)]
        hits = self._hits(some)
        for identity in identities:
            if (before := self._found.pop(identity, None)) is not None:
                self._rows.drop(*before)
        found: dict[str, list[SeriesEvent]] = {}
        for identity, event in compress(some, hits):
            found.setdefault(identity, []).append(event)
        for identity, those in found.items():
            is_newest = those[-1] == events.newest(identity)
            slot = self._records.table.slots[identity] if is_newest else NOWHERE
            sow_key = self._records.sow_key_of(identity)
            self._found[identity] = self._rows.add(those, sow_key, slot)
        if self._rows.count > self._most:
            raise TooLarge(
                f"the newest {self._last} events of each record of {self._records.name} are over "
                f"{self._most}, the most of one answer; ask for fewer, or narrow the filter"
            )

    def _hits(self, some: Sequence[tuple[str, SeriesEvent]]) -> Sequence[bool]:
        condition, records = self._condition, self._records
        if condition is None or not some:
            return [True] * len(some)
        bodies = [event.body for _, event in some]
        columns = records.decoder(condition.paths).columns(bodies)
        stamps = [event.seq for _, event in some], [event.ts_us for _, event in some]
        messages = records.messages([identity for identity, _ in some], bodies, *stamps)
        return condition.matches_messages(columns, messages)

    def snapshot(self) -> Snapshot:
        """What was found, the events of each record in their order. Slots are those of records
        whose newest event is there."""
        return self._rows.snapshot(self._records)


def check_last(command: Command, topic: Records) -> None:
    """Raise ClientError where a command may not begin with the newest events of each record."""
    options = command.options
    if topic.events is None:
        wrong, instead = f"{topic.name} is no series, and has no events", "leave it out"
    elif not command.name.startswith("sow_and_"):
        wrong, instead = f"{command.name} does not begin with events", "use sow_and_subscribe"
    elif command.order_by or options.top_n is not None or options.skip_n or options.replace:
        wrong = "the events of each record come in their own order"
        instead = "leave out order_by, top_n, skip_n and replace"
    elif not options.last:
        wrong, instead = "there is no newest event to begin with", "write 1 or more"
    elif options.last > LAST_MAX:
        raise TooLarge(
            f"last={options.last} is over {LAST_MAX}, the most of one record; read earlier events "
            "over HTTP"
        )
    else:
        return
    raise invalid_options(f"last={options.last}: {wrong}; {instead}")


class NewestEvents:
    """The newest `last` events of records of some topics, those of them that pass a filter. Changes
    meanwhile have to be passed to `note`, and are among them; each snapshot is as of now."""

    def __init__(self, engine: Engine, last: int, most: int = EVENTS_MAX) -> None:
        self._engine = engine
        self._last = last
        self._most = most
        self._found: dict[Records, _NewestEvents] = {}

    def note(self, records: Records, identities: Sequence[str]) -> None:
        """Records have changed, as listeners of the engine are notified."""
        found = self._found.get(records)
        if found is not None:
            found.note(identities)

    def __contains__(self, records: Records) -> bool:
        return records in self._found

    def look(self, name: str, query: Query) -> Task[QueryAnswer]:
        """Look at the events of the records that a query of a topic names by their keys, or of all;
        those that come later are among them, unless it is about some keys only."""
        answer = yield from self._engine.queries.answering(name, replace(query, filter=None))
        records, slots = self._engine.topic(name).records, answer.slots
        found = _NewestEvents(records, self._last, query.filter, self._most)
        self._found[records] = found
        names = held_identities(records, slots)
        if query.keys is not None:
            found.wanted = set(names.part(0, len(slots)))
        some: list[str] = []
        left = EVENTS_AT_ONCE
        for start in range(0, len(slots), NAMES_AT_ONCE):
            for identity in names.part(start, start + NAMES_AT_ONCE):
                some.append(identity)
                left -= found.weight(identity)
                if left <= 0:
                    found.take(some)
                    yield
                    some, left = [], EVENTS_AT_ONCE
        found.take(some)
        yield
        changed, pacer = found.changed, CatchUpPacer(EVENTS_AT_ONCE)
        while changed.weight > pacer.share:
            pacer.begin(changed.weight)
            found.take(changed.pop(pacer.share))
            pacer.end(changed.weight)
            yield
        found.catch_up()
        return answer

    def snapshot(self, records: Records) -> Snapshot:
        """What there is of a topic that was looked at."""
        self._found[records].catch_up()
        return self._found[records].snapshot()


def read_events(engine: Engine, name: str, query: Query, last: int) -> Task[QueryResult]:
    """The newest events of the records that a query names by their keys, or of all; raises
    ClientError for a topic that is no series."""
    records = engine.topic(name).records
    check_last(Command("sow_and_subscribe", options=Options(last=last)), records)
    events = NewestEvents(engine, last, READ_EVENTS_MAX)
    with engine.on_changes(events.note):
        answer = yield from events.look(name, query)
    return QueryResult(answer, events.snapshot(records), engine.seq)


class _Changed:
    """Records that have changed, and how many events it takes to look at all of them again."""

    def __init__(self) -> None:
        self.weight = 0
        self._weights: dict[str, int] = {}

    def add(self, identity: str, weight: int) -> None:
        """A record has changed."""
        self.weight += weight - self._weights.get(identity, 0)
        self._weights[identity] = weight

    def pop(self, weight: int) -> list[str]:
        """Take out some, of a weight or a little more."""
        end, some = self.weight - weight, list[str]()
        for identity, own in self._weights.items():
            if self.weight <= end:
                break
            some.append(identity)
            self.weight -= own
        for identity in some:
            del self._weights[identity]
        return some
