"""Random traffic over connections that break and sessions that go: in the end a live view has what
the question has, and a window too, in order."""

import random
from contextlib import closing

import pytest

from tests.client.behaviour.javascript_agent import NodeAgent
from tests.client.behaviour.python_agent import PythonAgent
from tests.client.behaviour.tables import TOPICS, World
from tests.edge.serving import configuration, served
from tests.effort import seeds

pytestmark = pytest.mark.edge

STEPS = 40
FILTER = "/px > 2"
WINDOW = {"filter": FILTER, "order_by": "/px DESC,/id", "top_n": 4}
AGENTS = [
    pytest.param(PythonAgent, id="python"),
    pytest.param(NodeAgent, id="node", marks=pytest.mark.node),
]


running = served(configuration(TOPICS), restarts=True)


def change(chance, world):
    """Something becomes of some records."""
    match chance.randrange(4):
        case 0:
            world.delete("orders", f"/id = {chance.randrange(8)}")
        case 1:
            world.delta("orders", {"id": chance.randrange(8), "q": {"n": chance.randrange(3)}})
        case _:
            ids = [chance.randrange(8) for _ in range(chance.randrange(1, 4))]
            world.publish("orders", [{"id": at, "px": chance.randrange(9)} for at in ids])


def trouble(chance, world, agent):
    """The network breaks, and perhaps the session is gone when it comes back."""
    agent.act("away", [])
    world.cut()
    for _ in range(chance.randrange(3)):
        change(chance, world)
    if chance.random() < 0.5:
        world.forget()
    change(chance, world)
    agent.act("back", [])


@pytest.mark.parametrize("begin", AGENTS)
@pytest.mark.parametrize("seed", seeds(3))
def test_in_the_end_there_is_what_the_question_has(running, begin, seed):
    chance, world = random.Random(seed), World(running)
    running.clear()
    change(chance, world)
    with closing(begin(running.url)) as agent:
        agent.act("live", ["v", "orders", {"filter": FILTER}])
        agent.act("live", ["w", "orders", WINDOW])
        for _ in range(STEPS):
            if chance.random() < 0.2:
                trouble(chance, world, agent)
            else:
                change(chance, world)
        held = running.records("orders", filter=FILTER, order_by="/id")
        shown = running.records("orders", **WINDOW)
        came = agent.act("until_same", ["v", held]), agent.act("until_same", ["w", shown])
        assert came == (True, True)
