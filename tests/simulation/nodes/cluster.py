"""The processes of one run: a primary, followers of it, chained servers of both, and their lives.

All is the product's own code (`sow.server.boot.app.Server`) on a virtual loop. A directory of data
is on the real disk; what the journal's thread has not written when its process is killed is lost.
"""

from dataclasses import replace
from pathlib import Path

from sow.core.clock import LogClock, SystemClock
from sow.core.definitions import (
    Configuration,
    ConflatedTopic,
    FollowerSettings,
    SessionSettings,
    Topic,
    View,
)
from sow.server.boot.app import Machine, Server
from sow.server.boot.follower import Follower, Upstream
from tests.simulation.nodes.virtual_loop import Process, VirtualWriter

SECOND_US = 1_000_000
MS = 1_000
WALL_US = 1_700_000_000 * SECOND_US
RESTART_S = 0.5


def topics(chance=None):
    """What is served; with `chance`, all that may change in a reload or between lives is drawn."""
    draw = (lambda *of: of[0]) if chance is None else (lambda *of: chance.choice(of))
    orders = Topic("orders", "json", keys=("/id",), hash_indexes=draw((), (("/desk",),)))
    found = [
        orders,
        Topic("passing", "json", keys=("/id",), durability="transient"),
        Topic("expiring", "json", keys=("/id",), expires=True, expiration_us=3 * SECOND_US),
        Topic("batches", "json", keys=("/id",)),
        Topic("desks", "json", keys=("/id",), pattern="^/desk/"),
        ConflatedTopic("orders-C", "json", "orders", interval_us=draw(300, 700) * MS),
        ConflatedTopic("orders-F", "json", "orders", interval_us=200 * MS, filter="/n % 3 = 0"),
        ConflatedTopic("desks-C", "json", "desks", interval_us=200 * MS, topic_format="%n-C"),
        View("sums", "json", ("orders",), ("/desk", "COUNT(1) AS /count", "SUM(/n) AS /n"),
             ("/desk",)),
        View("large", "json", ("orders",), ("/desk", "SUM(/n) AS /n"), ("/desk",),
             filter=draw(None, "/n > 20")),
        View("slow", "json", ("orders-C",), ("/desk", "MAX(/n) AS /n"), ("/desk",)),
        ConflatedTopic("sums-C", "json", "sums", interval_us=300 * MS),
    ]  # fmt: skip
    return tuple(found)


OTHER = (Topic("other", "json", keys=("/id",)),)
"""What only another life may have more."""


class Node:
    """One process of a server, through its lives."""

    def __init__(self, cluster, name, directory, port):
        self.cluster, self.name, self.directory, self.port = cluster, name, directory, port
        self.url = f"http://127.0.0.1:{port}"
        self.process = self.server = None
        self.wall_us = WALL_US
        self.lives = 0

    @property
    def is_alive(self):
        return self.process is not None and self.process.is_alive

    def start(self):
        self.lives += 1
        self.process = Process(self.cluster.loop, self.name)
        self.process.run(self._live())

    async def _live(self):
        """A life; a follower starts again where it has to (`sow serve`)."""
        while True:
            self.server = server = self.make()
            follower = server._follower
            await server.start()
            if follower is None:
                return
            await follower.is_over.wait()
            await server.stop()

    def make(self):
        """The server of a new life."""
        raise NotImplementedError

    def made(self, configuration, **more):
        machine = Machine(
            self.cluster.network.bind, VirtualWriter, lambda: int(self.cluster.loop.now_s * 1e6)
        )
        directory = Path(configuration.data_directory)
        return Server(
            configuration, directory, clock=self.clock(), names=lambda: (), machine=machine, **more
        )

    def clock(self):
        """The machine's clock, which somebody may set."""
        loop = self.cluster.loop
        return SystemClock(
            lambda: self.wall_us + int(loop.now_s * 1e6), lambda: int(loop.now_s * 1e9)
        )

    def configuration(self, which=()):
        return Configuration(
            "nodes",
            which,
            port=self.port,
            data_directory=str(self.directory),
            sessions=replace(SessionSettings(), reconnect_timeout_us=10 * SECOND_US),
            follower=FollowerSettings(lag_us_max=SECOND_US),
        )

    def kill(self):
        """SIGKILL: nothing is closed, but what the system closes."""
        self.process.kill()
        self.cluster.network.lose(self.process)
        if self.server is not None:
            self.server._close_store()
            self.server = None


class Primary(Node):
    """The server that has the records."""

    def make(self):
        chance = self.cluster.chance
        self.more = chance.choice(((), OTHER))
        self.topics = topics(chance if chance.random() < 0.3 else None) + self.more
        return self.made(self.configuration(self.topics), reread=self._reread)

    def _reread(self):
        return self.configuration(self.topics)

    def reload(self):
        self.topics = topics(self.cluster.chance) + self.more
        return self.process.run(self.server.reload())


class Following(Node):
    """A follower of `of`."""

    def __init__(self, *arguments, of):
        super().__init__(*arguments)
        self.of = of

    def make(self):
        own, loop = self.configuration(), self.cluster.loop
        follower = Follower(Upstream(self.of.url), own, LogClock(), lambda: loop.now_s)
        return self.made(own, follower=follower)


class Edge(Node):
    """A chained server of `of`."""

    def __init__(self, *arguments, of):
        super().__init__(*arguments)
        self.of = of

    def make(self):
        own = self.configuration()
        own = replace(own, data_directory=str(self.directory / str(self.lives)))
        return self.made(own, upstream=Upstream(self.of.url))


class Cluster:
    """A primary, two followers, an edge of the primary, one of a follower, and one of an edge."""

    def __init__(self, loop, network, chance, directory):
        self.loop, self.network, self.chance = loop, network, chance

        def place(name):
            return self, name, directory / name, network.free_port()

        self.primary = Primary(*place("primary"))
        one, two = (Following(*place(f"follower-{at}"), of=self.primary) for at in (1, 2))
        near, far = Edge(*place("edge-1"), of=self.primary), Edge(*place("edge-2"), of=two)
        chained = Edge(*place("edge-3"), of=near)
        self.followers, self.edges = (one, two), (near, far, chained)
        self.nodes = (self.primary, *self.followers, *self.edges)

    def start(self):
        for node in self.nodes:
            node.start()

    def link(self):
        """Two processes that talk to each other."""
        node = self.chance.choice((*self.followers, *self.edges))
        return frozenset((node.name, node.of.name))

    def kill(self):
        """Kill a node; it starts again after a while."""
        node = self.chance.choice(self.nodes)
        if node.is_alive:
            node.kill()
            self.loop.call_later(RESTART_S * self.chance.random(), self._start_again, node)
        return node

    def _start_again(self, node):
        if not node.is_alive:
            node.start()

    def start_all(self):
        for node in self.nodes:
            self._start_again(node)

    def end(self):
        for node in self.nodes:
            if node.is_alive:
                node.kill()
