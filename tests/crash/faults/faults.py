"""The six kinds of faults, and a run of them: each begins while traffic flows, and ends once a
write that was sent behind its beginning was acknowledged, and all nodes serve again."""

import asyncio
import json
import random
import time
from collections import Counter, defaultdict

import aiohttp

from tests.crash.faults.judge import judged, logs, unlike, voids
from tests.crash.faults.nodes import NAMES, POLL_S, WAIT_S, Nodes
from tests.crash.faults.traffic import Feed, PlainPublisher, Subscriber

REQUEST_S = 5.0
LASTS_S = (2.5, 5.0)
"""How long a node is paused, cut off or without room: longer than two leases."""
LEADER_SHARE = 0.75
"""Of the faults of nodes; the others hit any node."""


class Faults:
    """Faults of every kind on nodes and their engine; each is a coroutine that begins it and
    returns how it ends."""

    def __init__(self, nodes, engine, chance):
        self._nodes, self._engine, self._chance = nodes, engine, chance
        self.hits_leader = True
        """Whether the last one stopped writes: one of a node that follows need not be noticed."""
        self.kinds = {
            "node killed": self.kill,
            "node paused": self.pause,
            "silent partition": self.partition,
            "engine's leader killed": self.engine_leader,
            "all of the engine killed": self.all_engines,
            "disk of a node full": self.full_disk,
        }

    async def _victim(self):
        """Mostly the node that leads."""
        leads = await self._nodes.primary()
        name = leads if self._chance.random() < LEADER_SHARE else self._chance.choice(NAMES)
        self.hits_leader = name == leads
        return name

    async def kill(self):
        name = await self._victim()
        await self._nodes.kill(name)
        return lambda: self._nodes.start(name)

    async def pause(self):
        name = await self._victim()
        self._nodes.pause(name)
        return self._later(lambda: self._nodes.go_on(name))

    async def partition(self):
        name = await self._victim()
        self._chance.choice((self._nodes.cut, self._nodes.hold_answers))(name)
        return self._later(lambda: self._nodes.heal(name))

    async def engine_leader(self):
        await asyncio.to_thread(self._engine.kill_leader)
        return lambda: asyncio.to_thread(self._engine.mend)

    async def all_engines(self):
        await asyncio.to_thread(self._engine.cluster.kill_all)
        return lambda: asyncio.to_thread(self._engine.cluster.start_all)

    async def full_disk(self):
        name = await self._victim()
        self._nodes.fill_disk(name)

        async def ended():
            await asyncio.sleep(self._chance.uniform(*LASTS_S))
            await self._nodes.free_disk(name)

        return ended

    def _later(self, end):
        async def ended():
            await asyncio.sleep(self._chance.uniform(*LASTS_S))
            end()

        return ended


class Run:
    """Nodes, traffic and faults over one engine."""

    def __init__(self, directory, engine, seed):
        self._directory, self._engine, self.seed = directory, engine, seed
        self._chance = random.Random(seed)
        self.waits_s = defaultdict(list)
        """By kind, the time from each fault of what leads to the next acknowledged write."""
        self.faults = Counter()
        self.verdict = None
        self.facts = {}

    async def play(self, kinds):
        """Faults of these kinds, one after the other; then the verdict."""
        timeout = aiohttp.ClientTimeout(total=REQUEST_S)
        async with aiohttp.ClientSession(timeout=timeout) as http:
            nodes = Nodes(self._directory, self._engine, http)
            tasks = []
            try:
                await nodes.open()
                await self._play(nodes, http, kinds, tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await nodes.close()

    async def _play(self, nodes, http, kinds, tasks):
        publisher, feed = PlainPublisher(nodes, http), Feed(nodes, self._directory / "store")
        subscribers = [
            Subscriber(nodes, "from the beginning", 0, "0"),
            Subscriber(nodes, "from now", 1, None),
            Subscriber(nodes, "elsewhere", 2, "0"),
        ]
        running = [asyncio.create_task(one.run()) for one in (publisher, feed, *subscribers)]
        tasks += running
        await self._next_ack(nodes, publisher, running)
        faults = Faults(nodes, self._engine, self._chance)
        for kind in kinds:
            await asyncio.sleep(self._chance.uniform(0.2, 1.0))
            self.faults[kind] += 1
            faults.hits_leader = True
            end = await faults.kinds[kind]()
            began_s = time.monotonic()
            ending = asyncio.create_task(end())
            acked_s = await self._next_ack(nodes, publisher, running, began_s)
            if faults.hits_leader:
                self.waits_s[kind].append(acked_s - began_s)
            await ending
            for name in NAMES:
                await nodes.until(lambda name=name: nodes.serves(name), f"{name} after {kind}")
            await self._next_ack(nodes, publisher, running, time.monotonic())
            await nodes.note_steps()
        await self._judge(nodes, publisher, feed, subscribers, running)

    async def _next_ack(self, nodes, publisher, running, since_s=0.0):
        """When a write was acknowledged that was sent after that."""
        self._check(running)

        async def found():
            self._check(running)
            return next(
                (acked for sent, acked in publisher.acknowledged_s[-50:] if sent >= since_s), None
            )

        return await nodes.until(found, "a write is acknowledged")

    def _check(self, running):
        for one in running:
            if one.done():
                one.result()
                raise AssertionError(f"seed {self.seed}: one has ended early")

    async def _judge(self, nodes, publisher, feed, subscribers, running):
        running[0].cancel()
        feed.is_over = True
        await asyncio.wait_for(running[1], WAIT_S)
        status = await nodes.ask(await nodes.primary(), "/v1/status")
        found = await logs(nodes, max(int(status["bookmark"]), publisher.newest))
        rows = [json.loads(line) for line in found[NAMES[0]][0].splitlines()]
        stored = [(row["topic"], row["d"]["n"]) for row in rows if "d" in row]
        await self._caught_up(subscribers, stored, running)
        verdict = judged(stored, publisher, feed, subscribers)
        verdict.count("different", unlike(found))
        self.verdict = verdict
        log = self._engine.client()
        try:
            terms, void = await voids(log)
        finally:
            await log.close()
        self.facts = {
            "acknowledged": len(publisher.acknowledged) + feed.last,
            "unknown": len(publisher.unknown),
            "terms": terms,
            "void": void,
            "moves": sum(one.moves for one in subscribers),
            "told_gaps": sum(one.gaps for one in subscribers),
            "longest_step_ms": round(1000 * nodes.longest_step_s()),
        }
        verdict.count("errors", nodes.errors())
        if not verdict.is_good:
            verdict.named.append(nodes.said())

    async def _caught_up(self, subscribers, stored, running):
        """Subscribers have had the time to read to the end."""
        end = time.monotonic() + WAIT_S / 4
        while time.monotonic() < end:
            self._check(running[2:])
            if all(one.lines and one.lines[-1] == stored[-1] for one in subscribers):
                return
            await asyncio.sleep(POLL_S)
