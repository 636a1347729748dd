"""The engine: topics, their records, and what follows from a change of one.

    publish / delete ──> log entry ──> table ──> router ──> feeds, conflated copies
    advance(now) ──────> expirations, conflated releases ──> the same router
    flush() ───────────> a *group*: log entries to make durable, sessions to write to

The engine does no I/O and reads no clock. Changes take effect at once, but nothing that was said
because of them may leave before its group is durable: what a client has seen is never lost.
Whoever drives the engine stores each group's entries in order, then calls `release`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from conflated_topics import Removal
from sow.definitions import Configuration, ConflatedTopic, Topic
from sow.delivery.conflated_strands import ConflatedStrand
from sow.delivery.sessions import Session
from sow.delivery.strands import Strand
from sow.engine.capacity import Capacity, Deed
from sow.engine.catalog import Catalog, LiveTopic
from sow.engine.restoration import Homeless, Restoration, past_of
from sow.engine.timers import Timers
from sow.errors import ClientError, DiskFull, StoreError, TooLarge
from sow.expressions import Filter, TextCache, compile_filter
from sow.query import Query, QueryAnswer, execute
from sow.store.protocols import Checkpoint, LogEntry, Op
from sow.store.stored_definitions import Past
from sow.topic.batch import Batch
from sow.topic.conflated_copy import CopyUpdate
from sow.topic.records import CheckedMessages

FILTERS_KEPT_CHARS = 512 * 1024
"""Text of the filters that are kept compiled, which takes up to a hundred times as much: some
thousands of usual ones, or eight of the longest."""


@dataclass(slots=True)
class Group:
    """What one flush hands over: store `entries`, then write to `sessions`, in this order."""

    number: int
    entries: list[LogEntry] = field(default_factory=list)
    sessions: dict[Session, None] = field(default_factory=dict)


class Engine:
    """All topics of one configuration.

    `has_room` says whether the disk takes more, `takes` whether it takes so many bytes more out of
    the reserve that is kept for removals.
    """

    def __init__(
        self,
        configuration: Configuration,
        has_room: Callable[[], bool] = lambda: True,
        takes: Callable[[int], bool] | None = None,
    ) -> None:
        self.configuration = configuration
        self.seq = 0
        self.now_us = 0
        self.released = 0
        self.timers = Timers()
        self._topic_listeners: list[Callable[[LiveTopic], None]] = []
        self._work_listeners: list[Callable[[], None]] = []
        self.failure: StoreError | None = None
        """What the disk said when it refused a write, until it takes one: till then all messages
        are refused with it, deletes too."""
        self._has_room = has_room
        self._takes = takes or (lambda _size_bytes: has_room())
        self._group = Group(1)
        self._in_flight: deque[Group] = deque()
        self._waiting: dict[Strand, None] = {}
        self._untidy: dict[LiveTopic, None] = {}
        self._filters: TextCache[str, Filter | ClientError] = TextCache(FILTERS_KEPT_CHARS)
        self.catalog = Catalog(configuration, self.filter, self._enter)
        self.capacity = Capacity(self.catalog)

    # Who wants to know.

    def hear_of_topics(self, listener: Callable[[LiveTopic], None]) -> None:
        """Have `listener` called with each topic that comes into being from now on."""
        self._topic_listeners.append(listener)

    def hear_of_work(self, listener: Callable[[], None]) -> None:
        """Have `listener` called when there is something to flush that no command or due time has
        caused."""
        self._work_listeners.append(listener)

    def tell_of_work(self) -> None:
        """Something has to be flushed, and whoever flushes cannot know of it."""
        for listener in self._work_listeners:
            listener()

    # Topics.

    @property
    def topics(self) -> dict[str, LiveTopic]:
        """All topics by name."""
        return self.catalog.topics

    def topic(self, name: str) -> LiveTopic:
        """A topic by its exact name; raises UnknownTopic with the nearest one."""
        return self.catalog.topic(name)

    def _enter(self, topic: LiveTopic) -> None:
        """Look after a topic that has just come into being."""
        if topic.expirations is not None:
            self.timers.add(topic.expirations, partial(self._expire, topic))
        if topic.copy is not None:
            self.timers.add(topic.copy, partial(self._release_copy, topic))
        for listener in self._topic_listeners:
            listener(topic)

    def publishable(self, name: str) -> LiveTopic:
        """The topic to publish to, which may not be there yet; raises ClientError, StoreError."""
        topic = self.catalog.publishable(name)
        self.check_room()
        return topic

    def check_room(self) -> None:
        """Raise DiskFull if the disk takes no more messages, or what it says while it fails."""
        if self.failure is not None:
            self._check_failure()
        if not self._has_room():
            raise DiskFull("the disk is full; nothing was stored, reads are still served")

    def check_reserve(self, size_bytes: Callable[[], int]) -> None:
        """Raise DiskFull if not even the reserve has room for so much; for what helps a full disk.

        Removals make room, and so do consumers that come forward. The size is asked for only when
        the disk is full.
        """
        self._check_failure()
        if self._has_room():
            return
        on_the_way = sum(entry.size_bytes() for entry in self.in_flight())
        if not self._takes(on_the_way + size_bytes()):
            raise DiskFull(
                "the disk is full, and so is its reserve: nothing was changed; free some space, "
                "or delete less at once"
            )

    def _check_failure(self) -> None:
        if self.failure is not None:
            # Raised many times: it would gather everybody's traceback.
            raise self.failure.with_traceback(None)

    def check_removal(self, names: Iterable[str]) -> None:
        """Raise DiskFull if records of these names cannot be removed any more."""
        self.check_reserve(lambda: sum(len(name.encode(errors="replace")) for name in names))

    def filter(self, text: str) -> Filter:
        """A compiled filter; the same text is compiled once. Raises BadFilter."""
        found = self._filters.get(text)
        if found is None:
            found = self.compiled(text)
            self.keep_filter(text, found)
        if isinstance(found, ClientError):
            raise found.with_traceback(None)
        return found

    def compiled(self, text: str) -> Filter | ClientError:
        """A filter made now, or what speaks against it; may run in a thread."""
        limits = self.configuration.limits
        try:
            return compile_filter(
                text, bytes_max=limits.filter_bytes_max, depth_max=limits.filter_depth_max
            )
        except ClientError as error:
            return error

    def keep_filter(self, text: str, found: Filter | ClientError) -> None:
        """Have at hand what `compiled` has made of a text."""
        self._filters.keep(text, found, len(text))

    def has_filter(self, text: str) -> bool:
        """Whether the filter need not be made any more."""
        return self._filters.get(text) is not None

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

        With `delta` each body is merged into its record. Returns the bookmark of the last one.
        """
        topic = self.publishable(name)
        self.check_sizes(bodies)
        messages = topic.records.read(bodies, None if key is None else (key,))
        return self._publish(topic, messages, now_us, expires_s, delta)

    def publish_read(
        self,
        name: str,
        messages: CheckedMessages,
        now_us: int,
        *,
        expires_s: float | None = None,
        delta: bool = False,
    ) -> int:
        """The same for messages that were read, and their sizes checked, before."""
        return self._publish(self.publishable(name), messages, now_us, expires_s, delta)

    def _publish(
        self,
        topic: LiveTopic,
        messages: CheckedMessages,
        now_us: int,
        expires_s: float | None,
        delta: bool,
    ) -> int:
        expires_us = self.expiry_us(topic, expires_s, now_us)
        if delta:
            messages = self.merge_deltas(topic, messages)
            self.check_sizes(messages.bodies)
        if self.capacity.bounds(topic):
            self.capacity.check(topic, [Deed(messages.names, list(map(len, messages.bodies)))])
        return self.put(topic, messages, now_us, expires_us)

    def merge_deltas(self, topic: LiveTopic, messages: CheckedMessages) -> CheckedMessages:
        """What the records become when deltas are merged into them."""
        if not topic.records.retains:
            return messages
        assert isinstance(topic.definition, Topic)
        nulls = topic.definition.delta_null
        merged = topic.records.merge_deltas(messages.names, messages.bodies, nulls)
        return CheckedMessages(merged, messages.names, {})

    def put(
        self, topic: LiveTopic, messages: CheckedMessages, now_us: int, expires_us: int = 0
    ) -> int:
        """Store messages that were found good; returns the bookmark of the last one."""
        now_us = self._moment(now_us)
        stored, names, columns = messages
        self.catalog.enter(topic)
        seqs = self._sequence(topic, len(stored))
        if self._is_stored(topic):
            known = names if topic.is_system or not topic.records.keys else None
            self._log("publish", topic, seqs, now_us, known, stored, expires_us)
        else:
            self._log("publish", topic, seqs, now_us, None, [b""] * len(stored), expires_us)
        stamps = [now_us] * len(stored)
        batch = topic.records.put(names, stored, columns, seqs, stamps, expires_us)
        if topic.expirations is not None:
            topic.expirations.add(names, expires_us)
            self.timers.note(topic.expirations)
        self._route(topic, batch)
        return self.seq

    def check_sizes(self, bodies: Sequence[bytes]) -> None:
        """Raise TooLarge if one is over the limit."""
        largest, limit = max(map(len, bodies), default=0), self.configuration.limits
        if largest > limit.message_bytes_max:
            raise TooLarge(
                f"a message of {largest} bytes is over the limit of "
                f"{limit.message_bytes_max} bytes (Limits/MessageSize)"
            )

    def expiry_us(self, topic: LiveTopic, expires_s: float | None, now_us: int) -> int:
        """When what is published now expires, 0 for never; raises ClientError."""
        assert isinstance(topic.definition, Topic)
        if expires_s is None:
            lifetime_us = topic.definition.expiration_us
            return now_us + lifetime_us if lifetime_us else 0
        if not topic.definition.expires:
            raise ClientError(
                f"topic {topic.definition.name} keeps records for ever; "
                "set its Expiration to enabled before giving messages a lifetime"
            )
        if not 0 < expires_s <= 1e9:
            raise ClientError(f"expiration is {expires_s}; it must be seconds, above 0 up to 1e9")
        return now_us + int(expires_s * 1e6)

    def _is_stored(self, topic: LiveTopic) -> bool:
        return getattr(topic.definition, "durability", "") == "persistent"

    def delete(self, name: str, slots: Iterable[int], now_us: int) -> int:
        """Remove the records in these slots of a topic; returns how many there were."""
        topic = self.catalog.deletable(name)
        table = topic.records.table
        names = [identity for slot in slots if (identity := table.identities[slot]) is not None]
        self.check_removal(names)
        return self.remove(topic, names, "delete", now_us)

    def remove(self, topic: LiveTopic, names: Sequence[str], op: Op, now_us: int) -> int:
        """Remove the records of these names that are there; returns how many there were."""
        now_us = self._moment(now_us)

        def stamp(count: int) -> tuple[Sequence[int], Sequence[int]]:
            seqs = self._sequence(topic, count)
            self._log(op, topic, seqs, now_us, names, (), 0)
            return seqs, [now_us] * count

        names = [identity for identity in dict.fromkeys(names) if identity in topic.records.table]
        batch = topic.records.drop(names, "expired" if op == "expire" else "deleted", stamp)
        if batch is not None:
            self._route(topic, batch)
        return len(names)

    def _moment(self, now_us: int) -> int:
        """When something happens: the times of the log never go back, whatever a clock does."""
        self.now_us = max(self.now_us, now_us)
        return self.now_us

    def _sequence(self, topic: LiveTopic, count: int) -> Sequence[int]:
        """Numbers for changes. The server's own accounts take none: they bear the last one."""
        if topic.is_system:
            return [self.seq] * count
        seqs = range(self.seq + 1, self.seq + 1 + count)
        self.seq += count
        return seqs

    def _log(
        self,
        op: Op,
        topic: LiveTopic,
        seqs: Sequence[int],
        now_us: int,
        names: Sequence[str] | None,
        bodies: Sequence[bytes],
        expires_us: int,
    ) -> None:
        name, own = topic.definition.name, topic.is_system
        first = seqs[0] if seqs else self.seq + 1
        entry = LogEntry(op, name, first, now_us, names, bodies, expires_us, own)
        self._group.entries.append(entry)

    def _route(self, topic: LiveTopic, batch: Batch) -> None:
        topic.updates += len(batch)
        self._untidy[topic] = None
        for feed in topic.router.route(batch, self.now_us):
            self._waiting[feed.strand] = None
            self.timers.expect(feed.strand)
        for listener in topic.router.listeners:
            # What waits in a conflator already is never due earlier than it was.
            self.timers.expect(listener)

    # Time.

    def due_us(self) -> int | None:
        """When `advance` next has something to do."""
        return self.timers.due_us()

    def reach(self, now_us: int) -> None:
        """It is so late now; what is due is carried out by `advance`."""
        self.now_us = max(self.now_us, now_us)

    def advance(self, now_us: int) -> None:
        """Carry out what is due: records expire, conflated updates are released."""
        self.timers.run(self._moment(now_us))

    def _expire(self, topic: LiveTopic, now_us: int) -> None:
        assert topic.expirations is not None
        expired = topic.expirations.take(now_us)
        if expired:
            self.remove(topic, expired, "expire", now_us)

    def _release_copy(self, topic: LiveTopic, now_us: int) -> None:
        assert topic.copy is not None
        for batch in topic.copy.release(now_us):
            self._route(topic, batch)

    def update_copy(
        self,
        topic: LiveTopic,
        updates: Sequence[tuple[str, CopyUpdate]],
        removals: Sequence[Removal[str, CopyUpdate]],
    ) -> None:
        """Change a conflated topic as the engine that conflates it says."""
        assert topic.copy is not None
        for batch in topic.copy.accept(updates, removals):
            self._route(topic, batch)

    def release_strand(self, strand: ConflatedStrand, now_us: int) -> None:
        """Let a conflated subscription have what is due."""
        strand.release(now_us)
        self._waiting[strand] = None

    def look_after(self, strand: Strand) -> None:
        """Flush a strand with the open group if it has something to hand out."""
        self._waiting[strand] = None
        self.timers.note(strand)
        self.tell_of_work()

    # Live changes of the configuration (`sow.engine.reconfiguration`).

    def adopt(self, configuration: Configuration) -> None:
        """Go on under a configuration whose topics are there already."""
        self.configuration = self.catalog.configuration = configuration

    def add_copies(self, definition: ConflatedTopic, now_us: int) -> None:
        """A conflated topic more, or one for each topic of a pattern; each begins full."""
        self._moment(now_us)
        before = set(self.topics)
        self.catalog.add(definition)
        for name in [name for name in self.topics if name not in before]:
            topic = self.topics[name]
            assert topic.copy is not None
            for batch in topic.copy.fill(self.seq):
                self._route(topic, batch)

    def remove_copies(self, name: str, end_topic: Callable[[LiveTopic], None]) -> None:
        """A conflated topic less, or all those of a pattern."""
        for topic in self.catalog.members(name):
            assert topic.copy is not None
            self._empty(topic)
            end_topic(topic)
            self.timers.remove(topic.copy)
            self._untidy.pop(topic, None)
        self.catalog.remove(name)

    def _empty(self, topic: LiveTopic) -> None:
        """Let a topic that is going take its records along, where somebody wants to know."""
        if any(feed.wants_old for feed in topic.router.feeds()):
            batch = topic.records.drop(
                list(topic.records.table.slots),
                "deleted",
                lambda count: ([self.seq] * count, [self.now_us] * count),
            )
            if batch is not None:
                self._route(topic, batch)

    def give_up(self, topic: LiveTopic, end_topic: Callable[[LiveTopic], None]) -> None:
        """A topic of a pattern less: its records are deleted, and its copies go with it."""
        self.remove(topic, list(topic.records.table.slots), "delete", self.now_us)
        self._forget(topic, end_topic)

    def _forget(self, topic: LiveTopic, end_topic: Callable[[LiveTopic], None]) -> None:
        for name in self.catalog.with_copies(topic):
            going = self.topics[name]
            self._empty(going)
            end_topic(going)
            for timed in (going.copy, going.expirations):
                if timed is not None:
                    self.timers.remove(timed)
            self._untidy.pop(going, None)
            self.catalog.forget(going)

    # Queries.

    def query(self, name: str, query: Query) -> QueryAnswer:
        """Which records a query names, as slots valid until the next change.

        Raises ClientError where it asks for fields of messages that have none.
        """
        records = self.topic(name).records
        records.check_filter(query.filter)
        if query.order_by and not records.message_type.structured:
            raise ClientError(
                f"messages of {name} have no fields ({records.message_type.name}); leave out "
                "order_by",
                reason="bad orderby",
            )
        return execute(records.indexes, query)

    def refresh_indexes(self, notes: int) -> bool:
        """Bring indexes up to date by a bounded piece of work; True when there is more."""
        while self._untidy:
            topic = next(iter(self._untidy))
            notes -= topic.records.indexes.refresh(notes)
            if notes <= 0:
                return True
            del self._untidy[topic]
        return False

    # Groups.

    @property
    def group(self) -> int:
        """The number of the group that is being filled."""
        return self._group.number

    def touch(self, session: Session) -> None:
        """This session has something to write when the open group is released."""
        self._group.sessions[session] = None

    @property
    def has_entries(self) -> bool:
        """The open group has something to store."""
        return bool(self._group.entries)

    @property
    def has_work(self) -> bool:
        """A flush would hand something over."""
        return bool(self._waiting or self._group.entries or self._group.sessions)

    def flush_strand(self, strand: Strand) -> None:
        """Hand out what a strand has gathered; to be done whenever its members change."""
        if strand.waiting:
            strand.flush(self._group.number, self.now_us)
            self._group.sessions.update(strand.members)

    def flush(self) -> Group:
        """Close the open group and hand it over."""
        group = self._group
        for strand in self._waiting:
            self.flush_strand(strand)
        self._waiting.clear()
        for session in group.sessions:
            session.seal(group.number, self.now_us)
        self._group = Group(group.number + 1)
        if group.entries:
            self._in_flight.append(group)
        return group

    def release(self, group: Group) -> None:
        """A group is durable: what was said in it may leave."""
        assert group.number == self.released + 1
        self.released = group.number
        if self._in_flight and self._in_flight[0] is group:
            self._in_flight.popleft()

    def in_flight(self) -> Iterator[LogEntry]:
        """Log entries that are not known to be durable yet, in order; no accounts."""
        for group in (*self._in_flight, self._group):
            yield from (entry for entry in group.entries if not entry.account)

    # Restart.

    def restore_accounts(self, accounts: Iterable[LogEntry] | None) -> None:
        """Let the server's own topics hold what the journal keeps as accounts, and nothing else.

        Where it keeps none (None), an earlier version may have numbered them: what `restore` has
        found is then handed to the journal as accounts. So is what an earlier version has numbered
        after the newest of them, when it was given the directory once more.
        """
        own = {topic.definition.name: topic for topic in self.catalog if topic.is_system}
        kept = list(accounts or ())
        known_seq = max((entry.seq for entry in kept), default=self.seq)
        kept += self._numbered_accounts(own, 0 if accounts is None else known_seq)
        for topic in own.values():
            records = topic.records
            records.indexes.drop(records.table.drop(list(records.table.slots))[1])
        for entry in kept:
            self._moment(entry.ts_us)
            if entry.topic not in own:
                continue  # of a later release, for which the journal keeps it
            stamp = [entry.seq], [entry.ts_us]
            names = list(entry.identities or ())
            own[entry.topic].records.put(names, entry.bodies, {}, *stamp, entry.expires_us)
        for topic in own.values():
            if topic.expirations is not None:
                topic.expirations.restore(topic.records.table.slots)
                self.timers.note(topic.expirations)

    def _numbered_accounts(self, own: Mapping[str, LiveTopic], after_seq: int) -> list[LogEntry]:
        """What an earlier version has left of its accounts; stored with the next group."""
        found: list[LogEntry] = []
        for name, topic in own.items():
            table = topic.records.table
            part = table.slice(0, len(table.bodies))
            columns = zip(
                part.identities, part.bodies, part.seqs, part.ts_us, part.expires_us, strict=True
            )
            found += [
                LogEntry("publish", name, self.seq, ts_us, [identity], [body], expires_us, True)
                for identity, body, seq, ts_us, expires_us in columns
                if seq > after_seq
            ]
        self._group.entries += found
        return found

    def restore(
        self,
        checkpoints: Mapping[str, Checkpoint],
        log: Iterable[LogEntry],
        last_seq: int,
        past: Past | None = None,
    ) -> list[Homeless]:
        """Rebuild all records: each topic's checkpoint, then the log after it, then the copies.

        `checkpoints` has one for each definition in `past`, by default for each persistent topic;
        `log` holds at least every entry after the oldest of them, up to `last_seq`. Returns what
        the configuration has no place for: while any of it holds records, an engine that goes on
        would hide them. Afterwards `now_us` is the newest time that is known, before which nothing
        may happen any more.
        """
        past = past or past_of(self.configuration)
        restoration = Restoration(self.catalog, past, checkpoints, last_seq)
        self._moment(restoration.load())
        for entry in log:
            self._moment(entry.ts_us)
            restoration.replay(entry)
        homeless = restoration.finish()
        for topic in restoration.empty:
            self._forget(topic, lambda _topic: None)
        self.seq = last_seq
        for topic in list(self.catalog):
            topic.records.table.settle()
            self._moment(int(topic.records.table.ts_us.max()))
            topic.records.indexes.refresh()
            if topic.expirations is not None:
                topic.expirations.restore(topic.records.table.slots)
                self.timers.note(topic.expirations)
            if topic.copy is not None:
                topic.copy.fill(last_seq)
        return homeless
