"""A server: its data directory, its engine and its port, from start to stop."""

import asyncio
import gc
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from aiohttp import web

from sow import __version__
from sow.config.diagnostics import Reviewed
from sow.core.clock import SECOND_US, Clock, SystemClock, monotonic_us
from sow.core.definitions import Configuration, Topic, authority, with_system_topics
from sow.core.inner_loops import INNER_LOOPS
from sow.core.security_definitions import Authentication
from sow.engine.engine import Engine
from sow.engine.following import FollowingEngine
from sow.errors import ConfigError, SowError, StoreError
from sow.expressions import make_parser
from sow.security.authentication.authenticator import Logons
from sow.server.api.admin import AdminHandler, Board
from sow.server.api.followers import FollowersHandler
from sow.server.api.health import HealthHandler
from sow.server.api.status import Nodes, StatusHandler
from sow.server.boot.bootstrap import ServerBootstrap
from sow.server.boot.checkpointer import Checkpointer
from sow.server.boot.follower import Follower
from sow.server.boot.reload import InForce, Reloader
from sow.server.boot.routes import Handlers, ReadinessGate, open_handlers, routes
from sow.server.boot.sources import RecordOrigin, RecordsHere, RecordsUpstream
from sow.server.chained.upstream import UpstreamServer
from sow.server.http.authn_middleware import (
    AUTHN,
    Identifies,
    RequestAuthenticator,
    fetch,
)
from sow.server.http.body_reading import (
    REQUESTS,
    Requests,
    check_expectation,
    end_unmet,
    with_deferred_expectations,
)
from sow.server.http.compression import Compression
from sow.server.http.connection_limits import ConnectionLimiter
from sow.server.http.moments import MOMENTS, Moments
from sow.server.http.read_backpressure import ReadBackpressure
from sow.server.http.request_origin import RequestMiddleware, machine_names
from sow.server.http.responses import REFUSED, mark_kept, report, sanitize_headers
from sow.server.http.route import WEBSOCKET, add_routes
from sow.server.http.server_log import AccessLog, LastError
from sow.server.http.tls import certificate_trusted, read_tls
from sow.server.loop.background_work import BackgroundConflation, CacheSweeper
from sow.server.loop.gc_pacing import GcPacing
from sow.server.loop.group_commit import stored_bytes
from sow.server.loop.latency import GcLatency, LoopLatency, MeasuredRequests
from sow.server.loop.runtime import ServerRuntime
from sow.server.loop.scheduler import FairScheduler
from sow.server.loop.startup_progress import StartupProgress
from sow.server.net.connection_supervisor import Connections, RequestCounter
from sow.server.net.http_protocol import HttpProtocol, http_log
from sow.server.net.listening import Listener, bind, raise_files_limit
from sow.server.net.sse import EventStreamHandler
from sow.server.net.websocket import WebSocketHandler
from sow.sessions.commands.executor import Executor
from sow.store.protocols import Journal, LogEntry
from sow.store.staging import Staging

log = logging.getLogger("sow")

AMPLE_BYTES = 64 * 1024**2
"""With this much room, entries up to the next group are accepted without a check: more than arrive
in a second."""
STOP_S_MAX = 2.0
"""How long running requests may take to end when the server stops: long enough for an answer that
is being written, less than supervisors wait before they kill it."""
SESSION_NAME_BYTES = 16
"""128 random bits: more than clients can guess, however long they try."""
NODE_BYTES = 8
"""The id of a process among the servers of a chain; random, so that no two have the same."""
ADDRESS_BYTES = 8190
"""Longest URL of a request beside its filter: what aiohttp and most proxies allow."""
NOTABLY_FEWER = 0.9
"""The share of wanted connections that the system has files for, below which a warning is logged: a
few missing ones are nothing to warn of."""
NEVER_S = 10 * 365 * 86_400.0
"""Ten years, for a timeout of aiohttp that is never to expire."""
SESSION_OBJECTS = 200
"""Python objects of a session with its socket and a few subscriptions."""
STOPPING = "the server stops"


def new_session_name() -> str:
    """A session name that only its client knows."""
    return secrets.token_urlsafe(SESSION_NAME_BYTES)


class Server:
    """One server. `start` takes the data directory and the port, `stop` releases them.

    `data_directory` is created if necessary; one server uses it at a time. `clock` is its clock,
    by default the machine's. `reread` reads the configuration again, for `reload`; it raises
    ConfigError. `names` returns the machine's names, `logons` limits logon attempts, by default as
    Limits say. With `allow_loss` records that have no place in the configuration are given up
    (`sow.server.boot.bootstrap`). A request with `own_token`, if it is not empty, comes from the
    server itself, which uses it through Spark. `look` reads the configuration file for display. A
    `follower` follows another server: then the configuration is that of its log, and
    `data_directory` that of the follower. `upstream` is the address of the server that has the
    records, and this one's token there. `shares_port`: other processes listen on the same port.
    """

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
        follower: Follower | None = None,
        upstream: tuple[str, str] | None = None,
        shares_port: bool = False,
    ) -> None:
        self._follower = follower
        self._shares_port = shares_port
        node = secrets.token_hex(NODE_BYTES)
        self._source: RecordOrigin = (
            RecordsHere(node)
            if upstream is None
            else RecordsUpstream(UpstreamServer(*upstream, node))
        )
        self._look = look
        self.board = Board(lambda: self._clock.now_us())
        """The status of processes beside this server, as its supervisor notes it."""
        self._own_token = own_token
        self._reread = reread
        self._in_force = in_force = InForce(with_system_topics(configuration), read_tls(None))
        self._middleware = RequestMiddleware(lambda: in_force.configuration, names)
        self._requests = Requests(lambda: in_force.configuration.limits)
        self._allow_loss = allow_loss
        self.engine: Engine
        self.executor: Executor
        self.runtime: ServerRuntime
        self.checkpointer: Checkpointer
        self._data_directory = data_directory if follower is None else follower.directory
        # Credentials expire by the machine's clock on a follower, too.
        self._wall = clock or SystemClock()
        self._clock = self._wall if follower is None else follower.clock
        self._nodes = Nodes(lambda: monotonic_us() / SECOND_US)
        self._closers: list[Callable[[], None]] = []
        self._last_error = LastError()
        self._replayed_bytes = 0
        self._refused: Counter[str] = Counter()
        self.address = ""
        """The URL that it has opened."""
        self.port = 0
        """The port that it has opened."""
        self._opened_us = 0
        self._opening: ServerBootstrap
        self._watch: LoopLatency
        self._replay: StartupProgress
        self._readiness: ReadinessGate
        self._moments = Moments(None if follower is None else follower.heard)
        self._authn: RequestAuthenticator
        self._logons = logons or Logons(lambda: in_force.configuration.limits.logons_per_second_max)
        self._status: HealthHandler
        self._handlers: Handlers
        self._reloader: Reloader
        self._runner: web.AppRunner
        self._connections: Connections
        self._listener: Listener

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
        if self._follower is not None:
            followed = await self._follower.prepare()
            self._in_force.go_on_under(with_system_topics(followed))
        try:
            self._opening = ServerBootstrap(
                self.configuration,
                self._data_directory,
                lambda: self._new_engine(self._opening.journal),
                self._clock.now_us(),
                allow_loss=self._allow_loss,
                follows=self._follower is not None,
                windows=(lambda _: None) if self._follower is None else self._follower.windows,
            )
            self._closers.append(self._opening.close)
            self._watch = LoopLatency(log.warning)
            self._last_error.begin()
            self._closers.append(self._last_error.end)
            self._closers.append(GcLatency(self._watch).close)
            self._closers.append(CacheSweeper(self._watch).close)
            is_open = self.configuration.security.authentication is None
            self._replay = StartupProgress(self._opening.progress, public=is_open)
            self._readiness = ReadinessGate(
                self._replay.public_status, lambda: self._source.refusal
            )
            make_parser()  # no client has to wait for it
            address = await self._listen()
        except BaseException:
            self._close_store()
            raise
        self._replay.begin(address)
        self.address, self._opened_us = address, monotonic_us()
        return address

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
                (monotonic_us() - self._opened_us) / SECOND_US,
                self._data_directory,
                __version__,
                INNER_LOOPS.language,
            )
        except BaseException as error:
            self._replay.end()
            self._listener.close()
            await self._source.close()
            await self._end_requests(error.detail if isinstance(error, SowError) else STOPPING)
            self._close_store()
            raise

    def startup_status(self) -> str:
        """The progress of the start as a sentence, with topics' names."""
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
        opening = self._opening
        self.engine, journal = opening.engine, opening.journal
        self.engine.restore_accounts(opening.take_accounts())
        self._clock.go_on_from(self.engine.now_us)
        self.engine.sequencer.moment(self._clock.now_us())
        oldest_seq = journal.first_seq - 1
        self.engine.configurations.note(True, oldest_seq, opening.goes_on)
        self.runtime = ServerRuntime(
            self.engine, journal, self._clock, self._windows_us(), self._watch
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
        self.executor.sessions.on_slow_client(log.warning)
        self.executor.sessions.on_session_change(log.info)
        self.executor.on_internal_error(log.error)
        self.engine.on_stopped(log.error)
        sessions = self.executor.sessions
        self.runtime.idle_work["conflating queues"] = sessions.conflate_in_background
        BackgroundConflation(sessions, self.runtime.turns, self.runtime.now_us)
        self.checkpointer = Checkpointer(
            self.runtime,
            opening.checkpoints,
            journal.trim,
            self._replayed_bytes,
            followers=self._nodes.positions,
        )
        staging = Staging(self._data_directory / "staging", self._clock.now_us())
        self._reloader = Reloader(
            self.runtime,
            self.executor,
            self._authn,
            self._in_force,
            self._reread,
            self._data_directory,
        )
        admin = AdminHandler(
            self.runtime,
            self.engine,
            opening,
            self._reloader.reload,
            self._reread,
            self._look,
            self.board,
        )
        heard = None if self._follower is None else self._follower.heard
        status = StatusHandler(
            self.runtime,
            self.engine,
            self.address,
            self._authn.is_known,
            self._nodes,
            heard,
            self._source,
        )
        self._handlers = open_handlers(
            self.runtime,
            self.executor,
            staging,
            self._authn,
            admin,
            status,
            FollowersHandler(self.runtime, self.engine, self._nodes),
        )
        self._source.serve(self._handlers, self.runtime, self.executor, self._authn)
        self._replay.end()
        self._authn.follow(self.engine, self.executor.audit, self.runtime.now_us)
        self.executor.go_on_under(self._authn.role_set)
        self.executor.set_user_lookup(self._authn.named)
        self._status.follow(self.runtime, self.executor, lambda: self.checkpointer.failure)
        if not self._source.upstream:  # else its answers have upstream's
            self._moments.follow(self.runtime)
        self._readiness.open(self._handlers)
        self.checkpointer.start()
        garbage = GcPacing(
            lambda: self.engine.catalog.objects_max() + SESSION_OBJECTS * len(sessions)
        )
        garbage.begin()
        self.runtime.idle_work["looking for garbage"] = garbage.look
        self.runtime.flush_work["looking for garbage"] = garbage.look
        self.runtime.wake()
        if self._follower is not None:
            assert isinstance(self.engine, FollowingEngine)
            adopt = self._reloader.adopt
            self._follower.begin(self.engine, self.runtime, adopt, status.own)

    def _new_engine(self, journal: Journal) -> Engine:
        ample: dict[int, bool] = {}

        def has_room(size_bytes: int) -> bool:
            # Room to delete everything is kept free, so that deleting always helps.
            kept_bytes = self.engine.catalog.usage.named_bytes
            if size_bytes:
                return journal.has_room(kept_bytes + size_bytes)
            # Far from full the disk is checked once per group, at its first change.
            group = self.engine.output.group
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

    def _windows_us(self) -> dict[str, int]:
        """Each topic's group commit window; a topic without one uses the journal's."""
        default_us = self.configuration.journal.flush_interval_us
        return {
            topic.name: topic.flush_interval_us or default_us
            for topic in self.configuration.topics
            if isinstance(topic, Topic)
        }

    async def _listen(self) -> str:
        in_force = self._in_force
        crowd = ConnectionLimiter(lambda: in_force.configuration, raise_files_limit())
        wanted = self.configuration.limits.connections_max
        if crowd.connections_max < wanted * NOTABLY_FEWER:
            log.warning(
                "there can be %d connections, and not %d (Limits/Connections): the system allows "
                "no more open files (ulimit -Hn)",
                crowd.connections_max,
                wanted,
            )
        app = web.Application(
            middlewares=[
                AccessLog(lambda: in_force.configuration.server_log.access, monotonic_us).note,
                MeasuredRequests(self._watch, WEBSOCKET).measure,
                report,
                self._middleware.check,
                check_expectation,
                RequestCounter(crowd).count,
                self._requests.hold,
            ],
        )
        app[REQUESTS] = self._requests
        app[REFUSED] = self._refused
        app[MOMENTS] = self._moments
        self._authn = RequestAuthenticator(
            self.configuration.security,
            self._authenticator,
            self._own_token,
            self._wall.now_us,
            lambda then: certificate_trusted(in_force.tls.context, then),
        )
        app[AUTHN] = self._authn
        self._status = HealthHandler(
            self._replay,
            crowd,
            self._requests.budget,
            lambda: in_force.tls.certificates,
            self._last_error,
            self._authn.may_administer,
            self._source,
            None if self._follower is None else self._follower.heard,
        )
        add_routes(app.router, routes(self._readiness, self._status))
        app.on_response_prepare.extend(
            [
                self._moments.mark,
                self._middleware.mark,
                mark_kept,
                Compression().pack,
                end_unmet,
                sanitize_headers,
            ]
        )
        self._middleware.open()
        self._runner = web.AppRunner(
            app,
            handler_cancellation=True,  # a stream ends when its client has gone
            shutdown_timeout=STOP_S_MAX,
        )
        await self._runner.setup()
        host, port = self.configuration.host, self.configuration.port
        self._in_force.read_tls()
        try:
            sockets = await bind(host, port, self._shares_port)
        except OSError as error:
            await self._runner.cleanup()
            raise StoreError(
                f"cannot listen on {authority(host, port)}: {error.strerror}; choose "
                "another with --port",
                reason="address in use",
            ) from None
        server = self._runner.server
        assert server is not None
        server.request_factory = with_deferred_expectations(server.request_factory)
        self._connections = Connections(
            lambda: self._http_protocol(server),
            crowd,
            ReadBackpressure(self._requests.budget),
            lambda: in_force.configuration.limits,
        )
        bound = sockets[0].getsockname()
        self.port = bound[1]
        self._listener = Listener(sockets, self._connections, lambda: in_force.tls.context)
        return f"{self.configuration.security.scheme}://{authority(bound[0], bound[1])}"

    def _authenticator(self, by: Authentication) -> Identifies:
        """Create the authenticator; raises ConfigError."""
        # Imported only here: it needs libraries that a server without authentication does not.
        from sow.security.authentication.authenticator import Authenticator

        return Authenticator(
            by, now_us=self._wall.now_us, fetch=fetch, report=log.warning, logons=self._logons
        )

    def _http_protocol(self, server: web.Server) -> HttpProtocol:
        return HttpProtocol(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,
            logger=http_log,
            # Bodies are decompressed as there is room (`sow.server.http.body_reading`).
            auto_decompress=False,
            # `sow.server.net.connection_supervisor` closes idle connections.
            keepalive_timeout=NEVER_S,
            # A filter is in the URL, where a byte may take three.
            max_line_size=ADDRESS_BYTES + 3 * self.configuration.limits.filter_bytes_max,
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
        self._listener.close()
        if self._follower is not None:
            await self._follower.close()
        self._handlers[EventStreamHandler].close()
        self._handlers[FollowersHandler].close()
        await self._handlers[WebSocketHandler].close()
        await self._source.close()
        await self._end_requests(STOPPING)
        await self._reloader.close()
        await self.checkpointer.close()
        await self.runtime.close()
        self._close_store()
        log.info("stopped: everything is stored")
        # The loop needs an iteration to close the rest.
        await asyncio.sleep(0)

    async def _end_requests(self, why: str) -> None:
        """Let running requests end; those that wait for the start get the reason `why`."""
        self._readiness.close(why)
        await self._runner.cleanup()
        self._connections.close()

    def _close_store(self) -> None:
        while self._closers:
            self._closers.pop()()
