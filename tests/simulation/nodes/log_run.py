"""One seeded run of nodes of a shared log: as `run`, and a naive model of what was published.

    published   what the publisher with numbers has sent stands in the log once, in its order
    records     are what follows from the log, and copies and views are what follows from these
    queue       each job is delivered until it is acknowledged, and then never again
    actions     what sets one off does so once, in its order

`python -m tests.simulation.nodes.log_run --seed n`.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from unittest.mock import patch
from urllib.parse import quote

import aiohttp

from sow.client import Client
from sow.errors import SowError
from tests.simulation.nodes.log_cluster import NOTED, LogCluster, log_topics, virtual
from tests.simulation.nodes.network import Network
from tests.simulation.nodes.readers import retry
from tests.simulation.nodes.run import FAR_BEHIND_BYTES, Simulation, silent
from tests.simulation.nodes.virtual_loop import Process, VirtualLoop, alone

ACTS = {
    "publish": 30, "wait": 20, "sample": 20, "batch": 4, "delete": 3, "kill": 3, "cut": 1,
    "silence": 1, "reset": 3, "heal": 3, "set_clock": 2, "reload": 2, "laze": 3, "look": 0.5,
    "step_down": 3, "cut_engine": 3, "stop_engine": 1, "trim": 2, "wipe": 1,
    "merge": 3, "restart": 1, "restart_others": 1,
}  # fmt: skip
TOPICS = ("orders", "orders", "orders", "/desk/1", "/desk/2", "expiring", "jobs", "events",
          "details", "passing")  # fmt: skip
STORED = (
    "orders",
    "/desk/1",
    "/desk/2",
    "expiring",
    "jobs",
    "events",
    "details",
    "noted",
    "batches",
)
DERIVED = ("orders-C", "orders-F", "sums", "sums-C", "slow", "large", "totals", "ticks", "joined")


class LogSimulation(Simulation):
    """As `Simulation`, of nodes of a shared log."""

    def __init__(self, seed, steps, loop, directory):
        super().__init__(seed, steps, loop, directory)
        self.cluster = LogCluster(loop, self.network, self.chance, directory)
        liking = self.chance.choices((0, 1, 1, 3), k=len(ACTS))
        self.acts = {
            act: often * like for (act, often), like in zip(ACTS.items(), liking, strict=True)
        }
        self.acts |= {act: ACTS[act] for act in ("publish", "wait", "sample")}
        self.sent = []
        self.deliveries, self.acked, self.has_asked = Counter(), set(), set()
        self.seen = Counter()
        self.has_lost_past = False

    def node_of(self):
        return {node.name: node for node in self.cluster.nodes}

    async def _begin(self):
        await super()._begin()
        self.consumer = Process(self.loop, "consumer")
        self.consuming = self.consumer.run(self._consume())

    async def _consume(self):
        urls = [node.url for node in self.cluster.log_nodes]
        self.chance.shuffle(urls)
        while True:
            try:
                async with (
                    Client(urls, retry=retry(self.chance), name="worker") as client,
                    client.consume("waiting", max_backlog=3) as messages,
                ):
                    async for message in messages:
                        n = message.document()["n"]
                        assert n not in self.acked, f"job {n} is delivered after its ack"
                        self.deliveries[n] += 1
                        if self.chance.random() < 0.9:
                            self.has_asked.add(n)  # its answer may be lost
                            if await message.ack():
                                self.acked.add(n)
            except SowError as error:
                self.seen[f"consumer: {error.reason}"] += 1
                await asyncio.sleep(0.5)

    def _check_tasks(self):
        super()._check_tasks()
        if self.consuming.done():
            self.consuming.result()

    async def _publish(self):
        topic, rows = self.chance.choice(TOPICS), []
        for _ in range(self.chance.choice((1, 1, 1, 3, 3, 20, 20, 400))):
            self.number += 1
            key = self.chance.randrange(8)
            rows.append({"id": key, "desk": key % 3, "n": self.number})
        self.sent += [(topic, row["n"]) for row in rows]
        await self.client.run(self.feed.publish(topic, rows))

    async def _merge(self):
        """Deltas, numbered like publishes."""
        self.number += 1
        key = self.chance.randrange(8)
        self.sent.append(("orders", self.number))
        row = {"id": key, "desk": key % 3, "n": self.number, "m": self.number}
        await self.client.run(self.feed.delta_publish("orders", [row]))

    async def _step_down(self):
        primary = self.cluster.primary
        if primary is not None:
            self._do(self._post(primary, "/v1/log/step-down"))

    async def _trim(self):
        primary = self.cluster.primary
        if primary is not None:
            found = await self.client.run(self._get(primary, "/v1/log/status"))
            if found and (marks := [one["checkpoint"] for one in found[1]["nodes"]]):
                before = min(int(one["bookmark"]) for one in marks) + 1
                self._do(self._post(primary, f"/v1/log/trim?before={before}"))

    async def _post(self, node, path):
        with suppress(OSError, aiohttp.ClientError, TimeoutError):
            async with asyncio.timeout(10), self.http.post(node.url + path) as answer:
                self.seen[f"{path.partition('?')[0]} {answer.status}"] += 1

    async def _wipe(self):
        self.has_lost_past = True
        self.cluster.wipe()

    async def _restart(self):
        self.cluster.restart()

    async def _restart_others(self):
        self.cluster.restart_others()

    async def _cut_engine(self):
        self.cluster.cut_engine()

    async def _stop_engine(self):
        self.cluster.stop_engine()

    async def _reload(self):
        self.cluster.topics = log_topics(self.chance)
        self._do(self._reload_now())

    async def _reload_now(self):
        """Whether who leads has taken over the file."""
        primary = self.cluster.primary
        if primary is None:
            return False
        task = primary.process.run(primary.server.reload())
        await asyncio.wait((task,), timeout=20)
        if not task.done():  # it was killed
            return False
        if (error := task.exception()) is not None:
            assert isinstance(error, SowError), error
            self.seen[f"reload: {error.reason}"] += 1
        return error is None

    # The end.

    async def _look(self):
        self.cluster.end_faults()
        until_s = self.loop.now_s + 60.0
        while self.loop.now_s < until_s:
            self.network.heal()
            self.cluster.start_all()
            if await self._reload_now():
                break
            await asyncio.sleep(1.0)
        else:
            raise AssertionError(f"nobody leads: {self.cluster.refusals[-3:]}")
        await super()._look()

    async def _difference(self):
        if self.cluster.primary is None:
            return "nobody leads"
        return await super()._difference() or await self._difference_of_model()

    async def _difference_of_nodes(self, bookmark):
        if found := await super()._difference_of_nodes(bookmark):
            return found
        for topic in (*STORED, *DERIVED):
            meta = "?meta=true" if topic in STORED else ""
            path = f"/v1/topics/{quote(topic, safe='')}/records{meta}"
            rows = []
            for node in (self.cluster.primary, *self.cluster.followers):
                found = await self._get(node, path)
                rows.append(None if found is None else sorted(map(str, found[1])))
                if rows[-1] != rows[0]:
                    return f"{node.name} has {rows[-1]} of {topic}, the primary {rows[0]}"
        return ""

    async def _difference_of_history(self, bookmark):
        if self.has_lost_past:
            return ""
        return await super()._difference_of_history(bookmark)

    async def _difference_of_model(self):
        primary = self.cluster.primary
        async with self.http.get(primary.url + "/v1/log?limit=100000") as answer:
            entries = [json.loads(line) for line in (await answer.text()).splitlines()]
        jobs = {n for topic, n in self.sent if topic == "jobs"}
        if missing := sorted(jobs - self.acked - self.has_asked):
            return f"jobs {missing[:9]} are not acknowledged, {self.seen}"
        waiting = await self._get(primary, "/v1/topics/waiting/records")
        if jobs and (waiting is None or waiting[1]):
            return f"jobs wait to be acknowledged: {waiting}"
        if self.has_lost_past:
            return ""
        found = [
            (one["topic"], one["d"]["n"])
            for one in entries
            if one["op"] == "publish" and one["topic"] in TOPICS and one.get("d")
        ]
        if found != self.sent:
            lost = [one for one in self.sent if one not in set(found)]
            doubled = [one for one, count in Counter(found).items() if count > 1]
            return f"the log has not what was sent: lost {lost}, doubled {doubled}"
        wanted = [n for topic, n in self.sent if topic == "details" and n % NOTED == 0]
        noted = [one["d"]["n"] for one in entries if one["topic"] == "noted"]
        if noted != wanted:
            return f"actions have noted {noted}, and are to note {wanted}"
        for topic, rows in following(entries).items():
            answer = await self._get(primary, f"/v1/topics/{topic}/records")
            has = None if answer is None else answer[1]
            if sorted(map(_text, has or ())) != sorted(map(_text, rows)):
                return f"{topic} is {has}, and follows from the log as {rows}"
        return ""


def following(entries):
    """The records, copies and views that follow from a log, once all windows have ended."""
    held = {}
    for one in entries:
        records = held.setdefault(one["topic"], {})
        if one["op"] == "publish":
            records[one["k"]] = one.get("d")
        else:
            records.pop(one["k"], None)
    orders, sums = [*held.get("orders", {}).values()], {}
    for row in orders:
        sums.setdefault(row["desk"], []).append(row["n"])
    return {
        "orders": orders,
        "orders-C": orders,
        "ticks": orders,
        "details": [*held.get("details", {}).values()],
        "events": [*held.get("events", {}).values()],
        "orders-F": [row for row in orders if row["n"] % 3 == 0],
        "sums": [{"desk": desk, "count": len(ns), "n": sum(ns)} for desk, ns in sums.items()],
        "slow": [{"desk": desk, "n": max(ns)} for desk, ns in sums.items()],
    }


def _text(row):
    return json.dumps(row, sort_keys=True)


def run(seed, steps=150):
    with silent():
        try:
            return _run(seed, steps)
        except AssertionError as error:
            again = f"python -m tests.simulation.nodes.log_run --seed {seed} --steps {steps}"
            raise AssertionError(f"{again}\n{error}") from error


def _run(seed, steps):
    with world(seed, steps) as simulation:
        simulation.loop.run_until_complete(simulation.run())
        return simulation.seen


@contextmanager
def world(seed, steps=0):
    """The simulation of a seed, and what it lives in."""
    chance = Random(f"machine {seed}")
    loop = VirtualLoop(chance)
    loop.network = Network(loop, chance)
    names = Random(f"names {seed}")
    simulation = None
    with (
        tempfile.TemporaryDirectory() as directory,
        patch("secrets.token_hex", lambda count: names.randbytes(count).hex()),
        patch("secrets.token_urlsafe", lambda count=16: names.randbytes(count).hex()),
        patch("sow.server.boot.follower.FAR_BEHIND_BYTES", FAR_BEHIND_BYTES),
        virtual(loop, lambda: simulation.node_of(), names),
        alone(loop),
    ):
        loop.set_exception_handler(lambda *_: None)
        simulation = LogSimulation(seed, steps, loop, Path(directory))
        try:
            yield simulation
        finally:
            simulation.cluster.end()
            loop.drop(None)
            loop.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--go-on", action="store_true")
    requested = parser.parse_args()
    if requested.seed is not None:
        print(run(requested.seed, requested.steps))
        return
    began = time.monotonic()
    for seed in range(requested.first, requested.first + requested.seeds):
        try:
            run(seed, requested.steps)
        except BaseException as error:
            if not requested.go_on or isinstance(error, KeyboardInterrupt):
                raise
            last = traceback.extract_tb(error.__traceback__)[-1]
            print(f"seed {seed}: {str(error)[:1500]} [{last.filename}:{last.lineno}]", flush=True)
    print(f"{requested.seeds} seeds in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        again = [sys.executable, "-m", "tests.simulation.nodes.log_run", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})
    main()
