"""A conflated topic at work: the copy of another topic that changes at most once per interval.

It hears the underlying topic's changes, projects them through its filter and offers them to the
conflation core (`conflated_topics`). What the core releases is put into the copy's own table and
routed like a publish, so that the copy is an ordinary topic to everyone else. All it asks of the
underlying topic is that it emits changes.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import compress, islice

from conflated_topics import FocusedConflator, PerKey, Removal, Schedule, Tick
from sow import definitions
from sow.changes import Reason
from sow.expressions import Fields, Filter, compile_fields
from sow.steps import Steps
from sow.topic.batch import Batch
from sow.topic.records import Records

# A pending update: body, sequence number and time of the underlying change.
CopyUpdate = tuple[bytes, int, int]
RELEASED_AT_ONCE = 500
"""Records that are released in one step, some two or three milliseconds of work."""
STEP_ROWS = 250
"""Records that are taken over or judged in one step: some four microseconds each."""
LEAVING_REASONS: tuple[Reason, ...] = ("match", "deleted", "expired")


class ConflatedCopy:
    """Ties an underlying topic, a filter and an interval to the copy they make."""

    __slots__ = (
        "_noted",
        "condition",
        "conflation",
        "copy",
        "enrichment",
        "filled_seq",
        "is_external",
        "underlying",
    )

    def __init__(
        self,
        copy: Records,
        underlying: Records,
        definition: definitions.ConflatedTopic,
        condition: Filter | None,
    ) -> None:
        self.copy = copy
        self.underlying = underlying
        self.condition = condition
        self.enrichment = compile_fields(definition.enrichment) if definition.enrichment else None
        self.conflation: FocusedConflator[str, CopyUpdate] = FocusedConflator(
            self._schedule(definition), copy.table.__contains__, self._merge_or_none()
        )
        self.is_external = definition.engine != "embedded"
        self.filled_seq = 0
        """As of which change of the underlying topic the copy was filled."""
        self._noted: dict[str, None] | None = None
        """While it is filled: records that have changed, and are still to be taken over."""
        if condition is not None and not self.is_external:
            underlying.watch(condition.paths)

    @staticmethod
    def _schedule(definition: definitions.ConflatedTopic) -> Schedule[str]:
        if definition.schedule == "tick":
            return Tick(definition.interval_us)
        return PerKey(definition.interval_us)

    def _merge_or_none(self) -> Callable[[CopyUpdate, CopyUpdate], CopyUpdate] | None:
        return None if self.copy.folding.merger is None else self._merge

    def _merge(self, current: CopyUpdate, new: CopyUpdate) -> CopyUpdate:
        """Two updates of one window; a merger that keeps both cannot be heard here."""
        merger = self.copy.folding.merger
        assert merger is not None
        body = merger.merge(current[0], new[0])
        return new if body is None else current if body is current[0] else (body, *new[1:])

    def hear(self, batch: Batch, now_us: int) -> None:
        """Offer the underlying topic's changes."""
        changes = batch.changes
        if self._noted is not None:
            self._noted.update(dict.fromkeys(changes.identities))
            return
        if self.is_external:
            # Whoever conflates reads them from the log.
            self.conflation.count_in(len(changes))
            return
        if changes.news is not None:
            passes = None if self.condition is None else batch.new_focus(self.condition)
            bodies = self._singles(changes.news)
            updates = list(zip(bodies, changes.seqs, changes.ts_us, strict=True))
            self.conflation.offer(changes.identities, updates, now_us, passes)
            return
        bodies = changes.partings or [old or b"" for old in changes.olds]
        updates = list(zip(bodies, changes.seqs, changes.ts_us, strict=True))
        self.conflation.remove(changes.identities, updates, changes.reason or "deleted", now_us)

    def _singles(self, bodies: Sequence[bytes]) -> Sequence[bytes]:
        """Messages of the underlying topic as a merge begins with them."""
        merger = self.copy.folding.merger
        return bodies if merger is None else list(map(merger.single, bodies))

    def fill(self, seq: Callable[[], int]) -> Steps[None]:
        """Take over the underlying topic, some records in each step, without a window.

        In the last step the copy is as the underlying topic then is, at the change `seq` gives.
        Records that change meanwhile are only noted when they are heard of, and taken over in the
        end: in the order in which they came.
        """
        self._noted = {}
        identities, table = self.underlying.table.identities, self.underlying.table
        slots = table.live().tolist()
        for start in range(0, len(slots), STEP_ROWS):
            some = [identities[slot] for slot in slots[start : start + STEP_ROWS]]
            self._take_over([identity for identity in some if identity is not None])
            yield
        while len(self._noted) > STEP_ROWS:
            self._take_over(self._noted_first(STEP_ROWS))
            yield
        self._take_over(list(self._noted))
        self._noted = None
        self.filled_seq = seq()

    def _noted_first(self, count: int) -> list[str]:
        assert self._noted is not None
        some = list(islice(self._noted, count))
        for identity in some:
            del self._noted[identity]
        return some

    def _take_over(self, identities: Sequence[str]) -> None:
        """Let the copy hold of these records what it would if all windows had ended."""
        wanted = self._wanted(identities)
        self.copy.discard(identity for identity in identities if identity not in wanted)
        if wanted:
            self._put(list(wanted), list(wanted.values()))

    def _wanted(self, identities: Iterable[str]) -> dict[str, CopyUpdate]:
        """Those of these records that are there and pass the filter, as they stand."""
        table = self.underlying.table
        found = {name: slot for name in identities if (slot := table.slots.get(name)) is not None}
        slots = list(found.values())
        bodies = [table.bodies[slot] or b"" for slot in slots]
        stamps = table.seqs[slots].tolist(), table.ts_us[slots].tolist()
        updates = zip(found, zip(self._singles(bodies), *stamps, strict=True), strict=True)
        if self.condition is None or not slots:
            return dict(updates)
        columns = self.underlying.decoder(self.condition.paths).columns(bodies)
        return dict(compress(updates, self.condition.matches(columns, len(slots))))

    def due_us(self) -> int | None:
        """When `release` next has something to do."""
        return self.conflation.due_us()

    def release(self, now_us: int) -> list[Batch]:
        """Apply to the copy what is due by now, and return it as changes of the copy; of many
        records some, and `due_us` says that there are more."""
        return self._apply(*self.conflation.take(now_us, RELEASED_AT_ONCE))

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
            batches.append(
                self._put([identity for identity, _ in updates], [u for _, u in updates])
            )
        for reason in LEAVING_REASONS:
            leaving = [removal for removal in removals if removal.reason == reason]
            if leaving:
                batches += self._drop(leaving, reason)
        return batches

    def _put(self, identities: Sequence[str], updates: Sequence[CopyUpdate]) -> Batch:
        bodies, seqs, ts_us = zip(*updates, strict=True)
        return self.copy.put(identities, list(map(self._as_held, bodies)), {}, seqs, ts_us)

    def _as_held(self, body: bytes) -> bytes:
        """A message as it stands in the copy."""
        return body if self.enrichment is None else self._enriched(body, self.enrichment)

    def _enriched(self, body: bytes, enrichment: Fields) -> bytes:
        """The message with the fields that are computed for it."""
        kind = self.copy.message_type
        document = kind.parse(body)
        assert isinstance(document, dict)
        return kind.encode(enrichment.apply(document))

    def _drop(self, leaving: Sequence[Removal[str, CopyUpdate]], reason: Reason) -> list[Batch]:
        seqs = [removal.value[1] for removal in leaving]
        ts_us = [removal.value[2] for removal in leaving]
        # An oof of a record that no longer matches carries its new state, every other one the
        # state this copy last had.
        partings = (
            {removal.key: self._as_held(removal.value[0]) for removal in leaving}
            if reason == "match"
            else None
        )
        batch = self.copy.drop(
            [removal.key for removal in leaving], reason, lambda _: (seqs, ts_us), partings
        )
        return [] if batch is None else [batch]

    # Live changes of the configuration.

    def retime(self, definition: definitions.ConflatedTopic, now_us: int) -> None:
        """Go on with another interval or schedule; what waits begins a window of the new kind."""
        self.conflation.reschedule(self._schedule(definition), now_us)

    def remerge(self) -> None:
        """Go on as the copy's folding has it now."""
        self.conflation.remerge(self._merge_or_none())

    def refocus(self, condition: Filter | None, now_us: Callable[[], int]) -> Steps[None]:
        """Go on with another filter: what enters or leaves the copy by it does so in a window.

        What changes from now on is judged by it; the other records are, some in each step, at the
        time that `now_us` gives. What counts is what the copy will hold once everything that waits
        has been released.
        """
        self.stop()
        if condition is not None:
            self.underlying.watch(condition.paths)
        self.condition = condition
        identities = self.underlying.table.identities
        slots = self.underlying.table.live().tolist()
        for start in range(0, len(slots), STEP_ROWS):
            some = [identities[slot] for slot in slots[start : start + STEP_ROWS]]
            self._judge([identity for identity in some if identity is not None], now_us())
            yield

    def _judge(self, identities: Sequence[str], now_us: int) -> None:
        """Let records enter or leave by the filter, though they have not changed."""
        wanted, table = self._wanted(identities), self.underlying.table
        entering = [name for name in wanted if not self.conflation.will_hold(name)]
        self.conflation.offer(entering, [wanted[name] for name in entering], now_us, None)
        for name in identities:
            if name not in wanted and self.conflation.will_hold(name):
                slot = table.slots[name]
                now = (table.bodies[slot] or b"", int(table.seqs[slot]), int(table.ts_us[slot]))
                self.conflation.remove((name,), (now,), "match", now_us)

    def stop(self) -> None:
        """Let the underlying topic forget what this copy wanted of it."""
        if self.condition is not None and not self.is_external:
            self.underlying.unwatch(self.condition.paths)
