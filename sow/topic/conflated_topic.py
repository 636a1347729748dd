"""A conflated topic at runtime: the copy of another topic that changes at most once per interval.

It gets the underlying topic's changes, projects them through its filter and offers them to the
conflation core (`conflated_topics`). What the core releases is put into the copy's own table and
routed like a publish, so that the copy is an ordinary topic to everything else. All it needs of the
underlying topic is its changes.

Copies that are equal at every moment are one copy under several names: changes are filtered,
conflated and released once, and then put under each name. These are copies with one filter, one
schedule and one merger that began together. One that is to differ from then on takes its windows
with it.

A copy that fails, on its filter, on merging or on computing its fields, *stops*: it processes
nothing more and removes its records, which would no longer be true. Publishers and other
subscribers do not notice.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial
from itertools import compress, islice
from typing import Any

from conflated_topics import FocusedConflator, Offered, PerKey, Removal, Schedule, Tick
from sow.core import definitions
from sow.core.containers import get_all
from sow.core.cooperative import Task
from sow.errors import described
from sow.expressions import Filter
from sow.protocol.replies import SentPlace
from sow.topic.batch import Batch, Changes, Reason
from sow.topic.fields import computed_fields
from sow.topic.records import Columns, Records

# A pending update: body, sequence number and time of the underlying change.
CopyUpdate = tuple[bytes, int, int]
RELEASED_AT_ONCE = 500
"""Records that are released in one step, some two or three milliseconds of work."""
NAMES_IN_STEP = 10
"""Beyond so many names a step takes longer: a smaller one would cost more than it has records."""
STEP_ROWS = 250
"""Records that are copied or evaluated in one step: some four microseconds each."""
LEAVING_REASONS: tuple[Reason, ...] = ("match", "deleted", "expired")


class ConflatedCopy:
    """Connects an underlying topic, a filter and an interval with the copy they make.

    `copies` are its records under each of its names, all alike.
    """

    __slots__ = (
        "_noted", "_offered_us", "_sent_seq", "condition", "conflation", "copies", "enrichment",
        "filled_seq", "given", "is_clearing", "is_external", "stopped", "underlying",
    )  # fmt: skip

    def __init__(
        self,
        copy: Records,
        underlying: Records,
        definition: definitions.ConflatedTopic,
        condition: Filter | None,
    ) -> None:
        self.copies: tuple[Records, ...] = (copy,)
        self.underlying = underlying
        self.condition = condition
        texts = definition.enrichment
        self.enrichment = computed_fields(copy.message_type, texts) if texts else None
        self.conflation: FocusedConflator[str, CopyUpdate] = FocusedConflator(
            self._schedule(definition), copy.table.__contains__, self._merge_or_none()
        )
        self.is_external = definition.engine != "embedded"
        self.filled_seq = 0
        """The change of the underlying topic as of when the copy was filled."""
        self.given: Sequence[str] = ()
        """Records that another one goes on with, beside those that wait."""
        self._sent_seq = 0
        """The newest change that it has released."""
        self._offered_us = 0
        """The time of the newest change that it has taken in: its windows never go back."""
        self._noted: dict[str, None] | None = None
        """While it is filled: records that have changed, and are still to be copied."""
        self.stopped = ""
        """Why it has no records and processes no changes any more."""
        self.is_clearing = False
        """It has stopped, and still has records to remove."""
        if condition is not None and not self.is_external:
            underlying.watched.add(condition.paths)

    @property
    def copy(self) -> Records:
        """Its records, under the first of its names."""
        return self.copies[0]

    @staticmethod
    def _schedule(definition: definitions.ConflatedTopic) -> Schedule[str]:
        if definition.schedule == "tick":
            return Tick(definition.interval_us)
        return PerKey(definition.interval_us)

    def _merge_or_none(self) -> Callable[[CopyUpdate, CopyUpdate], CopyUpdate] | None:
        return None if self.copy.folding.merger is None else self._merge

    def _merge(self, current: CopyUpdate, new: CopyUpdate) -> CopyUpdate:
        """Merge two updates of one window; a merger that keeps both has no effect here."""
        merger = self.copy.folding.merger
        assert merger is not None
        body = merger.merge(current[0], new[0])
        return new if body is None else current if body is current[0] else (body, *new[1:])

    late_us = 0.0
    """It may not be late: windows begin with a change."""

    # Names.

    def is_like(self, other: "ConflatedCopy") -> bool:
        """Both have the same content from now on, whatever changes."""
        return self._begins_with() is not None and self._begins_with() == other._begins_with()

    def _begins_with(self) -> object:
        """All that makes a difference to its content; None once it has any, or has had input."""
        one = self.copy.definition
        assert isinstance(one, definitions.ConflatedTopic)
        is_new = not self.conflation.updates_in and not len(self.copy.table)
        if not is_new or self.is_external or self.stopped or self._noted is not None:
            return None
        made_by = one.filter, one.interval_us, one.schedule, one.enrichment
        return self.underlying.name, *made_by, self.copy.folding.merger, self.filled_seq

    def add_name(self, copy: Records) -> None:
        """Put what is released into these records too, of a copy that is like this one."""
        self.copies += (copy,)

    def take_name(self, copy: Records) -> None:
        """Put nothing into these records any more; without any, it stops watching."""
        self.copies = tuple(one for one in self.copies if one is not copy)
        if self.copies:
            self.conflation.look_in(self.copy.table.__contains__)
        else:
            self.stop()

    def parted(self, copy: Records) -> "ConflatedCopy":
        """Split off a copy for one of several names: as full, and with the same windows."""
        self.take_name(copy)
        definition = copy.definition
        assert isinstance(definition, definitions.ConflatedTopic)
        own = ConflatedCopy(copy, self.underlying, definition, self.condition)
        own.go_on(self)
        return own

    @property
    def reached(self) -> tuple[int, int, int]:
        """How far it is: the change as of when it was filled, the newest that it has released, and
        the time of the newest that it has taken in."""
        return self.filled_seq, self._sent_seq, self._offered_us

    def begin_at(
        self, reached: Sequence[int], windows: list[Any], given: Sequence[str]
    ) -> Task[None]:
        """Be so far, with windows as they were stored, in steps; `given` are the records that
        another one is to have of it."""
        self.filled_seq, self._sent_seq, self._offered_us = reached
        yield from self.conflation.go_on_from(windows)
        self.given = given

    def go_on(self, other: "ConflatedCopy") -> None:
        """Have the windows of another copy, which the same changes have reached."""
        merge = self._merge_or_none()
        self.conflation = other.conflation.copied(self.copy.table.__contains__, merge)
        self.filled_seq, self._sent_seq, self._offered_us = other.reached

    # Batches.

    def on_batch(self, batch: Batch, now_us: int) -> bool:
        """Process the underlying topic's changes; True when something waits now, and did not."""
        changes = batch.changes
        if self.stopped:
            return False
        if self._noted is not None:
            self._noted.update(dict.fromkeys(changes.identities))
            return False
        if self.is_external:
            # The external engine reads them from the log.
            self.conflation.count_in(len(changes))
            return False
        try:
            passes = batch.new_focus(self.condition)
        except Exception as error:
            return self.stop_for(error)
        offered = Offered(changes.identities, batch.states(), passes, changes.reason or "match")
        return self.take_in(offered, changes.news is not None, now_us)

    def take_in(self, offered: Offered[str, CopyUpdate], are_messages: bool, now_us: int) -> bool:
        """Process changes whose filter results are known.

        `are_messages`: the records have not been removed from the underlying topic.
        """
        if self.stopped:
            return False
        if self.underlying.is_changing and self.underlying.changes_us is not None:
            # What changes in one moment opens windows of that moment, however long it is stored.
            now_us = self.underlying.changes_us
        self._offered_us = now_us = max(now_us, self._offered_us)
        try:
            if are_messages and self.copies[0].folding.merger is not None:
                offered = self._as_merged(offered)
            return self.conflation.take_in(offered, now_us)
        except Exception as error:
            return self.stop_for(error)

    def place(self, now_us: int) -> SentPlace:
        """The place in what it has sent that its records show."""
        due_us = self.conflation.due_us()
        return self._after(now_us if due_us is None or due_us > now_us else due_us - 1)

    @property
    def has_sent(self) -> bool:
        """It has released something since it was filled."""
        return self._sent_seq > self.filled_seq

    def _after(self, time_us: int) -> SentPlace:
        """The place behind all that was due up to a time."""
        return SentPlace(max(self._sent_seq, self.filled_seq), time_us)

    def _as_merged(self, offered: Offered[str, CopyUpdate]) -> Offered[str, CopyUpdate]:
        """Messages of the underlying topic in the form that merging starts from."""
        bodies = self._singles([value[0] for value in offered.values])
        columns = zip(bodies, offered.values, strict=True)
        values = [(body, seq, ts_us) for body, (_, seq, ts_us) in columns]
        return Offered(offered.keys, values, offered.passes, offered.reason)

    def _singles(self, bodies: Sequence[bytes]) -> Sequence[bytes]:
        """Messages of the underlying topic in the form that merging starts from."""
        merger = self.copy.folding.merger
        return bodies if merger is None else list(map(merger.single, bodies))

    def those_there(self, identities: Set[str]) -> set[str]:
        """Those of these records that it holds or that wait here."""
        return self.conflation.waiting_among(identities) | self.copy.table.among(identities)

    # Filling.

    def fill(self, seq: Callable[[], int], copy: Records) -> Task[None]:
        """Copy the underlying topic under one name, some records in each step, without a window.

        In the last step the copy equals the underlying topic, at the change `seq` gives. Records
        that change meanwhile are only noted, and copied at the end: in the order in which they
        came.
        """
        try:
            yield from self._filling(copy)
        except Exception as error:
            self.stop_for(error)
        self._noted = None
        self.filled_seq = seq()

    def _filling(self, copy: Records) -> Task[None]:
        self._noted = {}
        identities, table = self.underlying.table.identities, self.underlying.table
        slots = table.live()
        copy.table.reserve(len(slots))
        for start in range(0, len(slots), STEP_ROWS):
            some = [identities[slot] for slot in slots[start : start + STEP_ROWS].tolist()]
            self._take_over([identity for identity in some if identity is not None], copy)
            yield
        while len(self._noted) > STEP_ROWS:
            self._take_over(self._noted_first(STEP_ROWS), copy)
            yield
        self._take_over(list(self._noted), copy)

    def _noted_first(self, count: int) -> list[str]:
        assert self._noted is not None
        some = list(islice(self._noted, count))
        for identity in some:
            del self._noted[identity]
        return some

    def _take_over(self, identities: Sequence[str], copy: Records) -> None:
        """Let the copy have of these records what it would if all windows had ended."""
        wanted = self._wanted(identities)
        copy.discard(identity for identity in identities if identity not in wanted)
        if wanted:
            self._put(list(wanted), list(wanted.values()), (copy,))

    def _wanted(self, identities: Iterable[str]) -> dict[str, CopyUpdate]:
        """Those of these records that exist and pass the filter, as they are."""
        table = self.underlying.table
        found = {name: slot for name in identities if (slot := table.slots.get(name)) is not None}
        slots = list(found.values())
        bodies = [table.bodies[slot] or b"" for slot in slots]
        stamps = table.seqs[slots].tolist(), table.ts_us[slots].tolist()
        updates = zip(found, zip(self._singles(bodies), *stamps, strict=True), strict=True)
        if self.condition is None or not slots:
            return dict(updates)
        columns = self.underlying.decoder(self.condition.paths).columns(bodies)
        messages = self.underlying.messages([*found], bodies, *stamps)
        return dict(compress(updates, self.condition.matches_messages(columns, messages)))

    # Stopping.

    def stop_for(self, error: Exception) -> bool:
        """Go on without records, since their content cannot be determined; `advance` removes them.
        Returns whether that is new."""
        if self.stopped:
            return False
        self.stop()
        name = self.copy.name if self.copies else ""
        self.stopped = (
            f"the conflated topic {name} has stopped, since the server failed on what it is to "
            f"hold: {described(error)}; what was published is kept, and a reload of the "
            "configuration makes it again"
        )
        self.conflation.clear()
        self.is_clearing = True
        return True

    # Releasing.

    def due_us(self) -> int | None:
        """When `advance` next has something to do; nothing is due while a change is incomplete that
        must not be seen in part, its followers are late, or a view holds back what belongs into the
        window."""
        held = any(one.is_changing or one.has_awaited for one in self.copies)
        if held or self.underlying.is_changing:
            return None
        due_us = 0 if self.is_clearing else self.conflation.due_us()
        held_us = self.underlying.unreleased_us
        return due_us if due_us is None or held_us is None or held_us >= due_us else None

    def advance(self, now_us: int) -> list[Batch]:
        """Apply to the copy what is due by now, and return it as changes under each name; of many
        records a part, and `due_us` says that there are more."""
        count_max = max(1, RELEASED_AT_ONCE // min(len(self.copies), NAMES_IN_STEP))
        if not self.stopped:
            try:
                return self._released(now_us, count_max)
            except Exception as error:
                self.stop_for(error)
        return self._clear(count_max)

    def _released(self, now_us: int, count_max: int) -> list[Batch]:
        """The records of one turn, or some of them. Before the last of these the place is that
        before the turn, so that who leaves there is sent all of it again."""
        time_us = self.conflation.due_us()
        if time_us is None or time_us > now_us:
            return []
        before = self._sent_seq
        # Windows that end later stay open: something that was due before may come, late as well.
        batches = self._apply(*self.conflation.take(time_us, count_max))
        self._sent_seq = max([self._sent_seq, *(max(one.changes.seqs) for one in batches)])
        if self.conflation.turn_us(time_us) == time_us:
            place = SentPlace(max(before, self.filled_seq), time_us - 1)
        else:
            place = self._after(time_us)
        for batch in batches:
            batch.be_sent_at(place)
            batch.be_due_at(time_us)
        return batches

    def _clear(self, count_max: int) -> list[Batch]:
        """Remove records of a copy that has stopped, some under each name."""
        batches = []
        for copy in self.copies:
            table = copy.table
            some = [*islice(table.slots, count_max)]
            seq, ts_us = int(table.seqs.max(initial=0)), int(table.ts_us.max(initial=0))
            stamps = [seq] * len(some), [ts_us] * len(some)
            batches.append(copy.drop(some, "deleted", lambda _, stamps=stamps: stamps))  # type: ignore[misc]
        self.is_clearing = any(len(copy.table) for copy in self.copies)
        return [batch for batch in batches if batch is not None]

    def accept(
        self,
        updates: Sequence[tuple[str, CopyUpdate]],
        removals: Sequence[Removal[str, CopyUpdate]],
    ) -> list[Batch]:
        """Apply what another engine has released; nothing older than what the copy holds."""
        updates = [
            (identity, update) for identity, update in updates if self._is_newer(identity, update)
        ]
        removals = [one for one in removals if self._is_newer(one.key, one.value)]
        self.conflation.count_out(len(updates) + len(removals))
        return self._apply(updates, removals)

    def _is_newer(self, identity: str, update: CopyUpdate) -> bool:
        slot = self.copy.table.slots.get(identity)
        held_seq = self.filled_seq if slot is None else int(self.copy.table.seqs[slot])
        return update[1] > max(held_seq, self.filled_seq)

    def _apply(
        self,
        updates: Sequence[tuple[str, CopyUpdate]],
        removals: Sequence[Removal[str, CopyUpdate]],
    ) -> list[Batch]:
        batches: list[Batch] = []
        if updates:
            identities, states = zip(*updates, strict=True)
            batches += self._put(identities, states, self.copies)
        for reason in LEAVING_REASONS:
            leaving = [removal for removal in removals if removal.reason == reason]
            if leaving:
                batches += self._drop(leaving, reason)
        return batches

    def _put(
        self, identities: Sequence[str], updates: Sequence[CopyUpdate], copies: Sequence[Records]
    ) -> list[Batch]:
        bodies, seqs, ts_us = zip(*updates, strict=True)
        if self.enrichment is not None:
            bodies = tuple(map(self._as_held, identities, updates))
        columns: Columns = {}
        there, births = self.underlying, partial(_places, self.underlying, identities, seqs)
        if there.retains and there.table.keeps_all:
            # A record stands here as it does there since it was new: only new ones are placed.
            return [
                copy.put(identities, bodies, columns, seqs, ts_us, births=births) for copy in copies
            ]
        # A record that has been removed there will be removed here soon, and is last until then.
        places = births()
        given = None if there.table.shares_places else lambda: places
        batches = []
        for copy in copies:
            batches.append(copy.put(identities, bodies, columns, seqs, ts_us, births=given))
            self._place(copy, batches[-1], places)
        return batches

    def _place(self, copy: Records, batch: Batch, places: Sequence[int]) -> None:
        """Give records that were put the same order as those of the underlying topic, so that it is
        that of a copy which is built from scratch."""
        if self.underlying.table.shares_places:
            stood = _stood(copy, batch.changes, places)
            names = batch.changes.identities
            table = self.underlying.table
            newest = table.newest_of([*get_all(table.slots, names)], batch.changes.seqs)
            copy.table.arrange(names, places, newest)
        else:
            if batch.changes.olds.count(None) == len(places):
                return  # new ones stand where they were born, which is there
            stood = copy.table.places_of(batch.changes.slots, places)
            if stood != places:
                copy.table.bear(batch.changes.slots, places)
        if stood != places:
            batch.changes.come_from(stood)

    def _as_held(self, identity: str, update: CopyUpdate) -> bytes:
        """A message as the copy holds it: with its computed fields."""
        body, seq, ts_us = update
        if self.enrichment is None:
            return body
        if not (traits := self.enrichment.traits):
            return self.enrichment.body(body)
        messages = self.underlying.messages((identity,), (body,), (seq,), (ts_us,))
        return self.enrichment.body(body, known=messages.first(traits))

    def _drop(self, leaving: Sequence[Removal[str, CopyUpdate]], reason: Reason) -> list[Batch]:
        seqs = [removal.value[1] for removal in leaving]
        ts_us = [removal.value[2] for removal in leaving]
        # An oof of a record that no longer matches carries its new state, every other one the state
        # this copy last had.
        matching = leaving if reason == "match" else ()
        partings = {one.key: self._as_held(one.key, one.value) for one in matching}
        identities = [removal.key for removal in leaving]
        dropped = [
            copy.drop(identities, reason, lambda _: (seqs, ts_us), partings) for copy in self.copies
        ]
        return [batch for batch in dropped if batch is not None]

    # Live changes of the configuration.

    def retime(self, definition: definitions.ConflatedTopic, now_us: int) -> None:
        """Continue with another interval or schedule; what waits begins a window of the new
        kind."""
        self.conflation.reschedule(self._schedule(definition), now_us)
        self._offered_us = now_us

    def remerge(self) -> None:
        """Continue with the merger that the copy's policy has now."""
        self.conflation.remerge(self._merge_or_none())

    def refocus(self, condition: Filter | None) -> None:
        """Filter what changes from now on by another filter; `judge_all` does so with the rest."""
        self.stop()
        self.stopped = ""
        if condition is not None:
            self.underlying.watched.add(condition.paths)
        self.condition = condition

    def judge_all(self, now_us: Callable[[], int]) -> Task[None]:
        """Let records enter or leave by the filter, each in a window: some in each step, at the
        time that `now_us` gives.

        What counts is what the copy will hold once everything that waits has been released.
        """
        identities = self.underlying.table.identities
        slots = self.underlying.table.live()
        for start in range(0, len(slots), STEP_ROWS):
            some = [identities[slot] for slot in slots[start : start + STEP_ROWS].tolist()]
            try:
                self._judge([identity for identity in some if identity is not None], now_us())
            except Exception as error:
                self.stop_for(error)
            if self.stopped:
                return
            yield

    def _judge(self, identities: Sequence[str], now_us: int) -> None:
        """Let records enter or leave by the filter though they have not changed."""
        wanted, table = self._wanted(identities), self.underlying.table
        self._offered_us = now_us
        entering = [name for name in wanted if not self.conflation.will_hold(name)]
        self.conflation.offer(entering, [wanted[name] for name in entering], now_us, None)
        for name in identities:
            if name not in wanted and self.conflation.will_hold(name):
                slot = table.slots[name]
                now = (table.bodies[slot] or b"", int(table.seqs[slot]), int(table.ts_us[slot]))
                self.conflation.remove((name,), (now,), "match", now_us)

    def check(self) -> None:
        """Assert what is always true of a copy; reads all records."""
        self.conflation.check()
        there = self.underlying
        if there.retains and there.table.keeps_all:
            for table in [copy.table for copy in self.copies]:
                slots, born = map(there.table.slots.get, table.slots), there.table.born
                places = [slot is not None and int(born[slot]) for slot in slots]
                assert table.born[[*table.slots.values()]].tolist() == places, "out of order"

    def stop(self) -> None:
        """Stop watching the fields that this copy needs of the underlying topic."""
        if self.condition is not None and not self.is_external and not self.stopped:
            self.underlying.watched.remove(self.condition.paths)


def _stood(copy: Records, changes: Changes, absent: Sequence[int]) -> list[int]:
    """The places of records that were put before they are given new ones: their former place; of a
    new one, the place in `absent`."""
    slots: Sequence[int | None] = changes.slots
    if None in changes.olds:
        put = zip(changes.slots, changes.olds, strict=True)
        new = {slot for slot, old in put if old is None}
        slots = [None if slot in new else slot for slot in changes.slots]
    return copy.table.places_of(slots, absent)


def _places(records: Records, identities: Sequence[str], absent: Sequence[int]) -> list[int]:
    """The places of records in the order of all; of one that does not exist, that in `absent`."""
    return records.table.places_of([*get_all(records.table.slots, identities)], absent)
