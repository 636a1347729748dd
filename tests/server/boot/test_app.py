"""A server as a whole: what it takes at its start, gives back at its end, and changes meanwhile."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import aiohttp
import pytest

from sow.errors import Damaged, StoreError
from sow.expressions import parser
from sow.server.boot import app
from sow.server.boot.app import Server, new_session_name, owns_process
from sow.server.loop.background_work import QUEUED_OBJECT_BYTES, objects_max
from tests.server.boot.servers import ORDERS, SLOW, configuration, publish, records


def test_what_was_durable_is_there_again_after_a_restart(served):
    async def fill(server):
        await publish(server, 1)
        await publish(server, 2)
        return records(server), server.engine.seq

    async def look(server):
        return records(server), server.engine.seq

    assert served(fill) == served(look)


def test_no_client_waits_for_the_first_expression_to_make_the_parser(served):
    parser._tables.cache_clear()

    async def made(_server):
        return parser._tables.cache_info().currsize

    assert served(made) == 1


def test_what_waits_for_sessions_is_plausible_and_no_reason_to_examine_all_objects(served):
    async def counted(server):
        sessions = server.executor.sessions
        before = objects_max(server.engine.catalog, sessions)
        sessions.memory.used += 1000 * QUEUED_OBJECT_BYTES
        grown = objects_max(server.engine.catalog, sessions) - before
        sessions.memory.used -= 1000 * QUEUED_OBJECT_BYTES
        return grown

    assert served(counted) == 1000


@pytest.mark.parametrize("is_guest", [False, True])
def test_only_a_server_whose_process_it_is_paces_the_collector(served, is_guest, monkeypatch):
    monkeypatch.setattr("sow.server.boot.app.owns_process", owns_process)  # not that of tests

    async def paced(server):
        return "looking for garbage" in server.runtime.idle_work

    if is_guest:
        with ThreadPoolExecutor() as program:
            assert not program.submit(served, paced).result()
    else:
        assert served(paced)


def test_two_servers_do_not_share_a_directory(served, tmp_path):
    async def work(_server):
        with pytest.raises(StoreError):
            await Server(configuration(), tmp_path, names=lambda: ["here"]).start()

    served(work)


@pytest.fixture
def held(monkeypatch):
    """A start that puts nothing back until it is let go."""

    class Held(app.ServerBootstrap):
        is_held = True

        def open(self, counted):
            while Held.is_held:
                yield
            yield from super().open(counted)

    monkeypatch.setattr(app, "ServerBootstrap", Held)
    return Held


@asynccontextmanager
async def starting(tmp_path, **more):
    """A server whose doors are open, what restores its records, and a client of it."""
    server = Server(configuration(), tmp_path, names=lambda: ["here"], **more)
    url = await server.open()
    restoring = asyncio.create_task(server.restore())
    async with aiohttp.ClientSession(url) as http:
        yield server, restoring, http


async def status(http, path):
    async with http.get(path) as answer:
        return answer.status, await answer.text()


RECORDS = "/v1/topics/orders/records"


def test_while_records_are_put_back_requests_wait_and_none_is_answered_by_half(
    served, held, tmp_path
):
    held.is_held = False
    served(lambda server: publish(server, 1))
    held.is_held = True

    async def go():
        async with starting(tmp_path) as (server, restoring, http):
            query = asyncio.create_task(status(http, RECORDS))
            stored = asyncio.create_task(http.post(RECORDS, json={"id": 2}))
            follower = asyncio.create_task(http.ws_connect("/v1/ws"))
            while server._readiness.waiting < 3:
                assert await status(http, "/healthz") == (200, "ok\n")
            assert await status(http, "/readyz") == (503, "replaying: opening files\n")
            assert "sow_replaying 1.0" in (await status(http, "/metrics"))[1]
            assert not any(one.done() for one in (restoring, query, stored, follower))
            held.is_held = False
            await restoring
            code, found = await query
            assert (code, b'{"id":1}' in found.encode()) == (200, True)
            assert (await stored).status == 200
            ws = await follower
            await ws.send_str('{"c":"sow","t":"orders","cid":"1"}')
            assert b'"success"' in (await ws.receive()).data
            assert await status(http, "/readyz") == (200, "ok\n")
            assert "sow_replaying 0.0" in (await status(http, "/metrics"))[1]
            await server.stop()

    asyncio.run(go())


def test_a_start_that_is_given_up_reports_who_waits_and_gives_everything_back(
    held, served, tmp_path
):
    async def go():
        async with starting(tmp_path) as (server, restoring, http):
            query = asyncio.create_task(status(http, RECORDS))
            while not server._readiness.waiting:
                await asyncio.sleep(0)
            restoring.cancel()
            code, told = await query
            assert code == 503
            assert "the server stops" in told
            with pytest.raises(asyncio.CancelledError):
                await restoring
            with pytest.raises(aiohttp.ClientConnectorError):
                await status(http, "/healthz")

    asyncio.run(go())
    held.is_held = False
    served(lambda server: publish(server, 1))


def test_a_start_that_fails_says_why_to_who_waits_too(held, tmp_path, monkeypatch):
    def open_badly(self, _counted):
        while held.is_held:
            yield
        raise Damaged("the journal is damaged")

    monkeypatch.setattr(held, "open", open_badly)

    async def go():
        async with starting(tmp_path) as (server, restoring, http):
            query = asyncio.create_task(status(http, RECORDS))
            while not server._readiness.waiting:
                await asyncio.sleep(0)
            held.is_held = False
            assert "the journal is damaged" in (await query)[1]
            with pytest.raises(Damaged):
                await restoring

    asyncio.run(go())


def test_a_reload_waits_for_the_records_too(held, tmp_path):
    async def go():
        async with starting(tmp_path, reread=lambda: configuration(ORDERS, SLOW)) as (
            server,
            restoring,
            _http,
        ):
            reloading = asyncio.create_task(server.reload())
            while not server._readiness.waiting:
                await asyncio.sleep(0)
            held.is_held = False
            await restoring
            assert await reloading == ["conflated topic orders-C added"]
            await server.stop()

    asyncio.run(go())


def test_names_of_sessions_cannot_be_guessed():
    names = {new_session_name() for _ in range(100)}
    assert len(names) == 100
    assert all(len(name) >= 22 for name in names)
