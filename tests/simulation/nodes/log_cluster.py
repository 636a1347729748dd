"""Nodes of a shared log in virtual time, with the faults of engine, network and machines.

The log is the simulated engine of `tests.shared_log`; everything else is the product's own code.
A node is killed, starts again, loses its directory, steps down, reloads; its link to the engine is
cut. A simple follower and a chained server follow one of the nodes each.
"""

import asyncio
import shutil
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest.mock import patch

from sow.core.action_definitions import ActionDeed, ActionDefinition, ActionTrigger
from sow.core.clock import JUMP_US_MAX, SharedLogClock, SystemClock
from sow.core.definitions import (
    ConflatedTopic,
    Join,
    Merge,
    QueueSettings,
    Series,
    SharedLogSettings,
    Topic,
    View,
)
from sow.errors import SowError
from sow.server.boot.log_member import LogMember
from sow.server.loop.log_driver import LogDriver
from sow.server.loop.log_writer import SharedLogThread
from tests.shared_log.engine import SimulatedEngine, SimulatedLog
from tests.simulation.nodes.cluster import MS, SECOND_US, Cluster, Edge, Following, Node, topics
from tests.simulation.nodes.virtual_loop import PROCESS, VirtualWriter

NOTED = 5
"""Of so many numbers one sets an action off."""
ACTIONS = (
    ActionDefinition(
        ActionTrigger("publish-message", "note", topic="details", filter=f"/n % {NOTED} = 0"),
        (ActionDeed("publish-message", topic="noted"),),
    ),
)
LEASE_US = 600 * MS
ANSWER_S = 1.0
AGAIN_S = 1.0


def log_topics(chance=None):
    """What is served; with `chance`, what a reload may change is drawn."""
    found = [one for one in topics(chance) if one.name != "passing"]
    return (
        *found,
        Topic("passing", "json", keys=("/id",), retain=False),
        Topic("jobs", "json", keys=("/id",)),
        Topic("waiting", "json", conflation_policy="off",
              queue=QueueSettings("jobs", lease_us=3 * SECOND_US, subscription_backlog_max=3)),
        Topic("events", "json", keys=("/id",), series=Series(events_max=3)),
        ConflatedTopic("totals", "json", "orders", interval_us=900 * MS,
                       merges=(Merge("/n", "sum"),)),
        ConflatedTopic("ticks", "json", "orders", interval_us=1500 * MS, schedule="tick"),
        Topic("details", "json", keys=("/id",)),
        Topic("noted", "json", keys=("/id",)),
        View("joined", "json", ("orders", "details"),
             ("[orders]./id AS /id", "COUNT([details]./n) AS /c", "MAX([orders]./n) AS /n"),
             ("[orders]./id",), joins=(Join("orders", "/id", "details", "/id", "left"),)),
    )  # fmt: skip


class EngineClient(SimulatedLog):
    """A client of the simulated engine."""

    async def close(self):
        pass


class VirtualSharedThread(SharedLogThread, VirtualWriter):
    """The thread of a node's journal, as a timer of the loop."""

    def join(self, timeout=None):
        if self._given != self._done:
            self.work()


class LogMachine(Node):
    """A process of `sow serve` with a shared log."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.link = self.member = None
        self.refused = ""
        """Why it did not start, or not go on."""

    @property
    def is_primary(self):
        server = self.server
        return (
            self.is_alive
            and server is not None
            and hasattr(server, "engine")
            and not server.engine.primary
        )

    def start(self):
        self.link = self.cluster.engine.connect()
        self.cluster.links.append(self.link)
        super().start()

    async def _live(self):
        while True:
            try:
                await self._one_process()
            except SowError as error:
                self.refused = error.detail
                self.cluster.refusals.append((self.name, error.reason, error.detail))
            self.server = None
            await asyncio.sleep(AGAIN_S)

    def configuration(self, which=()):
        found = super().configuration(which or self.cluster.topics)
        shared = SharedLogSettings("nats", node=self.name, advertise=self.url, lease_us=LEASE_US)
        actions = ACTIONS if any(one.name == "noted" for one in found.topics) else ()
        return replace(found, shared_log=shared, actions=actions)

    async def _one_process(self):
        self.member = member = LogMember(
            self.configuration(), lambda _settings: EngineClient(self.link, ANSWER_S)
        )
        try:
            while True:
                await member.joined()
                self.server, is_over = member.server(self._make, self.port)
                await self.server.start()
                await is_over.wait()
                await self.server.stop()  # a kill meanwhile closes its store
                self.server = None
        finally:
            await member.close()

    def _make(self, configuration, follower, machine, kind):
        loop = self.cluster.loop
        machine = machine._replace(
            bind=self.cluster.network.bind, monotonic_us=lambda: int(loop.now_s * 1e6)
        )
        return kind(
            configuration,
            Path(configuration.data_directory),
            clock=self.clock(),
            names=lambda: (),
            machine=machine,
            follower=follower,
            reread=self.configuration,
        )

    def wipe(self):
        """The machine is a new one."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class LogCluster(Cluster):
    """Three nodes of a log, a simple follower of one, and a chained server of another."""

    def __init__(self, loop, network, chance, directory):
        self.loop, self.network, self.chance = loop, network, chance
        self.outside = copy_context()
        self.links, self.refusals = [], []
        self.engine = SimulatedEngine(Random(chance.random()), self._later)
        self.topics = log_topics(chance if chance.random() < 0.3 else None)

        def place(name):
            return self, name, directory / name, network.free_port()

        self.log_nodes = tuple(LogMachine(*place(name)) for name in "abc")
        one = Following(*place("follower-1"), of=self.log_nodes[1])
        near = Edge(*place("edge-1"), of=self.log_nodes[2])
        self.simple, self.edges = (one,), (near,)
        self.nodes = (*self.log_nodes, one, near)

    def _later(self, after_s, work):
        self.loop.call_later(after_s, work, context=self.outside.copy())

    @property
    def primary(self):
        """Who leads, as it believes."""
        leads = [one for one in self.log_nodes if one.is_primary]
        return leads[-1] if leads else None

    @property
    def followers(self):
        primary = self.primary
        return tuple(one for one in (*self.log_nodes, *self.simple) if one is not primary)

    def link(self):
        """Two processes that talk to each other."""
        node = self.chance.choice(self.nodes)
        others = [one for one in self.log_nodes if one is not node]
        of = getattr(node, "of", None) or self.chance.choice(others)
        return frozenset((node.name, of.name))

    def some_log_node(self):
        """A node of the log, that which leads more often."""
        if self.primary is not None and self.chance.random() < 0.5:
            return self.primary
        return self.chance.choice(self.log_nodes)

    def kill(self):
        node = self.chance.choice((self.some_log_node(), self.chance.choice(self.nodes)))
        if node.is_alive:
            node.kill()
            self.loop.call_later(4 * self.chance.random(), self._start_again, node)
        return node

    def wipe(self):
        """A node loses its directory while others run."""
        node = self.some_log_node()
        if all(one.is_alive for one in self.log_nodes):
            node.wipe()
            self.loop.call_later(2 * self.chance.random(), self._start_again, node)

    def restart(self):
        """All nodes of the log are stopped, and start one by one under another file."""
        for node in self.log_nodes:
            if node.is_alive:
                node.kill()
        self.topics = log_topics(self.chance)
        for node in self.log_nodes:
            self.loop.call_later(4 * self.chance.random(), self._start_again, node)

    def restart_others(self):
        """One node is cut off from the engine, while the others start under another file."""
        away = self.some_log_node()
        if away.link is not None:
            away.link.cut()
            keep = self.chance.choice((0.0, 0.5, 1.0))
            self.loop.call_later(8 * self.chance.random(), away.link.heal, keep)
        self.topics = log_topics(self.chance)
        for node in self.log_nodes:
            if node is not away and node.is_alive:
                node.kill()
                self.loop.call_later(2 * self.chance.random(), self._start_again, node)

    # The engine.

    def wait_s(self):
        return self.chance.choice((0.05, 0.3, 0.9, 1.5, 4.0)) * self.chance.random()

    def cut_engine(self):
        """Nothing passes between a node and the engine for a while; then some of it, or all."""
        link, keep = self.some_log_node().link, self.chance.choice((0.0, 0.5, 1.0))
        if link is not None:
            link.cut()
            self.loop.call_later(self.wait_s(), link.heal, keep)

    def stop_engine(self):
        """The engine has no quorum."""
        self.engine.is_stopped = True
        self.loop.call_later(self.wait_s(), self.heal_engine)

    def heal_engine(self):
        self.engine.is_stopped = False

    def end_faults(self):
        self.heal_engine()
        for link in self.links:
            link.end_faults()


def virtual(loop, nodes, names):
    """Patches that have nodes of a shared log live in the time of a loop."""

    def now_us():
        return int(loop.now_s * 1e6)

    def wall_us():
        process = PROCESS.get()
        node = nodes().get(process.name) if process else None
        return (node.wall_us if node else 0) + now_us()

    def own_clock():
        return SystemClock(wall_us, lambda: int(loop.now_s * 1e9), JUMP_US_MAX)

    stack = ExitStack()
    for name, made in {
        "sow.server.boot.log_member.LogDriver": lambda *given, **more: LogDriver(
            *given, now_us=now_us, **more
        ),
        "sow.server.boot.log_member.SharedLogClock": lambda: SharedLogClock(own_clock),
        "sow.server.boot.log_follower.monotonic_us": now_us,
        "sow.server.boot.log_follower.wall_us": wall_us,
        "sow.server.boot.log_follower.SharedLogThread": VirtualSharedThread,
        "secrets.token_bytes": lambda count=32: names.randbytes(count),
    }.items():
        stack.enter_context(patch(name, made))
    return stack
