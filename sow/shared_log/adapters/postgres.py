"""A shared log in a table of PostgreSQL whose commits wait for a quorum of its standbys.

    append    what waits goes in one statement: the end of the log moves, and its row is locked
              until the commit is durable, so positions become visible in their order
    read      pages of rows; a notification says that there are more
    last      the end
    trim      the begin moves, then rows go in small portions

Rows that somebody else has put behind the end are no part of it: they are read once the end has
come there, in place of what was appended, which is void then and is appended again.

A row may be visible that no standby has: after a crash of the primary, or when somebody cancels a
commit that waits. So a reader yields nothing before a commit made after it has been answered: one
of its own appends, else an empty one of its own (`_make_durable`). A cancelled wait is answered as
a success with a warning, so any warning counts as no answer. A statement on its way is never
cancelled, for the same reason: its connection is dropped.

Settings that lose what was answered are refused. A commit waits for the disk of the primary and, if
the server says so, for a quorum of its standbys. Both can be switched off, for the server, a role,
a database or a connection; what counts is what holds for the connection that appends. A standby
that a client may fail over to has to be one of those that commits wait for.
"""

import asyncio
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar
from urllib.parse import parse_qs, urlsplit

import asyncpg

from sow.errors import ConfigError, LogTrimmed, LogUnanswered, StoreError, UnsafeLog
from sow.shared_log import BLOCK_BYTES_MAX, StoredBlock
from sow.shared_log.adapters import Appender

ON = {"fsync": "on", "full_page_writes": "on"}
WAITS = ("on", "remote_apply")
STANDBY_NAMES = "synchronous_standby_names"
CHECKED = (*ON, "synchronous_commit", STANDBY_NAMES)
WHY = {
    "fsync": "commits do not wait for the disk",
    "full_page_writes": "a page that was half written when the power failed is lost",
}
MAY_LEAD = ("startup", "catchup", "streaming")
"""States of a standby; the other one is that of a backup."""


def hosts(dsn: str) -> list[str]:
    """The servers that an address names."""
    parts = urlsplit(dsn)
    places = parts.netloc.rpartition("@")[2]
    found = [_host(place) for place in places.split(",") if place]
    return found or ",".join(parse_qs(parts.query).get("host", ["localhost"])).split(",")


def _host(place: str) -> str:
    if place.startswith("["):
        return place[1:].partition("]")[0]
    return place.partition(":")[0]


def setting_findings(where: str, settings: Mapping[str, str], n_hosts: int) -> list[str]:
    """What is unsafe in the settings that hold for a connection."""
    found = [
        f"PostgreSQL at {where} has {name} {settings[name]}, so {WHY[name]}: write `{name} = on` "
        "into postgresql.conf"
        for name, value in ON.items()
        if settings[name] != value
    ]
    if settings["synchronous_commit"] not in WAITS:
        found.append(
            f"PostgreSQL at {where} has synchronous_commit {settings['synchronous_commit']}, so it "
            "answers before an entry is safe: write `synchronous_commit = on` where it is set, "
            "in postgresql.conf, for the role, the database or in <Dsn>"
        )
    if n_hosts > 1 and not settings[STANDBY_NAMES].strip():
        found.append(
            f"<Dsn> names {n_hosts} servers and PostgreSQL at {where} has no {STANDBY_NAMES}, so "
            "all standbys are asynchronous and a fail-over loses entries that were answered: write "
            f"such as `{STANDBY_NAMES} = 'ANY 1 (a, b)'` into postgresql.conf"
        )
    return found


def standby_findings(
    where: str, standbys: Sequence[Mapping[str, Any]], addresses: Collection[str]
) -> list[str]:
    """Asynchronous standbys at the addresses that a client may fail over to."""
    found = []
    for one in standbys:
        name = one["application_name"]
        if one["sync_state"] is None:
            return [
                f"the standbys of PostgreSQL at {where} do not say whether they are "
                "synchronous: `grant pg_read_all_stats to` the user of <Dsn>"
            ]
        is_candidate = one["address"] in addresses and one["state"] in MAY_LEAD
        if one["sync_state"] == "async" and is_candidate:
            found.append(
                f"<Dsn> names the asynchronous standby {name} of PostgreSQL at {where}, and a "
                "fail-over to it loses entries that were answered: put it into "
                f"{STANDBY_NAMES}, or take it out of <Dsn>"
            )
    return found


def table_findings(table: str, persistence: Mapping[str, str]) -> list[str]:
    """Tables that do not survive a crash of the server."""
    return [
        f"the table {name} is unlogged, so a crash of PostgreSQL empties it: "
        f"`alter table {name} set logged`"
        for name, kind in persistence.items()
        if kind != "p" and name.startswith(table)
    ]


T = TypeVar("T")

PAGE_ROWS, PAGE_BYTES = 256, 4 * BLOCK_BYTES_MAX
"""What a reader holds at most, and one block more."""
BATCH_BYTES = 8 * BLOCK_BYTES_MAX
"""What one statement appends at most: all that a writer has on its way."""
BATCH_BLOCKS = 4096
"""Likewise; far more than wait at once."""
TRIM_ROWS = 1000
"""What one statement deletes: it is answered in time."""
FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # of a server that dies between two questions, or is no primary
    OSError,
    TimeoutError,
)

MAKE = """
select pg_advisory_xact_lock(hashtext('{table}'));
create table if not exists {table} (position bigint primary key, block bytea not null);
alter table {table} alter column block set storage external;
create table if not exists {table}_end (
    is_only boolean primary key default true check (is_only),
    position bigint not null,
    trimmed bigint not null
);
insert into {table}_end values (true, 0, 0) on conflict do nothing;
"""
APPEND = """
with moved as (
    update {table}_end set position = position + cardinality($1::bytea[])
    where {settings} = $2
    returning position - cardinality($1::bytea[]) as before
), stored as (
    insert into {table}
    select before + n, block from moved, unnest($1::bytea[]) with ordinality as each (block, n)
    on conflict do nothing
)
select before, pg_notify('{table}', '') from moved
"""
READ = """
select trimmed, {table}_end.position as newest, page.position, block from {table}_end
left join lateral (
    select position, block from (
        select position, block, sum(octet_length(block)) over (order by position) as bytes from (
            select position, block from {table}
            where position > $1 and position <= {table}_end.position
            order by position limit {rows}
        ) as behind
    ) as counted where bytes - octet_length(block) < {bytes}
) as page on true order by page.position
"""
NEWEST = "select position from {table}_end"
DURABLE = "select pg_logical_emit_message(true, 'sow', '')"
TRIM = """
update {table}_end set trimmed = greatest(trimmed, least($1::bigint - 1, position))
returning trimmed
"""
DELETE = """
delete from {table} where position in
    (select position from {table} where position <= $1 order by position limit {rows})
"""
WHERE = "select concat(host(inet_server_addr()), ':', current_setting('port'))"
STANDBYS = """
select application_name, state, sync_state, host(client_addr) as address from pg_stat_replication
where flush_lsn is not null or sync_state is null
"""
"""Those that have said what they have on disk; one that has just connected is asynchronous until
then, and one that only keeps the log of the server, as pg_receivewal does, for ever."""
PERSISTENCE = """
select relname, relpersistence from pg_class where oid in (to_regclass($1), to_regclass($2))
"""
LOGGED = """
(select string_agg(relpersistence::text, '' order by relname) from pg_class
where oid in (to_regclass('{table}'), to_regclass('{table}_end')))
"""
SETTINGS = ", ".join(["concat_ws(';'", *(f"current_setting('{n}')" for n in CHECKED), LOGGED])
SETTINGS += ")"
NAME = re.compile(r"[a-z_][a-z0-9_]{0,50}")


@dataclass(frozen=True, kw_only=True)
class PostgresPlace:
    """Where a log is; `<Log>` of config.xml."""

    dsn: str
    table: str = "sow_log"
    unsafe: bool = False

    def __post_init__(self) -> None:
        if not self.dsn.startswith(("postgres://", "postgresql://")):
            raise ConfigError(
                "<Dsn> of the shared log is no address of PostgreSQL: write "
                "postgres://user:password@host:5432/database, several hosts with commas between"
            )
        if not NAME.fullmatch(self.table):
            raise ConfigError(
                f"{self.table} cannot be the table of the shared log: write lower-case letters, "
                "digits and _"
            )


class PostgresLog:
    """A client of the log at a place; each answer may take `answer_s`."""

    def __init__(self, place: PostgresPlace, answer_s: float = 5.0) -> None:
        self.place = place
        self.answer_s = answer_s
        self._commands = PostgresConnection(
            self, APPEND.format(table=place.table, settings=SETTINGS.format(table=place.table))
        )
        self._appender = Appender(self._stored, BATCH_BYTES, BATCH_BLOCKS)
        self._durable = 0
        """The newest position that is known to be on a quorum."""

    async def append(self, block: bytes) -> int:
        """See `SharedLog`."""
        return await self._appender.append(block)

    async def read(self, after: int) -> AsyncGenerator[StoredBlock, None]:
        """See `SharedLog`."""
        table, what = self.place.table, f"a read from position {after}"
        query = READ.format(table=table, rows=PAGE_ROWS, bytes=PAGE_BYTES)
        connection = PostgresConnection(self, query)
        try:
            await connection.listen(what)
            while connection.is_open:
                connection.more.clear()
                page = await self._page(connection, what, after)
                for stored in page:
                    yield stored
                    after = stored.position
                if not page:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(connection.more.wait(), self.answer_s)
            self.unanswered(what, "the connection has ended")
        finally:
            connection.drop()

    async def last(self) -> int:
        """See `SharedLog`."""
        what, query = "its newest position", NEWEST.format(table=self.place.table)
        position = int(await self._commands.call(what, lambda one: one.fetchval(query)))
        await self._make_durable(self._commands, what, position)
        return position

    async def trim(self, before: int) -> None:
        """See `SharedLog`."""
        table = self.place.table
        move, delete = TRIM.format(table=table), DELETE.format(table=table, rows=TRIM_ROWS)
        call = self._commands.call
        trimmed = await call("a trim", lambda one: one.fetchval(move, before))
        while await call("a trim", lambda one: one.execute(delete, trimmed)) != "DELETE 0":
            pass

    async def close(self) -> None:
        """End the connections; what is on its way has no answer."""
        self._commands.drop()
        await self._appender.close()

    async def _stored(self, blocks: list[bytes]) -> range:
        """Append blocks; their positions."""
        commands, what = self._commands, "an append"
        before = await commands.call(
            what, lambda _: commands.statement.fetchval(blocks, commands.settings)
        )
        if before is None:
            # Its settings are others now: the next connection is checked again.
            commands.drop()
            self.unanswered(what, "its settings have changed, and nothing was stored")
        last = int(before) + len(blocks)
        self._durable = max(self._durable, last)
        return range(last - len(blocks) + 1, last + 1)

    async def _page(
        self, connection: "PostgresConnection", what: str, after: int
    ) -> list[StoredBlock]:
        rows = await connection.call(what, lambda _: connection.statement.fetch(after))
        if not rows:
            self.unanswered(what, f"the table {self.place.table}_end is empty")
        if after < (trimmed := rows[0]["trimmed"]):
            raise LogTrimmed(
                f"the table {self.place.table} of PostgreSQL begins behind position {trimmed}, "
                f"and what follows {after} is needed",
                trimmed,
            )
        page = [
            StoredBlock(row["position"], row["block"]) for row in rows if row["block"] is not None
        ]
        until = after + max(len(page), 1)
        if rows[0]["newest"] > after and (not page or page[-1].position > until):
            raise StoreError(
                f"the table {self.place.table} of PostgreSQL lacks rows behind position {after} "
                "that nobody has trimmed: somebody has deleted them, or a trigger keeps them out. "
                "Put them back, or run sow log move to another database with the node that has "
                "the newest bookmark",
                reason="another log",
            )
        if page:
            await self._make_durable(connection, what, page[-1].position)
        return page

    async def _make_durable(
        self, connection: "PostgresConnection", what: str, position: int
    ) -> None:
        """Wait until a quorum has all up to a position that was seen."""
        if position > self._durable:
            await connection.call(what, lambda one: one.execute(DURABLE))
            self._durable = max(self._durable, position)

    def unanswered(self, what: str, why: object) -> NoReturn:
        """Nobody knows what came of it."""
        raise LogUnanswered(
            f"PostgreSQL has not answered {what} of the table {self.place.table}: "
            f"{str(why) or type(why).__name__}"
        ) from (why if isinstance(why, Exception) else None)


ANSWERS_TO_CONNECT = 3
"""A connection is made, logged on and checked: each takes an answer, or several short ones."""


class PostgresConnection:
    """One connection, made and checked when it is needed, and dropped at the first failure.

    The statement that it is for is prepared with it: later it is sent in one piece.
    """

    def __init__(self, log: PostgresLog, query: str) -> None:
        self._log = log
        self._query = query
        self.statement: Any = None
        self._open: Any = None
        self.settings = ""
        """Those that were checked."""
        self._warning = ""
        self._turn = asyncio.Lock()
        self.more = asyncio.Event()
        """Something was appended, or may have been."""

    @property
    def is_open(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return self._open is not None and not self._open.is_closed()

    async def call(self, what: str, work: Callable[[Any], Awaitable[T]]) -> T:
        """What a statement answers; raises LogUnanswered, and UnsafeLog before it is sent."""
        async with self._turn:
            if not self.is_open:
                await self._timed(what, self._connect(), self._connect_s)
            answer = await self._timed(what, work(self._open), self._log.answer_s)
            if self._warning:
                self.drop()
                self._log.unanswered(what, self._warning)
            return answer

    async def listen(self, what: str) -> None:
        """Hear of what is appended from now on."""
        table = self._log.place.table
        await self.call(what, lambda one: one.add_listener(table, lambda *_: self.more.set()))

    def drop(self) -> None:
        """End it at once: what is on its way has no answer."""
        connection, self._open = self._open, None
        self.more.set()
        if connection is not None:
            connection.terminate()

    @property
    def _connect_s(self) -> float:
        return ANSWERS_TO_CONNECT * self._log.answer_s

    async def _timed(self, what: str, work: Awaitable[T], wait_s: float) -> T:
        """The result of what is never cancelled here: PostgreSQL would cancel it."""
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait([task], timeout=wait_s)
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        if not done:
            self._abandon(task)
            self._log.unanswered(what, f"nothing came within {wait_s:g} s")
        try:
            return task.result()
        except FAILURES as error:
            self.drop()
            self._log.unanswered(what, error)

    def _abandon(self, task: "asyncio.Future[Any]") -> None:
        if self._open is None:
            task.cancel()  # it connects: nothing was requested yet
        self.drop()
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _connect(self) -> None:
        """Connect to the primary and check what holds there."""
        log = self._log
        try:
            connection = await asyncpg.connect(
                log.place.dsn,
                timeout=self._connect_s,
                target_session_attrs="primary",
                server_settings={
                    "application_name": "sow",
                    "client_min_messages": "warning",
                    "statement_timeout": "0",
                    # Behind another writer that waits for its standbys nothing may gather.
                    "lock_timeout": f"{max(1, round(log.answer_s * 1000))}ms",
                    # A client that is gone without a word must not hold the lock for hours.
                    "tcp_keepalives_idle": "5",
                    "tcp_keepalives_interval": "1",
                    "tcp_keepalives_count": "5",
                },
            )
        except (asyncpg.ClientConfigurationError, ValueError) as error:  # nothing was sent
            raise ConfigError(f"<Dsn> of the shared log, or PGHOST and the like: {error}") from None
        self._open = connection
        try:
            await self._check(connection)
            self.statement = await connection.prepare(self._query)
        except BaseException:
            self.drop()
            raise
        self._warning = ""
        connection.add_log_listener(self._hear)
        connection.add_termination_listener(lambda _: self.more.set())

    def _hear(self, _connection: object, message: Any) -> None:
        if message.severity_en in ("WARNING", "ERROR", "FATAL", "PANIC"):
            self._warning = f"{message.severity_en}: {message.message}"

    async def _check(self, connection: Any) -> None:
        """Refuse settings that lose; make the table if there is none."""
        place, table = self._log.place, self._log.place.table
        names, where = hosts(place.dsn), await connection.fetchval(WHERE)
        settings = {
            name: await connection.fetchval("select current_setting($1)", name) for name in CHECKED
        }
        findings = setting_findings(where, settings, len(names))
        if len(names) > 1 and not place.unsafe:
            rows = await connection.fetch(STANDBYS)
            findings += standby_findings(where, rows, await addresses_of(names))
        refuse(findings, place.unsafe)
        if await connection.fetchval("select to_regclass($1)", f"{table}_end") is None:
            await connection.execute(MAKE.format(table=table))
        rows = await connection.fetch(PERSISTENCE, table, f"{table}_end")
        kinds = {row["relname"]: row["relpersistence"].decode() for row in rows}
        refuse(table_findings(table, kinds), place.unsafe)
        self.settings = await connection.fetchval(f"select {SETTINGS.format(table=table)}")


def refuse(findings: list[str], unsafe: bool) -> None:
    """Raise UnsafeLog for what was found, unless it may be unsafe."""
    if findings and not unsafe:
        raise UnsafeLog("; ".join(findings))


async def addresses_of(names: list[str]) -> set[str]:
    """The addresses of hosts, as far as they have any."""
    loop, found = asyncio.get_running_loop(), set()
    for name in names:
        with suppress(OSError):
            for one in await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM):
                found.add(str(one[4][0]))
    return found
