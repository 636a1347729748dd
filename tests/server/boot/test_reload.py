"""Reloads: another configuration takes the place of the one in force, whole or not at all."""

import asyncio
import threading
from dataclasses import replace

import pytest

from sow.core.definitions import QueueSettings, Topic, without_system_topics
from sow.errors import ConfigError
from sow.store.manifest import file_name
from tests.server.boot.servers import ORDERS, SLOW, configuration, publish, records


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


def test_the_files_are_read_beside_the_loop(served):
    reading, go_on = threading.Event(), threading.Event()

    def reread():
        reading.set()
        assert go_on.wait(60), "the loop waits for the file"
        return configuration(ORDERS, SLOW)

    async def work(server):
        reloading = asyncio.create_task(server.reload())
        await asyncio.to_thread(reading.wait)
        await publish(server, 1)
        go_on.set()
        assert await reloading == ["conflated topic orders-C added"]
        return records(server)

    assert len(served(work, reread=reread)) == 1


def test_a_server_stops_while_a_reload_reads_its_files(served):
    reading, go_on = threading.Event(), threading.Event()

    def reread():
        reading.set()
        go_on.wait(60)
        return configuration(ORDERS, SLOW)

    async def work(server):
        reloading = asyncio.create_task(server.reload())
        await asyncio.to_thread(reading.wait)
        await server.stop()
        server.stop = lambda: asyncio.sleep(0)  # which the fixture calls, too
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await reloading
        return list(server.engine.topics)

    assert "orders-C" not in served(work, reread=reread)


JOBS = Topic("jobs", "json", conflation_policy="off", queue=QueueSettings("orders"))


def test_a_queue_that_a_reload_adds_has_a_file_and_lives_on(served, tmp_path):
    async def first(server):
        await publish(server, 1)
        assert await server.reload() == ["queue jobs added"]
        await publish(server, 2)
        await server.checkpointer.write("jobs")
        await publish(server, 3)
        return sorted(server.engine.topic("jobs").records.table.slots)

    async def second(server):
        return sorted(server.engine.topic("jobs").records.table.slots)

    both = configuration(ORDERS, JOBS)
    there = served(first, reread=lambda: both)
    assert [name.partition("-")[0] for name in there] == ["2", "4"]
    assert (tmp_path / file_name(JOBS)).exists()
    assert served(second, config=both) == there


def test_a_removed_queue_is_an_empty_topic_until_the_next_start(served):
    found = [configuration()]

    async def work(server):
        assert await server.reload() == ["queue jobs removed"]
        await server.checkpointer.write("jobs")
        found[0] = configuration(ORDERS, JOBS)
        assert await server.reload() == ["queue jobs added"]
        await publish(server, 1)
        other = replace(JOBS, message_type="binary")
        found[0] = configuration(replace(ORDERS, keys=()), other)
        with pytest.raises(ConfigError, match="MessageType of queue jobs cannot be changed"):
            await server.reload()
        return list(server.engine.topic("jobs").records.table.slots)

    async def again(server):
        return list(server.engine.topic("jobs").records.table.slots)

    both = configuration(ORDERS, JOBS)
    assert served(work, config=both, reread=lambda: found[0]) == served(again, config=both)
