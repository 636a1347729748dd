"""Ordered sets: the records that pass a filter, in order, as far as live windows need them.

    batch ──> the records that may be among the first ──> head ──> windows that reach so far
                                                           │
                       too short for its windows: filled by a query, in steps

There is one for each distinct filter and order of a topic, shared by all windows over it. It gets
every batch, so a change that concerns no window costs a comparison with the head's bound. The order
is the query's (docs/semantics.md, Rule 9), ties by first publication, so a window shows what the
same query answers. Rows of views have positions of their own, and so they do in windows.

The head has every record of the set up to a *bound*: a record that ranks after it costs a
comparison and is ignored. So it does not grow with the topic, and loses records only at its end. A
record that leaves is not replaced, since the records behind the bound are unknown: when the head
has become too short for its readers, a query *fills* it again.
"""

import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from sow.core.cooperative import SharedTask, Task, run_to_completion
from sow.core.paths import Path
from sow.expressions import Filter, OrderTerm
from sow.messages.base import Column
from sow.query import Query, answering, answering_current
from sow.store.columns import Slots
from sow.streaming.windows import PageRow, rows_of
from sow.topic.batch import Batch
from sow.topic.records import Records

Places = tuple[int, int]
"""The first and the last position that shows another record, or another state of one."""
TO_THE_END = sys.maxsize
"""The last position where all records behind have moved up or down."""
Entry = tuple[Any, ...]
"""Ranks, one for each term of the order, then when the record was first published, then its
identity: entries compare as the query sorts, and no two are equal."""
CROWD_FACTOR = 2
"""A head is cut when it is so many times as long as it has to be: a cut costs a walk."""


class WindowHead:
    """The first records of an order; `complete` when there are no others. It is empty until it is
    filled."""

    def __init__(self) -> None:
        self.order: list[Entry] = []
        self.names: list[str] = []
        """The identities of its records, in order: what is read most."""
        self._entries: dict[str, Entry] = {}
        self.complete = False
        self.bound: Entry | None = None
        """The entry up to which it has all records, unless it is complete."""

    def __len__(self) -> int:
        return len(self.order)

    def __contains__(self, identity: object) -> bool:
        return identity in self._entries

    def knows_none(self, identities: Iterable[str]) -> bool:
        """Whether none of these records is in it."""
        return self._entries.keys().isdisjoint(identities)

    def fill(self, entries: Sequence[Entry], complete: bool) -> None:
        """Replace its records by these, which are in order; `complete`: there are no more."""
        self.order = list(entries)
        self.names = [entry[-1] for entry in entries]
        self._entries = {entry[-1]: entry for entry in entries}
        self.complete = complete
        self.bound = None if complete or not entries else entries[-1]

    def takes(self, entry: Entry) -> bool:
        """Whether a record with this entry belongs in it."""
        return self.complete or (self.bound is not None and not self.bound < entry)

    def put(self, entry: Entry) -> Places | None:
        """A record is new or has changed; returns the positions that this concerns, if any."""
        old = self._entries.get(entry[-1])
        if old == entry:
            at = bisect_left(self.order, entry)
            return at, at
        left = self.drop(entry[-1])
        if not self.takes(entry):
            return left
        at = bisect_left(self.order, entry)
        self.order.insert(at, entry)
        self.names.insert(at, entry[-1])
        self._entries[entry[-1]] = entry
        if left is None:
            return at, TO_THE_END
        stood = left[0]
        return (stood, at) if stood < at else (at, stood)

    def drop(self, identity: str) -> Places | None:
        """A record has left the set; returns the positions that this concerns, if any."""
        old = self._entries.pop(identity, None)
        if old is None:
            return None
        at = bisect_left(self.order, old)
        del self.order[at], self.names[at]
        return at, TO_THE_END

    def cut(self, length: int) -> None:
        """Drop the records behind the first `length`, once they are many."""
        if len(self.order) > CROWD_FACTOR * length:
            for identity in self.names[length:]:
                del self._entries[identity]
            del self.order[length:], self.names[length:]
            self.complete = False
            self.bound = self.order[-1] if self.order else None

    def check(self) -> None:
        """Assert what is always true of a head."""
        assert all(one < other for one, other in zip(self.order, self.order[1:], strict=False))
        assert {entry[-1]: entry for entry in self.order} == self._entries
        assert self.names == [entry[-1] for entry in self.order]
        if not self.complete and self.order:
            assert self.bound is not None
            assert not self.bound < self.order[-1]


SPARE_MIN = 100
"""So many spare records are kept, or as many as the longest window has: they replace those that
leave, and a query is needed for one in so many that leave at most."""
FILLED_AT_ONCE = 10_000
"""Records of a topic, counted once for each term of the order, from which on the query that fills
the head runs in steps: fewer are sorted in some milliseconds."""
REFILL_US_MIN = 100_000
"""The shortest pause between two queries of a large topic: changes in between are one turn."""
REFILL_REST = 9
"""The pause as a multiple of the last query's time: queries take a tenth of the time at most."""
FEW_OF = 8
"""Records are evaluated one by one where fewer than one in so many matter."""
NUMBERS = (int, float)


class WindowReader(Protocol):
    """A window over a set: it reads the first `end` records, and shows `length`."""

    @property
    def first(self) -> int:
        """The first position that it shows."""
        ...

    @property
    def end(self) -> int:
        """How many records, from the first, determine what it shows."""
        ...

    @property
    def length(self) -> int:
        """How many it shows at most."""
        ...

    def notice(self, now_us: int) -> None:
        """Something that it shows may have changed."""
        ...

    def part_with(self, batch: Batch) -> None:
        """Records have left the topic."""
        ...


Reader = TypeVar("Reader", bound=WindowReader)


class OrderedSet(Generic[Reader]):
    """The records of `topic` that pass `condition`, in the order of `terms`."""

    def __init__(
        self, topic: Records, condition: Filter | None, terms: tuple[OrderTerm, ...]
    ) -> None:
        self.topic = topic
        self.condition = condition
        self.terms = terms
        self.head = WindowHead()
        self.readers: list[Reader] = []
        self._paths = tuple(dict.fromkeys(path for term in terms for path in term.paths))
        self._rows: dict[str, PageRow] = {}
        """Records that windows have read and that have not changed since: overlapping windows read
        the same ones."""
        self.seq = 0
        """The number of the newest change that it has processed."""
        self._filling: SharedTask[None] | None = None
        self._began_us = self._rests_until_us = 0
        self._need = 0

    @property
    def paths(self) -> tuple[Path, ...]:
        """The fields that it reads of every message."""
        return self._paths + (() if self.condition is None else self.condition.paths)

    # Readers.

    def add(self, reader: Reader) -> None:
        """A window reads it from now on."""
        self.readers.append(reader)
        self._measure()

    def remove(self, reader: Reader) -> None:
        """A window no longer reads it."""
        self.readers.remove(reader)
        self._measure()

    def _measure(self) -> None:
        self._need = max((reader.end for reader in self.readers), default=0)

    @property
    def capacity(self) -> int:
        """How many records a query that fills it requests."""
        return capacity_of(self._need, max((one.length for one in self.readers), default=0))

    # Batches.

    def on_batch(self, batch: Batch) -> list[Reader]:
        """Process a batch; returns the windows that may show something else because of it."""
        changes = batch.changes
        # Rows of views and copies leave in the order in which they were first changed.
        self.seq = max(self.seq, max(changes.seqs))
        if changes.news is None:
            for reader in self.readers:
                reader.part_with(batch)
            if self.head.knows_none(changes.identities):
                return []
            places = [self._drop(identity) for identity in changes.identities]
            return self._concerned(places)
        places = [self._take(batch, at, now) for at, now in self._that_matter(batch)]
        if not places:
            return []
        self.head.cut(self.capacity)
        return self._concerned(places)

    def _concerned(self, places: Sequence[Places | None]) -> list[Reader]:
        """The windows that read one of these positions, or one between them."""
        found = [one for one in places if one is not None]
        if not found:
            return []
        first, last = min(one for one, _ in found), max(one for _, one in found)
        return [one for one in self.readers if first < one.end and one.first <= last]

    def _that_matter(self, batch: Batch) -> list[tuple[int, bool]]:
        """The places in a batch of records that are in the head or may now enter it, and whether
        each passes the filter."""
        head, identities = self.head, batch.changes.identities
        places = self._inside(batch)
        if len(places) < len(batch) and (places or not head.knows_none(identities)):
            # A record that enters may leave in the same batch, which has each of its states.
            enter = {identities[at] for at in places}
            places = [at for at, one in enumerate(identities) if one in enter or one in head]
        if not places:
            return []
        if self.condition is None:
            return [(at, True) for at in places]
        if FEW_OF * len(places) >= len(batch):
            focus = batch.new_focus(self.condition)
            return [(at, focus[at]) for at in places]
        return [(at, batch.is_in_focus(self.condition, at)) for at in places]

    def _inside(self, batch: Batch) -> Sequence[int]:
        """The places of records that may rank within the head's bound, judged by the first term
        alone where that is a number or a text like the bound's."""
        head = self.head
        if head.complete:
            return range(len(batch))
        if head.bound is None:
            return ()
        if not self.terms and self.topic.table.is_arranged:
            return range(len(batch))
        if not self.terms:
            # By first publication: a change that lets a record pass does not change that.
            last, slots = head.bound[0], np.asarray(batch.changes.slots, np.int64)
            return [at for at, tie in enumerate(self.topic.table.ties(slots)) if tie <= last]
        term = self.terms[0]
        values, rank = batch.ordering(term), head.bound[0]
        if term.text or len(rank) == 1:
            return range(len(batch))
        kind, edge = rank
        if term.descending:
            if kind == -2:
                return _not_below(values, -edge, NUMBERS)
            return _not_below(values, edge.text, (str,))
        return _not_above(values, edge, NUMBERS if kind == 2 else (str,))

    def _take(self, batch: Batch, at: int, is_in: bool) -> Places | None:
        """Process one record of a batch; returns the positions that it concerns."""
        changes = batch.changes
        identity = changes.identities[at]
        self._rows.pop(identity, None)
        if not is_in:
            return self.head.drop(identity)
        ranks = [term.rank(batch.ordering(term)[at]) for term in self.terms]
        return self.head.put((*ranks, self.topic.table.tie(changes.slots[at]), identity))

    def _drop(self, identity: str) -> Places | None:
        """Process a removal; returns the positions that it concerns."""
        self._rows.pop(identity, None)
        return self.head.drop(identity)

    # Reading.

    @property
    def is_short(self) -> bool:
        """The head may not have all records that its windows read: it has to be filled."""
        return not self.head.complete and len(self.head) < self._need

    @property
    def can_be_read(self) -> bool:
        """What windows read is there, or can be queried at once."""
        return not self.topic.is_changing and (not self.is_short or self._is_small)

    @property
    def _is_small(self) -> bool:
        return len(self.topic.table) * (1 + len(self.terms)) <= FILLED_AT_ONCE

    def shows(self, end: int) -> bool:
        """Whether the first `end` records are known, as of this moment."""
        if self.topic.is_changing or self.is_short:
            return False
        return self.head.complete or len(self.head) >= end

    def rows(self, first: int, last: int) -> dict[str, PageRow]:
        """The records from position `first` up to `last`, in order and by their identities; only
        while it can be read."""
        if self.is_short:
            run_to_completion(self._fill())
        known, order = self._rows, self.head.names[first:last]
        if not all(map(known.get, order)):
            if len(known) > CROWD_FACTOR * self.capacity:
                known.clear()
            unknown = [identity for identity in order if identity not in known]
            known.update(zip(unknown, rows_of(self.topic, unknown), strict=True))
        return dict(zip(order, map(known.__getitem__, order), strict=True))

    # Filling.

    def due_us(self) -> int | None:
        """When the query that fills the head continues; None if it waits for something else."""
        if self.topic.is_changing or not self.is_short:
            return None
        return 0 if self._filling is not None else self._rests_until_us

    def go_on(self, now_us: int) -> bool:
        """Take a step towards filling the head, if that is needed; True when it is full."""
        if not self.is_short or self.topic.is_changing:
            return False
        if self._filling is None:
            self._filling, self._began_us = SharedTask(self._fill()), now_us
        self._filling.step()
        if not self._filling.is_over:
            return False
        self._filling.result()
        self._filling = None
        took_us = now_us - self._began_us
        self._rests_until_us = now_us + max(REFILL_US_MIN, REFILL_REST * took_us)
        return True

    def close(self) -> None:
        """It has no readers any more."""
        if self._filling is not None:
            self._filling.steps.close()
            self._filling = None

    def _fill(self) -> Task[None]:
        query = Query(filter=self.condition, order_by=self.terms, top_n=self.capacity)
        answer = yield from answering_current(lambda: self.topic.indexes, query)
        self._hold(answer.slots, self.capacity)

    def begin_with(self, slots: Slots, requested: int, seq: int) -> None:
        """A window opens with what a query for so many records has just found, as of the change
        `seq`: continue from that if it is more than is known."""
        self.seq = max(self.seq, seq)
        if self.is_short:
            self.close()
            self._hold(slots, requested)

    def succeed(self, known: "OrderedSet[Any]", seq: int) -> None:
        """A window continues with what another set of the same filter and order knew until this
        moment, the change `seq`, when it lost its last reader."""
        if known is not self:
            self.head, self._rows = known.head, known._rows
        self.seq = max(self.seq, seq)

    def _hold(self, slots: Slots, requested: int) -> None:
        """Store the first records of the set, as a query for so many has just found them."""
        self.head.fill(self._entries(slots), complete=len(slots) < requested)
        self._rows.clear()

    def _entries(self, slots: Slots) -> list[Entry]:
        table, found = self.topic.table, slots.tolist()
        bodies = [table.bodies[slot] or b"" for slot in found]
        identities = [table.identities[slot] or "" for slot in found]
        ties = table.ties(slots)
        columns: dict[Path, Column] = {}
        if self._paths:
            read = self.topic.decoder(self._paths).columns(bodies)
            columns = dict(zip(self._paths, read, strict=True))
        ranks = [self._ranks(term, columns, slots, bodies) for term in self.terms]
        return [*zip(*ranks, ties, identities, strict=True)]

    def _ranks(
        self, term: OrderTerm, columns: dict[Path, Column], slots: Slots, bodies: list[bytes]
    ) -> list[Any]:
        fields = [columns[path] for path in term.paths]
        if term.path is not None:
            return list(map(term.rank, fields[0]))
        traits = self.topic.indexes.messages(slots).columns(term.traits) if term.traits else []
        return list(map(term.rank, term.calculate([*fields, *traits], len(bodies))))

    def check(self) -> None:
        """Assert that the head agrees with the records."""
        self.head.check()
        if self.topic.is_changing:
            return
        query = Query(filter=self.condition, order_by=self.terms, top_n=len(self.head))
        answer = run_to_completion(answering(self.topic.indexes, query))
        assert self.head.order == self._entries(answer.slots), "a head out of order"
        there = [identity for identity in self._rows if identity in self.head]
        assert [*map(self._rows.get, there)] == rows_of(self.topic, there), "a row of the past"
        if self.head.complete:
            assert answer.matches == len(self.head), "a head that is not complete"


def capacity_of(end: int, length: int) -> int:
    """How many records the head has for windows that read up to `end`, of `length` rows."""
    return end + max(SPARE_MIN, length)


def _not_below(values: Column, edge: Any, kinds: tuple[type, ...]) -> list[int]:
    """The places of values that may rank before `edge`, or with it, descending."""
    try:
        return [at for at, one in enumerate(values) if not one < edge]
    except TypeError:
        # Some are of other kinds, whose ranks decide.
        return [at for at, one in enumerate(values) if type(one) not in kinds or not one < edge]


def _not_above(values: Column, edge: Any, kinds: tuple[type, ...]) -> list[int]:
    """The same, ascending."""
    try:
        return [at for at, one in enumerate(values) if not one > edge]
    except TypeError:
        return [at for at, one in enumerate(values) if type(one) not in kinds or not one > edge]
