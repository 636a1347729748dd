"""Some seeds of several nodes; `make simulate` runs hundreds (`tests.simulation.nodes`)."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from sow.core.definitions import ConflatedTopic, Merge, Topic, View
from tests.effort import seeds
from tests.simulation.nodes.cluster import SECOND_US
from tests.simulation.nodes.log_cluster import NOTED
from tests.simulation.nodes.log_run import silent, world

ROOT = Path(__file__).parents[2]


def play(module, seed):
    # In a process of its own, where the order of sets follows from the seed as well.
    command = [sys.executable, "-m", module, "--seed", str(seed), "--steps", "60"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("seed", seeds(3))
def test_all_nodes_show_what_the_primary_shows(seed):
    play("tests.simulation.nodes", seed)


@pytest.mark.parametrize("seed", [28])
def test_nodes_of_a_shared_log_show_what_a_naive_model_does(seed):
    play("tests.simulation.nodes.log_run", seed)


SAME = """
from tests.simulation.nodes.log_run import silent, world
with silent(), world(91, 4) as one:
    one.loop.run_until_complete(one.run())
    print(one.loop.now_s, one.loop.time())
"""
"""The time after a run is that of all that was drawn for it: each reading of the clock draws."""


def test_a_seed_is_the_same_run_again_whatever_the_order_of_sets():
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", SAME],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(number)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in (1, 2)
    ]
    first, second = (one.communicate(timeout=500)[0] for one in runs)
    assert first == second != ""


ORDERS = Topic("orders", "json", keys=("/id",))
LONG, OTHER = (
    ConflatedTopic(name, "json", "orders", interval_us=20 * SECOND_US, merges=(Merge("/n", "sum"),))
    for name in ("long", "other")
)
SUMS = View("sums", "json", ("long",), ("/id", "SUM(/n) AS /n"), ("/id",))
SHOWN = ("orders", "long", "other", "sums")
NAMES = (*SHOWN, "more")


def shown(node):
    """What a node has, and the starts and reloads that it knows."""
    engine = node.server.engine
    tables = [engine.topics[name].records.table for name in SHOWN if name in engine.topics]
    rows = [{key: bytes(one.bodies[at]) for key, at in one.slots.items()} for one in tables]
    return rows, [one[1:] for one in engine.configurations.all()]


def is_at(node, seq, topics):
    """Whether a node serves these topics at a bookmark."""
    engine = getattr(node.server, "engine", None)
    if engine is None or engine.seq != seq:
        return False
    return {one.name for one in topics} == {one for one in engine.topics if one in NAMES}


async def until(is_true):
    async with asyncio.timeout(60):
        while not is_true():
            await asyncio.sleep(0.05)


def in_world(work):
    """What a coroutine function of a cluster returns."""
    with world(1) as simulation:
        dial = simulation.network.dial
        with patch("aiohttp.connector.aiohappyeyeballs.start_connection", dial):
            return simulation.loop.run_until_complete(work(simulation.cluster))


async def window(cluster, other_file, is_late):
    """What all nodes show in a window and at its end, in which all of them are stopped."""
    seq, told = 0, []
    cluster.topics = (ORDERS, LONG, OTHER, SUMS)

    async def publish(*nodes):
        nonlocal seq
        seq += 1
        await until(lambda: cluster.primary is not None)
        server = cluster.primary.server
        server.engine.publish("orders", [b'{"id":1,"n":%d}' % 2**seq], server.runtime.now_us())
        await until(lambda: all(is_at(one, seq, cluster.topics) for one in nodes))

    nodes = a, b, c = cluster.log_nodes
    for node in nodes:
        node.start()
    for _ in range(2):
        await publish(*nodes)
    if is_late:
        c.kill()
    await publish(a, b)
    for node in nodes:
        if node.is_alive and other_file:
            node.kill()
    cluster.topics = other_file or cluster.topics
    for node in (c, b, a):  # the first of them leads
        if not node.is_alive:
            node.start()
        await until(lambda: cluster.primary is not None)
    for wait_s in (0, 30):
        await publish(*nodes)
        await asyncio.sleep(wait_s)
        first, *others = map(shown, nodes)
        assert others == [first, first]
        told.append(first[0])
    return told


@pytest.mark.parametrize("is_late", [False, True])
def test_windows_go_on_where_all_nodes_start_under_another_file(is_late):
    """Also where the node that leads has not had all of the log before."""

    def play(other_file):
        return in_world(lambda cluster: window(cluster, other_file, is_late))

    more = Topic("more", "json", keys=("/id",))
    slower = ConflatedTopic("other", "json", "orders", interval_us=25 * SECOND_US)
    with silent():
        without, under = play(()), play((ORDERS, LONG, slower, SUMS, more))
    # What is made as before is as if nothing had been stopped; another copy begins anew.
    for one in (*without, *under):
        del one[2]
    assert under == without


def noted(node):
    """What an action has noted, as the journal of a node has it."""
    entries = node.server.runtime.journal.read(0)
    return [json.loads(body)["n"] for one in entries if one.topic == "noted" for body in one.bodies]


async def set_off(cluster):
    """Messages that set an action off, each where another node leads."""
    for node in cluster.log_nodes:
        node.start()
    for n in range(NOTED, 4 * NOTED, NOTED):
        await until(lambda: cluster.primary is not None)
        leads = cluster.primary

        async def publish(server, n):
            body = b'{"id":1,"n":%d}' % n
            server.engine.publish("details", [body], server.runtime.now_us())

        await leads.process.run(publish(leads.server, n))  # what it begins dies with it
        await asyncio.sleep(3)  # that all have it, and what it has set off
        leads.kill()
        await until(lambda leads=leads: cluster.primary not in (None, leads))
        leads.start()
    await asyncio.sleep(5)
    return [noted(node) for node in cluster.log_nodes]


def test_what_sets_an_action_off_does_so_once_whoever_leads_then():
    with silent():
        found = in_world(set_off)
    assert found == 3 * [[NOTED, 2 * NOTED, 3 * NOTED]]
