"""The engine: topics, their records, and what follows from a change of one.

    publish / delete ──> log entry ──> table ──> router ──> feeds, conflated copies
    advance(now) ──────> expirations, conflated releases ──> the same router
    flush() ───────────> a *group*: log entries to make durable, sessions to write to

The engine does no I/O and reads no clock. Changes take effect at once, but no output that they
cause may leave before its group is durable: what a client has seen is never lost. The runtime
stores each group's entries in order, then calls `release`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import KNOWN_COLUMNS, Configuration
from sow.engine.atomic_change import AtomicBatch
from sow.engine.bulk_delete import BulkDelete
from sow.engine.bulk_publish import BulkPublish, is_one_slice, reading
from sow.engine.capacity import Capacity, DiskReserve
from sow.engine.catalog import Catalog
from sow.engine.column_type_tracking import ColumnTypeTracker
from sow.engine.configurations import ConfigurationHistory
from sow.engine.output import LateFollowers, PendingOutput
from sow.engine.queries import FilterCache, Queries
from sow.engine.recovery import OrphanedRecords
from sow.engine.recovery.redo import Progress, restore, restore_accounts
from sow.engine.running_topics import CopyTopic, LiveTopic, SourceTopic
from sow.engine.timers import Timers
from sow.engine.views import Views
from sow.engine.wal import CommitSequencer, Group
from sow.errors import Stopped, StoreError
from sow.expressions import Trait
from sow.store.columns import Slots
from sow.store.manifest import Past, past_of
from sow.store.protocols import LogEntry, Op, StoredRecords
from sow.streaming.channel import Channel
from sow.streaming.outbox.overflow import ConflationBudget
from sow.streaming.sessions import Session
from sow.topic.batch import Batch
from sow.topic.conflated_topic import ConflatedCopy
from sow.topic.records import CheckedMessages, Records

ChangesListener = Callable[[Records, Sequence[str]], None]


class Engine:
    """All topics of one configuration, their records and subscriptions.

    `has_room` returns whether the disk takes so many more bytes of messages, 0 for some, and
    `takes` whether the reserve for removals takes so many; both are called often and have to be
    cheap.

    Times are microseconds since 1970 UTC. Where a caller's time goes back, the engine continues
    from the newest one that it knows. To be used by one thread, except for `filters.compiled`.
    """

    def __init__(
        self,
        configuration: Configuration,
        has_room: Callable[[int], bool] = lambda _size_bytes: True,
        takes: Callable[[int], bool] | None = None,
        lost: Callable[[], StoreError | None] = lambda: None,
        primary: str = "",
    ) -> None:
        self.configuration = configuration
        self.primary = primary
        """The address of the server that it follows, which alone takes changes."""
        self.timers = Timers()
        self.due_us = self.timers.due_us
        """When `advance` next has something to do; None: nothing is scheduled."""
        self.sequencer = CommitSequencer()
        self.disk = DiskReserve(self.sequencer, has_room, takes or has_room, lost)
        self._work_listeners: list[Callable[[], None]] = []
        self.on_work = self._work_listeners.append
        """Call a listener when there is something to flush that no command or timer has caused."""
        self._stop_listeners: list[Callable[[str], None]] = []
        self.on_stopped = self._stop_listeners.append
        """Call a listener with a sentence for each view and conflated topic that stops."""
        self._noting: tuple[dict[LiveTopic, None], ...] = ()
        self._change_listeners: tuple[ChangesListener, ...] = ()
        self._watches: dict[str, tuple[Callable[[Batch], None], ...]] = {}
        known = {Trait.AMPS_INSTANCE_NAME: configuration.name}
        self.filters = FilterCache(lambda: self.configuration.limits, known)
        self.filter = self.filters.get
        """The filter of a text; the same text is compiled once."""
        self.output = PendingOutput(self.sequencer, self.timers, self.notify_work, self._caught_up)
        self.requests = self.output.requests
        self.followers = LateFollowers(
            self.output, lambda name: name in self.topics and self.topics[name].records.has_awaited
        )
        self.atomic = AtomicBatch(lambda: self.seq, self._go_on_after)
        self.views = Views(
            lambda name: self.topics.get(name), self.route, self.timers, self.requests, self.atomic,
            self.notify_work, self._notify_stopped, self._is_behind, self.output.catch_up,
        )  # fmt: skip
        self.sequencer.note_turns(self.views.unreleased, self.views.turn_of)
        self.catalog = Catalog(configuration, self.filter, self.sequencer, self.views.wake)
        self.capacity = Capacity(self.catalog)
        self.queries = Queries(
            self.topic, self.topics, self.sequencer, self.atomic, self.views.settling
        )
        self.conflation_budget: ConflationBudget[Session] = ConflationBudget()
        self.removals = BulkDelete(
            self.disk,
            lambda topic, identities, now_us: self.remove(topic, identities, "delete", now_us),
            lambda topic: self.topics.get(topic.name) is topic,
            self.make_ready,
        )
        self.publications = BulkPublish(
            self.publishable, self.finished, self.put, self.capacity, self.disk,
            self.atomic.finish_before, self.requests.together, self.make_ready,
        )  # fmt: skip
        # The reserve must keep enough to log the deletion of every record.
        self.columns = ColumnTypeTracker(
            self.catalog,
            self._note_columns,
            lambda size: self.disk.spares(size + self.catalog.usage.named_bytes),
        )
        self.configurations = ConfigurationHistory(self.catalog, self.sequencer, self)
        self._on_expired, self._on_released = self._route_all, self.route_released
        """Bound once for all topics: a pattern may have a hundred thousand."""
        for topic in self.catalog:
            self.attach_topic(topic)
        self.timers.add(self.views)
        self.timers.add(self.views.gc)

    def on_lead(self, prepare: Callable[[], Task[None]], begin: Callable[[], None]) -> None:
        """Take the steps of `prepare`, and call `begin`, before clients change anything: now,
        unless this engine follows a server."""
        run_to_completion(prepare())
        begin()

    def watch(self, name: str, watch: Callable[[Batch], None]) -> None:
        """Call `watch` with each batch of changes of a topic, in the step of the change."""
        self._watches[name] = (*self._watches.get(name, ()), watch)

    def unwatch(self, name: str, watch: Callable[[Batch], None]) -> None:
        """Call it no more."""
        kept = tuple(one for one in self._watches.pop(name, ()) if one is not watch)
        if kept:
            self._watches[name] = kept

    def _notify_stopped(self, sentence: str) -> None:
        for listener in self._stop_listeners:
            listener(sentence)

    def notify_work(self) -> None:
        """Something has to be flushed that the runtime cannot know of."""
        for listener in self._work_listeners:
            listener()

    # Topics.

    @property
    def topics(self) -> dict[str, LiveTopic]:
        """All topics by name, those of patterns and their copies too. Read only."""
        return self.catalog.topics

    def topic(self, name: str) -> LiveTopic:
        """The topic of the exact name `name`; raises UnknownTopic, which names the nearest one, and
        Stopped for a view or a conflated topic that has stopped, or is made of one that has."""
        topic = self.catalog.topic(name)
        if reason := self.catalog.why_stopped(topic):
            raise Stopped(reason)
        return topic

    def attach_topic(self, topic: LiveTopic) -> None:
        """Schedule the timers of a new topic."""
        self.note_change(topic)
        self.columns.meet(topic.records)
        if isinstance(topic, CopyTopic):
            if topic.copy.copy is topic.records:
                self.timers.add(topic.copy, self._on_released)
        elif isinstance(topic, SourceTopic) and topic.falls_due:
            self.timers.add(topic, self._on_expired)

    def part(self, topic: CopyTopic) -> None:
        """Give a conflated topic that shares its copy one of its own, which may differ."""
        if topic.is_shared:
            before = topic.copy
            topic.part()
            self.topics[topic.underlying].router.file(topic.copy)
            self.timers.add(topic.copy, self._on_released, beside=before)

    def detach_topic(self, topic: LiveTopic) -> None:
        """Stop the timers of a topic that is being removed."""
        self.note_change(topic)
        if not isinstance(topic, CopyTopic):
            self.timers.remove(topic)
        elif not topic.is_shared:
            self.timers.remove(topic.copy)
        self.catalog.untidy.pop(topic, None)

    def publishable(self, name: str) -> SourceTopic:
        """The topic to publish to under `name`; one of a Pattern may come into being by it.

        Raises UnknownTopic; InvalidTopic for a copy (docs/semantics.md, Rule 4), or for a name that
        belongs to one; TooLarge where a Pattern has as many topics as it may; DiskFull, and the
        error of the disk while it fails.
        """
        topic = self.catalog.publishable(name)
        self.disk.check()
        return topic

    # Changes from clients.

    def publish(
        self,
        name: str,
        bodies: Sequence[bytes],
        now_us: int,
        *,
        key: str | None = None,
        expires_s: float | None = None,
        delta: bool = False,
    ) -> int:
        """Store bodies as the current records of their keys: all of them or, on an error, none.

        `bodies` are messages of the topic's type. `key` is the identity of the one body where the
        topic has no key fields, and only there. `expires_s` is their lifetime in seconds, up to
        1e9, 0 for ever; None: the topic's. With `delta` each is merged into its record
        (docs/semantics.md, Rule 8), which keeps its lifetime where none is given. Returns the
        bookmark of the last one.

        Raises what `publishable` does; BadMessage with the index of the first body that is none, or
        lacks a key (Rule 5); TooLarge over `Limits/MessageSize`; Full over `Limits/Memory` or
        `MaxRecords`; ClientError where a lifetime has no place.
        """
        topic = self.publishable(name)
        keys = None if key is None else (key,)
        if is_one_slice(bodies) or keys is not None:
            read = [self.read(topic, bodies, keys, now_us=now_us)]
            if self.is_free(name):
                expires_us = topic.expiry_us(expires_s, now_us)
                put, keeps = self.publications.put_slice, delta and expires_s is None
                return put(topic, read[0], now_us, expires_us, delta, keeps=keeps)
        else:
            read = run_to_completion(reading(bodies, lambda p: self.read(topic, p, now_us=now_us)))
        carry_out = self.publications.carry_out
        return run_to_completion(carry_out(name, read, now_us, expires_s=expires_s, delta=delta))

    def is_free(self, name: str) -> bool:
        """Whether a publish to the topic need not wait: no publish has slices left, no session
        exceeds its conflation budget, and the topic has no atomic change and no late followers."""
        waits = self.publications.left or self.conflation_budget.must_work_off()
        return not waits and not self.atomic.concerns((name,)) and self.followers.keep_up(name)

    def _is_behind(self, names: Iterable[str]) -> bool:
        """Whether views of one of these topics have not processed all of its changes yet."""
        return bool(self.output.late) and any(
            name in self.topics and self.topics[name].router.is_behind for name in names
        )

    def make_ready(self, name: str, is_long: bool = False) -> Task[None]:
        """The steps that have to precede a publish or removal; `is_long`: one of many steps."""
        if is_long:
            yield from self.views.reporting(name)
        yield from self.conflation_budget.work_off()
        yield from self.followers.caught_up(name)

    def publish_slice(
        self, topic: SourceTopic, bodies: Sequence[bytes], now_us: int, author: str = ""
    ) -> int:
        """`publish` of no more bodies than a step takes, to a topic that `publishable` has just
        returned, while it `is_free`; without the cost of steps."""
        messages = self.read(topic, bodies, now_us=now_us, author=author)
        return self.publications.put_slice(topic, messages, now_us, topic.expiry_us(None, now_us))

    def read(
        self,
        topic: SourceTopic,
        bodies: Sequence[bytes],
        keys: Sequence[str] | None = None,
        *,
        now_us: int,
        author: str = "",
    ) -> CheckedMessages:
        """Check bodies that `author` sends at `now_us`; changes nothing, raises as `publish`."""
        self.capacity.check_sizes(bodies)
        if topic.chain is not None:
            keys = topic.chain.keys(bodies, keys)
        times = self.arrivals(topic, len(bodies), now_us) if topic.records.is_timed else None
        messages = topic.records.read(bodies, keys, times)
        if topic.definition.preprocessing:
            self.capacity.check_sizes(messages.bodies)
        return messages if topic.records.events is None else messages._replace(author=author)

    def arrivals(self, topic: LiveTopic, count: int, now_us: int) -> range | None:
        """Arrival times of `count` messages of a topic, where fields are computed from them."""
        return self.sequencer.arrivals(count, now_us) if topic.records.is_timed else None

    def finished(
        self,
        topic: SourceTopic,
        messages: CheckedMessages,
        now_us: int,
        delta: bool,
        fitted: bool = False,
    ) -> CheckedMessages:
        """The records that result from these messages, as in `SourceTopic.finished`; changes only
        records that were being removed already."""
        self.removals.make_way(topic, messages.identities, now_us)
        return topic.finished(messages, delta, fitted=fitted, now_us=now_us)

    def put(
        self,
        topic: SourceTopic,
        messages: CheckedMessages,
        now_us: int,
        expires_us: int = 0,
        keeps: bool = False,
    ) -> int:
        """Store checked messages and route them; returns the bookmark of the last one.

        `expires_us` is the time at which they expire, as `SourceTopic.expiry_us` returns it; 0:
        never. Existing records keep theirs if it `keeps`.
        """
        now_us = self.sequencer.moment(now_us)
        if topic.name not in self.catalog.topics:
            self.enter(topic)
        if self.removals.running:
            self.removals.make_way(topic, messages.identities, now_us)
        batch = topic.put(messages, now_us, expires_us, keeps)
        bookmark = self.sequencer.seq
        self.pass_on(topic, batch)
        if topic.queues:
            topic.enqueue(messages.identities, messages.bodies, batch.changes.seqs, now_us)
        return bookmark

    def enter(self, topic: SourceTopic) -> None:
        """Add a new topic of `publishable`, and schedule all that come into being with it."""
        for new in self.catalog.enter(topic):
            self.attach_topic(new)

    def pass_on(self, topic: SourceTopic, batch: Batch) -> None:
        """Records have changed: update the timer of the topic, and route the change."""
        if topic.falls_due:
            self.timers.note(topic)
        self.route(topic, batch)

    def removal(
        self, name: str, slots: Slots, now_us: int, counted: Callable[[int], object] | None = None
    ) -> Task[int]:
        """Remove the records in `slots` of the topic `name`, some in each step; returns how many it
        removed, and calls `counted` in the step that removes the last.

        Slots are those of a query, valid until the next change; empty ones are skipped.
        `sow.engine.bulk_delete` describes concurrent changes. Raises UnknownTopic, InvalidTopic for
        a copy, DiskFull, and the error of the disk while it fails.
        """
        topic = self.catalog.deletable(name)
        steps = self.removals.begin(topic, slots, self.seq, now_us, counted)
        return (yield from self.requests.together(self.atomic.exclusive(name, steps)))

    def remove(self, topic: SourceTopic, identities: Sequence[str], op: Op, now_us: int) -> int:
        """Remove the existing records of these identities; returns how many there were.

        `op` is the reason: ``delete`` or ``expire``. The caller has checked the room on the disk.
        """
        batch = topic.remove(identities, op, self.sequencer.moment(now_us))
        if batch is None:
            return 0
        self.pass_on(topic, batch)
        return len(batch)

    @contextmanager
    def noting(self) -> Iterator[dict[LiveTopic, None]]:
        """A set of each topic that is changed, added or removed; the caller empties it."""
        noted: dict[LiveTopic, None] = {}
        self._noting += (noted,)
        try:
            yield noted
        finally:
            self._noting = tuple(one for one in self._noting if one is not noted)

    @contextmanager
    def on_changes(self, listener: ChangesListener) -> Iterator[None]:
        """Call `listener` with the identities of records that are changed, added or removed."""
        self._change_listeners += (listener,)
        try:
            yield
        finally:
            kept = (one for one in self._change_listeners if one is not listener)
            self._change_listeners = tuple(kept)

    def note_change(self, topic: LiveTopic) -> None:
        """A topic is changed, added or removed."""
        for noted in self._noting:
            noted[topic] = None

    def route(self, topic: LiveTopic, batch: Batch) -> None:
        """Route changes to the subscribers of a topic, and schedule those that have work."""
        self.catalog.untidy[topic] = None
        request = None  # what views release, or a commit stores, is of none
        if isinstance(topic, SourceTopic):
            self.sequencer.note(topic.name, batch)
            request = self.requests.current
        if self._noting:
            self.note_change(topic)
        for notify in self._change_listeners:
            notify(topic.records, batch.changes.identities)
        passed_seq = None
        if not topic.records.is_changing:
            if request is None:
                passed_seq = self.sequencer.seq
            else:
                request.topics[topic.name] = topic
        feeds, woken = topic.route(batch, self.sequencer.now_us, self.output.late, passed_seq)
        for feed in feeds:
            self.output.waiting[feed.channel] = None
            self.timers.expect(feed.channel)
        for listener in woken:
            self.timers.note(listener)
        if self._watches:
            for watch in self._watches.get(topic.name, ()):
                watch(batch)

    # Time.

    def advance(self, now_us: int) -> None:
        """Run what is due by `now_us`, in one step; see `fall_due`."""
        run_to_completion(self.fall_due(now_us))

    def fall_due(self, now_us: int) -> Task[None]:
        """Run what is due by `now_us`: records expire, conflated updates are released.

        Each topic and each subscription does a bounded part; the rest is due again.
        """
        now_us = self.sequencer.moment(now_us)
        if self.views.is_dirty:
            self.views.release()  # a turn ends before time passes
        for _ in self.timers.run(now_us):
            if self.views.is_dirty and self.timers.turn_us < (self.timers.due_us() or 0) <= now_us:
                self.views.release()  # a late server ends each turn, too
            yield

    def _go_on_after(self, topic: LiveTopic, channels: list[Channel]) -> None:
        """An atomic change is over: release its channels and timers."""
        self.output.let_others(topic.records, channels)
        for name in self.catalog.with_copies(topic) if topic.name in self.topics else ():
            self._note_timer(self.topics[name])
        self.notify_work()

    def _caught_up(self, records: Records) -> None:
        """The followers of a topic are not late any more: what has waited for that goes on."""
        topic = self.topics.get(records.name)
        if topic is not None and topic.records is records:
            self._note_timer(topic)
        self.notify_work()

    def _note_timer(self, topic: LiveTopic) -> None:
        self.timers.note(topic.copy if isinstance(topic, CopyTopic) else topic)

    def _route_all(self, topic: LiveTopic, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self.route(topic, batch)

    def route_released(self, copy: ConflatedCopy, batches: Iterable[Batch]) -> None:
        """Route what a copy has released, under each of its names."""
        has_stopped = bool(copy.stopped)
        for batch in batches:
            self.route(self.topics[batch.changes.topic], batch)
        if has_stopped and not copy.is_clearing:
            self._notify_stopped(copy.stopped)

    def adopt(self, configuration: Configuration) -> None:
        """Continue with a configuration whose topics exist already."""
        self.configuration = configuration
        self.catalog.adopt(configuration)

    # Groups.

    @property
    def seq(self) -> int:
        """The bookmark of the newest change."""
        return self.sequencer.seq

    @property
    def now_us(self) -> int:
        """The newest known time; no change gets an earlier one."""
        return self.sequencer.now_us

    @property
    def has_work(self) -> bool:
        """A flush would hand something over."""
        return self.output.has_work or self.views.has_work

    @property
    def is_flushed(self) -> bool:
        """Nothing has changed since the last flush."""
        return self.output.is_empty and not self.views.is_dirty

    def flush(self) -> Group:
        """Flush all channels, seal the sessions, close the open group and return it.

        Entries of groups have to be stored in the order of their numbers; then call `release`.
        """
        if self.views.is_dirty:
            self.views.release()
        return self.output.flush()

    def check(self) -> None:
        """Assert the invariants of an engine and its parts; reads all records."""
        for part in (
            self.sequencer, self.timers, self.removals, self.atomic, self.catalog,
            self.publications, self.views, self.output,
        ):  # fmt: skip
            part.check()

    # Restart.

    def restore(
        self,
        checkpoints: Mapping[str, StoredRecords],
        log: Iterable[LogEntry],
        last_seq: int,
        past: Past | None = None,
        progress: Progress | None = None,
        before: Catalog | None = None,
    ) -> Task[list[OrphanedRecords]]:
        """Rebuild all records: each topic's checkpoint, then the log after it, then the copies.

        `checkpoints` has one for each definition in `past`, by default for each persistent topic;
        `log` holds at least every entry after the oldest of them, up to `last_seq`. `progress` is
        updated. The windows of copies in `before` go on. Until the last step the engine must not be
        used. Returns orphaned records: an engine that continues while any exist would hide them.
        """
        known, past = set(self.topics), past or past_of(self.configuration)
        stored = checkpoints, log, last_seq, progress or Progress()
        steps = restore(self.catalog, self.sequencer, past, *stored, before, self.part)
        orphaned = yield from steps
        for name, topic in self.topics.items():
            self._note_timer(topic) if name in known else self.attach_topic(topic)
        return orphaned

    def restore_accounts(self, accounts: Iterable[LogEntry] | None) -> None:
        """Restore the system topics from the journal's account entries; after `restore`.

        None: the journal has none, and what `restore` has found is written there.
        """
        for topic in restore_accounts(self.catalog, self.sequencer, accounts):
            self.timers.note(topic)
        self.columns.restore()

    def _note_columns(self, bodies: list[bytes]) -> None:
        """Write documents to the system topic of known columns."""
        account = self.catalog.account(KNOWN_COLUMNS)
        self.put(account, account.records.read(bodies), self.now_us)
