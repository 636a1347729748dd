"""The past: what a query would have been answered at a bookmark or a time that has gone by.

A state is worked out from the log (`sow.history.snapshot_as_of`), and then asked like the present
one: by filter and keys, in an order, a page of it. No index knows the past, so every record of the
state is looked at. Each state reads the log from its beginning, so few are worked out at a time and
the others wait. Snapshots and answers over HTTP both come from here.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np

from sow.core.clock import SECOND_US
from sow.core.cooperative import Result, Task
from sow.engine.engine import Engine
from sow.engine.running_topics import LiveTopic
from sow.errors import Busy, ClientError, NotKept, clipped
from sow.history.bookmarks import is_time, moment_us, parse_start
from sow.history.snapshot import Snapshot
from sow.history.snapshot_as_of import Present, as_of, narrowed, ordered
from sow.query import Query
from sow.query.query import SCAN, PlanStep, QueryAnswer
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.query_execution import QueryResult

AS_OF_AT_ONCE = 2
"""States of the past that are worked out at once: each reads the log from its beginning."""
AS_OF_WAITING_MAX = 20
"""Those that may wait for their turn: whoever is behind more would give up waiting first."""
FROM_LOG = "log"
"""What has served a query of the past."""


class AsOfQueries:
    """States of the past of one server's topics."""

    def __init__(self, driver: ServerRuntime, engine: Engine) -> None:
        self._driver = driver
        self._engine = engine
        self._working = asyncio.Semaphore(AS_OF_AT_ONCE)
        self._waiting = 0

    async def ask(
        self,
        name: str,
        moment: str,
        query: Query,
        bytes_max: int,
        admit: Callable[[int], None] = lambda _rows: None,
    ) -> QueryResult:
        """What a query names of the topic `name` as it was at `moment`: a bookmark or a time.

        `bytes_max` bounds what is taken from the log. `admit` is told how many rows there are, and
        raises what speaks against it. Raises UnknownTopic, ClientError for what the log does not
        know any more, TooLarge, Busy where too many wait, and StoreError.
        """
        topic = self._engine.topic(name)
        if not topic.is_logged:
            raise ClientError(f"topic {name} has no log, so only its present state can be read")
        self._engine.queries.checked(name, query)
        if self._waiting >= AS_OF_WAITING_MAX:
            raise Busy(f"{AS_OF_WAITING_MAX} states of the past are being worked out; try later")
        self._waiting += 1
        try:
            async with self._working:
                now = await self._in_turns(self._present(topic))
                await self._driver.durable()
                bookmark = self._bookmark(moment, now.newest)
                journal = self._driver.journal
                then = await self._in_turns(as_of(now, bookmark, journal, bytes_max))
                return await self._in_turns(_answer(then, query, bookmark, admit))
        finally:
            self._waiting -= 1

    def _bookmark(self, moment: str, newest: int) -> int:
        """The newest change at a moment; raises ClientError for what is none, and NotKept, with the
        moments that there are, for one that the log does not tell of."""
        journal, now_us = self._driver.journal, self._driver.now_us()
        oldest = journal.first_seq - 1
        try:
            _check_come(moment, now_us)
            instead = "a state is of one moment: write a bookmark or a time"
            bookmark = parse_start("as_of", moment, journal, newest, instead)
            _check_sent(moment, bookmark, oldest)
        except NotKept as error:
            first = next(journal.read(oldest), None)
            # A time means all that came before it.
            since_us = now_us if first is None else first.ts_us + (oldest > 0)
            error.told = {
                "oldest": {"bookmark": str(oldest), "time": _time(since_us)},
                "newest": {"bookmark": str(newest), "time": _time(now_us)},
            }
            raise
        return bookmark

    async def _in_turns(self, steps: Task[Result]) -> Result:
        return await self._driver.turns.run("a state of the past", steps)

    def _present(self, topic: LiveTopic) -> Task[Present]:
        yield from self._engine.undivided.finish_before(topic.name)
        now = Present.take(topic.records, self._engine.seq)
        yield
        yield from now.settle()
        return now


def _check_come(moment: str, now_us: int) -> None:
    """Raise NotKept for a time that has not come: nobody knows what will be then."""
    time_us = moment_us(moment.strip())
    if is_time(moment) and time_us is not None and time_us > now_us:
        raise NotKept(
            f"as_of={clipped(moment.strip())} has not come yet: it is {_time(now_us)} now; write "
            "a time up to that"
        )


def _time(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / SECOND_US, UTC).isoformat().replace("+00:00", "Z")


def _check_sent(moment: str, bookmark: int, oldest: int) -> None:
    """Raise NotKept for a time before all that is left of a log, of which record `oldest` was
    the last to go: how things were after that is known, and not since when."""
    if oldest and bookmark <= oldest and is_time(moment):
        raise NotKept(
            f"as_of={moment.strip()}: the log no longer tells how things were at that time; the "
            f"oldest moment it tells of is bookmark {oldest}"
        )


def _answer(
    then: Snapshot, query: Query, bookmark: int, admit: Callable[[int], None]
) -> Task[QueryResult]:
    """What a query names of a state."""
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
    """How it was found; there are no slots in the past."""
    steps = [PlanStep(f"as_of={bookmark}", FROM_LOG, rows)]
    if query.filter is not None:
        steps.append(PlanStep(query.filter.text, SCAN, matches))
    advice = "" if rows == matches else "no index knows the past: all its records were looked at"
    looked_at = np.arange(rows)
    return QueryAnswer(looked_at[:0], matches, tuple(steps), looked_at, advice)
