"""Past states: what a topic held at a moment, and queries of that.

The past state of a topic is looked up in the log (`sow.history.snapshot_as_of`); conflated topics
and views are computed from it again (`sow.engine.replay`). Then it is queried like the present one:
filter, keys, order, page. Indexes cover only the present, so every record of the state is scanned.
Computing a state may read the log from its beginning, or for a topic with a History from the last
checkpoint before the moment that it keeps. So one is computed at a time, by all that
wait; the others wait in line, however they were requested.

Where a replay begins is another matter (`sow.sessions.queries.replay_starts`).
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np

from sow.core.containers import ShardedDict
from sow.core.cooperative import RESTS, Result, SharedTask, Task
from sow.engine.engine import Engine
from sow.engine.queries import place_of
from sow.engine.replay import Replay, Sent, StartingState
from sow.engine.running_topics import LiveTopic, SourceTopic
from sow.errors import Busy, NotKept, StoreError, UnknownTopic, invalid_bookmark
from sow.history.bookmarks import Moment, covered, parse_moment
from sow.history.snapshot import Snapshot
from sow.history.snapshot_as_of import as_of, bodies_as_of, narrowed, ordered
from sow.query import Query
from sow.query.query import SCAN, PlanStep, QueryAnswer
from sow.sessions.queries.query_results import QueryResult
from sow.sessions.queries.replay_starts import KnownPlace, ReplayStarts
from sow.store.protocols import Checkpoint, Log, LogEntry
from sow.topic.batch import Batch

NEAR = 500_000
"""Where open windows are kept so few records before a moment, no other place is looked for: these
are processed in some seconds, and a search may read all of the log."""
PAUSES_TRIED = 2
"""Of a conflated topic that has sent nothing since a pause the one before it is tried, and then
none: each costs as much as the first."""
AS_OF_WAITING_MAX = 20
"""Queries that may wait for their turn: a client behind more would time out first."""
FROM_LOG = "log"
"""The access path that a plan names for a past state."""


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


class PastStates(ReplayStarts):
    """The past of the topics of one engine, whose log is `journal`. `checkpoints` has what is
    stored of topics, by the names of their definitions."""

    def __init__(self, engine: Engine, journal: Log, checkpoints: Mapping[str, Checkpoint]) -> None:
        super().__init__(engine, journal, checkpoints)
        self._line: deque[_Computation[object]] = deque()

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
        return self.in_line(self._of_what_is_kept(steps, topic))

    def bodies(
        self, topic: LiveTopic, bookmark: int, bytes_max: int, waits: bool = False
    ) -> Task[ShardedDict[str, bytes]]:
        """The bodies of a logged topic at a bookmark of its log, by identity. Raises ClientError
        where the log does not reach back to them, TooLarge, Busy, and StoreError."""
        steps = partial(self._bodies, topic, bookmark, bytes_max)
        return self.in_line(self._of_what_is_kept(steps, topic), waits)

    def listen(self, name: str, text: str, listener: ReplayListener) -> Task[Moment]:
        """Compute the topic `name` again, up to a bookmark or a time, for a listener; returns the
        moment. Raises what `query` does."""
        topic = self._engine.topic(name)
        return self.in_line(
            self._of_what_is_kept(partial(self._listen, topic, text, listener), topic)
        )

    def replay_to(
        self, topic: LiveTopic, moment: Moment, look: Callable[[Replay], object]
    ) -> Task[Replay]:
        """A replay of a conflated topic or a view that has come to a moment, and goes on from
        there; `look` is called with it after each step. Who begins it has to free it. Raises what
        `query` does, but for Busy: a session does nothing else meanwhile."""
        steps = partial(self._arrived, topic, moment, is_stamped=False, look=look)
        return self.in_line(self._of_what_is_kept(steps, topic), waits=True)

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

    def _of_what_is_kept(self, make: Callable[[], Task[Result]], topic: LiveTopic) -> Task[Result]:
        """Take the steps; where retention removes meanwhile what they were to read first, once
        more, with what is kept then. A refusal names the range that is kept."""
        while True:
            first_seq = self.log.first_seq
            try:
                return (yield from make())
            except StoreError:
                if self.log.first_seq == first_seq:
                    raise
            except NotKept as error:
                self.name_range(error, topic)
                raise

    def name_range(self, error: NotKept, topic: LiveTopic | None = None) -> None:
        """Say in a refusal which moments of a topic, or of the log, can be requested."""
        log, kept = self.log, [] if topic is None else self._kept(topic)
        error.bounds = error.bounds or covered(log, log.last_seq, self._engine.now_us, kept)

    def _query(
        self,
        topic: LiveTopic,
        text: str,
        query: Query,
        admit: Callable[[int], None],
        is_stamped: bool,
    ) -> Task[QueryResult]:
        moment = yield from self._when(topic, text)
        then, place = yield from self._then(topic, moment, is_stamped)
        found = yield from answered(then, query, moment.seq, admit)
        return found._replace(place=place)

    def _when(self, topic: LiveTopic, text: str) -> Task[Moment]:
        """The moment that a text names, once the log has all that there is of a topic."""
        sources = [topic] if isinstance(topic, SourceTopic) else self._sources(topic)
        for source in sources:
            yield from self._logged(topic, source)
        return self.moment(topic, text, self.log.last_seq)

    def _then(
        self, topic: LiveTopic, moment: Moment, is_stamped: bool
    ) -> Task[tuple[Snapshot, int | None]]:
        """The records of a topic as of a moment, and the place of that."""
        if isinstance(topic, SourceTopic):
            now = yield from self._present(topic, moment.seq)
            base = self._base(topic, moment.seq)
            then = yield from as_of(now, moment.seq, self.log, self._bodies_max, base)
            return then, None
        return (yield from self._replayed(topic, moment, is_stamped))

    def _bodies(
        self, topic: LiveTopic, bookmark: int, bytes_max: int
    ) -> Task[ShardedDict[str, bytes]]:
        now = yield from self._present(topic, bookmark)
        base = self._base(topic, bookmark)
        return (yield from bodies_as_of(now, bookmark, self.log, bytes_max, base))

    def _listen(self, topic: LiveTopic, text: str, listener: ReplayListener) -> Task[Moment]:
        moment = yield from self._when(topic, text)
        start = yield from self._oldest(topic, moment)
        replay = self.replay(topic, start, listener.hear)
        with self._let_go(replay):
            yield from replay.advance(Moment(start.seq, start.time_us))
            listener.begin(replay)
            for _ in replay.advance(moment):
                listener.look()
                yield
            listener.end()
        return moment

    # Moments.

    def moment(self, topic: LiveTopic, text: str, newest: int) -> Moment:
        """The moment of a topic that a text names, `newest` being that of its newest change; raises
        ClientError, and NotKept with the range that is kept."""
        kept = self._kept(topic)
        return parse_moment("as_of", text, self.log, newest, self._engine.now_us, kept)

    # Conflated topics and views.

    def _replayed(
        self, topic: LiveTopic, moment: Moment, is_stamped: bool
    ) -> Task[tuple[Snapshot, int]]:
        """The records of a conflated topic or a view as of a moment, and the place of that."""
        replay = yield from self._arrived(topic, moment, is_stamped)
        with self._let_go(replay):
            try:
                then = yield from replay.state(topic.name)
                there = replay.topic(topic.name)
                place = place_of(there, replay.engine.topics, moment.seq, moment.time_us)
            except UnknownTopic:
                raise invalid_bookmark(
                    f"there was no topic {topic.name} at that moment; choose a later one"
                ) from None
        return replace(then, topic=topic.records), place

    def _arrived(
        self,
        topic: LiveTopic,
        moment: Moment,
        is_stamped: bool,
        look: Callable[[Replay], object] = lambda _replay: None,
    ) -> Task[Replay]:
        """A replay that has come to a moment. Rows of views have the bookmarks and times of then if
        they are `is_stamped`."""
        for source in self._sources(topic):
            yield from self._logged(topic, source)
        before, tried = moment, 0
        near = yield from self._near(topic, moment, is_stamped)
        while True:
            places = list[KnownPlace]()
            if near is None or moment.seq - near.seq > NEAR:
                is_tried = tried < PAUSES_TRIED
                places = yield from self._places(topic, moment, before, is_stamped, is_tried)
            if near is not None:
                places = [one for one in places if one.moment > (near.seq, near.time_us)]
            place, start = max(places, default=None), None
            if place is not None:
                start = yield from self._states(topic, place.moment)
            is_known = place is None or place.is_start or start is None
            if start is None:
                start = near or (yield from self._oldest(topic, moment))
            replay = self.replay(topic, start, is_stamped=is_stamped)
            try:
                for _ in replay.advance(moment):
                    look(replay)
                    yield
                if place is None or is_known or replay.has_sent:
                    return replay
            except BaseException:
                self._free(replay)
                raise
            self._free(replay)
            before, tried = place.moment, tried + 1

    @contextmanager
    def _let_go(self, replay: Replay) -> Iterator[None]:
        """Free a replay in steps, also if it fails, or nobody waits for it any more."""
        try:
            yield
        finally:
            self._free(replay)

    def _free(self, replay: Replay) -> None:
        if self._engine.timers.go_on(replay.emptying()):
            self._engine.notify_work()

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
