"""A server with two followers, killed at random moments: at the end all are the same.

SOW_KILLS says how often (`make crash-nodes`: 500), SOW_SEED where the random numbers begin. Any of
the three processes is killed while messages are published; followers are started again by the
first process, which this test starts again. In the end each node has the same records, copies,
views and state hash, and everything that was acknowledged is there.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("SOW_KILLS", "3"))
SEED = int(os.environ.get("SOW_SEED", str(random.randrange(10**6))))
WAIT_S = 120.0
CONFIG = """<SOWConfig><Name>nodes</Name><Follower><MaxLag>1s</MaxLag></Follower><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
  <UnderlyingTopic>orders</UnderlyingTopic><Interval>200ms</Interval></ConflatedTopic>
<View><Name>sums</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
  <Projection><Field>/desk AS /desk</Field><Field>SUM(/n) AS /n</Field></Projection>
  <Grouping><Field>/desk</Field></Grouping></View></SOW></SOWConfig>"""
SHOWN = ("orders", "orders-C", "sums")


def free_port():
    """A port with two free ones behind it, as far as that can be known."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Nodes:
    def __init__(self, directory):
        self.directory, self.port = directory, free_port()
        (directory / "config.xml").write_text(CONFIG)
        self.start()

    def start(self):
        words = ["serve", "config.xml", "--port", str(self.port), "--followers", "2"]
        with (self.directory / "log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sow.cli", *words],
                cwd=self.directory,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=log,
            )
        with self.process.stdout as said:
            assert said.readline().startswith(b"sow: listening"), self.log()

    def log(self):
        return (self.directory / "log").read_text()[-5000:]

    def ask(self, node, path, body=None):
        """An answer as JSON; None if there is none."""
        url = f"http://127.0.0.1:{self.port + node}{path}"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except (OSError, urllib.error.HTTPError, ValueError):
            return None

    def wait(self, node, path):
        end = time.monotonic() + WAIT_S
        while (found := self.ask(node, path)) is None:
            assert time.monotonic() < end, f"seed {SEED}: node {node}\n{self.log()}"
            time.sleep(0.05)
        return found

    def is_node(self, pid, port):
        """Whether a process is that follower still: it may have ended a moment ago."""
        try:
            return port.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return False

    def kill(self, node):
        if node:
            status = self.ask(0, "/v1/status") or {"nodes": []}
            port = str(self.port + node)
            pids = [one["pid"] for one in status["nodes"] if one["url"].endswith(port)]
            if pids and pids[0] and self.is_node(pids[0], port):
                os.kill(pids[0], signal.SIGKILL)
        else:
            self.process.kill()
            self.process.wait()
            self.start()


def same(nodes, bookmark):
    """Whether all nodes show the same at a bookmark, or what they show."""
    shown = []
    for node in range(3):
        status = nodes.wait(node, f"/v1/status?min_bookmark={bookmark}&wait=60")
        found = [nodes.wait(node, f"/v1/topics/{name}/records") for name in SHOWN]
        shown.append((status["log"], status["bookmark"], status["state_hash"], found))
    return shown[0] == shown[1] == shown[2] or shown


def test_nodes_that_are_killed_are_the_same_in_the_end(tmp_path):
    numbers, nodes, acknowledged = random.Random(SEED), Nodes(tmp_path), {}
    try:
        for kill in range(KILLS):
            for at in range(numbers.randrange(1, 40)):
                some = [
                    {
                        "id": numbers.randrange(50),
                        "desk": numbers.randrange(3),
                        "n": kill * 100 + at,
                    }
                    for _ in range(numbers.randrange(1, 5))
                ]
                body = json.dumps(some).encode()
                if nodes.ask(0, "/v1/topics/orders/records", body) is not None:
                    acknowledged.update((one["id"], one["n"]) for one in some)
            nodes.kill(numbers.choice((0, 1, 1, 2, 2)))
        bookmark = nodes.wait(0, "/v1/status")["bookmark"]
        end = time.monotonic() + WAIT_S
        while (found := same(nodes, bookmark)) is not True:
            assert time.monotonic() < end, f"seed {SEED}: {found}\n{nodes.log()}"
            time.sleep(0.1)
        newest = {one["id"]: one["n"] for one in nodes.wait(2, "/v1/topics/orders/records")}
        assert newest.keys() == acknowledged.keys(), f"seed {SEED}"
        assert all(newest[id_] >= n for id_, n in acknowledged.items()), f"seed {SEED}"
    finally:
        nodes.process.terminate()
        nodes.process.wait(30)
