"""Queries as of a bookmark or a time in the past.

The past state is computed from the log (`sow.history.snapshot_as_of`) and then queried like the
present one: filter, keys, order, page. Indexes cover only the present, so every record of the state
is scanned. Computing a state reads the log from its beginning, or for a topic with a History from
the last checkpoint before the moment that it keeps. So a few run at a time and the others wait.
Used by queries and by snapshots.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import numpy as np

from sow.core.clock import SECOND_US
from sow.core.cooperative import Result, Task
from sow.engine import stored_topics
from sow.engine.engine import Engine
from sow.engine.running_topics import LiveTopic
from sow.errors import Busy, ClientError, NotKept, clipped
from sow.history.bookmarks import is_time, moment_us, parse_start
from sow.history.snapshot import Snapshot
from sow.history.snapshot_as_of import Base, Present, as_of, bodies_as_of, narrowed, ordered
from sow.query import Query
from sow.query.query import SCAN, PlanStep, QueryAnswer
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.queries.query_results import QueryResult
from sow.store.protocols import KeptCheckpoint
from sow.store.sharded_dict import ShardedDict

AS_OF_AT_ONCE = 2
"""States computed at once: each reads the log from its beginning."""
AS_OF_WAITING_MAX = 20
"""Queries that may wait for their turn: a client behind more would time out first."""
FROM_LOG = "log"
"""The access path that a plan names for a past state."""


class AsOfQueries:
    """As-of queries on the topics of one server."""

    def __init__(self, runtime: ServerRuntime, engine: Engine) -> None:
        self._runtime = runtime
        self._engine = engine
        self._working = asyncio.Semaphore(AS_OF_AT_ONCE)
        self._waiting = 0

    async def query(
        self,
        name: str,
        moment: str,
        query: Query,
        bytes_max: int,
        admit: Callable[[int], None] = lambda _rows: None,
    ) -> QueryResult:
        """The result of a query on the topic `name` as of `moment`: a bookmark or a time.

        `bytes_max` bounds the bytes taken from the log. `admit` is called with the number of rows,
        and raises if there is no room for them. Raises UnknownTopic, ClientError (NotKept for a
        moment that the log no longer covers), TooLarge, Busy if too many wait, and StoreError.
        """
        topic = self._engine.topic(name)
        if not topic.is_logged:
            raise ClientError(f"topic {name} has no log, so only its present state can be read")
        self._engine.queries.checked(name, query)
        async with self._turn():
            now = await self._in_turns(self._present(topic))
            await self._runtime.durable()
            try:
                bookmark = self._bookmark(topic, moment, now.newest)
                journal, base = self._runtime.journal, self._base(topic, bookmark)
                then = await self._in_turns(as_of(now, bookmark, journal, bytes_max, base))
            except NotKept as error:
                error.bounds = self._bounds(topic, now.newest)
                raise
            return await self._in_turns(_answer(then, query, bookmark, admit))

    async def bodies(
        self, topic: LiveTopic, bookmark: int, bytes_max: int
    ) -> ShardedDict[str, bytes]:
        """The bodies of a logged topic at a bookmark of its log, by identity. Raises ClientError
        where the log does not reach back to them, TooLarge, Busy, and StoreError."""
        async with self._turn():
            now = await self._in_turns(self._present(topic))
            await self._runtime.durable()
            journal, base = self._runtime.journal, self._base(topic, bookmark)
            return await self._in_turns(bodies_as_of(now, bookmark, journal, bytes_max, base))

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """A turn to compute a past state; raises Busy if too many wait for one."""
        if self._waiting >= AS_OF_WAITING_MAX:
            raise Busy(f"{AS_OF_WAITING_MAX} past states are being computed; try later")
        self._waiting += 1
        try:
            async with self._working:
                yield
        finally:
            self._waiting -= 1

    def _bookmark(self, topic: LiveTopic, moment: str, newest: int) -> int:
        """The newest change at a moment; raises ClientError for an invalid one, and NotKept for one
        that is not kept."""
        journal = self._runtime.journal
        _check_come(moment, self._runtime.now_us())
        instead = "a state is of one moment: write a bookmark or a time"
        bookmark = parse_start("as_of", moment, journal, newest, instead)
        _check_sent(moment, bookmark, journal.first_seq - 1, self._kept(topic))
        return bookmark

    def _kept(self, topic: LiveTopic) -> list[KeptCheckpoint]:
        """The checkpoints that History keeps of a topic, with the log behind them."""
        checkpoint = self._runtime.checkpoints.get(topic.stored_as)
        before = self._runtime.journal.first_seq - 1
        return [] if checkpoint is None else [one for one in checkpoint.kept if one.seq >= before]

    def _base(self, topic: LiveTopic, bookmark: int) -> Base | None:
        """The last checkpoint from which the state at a bookmark follows, if one is kept."""
        fitting = [one for one in self._kept(topic) if one.exact_seq <= bookmark]
        if not fitting:
            return None
        slices = (
            part
            for found in self._runtime.checkpoints[topic.stored_as].load_kept(fitting[-1])
            for name, part in stored_topics.topic_slices(topic.stored_as, topic.pattern, found)
            if name == topic.name
        )
        return Base(fitting[-1].seq, slices)

    def _bounds(self, topic: LiveTopic, newest: int) -> dict[str, object]:
        """The oldest and the newest moment whose state of a topic is known."""
        journal, now_us = self._runtime.journal, self._runtime.now_us()
        oldest, kept = journal.first_seq - 1, self._kept(topic)
        if oldest and kept:
            oldest, since_us = kept[0].exact_seq, kept[0].exact_us + 1
        else:
            first = next(journal.read(oldest), None)
            # A time includes everything before it.
            since_us = now_us if first is None else first.ts_us + (oldest > 0)
        return {
            "oldest": {"bookmark": str(oldest), "time": _time(since_us)},
            "newest": {"bookmark": str(newest), "time": _time(now_us)},
        }

    async def _in_turns(self, steps: Task[Result]) -> Result:
        return await self._runtime.turns.run("a state of the past", steps)

    def _present(self, topic: LiveTopic) -> Task[Present]:
        yield from self._engine.atomic.finish_before(topic.name)
        now = Present.take(topic.records, self._engine.seq)
        yield
        yield from now.settle()
        return now


def _check_come(moment: str, now_us: int) -> None:
    """Raise NotKept for a time in the future."""
    time_us = moment_us(moment.strip())
    if is_time(moment) and time_us is not None and time_us > now_us:
        raise NotKept(
            f"as_of={clipped(moment.strip())} is in the future: it is {_time(now_us)} now; write "
            "a time up to that"
        )


def _time(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / SECOND_US, UTC).isoformat().replace("+00:00", "Z")


def _check_sent(moment: str, bookmark: int, oldest: int, kept: Sequence[KeptCheckpoint]) -> None:
    """Raise NotKept for a time before what is left of the log. `oldest` is the last entry that was
    removed: the state after it is known, but not since when, unless a checkpoint that is kept says
    so."""
    if oldest and bookmark <= oldest and is_time(moment):
        time_us = moment_us(moment.strip()) or 0
        if not any(one.exact_seq <= bookmark and one.exact_us < time_us for one in kept):
            raise NotKept(
                f"as_of={moment.strip()}: the log no longer covers that time; the oldest moment it "
                f"covers is bookmark {kept[0].exact_seq if kept else oldest}"
            )


def _answer(
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
