"""The checkpointer keeps restarts short and the journal bounded.

A topic is checkpointed when the journal has grown since its last checkpoint by as much as the topic
holds (and at least by a minimum): like rewriting a log whenever it has doubled, so the work is
proportional to what was published. The copy is made in slices between other work and written in a
thread; it is *fuzzy*, each record as of when its slice was cut, and replaying the log corrects that
(`Engine.restore`). Then the journal drops what retention no longer keeps.

For the History of a topic checkpoints are kept, at least its Granularity apart, and the log behind
the newest one that is older than its Window: from these `sow.history.snapshot_as_of` computes every
state since. Others are kept where a replay may begin. All others are forgotten. Only on a full disk
publishes go first.

Without room for it a checkpoint is not started: it would use up what others need. The contents of
indexes are left out unless there is ample room: they only save start time. On a full disk a topic
is checkpointed as soon as its remaining records fit into the reserve, and then the log is trimmed
up to the oldest checkpoint, whatever retention says: so deletes alone make room.

Replay places are where open windows are kept, so that a replay of a conflated topic need not begin
with the log (`sow.sessions.queries.replay_starts`). So much is logged between two of them that a
replay of it takes a second or so, and so much more than the topics hold that all places together
are a part of the log. What is open is pinned in one step, behind a flush, and written in a thread.
Where nothing is conflated that the log has, or the disk has no room for it, nothing is kept.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from sow.core.definitions import Configuration, ConflatedTopic, History, Topic, is_persistent
from sow.engine.following import Windows, count_waiting, pinned_windows
from sow.engine.recovery import redo
from sow.engine.replay import Reach
from sow.errors import SowError, clipped
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.commands.consumers import ConsumerPatience
from sow.store.log_indexes import seal_windows
from sow.store.protocols import Checkpoint, OpenWindows, Slice, WindowsPlace

log = logging.getLogger("sow")

CHECK_S = 1.0
"""Interval of checks whether a topic has grown: at the highest rates `GROWTH_BYTES_MIN` takes about
as long."""
GROWTH_BYTES_MIN = 64 * 1024**2
"""A shorter log is replayed in about a second, so it needs no checkpoint."""
SLICE_SLOTS = 1000
"""Records that are copied at once: about a millisecond, then other work runs."""
KEPT_MAX = 200
"""Checkpoints that are kept in the Window of a History, whatever its Granularity, and replay places
with records: each is a copy of the topics, and only saves time."""
PLENTY_FACTOR = 4
"""Index contents are written if this many times the bytes of the records are free: each index may
contain every value once, and the records themselves take up to twice."""


class Checkpointer:
    """Checkpoints of one server's topics, by name: `checkpoints`.

    `trim` drops entries of the journal: it is given the time in microseconds, the first record to
    keep and whether to go beyond retention, and returns whether there is more to drop.
    `growth_bytes_min` is the least growth of the log, in bytes, for a checkpoint. `replayed_bytes`
    is what the start had to replay: it counts as growth already, so that the log after the
    checkpoints stays short however often a server is restarted. Behind the records that `followers`
    returns, by their addresses, the log is kept as for consumers. `is_reloading` says whether
    topics are being changed.
    """

    def __init__(
        self,
        runtime: ServerRuntime,
        checkpoints: Mapping[str, Checkpoint],
        trim: Callable[[int, int, bool], bool],
        replayed_bytes: int = 0,
        growth_bytes_min: int = GROWTH_BYTES_MIN,
        followers: Callable[[], Mapping[str, int]] = dict,
        is_reloading: Callable[[], bool] = lambda: False,
    ) -> None:
        self._runtime = runtime
        self._checkpoints = checkpoints
        self._trim = trim
        self._growth_bytes_min = growth_bytes_min
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._written_at_bytes = dict.fromkeys(checkpoints, -replayed_bytes)
        """Those that a reload adds have none before their first."""
        self._task: asyncio.Task[None] | None = None
        self._followers = followers
        self._patience = ConsumerPatience(runtime.engine, runtime.now_us(), log.warning)
        self._is_strained = False
        self._failure: str | None = None
        self._without_room: set[str] = set()
        """Topics whose lack of room was logged."""
        self._known: Configuration | None = None
        """The configuration that the histories are of."""
        self._histories: dict[str, History] = {}
        self._places = ReplayPlaces(runtime, checkpoints, is_reloading)
        self._placed: Collection[str] = ()
        """Topics whose checkpoints are kept since a replay may begin there."""
        self._is_cut = False
        """The disk was full, and History has not again all that it wants."""

    def start(self) -> None:
        """Start watching the journal grow."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def failure(self) -> str | None:
        """Why the last checkpoint could not be written, until one is."""
        lacking = self._without_room & self._checkpoints.keys()
        if self._failure is None and lacking:
            return f"the disk has no room for one of {clipped(min(lacking))}"
        return self._failure

    async def close(self) -> None:
        """Stop; a checkpoint that is being written is abandoned, and the previous one stays."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                disk = self._runtime.engine.disk
                self._placed = self._places.names if self._places.is_due() else ()
                grown = await (self._smaller() if disk.is_full else self._grown())
                for name in grown:
                    await self.write(name)
                if self._placed and not disk.is_full:
                    await self._places.keep()
                await self._forget()
                # The disk may have filled while one was written, and nothing may come after it.
                await self._drop_old(beyond=disk.is_full and bool(grown))
                self._failure = None
            except SowError as error:
                self._failure = error.detail
                log.error("checkpoint: %s", error.detail)
                await asyncio.sleep(10 * CHECK_S)

    async def _grown(self) -> list[str]:
        runtime, found = self._runtime, []
        for name in [*self._checkpoints]:
            grown_bytes = runtime.commit.bytes_logged - self._written_at_bytes.get(name, 0)
            is_due, is_long = self._is_due(name), grown_bytes > self._growth_bytes_min
            if is_due or is_long or name in self._placed:
                stored_bytes = await self._stored_bytes(name, "looking what has grown")
                is_wanted = is_due or (is_long and grown_bytes > stored_bytes)
                fits = _fits(runtime, stored_bytes)
                if fits and (is_wanted or name in self._placed):
                    found.append(name)
                if is_wanted and not fits:
                    self._report_no_room(name, stored_bytes)
        return found

    async def _stored_bytes(self, name: str, why: str) -> int:
        steps = redo.stored_bytes(self._runtime.engine.catalog, name)
        return await self._runtime.turns.run(why, steps)

    def _report_no_room(self, name: str, stored_bytes: int) -> None:
        if name not in self._without_room:
            self._without_room.add(name)
            log.error(
                "checkpoint: the disk has no room for one of %s, of about %d bytes; the old one "
                "stands, and the log grows until there is",
                clipped(name),
                stored_bytes,
            )

    def _has_plenty(self, stored_bytes: int) -> bool:
        runtime = self._runtime
        is_full = runtime.engine.disk.is_full
        return not is_full and PLENTY_FACTOR * stored_bytes < runtime.journal.room_bytes

    async def _smaller(self) -> list[str]:
        """Topics that have changed since their checkpoint, and that fit into what is left of a full
        disk beside what deleting everything takes."""
        runtime, found = self._runtime, []
        for name, checkpoint in [*self._checkpoints.items()]:
            if checkpoint.seq < runtime.engine.atomic.whole_seq:
                stored_bytes = await self._stored_bytes(name, "looking what fits")
                if runtime.journal.takes(stored_bytes + runtime.engine.catalog.usage.named_bytes):
                    found.append(name)
        return found

    async def write(self, name: str) -> None:
        """Checkpoint the topic `name` now; raises StoreError when it cannot be written."""
        stored_bytes = await self._stored_bytes(name, "looking what fits")
        known, disk = self._has_plenty(stored_bytes), self._runtime.engine.disk
        with disk.keep_free(stored_bytes):
            await self._write(name, known)

    async def _write(self, name: str, known: bool) -> None:
        """Checkpoint a topic, with what its indexes have `known`."""
        loop = asyncio.get_running_loop()
        engine, checkpoint = self._runtime.engine, self._checkpoints[name]
        # Everything up to here is in the table and, once the group is stored, in the journal.
        seq, at_bytes = engine.atomic.whole_seq, self._runtime.commit.bytes_logged
        await self._runtime.durable()
        abandoned = asyncio.Event()
        moments: list[tuple[int, int]] = []

        records = redo.stored_slices(engine.catalog, name, SLICE_SLOTS, known)

        def slices() -> Iterator[Slice]:
            while not abandoned.is_set():
                cut = asyncio.run_coroutine_threadsafe(self._next(records), loop).result()
                if cut is None:
                    moments.append((engine.seq, max(engine.now_us, self._runtime.now_us())))
                    # A slice may hold records newer than the journal has stored. Only when it has
                    # caught up may the checkpoint count, or a crash could leave it ahead.
                    asyncio.run_coroutine_threadsafe(self._runtime.durable(), loop).result()
                    return
                yield cut
            raise SowError("abandoned")

        def exact() -> tuple[int, int] | None:
            is_kept = name in self._placed or self._is_spaced(name, moments[0][1])
            return moments[0] if is_kept else None

        writing = loop.run_in_executor(self._thread, checkpoint.write, seq, slices(), exact)
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            abandoned.set()
            await asyncio.gather(writing, return_exceptions=True)
            raise
        self._written_at_bytes[name] = at_bytes
        self._without_room.discard(name)

    async def _drop_old(self, beyond: bool = False) -> None:
        """Drop entries of the journal that all checkpoints contain and retention does not keep, or
        keeps, if `beyond`."""
        if beyond:
            log.warning(
                "the disk is full, and records were deleted: of the log all goes that checkpoints "
                "hold, also what retention wants, so that there is room again"
            )
        while await self._runtime.commit.run_in_thread(
            self._trim, self._runtime.now_us(), self._keep_from_seq(), beyond
        ):
            pass

    def _keep_from_seq(self) -> int:
        runtime = self._runtime
        kept = [checkpoint.seq for checkpoint in self._checkpoints.values()]
        waited_for = dict(self._patience.waited_for(runtime.now_us(), runtime.clock.stepped_us))
        waited_for |= self._followers()
        is_strained = bool(waited_for) and runtime.journal.is_strained()
        if is_strained and not self._is_strained:
            log.warning(
                "the log that is kept for consumers beyond RetentionSize is more than the disk has "
                "room left: it is no longer kept for them (%s) while that is so",
                clipped(", ".join(waited_for)),
            )
        self._is_strained = is_strained
        kept += () if is_strained else waited_for.values()
        return min([*kept, *self._behind_histories()], default=runtime.engine.seq) + 1

    # Histories.

    def _history(self, name: str) -> History | None:
        """The History of a definition, as of the configuration in force."""
        configuration = self._runtime.engine.configuration
        if configuration is not self._known:
            topics = [one for one in configuration.topics if isinstance(one, Topic)]
            self._histories = {one.name: one.history for one in topics if one.history is not None}
            self._known = configuration
        return self._histories.get(name)

    def _is_spaced(self, name: str, now_us: int) -> bool:
        """Whether a checkpoint as of now is to be kept."""
        history, kept = self._history(name), self._checkpoints[name].kept
        if history is None:
            return False
        apart_us = max(history.granularity_us, history.window_us // KEPT_MAX)
        return not kept or now_us - kept[-1].exact_us >= apart_us

    def _is_due(self, name: str) -> bool:
        """Whether one is to be written for that, as something has come since the last."""
        kept = self._checkpoints[name].kept
        is_behind = not kept or kept[-1].seq < self._runtime.engine.atomic.whole_seq
        return self._is_spaced(name, self._runtime.now_us()) and is_behind

    def _needed(self, name: str) -> tuple[int, bool]:
        """How many of the oldest that are kept no moment of the Window needs, and whether what is
        left reaches back to its beginning."""
        history, kept = self._history(name), self._checkpoints[name].kept
        base_seq = self._runtime.journal.first_seq - 1
        cut = sum(one.seq < base_seq for one in kept)  # those have no log behind them
        if history is None:
            return max(len(kept) - self._places.needed(name), cut), True
        since_us = self._runtime.now_us() - history.window_us
        old = sum(one.exact_us < since_us for one in kept)
        return max(old - 1, cut), old > cut

    async def _forget(self) -> None:
        """Forget the checkpoints that no History needs."""
        loop = asyncio.get_running_loop()
        for name, checkpoint in [*self._checkpoints.items()]:
            if count := self._needed(name)[0]:
                await loop.run_in_executor(self._thread, checkpoint.forget, count)

    def _behind_histories(self) -> list[int]:
        """The record behind which each History needs the log; on a full disk none does."""
        runtime, are_whole = self._runtime, True
        found: list[int] = []
        for name, checkpoint in self._checkpoints.items():
            if self._history(name) is not None:
                count, reaches_back = self._needed(name)
                # Until one is as old as the Window, all of the log that is there may be needed.
                before = runtime.journal.first_seq - 1
                found.append(checkpoint.kept[count].seq if reaches_back else before)
                are_whole &= reaches_back
        is_cut = bool(found) and runtime.engine.disk.is_full
        if is_cut and not self._is_cut:
            log.warning(
                "the disk is full: the log that History keeps beyond RetentionSize goes for what "
                "is published, and the past of its topics begins later (%s)",
                clipped(", ".join(self._histories)),
            )
        if is_cut or are_whole:
            self._is_cut = is_cut
        return [] if is_cut else found

    async def _next(self, records: Iterator[Slice]) -> Slice | None:
        """The next slice, cut on the loop that changes the records; None after the last one."""
        with self._runtime.watched("cutting a checkpoint"):
            return next(records, None)


def _fits(runtime: ServerRuntime, size_bytes: int) -> bool:
    """Whether a file of this size leaves the disk room to delete everything."""
    return size_bytes + runtime.engine.catalog.usage.named_bytes < runtime.journal.room_bytes


RECORDS_MIN = 50_000
"""Records of the log between two places: some tenths of a second of a replay."""
RECORDS_FACTOR = 5
"""And so many for each record that the topics hold: each place is a copy of them."""
WAITING_MAX = 50_000
"""Records in open windows, beyond which nothing is kept: to pin so many takes some 20 ms."""
PATIENCE_S = 5.0
"""How long a moment between two turns is waited for: where the server is late so long, what is open
is kept later."""
NAME = "keeping open windows"


class _Pinned(NamedTuple):
    """What is open after record `seq` at a time; None where it is too much."""

    seq: int
    time_us: int
    make: Callable[[], list[Windows]] | None


class ReplayPlaces:
    """The places that one server keeps. `is_reloading` says whether topics are being changed."""

    def __init__(
        self,
        runtime: ServerRuntime,
        checkpoints: Mapping[str, Checkpoint],
        is_reloading: Callable[[], bool] = lambda: False,
    ) -> None:
        self._runtime = runtime
        self._checkpoints = checkpoints
        self._windows = runtime.journal.windows
        self._is_reloading = is_reloading
        self._known: Configuration | None = None
        self._names: Sequence[str] = ()
        places = self._windows.places
        self._seq = places[-1].seq if places else 0

    @property
    def names(self) -> Sequence[str]:
        """The stored definitions that conflated topics are made of."""
        configuration = self._runtime.engine.configuration
        if configuration is not self._known:
            self._known, self._names = configuration, _conflated(configuration)
        return [name for name in self._names if name in self._checkpoints]

    def is_due(self) -> bool:
        """Whether so much has been logged that another one is to be kept."""
        if not (names := self.names):
            return False
        rows = sum(self._checkpoints[name].records for name in names)
        return self._runtime.engine.seq - self._seq > max(RECORDS_MIN, RECORDS_FACTOR * rows)

    def needed(self, name: str) -> int:
        """How many checkpoints of a definition are kept for places, the newest ones."""
        return KEPT_MAX if name in self.names else 0

    async def keep(self) -> None:
        """Keep what is open now, once checkpoints have the records; raises StoreError."""
        runtime = self._runtime
        self._seq = runtime.engine.seq
        found: asyncio.Future[_Pinned] = runtime.loop.create_future()

        def look(_now_us: int) -> None:
            if not found.done() and self._is_between_turns():
                found.set_result(self._pinned())

        runtime.flush_work[NAME] = look
        try:
            runtime.wake()
            async with asyncio.timeout(PATIENCE_S):
                seq, time_us, make = await found
        except TimeoutError:
            return
        finally:
            del runtime.flush_work[NAME]
        if make is not None:
            await runtime.durable()
            block = await asyncio.to_thread(lambda: seal_windows(OpenWindows(seq, time_us, make())))
            if _fits(runtime, len(block)):
                with runtime.engine.disk.keep_free(len(block)):
                    place = WindowsPlace(seq, time_us)
                    await asyncio.to_thread(self._windows.put, place, block)

    def _is_between_turns(self) -> bool:
        engine = self._runtime.engine
        is_changing = engine.atomic.topic is not None or any(
            topic.records.is_changing for topic in engine.catalog
        )
        return not (self._is_reloading() or engine.has_work or is_changing)

    def _pinned(self) -> _Pinned:
        engine = self._runtime.engine
        make = None if count_waiting(engine) > WAITING_MAX else pinned_windows(engine)
        return _Pinned(engine.seq, engine.now_us, make)


def _conflated(configuration: Configuration) -> list[str]:
    """The stored definitions that some conflated topic is made of."""
    copies = {one.name for one in configuration.topics if isinstance(one, ConflatedTopic)}
    reach = Reach([configuration], copies)
    return [
        one.name
        for one in configuration.topics
        if isinstance(one, Topic) and one.name in reach.definitions and is_persistent(one)
    ]
