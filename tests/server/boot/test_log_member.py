"""A node of a shared log: which server it is, and whom it joins."""

import asyncio
from dataclasses import replace

import pytest

from sow.core.definitions import SharedLogSettings, Topic
from sow.errors import ConfigError, StoreError
from sow.server.boot.log_member import LeadingServer, fingerprint, open_log
from tests.server.boot.log_nodes import node_configuration, nodes_of
from tests.server.boot.servers import ORDERS, configuration, publish, records
from tests.shared_log.files import FileLog

pytestmark = pytest.mark.edge


def test_nodes_differ_in_name_address_and_paths_alone(tmp_path):
    one = node_configuration("a", tmp_path, dsn="postgres://secret@here")
    other = replace(node_configuration("b", tmp_path / "other"), host="0.0.0.0", port=9)
    assert fingerprint(one) == fingerprint(other)
    assert fingerprint(one) != fingerprint(configuration(ORDERS, Topic("more", "json", ("/id",))))


def test_each_engine_has_its_client():
    nats = open_log(
        SharedLogSettings("nats", ("nats://a:1", "nats://b:1"), "mine", 2, ("http://a:2",))
    )
    assert (nats.place.servers, nats.place.stream) == (("nats://a:1", "nats://b:1"), "mine")
    assert (nats.place.replicas, nats.place.monitors, nats.answer_s) == (2, ("http://a:2",), 1.0)
    postgres = open_log(
        SharedLogSettings("postgres", dsn="postgres://here/log", lease_us=3_000_000, unsafe=True)
    )
    assert (postgres.place.dsn, postgres.place.unsafe) == ("postgres://here/log", True)
    assert postgres.answer_s == 3.0
    kafka = open_log(SharedLogSettings("kafka", ("kafka://a:9092", "b:9092"), topic="mine"))
    assert (kafka.place.servers, kafka.place.topic) == (["a:9092", "b:9092"], "mine")
    s3 = open_log(SharedLogSettings("s3", url="s3://bucket/name?region=here", unsafe=True))
    assert (s3.place.url, s3.place.unsafe) == ("s3://bucket/name?region=here", True)


def test_the_first_node_leads_and_another_goes_on_when_it_is_gone(tmp_path):
    async def play():
        configs = [node_configuration(name, tmp_path) for name in "ab"]
        async with nodes_of(FileLog(tmp_path / "log"), *configs) as (first, second):
            await first.start()
            assert isinstance(first.server, LeadingServer)
            await publish(first.server, 1)
            await second.start()
            await second.until(lambda: second.follows and records(second.server) == ["1"])
            log_id = first.server.runtime.journal.log_id
            assert second.server.runtime.journal.log_id == log_id
            with pytest.raises(ConfigError, match="reload"):
                await first.server.reload()
            await first.die()
            await second.until(lambda: not second.follows)
            assert records(second.server) == ["1"]
            await publish(second.server, 2)
            await first.start()
            await first.until(lambda: first.follows and records(first.server) == ["1", "2"])
            assert first.server.engine.primary == "http://b"
            assert first.server.runtime.journal.log_id == log_id

    asyncio.run(play())


def test_a_primary_that_was_passed_over_keeps_nothing_that_is_not_in_the_log(tmp_path):
    async def play():
        configs = [node_configuration(name, tmp_path) for name in "ab"]
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, *configs) as (first, second):
            await first.start()
            await publish(first.server, 1)
            await second.start()
            await second.until(lambda: second.follows and records(second.server) == ["1"])
            append = first.member._shared.append

            async def never(_block):
                await asyncio.Event().wait()

            first.member._shared.append = never
            lost = asyncio.create_task(publish(first.server, 2))
            await second.until(lambda: not second.follows)
            await publish(second.server, 3)
            first.member._shared.append = append
            with pytest.raises(Exception, match=r"not known|another node leads"):
                await lost
            await first.until(lambda: first.follows and records(first.server) == ["1", "3"])

    asyncio.run(play())


def test_without_a_quorum_writes_are_refused_and_taken_again(tmp_path):
    async def play():
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, node_configuration("a", tmp_path)) as (node,):
            await node.start()
            await publish(node.server, 1)
            client, is_back = node.member._shared, asyncio.Event()
            append = client.append

            async def waits(block):
                await is_back.wait()
                return await append(block)

            client.append = waits
            with pytest.raises(Exception, match="not known") as unknown:
                await publish(node.server, 2)
            assert unknown.value.reason == "outcome unknown"
            with pytest.raises(StoreError) as refused:
                await publish(node.server, 3)
            assert refused.value.reason == "no quorum" == node.server.runtime.refusal
            is_back.set()
            await node.until(lambda: node.server.runtime.refusal is None)
            await publish(node.server, 4)
            assert records(node.server) == ["1", "2", "4"]

    asyncio.run(play())


def test_a_node_with_another_configuration_does_not_join(tmp_path):
    async def play():
        other = node_configuration("b", tmp_path, ORDERS, Topic("more", "json", ("/id",)))
        shared = FileLog(tmp_path / "log")
        async with nodes_of(shared, node_configuration("a", tmp_path), other) as (first, second):
            await first.start()
            with pytest.raises(ConfigError, match="node a leads the shared log under another"):
                await second.start()

    asyncio.run(play())


def test_records_of_another_log_are_not_taken_for_those_of_this_one(tmp_path):
    async def play(path):
        config = node_configuration("a", tmp_path)
        async with nodes_of(FileLog(path), config) as (node,):
            await node.start()
            await publish(node.server, 1)

    asyncio.run(play(tmp_path / "one"))
    with pytest.raises(StoreError, match="the shared log is"):
        asyncio.run(play(tmp_path / "two"))
