"""Clients of several addresses over a shared log, while the node that leads is killed.

Each publishes numbers and reads them, and goes on by itself: every number is in the log once, and
came once and in order. The asynchronous client is in `tests/crash/test_log_faults.py`.
"""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from sow.client import Retry
from sow.client.sync import Client
from sow.server.api.static_files import CONSOLE_FOLDER
from tests.crash.faults.engines import NatsEngine
from tests.crash.faults.nodes import NAMES, ROOT, WAIT_S, Nodes
from tests.needs import node

HERE = Path(__file__).parent
ENDLESS = Retry(first_s=0.05, longest_s=0.5, give_up_s=WAIT_S)
COUNT = 300
KILLED_AT = 100

pytestmark = [pytest.mark.edge, pytest.mark.nats_server]


class World:
    """Nodes whose loop runs in a thread of its own: most clients here wait."""

    def __init__(self, directory):
        self.engine = NatsEngine(servers=1)
        self.since = "0"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.nodes = self.run(self._opened(directory))

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)

    async def _opened(self, directory):
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))
        nodes = Nodes(directory, self.engine, self._http)
        await nodes.open()
        return nodes

    @property
    def urls(self):
        """All addresses, that of the node that leads first."""
        leads = self.run(self.nodes.primary())
        return [self.nodes.urls[name] for name in sorted(NAMES, key=lambda name: name != leads)]

    def kill_leader(self):
        """Kill the node that leads, and start it again once another one does."""
        name = self.run(self.nodes.primary())
        self.run(self.nodes.kill(name))
        assert self.run(self.nodes.primary()) != name
        self.run(self.nodes.start(name))

    def begin(self):
        """What is stored from now on counts."""
        self.since = self._bookmark()

    def _bookmark(self):
        return self.run(self._status(self.run(self.nodes.primary())))["bookmark"]

    def stored(self):
        """The numbers in the log, once all nodes have the same."""
        bookmark = self._bookmark()
        found = [self.run(self._log(name, bookmark)) for name in NAMES]
        assert found[0] == found[1] == found[2]
        return found[0]

    async def _status(self, name):
        return await self.nodes.until(lambda: self.nodes.ask(name, "/v1/status"), "a status")

    async def _log(self, name, bookmark):
        path = f"/v1/log?from={self.since}&limit=1000000&min_bookmark={bookmark}&wait=30"
        text = await self.nodes.until(lambda: self.nodes.text(name, path), "a log")
        rows = [json.loads(line) for line in text.splitlines()]
        return [row["d"]["n"] for row in rows if row["topic"] == "feed"]

    def close(self):
        self.run(self.nodes.close())
        self.run(self._http.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.engine.close()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("nodes"))
    yield world
    world.close()


@pytest.fixture
def world(nodes):
    nodes.begin()
    return nodes


def started(command, **more):
    """A client as a process; what it says comes in `stdout`."""
    return subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **more,
    )


def ended(*clients):
    for one in clients:
        one.kill()
        one.wait()
        with suppress(BrokenPipeError):  # what was not written yet
            one.stdin.close()
        one.stdout.close()


def check(world, came):
    assert came == [*range(1, COUNT + 1)]
    assert world.stored() == came


def publish(world, urls):
    """Publish all messages, while the node dies that leads."""
    with Client(urls, retry=ENDLESS) as client, client.idempotent_publisher("feed") as publisher:
        for n in range(1, COUNT + 1):
            publisher.publish("feed", {"id": n % 50, "desk": 0, "n": n})
            if n == KILLED_AT:
                world.kill_leader()
        publisher.drain()


def test_a_program_without_asyncio(world):
    urls, came = world.urls, []

    def read():
        with Client(urls[::-1], retry=ENDLESS, name="reader") as client:
            for line in client.subscribe("feed", bookmark=world.since):
                if line.c == "p":
                    came.append(line.document()["n"])
                if len(came) == COUNT:
                    return

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    publish(world, urls)
    reading.join(WAIT_S)
    check(world, came)


def test_a_command_that_watches(world):
    where = ["--bookmark", world.since, "--format", "ndjson", "--url", ",".join(world.urls)]
    watch = started([sys.executable, "-m", "sow.cli", "watch", "feed", *where])
    came = []

    def read():
        for line in watch.stdout:
            came.append(json.loads(line)["d"]["n"])

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    try:
        publish(world, world.urls)
        until_s = time.monotonic() + WAIT_S
        while len(came) < COUNT and time.monotonic() < until_s:
            time.sleep(0.05)
        check(world, came)
    finally:
        watch.kill()
        reading.join()
        ended(watch)


@pytest.mark.node
def test_a_page_or_a_node(world):
    urls = ",".join(world.urls)
    script = HERE / "log_failover.mjs"
    client = started([*node(), script, CONSOLE_FOLDER / "sow.js", urls, COUNT, world.since])
    try:
        came = []
        for line in client.stdout:
            came.append(int(line))
            if len(came) == KILLED_AT:
                world.kill_leader()
        assert client.wait(WAIT_S) == 0
        check(world, came)
    finally:
        ended(client)
