"""Worlds with a narrow bound of queue memory, and clients in them that share nothing."""

from sow.core.definitions import Limits, SessionSettings
from sow.security.authorization import EVERYTHING
from tests.laws.harness import Client, World
from tests.laws.slow import topic

KB = 1000
PAD = "x" * KB


def world_of(limit, *topics, **settings):
    settings = SessionSettings(**({"queue_messages_max": 100_000} | settings))
    limits = Limits(queue_memory_bytes_max=limit)
    return World(*(topics or (topic(),)), sessions=settings, limits=limits)


def settled(world):
    """The world once all that a publish has set off is done."""
    for _ in range(1000):
        world.settle()
        if not world.executor.sessions.relief.look():
            break
    world.check()
    return world


def publish(world, first, last=None, name="t", **more):
    for number in range(first, (first if last is None else last) + 1):
        world.publish(name, {"id": number, "pad": PAD, **more})
    return settled(world)


def at(world, address):
    """A client of its own at an address."""
    client = Client(world)
    client.session.resume(None, address)
    world.executor.sessions.entitle(client.session, EVERYTHING)
    return client


def own(world, number, topic="t", **command):
    """A subscription that shares no frame with another one."""
    client = at(world, f"192.0.2.{number}")
    client.say(c="subscribe", t=topic, select=f"-/f{number}", **command)
    return client


def named(world, number, **command):
    client = at(world, f"192.0.2.{number}")
    client.say(c="logon", client=f"n{number}")
    client.say(c="subscribe", t="t", select=f"-/f{number}", **command)
    return client


def away(world, client):
    assert world.executor.sessions.drop(client.session, world.now)
    return client


def open_ones(world):
    return [one for one in world.executor.sessions if one.ended is None]


def memory(world):
    return world.executor.sessions.memory
