"""What one client orders delays nobody else, however much it is.

Costs are estimates that the engine goes by; steps are counted, so nothing depends on a clock.
"""

import json

import pytest

from sow.engine import output
from sow.protocol.publish_batching import read_frames
from sow.streaming import late_turns, router
from tests.laws.harness import ORDERS, SECOND, World

ROUNDS = 40
VARIANTS = {
    "select lists": lambda at: {"opts": f"select=[/id,/px,/f{at}]"},
    "deltas": lambda at: {"c": "delta_subscribe", "opts": f"select=[/id,/px,/f{at}]"},
    "intervals": lambda at: {"opts": f"conflation={at + 10}ms"},
    "filters": lambda at: {"filter": f"/px + {at} >= 0"},
}


@pytest.fixture
def world(monkeypatch):
    """Steps do a fortieth of what they do on a server."""
    monkeypatch.setattr(router, "AT_ONCE_US", 50)
    monkeypatch.setattr(output, "CAUGHT_UP_US", 50)
    monkeypatch.setattr(output, "TURN_US", 12)
    monkeypatch.setattr(late_turns, "ORDERED_US", 30)
    return World(ORDERS)


def greedy(world, kind, count):
    """A client with very many subscriptions, no two alike."""
    client = world.client()
    for at in range(count):
        client.say(**{"c": "subscribe", "t": "orders", **VARIANTS[kind](at)})
    return client


def steps_of_rounds(world, other):
    """The steps that each publish takes until another follower has its line."""
    writer, taken = world.client(), []
    for px in range(ROUNDS):
        frame = json.dumps({"c": "publish", "t": "orders", "d": {"id": px % 3, "px": px}}).encode()
        commands = read_frames([frame])
        steps = world.executor.carry_out(writer.session, commands, lambda: world.now)
        count, lines = 0, []
        while not lines:
            next(steps, None)
            world.settle_once()
            count += 1
            lines = other.sent()
            assert count < 10_000
        for _ in steps:
            world.settle_once()
        assert [line["d"]["px"] for line in lines] == [px]
        taken.append(count)
    return taken


@pytest.mark.parametrize("kind", VARIANTS)
@pytest.mark.parametrize("is_first", [False, True])
def test_others_are_told_as_soon_however_much_one_client_orders(world, kind, is_first):
    other = None if is_first else world.client()
    one = greedy(world, kind, 150)
    other = other or world.client()
    other.say(c="delta_subscribe", t="orders", opts="select=[/id,/px]")
    taken = steps_of_rounds(world, other)
    assert world.engine.output.late, "it keeps up: too little to show anything"
    world.check()
    assert max(taken) <= 2
    world.settle()
    world.advance(2 * SECOND)
    world.check()
    newest = {}
    for line in one.lines():
        newest.setdefault(line["s"], {})[line["d"]["id"]] = line["d"]["px"]
    assert len(newest) == 150
    assert {tuple(sorted(held.items())) for held in newest.values()} == {
        ((0, ROUNDS - 1), (1, ROUNDS - 3), (2, ROUNDS - 2))
    }
