"""A view at runtime: rows made from other topics' records, one for each group of them.

It processes every batch of changes of its underlying topics at once in its groups; its records
change at the end of the turn, when they are released: one change for each group that has changed,
to its state by then. The rows are records like any (`sow.topic.records`), so to everything else the
view is an ordinary topic.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import compress, islice
from math import isfinite
from operator import ne, or_
from typing import Any

from sow.core.cooperative import CatchUpPacer, Task
from sow.core.paths import Path
from sow.errors import BadMessage, TooLarge, described
from sow.expressions import Projection, nested
from sow.messages import encoded
from sow.messages.base import MessageType
from sow.protocol.replies import SentPlace
from sow.store.memory import Usage
from sow.topic.batch import Batch, Reason
from sow.topic.records import Records
from sow.topic.views import Forgettable, RowDeltas, RowProducer
from sow.topic.views.accumulators import Keeping
from sow.topic.views.groups import RowGroup, RowGroups

BIRTH_BITS = 63
"""Births are non-negative signed numbers of 64 bits; joined rows have those of all their records,
concatenated."""
RECORD_US = 3.0
"""What a record takes a view, about; a tenth of it where groups stay as they are."""
RELEASED_AT_ONCE = 250
"""Rows that are made in one step, some two milliseconds of work."""
INHERITED_AT_ONCE = 1_000
"""Rows of the former view that are looked up among the groups in one step: a millisecond at most,
as much as making `RELEASED_AT_ONCE`."""
LEAVING_REASONS: tuple[Reason, ...] = ("match", "deleted", "expired")


class MaterializedView:
    """Connects a view's sources with its rows.

    `rows` are its records, `producer` yields the deltas of what it groups. `rank` is its place in
    the order of releases. It is made from the topics `sources`, directly or not, and waits for
    those of them that are views. `wake` is called when it has something to release, and had
    nothing. `reports_newest`: a view over this one has an aggregate of the newest row, so each row
    has the age of the newest record of its group, even if it is otherwise unchanged. The state of
    its groups is counted in `usage`; `check_groups` raises TooLarge for more groups than there may
    be, and then the view stops; None: it was made for a client, whose memory bounds it.
    """

    def __init__(
        self,
        rows: Records,
        producer: RowProducer,
        projection: Projection,
        rank: tuple[int, int],
        sources: frozenset[str],
        wake: Callable[["MaterializedView"], None],
        reports_newest: bool = False,
        usage: Usage | None = None,
        check_groups: Callable[[RowGroups], None] | None = None,
    ) -> None:
        self.rows = rows
        self.producer = producer
        self.groups = RowGroups(projection, reports_newest, usage)
        self.reports_newest = reports_newest
        self.filled_seq = 0
        """The change as of when the view was filled: no row is older."""
        self.rank = rank
        self.sources = sources
        self.beside = {*sources}
        """Topics whose changes are shown in one turn with its own: what it is made of, and what
        views over it are made of."""
        self._newest_mark: int = 0
        """The newest change, or turn of a conflated topic, that it has taken in."""
        self._turn_us = 0
        """The time of that: of a turn of a conflated topic when it was due."""
        self._sent: int = 0
        """The place in what it has sent that its rows show."""
        self.updates_in = self.updates_out = 0
        """Changes of its underlying topics that it has processed, and of its rows."""
        self._is_filling = False
        self.stopped = ""
        """Why it has no rows and processes no changes any more."""
        self.looked_at = 0
        """Rows, its own or joined ones, that the last release was about, or work that took as
        long."""
        self._inherited: Iterator[tuple[Sequence[str], bool]] | None = None
        """Keys of rows that another view has made, possibly without a group here, some at a time;
        and the change that removes them, with its time."""
        self._inherited_stamp = (0, 0)
        self._working: Iterator[RowDeltas] | None = None
        """The work that the producer had left."""
        self._place_shift = BIRTH_BITS * (len(producer.underlyings) - 1)
        """The birth of a joined row begins with that of its record of the first topic."""
        self._wake = wake
        self._check_groups = check_groups
        self._bodies = RowWriter(rows.message_type, projection, self.groups.keeping)

    @property
    def name(self) -> str:
        """Its name."""
        return self.rows.name

    # Batches.

    def reconsider(self) -> None:
        """Other bounds apply from now on, which it may exceed."""
        if not self.stopped:
            try:
                self._check_bounds()
            except Exception as error:
                self._stop_for(error)

    def _take(self, changes: RowDeltas) -> None:
        self.groups.take(changes)
        self._check_bounds()

    def _check_bounds(self) -> None:
        if self._check_groups is not None:
            self._check_groups(self.groups)

    @property
    def late_us(self) -> float:
        """Microseconds that a record takes, about; 0 where it may not be late."""
        return RECORD_US if self.producer.may_be_late and not self._is_filling else 0.0

    def on_batch(self, batch: Batch, _now_us: int) -> bool:
        """Process changes of an underlying topic. Never due by itself: a turn has an end."""
        self.updates_in += len(batch)
        if self.stopped:
            return False
        self._note_mark(batch.marks[-1])
        turn_us = int(batch.changes.ts_us[-1]) if batch.turn_us is None else batch.turn_us
        self._turn_us = max(self._turn_us, turn_us)
        was_dirty = self.is_dirty
        try:
            for changes in self.producer.on_batch(batch):
                self._take(changes)
        except Exception as error:
            self._stop_for(error)
        if not was_dirty and self.is_dirty and not self._is_filling:
            self._wake(self)
        return False

    def _note_mark(self, mark: int) -> None:
        # What it was filled with may be newer than all that a copy has sent.
        newest = max(int(mark), int(self._newest_mark), self.filled_seq)
        self._newest_mark = (
            SentPlace(newest, mark.time_us) if isinstance(mark, SentPlace) else newest
        )

    @property
    def goes_by_time(self) -> bool:
        """What it has taken in last is of a turn of a conflated topic."""
        return isinstance(self._newest_mark, SentPlace)

    @property
    def place(self) -> int:
        """The place in what it has sent that its rows show."""
        return max(self._sent if self.is_dirty else self._newest_mark, self.filled_seq)

    @property
    def is_dirty(self) -> bool:
        """There is something to release."""
        if self.stopped:
            return bool(len(self.rows.table))
        behind = self._inherited or self._working or self.producer.is_behind
        return bool(self.groups.dirty_count or behind)

    @property
    def is_of_one_moment(self) -> bool:
        """Its rows are of one moment, though more changes may have come since."""
        if self.stopped:
            return not self.is_dirty
        return not self.groups.dirty_count and self._working is None

    def waits_for(self, dirty: Set[str], between: Set[str]) -> bool:
        """Whether its sources have to be released first. `dirty` are views that have something to
        release, `between` those of them that are not of one moment.

        Whatever it is made from by way of one topic is as old as that topic's rows, so any moment
        of these will do. The parts of a join must not be shown at different ones.
        """
        is_of_one = len(self.producer.underlyings) == 1
        return not self.sources.isdisjoint(between if is_of_one else dirty)

    def due_us(self) -> int | None:
        """Nothing falls due: it is released when a turn ends."""
        return None

    # Filling.

    def fill(self, seq: int) -> Task[None]:
        """Make all rows, some in each step, while nothing changes; as of the change `seq`."""
        self.filled_seq = seq
        try:
            for changes in self.producer.rows():
                self._take(changes)
                yield
        except Exception as error:
            self._stop_for(error)
        while self.is_dirty:
            self.release()
            yield
        self.updates_out = 0  # rows that it begins with follow from no update that came in

    def fill_beside(self, seq: Callable[[], int]) -> Task[None]:
        """Make all rows, some in each step, while records change. In the last step they are as the
        underlying topics then are, at the change `seq` gives."""
        yield from self.fill_groups()
        if not self.stopped:
            self.rows.table.reserve(len(self.groups))
        # It may stop at any time, and then its groups stay as they are.
        gaining = CatchUpPacer(RELEASED_AT_ONCE)
        while not self.stopped and self.groups.dirty_count > gaining.share:
            gaining.begin(self.groups.dirty_count)
            self.release(gaining.share)
            gaining.end(self.groups.dirty_count)
            yield
        if not self.stopped and self.groups.dirty_count:
            self.release(gaining.share)
        self.filled_seq = seq()
        self.updates_out = 0
        self._is_filling = False

    def fill_groups(self) -> Task[None]:
        """The same without the rows: the present ones are another view's (`succeed`)."""
        self._is_filling = True
        try:
            yield from self.producer.filling(self._take)
        except TooLarge as error:
            self._stop_for(error)

    def succeed(self, seq: int, ts_us: int) -> None:
        """Continue with the rows of the former view, as of the change `seq` and its time: the
        differences are released like any change."""
        if not self.stopped and len(self.rows.table):
            self._inherited = _with_last(self.rows.table.held_names(INHERITED_AT_ONCE))
            self._inherited_stamp = seq, ts_us
        self.filled_seq = seq
        self._newest_mark, self._turn_us = SentPlace(seq, ts_us), ts_us
        self._is_filling = False
        if self.is_dirty or self.stopped:
            self._wake(self)

    # Releasing.

    def release(self, most: int = RELEASED_AT_ONCE) -> list[Batch]:
        """Update the records from groups that have changed, so many at a time; returns the changes.
        There are more while it `is_dirty`."""
        if not self.stopped:
            try:
                batches = self._released(most)
            except Exception as error:
                self._stop_for(error)
            else:
                # Who leaves before the last of a turn is sent all of it again.
                self._sent = place = self.place
                for batch in batches if self._check_groups is not None else ():
                    batch.be_sent_at(place)
                    batch.be_due_at(self._turn_us)
                return batches
        return self._clear()

    def _released(self, most: int) -> list[Batch]:
        there: dict[str, RowGroup] = {}
        gone: dict[Reason, list[tuple[str, RowGroup]]] = {}
        table = self.rows.table
        if not self._is_worked_off():
            return []
        if self.stopped:
            return self._clear()
        looked_for = 0
        if self._inherited and self.groups.dirty_count < RELEASED_AT_ONCE:
            looked_for = self._let_go_inherited(self._inherited)
        some = self.groups.take_dirty(most)
        looked_for = looked_for * RELEASED_AT_ONCE // INHERITED_AT_ONCE
        self.looked_at = self.groups.taken_weight + looked_for
        for key, group in some:
            if group.count:
                there[key] = group
            elif key in table:
                gone.setdefault(group.reason, []).append((key, group))
        batches = self._put(there) if there else []
        self.updates_out += sum(map(len, batches)) + sum(map(len, gone.values()))
        for reason in LEAVING_REASONS:
            if reason in gone:
                batches += self._drop(gone[reason], reason)
        return batches

    def _let_go_inherited(self, inherited: Iterator[tuple[Sequence[str], bool]]) -> int:
        """Remove rows of the former view that this one does not have: some, returns how many."""
        table = self.rows.table
        some, is_last = next(inherited, ((), True))
        for key in some:
            if key in table:
                self.groups.let_go(key, *self._inherited_stamp)
        if is_last:  # so that a reader of its last rows knows it
            self._inherited = None
        return len(some)

    def _is_worked_off(self) -> bool:
        """Continue the work that the producer has left, and apply the result only when it is
        complete: rows are those of the end of a turn, none of the middle."""
        if self._working is None:
            if self.groups.dirty_count or not self.producer.is_behind:
                return True
            self._working = self.producer.work()
        try:
            for changes in self._working:
                self._take(changes)
                self.looked_at = len(changes)
                return False
        except TooLarge as error:
            self._stop_for(error)
        self._working = None
        return True

    def _stop_for(self, error: Exception) -> None:
        """Continue without rows, since they would take too much, or the server fails on them. Rows
        that are no longer true would be worse; no record is lost, and nothing else notices."""
        if isinstance(error, TooLarge):
            why = error.detail
        else:
            why = f"the server failed on its rows: {described(error)}"
        self.stopped = (
            f"what a client follows of the groups of {self.name} has stopped: {why}"
            if self._check_groups is None
            else f"the view {self.name} has stopped: {why}; a reload of the configuration makes it "
            "again"
        )
        self.producer.stop()
        self._inherited = None
        if not self._is_filling:
            self._wake(self)

    def _clear(self) -> list[Batch]:
        """Remove rows of a view that has stopped, some at a time."""
        table = self.rows.table
        some = [*islice(table.slots, RELEASED_AT_ONCE)]
        self.looked_at = len(some)
        seq, ts_us = int(table.seqs.max(initial=0)), int(table.ts_us.max(initial=0))
        batch = self.rows.drop(some, "deleted", lambda count: ([seq] * count, [ts_us] * count))
        return [] if batch is None else [batch]

    def _put(self, there: dict[str, RowGroup]) -> list[Batch]:
        """Update the rows of these groups that have changed or moved: windows and views over this
        one depend on their positions."""
        keys, groups, table = list(there), list(there.values()), self.rows.table
        bodies = self._bodies(groups)
        places = [group.born >> self._place_shift for group in groups]
        slots = list(map(table.slots.get, keys))
        stood = table.places_of(slots, places)
        newest = self._newest(groups)
        differ = self._differ(slots, bodies, places, stood, newest)
        if not all(differ):
            if not any(differ):
                return []
            keys, bodies = [*compress(keys, differ)], [*compress(bodies, differ)]
            groups, places = [*compress(groups, differ)], [*compress(places, differ)]
            slots, stood = [*compress(slots, differ)], [*compress(stood, differ)]
            newest = newest and [*compress(newest, differ)]
        floor = self.filled_seq
        batch = self.rows.put(
            keys,
            bodies,
            {},
            [group.seq if group.seq > floor else floor for group in groups],
            [group.ts_us for group in groups],
        )
        batch.changes.come_from(stood)
        if None in slots or stood != places or newest:
            table.arrange(keys, places, newest)
        return [batch]

    def _differ(
        self,
        slots: Sequence[int | None],
        bodies: Sequence[bytes],
        places: Sequence[int],
        stood: Sequence[int],
        newest: Sequence[int] | None,
    ) -> list[bool]:
        """Of each row, whether it has to be released."""
        table = self.rows.table
        held = table.bodies
        before = [None if slot is None else held[slot] for slot in slots]
        differ = list(map(ne, before, bodies))
        if stood != places:
            differ = list(map(or_, differ, map(ne, stood, places)))
        if newest is not None:
            known = table.newest
            stood_newest = [None if slot is None else int(known[slot]) for slot in slots]
            differ = list(map(or_, differ, map(ne, stood_newest, newest)))
        return differ

    def _newest(self, groups: Iterable[RowGroup]) -> list[int] | None:
        """The numbers of the newest records of groups, if a view over this one needs them."""
        if not self.reports_newest:
            return None
        return [group.accumulators.newest_seq for group in groups]

    def _drop(self, gone: Iterable[tuple[str, RowGroup]], reason: Reason) -> list[Batch]:
        stamps = {key: (group.seq, group.ts_us) for key, group in gone}
        seqs = [max(seq, self.filled_seq) for seq, _ in stamps.values()]
        batch = self.rows.drop(
            stamps, reason, lambda _: (seqs, [ts_us for _, ts_us in stamps.values()])
        )
        return [] if batch is None else [batch]

    def kept(self) -> Iterable[Forgettable]:
        """The state to drop once it was removed or has stopped: there may be millions of
        entries."""
        return (self.groups, *self.producer.kept())

    def end(self) -> None:
        """The view is about to be removed with all its rows: it makes none any more."""
        self.stop()
        self.stopped = self.stopped or f"the view {self.name} is being removed"

    def stop(self) -> None:
        """The view is removed: its underlying topics need not extract its fields any more."""
        if not self.stopped:
            self.producer.stop()

    def check(self) -> None:
        """Assert what is always true of a view between two releases."""
        if not self.stopped:
            keys = self.rows.table.slots.keys()
            left = {key for key in keys if self._inherited and key not in self.groups}
            self.groups.check(keys - left)
            if self.reports_newest and not self.is_dirty:
                self._check_newest()

    def _check_newest(self) -> None:
        table = self.rows.table
        for key, slot in table.slots.items():
            newest = self.groups[key].accumulators.newest_seq
            assert table.newest[slot] == newest, "a row with the age of another one"


class RowWriter:
    """Writes the rows of a projection as messages of a type, from the states that `keeping` reads
    of their groups."""

    def __init__(self, message_type: MessageType, projection: Projection, keeping: Keeping) -> None:
        self._type = message_type
        self._projection = projection
        self._keeping = keeping
        self._writes_nan = message_type.name != "json"
        """JSON has no NaN, and is written with null in its place."""

    def __call__(self, groups: Sequence[RowGroup]) -> list[bytes]:
        """The rows of groups. A value that the type cannot hold, such as a separator in the value
        of a FIX field, is NULL, and so is a number that is not finite."""
        grouped = [group.values() for group in groups]
        results = self._keeping.results([group.accumulators for group in groups])
        documents = self._projection.documents(grouped, results)
        if self._writes_nan:
            for document in documents:
                _make_finite(document)
        try:
            return encoded(self._type, documents)
        except BadMessage:
            return list(map(self._encoded, documents))

    def _encoded(self, document: dict[str, Any]) -> bytes:
        """A row with fields that the type may not be able to hold."""
        try:
            return self._type.encode(document)
        except BadMessage:
            for target in self._projection.targets:
                self._let_go(document, target)
            return self._type.encode(document)

    def _let_go(self, document: dict[str, Any], target: Path) -> None:
        """Set a field to NULL if it cannot be written."""
        *outer, name = target.steps
        inner = document
        for step in outer:
            inner = inner[step]
        try:
            self._type.encode(nested(target, inner.get(name)))
        except BadMessage:
            inner[name] = None


def _make_finite(document: dict[str, Any]) -> None:
    for name, value in document.items():
        if type(value) is dict:
            _make_finite(value)
        elif isinstance(value, float) and not isfinite(value):
            document[name] = None


def _with_last(parts: Iterator[list[str]]) -> Iterator[tuple[Sequence[str], bool]]:
    """Each part, and whether it is the last."""
    before = next(parts, None)
    for part in parts:
        assert before is not None
        yield before, False
        before = part
    if before is not None:
        yield before, True
