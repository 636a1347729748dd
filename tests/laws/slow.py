"""Slow clients, which read only when a test reads, and the queue of the figures.

The figures are those of docs/slow-clients.md: A1, B2, C3, A4, C5.
"""

from sow.core.definitions import SessionSettings, Topic
from tests.laws.harness import World

SMALL = SessionSettings(queue_messages_max=10)


def topic(name="t", **more):
    return Topic(name, "json", keys=("/id",), **more)


def world_of(*topics, **settings):
    return World(*topics, sessions=SessionSettings(**({"queue_messages_max": 10} | settings)))


def slow(world, *commands, **command):
    """A client that has subscribed, read its ack, and reads no more until a test says so."""
    client = world.client()
    for requested in commands or ({"c": "subscribe", "t": "t", **command},):
        client.say(**requested)
    return client


def kinds(lines):
    return [line["c"] for line in lines]


FIGURES = (("A", 1), ("B", 2), ("C", 3), ("A", 4), ("C", 5))


def figure(placement, **more):
    """What is left of the figures' queue, as (topic and value)."""
    world = world_of(topic(placement=placement, **more), queue_messages_max=4)
    client = slow(world)
    for name, value in FIGURES:
        world.publish("t", {"id": name, "v": value})
    return [f"{document['id']}{document['v']}" for _, document in client.data()]
