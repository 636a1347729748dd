"""A server: its data directory, its engine and its port, from start to stop."""

import asyncio
import gc
import logging
import secrets
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from sow import __version__
from sow.config.diagnostics import Reviewed
from sow.core.clock import SECOND_US, Clock, SystemClock, monotonic_us
from sow.core.definitions import Configuration, with_system_topics
from sow.core.inner_loops import INNER_LOOPS
from sow.core.security_definitions import Authentication
from sow.engine.engine import Engine
from sow.engine.following import FollowingEngine
from sow.errors import ConfigError, SowError
from sow.expressions import make_parser
from sow.security.authentication.authenticator import Logons
from sow.server.api.admin import AdminHandler, Board
from sow.server.api.followers import FollowersHandler, SharedLogHandler
from sow.server.api.nodes import Nodes, Upstream
from sow.server.api.status import HealthHandler, StartupProgress, StatusHandler
from sow.server.api.topics import RatesHandler
from sow.server.boot.bootstrap import ServerBootstrap
from sow.server.boot.checkpointer import Checkpointer
from sow.server.boot.follower import Follower
from sow.server.boot.http_server import Binds, HttpServer, answering, bind, listening
from sow.server.boot.log_copy import check_is_local
from sow.server.boot.log_follower import LogFollower
from sow.server.boot.reload import InForce, Reloader
from sow.server.boot.routes import Handlers, ReadinessGate, open_handlers, origin_of, routes
from sow.server.http.authn_middleware import Identifies, RequestAuthenticator, fetch
from sow.server.http.body_reading import Requests
from sow.server.http.connections import certificate_trusted, read_tls
from sow.server.http.preconditions import Moments
from sow.server.http.request_origin import RequestMiddleware, machine_names
from sow.server.http.server_log import LastError
from sow.server.loop.background_work import (
    BackgroundConflation,
    CacheSweeper,
    ExpiredLogons,
    GcPacing,
    objects_max,
)
from sow.server.loop.group_commit import JournalThread, stored_bytes, windows_us
from sow.server.loop.log_checkpoint import LogOperations
from sow.server.loop.runtime import ServerRuntime
from sow.server.loop.scheduler import FairScheduler, GcLatency, LoopLatency
from sow.server.net.action_runner import ActionRunner
from sow.server.net.session_writer import EventStreamHandler
from sow.server.net.websocket import WebSocketHandler
from sow.sessions.commands.executor import Executor
from sow.store.protocols import Journal, LogEntry
from sow.store.staging import Staging

log = logging.getLogger("sow")

AMPLE_BYTES = 64 * 1024**2
"""With this much room, entries up to the next group are accepted without a check: more than arrive
in a second."""
SESSION_NAME_BYTES = 16
"""128 random bits: more than clients can guess, however long they try."""
STOPPING = "the server stops"


class Machine(NamedTuple):
    """What a server takes of its machine, beside clock and disk: `bind` opens its port, `writer`
    makes the thread of its journal, and `monotonic_us` is the time that passes. `log_id` names the
    log where other nodes have it, too, and `shared` is what operators do with that."""

    bind: Binds = bind
    writer: Callable[..., JournalThread] = JournalThread
    monotonic_us: Callable[[], int] = monotonic_us
    log_id: str = ""
    shared: LogOperations | None = None


def new_session_name() -> str:
    """A session name that only its client knows."""
    return secrets.token_urlsafe(SESSION_NAME_BYTES)


def owns_process() -> bool:
    """Whether a server that starts here has the process for itself."""
    return threading.current_thread() is threading.main_thread()


class Server:
    """One server. `start` takes the data directory and the port, `stop` releases them.

    `data_directory` is created if necessary; one server uses it at a time. `clock` is its clock,
    by default the machine's. `reread` reads the configuration again, for `reload`; it raises
    ConfigError. `names` returns the machine's names, `logons` limits logon attempts, by default as
    Limits say. With `allow_loss` records that have no place in the configuration are given up
    (`sow.server.boot.bootstrap`). A request with `own_token`, if it is not empty, comes from the
    server itself, which uses it through Spark. `look` reads the configuration file for display. A
    `follower` follows another server: then the configuration is that of its log, and
    `data_directory` that of the follower. `upstream` is the server that has the records.
    `shares_port`: other processes listen on the same port. `machine` is what it runs on.
    """

    engine: Engine
    executor: Executor
    runtime: ServerRuntime
    checkpointer: Checkpointer
    _actions: ActionRunner
    _opening: ServerBootstrap
    _watch: LoopLatency
    _replay: StartupProgress
    _readiness: ReadinessGate
    _authn: RequestAuthenticator
    _status: HealthHandler
    _handlers: Handlers
    _reloader: Reloader
    _http: HttpServer

    def __init__(
        self,
        configuration: Configuration,
        data_directory: Path,
        clock: Clock | None = None,
        reread: Callable[[], Configuration] | None = None,
        names: Callable[[], Iterable[str]] = machine_names,
        allow_loss: bool = False,
        own_token: str = "",
        logons: Logons | None = None,
        look: Callable[[], Reviewed] | None = None,
        follower: Follower | LogFollower | None = None,
        upstream: Upstream | None = None,
        shares_port: bool = False,
        machine: Machine = Machine(),  # noqa: B008
    ) -> None:
        self._machine = machine
        self._follower = follower
        self._shares_port = shares_port
        self._source = origin_of(upstream)
        self._look = look
        self.board = Board(lambda: self._clock.now_us())
        """The status of processes beside this server, as its supervisor notes it."""
        self._own_token = own_token
        self._reread = reread
        self._in_force = in_force = InForce(with_system_topics(configuration), read_tls(None))
        self._middleware = RequestMiddleware(lambda: in_force.configuration, names)
        self._requests = Requests(lambda: in_force.configuration.limits)
        self._allow_loss = allow_loss
        self._data_directory = data_directory if follower is None else follower.directory
        # Credentials expire by the machine's clock on a follower, too.
        self._wall = clock or SystemClock()
        self._clock = self._wall if follower is None else follower.clock
        self._nodes = Nodes(lambda: machine.monotonic_us() / SECOND_US)
        self._closers: list[Callable[[], None]] = []
        self._last_error = LastError()
        self._replayed_bytes = 0
        self._refused: Counter[str] = Counter()
        self.address, self.port = "", 0
        """What it has opened."""
        self._opened_us = 0
        self._heard = None if follower is None else follower.heard
        self._moments = Moments(self._heard)
        self._logons = logons or Logons(lambda: in_force.configuration.limits.logons_per_second_max)
        self._sockets: list[socket.socket] = []
        """Those that a follower has taken before it can start."""

    @property
    def configuration(self) -> Configuration:
        """The configuration in force."""
        return self._in_force.configuration

    async def start(self) -> str:
        """Open the port and restore all records; returns the server's URL.

        Raises StoreError when the data directory cannot be used or the port is taken.
        """
        address = await self.open()
        await self.restore()
        return address

    async def open(self) -> str:
        """Take the data directory and open the port; returns the server's URL.

        Requests wait until `restore` has finished. Raises StoreError when the directory is in use
        or the port is taken; then, as after any error, everything is released.
        """
        try:
            if self._follower is not None:
                await self._prepare(self._follower)
            self._take_directory()
            self._watch_process()
            make_parser()  # no client has to wait for it
            await self._open_port()
        except BaseException:
            self._close_store()
            raise
        self._replay.begin(self.address)
        self._opened_us = self._machine.monotonic_us()
        return self.address

    async def _prepare(self, follower: Follower | LogFollower) -> None:
        """Have what there is to start with, while requests get to know why they wait."""
        self._in_force.read_tls()
        sockets = self._sockets = await listening(
            self.configuration, self._shares_port, self._machine.bind
        )
        self._closers += [one.close for one in sockets]
        async with answering(sockets, self._in_force.tls.context, lambda: follower.waits_for):
            followed = await follower.prepare()
        self._in_force.go_on_under(with_system_topics(followed))

    def _take_directory(self) -> None:
        follower = self._follower
        if follower is None:
            check_is_local(self._data_directory)
        self._opening = ServerBootstrap(
            self.configuration,
            self._data_directory,
            lambda: self._new_engine(self._opening.journal),
            self._clock.now_us(),
            allow_loss=self._allow_loss or (follower is not None and follower.gives_up),
            follows=follower is not None,
            windows=(lambda _: None) if follower is None else follower.windows,
            log_id=self._machine.log_id,
        )
        self._closers.append(self._opening.close)

    def _watch_process(self) -> None:
        """Measure the loop and the collector, and keep the last error, until the server stops."""
        self._watch = LoopLatency(log.warning)
        self._last_error.begin()
        self._closers.append(self._last_error.end)
        self._closers.append(GcLatency(self._watch).close)
        self._closers.append(CacheSweeper(self._watch).close)

    async def _open_port(self) -> None:
        """Listen: requests wait at the readiness gate, but for those of the start's progress."""
        in_force = self._in_force
        is_open = self.configuration.security.authentication is None
        self._replay = StartupProgress(self._opening.progress, public=is_open)
        self._readiness = ReadinessGate(self._replay.public_status, lambda: self._source.refusal)
        self._http = HttpServer(
            in_force, self._requests, self._middleware, self._moments, self._refused, self._watch
        )
        self._authn = RequestAuthenticator(
            self.configuration.security,
            self._authenticator,
            self._own_token,
            self._wall.now_us,
            lambda then: certificate_trusted(in_force.tls.context, then),
        )
        self._status = HealthHandler(
            self._replay,
            self._http.crowd,
            self._requests.budget,
            lambda: in_force.tls.certificates,
            self._last_error,
            self._authn.may_administer,
            self._source,
            self._nodes,
            self._heard,
        )
        self.address, self.port = await self._http.listen(
            routes(self._readiness, self._status),
            self._authn,
            self._shares_port,
            self._sockets,
            self._machine.bind,
        )

    async def restore(self) -> None:
        """Restore all records, then let waiting requests continue.

        Raises StoreError when the data directory cannot be used. If it fails or is cancelled, the
        server has stopped, and the directory is as it was.
        """
        try:
            await self._source.reach()
            await self._restore_records()
            self._begin()
            log.info(
                "started at %s: %d topics, %d records restored in %.1f s, data in %s, version %s, "
                "inner loops in %s",
                self.address,
                len(self.configuration.topics),
                self._replay.progress.done,
                (self._machine.monotonic_us() - self._opened_us) / SECOND_US,
                self._data_directory,
                __version__,
                INNER_LOOPS.language,
            )
        except BaseException as error:
            self._replay.end()
            self._http.stop_listening()
            await self._source.close()
            await self._end_requests(error.detail if isinstance(error, SowError) else STOPPING)
            self._close_store()
            raise

    def startup_status(self) -> str:
        """The progress of the start as a sentence, with topics' names."""
        if not self.address:
            follower = self._follower
            return "replaying: opening files" if follower is None else follower.waits_for
        return self._replay.status()

    async def _restore_records(self) -> None:
        """Restore the records, while requests for the progress are answered."""
        # Nothing else runs, so long steps do no harm.
        turns = FairScheduler(LoopLatency(), lambda: None)
        # A million new objects, none of them garbage: collecting only costs time, then and later.
        gc.disable()
        try:
            await turns.run("replaying", self._opening.open(self._counted))
        finally:
            turns.close()
            gc.enable()

    def _begin(self) -> None:
        """All records are restored: serve."""
        self._take_over_engine()
        self._start_runtime()
        self._open_handlers()
        self._replay.end()
        self._follow_engine()
        self._readiness.open(self._handlers)
        self.checkpointer.start()
        self._pace_gc()
        self._actions.begin()
        self.runtime.wake()
        if self._follower is not None:
            assert isinstance(self.engine, FollowingEngine)
            status, adopt = self._handlers[StatusHandler], self._reloader.adopt
            self._follower.begin(self.engine, self.runtime, adopt, status, self._nodes)

    def _take_over_engine(self) -> None:
        """The engine has all records: it goes on from where the log ends."""
        opening = self._opening
        self.engine = opening.engine
        self.engine.restore_accounts(opening.take_accounts())
        self._clock.go_on_from(self.engine.now_us)
        self.engine.sequencer.moment(self._clock.now_us())
        oldest_seq = opening.journal.first_seq - 1
        self.engine.configurations.note(True, oldest_seq, opening.goes_on)

    def _start_runtime(self) -> None:
        """What drives the engine, executes commands, and keeps checkpoints."""
        opening, journal = self._opening, self._opening.journal
        self.runtime = ServerRuntime(
            self.engine,
            journal,
            self._clock,
            windows_us(self.configuration),
            self._watch,
            self._machine.writer,
        )
        self.executor = Executor(
            self.engine,
            journal,
            new_session_name,
            boot=f"{secrets.token_hex(4)}-",
            refused=self._refused,
            checkpoints=opening.checkpoints,
        )
        self.engine.queries.measure(self.runtime.loop.time)
        sessions = self.executor.sessions
        sessions.on_slow_client(log.warning)
        sessions.on_session_change(log.info)
        self.executor.on_internal_error(log.error)
        self.engine.on_stopped(log.error)
        self.runtime.idle_work["conflating queues"] = sessions.conflate_in_background
        BackgroundConflation(sessions, self.runtime.turns, self.runtime.now_us)
        self._actions = ActionRunner(self.runtime, self.executor.actions, log.info)
        if self._follower is not None:
            self._closers.append(ExpiredLogons(sessions, self._wall.now_us).close)
        self.checkpointer = Checkpointer(
            self.runtime,
            opening.checkpoints,
            journal.trim,
            self._replayed_bytes,
            followers=self._nodes.positions,
            is_reloading=lambda: self._reloader.is_reloading,
        )

    def _open_handlers(self) -> None:
        """The resources of the engine, of another server where that has the records."""
        self._reloader = Reloader(
            self.runtime,
            self.executor,
            self._authn,
            self._in_force,
            self._reread,
            self._opening,
        )
        status = StatusHandler(
            self.runtime,
            self.engine,
            self.address,
            self._authn.is_known,
            self._nodes,
            self._heard,
            self._source,
            lambda: len(self.executor.sessions),
            self._source.above if self._follower is None else self._follower.above,
        )
        self._handlers = open_handlers(
            self.runtime,
            self.executor,
            Staging(self._data_directory / "staging", self._clock.now_us()),
            self._authn,
            AdminHandler(
                self.runtime,
                self.engine,
                self._opening,
                self._reloader.reload,
                self._reread,
                self._look,
                self.board,
            ),
            status,
            FollowersHandler(self.runtime, self.engine, self._nodes),
            SharedLogHandler(self.runtime, self._machine.shared, self._nodes, status),
        )
        self._source.serve(self._handlers, self.runtime, self.executor, self._authn, status)

    def _follow_engine(self) -> None:
        """Have users, health and the marks of answers follow the engine."""
        self._authn.follow(self.engine, self.executor.audit, self.runtime.now_us)
        self.executor.go_on_under(self._authn.role_set)
        self.executor.set_user_lookup(self._authn.named)
        self._status.follow(self.runtime, self.executor, lambda: self.checkpointer.failure)
        self._handlers[RatesHandler].begin()
        if self._source.upstream:
            self._moments.follow_upstream(lambda: self._source.log_id)
        else:
            self._moments.follow(self.runtime)

    def _pace_gc(self) -> None:
        if not owns_process():
            return  # the process is another program's; what GcPacing holds for a moment is, too
        garbage = GcPacing(lambda: objects_max(self.engine.catalog, self.executor.sessions))
        garbage.begin()
        self.runtime.idle_work["looking for garbage"] = garbage.look
        self.runtime.flush_work["looking for garbage"] = garbage.look

    def _new_engine(self, journal: Journal) -> Engine:
        ample: dict[int, bool] = {}

        def has_room(size_bytes: int) -> bool:
            # Room to delete everything is kept free, so that deleting always helps.
            engine = self.engine
            kept_bytes = engine.catalog.usage.named_bytes + engine.disk.checkpoint_bytes
            if size_bytes:
                return journal.has_room(kept_bytes + size_bytes)
            # Far from full the disk is checked once per group, at its first change.
            group = self.engine.sequencer.open.number
            if group not in ample:
                ample.clear()
                ample[group] = journal.has_room(kept_bytes + AMPLE_BYTES)
            return ample[group] or journal.has_room(
                kept_bytes + self.engine.disk.on_the_way_bytes()
            )

        disk = has_room, journal.takes, journal.lost
        if self._follower is not None:
            return FollowingEngine(self.configuration, self._follower.heard.primary, *disk)
        return Engine(self.configuration, *disk)

    def _counted(self, entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
        self._replayed_bytes = 0
        for entry in entries:
            self._replayed_bytes += stored_bytes(entry)
            yield entry

    def _authenticator(self, by: Authentication) -> Identifies:
        """Create the authenticator; raises ConfigError."""
        # Imported only here: it needs libraries that a server without authentication does not.
        from sow.security.authentication.authenticator import Authenticator

        return Authenticator(
            by, now_us=self._wall.now_us, fetch=fetch, report=log.warning, logons=self._logons
        )

    async def reload(self, allow_loss: bool = False) -> list[str]:
        """Read the configuration again and apply its changes; returns their descriptions.

        With `allow_loss`, records of topics that have no place in it are given up. Raises
        ConfigError, with every reason, when something cannot be changed: then nothing is. A reload
        runs to its end even if its caller is cancelled; another one waits for it.
        """
        if self._follower is not None:
            raise ConfigError(
                f"this server follows {self._follower.heard.primary}: reload that one, and what "
                "changes reaches this one at its place in the log"
            )
        try:
            await self._readiness.handlers()
        except SowError as error:
            log.warning("not reloaded: %s", error.detail)
            raise
        return await self._reloader.reload(allow_loss)

    async def stop(self) -> None:
        """Close all clients, store everything, release the directory and the port."""
        log.info("stopping")
        self._http.stop_listening()
        if self._follower is not None:
            await self._follower.close()
        self._handlers[EventStreamHandler].close()
        self._handlers[FollowersHandler].close()
        await self._handlers[WebSocketHandler].close()
        await self._source.close()
        await self._end_requests(STOPPING)
        await self._actions.close()
        await self._reloader.close()
        await self.checkpointer.close()
        try:
            await self.runtime.close()
        finally:
            self._close_store()
        log.info("stopped: everything is stored")
        # The loop needs an iteration to close the rest.
        await asyncio.sleep(0)

    async def _end_requests(self, why: str) -> None:
        """Let running requests end; those that wait for the start get the reason `why`."""
        self._readiness.close(why)
        self._moments.end(why)
        await self._http.close()

    def _close_store(self) -> None:
        while self._closers:
            self._closers.pop()()
