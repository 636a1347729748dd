"""The adapter of PostgreSQL, on a real primary with a quorum of two standbys."""

import asyncio
import secrets
import sys
from contextlib import contextmanager, suppress

import asyncpg
import pytest

from sow.errors import ConfigError, LogUnanswered, StoreError, UnsafeLog
from sow.shared_log.adapters import adapter
from sow.shared_log.adapters.postgres import PostgresLog, PostgresPlace
from tests.shared_log.adapters.harness import ANSWER_S, IN_A_FAULT_S, EngineHarness
from tests.shared_log.adapters.postgres_cluster import PostgresCluster
from tests.shared_log.adapters.processes import until
from tests.shared_log.conformance import WAIT_S, cases, check, read, read_once, unanswered

pytestmark = [pytest.mark.edge, pytest.mark.postgres_server]


@pytest.fixture(scope="module")
def cluster():
    cluster = PostgresCluster()
    yield cluster
    cluster.close()


RECEIVER = "from pg_stat_replication where application_name = 'pg_receivewal'"


class PostgresHarness(EngineHarness):
    """A table of its own in the cluster."""

    def __init__(self, cluster):
        super().__init__(cluster)
        self.table = f"log_{secrets.token_hex(4)}"

    def _client(self, ports):
        return PostgresLog(PostgresPlace(dsn=self.cluster.dsn(*ports), table=self.table))


@pytest.mark.parametrize("case", cases(PostgresHarness))
def test_it_conforms(cluster, case):
    async def play():
        await check(case, PostgresHarness(cluster))

    asyncio.run(play())


def played(cluster, work):
    """Run `work(harness)`, and end all clients."""

    async def play():
        one = PostgresHarness(cluster)
        try:
            async with asyncio.timeout(WAIT_S):
                await work(one)
        finally:
            await one.close()

    asyncio.run(play())


async def refused(place, *words):
    log = PostgresLog(place, ANSWER_S)
    try:
        with pytest.raises(UnsafeLog) as found:
            await log.append(b"never stored")
    finally:
        await log.close()
    for word in words:
        assert word in found.value.detail


@contextmanager
def setting(cluster, name, value):
    """A setting of the primary, for a while."""
    before = cluster.ask(f"show {name}")
    cluster.ask(f"alter system set {name} = '{value}'")
    try:
        reload(cluster, name, value)
        yield
    finally:
        cluster.ask(f"alter system reset {name}")
        reload(cluster, name, before)
        cluster.wait()


def reload(cluster, name, value):
    cluster.ask("select pg_reload_conf()")
    until(lambda: cluster.ask(f"show {name}") == value, f"{name} is {value}")


@pytest.mark.parametrize(
    ("name", "value"),
    [("fsync", "off"), ("full_page_writes", "off"), ("synchronous_standby_names", "")],
)
def test_settings_of_the_server_that_lose_are_refused_before_anything_is_made(cluster, name, value):
    place = PostgresPlace(dsn=cluster.dsn(), table="refused")
    with setting(cluster, name, value):
        asyncio.run(refused(place, name, "postgresql.conf"))
    assert cluster.ask("select to_regclass('refused') is null") == "t"


def test_a_commit_that_does_not_wait_is_refused_unless_it_may_be_unsafe(cluster):
    dsn = f"{cluster.dsn()}&synchronous_commit=local"
    asyncio.run(refused(PostgresPlace(dsn=dsn, table="refused"), "synchronous_commit local"))

    async def stored_all_the_same():
        log = PostgresLog(PostgresPlace(dsn=dsn, table="unsafe", unsafe=True), ANSWER_S)
        assert await log.append(b"1") == 1
        await log.close()

    asyncio.run(stored_all_the_same())


def test_a_standby_to_fail_over_to_that_is_asynchronous_is_refused(cluster):
    with setting(cluster, "synchronous_standby_names", "p2"):
        until(lambda: "async" in cluster.ask("select sync_state from pg_stat_replication"), "async")
        place = PostgresPlace(dsn=cluster.dsn(), table="refused")
        asyncio.run(refused(place, "asynchronous standby p3"))


def test_what_has_not_said_what_it_has_on_disk_is_no_standby(cluster):
    """One that has just connected; pg_receivewal says it only if it has to."""
    cluster.receive("copy")
    try:
        until(lambda: cluster.ask(f"select sync_state {RECEIVER}") == "async", "it receives")

        async def stored():
            log = PostgresLog(PostgresPlace(dsn=cluster.dsn(), table="beside"), ANSWER_S)
            assert await log.append(b"1") == 1
            await log.close()

        asyncio.run(stored())
    finally:
        cluster.kill("copy")


def test_standbys_that_may_not_be_seen_are_refused(cluster):
    cluster.ask("create role reader login; grant create on schema public to reader")
    dsn = cluster.dsn().replace("sow@", "reader@")
    asyncio.run(refused(PostgresPlace(dsn=dsn, table="refused"), "grant pg_read_all_stats"))


@pytest.mark.parametrize(
    ("name", "value"), [("synchronous_standby_names", ""), ("synchronous_commit", "local")]
)
def test_settings_that_change_under_a_connection_stop_it(cluster, name, value):
    async def work(harness):
        log = await harness.connect()
        await log.append(b"1")
        with setting(cluster, name, value):
            await unanswered(log.append(b"not stored"))
            with pytest.raises(UnsafeLog):
                await log.append(b"not stored")
        assert await log.append(b"2") == 2

    played(cluster, work)


def test_a_table_that_becomes_unlogged_under_a_connection_stops_it(cluster):
    async def work(harness):
        log = await harness.connect()
        await log.append(b"1")
        cluster.ask(f"alter table {harness.table} set unlogged")
        await unanswered(log.append(b"not stored"))
        with pytest.raises(UnsafeLog, match=f"{harness.table} is unlogged"):
            await log.append(b"not stored")
        cluster.ask(f"alter table {harness.table} set logged")
        assert await log.append(b"2") == 2

    played(cluster, work)


@pytest.mark.parametrize("rows", ["position = 2", "position = 3", "true"])
def test_rows_that_somebody_has_deleted_are_no_gap_that_is_passed_over(cluster, rows):
    async def work(harness):
        log = await harness.connect()
        await asyncio.gather(*(log.append(b"%d" % n) for n in range(3)))
        cluster.ask(f"delete from {harness.table} where {rows}")
        with pytest.raises(StoreError, match="somebody has deleted them"):
            await read(log, 1, 2)
        await log.append(b"4")
        with pytest.raises(StoreError, match=f"{harness.table} of PostgreSQL lacks rows"):
            await read(log, 1, 2)

    played(cluster, work)


def test_rights_that_are_taken_stop_appends_until_they_are_given_back(cluster):
    cluster.ask("create role writer login in role pg_read_all_stats")
    cluster.ask("grant create on schema public to writer")
    place = PostgresPlace(dsn=cluster.dsn().replace("sow@", "writer@"), table="of_writer")

    async def work(_harness):
        log = PostgresLog(place, ANSWER_S)
        await log.append(b"1")
        for right, table in (("insert", "of_writer"), ("update", "of_writer_end")):
            cluster.ask(f"revoke {right} on {table} from writer")
            with pytest.raises(LogUnanswered, match=f"permission denied for table {table}"):
                await log.append(b"not stored")
            cluster.ask(f"grant {right} on {table} to writer")
        assert await log.append(b"2") == 2
        await log.close()

    played(cluster, work)


def test_connections_that_somebody_ends_are_made_again(cluster):
    ended = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'sow'"

    async def work(harness):
        log, stored = await harness.connect(), []
        reading = asyncio.create_task(read(log, 0, 6))
        for n in range(30):
            if n % 10 == 5:
                cluster.ask(ended)
            with suppress(LogUnanswered):
                stored.append((await log.append(b"%d" % n), b"%d" % n))
        assert len(stored) >= 27
        found = await read(log, 0, stored[-1][0])
        assert set(stored) <= {*found}
        assert await reading == found[:6]

    played(cluster, work)


def test_a_wait_that_was_cancelled_is_no_answer_and_is_not_read(cluster):
    waiting = "from pg_stat_activity where wait_event = 'SyncRep'"

    async def work(harness):
        log, other = await harness.connect(), await harness.connect()
        await log.append(b"1")
        assert len(await read(other, 0, 1)) == 1
        for name in ("p2", "p3"):
            cluster.processes.pause(name)
        try:
            appending = asyncio.create_task(log.append(b"2"))
            while not cluster.ask(f"select pid {waiting}"):
                await asyncio.sleep(0.02)
            cluster.ask(f"select pg_cancel_backend(pid) {waiting}")
            await unanswered(appending)
            assert cluster.ask(f"select position from {harness.table}_end") == "2"
            other.answer_s = IN_A_FAULT_S
            await unanswered(read_once(other, 1, 1, []))
        finally:
            for name in ("p2", "p3"):
                cluster.processes.go_on(name)
        other.answer_s = ANSWER_S
        assert await read(other, 1, 1) == [(2, b"2")]

    played(cluster, work)


def test_rows_of_others_behind_the_end_come_in_their_turn_and_stop_nothing(cluster):
    async def work(harness):
        log, other = await harness.connect(), await harness.connect()
        await log.append(b"1")
        cluster.ask(f"insert into {harness.table} values (3, 'foreign'), (9, 'foreign')")
        assert await read(other, 0, 1) == [(1, b"1")]
        assert [await log.append(b"%d" % n) for n in (2, 3, 4)] == [2, 3, 4]
        assert await read(other, 1, 3) == [(2, b"2"), (3, b"foreign"), (4, b"4")]

    played(cluster, work)


def test_a_silent_line_is_noticed_and_mended(cluster):
    async def work(harness):
        log = await harness.connect()
        first = await log.append(b"1")
        log.answer_s = IN_A_FAULT_S
        reading = asyncio.create_task(read_once(log, first, 1, []))
        with suppress(LogUnanswered):  # on a busy machine
            await log.last()
        await harness.cut(log)
        await unanswered(asyncio.gather(*(log.append(b"late %d" % n) for n in range(8))))
        await unanswered(reading)
        await harness.healed(log)
        last = await log.append(b"behind")
        found = await read(log, 0, last)
        assert [found[0].block, found[-1].block] == [b"1", b"behind"]

    played(cluster, work)


@pytest.mark.parametrize(
    ("more", "word"),
    [({"dsn": "host=a dbname=b"}, "postgres://"), ({"table": "a; drop"}, "lower-case")],
)
def test_a_place_that_cannot_be_is_refused(more, word):
    with pytest.raises(ConfigError, match=word):
        PostgresPlace(**{"dsn": "postgres:///a", **more})


@pytest.mark.parametrize(
    "error", [asyncpg.InternalClientError, asyncpg.TargetServerAttributeNotMatched]
)
def test_what_the_library_makes_of_a_server_that_dies_is_no_answer(monkeypatch, error):
    async def dies(*_given, **_more):
        raise error("another operation is in progress")

    monkeypatch.setattr(asyncpg, "connect", dies)
    log = PostgresLog(PostgresPlace(dsn="postgres:///a", unsafe=True), 1.0)
    with pytest.raises(LogUnanswered, match="another operation"):
        asyncio.run(log.last())


def test_a_library_that_is_missing_is_a_sentence_that_names_the_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "sow.shared_log.adapters.postgres")
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigError, match=r"asyncpg.*pip install 'sow\[postgres\]'"):
        adapter("postgres")


def test_the_module_of_an_engine_is_found_by_its_name():
    assert adapter("postgres").PostgresLog.__name__ == "PostgresLog"


@pytest.mark.slow
def test_nothing_that_was_answered_is_lost_with_the_primary():
    cluster = PostgresCluster()

    async def work(harness):
        log = PostgresLog(PostgresPlace(dsn=cluster.dsn(), table=harness.table), 2.0)
        stored = {}
        for n in range(40):
            if n == 10:
                cluster.kill("p1")
                cluster.promote(cluster.newest_standby())
            with suppress(LogUnanswered):
                stored[await log.append(b"%d" % n)] = b"%d" % n
        assert len(stored) > 20
        last = await log.last()
        found = dict(await read(log, 0, last))
        assert {position: found[position] for position in stored} == stored
        await log.close()

    try:
        played(cluster, work)
    finally:
        cluster.close()
