"""A node of a shared log: the driver of its log, and which server the process is at the moment.

    joined ──> who leads is known, or this node does
    server ──> follows the log, and leads it when its turn has come (`LogFollower`)
    over ────> it leads no more: the next server starts from the same disk, at the same address

What a driver cannot go on after ends it, and another one begins, which reads the log again: as
after a crash, and as often as there is a reason.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sow.core.clock import SECOND_US, SharedLogClock
from sow.core.definitions import Configuration, SharedLogSettings
from sow.engine.configurations import differences, fingerprint, packed, with_own
from sow.errors import (
    ConfigError,
    Damaged,
    DiskFull,
    LogEnded,
    LogTrimmed,
    StateDiffers,
    StoreError,
    StoreFailing,
)
from sow.server.api.nodes import Upstream
from sow.server.boot.app import Machine, Server
from sow.server.boot.bootstrap import LOG_ID_BYTES
from sow.server.boot.followed_directory import held_in
from sow.server.boot.follower import session_with
from sow.server.boot.log_copy import (
    NodeReports,
    begins_at,
    check_goes_on,
    copy_of_log,
    copy_of_primary,
    has_records,
)
from sow.server.boot.log_follower import LogFollower
from sow.server.loop.log_checkpoint import CheckpointKeeper, LogOperations
from sow.server.loop.log_driver import NO_TROUBLE, LogDriver
from sow.shared_log.adapters import adapter
from sow.shared_log.entry import EntryKind, Lead
from sow.shared_log.roles import LEASES_OF_SILENCE
from sow.store.protocols import OpenWindows

log = logging.getLogger("sow.log")

PAUSE_S = 1.0
"""Delay before another driver begins: what has ended the last one may last."""
SILENT_S_MAX = 30.0
"""So long a node that is copied may say nothing: its disk may be slow."""
ANSWER_S_MIN = 1.0
"""An engine may take so long for an answer; the node looks for it before."""


def open_log(given: SharedLogSettings) -> Any:
    """A client of the log; raises ConfigError where its engine is not installed, or is not at such
    a place."""
    engine, unsafe = adapter(given.engine), given.unsafe
    answer_s = max(ANSWER_S_MIN, given.lease_us / SECOND_US)
    if given.engine == "postgres":
        return engine.PostgresLog(engine.PostgresPlace(dsn=given.dsn, unsafe=unsafe), answer_s)
    if given.engine == "s3":
        return engine.S3Log(engine.S3Place(url=given.url, unsafe=unsafe), answer_s)
    if given.engine == "kafka":
        servers = [one.removeprefix("kafka://") for one in given.servers]
        place = engine.KafkaPlace(servers=servers, topic=given.topic, unsafe=unsafe)
        return engine.KafkaLog(place, answer_s)
    place = engine.NatsPlace(
        servers=given.servers,
        stream=given.stream,
        replicas=given.replicas,
        monitors=given.monitors,
        unsafe=unsafe,
    )
    return engine.NatsLog(place, answer_s)


def _begins_with_directory(driver: LogDriver) -> bool:
    return bool(driver.waiting) and driver.waiting[0].kind == EntryKind.BACKUP


def _goes_on(driver: LogDriver) -> bool:
    """Whether there is something to begin with."""
    return driver.has_joined or driver.stands_back or driver.is_full


class LogMember:
    """The node that a configuration describes; `opened` makes a client of its log."""

    def __init__(
        self,
        configuration: Configuration,
        opened: Callable[[SharedLogSettings], Any] = open_log,
        peers: Upstream = Upstream(""),  # noqa: B008
        corrupts: bool = False,
    ) -> None:
        self._corrupts = corrupts
        self._configuration = configuration
        """As of its file, until the log has another one."""
        self._settings = configuration.shared_log
        self._has_joined = False
        self._servers = 0
        """How many there were."""
        self._address = self._settings.advertise or configuration.url
        self._directory = Path(configuration.data_directory)
        self._opened = opened
        self._peers = peers
        self._shared: Any = None
        self._driver: LogDriver | None = None
        self._does = "this node's data directory is read"
        """What it does while there is no driver."""
        self._open: OpenWindows | None = None
        """What is open at the end of a copy, for the next start."""
        self._checking: asyncio.Task[None] | None = None
        self._keeper: CheckpointKeeper
        self.reports: NodeReports
        """Those of the server of now."""

    @property
    def waits_for(self) -> str:
        """Why it has not joined; without addresses and paths, as anybody may read it."""
        driver = self._driver
        if driver is None:
            return self._does
        if driver.has_begun:
            return "who leads the shared log is not heard yet"
        if driver.trouble == NO_TROUBLE:
            return "the engine of the shared log has not answered yet"
        return "the engine of the shared log does not answer; the log of this server says why"

    async def joined(self) -> None:
        """Return when it is known who leads, or as much of the log waits as is held at once. Raises
        ConfigError where the log has another configuration when this node joins, and what it
        refuses for good."""
        driver = self._driver
        if driver is None:
            driver = await self._begin()
        elif isinstance(driver.failure, StateDiffers | ConfigError):
            raise driver.failure
        elif driver.failure is not None:
            driver = await self._begin_again(driver.failure)
        while not _goes_on(driver) or _begins_with_directory(driver):
            if isinstance(driver.failure, LogTrimmed):
                driver = await self._begin_again(driver.failure)
            elif driver.failure is not None:
                raise driver.failure
            elif _begins_with_directory(driver):
                driver = await self._begin_with_log()
            else:
                await asyncio.shield(driver.next())
        for group in driver.waiting:
            check_goes_on(group)
        if driver.is_full and not driver.has_joined:
            self._checking = asyncio.create_task(self._check_later(driver))
        else:
            await self._check(driver)

    async def _check_later(self, driver: LogDriver) -> None:
        """Check a node that first applies what it has missed."""
        while not (driver.has_joined or driver.stands_back or driver.failure):
            await asyncio.shield(driver.next())
        try:
            if driver.failure is None:
                await self._check(driver)
        except ConfigError as error:
            driver.fail(error)

    async def _check(self, driver: LogDriver) -> None:
        """Check this node where the log ends. Raises ConfigError."""
        leader = driver.leader
        assert leader is not None
        if not self._has_joined and leader.fingerprint != fingerprint(self._configuration):
            raise ConfigError(
                f"the shared log has another configuration, of node {leader.node}, which differs "
                f"in {differences(leader.configuration, self._configuration)}: nodes of one log "
                "have the same file but for Node, Advertise, Listen and paths; make them equal, or "
                "stop all nodes and start them with a new one. What a reload has replaced comes "
                "back by another reload"
            )
        self._has_joined = True
        await self._check_name(driver)

    async def _check_name(self, driver: LogDriver) -> None:
        """Raise ConfigError where another process of this name leads; what an earlier life of this
        one had on its way is not heard for long."""
        lease_s, now_s = driver.node.lease_us / SECOND_US, asyncio.get_running_loop().time
        until_s = now_s() + LEASES_OF_SILENCE * lease_s
        while not (driver.is_primary or driver.has_led_last or driver.failure):
            leader = driver.leader
            if leader is None or leader.node != self._settings.node:
                return
            if now_s() >= until_s and not driver.is_stale:
                raise ConfigError(
                    f"another process leads the shared log as node {leader.node}, at "
                    f"{leader.address}: give each node a Node of its own in <Log>, or stop that one"
                )
            await asyncio.wait((driver.next(),), timeout=lease_s)

    async def _begin(self) -> LogDriver:
        state = await asyncio.to_thread(begins_at, self._directory)
        holds = not state.position and await asyncio.to_thread(has_records, self._directory)
        self._shared = self._opened(self._settings)
        self._driver = LogDriver(self._shared, self._lead(), state=state, has_records=holds)
        self._keeper = CheckpointKeeper(self._driver, self._directory)
        self._driver.start()
        return self._driver

    async def _begin_again(self, failure: Exception) -> LogDriver:
        """Go on after a failure: what the log has no more another node has."""
        await self.close()
        if isinstance(failure, LogEnded):
            raise failure
        if isinstance(failure, LogTrimmed):
            log.warning("%s: everything is copied from the node that leads", failure.detail)
            self._does = "everything is copied from another node"
            shared = self._opened(self._settings)
            try:
                self._open = await copy_of_primary(
                    shared,
                    self._directory,
                    self._settings.lease_us,
                    lambda: session_with(self._peers, SILENT_S_MAX),
                )
            finally:
                await shared.close()
            await self._take_copied()
        else:
            self._does = "the shared log is read again; the log of this server says why"
            await asyncio.sleep(PAUSE_S)
        driver = await self._begin()
        if not isinstance(failure, LogTrimmed):
            driver.hold_off()
        return driver

    async def _take_copied(self) -> None:
        """A node that has joined goes on under what was in force where its copy ends: it may have
        missed a reload. One that joins has the same file, or is refused."""
        held = await asyncio.to_thread(held_in, self._directory)
        if self._has_joined and held is not None:
            self._configuration = with_own(held.configuration, self._configuration)

    async def _begin_with_log(self) -> LogDriver:
        """Begin again with the data directory with which the log begins."""
        await self.close()
        self._does = "the data directory with which the shared log begins is copied"
        shared = self._opened(self._settings)
        try:
            await copy_of_log(shared, self._directory)
        finally:
            await shared.close()
        return await self._begin()

    def _lead(self) -> Lead:
        settings, configuration = self._settings, self._configuration
        return Lead(
            settings.node,
            self._address,
            settings.lease_us,
            fingerprint(configuration),
            log=secrets.token_hex(LOG_ID_BYTES),
            configuration=packed(configuration),
        )

    def _adopt(self, configuration: Configuration) -> bool:
        """The log has put another configuration in force: a node that has joined leads under it,
        too, unless the log has had yet another one since then. Returns whether it does."""
        driver = self._driver
        if driver is None or driver.leader is None or not self._has_joined:
            return False
        if driver.leader.fingerprint != fingerprint(configuration):
            return False
        self._configuration = configuration
        driver.lead_with(self._lead())
        return True

    def server(self, make: Callable[..., Server], port: int) -> tuple[Server, asyncio.Event]:
        """The server of now, of those that `make` makes of a configuration, and what is set when
        that is another. It listens on `port`, as the one before."""
        self._servers += 1
        driver, configuration = self._driver, replace(self._configuration, port=port)
        assert driver is not None
        assert driver.leader is not None
        operations = LogOperations(self._shared, driver, self._keeper)
        reports = self.reports = NodeReports(driver, self._keeper, self._peers, self._corrupts)
        found, self._open = self._open, None
        follower = LogFollower(
            driver, self._keeper, configuration, SharedLogClock(), self._adopt, reports, found
        )
        machine = Machine(log_id=driver.leader.log, shared=operations, writer=follower.writer)
        return make(configuration, follower, machine, LogServer), follower.is_over

    async def leave(self) -> None:
        """Leave the log; where this node leads, another one does at once."""
        if self._driver is not None:
            await self._driver.resign()
        await self.close()

    async def tries_again(self, error: StoreError) -> bool:
        """Whether another server begins after a while, where one has failed to: a disk that has no
        room for another role may have some later, and others lead until then."""
        is_of_disk = isinstance(error, DiskFull | StoreFailing) or error.__cause__ is not None
        if self._servers < 2 or not is_of_disk or isinstance(error, Damaged):
            return False
        log.error("%s: this node tries again, and lets others lead", error.detail)
        if self._driver is not None:
            self._driver.step_down()
        await asyncio.sleep(PAUSE_S)
        return True

    async def close(self) -> None:
        """Leave the log without a word."""
        if self._checking is not None:
            self._checking.cancel()
            self._checking = None
        if self._driver is not None:
            await self._driver.close()
            await self._shared.close()
            self._driver = None


class LogServer(Server):
    """The server of a node of a shared log, whether it leads or not."""

    def _begin(self) -> None:
        assert isinstance(self._follower, LogFollower)
        self._moments.share()
        self._follower.answer_with(self._moments)
        super()._begin()

    async def restore(self) -> None:
        """Restore all records; a node that leads takes what is published then."""
        await super().restore()
        assert isinstance(self._follower, LogFollower)
        await self._follower.begun()

    async def reload(self, allow_loss: bool = False) -> list[str]:
        """As any server's, of the node that leads; an entry of the log carries it to all nodes, and
        it counts from there, also if that is stored later. Raises ConfigError."""
        follower = self._follower
        assert isinstance(follower, LogFollower)
        if not follower.leads:
            return await super().reload(allow_loss)
        changes = await self._reloader.reload(allow_loss)
        await self.runtime.durable()
        return changes
