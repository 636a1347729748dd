"""Nodes over engines that are there for tests: an S3 of moto, and the brokers of librdkafka.

The tests of the adapters have their faults; here a node leads, another one follows and goes on.
"""

import asyncio

import pytest
from confluent_kafka import Producer

from sow.errors import UnsafeLog
from tests.server.boot.log_nodes import LEASE_US, node_configuration, nodes_of
from tests.server.boot.servers import publish, records
from tests.shared_log.adapters.s3_server import S3Server, WithoutCondition, url

pytestmark = [pytest.mark.edge, pytest.mark.usefixtures("steady")]
LEASE = 2 * LEASE_US


async def go_on(directory, **place):
    configs = [node_configuration(name, directory, lease_us=LEASE, **place) for name in "ab"]
    async with nodes_of(None, *configs) as (first, second):
        await first.start()
        await publish(first.server, 1)
        await second.start()
        await second.until(lambda: second.follows and records(second.server) == ["1"])
        await first.die()
        await second.until(lambda: not second.follows)
        await publish(second.server, 2)
        assert records(second.server) == ["1", "2"]


def test_nodes_go_on_over_an_object_store(tmp_path):
    server = S3Server()
    try:
        asyncio.run(go_on(tmp_path, engine="s3", url=url(server.port, "nodes")))
    finally:
        server.close()


def test_nodes_go_on_over_kafka(tmp_path):
    brokers = Producer({"test.mock.num.brokers": 3})
    found = brokers.list_topics("nodes", timeout=20)  # which makes it
    servers = tuple(f"kafka://{one.host}:{one.port}" for one in found.brokers.values())
    # These brokers have no settings to be read.
    asyncio.run(go_on(tmp_path, engine="kafka", servers=servers, topic="nodes", unsafe=True))


def test_what_loses_is_refused_by_name_when_a_node_joins(tmp_path):
    async def play():
        async with WithoutCondition(server.port, refuses=False) as store:
            place = url(store.port, "nodes")
            config = node_configuration("a", tmp_path, engine="s3", url=place)
            async with nodes_of(None, config) as (node,):
                with pytest.raises(UnsafeLog, match="If-None-Match"):
                    await node.start()

    server = S3Server()
    try:
        asyncio.run(play())
    finally:
        server.close()
