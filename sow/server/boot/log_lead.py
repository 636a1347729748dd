"""What a node of a shared log does while it leads: it goes on with the engine that has followed.

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

from sow.core.clock import SECOND_US, SharedLogClock, wall_us
from sow.engine.following import FollowingEngine
from sow.errors import LogUnanswered, NoQuorum
from sow.server.loop.log_driver import LogDriver
from sow.server.loop.log_writer import SharedLogThread
from sow.server.loop.runtime import ServerRuntime

log = logging.getLogger("sow.log")

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
            log.warning(
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
            log.error("the disk of this node is full: it steps down, for others may have room")
            self._driver.step_down()
        self._driver.note_room(not is_full)

    def _lose_quorum(self) -> None:
        log.warning("the shared log stores nothing, writes are refused: %s", self._driver.trouble)
        self._engine.disk.fail(NoQuorum(f"{NO_QUORUM}: nothing was applied; send this again"))
        self._runtime.give_up(
            LogUnanswered(
                f"{NO_QUORUM}: whether it will store what was handed over is not known; look "
                "before you send this again"
            )
        )
        self._engine.output.stall(True)

    def _find_quorum(self) -> None:
        log.warning("the shared log stores again: writes are taken")
        self._engine.output.stall(False)
        if self._runtime.failure is None:
            self._engine.disk.recover()
