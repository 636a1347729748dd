"""Configurations and requests of the servers that tests start."""

from sow.core.definitions import Configuration, ConflatedTopic, Topic
from tests.server.stand_ins import SECOND

ORDERS = Topic("orders", "json", keys=("/id",))
SLOW = ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND)
START_US = 1_700_000_000 * SECOND


def configuration(*topics, **more):
    return Configuration("test", topics or (ORDERS,), host="127.0.0.1", port=0, **more)


async def publish(server, number):
    server.engine.publish("orders", [b'{"id":%d}' % number], server.runtime.now_us())
    await server.runtime.durable()


def records(server):
    return sorted(server.engine.topic("orders").records.table.slots)
