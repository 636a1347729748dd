"""Running topics: a topic at work, with its records, router and timers.

There are three kinds. A *source* is what clients publish to: its changes are numbered and logged,
and its records may expire. A *copy* is a conflated topic: it changes as its conflation releases
changes of another topic. A *view* changes at flushes (`sow.engine.views`). Sources and copies know
when they are next due (`due_us`) and then `advance`. All return batches; the engine routes them to
subscribers.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from sow.core.cooperative import Task
from sow.core.definitions import (
    ConflatedTopic,
    Definition,
    QueueSettings,
    Topic,
    View,
    is_persistent,
)
from sow.engine.live_topic import LiveTopicBase
from sow.engine.timers import Expirations
from sow.engine.wal import CommitSequencer
from sow.errors import ClientError
from sow.expressions import Filter
from sow.store.protocols import EventOrigin, Load, LogEntry, Op
from sow.streaming.router import PatternSubscriptions
from sow.topic.batch import Batch, Changes, Edit, Reason
from sow.topic.carried_windows import go_on_with
from sow.topic.conflated_topic import ConflatedCopy
from sow.topic.records import CheckedMessages, Records
from sow.topic.series import SeriesEvent
from sow.topic.views.view import MaterializedView

LIFETIME_S_MAX = 1e9
"""Some thirty years; a client that means for ever sends 0."""
Expiries = int | Sequence[int]
"""When records expire, 0 for never: all of them, or one for each."""


class FedByPublishes(Protocol):
    """What gets each publish to a topic: a queue (`sow.engine.queues`), or an action."""

    def check_room(self, rows: int) -> None:
        """Raise TooLarge where a batch has more rows than one step makes messages of."""
        ...

    def take(
        self, keys: Sequence[str], bodies: Sequence[bytes], seqs: Sequence[int], now_us: int
    ) -> None:
        """Messages have been published, to records of these SowKeys."""
        ...


class KeyMaker(Protocol):
    """What makes the keys of a topic (`sow.engine.key_chains`)."""

    def keys(self, bodies: Sequence[bytes], given: Sequence[str] | None) -> list[str]:
        """The keys of messages that are about to be published, where none are `given`."""
        ...


class FedQueue(FedByPublishes, Protocol):
    """A queue, as the topic of its messages knows it."""

    topic: "SourceTopic"
    acknowledged: int
    expired: int
    dead: int
    dropped: int

    def change(self, definition: QueueSettings) -> None:
        """Go by other settings."""
        ...

    def stop(self) -> None:
        """Nothing is a message of it any more: it is being removed."""
        ...


class SourceTopic(LiveTopicBase):
    """A topic that clients publish to. Its changes are logged in `sequencer`."""

    __slots__ = (
        "_is_stored", "_sequencer", "chain", "expirations", "makes_records", "queue", "queues",
    )  # fmt: skip

    definition: Topic
    stopped = ""
    """A source never stops."""

    def __init__(
        self,
        records: Records,
        definition: Topic,
        pattern: str | None,
        sequencer: CommitSequencer,
        followers: PatternSubscriptions,
    ) -> None:
        falls_due = definition.expires or records.events is not None
        super().__init__(records, definition, pattern, falls_due, followers)
        self.expirations = Expirations(records.table) if definition.expires else None
        self.makes_records = bool(definition.enrichment)
        """Messages have to be `finished` to be records, deltas or not."""
        self.chain: KeyMaker | None = None
        """What makes its keys, where they follow from more than the message."""
        self.queue: FedQueue | None = None
        """The queue that its records are messages of."""
        self.queues: tuple[FedByPublishes, ...] = ()
        """What each publish to it is a message of, or sets off."""
        self._is_stored = is_persistent(definition)
        self._sequencer = sequencer

    def remake(self, definition: Topic) -> None:
        """Use the Preprocessing and Enrichment of another definition, for new messages."""
        self.redefine(definition)
        self.records.remake()
        self.makes_records = bool(definition.enrichment)

    @property
    def kind(self) -> str:
        """This kind in APIs and metrics."""
        return "queue" if self.records.is_queue else "topic"

    def feed(self, queue: FedByPublishes) -> None:
        """From now on each publish is a message of a queue, or sets off an action."""
        self.queues += (queue,)

    def feed_no_more(self, queue: FedByPublishes) -> None:
        """From now on it is not."""
        self.queues = tuple(one for one in self.queues if one is not queue)

    def be_chained(self, chain: KeyMaker) -> None:
        """Its keys are made by this."""
        self.chain = chain

    def hold(self, queue: FedQueue) -> None:
        """Its records are the messages of a queue."""
        self.queue = queue

    def enqueue(
        self,
        identities: Sequence[str],
        bodies: Sequence[bytes],
        seqs: Sequence[int],
        now_us: int,
    ) -> None:
        """Have the queues take what was published."""
        keys = [*map(self.records.sow_key_of, identities)]
        for queue in self.queues:
            queue.take(keys, bodies, seqs, now_us)

    # Changes.

    def expiry_us(self, expires_s: float | None, now_us: int) -> int:
        """When a message published now expires, 0 for never.

        `expires_s` is the client's lifetime, 0 for ever, None for the topic's default.
        Raises ClientError for an invalid lifetime, or where records are kept for ever.
        """
        if expires_s is None:
            lifetime_us = self.definition.expiration_us
            return now_us + lifetime_us if lifetime_us else 0
        if expires_s == 0:
            return 0
        self.check_expires()
        if not 0 < expires_s <= LIFETIME_S_MAX:
            raise ClientError(
                f"expiration is {expires_s:g}; it must be seconds up to 1e9, or 0: for ever"
            )
        return now_us + int(expires_s * 1e6)

    def check_expires(self) -> None:
        """Raise ClientError where records are kept for ever."""
        if not self.definition.expires:
            raise ClientError(
                f"topic {self.name} keeps records for ever; "
                "set its Expiration to enabled before giving messages a lifetime"
            )

    def kept_expiries(
        self, identities: Sequence[str], expires_us: int, renewed: Collection[str] = ()
    ) -> Expiries:
        """When records expire after deltas without a lifetime: as before, and new or `renewed` ones
        at `expires_us`; one value for all, or one for each."""
        table = self.records.table
        if table.expires_us is None and not expires_us:
            return 0
        kept = table.expiries(identities, expires_us)
        if renewed:
            pairs = zip(identities, kept, strict=True)
            kept = [expires_us if name in renewed else time_us for name, time_us in pairs]
        return kept[0] if len(set(kept)) == 1 else kept

    def finished(
        self,
        messages: CheckedMessages,
        delta: bool,
        held: Mapping[str, bytes | None] | None = None,
        fitted: bool = False,
        now_us: int = 0,
    ) -> CheckedMessages:
        """The records that result from these messages, deltas or not, which arrive at `now_us`;
        changes nothing.

        Messages that are no deltas need it only where `makes_records`. `held` are bodies that
        override those of the table. Computed values fit, or raise BadMessage; if `fitted`, a value
        that does not fit is NULL.
        """
        records = self.records
        merges = delta and records.retains
        if not merges and not self.makes_records:
            return messages
        nulls = self.definition.delta_null if merges else None
        bodies = records.finished(messages.identities, messages.bodies, nulls, held, fitted, now_us)
        return messages._replace(bodies=bodies, columns={})

    def put(
        self, messages: CheckedMessages, now_us: int, expires_us: int, keeps: bool = False
    ) -> Batch:
        """Number, log and store checked messages, to expire at `expires_us` (0: never) unless they
        say when. Existing records keep their lifetime if it `keeps`."""
        expiries: Expiries = expires_us
        if messages.expires_us is not None:
            expiries = messages.expires_us
        elif keeps:
            expiries = self.kept_expiries(messages.identities, expires_us)
        return self.store(messages, self.number(messages, now_us, expiries), now_us, expiries)

    def number(
        self,
        messages: CheckedMessages,
        now_us: int,
        expires_us: Expiries,
        bodies_bytes: int | None = None,
    ) -> Sequence[int]:
        """Number and log messages, for `store`; returns their numbers. `bodies_bytes` is their
        size, where it is known: for very many it takes long to compute."""
        bodies, identities, _, author, _ = messages
        seqs = self._sequencer.numbers(len(bodies), self.is_system)
        if self._is_stored:
            # Where identities follow from the bodies, the log need not have them.
            known = identities if self.is_system or not self.records.keys else None
            origin = None if self.records.events is None else EventOrigin(author)
            self._log("publish", seqs, now_us, known, bodies, expires_us, bodies_bytes, origin)
        else:
            self._log("publish", seqs, now_us, None, [b""] * len(bodies), 0)
        return seqs

    def number_load(self, load: Load, now_us: int, expires_us: int) -> None:
        """Number and log all records of a load, which follow the newest one."""
        seqs = self._sequencer.numbers(load.records, self.is_system)
        entry = LogEntry(
            "publish", self.name, seqs[0], now_us, None, (), expires_us, self.is_system, 0, load
        )
        self._sequencer.write(entry)

    def log_account(
        self, identities: Sequence[str], bodies: Sequence[bytes], now_us: int, expires_us: int
    ) -> None:
        """Log records of a system topic that its table gets later."""
        sequencer, name = self._sequencer, self.name
        sequencer.write(
            LogEntry("publish", name, sequencer.seq, now_us, identities, bodies, expires_us, True)
        )

    def store(
        self,
        messages: CheckedMessages,
        seqs: Sequence[int],
        now_us: int | Sequence[int],
        expires_us: Expiries,
    ) -> Batch:
        """Store messages that were numbered at a time, or each at its own."""
        bodies, identities, columns, author, _ = messages
        stamps = [now_us] * len(bodies) if isinstance(now_us, int) else now_us
        batch = self.records.put(identities, bodies, columns, seqs, stamps, expires_us)
        if self.records.events is not None:
            self.records.events.add(identities, bodies, seqs, stamps, author)
        if self.expirations is not None:
            self.expirations.add(identities, expires_us)
        return batch

    def edit(self, messages: CheckedMessages, event: SeriesEvent, now_us: int) -> Batch:
        """Number, log and carry out the replacement of an event of a series by the one message; of
        the newest event it is a change of the record, too."""
        (body,), (identity,) = messages.bodies, messages.identities
        events = self.records.events
        assert events is not None
        is_newest = events.newest(identity) == event
        seqs = self._sequencer.numbers(1, self.is_system)
        expiries = self.kept_expiries((identity,), 0)
        if self._is_stored:
            origin = EventOrigin(messages.author, event.seq)
            op: Op = "publish" if is_newest else "edit"
            self._log(op, seqs, now_us, [identity], [body], expiries, None, origin)
        else:
            self._log("publish", seqs, now_us, None, [b""], 0)
        return self.edited(messages, event, seqs, now_us, expiries)

    def edited(
        self,
        messages: CheckedMessages,
        event: SeriesEvent,
        seqs: Sequence[int],
        now_us: int,
        expires_us: Expiries,
    ) -> Batch:
        """Carry out the replacement of an event, which was numbered at a time."""
        records, (body,), (identity,) = self.records, messages.bodies, messages.identities
        events = records.events
        assert events is not None
        is_newest = events.newest(identity) == event
        events.edit(identity, event.seq, body, messages.author)
        if is_newest:
            batch = records.put([identity], [body], {}, seqs, [now_us], expires_us)
        else:
            slots = [records.table.slots[identity]]
            changes = Changes(self.name, [identity], slots, [event.body], [body], seqs, [now_us])
            batch = records.batch(changes, {})
        batch.be_edit(Edit(event.seq, is_newest))
        return batch

    def retain(self, definition: Topic) -> Task[None]:
        """Retain the events that another definition says."""
        self.redefine(definition)
        if self.records.events is not None and definition.series is not None:
            yield from self.records.events.trimming(definition.series)

    def remove(self, identities: Sequence[str], op: Op, now_us: int) -> Batch | None:
        """Number, log and carry out the removal of records; None if none of them exists."""
        table = self.records.table
        identities = [identity for identity in dict.fromkeys(identities) if identity in table]
        if not identities:
            return None
        seqs = self.number_removal(identities, op, now_us)
        return self.drop(identities, "expired" if op == "expire" else "deleted", seqs, now_us)

    def number_removal(self, identities: Sequence[str], op: Op, now_us: int) -> Sequence[int]:
        """Number and log the removal of records, for `drop`; returns the numbers."""
        seqs = self._sequencer.numbers(len(identities), self.is_system)
        self._log(op, seqs, now_us, identities, (), 0)
        return seqs

    def drop(
        self, identities: Sequence[str], reason: Reason, seqs: Sequence[int], now_us: int
    ) -> Batch | None:
        """Remove existing records, each named once, with the numbers of `number_removal`."""
        return self.records.drop(identities, reason, lambda count: (seqs, [now_us] * count))

    def _log(
        self,
        op: Op,
        seqs: Sequence[int],
        now_us: int,
        identities: Sequence[str] | None,
        bodies: Sequence[bytes],
        expires_us: Expiries,
        bodies_bytes: int | None = None,
        origin: EventOrigin | None = None,
    ) -> None:
        sequencer = self._sequencer
        first = seqs[0] if seqs else sequencer.seq + 1
        turn = sequencer.turn_of(self.name) if sequencer.unreleased else 0
        sequencer.write(
            LogEntry(
                op, self.name, first, now_us, identities, bodies, expires_us, self.is_system,
                bodies_bytes, None, origin, turn,
            )
        )  # fmt: skip

    def check(self) -> None:
        """Assert what is always true of a topic; reads all records."""
        super().check()
        if self.expirations is not None:
            self.expirations.check()

    # Timers.

    def due_us(self) -> int | None:
        """When a record may expire next."""
        if self.records.events is not None and self.records.events.has_aside:
            return 0
        if self.expirations is None or self.records.is_changing or self.records.has_awaited:
            return None
        return self.expirations.due_us()

    def advance(self, now_us: int) -> list[Batch]:
        """Remove expired records, or some of them: then `due_us` is due again."""
        if self.records.events is not None and self.records.events.has_aside:
            self.records.events.clear_some()
            return []
        expired = [] if self.expirations is None else self.expirations.take(now_us)
        # Others may have changed something since this was due.
        now_us = self._sequencer.moment(now_us)
        batch = self.remove(expired, "expire", now_us) if expired else None
        return [] if batch is None else [batch]

    def leave_expired(self) -> None:
        """Let no record expire by itself: the log says which do."""
        self.expirations = None

    def let_expire(self) -> Task[None]:
        """Let records expire by themselves again, from a state in which the log says which do; in
        steps, between which nothing may change."""
        if self.definition.expires:
            self.expirations = Expirations(self.records.table)
        yield from self.restore_expirations()

    def restore_expirations(self) -> Task[None]:
        """Take over the expiries that the restored records have, some in each step."""
        if self.expirations is not None:
            yield from self.expirations.restore()


class CopyTopic(LiveTopicBase):
    """A conflated topic; `copy` conflates, for this topic or for several that are alike."""

    __slots__ = ("copy",)

    definition: ConflatedTopic
    kind = "conflated"
    """This kind in APIs and metrics."""

    def __init__(
        self,
        definition: ConflatedTopic,
        pattern: str | None,
        copy: ConflatedCopy,
        followers: PatternSubscriptions,
    ) -> None:
        super().__init__(copy.copy, definition, pattern, True, followers)
        self.copy = copy

    @property
    def underlying(self) -> str:
        """The name of the underlying topic."""
        return self.copy.underlying.name

    @property
    def stopped(self) -> str:
        """Why it has no records any more."""
        return self.copy.stopped

    # Others that are alike.

    @property
    def is_shared(self) -> bool:
        """Other topics are alike, and have the same copy."""
        return len(self.copy.copies) > 1

    def share(self, copy: ConflatedCopy) -> None:
        """Share a copy that is like this topic's."""
        copy.add_name(self.records)
        self.copy.stop()
        self.copy = copy

    def part(self) -> None:
        """Use a copy of its own."""
        self.copy = self.copy.parted(self.records)

    def go_on_with(self, other: "CopyTopic") -> Task[None]:
        """Have the windows of a topic of another engine that has conflated the same."""
        if not self.copy.is_external:
            yield from go_on_with(self.copy, other.copy, self.records)

    # Live changes of the configuration, of a topic that has its copy to itself.

    def refold(self, definition: Definition) -> None:
        """Use the queue policy of another definition; windows merge by it, too."""
        super().refold(definition)
        self.copy.remerge()

    def retime(self, definition: ConflatedTopic, now_us: int) -> None:
        """Use another interval or schedule; pending changes begin a window of the new kind."""
        self.redefine(definition)
        self.copy.retime(definition, now_us)

    def refocus(self, definition: ConflatedTopic, condition: Filter | None) -> None:
        """Use another filter, compiled to `condition`; `copy.judge_all` applies it to existing
        records."""
        self.redefine(definition)
        self.copy.refocus(condition)

    # Changes.

    def fill(self, seq: Callable[[], int]) -> Task[None]:
        """Copy the underlying topic, as of the last step; `seq` then returns the number of the last
        change. Changes meanwhile have to be passed to `copy.hear`."""
        return self.copy.fill(seq, self.records)

    def give_up(self) -> None:
        """The topic is removed: unless it shares its copy, the underlying topic stops reading
        fields for it; its records are no longer counted."""
        self.copy.take_name(self.records)
        self.records.table.forget()

    def check(self) -> None:
        """Assert what is always true of a topic; reads all records."""
        super().check()
        self.copy.check()


class ViewTopic(LiveTopicBase):
    """A view; `view` maintains its rows. Its changes are not logged: a restart rebuilds it from its
    underlying topics."""

    __slots__ = ("underlyings", "view")

    definition: View
    kind = "view"
    """This kind in APIs and metrics."""

    def __init__(
        self,
        definition: View,
        view: MaterializedView,
        underlyings: tuple[str, ...],
        followers: PatternSubscriptions,
    ) -> None:
        super().__init__(view.rows, definition, None, False, followers)
        self.view = view
        self.underlyings = underlyings
        """The names of the topics that it is made of."""

    @property
    def stopped(self) -> str:
        """Why it has no rows any more."""
        return self.view.stopped

    def due_us(self) -> int | None:
        """A view has no timer: flushes release it."""
        return None

    def succeed(self, view: MaterializedView, definition: View) -> None:
        """Continue with another view and its definition."""
        self.view.stop()
        view.beside.update(self.view.beside)
        self.view, self.underlyings = view, definition.underlyings
        self.redefine(definition)

    def give_up(self) -> None:
        """The topic is removed: its records are no longer counted, and no fields are read for
        it."""
        self.view.stop()
        self.records.table.forget()

    def check(self) -> None:
        """Assert what is always true of a topic; reads all records."""
        super().check()
        self.view.check()


LiveTopic = SourceTopic | CopyTopic | ViewTopic
