"""Where replays begin: near a moment they give what one of the whole log does."""

import json
from random import Random

import pytest

from sow.core.definitions import CONFIGURATIONS, ConflatedTopic, View
from sow.engine import replay_places
from sow.sessions.queries import replay_starts as module
from sow.sessions.queries.past_states import PastStates
from tests.laws.harness import MS, ORDERS, SECOND, SLOW
from tests.simulation.past import NotingWorld

SUMS = View("sums", "json", ("orders",), ("/symbol AS /symbol", "SUM(/n) AS /n"), ("/symbol",))
ABOVE = ConflatedTopic("above", "json", "orders-C", interval_us=SECOND // 2, filter="/n > 2")
SOME = ConflatedTopic("some", "json", "orders", interval_us=SECOND, filter="/n > 2")
TICK = ConflatedTopic("tick", "json", "orders", interval_us=SECOND, schedule="tick")
SUMS_C = ConflatedTopic("sums-C", "json", "sums", interval_us=SECOND)
OVER = View("over", "json", ("orders-C",), ("/symbol AS /symbol", "SUM(/n) AS /n"), ("/symbol",))
NEAR = (ORDERS, SLOW, ABOVE, SOME, TICK, SUMS, SUMS_C, OVER)


def lived(random):
    """A life with pauses, starts and reloads, and bookmarks and times in it."""
    world, moments = NotingWorld(*NEAR, CONFIGURATIONS), []
    for number in range(24):
        some = [
            {"id": random.randrange(5), "symbol": random.choice("AB"), "n": random.randrange(6)}
            for _ in range(random.choice((1, 1, 3)))
        ]
        moments.append(world.publish("orders", *some))
        world.advance(random.choice((1, 90 * MS, 300 * MS, 700 * MS)))
        if random.random() < 0.1:
            world.delete("orders", f"/id = {random.randrange(5)}")
        if number in (5, 9, 17):
            world.advance(random.choice((4 * SECOND, 12 * SECOND)))
        if number == 13:
            topics = tuple(one for one in NEAR if one is not TICK or random.random() < 0.5)
            world = world.restart(*topics, CONFIGURATIONS)
            world.advance(1)
        moments.append(f"{world.engine.seq}.{world.now}")
    world = world.restart(*NEAR, CONFIGURATIONS)
    world.advance(9 * SECOND)
    return world, random.sample(moments[-28:], 3)


def answers(world, moments):
    for one in NEAR[1:]:
        for moment in moments:
            for more in (
                {"c": "sow", "as_of": str(moment)},
                {"c": "sow", "as_of": str(moment), "opts": "timestamp"},
                {"c": "subscribe", "bm": str(moment), "opts": "oof"},
            ):
                lines = world.client().say(t=one.name, **more)
                yield one.name, more, [json.dumps({**line, "s": "q"}) for line in lines]


@pytest.mark.parametrize("seed", range(2))
def test_near_a_moment_all_is_the_same_byte_for_byte(monkeypatch, seed):
    monkeypatch.setattr(replay_places, "GONE_ON_MAX", 0 if seed % 2 else 1_000)
    world, moments = lived(Random(seed))
    begun, replay = [], PastStates.replay

    def noted(past, topic, start, *arguments, **more):
        begun.append(start.seq)
        return replay(past, topic, start, *arguments, **more)

    monkeypatch.setattr(PastStates, "replay", noted)
    monkeypatch.setattr(module, "FEW", 2**63)
    whole = [*answers(world, moments)]
    assert set(begun) == {0}
    monkeypatch.setattr(module, "FEW", 0)
    assert [*answers(world, moments)] == whole
    near = [one for one in begun if one]
    assert len(near) > len(whole) // 3, "many begin near"
