"""One seeded run of several nodes: random traffic, faults and clients, and what must be true.

at each bookmark   whoever has been asked has shown the same records, rows and state hash
in the end         each node shows what the primary shows, also to each kind of subscription,
                   and what conflated topics and views have sent is the same on each
movers             are sent each number once, in order
batches            nobody ever sees a part of one
"""

import asyncio
import gc
import json
import logging
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from unittest.mock import patch
from urllib.parse import quote

import aiohttp

from sow.client import Client
from sow.errors import SowError, UnknownTopic
from tests.garbage import collect
from tests.simulation.nodes.cluster import Cluster
from tests.simulation.nodes.network import Network
from tests.simulation.nodes.readers import EXACT, FORMS, Mover, Watcher, retry
from tests.simulation.nodes.virtual_loop import Process, VirtualLoop, alone

ACTS = {
    "publish": 30, "wait": 20, "sample": 20, "batch": 4, "delete": 3, "kill": 3, "cut": 2,
    "silence": 2, "reset": 3, "heal": 3, "set_clock": 2, "reload": 2, "laze": 3, "look": 0.5,
}  # fmt: skip
SETTLED_S = 120.0
"""So long after the last fault all must be the same: reconnects, restarts, and what waits."""
COLLECTED_STEPS = 10
BATCH_ROWS = 700
"""More than a follower applies in one step."""
FAR_BEHIND_BYTES = 2_000
"""A follower that returns is soon far behind, and gathers its commits."""
AT_BOOKMARKS = ("orders", "sums", "batches", "expiring", "/desk/1")
DERIVED = ("orders-C", "orders-F", "sums", "sums-C", "slow", "large")


class Simulation:
    """Nodes, clients and what they have shown; everything random comes from the seed."""

    def __init__(self, seed, steps, loop, directory):
        self.chance, self.loop, self.steps = Random(seed), loop, steps
        self.network = loop.network
        self.cluster = Cluster(loop, self.network, self.chance, directory)
        liking = self.chance.choices((0, 1, 1, 3), k=len(ACTS))
        self.acts = {
            act: often * like for (act, often), like in zip(ACTS.items(), liking, strict=True)
        }
        self.acts |= {act: ACTS[act] for act in ("publish", "wait", "sample")}
        self.client = Process(loop, "client")
        self.number = self.epoch = 0
        self.shown = {}
        """What was answered, by topic and bookmark, and by whom first."""
        self.watchers, self.movers, self.tasks = [], [], []

    async def run(self):
        with patch("aiohttp.connector.aiohappyeyeballs.start_connection", self.network.dial):
            self.cluster.start()
            await self.client.run(self._begin())
            for step in range(self.steps):
                if step % COLLECTED_STEPS == 0:
                    gc.collect()
                act = self.chance.choices(*zip(*self.acts.items(), strict=True))[0]
                await getattr(self, f"_{act}")()
                self._check_tasks()
            await self._look()

    async def _begin(self):
        chance, cluster = self.chance, self.cluster
        self.http = aiohttp.ClientSession()
        urls = [node.url for node in cluster.nodes]
        self.writer = Client(chance.sample(urls, 3), retry=retry(chance), name="writer")
        self.feed = self.writer.idempotent_publisher("feed")
        for at in range(3):
            some = chance.sample(urls, chance.randint(2, len(urls)))
            form = chance.choice([*EXACT])
            self.movers.append(Mover(self.loop, chance, f"mover-{at}", some, form))
        for node in cluster.nodes:
            for form in chance.sample([*FORMS], 3):
                self.watchers.append(Watcher(self.loop, chance, node, form))

    @property
    def readers(self):
        return (*self.watchers, *self.movers)

    def _check_tasks(self):
        for one in self.readers:
            one.failure()
        for task in [*self.tasks]:
            if task.done():
                self.tasks.remove(task)
                task.result()

    def _do(self, work):
        """Have the client do something, while everything goes on."""
        self.tasks.append(self.client.run(work))

    # What happens.

    async def _publish(self):
        topic = self.chance.choice(("orders", "orders", "orders", "/desk/1", "/desk/2", "expiring"))
        rows = []
        for _ in range(self.chance.choice((1, 1, 3, 20))):
            self.number += 1
            key = self.chance.randrange(8)
            rows.append({"id": key, "desk": key % 3, "n": self.number})
        await self.client.run(self.feed.publish(topic, rows))

    async def _batch(self):
        self.epoch += 1
        rows = [{"id": at, "of": self.epoch} for at in range(BATCH_ROWS)]

        async def work(epoch):
            while True:
                try:
                    await self.writer.publish_once("batches", rows, writer="w", epoch=epoch)
                    return
                except SowError:
                    if epoch != self.epoch:
                        return  # another one has been committed
                    await asyncio.sleep(0.5)

        self._do(work(self.epoch))

    async def _delete(self):
        async def work(key):
            with suppress(SowError):  # whether it was done is not known
                await self.writer.delete("orders", filter=f"/id = {key}")

        self._do(work(self.chance.randrange(8)))

    async def _wait(self):
        await asyncio.sleep(self.chance.choice((0.001, 0.02, 0.2, 1.0, 4.0)))

    async def _kill(self):
        self.cluster.kill()

    async def _cut(self):
        self.network.cut(self.cluster.link())

    async def _silence(self):
        self.network.be_silent(self.cluster.link())

    async def _reset(self):
        one = self.chance.choice(self.readers)
        node = self.chance.choice(self.cluster.nodes)
        of_client = frozenset((one.name, node.name))
        self.network.reset(self.chance.choice((self.cluster.link(), of_client)))

    async def _heal(self):
        self.network.heal()

    async def _set_clock(self):
        node = self.chance.choice(self.cluster.nodes)
        node.wall_us += self.chance.choice((-3600, -1, 1, 3600)) * 1_000_000

    async def _reload(self):
        primary = self.cluster.primary
        if primary.is_alive and primary.server is not None and hasattr(primary.server, "runtime"):
            primary.reload()

    async def _laze(self):
        one = self.chance.choice(self.readers)
        one.is_lazy = not one.is_lazy

    # What must be true at each bookmark.

    async def _sample(self):
        node = self.chance.choice(self.cluster.nodes)
        if self.chance.random() < 0.4:
            self._do(self._sample_hash(node))
        else:
            self._do(self._sample_rows(node, self.chance.choice(AT_BOOKMARKS)))

    async def _get(self, node, path):
        """An answer's headers and JSON; None if there is none."""
        with suppress(OSError, aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(10), self.http.get(node.url + path) as answer:
                if answer.status == 200:
                    return answer.headers, json.loads(await answer.read())
        return None

    async def _sample_hash(self, node):
        found = await self._get(node, "/v1/status")
        if found is not None and found[1].get("state_hash") is not None:
            self._compare("hash", found[1]["bookmark"], found[1]["state_hash"], node)

    async def _sample_rows(self, node, topic):
        found = await self._get(node, f"/v1/topics/{quote(topic, safe='')}/records")
        if found is None:
            return
        headers, rows = found
        if topic == "batches":
            assert len({row["of"] for row in rows}) < 2, f"{node.name} shows a part of a batch"
            assert len(rows) in (0, BATCH_ROWS), f"{node.name} shows {len(rows)} rows of a batch"
        self._compare(topic, headers["SOW-Bookmark"], sorted(map(str, rows)), node)

    def _compare(self, what, bookmark, found, node):
        before, who = self.shown.setdefault((what, bookmark), (found, node.name))
        assert found == before, (
            f"{what} at bookmark {bookmark}: {node.name} shows {found}, {who} {before}"
        )

    # What must be true in the end.

    async def _look(self):
        """Heal everything, and wait until all is the same."""
        self.network.heal()
        self.cluster.start_all()
        for one in self.readers:
            one.is_lazy = False
        until_s, difference = self.loop.now_s + SETTLED_S, "nothing was compared"
        while difference:
            assert self.loop.now_s < until_s, difference
            await asyncio.sleep(1.0)
            self._check_tasks()
            difference = await self.client.run(self._difference())

    async def _difference(self):
        """What is not as it should be, as far as it has come; empty: nothing."""
        if self.feed.waiting:
            return f"{self.feed.waiting} messages are not acknowledged"
        if self.tasks:
            return f"{len(self.tasks)} requests are not answered"
        primary = self.cluster.primary
        status = await self._get(primary, "/v1/status")
        if status is None:
            return "the primary does not answer"
        for step in (self._difference_of_nodes, self._difference_of_watchers,
                     self._difference_of_movers, self._difference_of_history):  # fmt: skip
            if found := await step(status[1]["bookmark"]):
                return found
        again = await self._get(primary, "/v1/status")
        return "" if again and again[1]["bookmark"] == status[1]["bookmark"] else "all goes on"

    async def _difference_of_nodes(self, bookmark):
        for topic in (*AT_BOOKMARKS, *DERIVED):
            path = f"/v1/topics/{quote(topic, safe='')}/records"
            answers = [await self._get(node, path) for node in self.cluster.nodes]
            rows = [None if one is None else sorted(map(str, one[1])) for one in answers]
            for node, found in zip(self.cluster.nodes, rows, strict=True):
                if topic != "/desk/1" and found is None:
                    return f"{node.name} does not answer of {topic}"
                if found != rows[0]:
                    return f"{node.name} has {found} of {topic}, the primary {rows[0]}"
        for node in (self.cluster.primary, *self.cluster.followers):
            found = await self._get(node, "/v1/status")
            if found is None or found[1]["bookmark"] != bookmark:
                return f"{node.name} is not at {bookmark}"
            self._compare("hash", bookmark, found[1]["state_hash"], node)
        return ""

    async def _difference_of_watchers(self, _bookmark):
        async with Client(self.cluster.primary.url) as client:
            for one in self.watchers:
                rows = [
                    row for topic in one.topics for row in await _rows(client, topic, one.asked)
                ]
                found, wanted = sorted(map(str, one.held.values())), sorted(map(str, rows))
                if found != wanted:
                    return f"{one.name} holds {found}, and is to hold {wanted}"
        return ""

    async def _difference_of_movers(self, _bookmark):
        async with self.http.get(self.cluster.primary.url + "/v1/log?limit=100000") as answer:
            text = await answer.text()
        entries = [json.loads(line) for line in text.splitlines()]
        log = [
            (one["topic"], one["d"])
            for one in entries
            if one["op"] == "publish" and (one["topic"] == "orders" or "/desk/" in one["topic"])
        ]
        for one in self.movers:
            found, wanted = one.numbers, one.wanted(log)
            if found != wanted:
                lacks = sorted({*wanted}.difference(found))[:9]
                again = [n for n, before in zip(found[1:], found, strict=False) if n <= before][:9]
                return (
                    f"{one.name} ({one.form}) has {len(found)} of {len(wanted)}: it lacks {lacks}, "
                    f"and {again} came again or late; it went on {one.subscription.resumed} times"
                )
        return ""

    async def _difference_of_history(self, _bookmark):
        """What conflated topics and views have sent, as each node replays it."""
        for topic in DERIVED:
            replays = []
            for node in (self.cluster.primary, *self.cluster.followers):
                replays.append(await self._replay(node, topic))
                if replays[-1] != replays[0]:
                    return f"{node.name} replays {replays[-1]} of {topic}, the primary {replays[0]}"
        return ""

    async def _replay(self, node, topic):
        found = []
        async with Client(node.url) as client:
            subscription = client.subscribe(topic, bookmark="0")
            try:
                async with asyncio.timeout(2.0):
                    async for line in subscription:
                        if line.c == "p":
                            found.append((line.bm, bytes(line.body)))
            except TimeoutError:
                return found
            except SowError as error:
                return str(error)


async def _rows(client, topic, asked):
    """The records of a topic; none if nothing has been published to it."""
    try:
        return (await client.query(topic, **asked)).records
    except UnknownTopic:
        return []


def run(seed, steps=150):
    """Run one seed; what fails says how to see it again."""
    with silent():
        try:
            _run(seed, steps)
        except AssertionError as error:
            again = f"python -m tests.simulation.nodes --seed {seed} --steps {steps}"
            raise AssertionError(f"{again}\n{error}") from error


@contextmanager
def silent():
    """Who is killed closes nothing, so what is collected of it would warn."""
    ignored, sys.unraisablehook = sys.unraisablehook, lambda _unraisable: None
    logging.disable()
    try:
        yield
    finally:
        collect()
        logging.disable(logging.NOTSET)
        sys.unraisablehook = ignored


def _run(seed, steps):
    chance = Random(f"machine {seed}")
    loop = VirtualLoop(chance)
    loop.network = Network(loop, chance)
    names = Random(f"names {seed}")
    with (
        tempfile.TemporaryDirectory() as directory,
        patch("secrets.token_hex", lambda count: names.randbytes(count).hex()),
        patch("secrets.token_urlsafe", lambda count=16: names.randbytes(count).hex()),
        patch("sow.server.boot.follower.FAR_BEHIND_BYTES", FAR_BEHIND_BYTES),
        alone(loop),
    ):
        loop.set_exception_handler(lambda *_: None)
        simulation = Simulation(seed, steps, loop, Path(directory))
        try:
            loop.run_until_complete(simulation.run())
        finally:
            simulation.cluster.end()
            loop.drop(None)
            loop.close()
