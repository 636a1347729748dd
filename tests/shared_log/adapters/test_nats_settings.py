"""Settings of NATS are read at monitoring ports, before anything is appended and again later.

Settings of NATS that lose what was answered are found, and others are not.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from sow.errors import ConfigError, UnsafeLog
from sow.shared_log.adapters import nats_settings
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


SAFE = {"version": "2.15.1", "jetstream": {"config": {"sync_always": True}}}
STREAM = {
    **nats_settings.KEEPS_ALL,
    **nats_settings.SETTINGS,
    "num_replicas": 3,
    "subjects": ["sow.log"],
}


def test_a_server_that_waits_for_its_disk_is_safe():
    assert nats_settings.server_findings("nats://a:4222", SAFE) == []


@pytest.mark.parametrize(
    ("varz", "write"),
    [
        ({}, "sync_interval: always"),
        ({"jetstream": {}}, "without JetStream"),
        ({"jetstream": {"config": {"sync_interval": 120_000_000_000}}}, "sync_interval: always"),
        ({"jetstream": {"config": {"sync_always": False}}}, "sync_interval: always"),
        # Debian's NATS 2.9 does not say it, because it cannot do it.
        ({"version": "2.9.10", "jetstream": {"config": {"max_memory": 1}}}, "NATS 2.9.10"),
    ],
)
def test_any_other_server_is_named_with_what_to_write(varz, write):
    (found,) = nats_settings.server_findings("nats://a:4222", varz)
    assert write in found
    assert "nats://a:4222" in found


def test_settings_that_cannot_be_read_are_a_finding():
    found = nats_settings.unread_finding("nats://a:4222", "http://a:8222", "refused")
    assert "nats://a:4222 cannot be read at http://a:8222/varz (refused)" in found
    assert "<Monitor>" in found


@pytest.mark.parametrize(
    ("replicas", "servers", "is_safe"),
    [(1, 1, True), (2, 2, True), (1, 3, False), (2, 3, False), (3, 3, True), (3, 5, True)],
)
def test_replicas_are_three_where_there_are_three_servers(replicas, servers, is_safe):
    assert (nats_settings.replicas_finding(replicas, servers) == []) == is_safe


def test_a_stream_as_it_is_made_is_safe():
    assert nats_settings.stream_findings("sow", STREAM, "sow.log", 3) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_replicas", 1),
        ("persist_mode", "async"),
        ("subjects", ["sow.log", "other"]),
        ("subject_transform", {"src": "a", "dest": "b"}),
        ("max_msgs", 1000),
        ("max_bytes", 1000),
        ("max_age", 1000),
        ("max_msgs_per_subject", 1),
        ("retention", "interest"),
        ("storage", "memory"),
        ("sealed", True),
        ("no_ack", True),
        ("max_msg_size", 1000),
        ("max_consumers", 1),
        ("allow_rollup_hdrs", True),
        ("sources", [{"name": "other"}]),
    ],
)
def test_a_stream_that_loses_entries_says_by_which_setting(name, value):
    (found,) = nats_settings.stream_findings("sow", {**STREAM, name: value}, "sow.log", 3)
    assert found.startswith("the stream sow ")
    called = {"num_replicas": "replicas"} | dict.fromkeys(
        ("subject_transform", "subjects", "sources"), "takes"
    )
    assert called.get(name, name) in found


def test_replicas_stand_on_servers_whose_settings_are_known():
    cluster = {"leader": "n1", "replicas": [{"name": "n2"}, {"name": "n3"}]}
    assert nats_settings.placement_findings("sow", cluster, {"n1", "n2", "n3"}) == []
    (found,) = nats_settings.placement_findings("sow", cluster, {"n1", "n2"})
    assert "server n3" in found
    assert nats_settings.placement_findings("sow", {}, set()) == []
