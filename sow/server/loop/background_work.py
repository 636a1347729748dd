"""Background work on the loop: what falls due, conflation of slow clients' queues, cache sweeps,
the fan-out of a commit to very many sessions, waiting requests, garbage collection, long filters.

Each of the first may have very much to do at one moment: a million records expire, a hundred slow
clients have queues of ten thousand updates, as many compiled filters are unused, or ten thousand
sessions have messages, at some twenty microseconds a send. It is done in bounded steps, and other
work runs in between.

`GcPacing` decides when Python's cycle collector runs and how many objects it examines. Nearly every
object here is freed as soon as its last reference goes. Reference cycles are found by the collector
alone, which blocks everything while it examines containers: about a microsecond for each. So it
never examines many at a time:

    young    ──> between two pieces of work (`look`), the objects made in the last `EVERY_US`, and
                 once more; by Python itself only after `YOUNG_OBJECTS` allocations
    old      ──> at the same moments, when a few thousand have gathered
    settled  ──> old objects that survive probably stay: they are frozen and not examined again

Python by itself would wait longer: it counts allocations less deallocations, whichever objects
these were, so where old objects go as new ones come a hundred thousand are young before it runs.

Entries are examined as well: of one dictionary that grows to a million, or of a few hundred lists
of a load. Old objects that have many together are frozen without being examined.

Long-lived objects that go away, such as a client or a topic, leave no cycles
(tests/edge/test_circles.py checks this for clients), so frozen objects are freed when they go. If
they are not, the number of frozen objects exceeds by a million what is plausible, and all are
examined once; unless topics, sessions and views account for them, which would block for seconds for
nothing. Long lists that stay are never tracked (`sow.core.cooperative`).

Long filters are compiled in a thread before they are used, which may take tens of milliseconds
(`compile_beside`). The result, or the error, is kept in the engine's filter cache, where the
request that uses it finds it. The same holds for row policies, alone and combined with a filter:
the conditions of roles can be very long. Nothing here raises for a bad filter.

Requests that wait until the server has reached a bookmark, or a time of its log, are released in
order, some at a time, as commits become durable and time passes. When the server stops they are
refused at once: what they wait for may never come, and the end of a server waits for its requests.
Who may wait, and for how long, is decided by the request (`sow.server.http.preconditions`).
"""

import asyncio
import gc
import itertools
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from sow.core.containers import Histogram, sweep
from sow.core.cooperative import Task
from sow.core.security_definitions import OF_TOPICS
from sow.engine.catalog import Catalog
from sow.engine.engine import Engine
from sow.engine.queries import FilterCache
from sow.errors import Busy, ClientError, NotReached
from sow.expressions import Filter, access_of
from sow.security.authorization import Demand, Permissions
from sow.security.row_level_security import RowPolicy
from sow.server.loop.scheduler import FairScheduler, LoopLatency
from sow.sessions.commands.session_manager import SessionManager
from sow.streaming.sessions import Session


class DueTimers:
    """Processes what is due in `engine` as work of the scheduler `turns`; `now_us` returns the
    time."""

    name = "what falls due"

    def __init__(self, engine: Engine, turns: FairScheduler, now_us: Callable[[], int]) -> None:
        self._engine = engine
        self._turns = turns
        self._now_us = now_us
        self._loop = asyncio.get_running_loop()
        self._steps: Task[None] | None = None

    def begin(self) -> None:
        """Something is due; a run may be queued already."""
        self._turns.add(self)

    def go_on(self, until_s: float) -> bool:
        """Process timers until `until_s` (loop time); returns whether there is more."""
        while True:
            steps, self._steps = self._steps or self._engine.fall_due(self._now_us()), None
            for _ in steps:
                if self._loop.time() >= until_s:
                    self._steps = steps
                    return True
            due_us = self._engine.due_us()
            if due_us is None or due_us > self._engine.now_us:
                return False


class BackgroundConflation:
    """Conflates queues of `sessions` as work of the scheduler `turns`; `now_us` returns the
    time."""

    name = "folding queues"

    def __init__(
        self, sessions: SessionManager, turns: FairScheduler, now_us: Callable[[], int]
    ) -> None:
        self._sessions = sessions
        self._now_us = now_us
        self._loop = asyncio.get_running_loop()
        sessions.on_backlog(lambda: turns.add(self))

    def go_on(self, until_s: float) -> bool:
        """Conflate until `until_s` (loop time); returns whether there is more."""
        while self._sessions.fold_some(self._now_us()):
            if self._loop.time() >= until_s:
                return True
        return False


SWEEP_S = 25.0
"""Time between two sweeps: with two of them an unused entry is freed within a minute."""


class CacheSweeper:
    """Sweeps until it is closed; reports the duration of each step to `watch`."""

    def __init__(self, watch: LoopLatency) -> None:
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(SWEEP_S, self._begin)

    def _begin(self) -> None:
        self._go_on(sweep())

    def _go_on(self, steps: Iterator[None]) -> None:
        began_s = self._loop.time()
        if next(steps, self) is self:
            self._next = self._loop.call_later(SWEEP_S, self._begin)
        else:
            self._next = self._loop.call_later(0, self._go_on, steps)
        self._watch.note("letting go of filters", self._loop.time() - began_s)

    def close(self) -> None:
        """Stop sweeping."""
        self._next.cancel()


EXPIRED_S = 1.0
"""So long sessions of a follower may outlive their credentials; a look costs nanoseconds each."""


class ExpiredLogons:
    """Ends sessions of a follower whose credentials have expired at `now_us`, until it is closed.
    Its timers go by the time of the log, which stands still while the primary is lost."""

    def __init__(self, sessions: SessionManager, now_us: Callable[[], int]) -> None:
        self._sessions = sessions
        self._now_us = now_us
        self._loop = asyncio.get_running_loop()
        self._look()

    def _look(self) -> None:
        self._sessions.bar_expired(self._now_us())
        self._next = self._loop.call_later(EXPIRED_S, self._look)

    def close(self) -> None:
        """Look no more."""
        self._next.cancel()


WRITTEN_AT_ONCE = 100
"""Sessions written to in the step of the commit itself: two milliseconds."""
WRITTEN_BETWEEN_LOOKS = 10
"""Sessions between two checks of the time: a fifth of a millisecond."""


class FanoutWriter:
    """Writes to each session with pending messages, as work of the scheduler `turns`: to a hundred
    at once, to the others in slices. A session that waits here while more messages arrive gets all
    of them in one write. `now_us` returns the time."""

    name = "writing"

    def __init__(self, turns: FairScheduler, now_us: Callable[[], int]) -> None:
        self._turns = turns
        self._now_us = now_us
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Session, float | None] = {}
        """Sessions still to be written to, with the loop time of their first pending message; None
        where it is not known. While there are any this is queued in `turns`."""
        self.times = Histogram()
        """Latency from the flush that produced a message until it was handed to the session's
        socket."""

    def begin(self, sessions: Iterable[Session], begun_s: float | None) -> None:
        """These sessions have pending messages, since `begun_s` of the loop's time."""
        left = iter(sessions)
        try:
            if not self._waiting:
                self._write_now(islice(left, WRITTEN_AT_ONCE), begun_s)
        finally:
            # Those behind them, and behind one that has failed.
            for session in left:
                self._waiting.setdefault(session, begun_s)
            self._queue_up()

    def _write_now(self, sessions: Iterable[Session], begun_s: float | None) -> None:
        now_us, count = self._now_us(), 0
        for session in sessions:
            session.write(now_us)
            count += 1
        if begun_s is not None and count:
            self.times.note(self._loop.time() - begun_s, count)

    def _queue_up(self) -> None:
        if self._waiting:
            self._turns.add(self)

    def go_on(self, until_s: float) -> bool:
        """Write until `until_s` (loop time); returns whether there is more."""
        try:
            while self._waiting:
                self._write_some(WRITTEN_BETWEEN_LOOKS)
                if self._loop.time() >= until_s:
                    break
        finally:
            self._queue_up()  # also after one has failed
        return bool(self._waiting)

    def finish(self) -> None:
        """Write to all waiting sessions."""
        self._write_some(len(self._waiting))

    def _write_some(self, count: int) -> None:
        noted: dict[float, int] = {}
        now_us = self._now_us()
        while self._waiting and count:
            count -= 1
            session = next(iter(self._waiting))
            begun_s = self._waiting.pop(session)
            session.write(now_us)
            if begun_s is not None:
                noted[begun_s] = noted.get(begun_s, 0) + 1
        for begun_s, session_count in noted.items():
            self.times.note(self._loop.time() - begun_s, session_count)


YOUNG_OBJECTS = 2_000
"""Live allocations after which Python examines the youngest generation: a millisecond."""
EVERY_US = 10_000
"""Time between two collections of the young generation: some thousand objects, in a millisecond; on
an idle server a thousandth of the time."""
YOUNG_PASSES = 2
"""Young collections after which their survivors are examined together."""
NEVER = 1_000_000_000
"""Collections after which Python would run a full one by itself, at any moment."""
OLD_OBJECTS = 2_000
"""Old objects that are enough for a collection, some milliseconds with the younger ones."""
MANY_OBJECTS = 10_000
"""More old objects than this came at once, from an import or a large answer, and stay: they are
frozen without being examined."""
ENTRIES = 100_000
"""What old objects may have in them to be examined, some milliseconds: few lists of a load have
millions, since each has as many as a step takes. A growing dictionary, such as a window of pending
updates, is frozen before it has many more."""
SIZED = frozenset({list, dict, set, frozenset, tuple, deque})
"""What has entries that a collection visits."""
SETTLED_OBJECTS = 1_000_000
"""Frozen objects beyond those that survived the last full collection, after which another one is
made: some 100 MB. It takes a second, and happens only where garbage is not freed."""


SESSION_OBJECTS = 200
"""Python objects of a session with its socket and a few subscriptions."""
QUEUED_OBJECT_BYTES = 32
"""Queue memory for each Python object that waits there, at least: more are not plausible."""


def objects_max(catalog: Catalog, sessions: SessionManager) -> int:
    """How many long-lived objects are plausible: of topics, sessions and what waits for them."""
    waiting = sessions.memory.used // QUEUED_OBJECT_BYTES
    return catalog.objects_max() + SESSION_OBJECTS * len(sessions) + waiting


class GcPacing:
    """Controls the collector of this process from `begin` on; `expected` returns how many objects
    are plausible beside those that survived."""

    def __init__(self, expected: Callable[[], int]) -> None:
        self._expected = expected
        self._looked_us = 0
        self._passes = 0
        self._settled = 0
        """Objects frozen since `_frozen_max` was determined, freed ones included."""
        self._frozen_max = 0
        """Upper bound of the number of frozen objects."""
        self._stayed = 0
        """Survivors of the last full collection."""

    def begin(self) -> None:
        """Freeze everything allocated so far."""
        gc.set_threshold(YOUNG_OBJECTS, YOUNG_PASSES, NEVER)
        gc.freeze()
        self._stayed = self._frozen_max = gc.get_freeze_count()

    def look(self, now_us: int) -> bool:
        """Collect young objects, and old ones if there are enough, unless that was done a moment
        ago; returns False: there is no more work. Call it between any two pieces of work."""
        if abs(now_us - self._looked_us) >= EVERY_US:  # the clock may have been set back
            self._looked_us = now_us
            gc.collect(gc.get_count()[1] >= YOUNG_PASSES)
            self._look_through_old()
        return False

    def _look_through_old(self) -> None:
        passes = gc.get_count()[2]
        if passes != self._passes:  # objects have become old
            self._passes = passes
            count = len(gc.get_objects(generation=2))
            if count < OLD_OBJECTS:
                return  # fifty times a second: their entries are looked at once they are enough
            if count > MANY_OBJECTS or _entries_of_old() > ENTRIES:
                self._settled += count
                gc.freeze()
            else:
                self._collect()

    def _collect(self) -> None:
        gc.collect()
        self._settled += len(gc.get_objects(generation=2))
        gc.freeze()
        self._passes = 0
        if self._settled > SETTLED_OBJECTS:
            self._frozen_max, self._settled = self._frozen_max + self._settled, 0
            believed = 2 * self._stayed + SETTLED_OBJECTS + self._expected()
            if self._frozen_max > believed:
                # Counting visits all of them.
                self._frozen_max = gc.get_freeze_count()
                if self._frozen_max > believed:
                    self._collect_all()

    def _collect_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._stayed = self._frozen_max = gc.get_freeze_count()


def _entries_of_old() -> int:
    """The number of entries in old objects; holds no reference to them afterwards."""
    # A list, and not a generator: none of our code runs for each of them.
    return sum(map(len, [one for one in gc.get_objects(generation=2) if type(one) in SIZED]))


Guarded = tuple[RowPolicy, str | None]
"""A row policy, and the filter of the request that it is combined with, if any."""

LONG_FILTER_CHARS = 4 * 1024
"""A filter longer than this is compiled in a thread: it may take 50 milliseconds."""


def long_among(filters: FilterCache, texts: Iterable[str | None]) -> list[str]:
    """Those of `texts` that take long to compile and are not cached, each once."""
    return [
        text
        for text in dict.fromkeys(texts)
        if text is not None and len(text) > LONG_FILTER_CHARS and not filters.has(text)
    ]


def guarded_by(rights: Permissions, demand: Demand, topic: str | None) -> RowPolicy | None:
    """The row policy of these rights on a topic for this demand; None: all rows, or the demand is
    not about rows."""
    if rights.is_open or topic is None or demand not in OF_TOPICS:
        return None
    return rights.guard(topic) if demand == "read" else rights.write_guard(topic, demand)


def long_guarded(
    filters: FilterCache, requested: Iterable[tuple[RowPolicy | None, str | None]]
) -> Sequence[Guarded]:
    """Those of `requested` whose combined condition takes long to compile and is not cached."""
    return [
        (guard, text)
        for guard, text in requested
        if guard is not None
        and len(guard.text) > LONG_FILTER_CHARS
        and not guard.is_ready(_filter(filters, text))
    ]


def _filter(filters: FilterCache, text: str | None) -> Filter | None:
    """The filter of a text; None for no text, and for an invalid one, which the request itself
    reports."""
    try:
        return None if text is None else filters.get(text)
    except ClientError:
        return None


async def compile_beside(
    filters: FilterCache, texts: Iterable[str], guarded: Iterable[Guarded] = ()
) -> None:
    """Compile `texts` in a thread, one after the other, then the conditions of `guarded`, and cache
    them."""
    for text in texts:
        filters.keep(text, await asyncio.to_thread(filters.compiled, text))
    for guard, own in guarded:
        await asyncio.to_thread(_make_ready, guard, _filter(filters, own))


def _make_ready(guard: RowPolicy, own: Filter | None) -> None:
    """Combine a row policy with a filter, and find what it is looked up by: of a thousand
    conditions that takes long, too."""
    condition = guard.condition(own)
    if condition is not None:
        access_of(condition)


RELEASED_AT_ONCE = 32
"""Requests that go on in one iteration of the loop: some milliseconds."""

Sought = list[tuple[int, int, asyncio.Future[None]]]
"""What waits for a number: that, a count that no other one has, and what is done then; in order."""


class BookmarkWaits:
    """What waits for `engine` to reach a bookmark or a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._by_seq: Sought = []
        self._by_time: Sought = []
        self._count = itertools.count()
        self._stops = ""
        """Why nothing waits any more."""

    async def reached(self, seq: int, wait_s: float, time_us: int = 0) -> None:
        """Return when all is durable up to bookmark `seq`, and the engine's time is `time_us`;
        raises NotReached after `wait_s`, Busy if the server stops before. A follower's time stands
        still while its primary is away."""
        began_s, engine = self._loop.time(), self._engine
        if engine.sequencer.durable_seq < seq:
            await self._in_order(self._by_seq, seq, wait_s)
        if engine.sequencer.durable_seq >= seq and engine.now_us < time_us:
            left_s = wait_s - (self._loop.time() - began_s)
            await self._in_order(self._by_time, time_us, max(0.0, left_s))
        newest = engine.sequencer.durable_seq
        if newest < seq or engine.now_us < time_us:
            named = f"{seq}.{time_us}" if time_us else str(seq)
            now = f"{newest}, at {engine.now_us}" if time_us else str(newest)
            raise NotReached(
                f"bookmark {named} is not reached within {wait_s:g} s; the newest here is {now}. "
                "Send this again, with a longer wait, or to another server"
            )

    async def _in_order(self, sought: Sought, number: int, wait_s: float) -> None:
        """Wait until a number is reached, for so long at most."""
        if self._stops:
            raise Busy(self._stops)
        waiter: asyncio.Future[None] = self._loop.create_future()
        one = number, next(self._count), waiter
        insort(sought, one)
        try:
            async with asyncio.timeout(wait_s):
                await waiter
        except TimeoutError:
            return
        finally:
            at = bisect_left(sought, one[:2])
            if at < len(sought) and sought[at] is one:
                del sought[at]

    def release(self) -> None:
        """Let those go on whose bookmark or time is reached, some at a time and the earliest first;
        to be called after each commit, and when time has passed without one."""
        if self._by_seq:
            self._release_up_to(self._engine.sequencer.durable_seq, self._by_seq)
        if self._by_time:
            self._release_up_to(self._engine.now_us, self._by_time)

    def _release_up_to(self, reached: int, sought: Sought) -> None:
        for _ in range(min(RELEASED_AT_ONCE, len(sought))):
            if sought[0][0] > reached:
                return
            waiter = sought.pop(0)[-1]
            if not waiter.done():
                waiter.set_result(None)
        if sought and sought[0][0] <= reached:
            self._loop.call_soon(self.release)

    def end(self, why: str) -> None:
        """The server stops: refuse all with Busy and the reason `why`."""
        self._stops = why
        for _, _, waiter in [*self._by_seq, *self._by_time]:
            if not waiter.done():
                waiter.set_exception(Busy(why))
