"""What falls due is done a slice at a time, and others are served between."""

import asyncio
from dataclasses import replace

from sow.core.definitions import ConflatedTopic
from sow.server.loop import scheduler as turns_of_work
from sow.topic import expirations
from tests.server.stand_ins import ORDERS, SECOND, World, stepped, turns

COPY = ConflatedTopic("copy", "json", "orders", interval_us=SECOND)


async def due(world):
    """Time passes until what waits is due, and the alarm has rung."""
    world.driver.wake()
    await turns()
    world.clock.advance(5 * SECOND)
    await asyncio.sleep(5)


def left(world):
    return len(world.engine.topic("orders").records.table)


@stepped
async def test_many_records_that_expire_at_one_moment_let_others_by(monkeypatch):
    monkeypatch.setattr(turns_of_work, "SLICE_S", 0.0)
    monkeypatch.setattr(expirations, "EXPIRED_AT_ONCE", 10)
    world = World(replace(ORDERS, expires=True))
    bodies = [b'{"id":%d}' % at for at in range(1000)]
    world.engine.publish("orders", bodies, world.clock.now_us(), expires_s=5)
    await due(world)
    seen = []
    while left(world):
        seen.append(left(world))
        await asyncio.sleep(0)
    assert len(seen) > 50, "some at a time"
    assert world.driver.watch.longest_s.keys() >= {"what falls due"}
    await world.driver.close()


@stepped
async def test_each_of_many_topics_has_its_turn(monkeypatch):
    monkeypatch.setattr(turns_of_work, "SLICE_S", 0.0)
    monkeypatch.setattr(expirations, "EXPIRED_AT_ONCE", 10)
    topics = [replace(ORDERS, name=f"t{at}", expires=True) for at in range(3)]
    world = World(*topics)
    for topic in topics:
        bodies = [b'{"id":%d}' % at for at in range(100)]
        world.engine.publish(topic.name, bodies, world.clock.now_us(), expires_s=5)
    await due(world)
    while counts := [len(world.engine.topic(topic.name).records.table) for topic in topics]:
        assert max(counts) - min(counts) <= 10, "none goes before the others have had a part"
        if not any(counts):
            break
        await asyncio.sleep(0)
    await world.driver.close()
