"""Where a replay of a conflated topic or a view begins, and what is kept for that.

A replay begins as near to a moment as what follows is certain: where the log has kept what was
open; at a start of the server that has ended all windows; where no window was open, since none of
what is below had changed for so long; of views of plain topics at the moment itself, but for the
bookmarks and times of their rows. There the state of what is below is looked up. Which windows are
open depends on all changes before them, and so does what a conflated topic merges: without such a
place it begins with the log.

Two things have to be known of a place in the middle of the log, though windows are open there:
which windows were open, which the log keeps of some (`sow.store.log_indexes`), and the records,
which a checkpoint has that was kept before it, with the log from there on. Both are written
together, when so much has been logged since the last time that a replay would take long
(`sow.server.boot.checkpointer`). What has to be read is then bound by how many records there are,
not by how long the log is. Where nothing is kept, a replay begins elsewhere, and gives the same.

It computes no replay, and answers nothing (`sow.sessions.queries.past_states`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sow.core.cooperative import Task
from sow.core.definitions import Configuration, ConflatedTopic, Topic, is_persistent
from sow.engine.configurations import InForceSince
from sow.engine.engine import Engine
from sow.engine.patterns import is_made_alike, source_definition
from sow.engine.recovery.redo import BELONGS, named_in, topic_slices
from sow.engine.replay import FROM_THE_BEGINNING, HeldRecords, Reach, Replay, StartingState
from sow.engine.running_topics import LiveTopic
from sow.engine.wal import CurrentLog
from sow.errors import ClientError, NotKept, TooLarge
from sow.history.bookmarks import Moment, last_before, pause_before
from sow.history.snapshot_as_of import Base, Present, check_known, slices_as_of, unchanged_since
from sow.store.protocols import (
    NOTHING_STORED,
    Checkpoint,
    KeptCheckpoint,
    Log,
    Slice,
    WindowsPlace,
    is_whole,
    numbers,
)


class KeptRecords:
    """The records that a checkpoint of a definition has of some topics, without lifetimes: the log
    has the expiries."""

    def __init__(
        self, definition: Topic, checkpoint: Checkpoint, kept: KeptCheckpoint, reach: Reach
    ) -> None:
        self._definition = definition
        self._checkpoint = checkpoint
        self._kept = kept
        self._reach = reach
        self.seq = kept.seq
        self.records = 0
        """How many there are is not known before they are read."""

    def load(self) -> Iterator[Slice]:
        """The records."""
        for part in self._checkpoint.load_kept(self._kept):
            if not part.is_events:
                expires_us = numbers([0] * len(part.identities))
                yield from self._wanted(replace(part, expires_us=expires_us, values=None))

    def _wanted(self, part: Slice) -> Iterator[Slice]:
        name, topics = self._definition.name, self._reach.topics
        if self._definition.pattern is None or topics is None:
            yield part
            return
        for topic, piece in topic_slices(name, self._definition.pattern, part):
            if topic in topics:
                names = [f"{topic}{BELONGS}{identity}" for identity in piece.identities]
                yield replace(piece, identities=names)


def kept_records(
    reach: Reach,
    definitions: Iterable[Topic],
    checkpoints: Mapping[str, Checkpoint],
    log: Log,
    seq: int,
) -> dict[str, KeptRecords] | None:
    """The records of definitions as of record `seq` or before, with the log behind that; None where
    they are not kept of each."""
    found: dict[str, KeptRecords] = {}
    for one in definitions:
        checkpoint = checkpoints.get(one.name)
        fitting = [] if checkpoint is None else kept_before(checkpoint, log, seq)
        if checkpoint is None or not fitting:
            return None
        found[one.name] = KeptRecords(one, checkpoint, fitting[-1], reach)
    return found


def kept_before(checkpoint: Checkpoint, log: Log, seq: int) -> list[KeptCheckpoint]:
    """The checkpoints that are kept, with the log behind them, and are exact at record `seq`, the
    oldest first."""
    oldest = log.first_seq - 1
    return [one for one in checkpoint.kept if one.seq >= oldest and one.exact_seq <= seq]


def places_before(log: Log, until: Moment) -> Iterator[WindowsPlace]:
    """Where open windows are kept up to a moment, the newest first."""
    for place in reversed(log.windows.places):
        if place.seq >= log.first_seq and tuple(place) <= tuple(until) and _is_of(place, log):
            yield place


def _is_of(place: WindowsPlace, log: Log) -> bool:
    """Whether a place is of this log: what came again after a repair came later."""
    newest = next(log.read(place.seq - 1), None)
    return newest is not None and newest.ts_us <= place.time_us


def are_stored_alike(
    history: Sequence[InForceSince],
    now: Configuration,
    names: Collection[str],
    place: tuple[int, int],
) -> bool:
    """Whether the topics that clients publish to were at a place what they are now, so that what
    the log says of them can be looked up, and what is stored is theirs."""
    passed = sum((one.seq, one.time_us) <= place for one in history)
    then = [one.configuration for one in history[max(0, passed - 2) : max(1, passed)]]
    for name in names:
        definition = source_definition(now, name)
        if definition is None or not (definition.retain and is_persistent(definition)):
            return False
        if any(source_definition(one, name) != definition for one in then):
            return False
    return True


def newest_state(
    history: Sequence[InForceSince],
    reach: Reach,
    now: Configuration,
    checkpoints: Mapping[str, Checkpoint],
    log: Log,
    until: Moment,
) -> Task[StartingState | None]:
    """What there was at the newest place up to a moment at which windows are kept, if all of it is
    known; read in steps."""
    definitions = stored_definitions(reach, now)
    for place in places_before(log, until):
        if not are_stored_alike(history, now, reach.sources, place):
            return None
        records = kept_records(reach, definitions, checkpoints, log, place.seq)
        if records is None:
            return None
        if (found := (yield from log.windows.load(place))) is not None:
            return StartingState(place.seq, place.time_us, records, found.windows)
    return None


def stored_definitions(reach: Reach, configuration: Configuration) -> list[Topic]:
    """The definitions in reach of the topics that clients publish to."""
    return [
        one
        for one in configuration.topics
        if isinstance(one, Topic) and one.name in reach.definitions
    ]


GONE_ON_MAX = 100_000
"""Records of a log that a start processes again for the windows that were open, a second or two.
With more of them behind the last place that is kept, these windows have ended."""


def open_windows(
    history: Sequence[InForceSince],
    configuration: Configuration,
    log: Log,
    now_us: int,
    checkpoints: Mapping[str, Checkpoint] = NOTHING_STORED,
    is_bound: bool = True,
) -> Task[Engine | None]:
    """An engine with the windows of conflated topics that are open at a time, for a start under a
    configuration, which may make some of them otherwise; None where all have ended, as they do if
    it `is_bound` and very much is to be processed."""
    if not history:
        return None
    before = history[-1].configuration
    reach = Reach([before], _copies_alike(before, configuration))
    newest = next(log.read(log.last_seq - 1), None) if log.last_seq >= log.first_seq else None
    if newest is None or newest.ts_us + reach.lag_us <= now_us:
        return None
    # The machine's clock may have been set back: behind the last start, too.
    now_us = max(now_us, newest.ts_us, history[-1].time_us)
    end = Moment(log.last_seq, now_us)
    kept = yield from newest_state(history, reach, before, checkpoints, log, end)
    start = kept or FROM_THE_BEGINNING._replace(seq=log.begins_after)
    if start.seq < log.first_seq - 1 or (is_bound and end.seq - start.seq > GONE_ON_MAX):
        return None
    replay = Replay(history, reach.names, log, start)
    yield from replay.advance(end)
    return replay.engine


def _copies_alike(before: Configuration, now: Configuration) -> set[str]:
    """The conflated topics that two configurations make alike, of topics that a start finds
    again."""
    found = set[str]()
    for one in now.topics:
        if isinstance(one, ConflatedTopic) and is_made_alike(before, now, one.name):
            sources = Reach([before], (one.name,)).sources
            if are_stored_alike((), before, sources, (0, 0)):
                found.add(one.name)
    return found


FEW = 5_000
"""So few records of a whole log are processed sooner than the state behind them is looked up."""
BODIES_PART = 4
"""The fraction of `Limits/SnapshotMemory` that the bodies which are taken from the log may have."""


class KnownPlace(NamedTuple):
    """A place of the log from which on a conflated topic or a view is known; at a start of the
    server that has ended its windows, its place in what it has sent too."""

    moment: Moment
    is_start: bool


class ReplayStarts:
    """What is kept of the past of the topics of one engine, whose log is `journal`. `checkpoints`
    has what is stored of topics, by the names of their definitions."""

    def __init__(self, engine: Engine, journal: Log, checkpoints: Mapping[str, Checkpoint]) -> None:
        self.checkpoints = checkpoints
        self._engine = engine
        self.log = CurrentLog(journal, engine.sequencer)
        """The log with what is on its way to the disk: an answer leaves when that is durable."""
        self._reached: tuple[str, Sequence[InForceSince], Reach] | None = None
        """What is in reach of the topic that was requested last."""

    @property
    def _bodies_max(self) -> int:
        return self._engine.configuration.limits.snapshot_bytes_max // BODIES_PART

    def _logged(self, topic: LiveTopic, source: LiveTopic) -> Task[None]:
        """The steps after which the log has all of what a topic is made of."""
        if not source.is_logged:
            of = "" if source is topic else f" is made of {source.name}, which"
            raise ClientError(
                f"topic {topic.name}{of} has no log, so only its present state can be read"
            )
        if self._engine.atomic.readable(source) is None:
            yield from self._engine.atomic.finish_before(source.name)
        while self.log.misses_load(self._engine.seq):
            yield

    def _present(self, topic: LiveTopic, seq: int) -> Task[Present]:
        """What a topic holds, as of `seq` or later."""
        atomic, queries = self._engine.atomic, self._engine.queries
        while True:
            records, newest = atomic.readable(topic), atomic.seq_of(topic)
            if atomic.concerns((topic.name,)) and (records is None or newest < seq):
                yield from atomic.finish_before(topic.name)
            elif self.log.misses_load(newest):
                yield
            else:
                break
        now = Present.take(*queries.shown_of(topic))
        yield
        yield from now.settle()
        return now

    # What a History keeps.

    def _kept(self, topic: LiveTopic) -> list[KeptCheckpoint]:
        """The checkpoints that are kept of a topic, with the log behind them, the oldest first."""
        checkpoint, before = self.checkpoints.get(topic.stored_as), self.log.first_seq - 1
        return [] if checkpoint is None else [one for one in checkpoint.kept if one.seq >= before]

    def _base(self, topic: LiveTopic, bookmark: int) -> Base | None:
        """The last checkpoint from which the state at a bookmark follows, if one is kept."""
        fitting = [one for one in self._kept(topic) if one.exact_seq <= bookmark]
        if not fitting:
            return None

        def slices() -> Iterator[Slice]:
            for found in self.checkpoints[topic.stored_as].load_kept(fitting[-1]):
                # Also where it has none: the topics of a pattern share a checkpoint.
                parts = dict(topic_slices(topic.stored_as, topic.pattern, found))
                yield parts.get(topic.name, found.at((), str))

        return Base(fitting[-1].seq, slices())

    # What conflated topics and views are made of.

    def _sources(self, topic: LiveTopic) -> list[LiveTopic]:
        """The topics with a log that a topic is made of, or was."""
        topics = self._engine.topics
        return [topics[name] for name in self._reach(topic).sources if name in topics]

    def _reach(self, topic: LiveTopic) -> Reach:
        history = self._engine.configurations.all()
        if self._reached is None or self._reached[:2] != (topic.name, history):
            reach = Reach([one.configuration for one in history], (topic.name,))
            self._reached = topic.name, history, reach
        return self._reached[2]

    # Places.

    def _near(
        self, topic: LiveTopic, moment: Moment, is_stamped: bool
    ) -> Task[StartingState | None]:
        """What there was at the last place before a moment at which open windows are kept."""
        reach, engine = self._reach(topic), self._engine
        if not isinstance(reach.topics, set) or (is_stamped and reach.has_views):
            return None
        if moment.seq < self._least_seq:
            return None
        history = engine.configurations.all()
        return (
            yield from newest_state(
                history, reach, engine.configuration, self.checkpoints, self.log, moment
            )
        )

    @property
    def _least_seq(self) -> int:
        """The record before which a place is not worth to be looked for. Of a log without its
        beginning any place says more than that there is none."""
        first_seq = self.log.first_seq
        return first_seq + FEW if is_whole(self.log) else first_seq - 1

    def _places(
        self, topic: LiveTopic, moment: Moment, before: Moment, is_stamped: bool, with_pauses: bool
    ) -> Task[list[KnownPlace]]:
        """Places before one from which on everything is certain, if they are not near the beginning
        of the log. A pause is of use only if something was sent since, since the places in what was
        sent depend on that (`Replay.has_sent`)."""
        reach, history = self._reach(topic), self._engine.configurations.all()
        least = self._least_seq
        if not isinstance(reach.topics, set) or moment.seq < least:
            return []
        ended = [one for one in history if one.is_start and not one.goes_on]
        starts = [KnownPlace(Moment(one.seq, one.time_us), True) for one in ended]
        found = [one for one in starts if one.moment < before and one.moment <= moment]
        if with_pauses and not reach.merges and not (is_stamped and reach.has_views):
            place: Moment | None = moment
            if reach.lag_us:
                changed_us = [one.time_us for one in history]
                behind = Moment(before.seq, moment.time_us)
                place = yield from pause_before(
                    behind, self.log, reach.topics, reach.lag_us, changed_us
                )
            if place is not None:
                found.append(KnownPlace(place, False))
        return [
            one
            for one in found
            if one.moment.seq >= least and self._is_stored_alike(reach, one.moment)
        ]

    def _is_stored_alike(self, reach: Reach, place: Moment) -> bool:
        """Whether what is stored of what is below, and the log, say what it was at a place."""
        engine = self._engine
        if not all(name in engine.topics for name in reach.sources):
            return False
        history = engine.configurations.all()
        return are_stored_alike(history, engine.configuration, reach.sources, place)

    def _states(self, topic: LiveTopic, place: Moment) -> Task[StartingState | None]:
        """What there was at a place of what a topic is made of; None where that is not known, or
        takes too much."""
        stored = dict[str, list[Slice]]()
        for source in self._sources(topic):
            now = yield from self._present(source, place.seq)
            base, bytes_max = self._base(source, place.seq), self._bodies_max
            try:
                parts = yield from slices_as_of(now, place.seq, self.log, bytes_max, base)
            except (NotKept, TooLarge):
                return None
            for part in parts:
                stored.setdefault(source.stored_as, []).append(named_in(source, part))
        records = {name: HeldRecords(place.seq, parts) for name, parts in stored.items()}
        return StartingState(place.seq, place.time_us, records)

    def _oldest(self, topic: LiveTopic, moment: Moment) -> Task[StartingState]:
        """What there was at the oldest record that is kept, as far as nothing has changed since.

        All else has to be in the log before the windows that were open at the moment began: else
        the answer would be a guess. Raises ClientError then.
        """
        stored = dict[str, list[Slice]]()
        nows = dict[LiveTopic, Present]()
        if not is_whole(self.log):
            for source in self._sources(topic):
                nows[source] = yield from self._present(source, moment.seq)
        oldest = self.log.first_seq - 1
        if nows:
            since_us = moment.time_us - self._reach(topic).lag_us
            known_seq = min(moment.seq, max(oldest, last_before(since_us, self.log)))
            for source, now in nows.items():
                yield from check_known(now, known_seq, self.log)
                for part in (yield from unchanged_since(now, oldest)):
                    stored.setdefault(source.stored_as, []).append(named_in(source, part))
        records = {name: HeldRecords(oldest, parts) for name, parts in stored.items()}
        return StartingState(oldest, 0, records)
