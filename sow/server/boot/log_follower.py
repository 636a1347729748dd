"""A server of a shared log: it applies what others have appended, and goes on with that as primary.

    a group of the log ──> its entries applied (`Following`), its accounts taken over, both logged
                           here: then the next one
    no group, a beat ────> time passes, up to that of the log
    a reload ────────────> it goes on under that, whatever its own file says
    another start ───────> this server starts again, as copies and views are made again there
    this node leads ─────> once all is applied and stored it goes on as the primary (`LogLead`);
                           where its file has another configuration, it starts again under that
    it leads no more ────> this server starts again from its own disk

Entries are applied under the configuration of then: a server begins under that with which its
directory ends. Its own file comes into force at the end of the log, if its node leads there: that
is a start, which the log has. So all nodes make the same of the same entries, whatever their files
say.

What is applied already is passed over: entries by their numbers, accounts by number and time. So a
process that starts again reads the log from any earlier place.

What a node does while it leads (`LogLead`):

    lead ──────> all of the log is applied and stored: changes of clients are taken from here on,
                 and the log's time goes on by this machine's clock
    no quorum ─> writes are refused until the log stores again; what waits is of unknown outcome
    disk full ─> the node steps down, once for each time that its disk fills: others may have room
    over ──────> another node leads, and writes are refused with its address; until one does, they
                 are refused as not applied

Nothing starts again when a node begins to lead: sessions, windows and views go on. One that leads
no more may show what is not in the log, so its server starts again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from aiohttp import web

from sow.core.clock import SECOND_US, SharedLogClock, monotonic_us, wall_us
from sow.core.cooperative import Task, run_to_completion
from sow.core.definitions import AUDIT, CONFIGURATIONS, Configuration
from sow.engine.catalog import Catalog
from sow.engine.configurations import InForceSince, fingerprint, with_own
from sow.engine.following import Following, FollowingEngine, with_windows
from sow.errors import LogEnded, LogTrimmed, LogUnanswered, NoQuorum, SowError
from sow.server.api.nodes import Nodes, ServerNode
from sow.server.api.status import StatusHandler
from sow.server.boot.followed_directory import held_in
from sow.server.boot.follower import Adopt, ended
from sow.server.boot.log_copy import NodeReports, check_goes_on
from sow.server.http.preconditions import Heard, Moments
from sow.server.loop.log_checkpoint import CheckpointKeeper
from sow.server.loop.log_driver import LogDriver
from sow.server.loop.log_writer import SharedLogThread, entries_read, newest_of, turn_in
from sow.server.loop.runtime import ServerRuntime
from sow.store.protocols import LogEntry, OpenWindows

lead_log = logging.getLogger("sow.log")

NO_QUORUM = "the shared log has stored nothing for a lease"


class LogLead:
    """The lead of a node, once its `driver` has it, and everything before is applied and stored;
    `thread` writes the journal."""

    def __init__(
        self,
        driver: LogDriver,
        engine: FollowingEngine,
        runtime: ServerRuntime,
        clock: SharedLogClock,
        thread: SharedLogThread,
    ) -> None:
        self._driver = driver
        self._engine = engine
        self._runtime = runtime
        self._clock = clock
        self._thread = thread
        self._time_us = 0
        self._refused_us = 0
        self._is_stale = False

    def begins_us(self) -> int:
        """The time of the log with which it would begin now."""
        driver = self._driver
        # Who has heard nobody does not know for how long the log stood still.
        return driver.time_now_us() if driver.has_heard else max(driver.time_us, wall_us())

    def begin(self, now_us: int, is_start: bool) -> None:
        """Lead from here on, after a start under another configuration than the log has or not."""
        driver, engine = self._driver, self._engine
        self._clock.lead(now_us)
        self._report_clock()
        engine.sequencer.moment(now_us)
        self._thread.lead(engine.views.turn)
        engine.lead(self._runtime.journal.first_seq - 1, is_start)
        driver.keep_time(self._log_time_us)
        self._runtime.wake()

    def doubt_s(self) -> int | None:
        """For how many seconds it does not know whether it leads; None: it does."""
        driver = self._driver
        if driver.is_primary and not driver.is_stale:
            return None
        return max(1, -(-driver.silent_us() // SECOND_US))

    def _log_time_us(self) -> int:
        """The time of a beat: nothing that is written later has an earlier one."""
        engine = self._engine
        if engine.is_flushed and not self._runtime.commit.is_collecting:
            self._time_us = engine.sequencer.moment(self._clock.now_us())
        return self._time_us

    def _report_clock(self) -> None:
        refused_us = 0 if self._clock.leading is None else self._clock.leading.refused_us
        if refused_us != self._refused_us:
            self._refused_us = refused_us
            lead_log.warning(
                "the clock of this machine is %.0f s %s the time of the shared log, which goes on "
                "by itself: set the clock",
                abs(refused_us) / SECOND_US,
                "ahead of" if refused_us > 0 else "behind",
            )

    async def run(self) -> None:
        """Lead until the driver does not, and then until another node does."""
        driver = self._driver
        while driver.is_primary and driver.failure is None:
            coming = driver.next()
            self._look()
            await asyncio.wait((coming,), timeout=driver.node.lease_us / SECOND_US)
        while driver.has_led_last and not driver.is_primary and driver.failure is None:
            self._engine.disk.fail(driver.lost_lead())
            await asyncio.shield(driver.next())
        if not driver.is_primary:
            self._engine.follow(driver.address)

    def _look(self) -> None:
        self._report_clock()
        self._give_way_if_full()
        if self._driver.is_stale != self._is_stale:
            self._is_stale = not self._is_stale
            self._lose_quorum() if self._is_stale else self._find_quorum()

    def _give_way_if_full(self) -> None:
        runtime = self._runtime
        is_full = not runtime.journal.has_room(self._engine.catalog.usage.named_bytes)
        if is_full and not self._driver.gave_way:
            lead_log.error("the disk of this node is full: it steps down, for others may have room")
            self._driver.step_down()
        self._driver.note_room(not is_full)

    def _lose_quorum(self) -> None:
        lead_log.warning(
            "the shared log stores nothing, writes are refused: %s", self._driver.trouble
        )
        self._engine.disk.fail(NoQuorum(f"{NO_QUORUM}: nothing was applied; send this again"))
        self._runtime.give_up(
            LogUnanswered(
                f"{NO_QUORUM}: whether it will store what was handed over is not known; look "
                "before you send this again"
            )
        )
        self._engine.output.stall(True)

    def _find_quorum(self) -> None:
        lead_log.warning("the shared log stores again: writes are taken")
        self._engine.output.stall(False)
        if self._runtime.failure is None:
            self._engine.disk.recover()


log = logging.getLogger("sow.follower")


class HeardLog(Heard):
    """How far a node lags behind the log of `driver`: the time since it was heard, and what is not
    applied. It is stale after a lease, or after MaxLag."""

    def __init__(
        self, driver: LogDriver, lag_us_max: Callable[[], int], now_s: Callable[[], float]
    ) -> None:
        super().__init__(driver.address, lambda: min(lag_us_max(), driver.node.lease_us), now_s)
        self._driver = driver

    def lag_us(self) -> int:
        """The lag."""
        driver = self._driver
        if self.leads:
            return 0
        behind_us = max(0, driver.time_us - self._applied_us) if driver.waiting else 0
        return driver.silent_us() + behind_us


class LogFollower:
    """Applies the groups of `driver` to the server of a node whose configuration is `own`, and has
    `keeper` write how far it is; `clock` is its clock, which shows the time of the log. `adopted`
    is called with each configuration that the log has put in force, and returns whether that is the
    node's own from now on. `found` is open at the start."""

    waits_for = "the shared log is read"

    def __init__(
        self,
        driver: LogDriver,
        keeper: CheckpointKeeper,
        own: Configuration,
        clock: SharedLogClock,
        adopted: Callable[[Configuration], bool],
        reports: NodeReports,
        found: OpenWindows | None = None,
    ) -> None:
        self.clock = clock
        self._open = found
        if found is not None:
            clock.go_on_from(found.time_us)
        self._keeper = keeper
        self._adopted = adopted
        self._reports = reports
        self.heard = HeardLog(
            driver, lambda: own.follower.lag_us_max, lambda: monotonic_us() / SECOND_US
        )
        self.is_over = asyncio.Event()
        """This server has to start again to go on."""
        self.has_role = asyncio.Event()
        """It has come to the end of the log, and leads if its node does."""
        self.directory = Path(own.data_directory)
        self._driver = driver
        self._own = own
        """In force here."""
        self._is_ahead = self._is_behind = False
        """The log has not had it in force yet, as it is of the node's file alone; the node's file
        has another one."""
        self.gives_up = False
        """Records without a place in the configuration are given up: the log has decided so, and
        not this node's file alone."""
        self._waiting: deque[LogEntry] = deque()
        """The newest entries: a turn of views goes on in the next group."""
        self._turn = 0
        """The record with which that turn began; 0: none goes on."""
        self._task: asyncio.Task[None] | None = None
        self._engine: FollowingEngine
        self._runtime: ServerRuntime
        self._following: Following
        self._adopt: Adopt
        self._thread: SharedLogThread
        self._moments: Moments

    def answer_with(self, moments: Moments) -> None:
        """Have answers say how certain this node is."""
        self._moments = moments

    def writer(self, *given: Any) -> SharedLogThread:
        """Makes the thread of the journal."""
        self._thread = SharedLogThread(self._driver, *given)
        self._thread.on_reloaded(self.go_on_under)
        return self._thread

    async def prepare(self) -> Configuration:
        """The configuration to begin under: the one with which the node's directory ends; its own
        at the end of the log, if it leads there, and where there is nothing yet."""
        driver, held = self._driver, await asyncio.to_thread(held_in, self.directory)
        if held is not None:
            if fingerprint(held.configuration) != fingerprint(self._own):
                self._is_ahead = driver.is_primary and not driver.waiting
                self._is_behind = not self._is_ahead
            if self._is_behind:
                self._own = with_own(held.configuration, self._own)
            self.gives_up = not self._is_ahead
        return self._own

    def windows(self, configuration: Configuration) -> Catalog | None:
        """The windows that are open at the start; None: as the log says."""
        found, self._open = self._open, None
        return found and run_to_completion(with_windows(configuration, found.windows))

    def begin(
        self,
        engine: FollowingEngine,
        runtime: ServerRuntime,
        adopt: Adopt,
        status: StatusHandler,
        nodes: Nodes,
    ) -> None:
        """Apply what waits, and what comes."""
        self._engine, self._runtime, self._following = engine, runtime, Following(engine)
        self.clock.go_on_from(engine.now_us)
        self.heard.apply(engine.now_us)
        self._keeper.start(runtime)
        self._adopt = adopt
        self._reports.start(status, nodes, engine)
        self._task = asyncio.create_task(self._follow())

    async def close(self) -> None:
        """Apply no more."""
        await self._keeper.close()
        if self._task is not None:
            await self._reports.close()
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def above(self, _request: web.Request) -> Sequence[ServerNode]:
        """What the primary has said of all nodes, if it was heard of late."""
        is_new = not self.leads and self.heard.stale_s() is None
        return self._reports.known if is_new else ()

    @property
    def leads(self) -> bool:
        """It takes what is published."""
        return not self._engine.primary

    def go_on_under(self, configuration: Configuration) -> None:
        """The log has another configuration from here on."""
        self._own = with_own(configuration, self._own)
        self._is_behind = not self._adopted(self._own)

    async def _follow(self) -> None:
        try:
            while not self.is_over.is_set():
                await self._go_on()
        except (LogEnded, LogTrimmed) as error:
            self._driver.fail(error)
            self.is_over.set()
        except Exception as error:
            log.exception("the server failed to apply the shared log, and starts again")
            self._driver.fail(error)
            self.is_over.set()
        finally:
            self.has_role.set()

    async def begun(self) -> None:
        """Return when it leads, if its node does."""
        if self._driver.is_primary:
            await self.has_role.wait()

    async def _go_on(self) -> None:
        driver, coming = self._driver, self._driver.next()
        if self._is_ahead and not driver.is_primary:
            self.is_over.set()  # what has come is to be applied under what the log has
            return
        self.heard.follow(driver.address)
        self._engine.follow(driver.address)
        if driver.waiting:
            check_goes_on(driver.waiting[0])
            entries = await entries_read(driver.waiting[0])
            await self._apply_group(entries)
            if not self.is_over.is_set():
                driver.applied(newest_of(entries))
            return
        if self._waiting and (driver.is_primary or driver.time_us > self._waiting[-1].ts_us):
            self._turn = 0  # it has ended without a change
        await self._apply(self._turn)
        time_us = self._waiting[0].ts_us if self._waiting else driver.time_us
        if time_us > self._engine.now_us:
            await self._run(self._following.pass_time(time_us))
        if driver.waiting:
            return
        if driver.failure is not None:
            self.is_over.set()
        elif driver.is_primary:
            await self._lead()
        else:
            self.has_role.set()
            if self._runtime.failure is not None:
                driver.hold_off()
            await asyncio.shield(coming)

    async def _lead(self) -> None:
        """Go on as the primary, until another node leads."""
        driver, engine, runtime = self._driver, self._engine, self._runtime
        try:
            await runtime.durable()
        except SowError:
            driver.step_down()  # the disk refuses: others may have room
            await asyncio.wait((driver.next(),), timeout=driver.node.lease_us / SECOND_US)
            return
        if self._is_behind:
            log.info("all of the log is here: this server starts under the node's own file")
            self.is_over.set()
            return
        lead = LogLead(driver, engine, runtime, self.clock, self._thread)
        start_us = lead.begins_us() if self._is_ahead else 0
        if start_us:
            await self._run(self._following.pass_time(start_us))  # what is due ends before it
        await self._run(engine.prepare_to_lead())
        if driver.is_primary:
            lead.begin(start_us or lead.begins_us(), self._is_ahead)
            self._reports.take_over()
            self._moments.share(lead.doubt_s)
            self.heard.follow("")
            self.has_role.set()
            await runtime.turns.run("following", engine.begin_timers())
            await lead.run()
            self.heard.follow(driver.address)
        self.is_over.set()

    async def _apply_group(self, group: Sequence[LogEntry]) -> None:
        # What a full disk refuses stays in memory: no more is taken then.
        while (commit := self._runtime.commit).is_behind or commit.failure is not None:
            if commit.failure is not None:
                self._driver.step_down()
            await asyncio.wait((commit.next(),), timeout=self._driver.node.lease_us / SECOND_US)
        self._turn = turn_in(group)
        for is_account, entries in groupby(group, lambda one: one.account):
            if is_account:
                for entry in entries:
                    await self._take_account(entry)
                    if self.is_over.is_set():
                        return  # what follows is for the next server
            else:
                self._waiting += entries
                await self._apply(self._turn)

    async def _apply(self, turn: int = 0) -> None:
        """Apply what waits, but for a turn that goes on and began with a record."""
        if self._waiting:
            last_seq = turn - 1 if turn else newest_of(self._waiting)
            await self._run(self._following.apply(ended(self._waiting, last_seq, 0)))

    async def _take_account(self, entry: LogEntry) -> None:
        if entry.topic == AUDIT.name:
            return  # each server's own
        is_new = False
        if entry.topic == CONFIGURATIONS.name and entry.op == "publish":
            await self._apply()
            is_new = entry.seq >= self._engine.seq and not self._engine.has_account(entry)
            if is_new:
                await self._run(self._following.pass_time(entry.ts_us))
        self._engine.apply_account(entry)
        if is_new:
            await self._runtime.durable()
            await self._begin_under(self._engine.configurations.all()[-1])

    async def _begin_under(self, change: InForceSince) -> None:
        """The log has a start under another configuration, or a reload."""
        self.go_on_under(change.configuration)
        if change.is_start:
            log.info("another configuration is in force, or was begun again: this server starts")
            self.is_over.set()
            return
        try:
            await self._adopt(self._own)
        except SowError as error:
            log.warning("this reload takes a start: %s", error.detail)
            self.is_over.set()

    async def _run(self, steps: Task[None]) -> None:
        await self._runtime.turns.run("following", steps)
        self.clock.go_on_from(self._engine.now_us)
        self.heard.apply(self._engine.now_us)
        self._runtime.bookmark_waits.release()
