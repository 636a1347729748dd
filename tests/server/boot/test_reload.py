"""Reloads: another configuration takes the place of the one in force, whole or not at all."""

import asyncio
from dataclasses import replace

import pytest

from sow.core.definitions import without_system_topics
from sow.errors import ConfigError
from tests.server.boot.servers import ORDERS, SLOW, configuration, publish


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
