"""Three nodes of a shared log on a real NATS cluster; who leads is killed again and again.

SOW_KILLS says how often (`make crash-log`: 200), SOW_SEED where the random numbers begin, and
SOW_RECORDS how many records there are before. Some are paused until another one leads, and not
killed. Publishers write meanwhile to whoever leads, each document once, whatever becomes of it;
readers read on every node. In the end what was acknowledged is there, what was refused as not
applied is not, nothing is in the log twice, and every node has the same log, records, views and
state hash. How long writes wait after a kill is printed, and how long reads did on other nodes.
"""

import asyncio
import os
import random
import secrets
import signal
import statistics
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from tests.crash.test_crash import read_log
from tests.crash.test_nodes import free_port
from tests.shared_log.adapters.nats_cluster import NatsCluster

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("SOW_KILLS", "3"))
SEED = int(os.environ.get("SOW_SEED", str(random.randrange(10**6))))
RECORDS = int(os.environ.get("SOW_RECORDS", "0"))
WAIT_S = 120.0
PUBLISHERS = 3
FILLED_AT_ONCE = 1000
NODES = ("a", "b", "c")
ANSWER_S = 1.5
"""A publisher waits for so long: a node that is paused does not answer."""
PAUSED = 0.25
"""How many are paused until another leads, and not killed: they do not know what has happened."""
UNKNOWN = ("outcome unknown", "shutting down")
VOID = ("not primary", "no quorum")
"""Reasons that promise that nothing was applied."""
CONFIG = """<SOWConfig><Name>nodes</Name><Log><Engine>nats</Engine><Servers>{servers}</Servers>
<Monitor>{monitors}</Monitor><Stream>{stream}</Stream><Lease>600ms</Lease><Node>{name}</Node>
<Advertise>{url}</Advertise></Log><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<View><Name>sums</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
  <Projection><Field>/desk AS /desk</Field><Field>SUM(/n) AS /n</Field></Projection>
  <Grouping><Field>/desk</Field></Grouping></View></SOW></SOWConfig>"""

pytestmark = [pytest.mark.edge, pytest.mark.nats_server]


class Nodes:
    """The processes of the three nodes."""

    def __init__(self, directory, cluster, http):
        self.directory, self._http = directory, http
        port = free_port()
        self.urls = {name: f"http://127.0.0.1:{port + at}" for at, name in enumerate(NODES)}
        self._processes = {}
        stream = f"sow-{secrets.token_hex(4)}"
        for name, url in self.urls.items():
            (directory / f"{name}.xml").write_text(
                CONFIG.format(
                    servers=",".join(cluster.servers),
                    monitors=",".join(cluster.monitor_urls),
                    stream=stream,
                    name=name,
                    url=url,
                )
            )

    async def start(self, name):
        port = self.urls[name].rpartition(":")[2]
        where = ("--port", port, "--data-dir", str(self.directory / name))
        with (self.directory / f"{name}.log").open("a") as log:
            self._processes[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "sow.cli", "serve", self.directory / f"{name}.xml", *where,
                env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=log, stderr=log,
            )  # fmt: skip

    async def kill(self, name):
        self._processes[name].kill()
        await self._processes[name].wait()

    def pause(self, name):
        self._processes[name].send_signal(signal.SIGSTOP)

    def go_on(self, name):
        self._processes[name].send_signal(signal.SIGCONT)

    async def stop(self):
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def ask(self, name, path):
        """An answer as JSON; None if there is none."""
        try:
            async with self._http.get(self.urls[name] + path) as answer:
                return await answer.json() if answer.status == 200 else None
        except (OSError, aiohttp.ClientError, TimeoutError):
            return None

    async def wait(self, what):
        async with asyncio.timeout(WAIT_S):
            while (found := await what()) is None:
                await asyncio.sleep(0.05)
        return found

    async def primary(self, but=""):
        """Who leads, other than a node that does not know better."""

        async def found():
            for name in NODES:
                status = None if name == but else await self.ask(name, "/v1/status")
                if status is not None and status["role"] == "primary":
                    return name
            return None

        return await self.wait(found)

    def named(self, url):
        return next(name for name, one in self.urls.items() if one == url)

    async def log(self, name):
        """The log as a node has it."""
        return await read_log(self._http, self.urls[name], 0)

    async def post(self, name, document):
        """The answer to a publish: its status, and what it says."""
        url = f"{self.urls[name]}/v1/topics/orders/records"
        async with self._http.post(url, json=document) as answer:
            return answer.status, await answer.json()


class Publisher:
    """Publishes documents one after the other, each once, to who leads as far as it knows."""

    def __init__(self, nodes, number):
        self._nodes, self._number = nodes, number
        self._at, self._count = NODES[number % len(NODES)], 0
        self.acknowledged, self.void = {}, set()
        """Bookmarks by id; ids of what was not applied."""
        self.unknown = 0
        self.acks = []
        """When each came, and from whom."""
        self.is_over = False

    async def run(self):
        while not self.is_over:
            self._count += 1
            number = self._count * PUBLISHERS + self._number
            await self._publish({"id": number, "desk": number % 3, "n": 1})

    async def _publish(self, document):
        at, self._at = self._at, NODES[(NODES.index(self._at) + 1) % len(NODES)]
        try:
            async with asyncio.timeout(ANSWER_S):
                status, said = await self._nodes.post(at, document)
        except aiohttp.ClientConnectorError:
            self.void.add(document["id"])
        except (OSError, aiohttp.ClientError, TimeoutError):
            self.unknown += 1
        else:
            if status == 200:
                self.acknowledged[document["id"]] = int(said["bookmark"])
                self.acks.append((time.monotonic(), at))
                self._at = at
                return
            if said["reason"] in VOID:
                self.void.add(document["id"])
            else:
                assert said["reason"] in UNKNOWN, said
                self.unknown += 1
            if said.get("primary"):
                self._at = self._nodes.named(said["primary"])
        await asyncio.sleep(0.02)


class Reader:
    """Reads records on one node as long as that runs, and notes how long that takes at most."""

    def __init__(self, nodes, name):
        self._nodes, self._name = nodes, name
        self._since_s = None
        """When reads began to fail; None: they are answered."""
        self.longest_s = 0.0
        self.is_asked = False
        """Its node runs, and has answered."""

    async def run(self):
        while True:
            began_s = time.monotonic()
            rows = await self._nodes.ask(self._name, "/v1/topics/sums/records")
            now_s = time.monotonic()
            if rows is None:
                self._since_s = self._since_s or began_s
            if self.is_asked:
                self.longest_s = max(self.longest_s, now_s - (self._since_s or began_s))
            if rows is not None:
                self._since_s, self.is_asked = None, True
            await asyncio.sleep(0.02)


class Story:
    """What happens: `strike` the node that leads, and see that another one goes on."""

    def __init__(self, nodes, chance):
        self._nodes, self._chance = nodes, chance
        self.publishers = [Publisher(nodes, number) for number in range(PUBLISHERS)]
        self.readers = {name: Reader(nodes, name) for name in NODES}
        self.waits_s = []
        """From each kill to the first write that another node has acknowledged."""
        self.struck = Counter()

    def newest(self):
        return max(max(one.acknowledged.values(), default=0) for one in self.publishers)

    async def first_ack(self, since_s, but):
        async def found():
            times = [
                ack_s
                for one in self.publishers
                for ack_s, name in one.acks[-100:]
                if ack_s > since_s and name != but
            ]
            return min(times, default=None)

        return await self._nodes.wait(found)

    async def strike(self):
        leads = await self._nodes.primary()
        await asyncio.sleep(self._chance.uniform(0.0, 1.5))
        self.readers[leads].is_asked = False
        began_s, kind = time.monotonic(), "pause" if self._chance.random() < PAUSED else "kill"
        self.struck[kind] += 1
        if kind == "kill":
            await self._nodes.kill(leads)
            self.waits_s.append(await self.first_ack(began_s, leads) - began_s)
            await self._nodes.start(leads)
        else:
            self._nodes.pause(leads)
            await self.first_ack(began_s, leads)
            await asyncio.sleep(self._chance.uniform(0.0, 0.5))
            self._nodes.go_on(leads)
        await self._nodes.wait(lambda: self._nodes.ask(leads, "/v1/topics/sums/records"))
        newest = self.newest()
        path = f"/v1/status?min_bookmark={newest}&wait=60"
        await self._nodes.wait(lambda: self._nodes.ask(leads, path))


@pytest.fixture(scope="module")
def cluster():
    cluster = NatsCluster()
    yield cluster
    cluster.close()


def test_nothing_acknowledged_is_lost_when_the_node_that_leads_is_killed(tmp_path, cluster, capsys):
    async def play():
        chance = random.Random(SEED)
        timeout = aiohttp.ClientTimeout(total=70)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            nodes = Nodes(tmp_path, cluster, http)
            story = Story(nodes, chance)
            try:
                await check(nodes, story)
            except BaseException:
                for name in NODES:
                    print(name, (tmp_path / f"{name}.log").read_text()[-3000:])
                print(f"seed {SEED}, {story.struck}")
                raise
            finally:
                await nodes.stop()
            for name in NODES:
                assert "Traceback" not in (tmp_path / f"{name}.log").read_text()
        return story

    story = asyncio.run(play())
    with capsys.disabled():
        print("\n" + summary(story))


def summary(story):
    count = sum(len(one.acknowledged) for one in story.publishers)
    void = sum(len(one.void) for one in story.publishers)
    unknown = sum(one.unknown for one in story.publishers)
    waits = sorted(story.waits_s) or [0.0]
    p99 = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
    return (
        f"seed {SEED}, {dict(story.struck)}: of {count:,} acknowledged none was lost or doubled, "
        f"none of {void:,} refused was applied, {unknown:,} unknown; writes again after "
        f"{statistics.median(waits):.2f} s, p99 {p99:.2f} s, at most {waits[-1]:.2f} s; the "
        f"longest read on other nodes {max(one.longest_s for one in story.readers.values()):.2f} s"
    )


async def check(nodes, story):
    for name in NODES:
        await nodes.start(name)
    await nodes.primary()
    for name in NODES:
        await nodes.wait(lambda name=name: nodes.ask(name, "/v1/topics/sums/records"))
    await fill(nodes)
    works = [*story.publishers, *story.readers.values()]
    tasks = [asyncio.create_task(one.run()) for one in works]
    try:
        for _ in range(KILLS):
            await story.strike()
            for one in tasks:
                if one.done():
                    one.result()
        for one in story.publishers:
            one.is_over = True
        await asyncio.gather(*tasks[:PUBLISHERS])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await check_refusals(nodes, await nodes.primary())
    await agree(nodes, story)


async def fill(nodes):
    """Publish so many records, with ids of their own."""
    leads = await nodes.primary()
    for first in range(0, RECORDS, FILLED_AT_ONCE):
        some = range(first, min(first + FILLED_AT_ONCE, RECORDS))
        status, said = await nodes.post(leads, [{"id": -1 - n, "desk": 3, "n": 1} for n in some])
        assert status == 200, said


async def check_refusals(nodes, leads):
    """The nodes that follow name the one that takes writes."""
    for name in NODES:
        if name != leads:
            status, said = await nodes.post(name, {"id": 1, "desk": 0, "n": 1})
            assert (status, said["reason"]) == (421, "not primary")
            assert said["primary"] == nodes.urls[leads]


async def agree(nodes, story):
    """All nodes are the same, and have what was acknowledged and nothing that was refused."""
    newest, shown = story.newest(), {}
    bookmark = (await nodes.ask(await nodes.primary(), "/v1/status"))["bookmark"]
    for name in NODES:
        path = f"/v1/status?min_bookmark={max(newest, int(bookmark))}&wait=60"
        status = await nodes.wait(lambda name=name, path=path: nodes.ask(name, path))
        records = await nodes.ask(name, "/v1/topics/orders/records")
        sums = await nodes.ask(name, "/v1/topics/sums/records")
        log = await nodes.log(name)
        shown[name] = (status["log"], status["bookmark"], status["state_hash"], records, sums, log)
    for name in NODES[1:]:
        differs = [a == b for a, b in zip(shown["a"], shown[name], strict=True)]
        assert all(differs), f"seed {SEED}: a and {name} differ: {differs}"
    ids = Counter(row["d"]["id"] for row in shown["a"][5])
    assert {one["id"] for one in shown["a"][3]} == set(ids)
    for one in story.publishers:
        assert one.acknowledged
        lost = set(one.acknowledged) - set(ids)
        assert not lost, f"seed {SEED}: lost {sorted(lost)[:9]}"
        applied = one.void & set(ids)
        assert not applied, f"seed {SEED}: refused and applied {sorted(applied)[:9]}"
    doubled = [number for number, count in ids.items() if count > 1]
    assert not doubled, f"seed {SEED}: doubled {doubled[:9]}"
