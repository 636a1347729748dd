"""A server: its data directory, its engine and its port, from start to stop."""

import asyncio
import gc
import logging
import secrets
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from aiohttp import web

from sow import __version__
from sow.config.diagnostics import Reviewed
from sow.core.clock import SECOND_US, Clock, SystemClock, monotonic_us
from sow.core.cooperative import Task
from sow.core.definitions import Configuration, Topic, authority, with_system_topics
from sow.core.security_definitions import Authentication
from sow.engine.engine import Engine
from sow.engine.recovery.orphaned_records import OrphanedRecords
from sow.engine.running_topics import LiveTopic
from sow.errors import ConfigError, SowError, StoreError
from sow.expressions import make_parser
from sow.security.authentication.session_cache import Logons
from sow.server.api.admin import AdminHandler, Board
from sow.server.api.health import HealthHandler
from sow.server.boot.bootstrap import ServerBootstrap
from sow.server.boot.checkpointer import Checkpointer
from sow.server.boot.quarantine import removed_at, write_out
from sow.server.boot.routes import Handlers, open_handlers, routes
from sow.server.http.access_log import AccessLog
from sow.server.http.authn_middleware import (
    AUTHN,
    Identifies,
    RequestAuthenticator,
    SecuritySnapshot,
    fetch,
)
from sow.server.http.caching import mark_kept
from sow.server.http.compression import Compression
from sow.server.http.connection_limits import ConnectionLimiter
from sow.server.http.expectations import check_expectation, end_unmet, held_back
from sow.server.http.methods import add_routes
from sow.server.http.middleware import RequestMiddleware, machine_names
from sow.server.http.problems import REFUSED, report
from sow.server.http.read_backpressure import ReadBackpressure
from sow.server.http.request_memory import REQUESTS, Requests
from sow.server.http.responses import mend_headers
from sow.server.http.route import WEBSOCKET
from sow.server.http.startup_barrier import ReadinessGate
from sow.server.http.tls import Certificate, believes, certificates, renewed, server_context
from sow.server.loop.background_conflation import BackgroundConflation
from sow.server.loop.cache_sweeping import CacheSweeper
from sow.server.loop.coroutine_latency import MeasuredRequests
from sow.server.loop.gc_latency import GcLatency
from sow.server.loop.gc_pacing import GcPacing
from sow.server.loop.group_commit import stored_bytes
from sow.server.loop.last_error import LastError
from sow.server.loop.loop_latency import LoopLatency
from sow.server.loop.runtime import ServerRuntime
from sow.server.loop.scheduler import FairScheduler
from sow.server.loop.startup_progress import StartupProgress
from sow.server.net.connection_supervisor import Connections, Counted
from sow.server.net.http_protocol import HttpProtocol, http_log
from sow.server.net.listening import Listening, bind, raise_files_limit
from sow.sessions.commands.executor import Executor
from sow.sessions.subscriptions.reapply_permissions import PreparedPermissions, prepare
from sow.store.protocols import Journal, LogEntry
from sow.store.staging import Staging
from sow.store.stored_definitions import kept_of
from sow.streaming.sessions import Session

log = logging.getLogger("sow")

FAR_BYTES = 64 * 1024**2
"""With so much room what comes before the next group is taken without counting it: more than comes
in a second."""
STOP_S_MAX = 2.0
"""How long requests under way may take to end when the server stops: long enough for an answer that
is being written, less than what those who stop it wait for before they kill it."""
SESSION_NAME_BYTES = 16
"""128 random bits: more than can be guessed by all who may ask, for as long as they like."""
ADDRESS_BYTES = 8190
"""What a request's address may hold beside a filter: what aiohttp and most proxies allow."""
NOTABLY_FEWER = 0.9
"""Connections that the system has files for, of those that are wanted, below which it is said:
the few that a server keeps for other files are nothing to warn of."""
NEVER_S = 10 * 365 * 86_400.0
"""Ten years, for a time that aiohttp wants to be told and that never comes."""
SESSION_OBJECTS = 200
"""Python objects that a session may take with its socket and a few subscriptions."""
STOPPING = "the server stops"
FOUND_AGAIN_MAX = 10
"""How often a reload looks whose a session is that logs on anew in that very moment: nobody does so
by chance, and a reload is not to wait for who does so for ever."""


def new_session_name() -> str:
    """A name that only the client knows which it is told to."""
    return secrets.token_urlsafe(SESSION_NAME_BYTES)


class Server:
    """One server. `start` takes the data directory and the port, `stop` gives them back.

    `data_directory` is made if it is not there; one server has it at a time. `clock` tells the
    time, by default the machine's. `reread` reads the configuration again, for `reload`; it raises
    ConfigError. `names` gives what the machine is called, `logons` how often somebody may try to be
    somebody, by default as Limits say. With `allow_loss` records that have no place in the
    configuration are given up (`sow.server.boot.bootstrap`). Who shows `own_token`, if that is no
    empty text, is the server itself, to do what it does through Spark. `look` reads the
    configuration file for who wants to see it.
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
    ) -> None:
        self._look = look
        self.board = Board()
        """How what runs beside this server is getting on, for who runs it to note."""
        self._own_token = own_token
        self._reread = reread
        self._encryption: ssl.SSLContext | None = None
        self._certificates: dict[str, Certificate] = {}
        self._gate = RequestMiddleware(lambda: self.configuration, names)
        self._requests = Requests(lambda: self.configuration.limits)
        self._allow_loss = allow_loss
        self.configuration = with_system_topics(configuration)
        self.engine: Engine
        self.executor: Executor
        self.driver: ServerRuntime
        self.checkpointer: Checkpointer
        self._data_directory = data_directory
        self._clock = clock or SystemClock()
        self._closers: list[Callable[[], None]] = []
        self._last_error = LastError()
        self._replayed_bytes = 0
        self._reloading = asyncio.Lock()
        self._reloads: set[asyncio.Task[list[str]]] = set()
        self._refused: Counter[str] = Counter()
        self._address = ""
        self._opened_us = 0
        self._opening: ServerBootstrap
        self._watch: LoopLatency
        self._replay: StartupProgress
        self._entrance: ReadinessGate[Handlers]
        self._authn: RequestAuthenticator
        self._logons = logons or Logons(lambda: self.configuration.limits.logons_per_second_max)
        self._status: HealthHandler
        self._doors: Handlers
        self._runner: web.AppRunner
        self._connections: Connections
        self._listening: Listening

    async def start(self) -> str:
        """Open the port and restore all records; returns the server's address (URL).

        Raises StoreError when the data directory cannot be used or the port is taken.
        """
        address = await self.open()
        await self.restore()
        return address

    async def open(self) -> str:
        """Take the data directory and open the port; returns the server's address (URL).

        Until `restore` is done requests wait. Raises StoreError when the directory cannot be had or
        the port is taken; then, as after any error, everything is given back.
        """
        try:
            self._opening = ServerBootstrap(
                self.configuration,
                self._data_directory,
                lambda: self._new_engine(self._opening.journal),
                self._clock.now_us(),
                allow_loss=self._allow_loss,
            )
            self._closers.append(self._opening.close)
            self._watch = LoopLatency(log.warning)
            self._last_error.begin()
            self._closers.append(self._last_error.end)
            self._closers.append(GcLatency(self._watch).close)
            self._closers.append(CacheSweeper(self._watch).close)
            asks = self.configuration.security.authentication is not None
            self._replay = StartupProgress(self._opening.progress, public=not asks)
            self._entrance = ReadinessGate(self._replay.told)
            make_parser()  # no client is to wait for it
            address = await self._listen()
        except BaseException:
            self._close_store()
            raise
        self._replay.begin(address)
        self._address, self._opened_us = address, monotonic_us()
        return address

    async def restore(self) -> None:
        """Restore all records, then let in who waits.

        Raises StoreError when the data directory cannot be used. Where it fails, or is cancelled,
        the server has stopped; the directory is as it was.
        """
        try:
            await self._restore_records()
            self._begin()
            log.info(
                "started at %s: %d topics, %d records put back in %.1f s, data in %s, version %s",
                self._address,
                len(self.configuration.topics),
                self._replay.progress.done,
                (monotonic_us() - self._opened_us) / SECOND_US,
                self._data_directory,
                __version__,
            )
        except BaseException as error:
            self._replay.end()
            self._listening.close()
            await self._end_requests(error.detail if isinstance(error, SowError) else STOPPING)
            self._close_store()
            raise

    def told(self) -> str:
        """How far the start is, in words, for whoever may see topics' names."""
        return self._replay.words()

    async def _restore_records(self) -> None:
        """Have the records put back, while others ask how far it is."""
        # Nobody else is served, so none of these steps keeps anybody waiting.
        turns = FairScheduler(LoopLatency())
        # A million new objects, none of them garbage: collecting only costs time, then and later.
        gc.disable()
        try:
            await turns.take("replaying", self._opening.open(self._counted))
        finally:
            turns.close()
            gc.enable()

    def _begin(self) -> None:
        """All records are there: serve."""
        opening = self._opening
        self.engine, journal = opening.engine, opening.journal
        self.engine.restore_accounts(journal.accounts())
        self._clock.go_on_from(self.engine.now_us)
        self.driver = ServerRuntime(
            self.engine, journal, self._clock, self._windows_us(), self._watch
        )
        self.executor = Executor(
            self.engine,
            journal,
            new_session_name,
            boot=f"{secrets.token_hex(4)}-",
            refused=self._refused,
        )
        self.engine.queries.measure(self.driver.loop.time)
        self.executor.sessions.on_slow_client(log.warning)
        self.executor.sessions.on_session_change(log.info)
        self.executor.on_internal_error(log.error)
        self.engine.on_stopped(log.error)
        sessions = self.executor.sessions
        self.driver.idle_work["conflating queues"] = sessions.conflate_in_background
        BackgroundConflation(sessions, self.driver.turns, self.driver.now_us)
        self.checkpointer = Checkpointer(
            self.driver, opening.checkpoints, journal.trim, self._replayed_bytes
        )
        staging = Staging(self._data_directory / "staging", self._clock.now_us())
        self._doors = open_handlers(
            self.driver,
            self.executor,
            self.reload,
            staging,
            opening,
            self._authn,
            AdminHandler(
                self._look,
                lambda: self.engine.configuration.pipelines,
                self.board,
                self._reread,
            ),
        )
        self._replay.end()
        self._authn.follow(
            lambda: self.engine.topics,
            self.executor.audit,
            lambda: self.engine.reach(self.driver.now_us()),
            lambda: self.engine.catalog.pattern_texts,
        )
        self.executor.go_on_under(self._authn.role_set)
        self.executor.set_user_lookup(self._authn.named)
        self._status.follow(self.driver, self.executor, lambda: self.checkpointer.failure)
        self._entrance.open(self._doors)
        self.checkpointer.start()
        garbage = GcPacing(
            lambda: self.engine.catalog.objects_max() + SESSION_OBJECTS * len(sessions)
        )
        garbage.begin()
        self.driver.idle_work["looking for garbage"] = garbage.look
        self.driver.turn_work["looking for garbage"] = garbage.look
        self.driver.wake()

    def _new_engine(self, journal: Journal) -> Engine:
        requested: dict[int, bool] = {}

        def has_room(size_bytes: int) -> bool:
            # What it takes to delete everything is kept free, so that this helps at any time.
            kept_bytes = self.engine.catalog.usage.named_bytes
            if size_bytes:
                return journal.has_room(kept_bytes + size_bytes)
            # Far from full the disk is asked once for each group, when its first change comes.
            group = self.engine.group
            if group not in requested:
                requested.clear()
                requested[group] = journal.has_room(kept_bytes + FAR_BYTES)
            return requested[group] or journal.has_room(
                kept_bytes + self.engine.disk.on_the_way_bytes()
            )

        def takes(size_bytes: int) -> bool:
            return journal.takes(size_bytes)

        return Engine(self.configuration, has_room, takes, journal.lost)

    def _counted(self, entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
        self._replayed_bytes = 0
        for entry in entries:
            self._replayed_bytes += stored_bytes(entry)
            yield entry

    def _windows_us(self) -> dict[str, int]:
        """Each topic's group commit window; a topic without one takes the journal's."""
        default_us = self.configuration.journal.flush_interval_us
        return {
            topic.name: topic.flush_interval_us or default_us
            for topic in self.configuration.topics
            if isinstance(topic, Topic)
        }

    async def _listen(self) -> str:
        crowd = ConnectionLimiter(lambda: self.configuration, raise_files_limit())
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
                AccessLog(lambda: self.configuration.server_log.access, monotonic_us).note,
                MeasuredRequests(self._watch, WEBSOCKET).measure,
                report,
                self._gate.check,
                check_expectation,
                Counted(crowd).count,
                self._requests.hold,
            ],
        )
        app[REQUESTS] = self._requests
        app[REFUSED] = self._refused
        self._authn = RequestAuthenticator(
            self.configuration.security,
            self._authenticator,
            self._own_token,
            self._clock.now_us,
            lambda then: believes(self._encryption, then),
        )
        app[AUTHN] = self._authn
        self._status = HealthHandler(
            self._replay, crowd, self._requests.budget, lambda: self._certificates
        )
        self._status.know_errors(self._last_error, self._authn.may_administer)
        add_routes(app.router, routes(self._status, self._entrance))
        app.on_response_prepare.extend(
            [self._gate.mark, mark_kept, Compression().pack, end_unmet, mend_headers]
        )
        self._gate.open()
        self._runner = web.AppRunner(
            app,
            handler_cancellation=True,  # a stream ends when its client has gone
            shutdown_timeout=STOP_S_MAX,
        )
        await self._runner.setup()
        host, port = self.configuration.host, self.configuration.port
        self._encryption = self._context(self.configuration)
        self._certificates = certificates(self.configuration.security.tls)
        try:
            sockets = await bind(host, port)
        except OSError as error:
            await self._runner.cleanup()
            raise StoreError(
                f"cannot listen on {authority(host, port)}: {error.strerror}; choose "
                " another with --port",
                reason="address in use",
            ) from None
        server = self._runner.server
        assert server is not None
        server.request_factory = held_back(server.request_factory)
        self._connections = Connections(
            lambda: self._speaking(server),
            crowd,
            ReadBackpressure(self._requests.budget),
            lambda: self.configuration.limits,
        )
        bound = sockets[0].getsockname()
        self._listening = Listening(sockets, self._connections, lambda: self._encryption)
        return f"{self.configuration.security.scheme}://{authority(bound[0], bound[1])}"

    def _authenticator(self, by: Authentication) -> Identifies:
        """Who finds out who users are; raises ConfigError."""
        # Only here: it brings libraries that a server which asks nobody would load for nothing.
        from sow.security.authentication.authenticator import Authenticator

        return Authenticator(
            by, now_us=self._clock.now_us, fetch=fetch, report=log.warning, logons=self._logons
        )

    @staticmethod
    def _context(configuration: Configuration) -> ssl.SSLContext | None:
        """By which new connections are encrypted; raises ConfigError."""
        tls = configuration.security.tls
        return None if tls is None else server_context(tls)

    def _speaking(self, server: web.Server) -> HttpProtocol:
        return HttpProtocol(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,
            logger=http_log,
            # A body is decompressed as there is room (`sow.server.http.request_memory`).
            auto_decompress=False,
            # How long a connection is kept is judged by `sow.server.net.connection_supervisor`.
            keepalive_timeout=NEVER_S,
            # A filter travels in the address, where a byte may take three.
            max_line_size=ADDRESS_BYTES + 3 * self.configuration.limits.filter_bytes_max,
        )

    async def reload(self, allow_loss: bool = False) -> list[str]:
        """Read the configuration again and change what has changed; returns what that was.

        With `allow_loss`, topics that have no place in it are given up. Raises ConfigError, with
        every reason, when something cannot be changed: nothing is then. It is carried to its end
        whoever waits for it; another one begins when it is over.
        """
        task = asyncio.create_task(self._reload(allow_loss))
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)
        return await asyncio.shield(task)

    async def _reload(self, allow_loss: bool) -> list[str]:
        try:
            changes = await self._reloaded(allow_loss)
        except SowError as error:
            log.warning("not reloaded: %s", error.detail)
            raise
        log.info("reloaded: %s", ", ".join(changes) or "nothing changed")
        return changes

    async def _reloaded(self, allow_loss: bool) -> list[str]:
        await self._entrance.doors()
        async with self._reloading:
            if self._reread is None:
                raise ConfigError("this server was not started from a file")
            configuration = with_system_topics(self._reread())
            if configuration.security.scheme != self.configuration.security.scheme:
                raise ConfigError(
                    "whether there is TLS cannot be changed by a reload, since every client calls "
                    "by http:// or by https://: restart the server"
                )
            encryption = self._context(configuration)
            shown = certificates(configuration.security.tls)
            who = self._authn.read(configuration.security)
            give_up = self._give_up if allow_loss else None
            steps = self.executor.reconfiguration(configuration, self.driver.now_us(), give_up)
            try:
                changes = await self.driver.turns.take("a reload", steps)
            finally:
                self.configuration = self.engine.configuration
            changes += renewed(shown, self._certificates)
            self._encryption, self._certificates = encryption, shown
            await self._entitle(who)
            return changes

    async def _entitle(self, who: SecuritySnapshot) -> None:
        """Let other users and roles hold, for everybody from one moment on; then let what each
        session follows go by them."""
        prepared = await self._prepared(who)
        self._authn.go_on_under(who)
        for session in self.executor.go_on_under(who.role_set, prepared):
            try:
                await self.driver.turns.take("a reload", self.executor.settle(session))
            except Exception:
                # Nobody keeps rights by a bug of ours, least of all those who come after him.
                log.exception("session %s is closed: its rights are not in force", session.id)
                self.executor.sessions.bar(session)
        self.driver.wake()

    async def _prepared(self, who: SecuritySnapshot) -> dict[Session, PreparedPermissions]:
        """The rights of all sessions by these users and roles, as of the moment of return; of one
        whose client logs on again and again it is not known."""
        prepared: dict[Session, PreparedPermissions] = {}
        for _ in range(FOUND_AGAIN_MAX):
            late = [
                session
                for session in self.executor.sessions
                if session not in prepared or not prepared[session].is_of(session)
            ]
            if not late:
                break
            for session in late:
                prepared[session] = await self._prepared_one(session, who)
        return prepared

    async def _prepared_one(self, session: Session, who: SecuritySnapshot) -> PreparedPermissions:
        had, shown = session.rights, session.shown
        try:
            found = await self._authn.find_again(shown, who)
        except Exception:
            log.exception("session %s is closed: whose it is was not found out", session.id)
            return PreparedPermissions(had, shown, None)

        def preparing() -> Task[PreparedPermissions]:
            yield
            return prepare(session, shown, found, who.role_set, who.named)

        return await self.driver.turns.take("a reload", preparing())

    def _give_up(self, topics: dict[LiveTopic, str]) -> Task[None]:
        """Write out the records of topics that a reload has no place for, some in each step."""
        now_us = self.driver.now_us()
        target = removed_at(self._data_directory, now_us)
        for topic, reason in topics.items():
            assert isinstance(topic.definition, Topic)
            kept = kept_of(topic.definition, self.configuration)
            yield from write_out(OrphanedRecords(topic.records, kept, reason), target, now_us)

    async def stop(self) -> None:
        """Tell the clients, store everything, give the directory and the port back."""
        log.info("stopping")
        self._listening.close()
        self._doors.events.close()
        await self._doors.websocket.close()
        await self._end_requests(STOPPING)
        await self._end_reloads()
        await self.checkpointer.close()
        await self.driver.close()
        self._close_store()
        log.info("stopped: everything is stored")
        # Whatever the loop still has to close gets its turn.
        await asyncio.sleep(0)

    async def _end_requests(self, why: str) -> None:
        """Let requests end that are under way; those that wait for the start are told `why`."""
        self._entrance.close(why)
        await self._runner.cleanup()
        self._connections.close()

    async def _end_reloads(self) -> None:
        """A start reads the configuration anyway."""
        for task in self._reloads:
            task.cancel()
        await asyncio.gather(*self._reloads, return_exceptions=True)

    def _close_store(self) -> None:
        while self._closers:
            self._closers.pop()()
