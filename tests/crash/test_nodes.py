"""A server, its followers and its edges, killed at random moments: at the end all are the same.

SOW_KILLS says how often (`make crash-nodes`: 500), SOW_SEED where the random numbers begin. Any of
five processes is killed while one publisher with numbers publishes and subscribers read, all of
them through two edges, one of the server and one of its first follower. Followers are started again
by the first process; that one and the edges by this test, now and then with another configuration.
In the end each number is in the log once, every subscriber has had it once, and each node has the
same records, copies, views and state hash.
"""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from sow.client import Client, Retry
from tests.crash.test_crash import read_log
from tests.ports import free_ports

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("SOW_KILLS", "5"))
SEED = int(os.environ.get("SOW_SEED", "20261130"))
WAIT_S = 180.0
ENDLESS = Retry(first_s=0.05, longest_s=0.5, give_up_s=WAIT_S)
CONFIG = """<SOWConfig><Name>nodes</Name><Follower><MaxLag>1s</MaxLag></Follower><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>{index}</Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
  <UnderlyingTopic>orders</UnderlyingTopic><Interval>{interval}</Interval></ConflatedTopic>
<View><Name>sums</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
  <Projection><Field>/desk AS /desk</Field><Field>SUM(/n) AS /n</Field></Projection>
  <Grouping><Field>/desk</Field></Grouping></View>{more}</SOW></SOWConfig>"""
OTHER = "<Topic><Name>other</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
LIVES = (
    {"index": "", "interval": "200ms", "more": ""},
    {"index": "<HashIndex><Key>/desk</Key></HashIndex>", "interval": "200ms", "more": ""},
    {"index": "", "interval": "100ms", "more": ""},
    {"index": "", "interval": "200ms", "more": OTHER},
)
"""Configurations of a life; none gives up what another one has."""
SHOWN = ("orders", "orders-C", "sums")
NODES = ("primary", "follower 1", "follower 2", "edge 1", "edge 2")

pytestmark = pytest.mark.edge


class Nodes:
    """The processes; `start` and `kill` those that are this test's own."""

    def __init__(self, directory, http, chance):
        self.directory, self._http, self._chance = directory, http, chance
        self.ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
        self.urls = {name: f"http://127.0.0.1:{port}" for name, port in self.ports.items()}
        self.edges = [self.urls["edge 1"], self.urls["edge 2"]]
        self._words = {
            "primary": ("--followers", "2"),
            "edge 1": ("--upstream", self.urls["primary"]),
            "edge 2": ("--upstream", self.urls["follower 1"]),
        }
        self._processes = {}
        self.killed = Counter()

    async def start(self, name):
        life = LIVES[0] if self._chance.random() < 0.7 else self._chance.choice(LIVES)
        config = self.directory / f"{name}.xml"
        config.write_text(CONFIG.format(**life))
        where = ("--port", str(self.ports[name]), "--data-dir", str(self.directory / name))
        with (self.directory / "log").open("a") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "sow.cli", "serve", config, *where, *self._words[name],
                env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log,
            )  # fmt: skip

    async def kill(self, name):
        """Kill a node, if it is there, and have it started again."""
        if name in self._words:
            self._processes[name].kill()
            await self._processes[name].wait()
            self.killed[name] += 1
            await self.start(name)
            return
        status = await self.ask(name, "/v1/status")
        own = [
            one["pid"] for one in (status or {"nodes": []})["nodes"] if one["lag_ms"] is not None
        ]
        port = str(self.ports[name]).encode()
        for pid in own:
            with suppress(OSError):
                if port in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    os.kill(pid, signal.SIGKILL)
                    self.killed[name] += 1

    async def ask(self, name, path):
        """An answer as JSON; None if there is none."""
        try:
            async with self._http.get(self.urls[name] + path) as answer:
                return await answer.json() if answer.status == 200 else None
        except (OSError, aiohttp.ClientError, TimeoutError):
            return None

    async def wait(self, name, path):
        async with asyncio.timeout(WAIT_S):
            while (found := await self.ask(name, path)) is None:
                await asyncio.sleep(0.05)
        return found

    async def shown(self, name, bookmark):
        """What a node shows at a bookmark; an edge has no state hash of its own."""
        status = await self.wait(name, f"/v1/status?min_bookmark={bookmark}&wait=60")
        said = (status["log"], status["bookmark"], status["state_hash"])
        records = [await self.wait(name, f"/v1/topics/{one}/records") for one in SHOWN]
        return (said[:1] if name.startswith("edge") else said), records

    async def differences(self, bookmark, found):
        """Note in `found` what each node shows at a bookmark; returns which differ from the
        primary, and in what."""
        found.clear()
        for name in NODES:
            found[name] = "has not come there"
            found[name] = await self.shown(name, bookmark)
        head, rows = found["primary"]
        differing = {}
        for name, (own, own_rows) in found.items():
            what = [one for one, a, b in zip(SHOWN, own_rows, rows, strict=True) if a != b]
            if not name.startswith("edge") and own != head:
                what.append(f"{own}, not {head}")
            if what:
                differing[name] = what
        return differing

    async def end(self):
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def log(self):
        return (self.directory / "log").read_text()[-5000:]


class Publishing:
    """A publisher with numbers: `last` is the newest that was published, `done` what is durable."""

    def __init__(self, urls, store, chance):
        self._urls, self._store, self._chance = urls, store, chance
        self.last = self.done = 0
        self.is_over = False

    async def run(self):
        async with (
            Client(self._urls, retry=ENDLESS, name="publisher") as client,
            client.idempotent_publisher("feed", self._store) as publisher,
        ):
            while not self.is_over:
                some = range(self.last + 1, self.last + 1 + self._chance.choice((1, 1, 3, 20)))
                bodies = [{"id": n % 50, "desk": n % 3, "n": n} for n in some]
                await publisher.publish("orders", bodies)
                self.last = some[-1]
                await publisher.drain()
                self.done = self.last
                await asyncio.sleep(0.01)


class Reading:
    """A subscriber of all numbers, which must come once each, in order."""

    def __init__(self, urls, name, command):
        self._urls, self._name, self._command = urls, name, command
        self.numbers = []
        self.gaps = 0
        self.resumed = 0

    async def run(self):
        async with Client(self._urls, retry=ENDLESS, name=self._name) as client:
            subscription = self._command(client)
            async for line in subscription:
                self.resumed = subscription.resumed
                if line.c == "gap":
                    self.gaps += 1
                    assert line.exact, f"{self._name} may lack something"
                elif line.c == "p":
                    self.numbers.append(int(line.body.rpartition(b":")[2].rstrip(b"}")))

    def check(self, last):
        found = self.numbers
        expected = list(range(found[0], last + 1))
        lacks, more = set(expected).difference(found), Counter(found) - Counter(expected)
        assert found == expected, (
            f"seed {SEED}: {self._name} lacks {sorted(lacks)[:9]}, repeats {sorted(more)[:9]}, "
            f"resumed {self.resumed} times"
        )


COMMANDS = {
    "from the beginning": lambda client: client.subscribe("orders", bookmark="0"),
    "from now": lambda client: client.subscribe("orders"),
    "filtered": lambda client: client.subscribe("orders", filter="/n > 0"),
    "pattern": lambda client: client.subscribe("^ord.*s$"),
}


async def until(holds, nodes, tasks, what):
    """Wait until something holds; fail with what a task raises."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not holds():
                for one in tasks:
                    if one.done():
                        one.result()
                        raise AssertionError(f"seed {SEED}: one has ended early")
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"seed {SEED}: {what}\n{nodes.log()}") from None


async def kill_at_random(nodes, publishing, tasks, chance):
    while nodes.killed.total() < KILLS:
        before = publishing.done
        await asyncio.sleep(chance.uniform(0.02, 0.5))
        if chance.random() < 0.5:
            await until(lambda: publishing.done > before, nodes, tasks, "nothing is published")  # noqa: B023
        await nodes.kill(chance.choice(NODES))


async def check_the_end(nodes, http, publishing, readings, tasks):
    """All is published and has been read, and all nodes show the same."""
    bookmark = (await nodes.wait("primary", "/v1/status"))["bookmark"]
    for one in readings:
        await until(
            lambda: one.numbers and one.numbers[-1] >= publishing.last,  # noqa: B023
            nodes,
            tasks,
            f"{one._name} has come to {one.numbers[-1:]} of {publishing.last}",
        )
        one.check(publishing.last)
    found, differing = {}, {}
    try:
        async with asyncio.timeout(WAIT_S):
            while differing := await nodes.differences(bookmark, found):
                await asyncio.sleep(0.2)
    except TimeoutError:
        late = [name for name, shown in found.items() if isinstance(shown, str)]
        raise AssertionError(
            f"seed {SEED}, bookmark {bookmark}: {differing} differ, {late} are late\n{nodes.log()}"
        ) from None
    log = await read_log(http, nodes.urls["primary"], 0)
    numbers = [row["d"]["n"] for row in log]
    assert numbers == [*range(1, publishing.last + 1)], f"seed {SEED}: not each once, in order"


async def run(directory):
    chance = random.Random(SEED)
    async with aiohttp.ClientSession() as http:
        nodes = Nodes(directory, http, chance)
        publishing = Publishing(nodes.edges, directory / "store", random.Random(SEED + 1))
        orders = [nodes.edges, nodes.edges[::-1]]
        readings = [
            Reading(orders[at % 2], name, one) for at, (name, one) in enumerate(COMMANDS.items())
        ]
        tasks = []
        try:
            for name in ("primary", "edge 1", "edge 2"):
                await nodes.start(name)
            for name in NODES:
                await nodes.wait(name, "/v1/topics")
            tasks = [asyncio.create_task(one.run()) for one in (publishing, *readings)]
            await until(
                lambda: all(one.numbers for one in readings), nodes, tasks, "nothing is read"
            )
            await kill_at_random(nodes, publishing, tasks, chance)
            publishing.is_over = True
            await asyncio.wait_for(tasks[0], WAIT_S)
            await check_the_end(nodes, http, publishing, readings, tasks[1:])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await nodes.end()
        assert "Traceback" not in (directory / "log").read_text(), nodes.log()
        return nodes.killed, publishing.last, readings


def test_nodes_that_are_killed_are_the_same_in_the_end(tmp_path, capsys):
    killed, count, readings = asyncio.run(run(tmp_path))
    with capsys.disabled():
        who = ", ".join(f"{name} {times}" for name, times in sorted(killed.items()))
        moved = sum(one.resumed for one in readings)
        gaps = sum(one.gaps for one in readings)
        print(
            f"\n{killed.total()} kills ({who}): {count:,} messages published, each once in the log "
            f"and to each of {len(readings)} subscribers, which went on {moved} times, with {gaps} "
            "gaps that were made up for"
        )
