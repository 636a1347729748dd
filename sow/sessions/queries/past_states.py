"""Past states: what a topic held at a moment, and queries of that.

The past state of a topic is looked up in the log (`sow.history.snapshot_as_of`); conflated topics
and views are computed from it again (`sow.engine.replay`). Then it is queried like the present one:
filter, keys, order, page. Indexes cover only the present, so every record of the state is scanned.
Computing a state may read the log from its beginning, or for a topic with a History from the last
checkpoint before the moment that it keeps. So one is computed at a time, by all that
wait; the others wait in line, however they were requested.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np

from sow.core.cooperative import RESTS, Result, SharedTask, Task
from sow.engine.configuration_history import InForceSince
from sow.engine.engine import Engine
from sow.engine.queries import place_of
from sow.engine.replay import HeldRecords, Reach, Replay, Sent, StartingState
from sow.engine.running_topics import LiveTopic, SourceTopic
from sow.engine.stored_topics import named_in, topic_slices
from sow.engine.wal import CurrentLog
from sow.errors import Busy, ClientError, NotKept, StoreError, UnknownTopic
from sow.history.bookmarks import Moment, covered, last_before, parse_moment
from sow.history.snapshot import Snapshot
from sow.history.snapshot_as_of import (
    Base,
    Present,
    as_of,
    bodies_as_of,
    check_known,
    narrowed,
    ordered,
    slices_as_of,
    unchanged_since,
)
from sow.query import Query
from sow.query.query import SCAN, PlanStep, QueryAnswer
from sow.sessions.queries.query_results import QueryResult
from sow.store.protocols import Checkpoint, KeptCheckpoint, Log, LogEntry, Slice
from sow.store.sharded_dict import ShardedDict
from sow.topic.batch import Batch

AS_OF_WAITING_MAX = 20
"""Queries that may wait for their turn: a client behind more would time out first."""
BODIES_PART = 4
"""The fraction of `Limits/SnapshotMemory` that the bodies which are taken from the log may have."""
FROM_LOG = "log"
"""The access path that a plan names for a past state."""
Presents = Mapping[LiveTopic, Present]


class _Computation(SharedTask[Result]):
    """One in line."""

    taken = 0
    """How many steps were taken."""

    def step(self) -> None:
        """Take a step, and count it."""
        self.taken += 1
        super().step()


class ReplayListener(Protocol):
    """Follows a topic while it is computed again."""

    def begin(self, replay: Replay) -> None:
        """The replay stands where it begins."""
        ...

    def hear(self, topic: LiveTopic, batch: Batch) -> None:
        """The topic, or one that it is made of, has changed; also before the beginning."""
        ...

    def look(self) -> None:
        """A step has been taken."""
        ...

    def end(self) -> None:
        """The replay has come to the moment."""
        ...


class PastStates:
    """The past of the topics of one engine, whose log is `journal`. `checkpoints` has what is
    stored of topics, by the names of their definitions."""

    def __init__(self, engine: Engine, journal: Log, checkpoints: Mapping[str, Checkpoint]) -> None:
        self.checkpoints = checkpoints
        self._engine = engine
        self.log = CurrentLog(journal, engine.sequencer)
        """The log with what is on its way to the disk: an answer leaves when that is durable."""
        self._line: deque[_Computation[object]] = deque()
        self._reached: tuple[str, Sequence[InForceSince], Reach] | None = None
        """What is in reach of the topic that was requested last."""

    def query(
        self,
        name: str,
        text: str,
        query: Query,
        admit: Callable[[int], None] = lambda _rows: None,
        is_stamped: bool = True,
    ) -> Task[QueryResult]:
        """The result of a query on the topic `name` as of a bookmark or a time.

        `admit` is called with the number of rows, and raises if there is no room for them. If it is
        not to be `is_stamped`, bookmarks and times of rows need not be those of then. Raises
        UnknownTopic, ClientError (NotKept for a moment that the log no longer covers), TooLarge,
        Busy if too many wait, and StoreError.
        """
        topic = self._engine.topic(name)
        self._engine.queries.checked(name, query)
        stamped = is_stamped or _looks_at_stamps(query)
        steps = partial(self._query, topic, text, query, admit, stamped)
        return self.in_line(self._of_what_is_kept(steps))

    def bodies(
        self, topic: LiveTopic, bookmark: int, bytes_max: int, waits: bool = False
    ) -> Task[ShardedDict[str, bytes]]:
        """The bodies of a logged topic at a bookmark of its log, by identity. Raises ClientError
        where the log does not reach back to them, TooLarge, Busy, and StoreError."""
        return self.in_line(self._bodies(topic, bookmark, bytes_max), waits)

    def listen(self, name: str, text: str, listener: ReplayListener) -> Task[Moment]:
        """Compute the topic `name` again, up to a bookmark or a time, for a listener; returns the
        moment. Raises what `query` does."""
        return self.in_line(self._listen(self._engine.topic(name), text, listener))

    def in_line(self, steps: Task[Result], waits: bool = False) -> Task[Result]:
        """Run the steps when all before are done: where nobody else takes their steps, they are
        taken here. So all who wait have the time of one. Raises Busy if too many wait, unless it
        `waits`: a session does nothing else meanwhile."""
        line = self._line
        if len(line) > AS_OF_WAITING_MAX and not waits:
            raise Busy(f"{AS_OF_WAITING_MAX} past states are being computed; try later")
        one: _Computation[Result] = _Computation(steps)
        line.append(one)  # type: ignore[arg-type]
        seen: tuple[object, int] | None = None
        try:
            while not one.is_over:
                first, is_own = line[0], line[0] is one
                if is_own or seen is None or seen == (first, first.taken):
                    first.step()
                    if first.is_over:
                        line.popleft()
                seen = first, first.taken
                yield None if is_own else RESTS
        finally:
            if not one.is_over:
                line.remove(one)  # type: ignore[arg-type]
                steps.close()
        return one.result()

    def _of_what_is_kept(self, make: Callable[[], Task[Result]]) -> Task[Result]:
        """Take the steps; where retention removes meanwhile what they were to read first, once
        more, with what is kept then."""
        while True:
            first_seq = self.log.first_seq
            try:
                return (yield from make())
            except StoreError:
                if self.log.first_seq == first_seq:
                    raise

    def _query(
        self,
        topic: LiveTopic,
        text: str,
        query: Query,
        admit: Callable[[int], None],
        is_stamped: bool,
    ) -> Task[QueryResult]:
        is_filled = not is_stamped and not self._reach(topic).lag_us
        nows = yield from self._presents(topic, is_filled)
        newest = min([now.newest for now in nows.values()], default=self.log.last_seq)
        moment = self.moment(topic, text, newest)
        try:
            then, place = yield from self._then(topic, moment, nows, is_filled, is_stamped)
        except NotKept as error:
            kept, now_us = self._kept(topic), self._engine.now_us
            error.bounds = covered(self.log, newest, now_us, kept)
            raise
        found = yield from answered(then, query, moment.seq, admit)
        return found._replace(place=place)

    def _then(
        self, topic: LiveTopic, moment: Moment, nows: Presents, is_filled: bool, is_stamped: bool
    ) -> Task[tuple[Snapshot, int | None]]:
        """The records of a topic as of a moment, and the place of that."""
        bytes_max = self._engine.configuration.limits.snapshot_bytes_max // BODIES_PART
        if topic in nows:
            base = self._base(topic, moment.seq)
            then = yield from as_of(nows[topic], moment.seq, self.log, bytes_max, base)
            return then, None
        if is_filled:
            start = yield from self._states(moment, nows, bytes_max)
        else:
            start = yield from self.start(topic, moment, nows)
        return (yield from self._replayed(topic, moment, start, is_stamped))

    def _bodies(
        self, topic: LiveTopic, bookmark: int, bytes_max: int
    ) -> Task[ShardedDict[str, bytes]]:
        now = yield from self._present(topic)
        base = self._base(topic, bookmark)
        return (yield from bodies_as_of(now, bookmark, self.log, bytes_max, base))

    def _listen(self, topic: LiveTopic, text: str, listener: ReplayListener) -> Task[Moment]:
        nows = yield from self._presents(topic, is_filled=False)
        moment = parse_moment("as_of", text, self.log, self.log.last_seq, self._engine.now_us)
        start = yield from self.start(topic, moment, nows)
        replay = self.replay(topic, start, listener.hear)
        with self._let_go(replay):
            yield from replay.advance(Moment(start.seq, start.time_us))
            listener.begin(replay)
            for _ in replay.advance(moment):
                listener.look()
                yield
            listener.end()
        return moment

    def _present(self, topic: LiveTopic) -> Task[Present]:
        engine = self._engine
        yield from engine.atomic.finish_before(topic.name)
        while self.log.misses_load:
            yield
        now = Present.take(topic.records, engine.seq)
        yield
        yield from now.settle()
        return now

    # What a History keeps.

    def moment(self, topic: LiveTopic, text: str, newest: int) -> Moment:
        """The moment of a topic that a text names, `newest` being that of its newest change; raises
        ClientError, and NotKept with the range that is kept."""
        kept = self._kept(topic)
        return parse_moment("as_of", text, self.log, newest, self._engine.now_us, kept)

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

    # Conflated topics and views.

    def _presents(self, topic: LiveTopic, is_filled: bool) -> Task[Presents]:
        """The present state of what a past state is made from: of a logged topic itself; of others
        what they are made of, unless the log has all of that, and it is not `is_filled` with what
        that was at the moment."""
        nows: dict[LiveTopic, Present] = {}
        sources = [topic] if isinstance(topic, SourceTopic) else self._sources(topic)
        for source in sources:
            if not source.is_logged:
                of = "" if source is topic else f" is made of {source.name}, which"
                raise ClientError(
                    f"topic {topic.name}{of} has no log, so only its present state can be read"
                )
            if source is topic or is_filled or self.log.first_seq > 1:
                nows[source] = yield from self._present(source)
        return nows

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

    def _states(self, moment: Moment, nows: Presents, bytes_max: int) -> Task[StartingState]:
        """What there was at a moment. Views of that have the rows of then, in their order, though
        not their bookmarks and times, and need not be computed from the beginning of the log."""
        stored = dict[str, list[Slice]]()
        for source, now in nows.items():
            base = self._base(source, moment.seq)
            for part in (yield from slices_as_of(now, moment.seq, self.log, bytes_max, base)):
                stored.setdefault(source.stored_as, []).append(named_in(source, part))
        records = {name: HeldRecords(moment.seq, parts) for name, parts in stored.items()}
        return StartingState(moment.seq, moment.time_us, records)

    def _replayed(
        self, topic: LiveTopic, moment: Moment, start: StartingState, is_stamped: bool
    ) -> Task[tuple[Snapshot, int]]:
        """The records of a conflated topic or a view as of a moment, and the place of that."""
        replay = self.replay(topic, start, is_stamped=is_stamped)
        with self._let_go(replay):
            yield from replay.advance(moment)
            try:
                then = yield from replay.state(topic.name)
                there = replay.topic(topic.name)
                place = place_of(there, replay.engine.topics, moment.seq, moment.time_us)
            except UnknownTopic:
                raise ClientError(
                    f"there was no topic {topic.name} at that moment; choose a later one",
                    reason="invalid bookmark",
                ) from None
        return replace(then, topic=topic.records), place

    @contextmanager
    def _let_go(self, replay: Replay) -> Iterator[None]:
        """Free a replay in steps, also if it fails, or nobody waits for it any more."""
        try:
            yield
        finally:
            if self._engine.timers.go_on(replay.emptying()):
                self._engine.notify_work()

    def beginning(self, topic: LiveTopic, moment: Moment) -> Task[StartingState]:
        """What a replay of a conflated topic or a view up to a moment begins with."""
        nows = yield from self._presents(topic, is_filled=False)
        return (yield from self.start(topic, moment, nows))

    def start(self, topic: LiveTopic, moment: Moment, nows: Presents) -> Task[StartingState]:
        """What there was at the oldest record that is kept, as far as nothing has changed since.

        All else has to be in the log before the windows that were open at the moment began: else
        the answer would be a guess. Raises ClientError then.
        """
        oldest, stored = self.log.first_seq - 1, dict[str, list[Slice]]()
        if nows:
            since_us = moment.time_us - self._reach(topic).lag_us
            known_seq = min(moment.seq, max(oldest, last_before(since_us, self.log)))
            for source, now in nows.items():
                yield from check_known(now, known_seq, self.log)
                for part in (yield from unchanged_since(now, oldest)):
                    stored.setdefault(source.stored_as, []).append(named_in(source, part))
        records = {name: HeldRecords(oldest, parts) for name, parts in stored.items()}
        return StartingState(oldest, 0, records)

    def replay(
        self,
        topic: LiveTopic,
        start: StartingState,
        sent: Sent | None = None,
        is_stamped: bool = True,
    ) -> Replay:
        """What computes a topic again from a starting state on. It may take as much memory as all
        records do now, or Limits/SnapshotMemory if that is more."""
        engine = self._engine
        limits, used_bytes = engine.configuration.limits, engine.catalog.usage.bytes
        return Replay(
            engine.configurations.all(),
            (topic.name,),
            self.log,
            start,
            owns=self._owns,
            sent=sent,
            bytes_max=max(limits.snapshot_bytes_max, used_bytes),
            is_stamped=is_stamped,
        )

    def _owns(self, entry: LogEntry) -> bool:
        topic = self._engine.topics.get(entry.topic)
        return topic is None or topic.records.has_logged(entry)


def _looks_at_stamps(query: Query) -> bool:
    """Whether a query may depend on more than the bodies of records."""
    return bool(query.filter and query.filter.traits) or any(one.traits for one in query.order_by)


def answered(
    then: Snapshot, query: Query, bookmark: int, admit: Callable[[int], None]
) -> Task[QueryResult]:
    """The result of a query on a state."""
    found = yield from narrowed(then, query.filter, query.keys)
    matches = len(found)
    page = slice(query.skip_n, query.end)
    admit(len(range(matches)[page]))
    if query.order_by:
        found = yield from ordered(found, query.order_by)
    if page != slice(0, None):
        found = yield from found.picking(np.arange(matches)[page])
        yield from found.settle()
    return QueryResult(_explained(len(then), matches, query, bookmark), found, bookmark)


def _explained(rows: int, matches: int, query: Query, bookmark: int) -> QueryAnswer:
    """The plan of the query; a past state has no slots."""
    steps = [PlanStep((f"as_of={bookmark}",), FROM_LOG, rows)]
    if query.filter is not None:
        steps.append(PlanStep((query.filter.text,), SCAN, matches))
    advice = "" if rows == matches else "no index covers the past: all its records were scanned"
    looked_at = np.arange(rows)
    return QueryAnswer(looked_at[:0], matches, tuple(steps), looked_at, advice)
