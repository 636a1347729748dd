"""Settings of NATS are read at monitoring ports, before anything is appended and again later."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from sow.errors import ConfigError, UnsafeLog
from sow.shared_log.adapters.nats_settings import NatsPlace, SettingsGuard

SERVERS = ("nats://user:secret@127.0.0.1:1", "nats://127.0.0.1:2", "nats://127.0.0.1:3")


@pytest.mark.parametrize("server", ["nats://", "nats://:4222", "nats://a:x", "nats://a:99999", ""])
def test_an_address_that_is_none_is_a_sentence_without_it(server):
    with pytest.raises(ConfigError, match=r"<Servers>.*nats://10\.0\.0\.1:4222"):
        NatsPlace(servers=["nats://a:4222", server])


def test_monitors_are_at_the_hosts_of_the_servers_if_nothing_else_is_said():
    place = NatsPlace(servers=["nats://user:secret@a:4222", "tls://[::1]:4333"])
    assert place.monitor_urls == ["http://a:8222", "http://[::1]:8222"]
    assert NatsPlace(servers=["nats://a"], monitors=["http://b:1/"]).monitor_urls == ["http://b:1"]


@asynccontextmanager
async def monitored():
    """A guard of three servers, and what the monitors of these say."""
    said = [{"server_name": f"n{n}", "jetstream": {"config": {"sync_always": True}}} for n in "123"]

    async def answer(request):
        return web.json_response(said[int(request.match_info["n"])])

    app = web.Application()
    app.router.add_get("/{n}/varz", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    monitors = [f"http://127.0.0.1:{port}/{n}" for n in range(3)]
    guard = SettingsGuard(NatsPlace(servers=SERVERS, monitors=monitors))
    try:
        async with asyncio.timeout(20):
            yield guard, said
    finally:
        await guard.close()
        await runner.cleanup()


@pytest.mark.edge
def test_a_server_that_has_begun_again_under_other_settings_is_refused_until_they_are_mended():
    async def play():
        async with monitored() as (guard, said):
            await guard.ask()
            for _ in range(3):
                await guard.look_again()
            safe = said[1].pop("jetstream")
            said[1]["jetstream"] = {"config": {"sync_interval": 120}}
            await guard.look_again()
            with pytest.raises(UnsafeLog, match=r"127\.0\.0\.1:2 answers before its disk"):
                await guard.look_again()
            with pytest.raises(UnsafeLog):
                guard.check()
            with pytest.raises(UnsafeLog, match=r"127\.0\.0\.1:2"):
                await guard.ask()
            said[1]["jetstream"] = safe
            await guard.ask()
            guard.check()

    asyncio.run(play())


@pytest.mark.edge
@pytest.mark.parametrize("answer", [None, [1], "no settings", {"jetstream": 1}])
def test_a_monitor_that_says_nothing_of_use_later_stops_nobody(answer):
    async def play():
        async with monitored() as (guard, said):
            await guard.ask()
            said[0] = answer
            await guard.look_again()
            guard.check()

    asyncio.run(play())
