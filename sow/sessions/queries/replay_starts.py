"""Where a replay of a conflated topic or a view begins, and what is kept of the topics below.

A replay begins as near to a moment as what follows is certain: where the log has kept what was open
(`sow.engine.replay_places`); at a start of the server that has ended all windows; where no window
was open, since none of what is below had changed for so long; of views of plain topics at the
moment itself, but for the bookmarks and times of their rows. There the state of what is below is
looked up. Which windows are open depends on all changes before them, and so does what a conflated
topic merges: without such a place it begins with the log.

It computes no replay, and answers nothing (`sow.sessions.queries.past_states`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sow.core.cooperative import Task
from sow.engine.configurations import InForceSince
from sow.engine.engine import Engine
from sow.engine.recovery.redo import named_in, topic_slices
from sow.engine.replay import HeldRecords, Reach, StartingState
from sow.engine.replay_places import are_stored_alike, newest_state
from sow.engine.running_topics import LiveTopic
from sow.engine.wal import CurrentLog
from sow.errors import ClientError, NotKept, TooLarge
from sow.history.bookmarks import Moment, last_before, pause_before
from sow.history.snapshot_as_of import Base, Present, check_known, slices_as_of, unchanged_since
from sow.store.protocols import Checkpoint, KeptCheckpoint, Log, Slice, is_whole

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
