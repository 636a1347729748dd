"""Replay: topics as they were, by processing the log again.

What an engine does follows from its configuration, the changes in the log and their times: it has
no clock of its own. So a second engine that gets the same is at each moment as the first one was.
It has only some topics and what they are made of, is never late, and serves nobody:

    records it begins with ──> log entries, each at its own time ──> topics as of a moment
    configurations in force ─> starts and reloads, each in its place     └──> what they send

A change that was logged in several entries is one turn (`goes_on`), and so are changes that views
have released together (`joins`): views are released at its end, or less often where only the end
counts. Timers run at the time at which they are due. Expiries are
in the log, so nothing expires by itself. A start makes copies and views again from the records that
there are, as the server did; a reload changes them in place.

    replay = Replay(history, {"quotes-C"}, journal)
    yield from replay.advance(Moment(bookmark, time_us))     # to that, in steps
    snapshot = yield from replay.state("quotes-C")           # or replay.engine, replay.topic(...)
    yield from replay.emptying()

`sent` is called with each change that a topic routes, in order: a conflated topic's releases, the
rows of a view, and the changes of the topics below them; `seq` and `now_us` are the place in the
log and the time at which it did. It runs in steps of a millisecond or so (`Task`): who reads what
was sent does so between two steps, so that little waits. A task that is closed between two steps
leaves a replay that may only be emptied. It reads no more of the log than was requested, and must
not be advanced back.
"""

from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from sow.core.cooperative import Task
from sow.core.definitions import (
    Configuration,
    ConflatedTopic,
    Definition,
    Topic,
    View,
    is_persistent,
)
from sow.engine.configurations import InForceSince as InForceSince
from sow.engine.engine import Engine
from sow.engine.following import Windows, with_windows
from sow.engine.patterns import made_of
from sow.engine.reconfiguration import Reconfiguration
from sow.engine.recovery.redo import is_unstored, stored_slices
from sow.engine.running_topics import CopyTopic, LiveTopic, SourceTopic, ViewTopic
from sow.errors import ClientError, TooLarge
from sow.history.bookmarks import Moment as Moment
from sow.history.snapshot import Snapshot
from sow.store.manifest import Past, kept_of
from sow.store.protocols import Log, LogEntry, Slice, StoredRecords, goes_on, joins, part_of
from sow.topic.batch import Batch, Reason
from sow.topic.views import KEPT_AT_ONCE

RECORDS_AT_ONCE = 250
"""Records of the log that one step processes: a millisecond or two with a few copies and views."""

Sent = Callable[[LiveTopic, Batch], object]
"""Called with each change that a topic routes."""


class StartingState(NamedTuple):
    """What a replay begins with: the `records` of definitions, by their names, as of record `seq`
    at `time_us`, in the form of checkpoints. Those of an earlier record are brought to that by the
    log. Windows that were open then count as ended, but for `windows`."""

    seq: int = 0
    time_us: int = 0
    records: Mapping[str, StoredRecords] = {}
    windows: Sequence[Windows] = ()


FROM_THE_BEGINNING = StartingState()


class Reach:
    """Some topics and everything that they are made of, in some configurations."""

    def __init__(self, configurations: Iterable[Configuration], names: Collection[str]) -> None:
        self._configurations = list(configurations)
        self.definitions: set[str] = set()
        """The names of the definitions that they have."""
        self.sources: set[str] = set()
        """The names of the topics that clients publish to: the log has their changes."""
        self.topics: Container[str] | None = self.sources
        """The topics whose log entries are processed; None: all, since a pattern was named."""
        self.names: set[str] = set()
        """Themselves, and all that they are made of."""
        for name in names:
            self._add(name)

    def _add(self, name: str) -> None:
        if name in self.names:
            return
        self.names.add(name)
        for configuration in self._configurations:
            for definition, below in made_of(configuration, name):
                self.definitions.add(definition.name)
                if isinstance(definition, Topic):
                    self.sources.add(name)
                    if definition.pattern and definition.name == name:
                        self.topics = None
                for other in below:
                    self._add(other)

    @property
    def lag_us(self) -> int:
        """How long a change takes at most to reach all of them, if they are not late."""
        copies = [one for one in self._all() if isinstance(one, ConflatedTopic)]
        longest = {one.name: 0 for one in copies}
        for one in copies:
            longest[one.name] = max(longest[one.name], one.interval_us)
        return 2 * sum(longest.values())

    @property
    def has_views(self) -> bool:
        """Whether views are among them, or were."""
        return any(isinstance(one, View) for one in self._all())

    @property
    def merges(self) -> bool:
        """Whether a conflated topic merges the updates of a window, or did: its records depend on
        more than the newest states of those below."""
        copies = (one for one in self._all() if isinstance(one, ConflatedTopic))
        return any(one.merger is not None or one.merges for one in copies)

    def _all(self) -> Iterator[Definition]:
        for configuration in self._configurations:
            for one in configuration.topics:
                if one.name in self.definitions:
                    yield one

    def has_turns(self, is_stamped: bool) -> bool:
        """Whether it makes a difference which rows views have at the end of each turn: it does for
        the bookmarks and times of rows, if they are `is_stamped`, and for a copy of a view."""
        views = {one.name for one in self._all() if isinstance(one, View)}
        copied = {one.underlying for one in self._all() if isinstance(one, ConflatedTopic)}
        return bool(views) if is_stamped else not views.isdisjoint(copied)

    def of(self, configuration: Configuration) -> Configuration:
        """The part of a configuration that they need."""
        topics = [
            _replayed(one)
            for one in configuration.topics
            # All patterns: which one a name belongs to depends on those before it.
            if one.name in self.definitions or (isinstance(one, Topic) and one.pattern is not None)
        ]
        return replace(configuration, topics=tuple(topics))


def _replayed(definition: Definition) -> Definition:
    """A definition as a replay has it: what does not change its records costs nothing, and what
    Spark has conflated is conflated here, by the same rules."""
    definition = replace(definition, hash_indexes=(), indexes=())
    if isinstance(definition, Topic):
        # What the log has is checked and computed already, and it has the expiries too.
        return replace(
            definition, expires=False, expiration_us=None, preprocessing=(), enrichment=()
        )
    if isinstance(definition, ConflatedTopic):
        return replace(definition, engine="embedded")
    return definition


class _ReplayEngine(Engine):
    """An engine that reports what its topics send."""

    def __init__(self, configuration: Configuration, sent: Sent | None) -> None:
        self.sent = sent
        super().__init__(configuration)

    def route(self, topic: LiveTopic, batch: Batch) -> None:
        """Route changes, and report them."""
        super().route(topic, batch)
        if self.sent is not None:
            self.sent(topic, batch)


class HeldRecords:
    """Records of one definition as of record `seq`, in memory."""

    def __init__(self, seq: int, parts: Iterable[Slice]) -> None:
        self.seq = seq
        self._parts = [*parts]
        self.records = sum(len(part.identities) for part in self._parts)

    def load(self) -> Iterator[Slice]:
        """The records."""
        return iter(self._parts)


class Replay:
    """The topics `names` as they were.

    `history` has the configurations in force, in order; the first one counts for all before it,
    too. `journal` is read after `state`. `owns` says whether an entry is of a topic that has
    its name now. Rows of views have the bookmarks and times of then if they are `is_stamped`.
    Records and what views keep may take `bytes_max`: `advance` raises TooLarge beyond that, and
    StoreError where the log is not kept so far back.
    """

    def __init__(
        self,
        history: Sequence[InForceSince],
        names: Collection[str],
        journal: Log,
        state: StartingState = FROM_THE_BEGINNING,
        *,
        owns: Callable[[LogEntry], bool] = lambda _entry: True,
        sent: Sent | None = None,
        bytes_max: int = 2**63,
        is_stamped: bool = True,
    ) -> None:
        self._names = names
        self.reach = Reach([one.configuration for one in history], names)
        self.seq = state.seq
        """The last record of the log that it has processed, or passed over."""
        self._journal = journal
        self._state = state
        self._owns = owns
        self._sent = sent
        self._bytes_max = bytes_max
        place = state.seq, state.time_us
        passed = sum((one.seq, one.time_us) <= place for one in history)
        self._coming = deque(history[passed:])
        self._known = len(history)
        """How many starts and reloads it knows."""
        self._in_force = history[max(0, passed - 1)].configuration
        self._has_begun = False
        self.lives = 0
        """How many engines have begun: one, and one more at each start."""
        self.is_beginning = False
        """The engine takes over what there was, and has not all of it."""
        self._has_turns = sent is not None or self.reach.has_turns(is_stamped)
        """It makes a difference which rows views have at the end of each turn."""
        self.engine = self._made(self._in_force)
        """The engine that processes the log; another one after each start."""

    def listen(self, sent: Sent) -> None:
        """Call `sent` from now on; what came before may have been taken in many turns at once."""
        self._sent = self.engine.sent = sent
        self._has_turns = True

    def learn(self, history: Sequence[InForceSince]) -> None:
        """Take over what was reloaded since it began. Where the topics are made of others since,
        whose changes it may have passed over, they stay as they were."""
        coming, self._known = history[self._known :], len(history)
        reach = Reach([one.configuration for one in history], self._names) if coming else self.reach
        if reach.sources == self.reach.sources:
            self.reach = reach
            self._coming += coming

    def _made(self, configuration: Configuration) -> "_ReplayEngine":
        return _ReplayEngine(self.reach.of(configuration), self._sent)

    @property
    def now_us(self) -> int:
        """The time that it has reached."""
        return self.engine.now_us

    @property
    def has_sent(self) -> bool:
        """Whether each conflated topic has sent something since its beginning: then their places
        are known."""
        copies = [one for one in self.engine.topics.values() if isinstance(one, CopyTopic)]
        return all(one.copy.has_sent for one in copies)

    @property
    def configuration(self) -> Configuration:
        """The configuration in force, with all topics."""
        return self._in_force

    def topic(self, name: str) -> LiveTopic:
        """A topic as it is; raises UnknownTopic, and Stopped as the server did."""
        return self.engine.topic(name)

    def state(self, name: str) -> Task[Snapshot]:
        """The records of a topic, pinned: they stay as they are while it advances."""
        records = self.topic(name).records
        found = Snapshot.take(records, records.table.live())
        yield
        yield from found.settle()
        return found

    # Advancing.

    def advance(self, until: Moment) -> Task[None]:
        """Process the log up to a record, and what is due up to a time, in steps."""
        if not self._has_begun:
            self._has_begun = True
            yield from self._begin(self._state)
        if until.seq > self.seq:
            with closing(self._read(until.seq)) as steps:
                yield from steps
        yield from self._end_turn()
        yield from self._change_until(until.seq, until.time_us)
        yield from self._pass(until.time_us)
        yield from self._end_turn()

    def _read(self, until_seq: int) -> Task[None]:
        """Process log entries after the last one, up to a record."""
        before, left = None, 0
        for piece in self._journal.pieces(self.seq, self.reach.topics):
            for entry in piece.entries:
                first = max(0, self.seq + 1 - entry.seq)
                last = min(len(entry), until_seq + 1 - entry.seq)
                if first < last and self._owns(entry) and not is_unstored(entry):
                    if before is not None and joins(before, entry):
                        yield from self._change_until(entry.seq - 1, within_turn=True)
                        yield from self._pass(entry.ts_us, within_turn=True)
                    elif before is None or not goes_on(before, entry):
                        if self._has_turns or left <= 0:
                            yield from self._end_turn()
                            left = RECORDS_AT_ONCE
                        yield from self._change_until(entry.seq - 1)
                        yield from self._pass(entry.ts_us)
                    before, left = entry, left - len(entry)
                    for start in range(first, last, RECORDS_AT_ONCE):
                        yield from self._apply(entry, start, min(start + RECORDS_AT_ONCE, last))
            self.seq = max(self.seq, min(piece.last_seq, until_seq))
            if piece.last_seq >= until_seq:
                return
            yield

    def _pass(self, until_us: int, within_turn: bool = False) -> Task[None]:
        """Let time pass: each timer runs when it is due. Views release what comes of it; within a
        turn not what changes have made."""
        engine = self.engine
        engine.views.stay_within_turn((lambda _, turn: turn > 0) if within_turn else None)
        while (due_us := engine.due_us()) is not None and due_us <= until_us:
            yield from engine.fall_due(due_us)
            if self._has_turns:
                yield from self._end_turn()
        engine.views.stay_within_turn(None)
        engine.sequencer.moment(until_us)

    def _end_turn(self) -> Task[None]:
        """Release the views, and whatever is late."""
        engine = self.engine
        engine.sequencer.release(engine.flush())
        while engine.has_work:
            yield
            engine.sequencer.release(engine.flush())

    def _apply(self, entry: LogEntry, start: int, end: int) -> Task[None]:
        """Change the topic of an entry by its records from one place to before another; its
        followers have caught up at the end."""
        engine = self.engine
        if end - start < len(entry):
            entry = part_of(entry, start, end)
        try:
            topic = engine.catalog.expected(entry.topic)
        except ClientError:
            return  # the configuration of then had no place for it
        if not isinstance(topic, SourceTopic):
            return
        if topic.name not in engine.topics:
            engine.enter(topic)
        self.seq = entry.seq + len(entry) - 1
        engine.sequencer.begin_after(self.seq)
        if entry.op == "publish":
            messages = topic.records.stored(entry.bodies, entry.identities)
            seqs = range(entry.seq, self.seq + 1)
            engine.pass_on(topic, topic.store(messages, seqs, entry.ts_us, 0))
        elif entry.op != "edit":  # of an older event of a series, which is no change of the record
            table = topic.records.table
            named = enumerate(entry.identities or (), entry.seq)
            there = {identity: seq for seq, identity in named if identity in table}
            reason: Reason = "expired" if entry.op == "expire" else "deleted"
            batch = topic.drop([*there], reason, [*there.values()], entry.ts_us)
            if batch is not None:
                engine.route(topic, batch)
        if engine.catalog.usage.bytes > self._bytes_max:
            raise TooLarge(
                f"computing this past takes more than {self._bytes_max} bytes: what all records "
                "take now, or Limits/SnapshotMemory if that is more; choose another moment"
            )
        yield
        while engine.output.late:
            engine.output.catch_up()
            yield

    # Configurations.

    def _change_until(
        self, seq: int, time_us: int = 2**63, within_turn: bool = False
    ) -> Task[None]:
        """Starts and reloads after records up to `seq`, until a time. A reload does not end the
        turn that it is in."""
        coming = self._coming
        while coming and coming[0].seq <= seq and coming[0].time_us <= time_us:
            change = coming.popleft()
            yield from self._pass(change.time_us, within_turn)
            if not within_turn:
                yield from self._end_turn()
            # Entries of other topics have been passed over.
            self.seq = max(self.seq, change.seq)
            self.engine.sequencer.begin_after(max(self.engine.seq, change.seq))
            if change.is_start:
                yield from self._start(change)
            else:
                yield from self._reload(change, within_turn)
            self._in_force = change.configuration
            yield  # who looks between two steps sees each of them, at its time

    def _reload(self, change: InForceSince, within_turn: bool) -> Task[None]:
        new = self.reach.of(change.configuration)
        old = self.engine.configuration
        if (new.topics, new.limits) != (old.topics, old.limits):
            # All else is of the server that has noted it: nodes of a log listen elsewhere.
            kinds = new.message_types
            new = replace(old, topics=new.topics, limits=new.limits, message_types=kinds)
            steps = Reconfiguration(self.engine, new, lambda _topic: None)
            yield from steps.apply(self.now_us)
            if not within_turn:
                yield from self._end_turn()

    def _start(self, change: InForceSince) -> Task[None]:
        """Another engine has the records of the topics, and makes the others from them."""
        before = self.engine
        records: dict[str, StoredRecords] = {}
        for kept in _kept(before.configuration):
            parts: list[Slice] = []
            for part in stored_slices(before.catalog, kept.name, RECORDS_AT_ONCE, known=False):
                parts.append(part)
                yield
            records[kept.name] = HeldRecords(change.seq, parts)
        state = StartingState(change.seq, change.time_us, records)
        self.engine = self._made(change.configuration)
        yield from self._begin(state, before, change.goes_on)

    def _begin(
        self, state: StartingState, before: Engine | None = None, goes_on: bool = False
    ) -> Task[None]:
        """Take over records of another engine, or those that were stored; if it `goes_on`, with the
        windows that were open there."""
        self.is_beginning = True
        past = (before or self.engine).configuration
        kept = [kept_of(topic, past) for topic in _kept(past) if topic.name in state.records]
        windows = before.catalog if before is not None and goes_on else None
        if before is None and state.windows:
            windows = yield from with_windows(past, state.windows)
        oldest = min([state.seq, *(one.seq for one in state.records.values())])
        yield from self.engine.restore(
            state.records,
            self._logged(oldest, state.seq),
            state.seq,
            Past(tuple(kept)),
            before=windows,
        )
        self.engine.sequencer.moment(state.time_us)
        yield from self._end_turn()
        self.is_beginning = False
        self.lives += 1

    def _logged(self, after_seq: int, until_seq: int) -> Iterator[LogEntry]:
        """The entries of a range of the log that are processed."""
        if after_seq == until_seq:
            return
        for piece in self._journal.pieces(after_seq, self.reach.topics):
            for entry in piece.entries:
                last = min(len(entry), until_seq + 1 - entry.seq)
                if last > 0 and self._owns(entry):
                    yield entry if last == len(entry) else part_of(entry, 0, last)
            if piece.last_seq >= until_seq:
                return

    # The end.

    def emptying(self) -> Task[None]:
        """Free records and groups, some in each step: to let go of a million at once takes a
        second."""
        for topic in [*self.engine.topics.values()]:
            for kept in topic.view.kept() if isinstance(topic, ViewTopic) else ():
                while len(kept):
                    kept.forget_some(KEPT_AT_ONCE)
                    yield
            yield from topic.records.table.emptying()


def _kept(configuration: Configuration) -> list[Topic]:
    """The topics whose records another start finds."""
    return [one for one in configuration.topics if isinstance(one, Topic) and is_persistent(one)]
