"""Reloads: a configuration that is read again takes the place of the one in force.

The files are read in a thread, and everything is checked first, so a reload changes all or nothing.
Topics change in steps (`sow.engine.reconfiguration`), then TLS files, users and roles: all clients
at one moment, and then the subscriptions of each session. One reload runs at a time, to its end,
whatever becomes of its caller.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from sow.core.cooperative import Task
from sow.core.definitions import Configuration, Topic, with_system_topics
from sow.engine.reconfiguration import GiveUp
from sow.engine.recovery import OrphanedRecords
from sow.engine.running_topics import LiveTopic
from sow.errors import ConfigError, SowError
from sow.server.boot.bootstrap import ServerBootstrap
from sow.server.boot.quarantine import removed_at, write_out
from sow.server.http.authn_middleware import RequestAuthenticator, SecuritySnapshot
from sow.server.http.connections import TlsFiles, read_tls, renewed
from sow.server.loop.background_work import compile_beside, long_among
from sow.server.loop.runtime import ServerRuntime
from sow.sessions.commands.executor import Executor
from sow.sessions.subscriptions.reapply_permissions import PreparedPermissions, prepare
from sow.store.manifest import kept_of
from sow.streaming.sessions import Session

log = logging.getLogger("sow.app")
"""Reloads are logged by the component that logs start and stop."""

IDENTIFIED_MAX = 10
"""How often a reload identifies sessions that log on again at that very moment: nobody does so by
chance, and a reload must not wait for them for ever."""


@dataclass(slots=True)
class InForce:
    """The configuration that a server runs by, and what its TLS files held when they were read."""

    configuration: Configuration
    tls: TlsFiles

    def go_on_under(self, configuration: Configuration) -> None:
        """Another configuration is in force."""
        self.configuration = configuration

    def read_tls(self) -> None:
        """Read the TLS files of the configuration; raises ConfigError."""
        self.tls = read_tls(self.configuration.security.tls)


class Reloader:
    """The reloads of one running server; `reread` reads the configuration file (None: there is
    none)."""

    def __init__(
        self,
        runtime: ServerRuntime,
        executor: Executor,
        authn: RequestAuthenticator,
        in_force: InForce,
        reread: Callable[[], Configuration] | None,
        store: ServerBootstrap,
    ) -> None:
        self._runtime = runtime
        self._executor = executor
        self._authn = authn
        self._in_force = in_force
        self._reread = reread
        self._store = store
        self._reloading = asyncio.Lock()
        self._reloads: set[asyncio.Task[list[str]]] = set()

    @property
    def is_reloading(self) -> bool:
        """Topics are being changed."""
        return self._reloading.locked()

    async def reload(self, allow_loss: bool) -> list[str]:
        """Read the configuration again and apply its changes; returns their descriptions. Raises
        ConfigError."""
        task = asyncio.create_task(self._reload(allow_loss))
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel reloads: the next start reads the configuration anyway."""
        for task in self._reloads:
            task.cancel()
        await asyncio.gather(*self._reloads, return_exceptions=True)

    async def _reload(self, allow_loss: bool) -> list[str]:
        try:
            async with self._reloading:
                changes = await self._reloaded(allow_loss)
        except SowError as error:
            log.warning("not reloaded: %s", error.detail)
            raise
        log.info("reloaded: %s", ", ".join(changes) or "nothing changed")
        return changes

    async def _reloaded(self, allow_loss: bool) -> list[str]:
        # The files of a thousand definitions take a second.
        read = await asyncio.to_thread(self._read)
        return await self._put_in_force(*read, self._give_up if allow_loss else None)

    async def adopt(self, configuration: Configuration) -> list[str]:
        """Go on under a configuration of the log, which another server has put in force; returns
        what was changed. Raises ConfigError."""
        security = await asyncio.to_thread(self._authn.read, configuration.security)
        configuration, tls = with_system_topics(configuration), self._in_force.tls
        async with self._reloading:
            changes = await self._put_in_force(configuration, tls, security, _given_up)
        log.info("reloaded as the primary: %s", ", ".join(changes) or "nothing changed")
        return changes

    async def _put_in_force(
        self,
        configuration: Configuration,
        tls: TlsFiles,
        security: SecuritySnapshot,
        give_up: GiveUp | None,
    ) -> list[str]:
        in_force = self._in_force
        filters = self._executor.engine.filters.under(configuration.limits)
        texts = [one.filter for one in configuration.topics if not isinstance(one, Topic)]
        await compile_beside(filters, long_among(filters, texts))
        await self._make_files(configuration)
        steps = self._executor.reconfiguration(configuration, self._runtime.now_us(), give_up)
        try:
            changes = await self._runtime.turns.run("a reload", steps)
        finally:
            in_force.configuration = self._executor.engine.configuration
        changes += renewed(tls.certificates, in_force.tls.certificates)
        in_force.tls = tls
        await self._entitle(security)
        return changes

    async def _make_files(self, configuration: Configuration) -> None:
        """Have a file for each queue that is new."""
        names = {one.name for one in self._in_force.configuration.topics}
        topics = (one for one in configuration.topics if isinstance(one, Topic) and one.queue)
        if queues := [one for one in topics if one.name not in names]:
            store = self._store
            found = await asyncio.to_thread(store.files_for, queues, configuration)
            store.checkpoints.update(found)

    def _read(self) -> tuple[Configuration, TlsFiles, SecuritySnapshot]:
        """Read all files, in a thread; raises ConfigError."""
        if self._reread is None:
            raise ConfigError("this server was not started from a file")
        configuration = with_system_topics(self._reread())
        if configuration.security.scheme != self._in_force.configuration.security.scheme:
            raise ConfigError(
                "whether there is TLS cannot be changed by a reload, since every client calls "
                "by http:// or by https://: restart the server"
            )
        tls = read_tls(configuration.security.tls)
        return configuration, tls, self._authn.read(configuration.security)

    async def _entitle(self, security: SecuritySnapshot) -> None:
        """Apply users and roles to all clients at one moment; then apply them to each session's
        subscriptions."""
        prepared = await self._prepared(security)
        self._authn.swap_security(security)
        for session in self._executor.go_on_under(security.role_set, prepared):
            try:
                await self._runtime.turns.run("a reload", self._executor.settle(session))
            except Exception:
                # Nobody keeps permissions because of a bug of ours, least of all the sessions after
                # this one.
                log.exception("session %s is closed: its rights are not in force", session.id)
                self._executor.sessions.bar(session)
        self._runtime.wake()

    async def _prepared(self, security: SecuritySnapshot) -> dict[Session, PreparedPermissions]:
        """The permissions of all sessions by these users and roles, as of the moment of return;
        incomplete for clients that log on again and again."""
        prepared: dict[Session, PreparedPermissions] = {}
        for _ in range(IDENTIFIED_MAX):
            late = [
                session
                for session in self._executor.sessions
                if session not in prepared or not prepared[session].is_of(session)
            ]
            if not late:
                break
            for session in late:
                prepared[session] = await self._prepared_one(session, security)
        return prepared

    async def _prepared_one(
        self, session: Session, security: SecuritySnapshot
    ) -> PreparedPermissions:
        had, shown = session.rights, session.shown
        try:
            found = await self._authn.identify_again(shown, security)
        except Exception:
            log.exception("session %s is closed: its user cannot be identified", session.id)
            return PreparedPermissions(had, shown, None)

        def preparing() -> Task[PreparedPermissions]:
            yield
            return prepare(session, shown, found, security.role_set, security.named)

        return await self._runtime.turns.run("a reload", preparing())

    def _give_up(self, topics: dict[LiveTopic, str]) -> Task[None]:
        """Write out the records of topics that a reload has no place for, some in each step."""
        now_us = self._runtime.now_us()
        target = removed_at(self._store.path, now_us)
        for topic, reason in topics.items():
            assert isinstance(topic.definition, Topic)
            kept = kept_of(topic.definition, self._in_force.configuration)
            yield from write_out(OrphanedRecords(topic.records, kept, reason), target, now_us)


def _given_up(_topics: dict[LiveTopic, str]) -> Task[None]:
    """The primary has written them out."""
    yield
