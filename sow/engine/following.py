"""Following: an engine that applies the log of another server, the primary, and nothing else.

What an engine does follows from its configuration, the changes in the log and their times. So one
that gets the same log is at each bookmark as the primary was:

    entries ──> the same numbers, times, records ──> routed like a publish, and logged again here
    beats ────> time passes: windows end when the log's time says so, never by a clock of this side

Records expire when the log says so. A change that was logged in several entries is one turn
(`goes_on`), and as atomic as it was (`sow.engine.atomic_change`): numbered and logged in one step,
seen whole by every reader. Views are released at its end, or where the primary's have been, which
later entries say (`LogEntry.turn`): the caller waits for these. Where nobody notices turns, since
nobody follows the topic and nothing falls due, short publishes are applied together: the log of a
busy server has very many of them, and each would cost as much as a long one. Clients change nothing
in an engine like this: topics that are not in the log have no records here, and are refused with
the primary's address.

A node of a shared log may lead one day (`FollowingEngine.lead`): then its own changes go on from
where it has come, with the copies and views that it has.

It does not know how entries arrive, nor when. Reloads and starts stand in the log as well, and are
the caller's (`sow.server.boot.follower`): they concern more than an engine.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from sow.core.cooperative import Task, untracked_if_many
from sow.core.definitions import KNOWN_COLUMNS, Configuration
from sow.engine.catalog import Catalog
from sow.engine.configurations import ConfigurationHistory
from sow.engine.engine import Engine
from sow.engine.recovery.redo import is_unstored
from sow.engine.running_topics import CopyTopic, Expiries, LiveTopic, SourceTopic, ViewTopic
from sow.errors import ClientError, NotPrimary, StoreError
from sow.store.protocols import LogEntry, expiries_of, goes_on, part_of
from sow.topic.batch import Batch, Reason
from sow.topic.carried_windows import begin_from, count_carried, pinned
from sow.topic.views.view import MaterializedView

RECORDS_AT_ONCE = 500
"""Records that are applied in one step: two milliseconds or so with a few followers."""


class FollowedConfigurations(ConfigurationHistory):
    """The starts and reloads of a log that another server writes, until this one leads."""

    _is_followed, _goes_on = True, False

    def note(self, is_start: bool, oldest_seq: int = 0, goes_on: bool = False) -> None:
        """The primary notes them; if this server leads one day, its start."""
        if self._is_followed:
            self._goes_on = goes_on
        else:
            super().note(is_start, oldest_seq, goes_on)

    def lead(self, oldest_seq: int, is_start: bool) -> None:
        """Note them from now on. What is in force begins here if it `is_start`, with the windows
        that this server has begun with, and where the log has none: else copies and views go on."""
        self._is_followed = False
        self.number_reloads()
        if is_start or not self.is_noted:
            self.note(is_start=True, goes_on=self._goes_on)
        self.forget(oldest_seq)

    def look_again(self) -> None:
        """Another one has been taken from the log."""
        self._all = None


class FollowingEngine(Engine):
    """An engine that follows the server at `primary`."""

    def __init__(
        self,
        configuration: Configuration,
        primary: str,
        has_room: Callable[[int], bool] = lambda _size_bytes: True,
        takes: Callable[[int], bool] | None = None,
        lost: Callable[[], StoreError | None] = lambda: None,
    ) -> None:
        super().__init__(configuration, has_room, takes, lost, primary)
        self.configurations: FollowedConfigurations = FollowedConfigurations(
            self.catalog, self.sequencer, self
        )
        self._lead_listeners: list[tuple[Callable[[], Task[None]], Callable[[], None]]] = []

    def on_lead(self, prepare: Callable[[], Task[None]], begin: Callable[[], None]) -> None:
        """Take the steps of `prepare`, and call `begin`, when it leads."""
        self._lead_listeners.append((prepare, begin))

    def follow(self, primary: str) -> None:
        """Another server is the primary."""
        self.primary = primary

    def prepare_to_lead(self) -> Task[None]:
        """What has to precede `lead`, in steps, between which nothing of the log is applied."""
        for topic in [*self.catalog]:
            yield
            if isinstance(topic, SourceTopic) and not topic.is_system:
                yield from topic.let_expire()
        for prepare, _ in self._lead_listeners:
            yield from prepare()

    def lead(self, oldest_seq: int, is_start: bool = False) -> None:
        """Take changes: this server is the primary from here on. The log is kept after record
        `oldest_seq`, and has another configuration if this `is_start`."""
        self.primary = ""
        self.configurations.lead(oldest_seq, is_start)
        for _, begin in self._lead_listeners:
            begin()

    def begin_timers(self) -> Task[None]:
        """What has to follow `lead`, in steps: records expire from now on."""
        for topic in [*self.catalog]:
            yield
            self.timers.note(topic)

    def attach_topic(self, topic: LiveTopic) -> None:
        """Schedule the timers of a new topic; while it follows, nothing expires by itself."""
        if self.primary and isinstance(topic, SourceTopic) and not topic.is_system:
            topic.leave_expired()
        super().attach_topic(topic)

    def topic(self, name: str) -> LiveTopic:
        """The topic of a name; raises NotPrimary for one that the log does not have."""
        topic = super().topic(name)
        if self.primary and not is_followed(topic, self.topics):
            raise NotPrimary(
                f"topic {topic.name} is not in the transaction log, so only the primary has its "
                f"records: {self.primary}",
                primary=self.primary,
            )
        return topic

    def publishable(self, name: str) -> SourceTopic:
        """Raises NotPrimary while it follows: the primary takes what is published."""
        if self.primary:
            raise self.refusal("publishes")
        return super().publishable(name)

    def has_account(self, entry: LogEntry) -> bool:
        """Whether an account is as an entry has it."""
        table, (identity,) = self.topics[entry.topic].records.table, entry.identities or ("",)
        slot = table.slots.get(identity)
        return slot is not None and (int(table.seqs[slot]), int(table.ts_us[slot])) == (
            entry.seq,
            entry.ts_us,
        )

    def take_account(self, entry: LogEntry) -> None:
        """Take over an account of the primary, and keep it here, too."""
        if self.has_account(entry):
            return
        self.sequencer.write(entry)
        topic = self.topics[entry.topic]
        assert isinstance(topic, SourceTopic)
        names, bodies = entry.identities or (), entry.bodies
        self.pass_on(topic, topic.records.put(names, bodies, {}, [entry.seq], [entry.ts_us]))
        self.configurations.look_again()
        if entry.topic == KNOWN_COLUMNS.name:
            for body in entry.bodies:
                self.columns.take(body, entry.seq)
        self.notify_work()

    def apply_account(self, entry: LogEntry) -> None:
        """Apply a change of accounts that is in the log, unless it is applied already: the newest
        change of each counts."""
        topic = self.topics[entry.topic]
        assert isinstance(topic, SourceTopic)
        names = entry.identities or ()
        newer = [at for at, name in enumerate(names) if not self._is_newer(topic, name, entry)]
        if entry.op != "publish":
            newer = [at for at in newer if names[at] in topic.records.table]
        if not newer:
            return
        self.sequencer.write(entry)
        there, seqs = [names[at] for at in newer], [entry.seq] * len(newer)
        if entry.op == "publish":
            messages = topic.records.stored([entry.bodies[at] for at in newer], there)
            each_us = [*expiries_of(entry)]
            batch = topic.store(messages, seqs, entry.ts_us, [each_us[at] for at in newer])
        else:
            reason: Reason = "expired" if entry.op == "expire" else "deleted"
            dropped = topic.drop(there, reason, seqs, entry.ts_us)
            assert dropped is not None
            batch = dropped
        self.pass_on(topic, batch)  # who follows this server gets to know of it
        self.configurations.look_again()
        if entry.topic == KNOWN_COLUMNS.name:
            for body in entry.bodies:
                self.columns.take(body, entry.seq)
        self.notify_work()

    def _is_newer(self, topic: SourceTopic, name: str, entry: LogEntry) -> bool:
        """Whether an account is of a later time than an entry."""
        table = topic.records.table
        slot = table.slots.get(name)
        if slot is None:
            return False
        return (int(table.seqs[slot]), int(table.ts_us[slot])) > (entry.seq, entry.ts_us)

    def refusal(self, what: str) -> NotPrimary:
        """The error for what only the primary takes."""
        return NotPrimary(
            f"this server follows {self.primary} and takes no {what}: send this there",
            primary=self.primary,
        )


def is_followed(topic: LiveTopic, topics: Mapping[str, LiveTopic]) -> bool:
    """Whether the log has what a topic is made of; the server's own topics are each server's."""
    if isinstance(topic, SourceTopic):
        return topic.is_logged or topic.is_system
    names = topic.underlyings if isinstance(topic, ViewTopic) else (topic.underlying,)
    return all(is_followed(topics[name], topics) for name in names if name in topics)


Windows = tuple[str, str, list[Any]]
"""The open windows of one conflated topic: its underlying topic, its name, and its state."""


def windows_of(engine: Engine) -> list[Windows]:
    """What is open in an engine now, between two turns: what a copy of its records does not have.
    In one step, since it is of one moment."""
    if engine.views.is_dirty:
        engine.views.release()
    engine.output.catch_up_views()
    return pinned_windows(engine)()


def pinned_windows(engine: Engine) -> Callable[[], list[Windows]]:
    """What is open in an engine now, between two turns, when nobody is late: made later, and in
    any thread."""
    kept = [(topic.underlying, topic.name, pinned(topic.copy)) for topic in _open_in(engine)]
    return lambda: [(underlying, name, state()) for underlying, name, state in kept]


def count_waiting(engine: Engine) -> int:
    """How many records, about, wait in an engine's open windows."""
    return sum(count_carried(topic.copy) for topic in _open_in(engine))


def _open_in(engine: Engine) -> Iterator[CopyTopic]:
    copies = (one for one in engine.catalog if isinstance(one, CopyTopic) and not one.stopped)
    return (one for one in copies if is_followed(one, engine.topics))


def with_windows(configuration: Configuration, windows: Iterable[Windows]) -> Task[Catalog]:
    """Topics that have these windows, for an engine that begins with them (`Engine.restore`); what
    the configuration has no place for is left out. In steps."""
    engine = Engine(configuration)
    for underlying, name, state in windows:
        try:
            source = engine.catalog.expected(underlying)
        except ClientError:
            continue
        if isinstance(source, SourceTopic):
            engine.enter(source)
        topic = engine.topics.get(name)
        if isinstance(topic, CopyTopic):
            engine.part(topic)
            yield from begin_from(topic.copy, state)
    return engine.catalog


class Following:
    """Applies the log to an engine, in steps, from its newest record on."""

    def __init__(self, engine: FollowingEngine) -> None:
        self._engine = engine
        self._before: LogEntry | None = None
        """The last entry that was applied."""
        self._coming: list[list[LogEntry]] = []
        """The changes that are being applied, and from where on they are not yet."""
        self._next = 0

    def apply(self, entries: Iterable[LogEntry]) -> Task[None]:
        """Apply entries up to the end of a turn, in order; what is applied already is passed
        over."""
        views = self._engine.views
        self._coming, self._next = [*changes(entries)], 0
        views.stay_within_turn(self._is_within_turn)
        try:
            yield from self._applied()
        finally:
            views.stay_within_turn(None)
            self._coming = []

    def _is_within_turn(self, view: MaterializedView, turn: int) -> bool:
        """Whether the next change that a view takes in is of the turn that began with a record."""
        for at in range(self._next, len(self._coming)):
            entry = self._coming[at][0]
            if entry.topic in view.beside:
                return 0 < entry.turn <= turn
        return False

    def _applied(self) -> Task[None]:
        seq, together = self._engine.seq, list[LogEntry]()
        for at, change in enumerate(self._coming):
            self._next = at
            parts = [*_behind(change, seq)]
            if not parts:
                continue
            assert parts[0].seq <= seq + 1, "the log has a hole"
            seq = parts[-1].seq + len(parts[-1]) - 1
            ends_turn = self._before is None or not goes_on(self._before, parts[0])
            self._before = change[-1]
            if together and not self._joins(together, parts):
                yield from self._apply(together)
                together = []
            if ends_turn and not together:
                yield from self.pass_time(parts[0].ts_us)
            if len(parts) == 1:
                together += parts
            else:
                self._next = at + 1
                yield from self._apply_whole(parts)
        self._next = len(self._coming)
        if together:
            yield from self._apply(together)

    def _joins(self, before: Sequence[LogEntry], parts: Sequence[LogEntry]) -> bool:
        """Whether a change may be applied in one step with the entries before it: publishes to one
        topic whose turns nobody notices."""
        last, entry, engine = before[-1], parts[0], self._engine
        # Numbers have no holes, so that nothing is counted again for each short publish.
        if len(parts) > 1 or entry.seq + len(entry) - before[0].seq > RECORDS_AT_ONCE:
            return False
        if last.topic != entry.topic or not (is_plain(last) and is_plain(entry)):
            return False
        topic, due_us = engine.topics.get(entry.topic), engine.due_us()
        return (
            isinstance(topic, SourceTopic)
            and topic.records.events is None
            and not topic.router.is_followed
            and not (engine.views.is_dirty or engine.output.late)
            and (due_us is None or due_us > entry.ts_us)
        )

    def pass_time(self, until_us: int) -> Task[None]:
        """End the turn, and let time pass: each timer runs when it is due."""
        engine = self._engine
        yield from self._end_turn()
        while (due_us := engine.due_us()) is not None and due_us <= until_us:
            yield from engine.fall_due(due_us)
            yield from self._end_turn()
        engine.sequencer.moment(until_us)

    def _end_turn(self) -> Task[None]:
        """Release the views, and whatever is late."""
        engine = self._engine
        if engine.views.is_dirty:
            engine.views.release()
        while engine.output.late.has_awaited:
            engine.output.catch_up()
            yield
            if engine.views.is_dirty:
                engine.views.release()

    def _number(self, entries: Sequence[LogEntry]) -> None:
        """Log these entries: their numbers are those of one step."""
        sequencer, last = self._engine.sequencer, entries[-1]
        for entry in entries:
            sequencer.write(entry)
        sequencer.moment(last.ts_us)
        sequencer.begin_after(last.seq + len(last) - 1)

    def _store(self, topic: SourceTopic | None, entries: Sequence[LogEntry]) -> None:
        """Change a topic by one entry, or by several plain ones."""
        if topic is None:
            return
        alone = len(entries) == 1
        batch = carried_out(topic, entries[0]) if alone else stored(topic, entries)
        if batch is not None:
            self._engine.pass_on(topic, batch)

    def _apply(self, entries: Sequence[LogEntry]) -> Task[None]:
        """Apply entries of one topic in one step."""
        topic = None if is_unstored(entries[0]) else self._topic(entries[0])
        self._number(entries)
        self._store(topic, entries)
        yield
        yield from self._catch_up()

    def _apply_whole(self, parts: Sequence[LogEntry]) -> Task[None]:
        """Apply a change of many records: readers see all of it or nothing."""
        topic = None if is_unstored(parts[0]) else self._topic(parts[0])
        if topic is None:
            self._number(parts)
        else:
            there = topic
            yield from self._engine.atomic.carry_out(
                lambda: there, lambda _: self._steps(there, parts)
            )
        yield
        yield from self._catch_up()

    def _steps(self, topic: SourceTopic, parts: Sequence[LogEntry]) -> Task[None]:
        engine = self._engine
        yield from engine.followers.caught_up(topic.name)
        engine.atomic.hold_other_output(topic, parts[0].ts_us)
        self._number(parts)
        for part in parts:
            yield
            yield from engine.followers.caught_up(topic.name)
            self._store(topic, (part,))

    def _catch_up(self) -> Task[None]:
        while self._engine.output.late.has_awaited:
            self._engine.output.catch_up()
            yield

    def _topic(self, entry: LogEntry) -> SourceTopic | None:
        """The topic that an entry changes; None where the configuration of then has no place for
        it."""
        try:
            topic = self._engine.catalog.expected(entry.topic)
        except ClientError:
            return None
        if not isinstance(topic, SourceTopic):
            return None
        if topic.name not in self._engine.topics:
            self._engine.enter(topic)
        return topic


def changes(entries: Iterable[LogEntry]) -> Iterator[list[LogEntry]]:
    """Entries grouped by the change that each belongs to, in order."""
    change: list[LogEntry] = []
    for entry in entries:
        if change and not goes_on(change[-1], entry):
            yield change
            change = []
        change.append(entry)
    if change:
        yield change


def _behind(change: Iterable[LogEntry], seq: int) -> Iterator[LogEntry]:
    """The entries of a change after record `seq`, in parts of one step each."""
    for entry in change:
        for start in range(max(0, seq + 1 - entry.seq), len(entry), RECORDS_AT_ONCE):
            end = min(start + RECORDS_AT_ONCE, len(entry))
            yield entry if end - start == len(entry) else part_of(entry, start, end)


def is_plain(entry: LogEntry) -> bool:
    """Whether an entry publishes records that follow from their bodies, and nothing else."""
    is_whole = entry.origin is None and entry.identities is None
    return entry.op == "publish" and is_whole and not is_unstored(entry)


def stored(topic: SourceTopic, entries: Sequence[LogEntry]) -> Batch:
    """Publish plain entries to a topic, each at its time."""
    bodies = [*chain.from_iterable(entry.bodies for entry in entries)]
    messages = topic.records.stored(bodies, None)
    first, count = entries[0].seq, len(bodies)
    stamps = [time_us for entry in entries for time_us in repeat(entry.ts_us, len(entry))]
    expires_us: Expiries = 0
    if any(entry.expires_us for entry in entries):
        expires_us = [time_us for entry in entries for time_us in expiries_of(entry)]
    batch = topic.store(messages, range(first, first + count), stamps, expires_us)
    for rows in (stamps, batch.changes.slots, batch.changes.olds):
        if isinstance(rows, list):
            untracked_if_many(rows)
    return batch


def carried_out(topic: SourceTopic, entry: LogEntry) -> Batch | None:
    """Change a topic by an entry of the log; None where it has no such record any more."""
    seqs, expires_us = range(entry.seq, entry.seq + len(entry)), entry.expires_us
    if entry.op in ("delete", "expire"):
        table, named = topic.records.table, zip(entry.identities or (), seqs, strict=True)
        there = {name: seq for name, seq in named if name in table}
        reason: Reason = "expired" if entry.op == "expire" else "deleted"
        return topic.drop([*there], reason, [*there.values()], entry.ts_us)
    messages, origin = topic.records.stored(entry.bodies, entry.identities), entry.origin
    events = topic.records.events
    if events is None or origin is None:
        return topic.store(messages, seqs, entry.ts_us, expires_us)
    messages = messages._replace(author=origin.author)
    if not origin.edits:
        return topic.store(messages, seqs, entry.ts_us, expires_us)
    event = events.find(messages.identities[0], origin.edits)
    return event and topic.edited(messages, event, seqs, entry.ts_us, expires_us)
