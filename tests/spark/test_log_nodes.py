"""Reads and writes over nodes of a shared log, of which the one that leads is killed in the middle.

Reads go on at another node, with exact rows. What tasks have staged is on one node and goes with
it: a batch whose node dies before its commit fails whole, and is there once when it is repeated.
"""

import json

import pytest

from tests.crash.faults.nodes import NAMES
from tests.crash.test_log_clients import World
from tests.spark.proxy import Cut, Proxy

pytestmark = [pytest.mark.spark, pytest.mark.edge, pytest.mark.nats_server, pytest.mark.slow]

COUNT = 500
LOSES = ("before", "commit")
"""When all that the tasks have staged is gone: at other moments a task stages its rows again."""


class Deaths:
    """Proxies before all nodes: the node that leads is killed before or after its step of a
    batch, once."""

    def __init__(self, world):
        self._world, self.moment, self.died = world, None, False
        self._proxies = {name: Proxy(world.nodes.urls[name]) for name in NAMES}
        for name, proxy in self._proxies.items():
            proxy.way = lambda requested, forward, name=name: self._way(name, requested, forward)

    @property
    def urls(self):
        leads = self._world.run(self._world.nodes.primary())
        names = sorted(NAMES, key=lambda name: name != leads)
        return ",".join(self._proxies[name].url for name in names)

    def at(self, when, step):
        self.moment, self.died = (when, step), False

    def _way(self, name, requested, forward):
        is_now = not self.died and self.moment is not None and requested.step == self.moment[1]
        try:
            if is_now and self.moment[0] == "before":
                self._die(name)
            answer = forward()
        except OSError:
            raise Cut from None
        if is_now and self.moment[0] == "after":
            self._die(name)
            raise Cut
        return answer

    def _die(self, name):
        if self._world.run(self._world.nodes.primary()) == name:
            self.died = True
            self._world.kill_leader()

    def close(self):
        for proxy in self._proxies.values():
            proxy.close()


@pytest.fixture(scope="module")
def deaths(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("nodes"))
    deaths = Deaths(world)
    yield deaths
    deaths.close()
    world.close()


def rows(spark, since):
    numbers = range(since, since + COUNT)
    frame = spark.createDataFrame([(n, n) for n in numbers], "id int, n int").coalesce(2)
    return frame, [*numbers]


def write(frame, deaths, **options):
    target = frame.write.format("sow").mode("append")
    target.options(url=deaths.urls, topic="feed", retryTimeout="30s", **options).save()


def stored(spark, deaths):
    log = spark.read.format("sow").options(url=deaths.urls, topic="feed", startingBookmark="0")
    return sorted(json.loads(row["value"])["n"] for row in log.load().collect())


@pytest.mark.parametrize("what", ["records", "log"])
def test_reads_are_exact_though_the_node_that_leads_is_killed(spark, deaths, what):
    deaths.moment = None
    if not stored(spark, deaths):
        write(rows(spark, 0)[0], deaths)
    options = {"startingBookmark": "0"} if what == "log" else {}
    deaths.at("before", "read" if what == "log" else "part")
    reading = spark.read.format("sow").options(
        url=deaths.urls, topic="feed", partitions=4, retryTimeout="30s", **options
    )
    found = [json.loads(row["value"])["id"] for row in reading.load().collect()]
    assert deaths.died
    assert sorted(found) == [*range(COUNT)]


@pytest.mark.parametrize(
    "moment", [("before", "stage"), ("after", "stage"), LOSES, ("after", "commit")]
)
def test_a_batch_is_there_once_whatever_is_killed(spark, deaths, moment):
    deaths.moment = None
    before = stored(spark, deaths)
    frame, numbers = rows(spark, 10_000 + len(before))
    deaths.at(*moment)
    if moment == LOSES:
        with pytest.raises(Exception, match=r"was never staged.*send the batch again"):
            write(frame, deaths)
        assert stored(spark, deaths) == before
    write(frame, deaths)
    assert stored(spark, deaths) == sorted([*before, *numbers])
