"""A server as a whole: what it takes at its start, gives back at its end, and changes meanwhile."""

import asyncio
import logging
import socket
from dataclasses import replace

import pytest

from sow.clock import VirtualClock
from sow.definitions import (
    Configuration,
    ConflatedTopic,
    JournalSettings,
    Limits,
    Topic,
    without_system_topics,
)
from sow.errors import ConfigError, StoreError
from sow.server import app
from sow.server.app import Server, new_session_name
from tests.server.stand_ins import SECOND

ORDERS = Topic("orders", "json", keys=("/id",))
SLOW = ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND)
START_US = 1_700_000_000 * SECOND


def configuration(*topics, **more):
    return Configuration("test", topics or (ORDERS,), host="127.0.0.1", port=0, **more)


@pytest.fixture
def served(tmp_path):
    """What a coroutine function makes of a server that runs meanwhile."""

    def run(work, config=None, **more):
        async def go():
            clock = VirtualClock(START_US)
            server = Server(
                config or configuration(), tmp_path, clock, names=lambda: ["here"], **more
            )
            await server.start()
            try:
                return await work(server)
            finally:
                await server.stop()

        return asyncio.run(go())

    return run


async def publish(server, number):
    server.engine.publish("orders", [b'{"id":%d}' % number], server.driver.now_us())
    await server.driver.durable()


def records(server):
    return sorted(server.engine.topic("orders").records.table.slots)


def test_what_was_durable_is_there_again_after_a_restart(served):
    async def fill(server):
        await publish(server, 1)
        await publish(server, 2)
        return records(server), server.engine.seq

    async def look(server):
        return records(server), server.engine.seq

    assert served(fill) == served(look)


def test_a_port_that_is_taken_is_said_and_the_directory_given_back(served, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = replace(configuration(), port=taken.getsockname()[1])
        with pytest.raises(StoreError, match=r"cannot listen on 127\.0\.0\.1:.*--port") as caught:
            served(publish, config)
    assert caught.value.reason == "address in use"

    async def nothing(_server):
        return True

    assert served(nothing), "nobody holds the directory any more"


def test_two_servers_do_not_share_a_directory(served, tmp_path):
    async def work(_server):
        with pytest.raises(StoreError):
            await Server(configuration(), tmp_path, names=lambda: ["here"]).start()

    served(work)


def test_a_reload_changes_what_can_be_changed_and_nothing_where_it_cannot(served):
    found = [configuration(ORDERS, SLOW)]

    async def work(server):
        changes = await server.reload()
        assert "orders-C" in " ".join(changes)
        assert "orders-C" in server.engine.topics
        before = server.configuration
        found[0] = replace(configuration(replace(ORDERS, keys=("/other",)), SLOW))
        await publish(server, 1)
        with pytest.raises(ConfigError):
            await server.reload()
        assert server.configuration is before
        return [topic.name for topic in without_system_topics(before).topics]

    assert served(work, reread=lambda: found[0]) == ["orders", "orders-C"]


def test_of_two_reloads_the_second_begins_when_the_first_is_over(served):
    async def work(server):
        return await asyncio.gather(server.reload(), server.reload())

    first, second = served(work, reread=lambda: configuration(ORDERS, SLOW))
    assert first == ["conflated topic orders-C added"]
    assert second == []


def test_a_reload_that_nobody_waits_for_is_carried_to_its_end(served):
    async def work(server):
        waits = asyncio.create_task(server.reload())
        await asyncio.sleep(0)
        waits.cancel()
        assert await server.reload() == []
        return list(server.engine.topics)

    assert "orders-C" in served(work, reread=lambda: configuration(ORDERS, SLOW))


def test_a_server_that_was_started_from_no_file_cannot_reload(served):
    async def work(server):
        with pytest.raises(ConfigError, match="not started from a file"):
            await server.reload()

    served(work)


def test_fewer_connections_than_are_wanted_are_told_of(served, caplog, monkeypatch):
    monkeypatch.setattr(app, "raise_files_limit", lambda: 80)

    async def nothing(_server):
        return None

    with caplog.at_level(logging.WARNING, "sow"):
        served(nothing, configuration(limits=Limits(connections_max=85)))
        assert caplog.text == "", "a few less are nothing to warn of"
        served(nothing, configuration(limits=Limits(connections_max=100)))
    assert "there can be 80 connections, and not 100 (Limits/Connections)" in caplog.text


def test_a_topics_window_goes_before_the_journals():
    config = configuration(
        ORDERS,
        replace(ORDERS, name="quick", flush_interval_us=5),
        SLOW,
        journal=JournalSettings(flush_interval_us=100),
    )
    windows = Server(config, "nowhere")._windows_us()
    assert (windows["orders"], windows["quick"]) == (100, 5)
    assert "orders-C" not in windows


def test_names_of_sessions_cannot_be_guessed():
    names = {new_session_name() for _ in range(100)}
    assert len(names) == 100
    assert all(len(name) >= 22 for name in names)
