"""Reads over several followers, of which one is killed in the middle: the rows are exact."""

import json
import sys

import pytest

from tests.edge.serving import Running, configuration
from tests.forks import PIPE, started
from tests.spark.proxy import Cut, Proxy

pytestmark = [pytest.mark.spark, pytest.mark.edge]

ORDERS = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
COUNT = 3_000


class KilledFollower:
    """A follower as a process of its own, and a proxy before it: at its request of a number for
    rows it is killed, as a machine that fails."""

    def __init__(self, primary, directory):
        words = [sys.executable, "-m", "sow.cli", "serve", "--follow", primary.url, "--port", "0"]
        command = [*words, "--data-dir", str(directory)]
        self.process = started(command, stdout=PIPE, stderr=PIPE, text=True)
        self.proxy = Proxy(self.process.stdout.readline().split()[3])
        self.proxy.way = self._way
        self.requests, self.dies_at = 0, None

    def _way(self, requested, forward):
        if requested.step in ("read", "part"):
            self.requests += 1
            if self.requests == self.dies_at:
                self.process.kill()
        try:
            return forward()
        except OSError:
            raise Cut from None

    def close(self):
        self.process.kill()
        self.process.communicate()
        self.proxy.close()


@pytest.fixture
def nodes(tmp_path):
    """A primary, and followers with all of its log."""
    primary = Running(configuration(ORDERS), tmp_path / "primary")
    for start in range(0, COUNT, 500):
        primary.publish("orders", *({"id": n, "n": n % 7} for n in range(start, start + 500)))
    primary.request("DELETE", "/v1/topics/orders/records?filter=/n=0")
    followers = [KilledFollower(primary, tmp_path / name) for name in ("one", "two")]
    yield primary, followers
    for one in followers:
        one.close()
    primary.close()


@pytest.mark.parametrize("what", ["records", "log"])
@pytest.mark.parametrize("dies_at", [1, 3])
def test_the_rows_are_exact_though_a_follower_is_killed(spark, nodes, what, dies_at):
    _, (one, two) = nodes
    options = {"startingBookmark": "0"} if what == "log" else {}
    reading = spark.read.format("sow").options(
        url=f"{one.proxy.url},{two.proxy.url}", topic="orders", partitions=8, **options
    )
    one.dies_at = dies_at
    found = [(row["op"] if what == "log" else "", row["value"]) for row in reading.load().collect()]
    assert one.process.wait() != 0, "it was killed"
    assert two.requests > 4, "both had parts, and the other one the rest"
    kept = [n for n in range(COUNT) if n % 7]
    if what == "records":
        assert sorted(json.loads(value)["id"] for _, value in found) == kept
        return
    published = [json.loads(value)["id"] for op, value in found if op == "publish"]
    assert sorted(published) == [*range(COUNT)]
    assert sum(op == "delete" for op, _ in found) == COUNT - len(kept)
