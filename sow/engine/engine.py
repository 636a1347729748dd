"""The engine: topics, their records, and what follows from a change of one.

    publish / delete ──> log entry ──> table ──> router ──> feeds, conflated copies
    advance(now) ──────> expirations, conflated releases ──> the same router
    flush() ───────────> a *group*: log entries to make durable, sessions to write to

The engine does no I/O and reads no clock. Changes take effect at once, but nothing that was said
because of them may leave before its group is durable: what a client has seen is never lost.
Whoever drives the engine stores each group's entries in order, then calls `release`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from conflated_topics import Removal
from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import KNOWN_COLUMNS, Configuration
from sow.engine.atomic_change import AtomicBatch
from sow.engine.bulk_delete import BulkDelete
from sow.engine.bulk_publish import BulkPublish, is_one_slice, reading
from sow.engine.capacity import Capacity
from sow.engine.catalog import Catalog
from sow.engine.column_type_tracking import ColumnTypeTracker
from sow.engine.disk_reserve import DiskReserve
from sow.engine.filter_cache import FilterCache
from sow.engine.progress import Progress
from sow.engine.queries import Queries
from sow.engine.recovery.orphaned_records import OrphanedRecords
from sow.engine.recovery.recovery import restore, restore_accounts
from sow.engine.request_boundaries import RequestBoundaries
from sow.engine.running_topics import CopyTopic, LiveTopic, SourceTopic, ViewTopic
from sow.engine.timers import Timers
from sow.engine.view_gc import ViewGc
from sow.engine.views import Views
from sow.engine.wal import CommitSequencer, Group
from sow.errors import Stopped, StoreError, TooLarge
from sow.expressions import Filter, Trait
from sow.store.columns import Slots
from sow.store.protocols import Checkpoint, LogEntry, Op
from sow.store.stored_definitions import Past, past_of
from sow.streaming.channel import Channel
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.conflation_budget import ConflationBudget
from sow.streaming.sessions import Session
from sow.streaming.windows.window_channel import WindowChannel
from sow.topic.batch import Batch
from sow.topic.conflated_topic import ConflatedCopy, CopyUpdate
from sow.topic.records import CheckedMessages, Records
from sow.topic.views.view import MaterializedView

ChangesListener = Callable[[Records, Sequence[str]], None]


class Engine:
    """All topics of one configuration, their records, and who follows them.

    `has_room` says whether the disk takes so many bytes of messages more, 0 for some, and `takes`
    whether it takes so many out of the reserve that is kept for removals; both are asked often and
    have to be cheap.

    Times are microseconds since 1970 UTC. Where a caller's time goes back, the engine's does not:
    it goes on from the newest one that it knows. To be used by one thread, but for
    `filters.compiled`.
    """

    def __init__(
        self,
        configuration: Configuration,
        has_room: Callable[[int], bool] = lambda _size_bytes: True,
        takes: Callable[[int], bool] | None = None,
        lost: Callable[[], StoreError | None] = lambda: None,
    ) -> None:
        self.configuration = configuration
        self.timers = Timers()
        self.ledger = CommitSequencer()
        self.disk = DiskReserve(self.ledger, has_room, takes or has_room, lost)
        self._work_listeners: list[Callable[[], None]] = []
        self._stop_listeners: list[Callable[[str], None]] = []
        self._waiting: dict[Channel, None] = {}
        self._untidy: dict[LiveTopic, None] = {}
        self._noting: tuple[dict[LiveTopic, None], ...] = ()
        self._change_listeners: tuple[ChangesListener, ...] = ()
        known = {Trait.AMPS_INSTANCE_NAME: configuration.name}
        self.filters = FilterCache(lambda: self.configuration.limits, known)
        self.views = Views(
            self._view,
            self.route,
            lambda names: self.requests.holds_until_us(names),
            lambda names: not self.atomic.concerns(names),
            lambda: self.ledger.now_us,
            self.forget_kept,
        )
        self.catalog = Catalog(configuration, self.filter, self.ledger, self.views.wake)
        self.capacity = Capacity(self.catalog)
        self.atomic = AtomicBatch(lambda: self.seq, self._go_on_after)
        self.queries = Queries(self.topic, self.topics, self.ledger, self.atomic)
        self.requests = RequestBoundaries(lambda: self.now_us, self._release_held)
        self.timers.add(self.requests, lambda requests, _now_us: requests.release())
        self.conflation_budget: ConflationBudget[Session] = ConflationBudget()
        self.removals = BulkDelete(
            self.disk,
            lambda topic, identities, now_us: self.remove(topic, identities, "delete", now_us),
            lambda topic: self.topics.get(topic.name) is topic,
            self.conflation_budget.work_off,
        )
        self.publications = BulkPublish(
            self.publishable,
            self.finished,
            self.put,
            self.check_sizes,
            self.capacity,
            self.disk,
            self.atomic.finish_before,
            self.requests.together,
            self.conflation_budget.work_off,
        )
        # Of the reserve there has to stay what it takes to delete everything.
        self.columns = ColumnTypeTracker(
            self.catalog,
            self._note_columns,
            lambda size: self.disk.spares(size + self.catalog.usage.named_bytes),
        )
        self._act, self._act_of_copy = self._work, self.release_copy
        """One for all topics, of which a pattern may have a hundred thousand."""
        for topic in self.catalog:
            self.attach_topic(topic)
        self.timers.add(self.views, self._release_views)
        self.view_gc = ViewGc()
        """What views kept that have gone or stopped."""
        self.timers.add(self.view_gc, lambda view_gc, _now_us: view_gc.go_on())

    # Who wants to know.

    def on_work(self, listener: Callable[[], None]) -> None:
        """Have `listener` called when there is something to flush that no command or due time has
        caused."""
        self._work_listeners.append(listener)

    def on_stopped(self, listener: Callable[[str], None]) -> None:
        """Have `listener` told of each view and conflated topic that has stopped, in a sentence."""
        self.views.on_stopped(listener)
        self._stop_listeners.append(listener)

    def notify_work(self) -> None:
        """Something has to be flushed, and whoever flushes cannot know of it."""
        for listener in self._work_listeners:
            listener()

    # Topics.

    @property
    def topics(self) -> dict[str, LiveTopic]:
        """All topics by name, those of patterns and their copies too. Only to be looked at."""
        return self.catalog.topics

    def topic(self, name: str) -> LiveTopic:
        """The topic of the exact name `name`; raises UnknownTopic, which names the nearest one, and
        Stopped for a view or a conflated topic that has, or that is made of one."""
        topic = self.catalog.topic(name)
        reason = self.catalog.why_stopped(topic)
        if reason:
            raise Stopped(reason)
        return topic

    def attach_topic(self, topic: LiveTopic) -> None:
        """A topic has come into being: do what falls due there."""
        self._note(topic)
        self.columns.meet(topic.records)
        if isinstance(topic, CopyTopic):
            if topic.copy.copy is topic.records:
                self.timers.add(topic.copy, self._act_of_copy)
        elif topic.falls_due:
            self.timers.add(topic, self._act)

    def attach_parted(self, topic: CopyTopic, before: ConflatedCopy) -> None:
        """A conflated topic has its copy to itself, which was one with `before`."""
        self.timers.add(topic.copy, self._act_of_copy, beside=before)

    def detach_topic(self, topic: LiveTopic) -> None:
        """A topic is about to go: do nothing more there."""
        self._note(topic)
        if not isinstance(topic, CopyTopic):
            self.timers.remove(topic)
        elif not topic.is_shared:
            self.timers.remove(topic.copy)
        self._untidy.pop(topic, None)

    def _view(self, name: str) -> ViewTopic:
        topic = self.topics[name]
        assert isinstance(topic, ViewTopic)
        return topic

    def _release_views(self, views: Views, _now_us: int) -> None:
        """Have views say what has changed in them, or some of it."""
        views.release()
        self.timers.note(views)

    def publishable(self, name: str) -> SourceTopic:
        """The topic to publish to under `name`; one of a Pattern may come into being by it.

        Raises UnknownTopic; InvalidTopic for a copy (docs/semantics.md, Rule 4), or for a name that
        belongs to one; TooLarge where a Pattern has as many topics as it may; DiskFull, and what
        the disk said while it fails.
        """
        topic = self.catalog.publishable(name)
        self.disk.check()
        return topic

    def filter(self, text: str) -> Filter:
        """The filter that `text` says; the same text is compiled once (`Filters.get`)."""
        return self.filters.get(text)

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
                keeps = delta and expires_s is None
                return self.publications.put_slice(
                    topic, read[0], now_us, expires_us, delta, keeps=keeps
                )
        else:
            read = run_to_completion(
                reading(bodies, lambda part: self.read(topic, part, now_us=now_us))
            )
        return run_to_completion(
            self.publications.carry_out(name, read, now_us, expires_s=expires_s, delta=delta)
        )

    def is_free(self, name: str) -> bool:
        """Nobody has to be waited for before something is stored there: nothing is left of other
        publishes, no atomic change concerns the topic, and nobody is in arrears with what he
        was told."""
        waits = self.publications.has_left or self.conflation_budget.exist
        return not waits and not self.atomic.concerns((name,))

    def publish_slice(self, topic: SourceTopic, bodies: Sequence[bytes], now_us: int) -> int:
        """`publish` of no more bodies than a step takes, to what `publishable` has just given,
        while it `is_free`; without the cost of steps."""
        messages = self.read(topic, bodies, now_us=now_us)
        return self.publications.put_slice(topic, messages, now_us, topic.expiry_us(None, now_us))

    def read(
        self,
        topic: SourceTopic,
        bodies: Sequence[bytes],
        keys: Sequence[str] | None = None,
        *,
        now_us: int,
    ) -> CheckedMessages:
        """Check bodies for `publications.carry_out` that come at `now_us`, with their `keys` where
        they have none in them; changes nothing. Raises what `publish` does of them."""
        self.check_sizes(bodies)
        messages = topic.records.read(bodies, keys, self.arrivals(topic, len(bodies), now_us))
        if topic.definition.preprocessing:
            self.check_sizes(messages.bodies)
        return messages

    def arrivals(self, topic: LiveTopic, count: int, now_us: int) -> range | None:
        """The times at which so many messages of a topic come, where fields are made of them."""
        return self.ledger.arrivals(count, now_us) if topic.records.is_timed else None

    def finished(
        self,
        topic: SourceTopic,
        messages: CheckedMessages,
        now_us: int,
        delta: bool,
        fitted: bool = False,
    ) -> CheckedMessages:
        """What records become of these messages, as `SourceTopic.finished` says; only what was
        being removed already is changed."""
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
        """Store messages that were found good, and tell; returns the bookmark of the last one.

        `expires_us` is the time at which they expire, as `SourceTopic.expiry_us` says; 0: never.
        Records that are there keep theirs if it `keeps`.
        """
        now_us = self.ledger.moment(now_us)
        self.enter(topic)
        self.removals.make_way(topic, messages.identities, now_us)
        self.pass_on(topic, topic.put(messages, now_us, expires_us, keeps))
        return self.ledger.seq

    def enter(self, topic: SourceTopic) -> None:
        """Let a topic of `publishable` be there, if it is not, and look after what comes of it."""
        for new in self.catalog.enter(topic):
            self.attach_topic(new)

    def pass_on(self, topic: SourceTopic, batch: Batch) -> None:
        """Records were stored: something may fall due earlier, and who follows them is told."""
        if topic.falls_due:
            self.timers.note(topic)
        self.route(topic, batch)

    @property
    def frame_bytes_max(self) -> int:
        """`Limits/FrameSize`: what one request may hold."""
        return self.configuration.limits.frame_bytes_max

    def check_sizes(self, bodies: Sequence[bytes]) -> None:
        """Raise TooLarge if one of `bodies` is over `Limits/MessageSize`."""
        largest, limit = max(map(len, bodies), default=0), self.configuration.limits
        if largest > limit.message_bytes_max:
            raise TooLarge(
                f"a message of {largest} bytes is over the limit of "
                f"{limit.message_bytes_max} bytes (Limits/MessageSize)"
            )

    def removal(self, name: str, slots: Slots, now_us: int) -> Task[int]:
        """Remove the records in `slots` of the topic `name`, some in each step; returns how many
        there were.

        Slots are as `query` gives them, and to be given before anything changes; empty ones are
        passed over. What becomes of others' changes meanwhile says `sow.engine.bulk_delete`. Raises
        UnknownTopic, InvalidTopic for a copy, DiskFull, and what the disk said while it fails.
        """
        topic = self.catalog.deletable(name)
        steps = self.removals.begin(topic, slots, self.seq, now_us)
        return (yield from self.requests.together(self.atomic.exclusive(name, steps)))

    def remove(self, topic: SourceTopic, identities: Sequence[str], op: Op, now_us: int) -> int:
        """Remove the records of these identities that are there; returns how many there were.

        `op` says why: ``delete`` or ``expire``. Whether the disk has room was asked before.
        """
        batch = topic.remove(identities, op, self.ledger.moment(now_us))
        if batch is None:
            return 0
        self.route(topic, batch)
        return len(batch)

    @contextmanager
    def noting(self) -> Iterator[dict[LiveTopic, None]]:
        """What is put here, for whoever takes it out: each topic that has changed, come or gone."""
        noted: dict[LiveTopic, None] = {}
        self._noting += (noted,)
        try:
            yield noted
        finally:
            self._noting = tuple(one for one in self._noting if one is not noted)

    @contextmanager
    def on_changes(self, listener: ChangesListener) -> Iterator[None]:
        """Have `listener` called with the names of records that have changed, come or gone."""
        self._change_listeners += (listener,)
        try:
            yield
        finally:
            self._change_listeners = tuple(
                one for one in self._change_listeners if one is not listener
            )

    def _note(self, topic: LiveTopic) -> None:
        for noted in self._noting:
            noted[topic] = None

    def route(self, topic: LiveTopic, batch: Batch) -> None:
        """Tell who follows a topic of changes, and look after whoever is due because of it."""
        self._untidy[topic] = None
        if isinstance(topic, SourceTopic):
            self.ledger.note(topic.name, batch)
        if self._noting:
            self._note(topic)
        for notify in self._change_listeners:
            notify(topic.records, batch.changes.identities)
        if self.requests.current is not None:
            self.requests.current.topics.add(topic.name)
        feeds, woken = topic.route(batch, self.ledger.now_us)
        for feed in feeds:
            self._waiting[feed.channel] = None
            self.timers.expect(feed.channel)
        for listener in woken:
            self.timers.note(listener)

    # Time.

    def due_us(self) -> int | None:
        """The time at which `advance` next has something to do; None: nothing waits."""
        return self.timers.due_us()

    def reach(self, now_us: int) -> None:
        """Know that it is `now_us`; what is due by then is carried out by `advance`."""
        self.ledger.moment(now_us)

    def advance(self, now_us: int) -> None:
        """Carry out what is due by `now_us`, in one step; see `fall_due`."""
        run_to_completion(self.fall_due(now_us))

    def fall_due(self, now_us: int) -> Task[None]:
        """Carry out what is due by `now_us`: records expire, conflated updates are released.

        Each topic and each subscription does a bounded part of it; what is left is due again.
        """
        yield from self.timers.run(self.ledger.moment(now_us))

    def _go_on_after(self, topic: LiveTopic, channels: list[Channel]) -> None:
        """An atomic change is over: what has fallen due meanwhile is due."""
        for channel in channels:
            channel.release_others(self.now_us)
            self._waiting[channel] = None
            self.timers.expect(channel)
        for name in self.catalog.with_copies(topic) if topic.name in self.topics else ():
            changed = self.topics[name]
            self.timers.note(changed.copy if isinstance(changed, CopyTopic) else changed)
        self.notify_work()

    def _work(self, topic: SourceTopic, now_us: int) -> None:
        """Have a topic do what is due there."""
        for batch in topic.work(now_us):
            self.route(topic, batch)

    def release_copy(self, copy: ConflatedCopy, now_us: int) -> None:
        """Have a copy release what is due, under each of its names."""
        batches, has_stopped = copy.release(now_us), bool(copy.stopped)
        for batch in batches:
            self.route(self.topics[batch.changes.topic], batch)
        if has_stopped and not copy.is_clearing:
            for listener in self._stop_listeners:
                listener(copy.stopped)

    def update_copy(
        self,
        topic: CopyTopic,
        updates: Sequence[tuple[str, CopyUpdate]],
        removals: Sequence[Removal[str, CopyUpdate]],
    ) -> None:
        """Change the conflated topic `topic` as the engine that conflates it says.

        `updates` are identities with their new states, `removals` what leaves and why, each as of
        the change of the underlying topic that it stands for: one that is older than what the copy
        holds is passed over.
        """
        for batch in topic.accept(updates, removals):
            self.route(topic, batch)

    def release_channel(self, channel: ConflatedChannel, now_us: int) -> None:
        """Let a conflated subscription have what is due at `now_us`, or some of it."""
        channel.release(now_us)
        self.flush_channel(channel)

    def release_window(self, channel: WindowChannel, now_us: int) -> None:
        """Let a live window go on with what is due at `now_us`; once its topic is in order again,
        all who wait for that are told."""
        try:
            for other in channel.go_on(now_us):
                self._waiting[other] = None
        except Exception as error:
            channel.fail(error)
        if not self._is_held(channel):
            self.flush_channel(channel)

    def _is_held(self, channel: Channel) -> bool:
        """Whether a strand waits for the end of a request, and is flushed then."""
        if not (isinstance(channel, WindowChannel) and self.requests.holds(channel)):
            return False
        self.timers.note(self.requests)
        return True

    def _release_held(self, channels: Iterable[WindowChannel]) -> None:
        """What live windows waited for has ended."""
        self._waiting.update(dict.fromkeys(channels))
        self.notify_work()

    def schedule_flush(self, channel: Channel) -> None:
        """Flush a strand with the open group if it has something to hand out."""
        if self._is_held(channel):
            return
        self._waiting[channel] = None
        self.timers.note(channel)
        self.notify_work()

    # Live changes of the configuration (`sow.engine.topic_changes`).

    def adopt(self, configuration: Configuration) -> None:
        """Go on under a configuration whose topics are there already."""
        self.configuration = configuration
        self.catalog.adopt(configuration)

    def forget_kept(self, view: MaterializedView) -> None:
        """A view has gone, or hears of nothing any more: let what it keeps go as it falls due."""
        self.view_gc.add(view.kept())
        self.timers.note(self.view_gc)
        self.notify_work()

    # Indexes.

    def refresh_indexes(self, notes: int) -> bool:
        """Bring indexes up to date, by about `notes` changes noted; True when there is more."""
        while self._untidy:
            topic = next(iter(self._untidy))
            notes -= topic.records.indexes.refresh(notes)
            if notes <= 0:
                return True
            del self._untidy[topic]
        return False

    # Groups.

    @property
    def seq(self) -> int:
        """The bookmark of the newest change."""
        return self.ledger.seq

    @property
    def now_us(self) -> int:
        """The newest time that is known; nothing happens before it any more."""
        return self.ledger.now_us

    @property
    def group(self) -> int:
        """The number of the group that is being filled."""
        return self.ledger.open.number

    def touch(self, session: Session) -> None:
        """Have `session` handed over with the open group: it has something to write."""
        self.ledger.open.sessions[session] = None

    @property
    def has_entries(self) -> bool:
        """The open group has something to store."""
        return bool(self.ledger.open.entries)

    @property
    def has_work(self) -> bool:
        """A flush would hand something over."""
        group = self.ledger.open
        handed = self._waiting or group.entries or group.sessions
        return bool(handed) or self.views.has_work

    def flush_channel(self, channel: Channel) -> None:
        """Hand out what `strand` has gathered; to be done whenever its members change."""
        if channel.waiting:
            group = self.ledger.open
            try:
                channel.flush(group.number, self.ledger.now_us)
            except Exception as error:
                channel.fail(error)
            group.sessions.update(channel.members)
            # One that follows its client's pace may have been asked for more than a step gives.
            self.timers.note(channel)

    def flush(self) -> Group:
        """Close the open group and hand it over, its strands handed out and its sessions sealed.

        Entries of groups have to be stored in the order of their numbers; then `release` is called.
        """
        if self.views.is_dirty:
            self._release_views(self.views, self.now_us)
        for channel in self._waiting:
            if not self._is_held(channel):
                self.flush_channel(channel)
        self._waiting.clear()
        group, now_us = self.ledger.open, self.ledger.now_us
        for session in group.sessions:
            session.seal(group.number, now_us)
        return self.ledger.close()

    def release(self, group: Group) -> None:
        """Know that `group` is durable, the next after the last one: what it says may leave."""
        self.ledger.release(group)

    def in_flight(self) -> Iterator[LogEntry]:
        """Log entries that are not known to be durable yet, in order; no accounts."""
        return self.ledger.in_flight()

    def check(self) -> None:
        """Assert what is always true of an engine and its parts, between two steps; reads all
        records."""
        self.ledger.check()
        self.timers.check()
        self.removals.check()
        self.atomic.check()
        self.catalog.check()
        self.publications.check()
        self.views.check()
        self.requests.check()

    # Restart.

    def restore(
        self,
        checkpoints: Mapping[str, Checkpoint],
        log: Iterable[LogEntry],
        last_seq: int,
        past: Past | None = None,
        progress: Progress | None = None,
    ) -> Task[list[OrphanedRecords]]:
        """Rebuild all records: each topic's checkpoint, then the log after it, then the copies.

        `checkpoints` has one for each definition in `past`, by default for each persistent topic;
        `log` holds at least every entry after the oldest of them, up to `last_seq`. `progress` is
        told how far it is. Until the last step the engine holds a part of its records, and nothing
        may be asked of it. Returns what the configuration has no place for: while any of it holds
        records, an engine that goes on would hide them. Afterwards `now_us` is the newest time that
        is known, before which nothing may happen any more.
        """
        known = set(self.topics)
        past = past or past_of(self.configuration)
        orphaned = yield from restore(
            self.catalog, self.ledger, past, checkpoints, log, last_seq, progress or Progress()
        )
        for name, topic in self.topics.items():
            if name in known:
                self.timers.note(topic.copy if isinstance(topic, CopyTopic) else topic)
            else:
                self.attach_topic(topic)
        return orphaned

    def restore_accounts(self, accounts: Iterable[LogEntry] | None) -> None:
        """Let the server's own topics hold what the journal keeps as accounts; after `restore`.

        None: the journal keeps none, and what `restore` has found is written there.
        """
        for topic in restore_accounts(self.catalog, self.ledger, accounts):
            self.timers.note(topic)
        self.columns.restore()

    def _note_columns(self, bodies: list[bytes]) -> None:
        """Put documents into the account of known columns."""
        account = self.catalog.account(KNOWN_COLUMNS)
        self.put(account, account.records.read(bodies), self.now_us)
