"""Three nodes of a shared log on a real NATS cluster; the one that leads is killed again and again.

One publisher writes meanwhile, to whoever leads: it sends each document until it is acknowledged.
In the end every acknowledged document is there, in the log once unless it was sent again, and every
node has the same records and state hash.
"""

import asyncio
import os
import secrets
import sys
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from tests.crash.test_nodes import free_port
from tests.shared_log.adapters.nats_cluster import NatsCluster

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("SOW_KILLS", "3"))
WAIT_S = 120.0
NODES = ("a", "b", "c")
CONFIG = """<SOWConfig><Name>nodes</Name><Log><Engine>nats</Engine><Servers>{servers}</Servers>
<Monitor>{monitors}</Monitor><Stream>{stream}</Stream><Lease>1s</Lease><Node>{name}</Node>
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

    async def primary(self):
        async def found():
            for name in NODES:
                status = await self.ask(name, "/v1/status")
                if status is not None and status["role"] == "primary":
                    return name
            return None

        return await self.wait(found)

    async def post(self, name, document):
        """The status of the answer to a publish, and what it says."""
        url = f"{self.urls[name]}/v1/topics/orders/records"
        async with self._http.post(url, json=document) as answer:
            return answer.status, await answer.json()

    async def publish(self, document, at):
        """Send a document until it is acknowledged, wherever it is taken; returns its bookmark, and
        by whom it was taken."""
        async with asyncio.timeout(WAIT_S):
            while True:
                with suppress(OSError, aiohttp.ClientError, TimeoutError):
                    status, said = await self.post(at, document)
                    if status == 200:
                        return said["bookmark"], at
                at = NODES[(NODES.index(at) + 1) % len(NODES)]
                await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def cluster():
    cluster = NatsCluster()
    yield cluster
    cluster.close()


def test_nothing_acknowledged_is_lost_when_the_node_that_leads_is_killed(tmp_path, cluster):
    async def play():
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            nodes = Nodes(tmp_path, cluster, http)
            try:
                await check(nodes)
            except BaseException:
                for name in NODES:
                    print(name, (tmp_path / f"{name}.log").read_text()[-3000:])
                raise
            finally:
                await nodes.stop()

    asyncio.run(play())


async def check(nodes):
    for name in NODES:
        await nodes.start(name)
    acknowledged, at, number = {}, "a", 0
    for killed in range(KILLS + 1):
        leads = await nodes.primary()
        for _ in range(20):
            number += 1
            document = {"id": number, "desk": number % 3, "n": 1}
            acknowledged[number], at = await nodes.publish(document, at)
        if killed < KILLS:
            await nodes.kill(leads)
            number += 1
            acknowledged[number], at = await nodes.publish({"id": number, "desk": 0, "n": 1}, at)
            assert at != leads
            await nodes.start(leads)
    await check_refusals(nodes, await nodes.primary())
    await agree(nodes, acknowledged)


async def check_refusals(nodes, leads):
    """The nodes that follow name the one that takes writes."""
    for name in NODES:
        if name != leads:
            await nodes.wait(lambda name=name: nodes.ask(name, "/v1/topics/orders/records"))
            status, said = await nodes.post(name, {"id": 1, "desk": 0, "n": 1})
            assert (status, said["reason"]) == (421, "not primary")
            assert said["primary"] == nodes.urls[leads]


async def agree(nodes, acknowledged):
    newest = max(acknowledged.values(), key=int)
    shown = {}
    for name in NODES:
        path = f"/v1/status?min_bookmark={newest}&wait=60"
        status = await nodes.wait(lambda name=name, path=path: nodes.ask(name, path))
        records = await nodes.ask(name, "/v1/topics/orders/records")
        sums = await nodes.ask(name, "/v1/topics/sums/records")
        shown[name] = (status["log"], status["bookmark"], status["state_hash"], records, sums)
    assert shown["a"] == shown["b"] == shown["c"]
    ids = [one["id"] for one in shown["a"][3]]
    assert sorted(ids) == sorted(acknowledged)
