"""The kinds of faults, and a run of them: each begins while traffic flows, and ends once a write
that was sent behind its beginning was acknowledged, and all nodes serve again. Those of nodes and
of their engine come one after the other, or beside each other: a node dies while the engine does.
"""

import asyncio
import json
import random
import time
from collections import Counter, defaultdict

import aiohttp

from tests.crash.faults.engines import OF_ENGINE, OF_NODES
from tests.crash.faults.judge import judged, logs, shown_as_stored, unlike, voids
from tests.crash.faults.nodes import NAMES, POLL_S, WAIT_S, Nodes
from tests.crash.faults.traffic import Feed, PlainPublisher, Reader, Subscriber

REQUEST_S = 5.0
BETWEEN_S = (0.0, 0.5)
LASTS_LEASES = (1.0, 5.0)
"""How long a node is paused, cut off or without room: two leases let another one lead."""
APART_S = (1.0, 10.0)
"""How long a server of the engine is cut off: others of NATS elect a leader after 4 to 9 s."""
LEADER_SHARE = 0.75
"""Of the faults of nodes; the others hit any node."""


class Faults:
    """Faults of every kind on nodes and their engine; each is a coroutine that begins it and
    returns how it ends. Of nodes it hits the one that leads, with this probability at least."""

    def __init__(self, nodes, engine, chance, leader_share):
        self._nodes, self._engine, self._chance = nodes, engine, chance
        self._leader_share = leader_share
        self.hit, self.hits = "", NAMES
        """The node that the last one hit, and all that it may have hit: without its engine any node
        may begin to lead, and start again when another one does."""
        self.hits_leader = True
        """Whether the last one stopped writes: one of a node that follows need not be noticed."""
        self._of_nodes = dict(
            zip(OF_NODES, (self.kill, self.partition, self.pause, self.full_disk), strict=True)
        )
        self._of_engine = dict(
            zip(OF_ENGINE, (self.engine_leader, self.apart, self.all_engines), strict=True)
        )

    async def begin(self, kind):
        leads = await self._nodes.primary()
        self.hit, self.hits, self.hits_leader = leads, NAMES, True
        if kind in self._of_engine:
            return await self._of_engine[kind]()
        if self._chance.random() >= self._leader_share:
            self.hit = self._chance.choice(NAMES)
            self.hits_leader = self.hit == leads
        self.hits = (self.hit,)
        return await self._of_nodes[kind]()

    async def kill(self):
        await self._nodes.kill(self.hit)
        return lambda: self._nodes.start(self.hit)

    async def pause(self):
        self._nodes.pause(self.hit)
        return self._later(lambda: self._nodes.go_on(self.hit))

    async def partition(self):
        self._chance.choice((self._nodes.cut, self._nodes.hold_answers))(self.hit)
        return self._later(lambda: self._nodes.heal(self.hit))

    async def full_disk(self):
        self._nodes.fill_disk(self.hit)
        free = self._later(lambda: None)

        async def ended():
            await free()
            await self._nodes.free_disk(self.hit)

        return ended

    async def engine_leader(self):
        await asyncio.to_thread(self._engine.kill_leader)
        return lambda: asyncio.to_thread(self._engine.mend)

    async def all_engines(self):
        await asyncio.to_thread(self._engine.cluster.kill_all)
        return lambda: asyncio.to_thread(self._engine.cluster.start_all)

    async def apart(self):
        """Mostly the server that orders the log."""
        cluster = self._engine.cluster
        leads = await asyncio.to_thread(self._engine.leader)
        name = leads if self._chance.random() < LEADER_SHARE else self._chance.choice(cluster.names)
        self.hits_leader = name == leads
        cluster.links.cut(name)
        return self._later(cluster.links.heal, APART_S)

    def _later(self, end, lasts_s=None):
        lasts_s = lasts_s or [self._engine.lease_s * leases for leases in LASTS_LEASES]

        async def ended():
            await asyncio.sleep(self._chance.uniform(*lasts_s))
            end()

        return ended


class Run:
    """Nodes, traffic and faults over one engine."""

    def __init__(self, directory, engine, seed, leader_share=LEADER_SHARE, beside=False):
        self._directory, self._engine, self.seed = directory, engine, seed
        self._leader_share, self._beside = leader_share, beside
        self._chance = random.Random(seed)
        self.waits_s = defaultdict(list)
        """By kind, the time from each fault of what leads to the next acknowledged write; unless
        there was another fault meanwhile."""
        self.faults, self.long_steps = Counter(), Counter()
        """By kind: how many, and how many steps of a node over 50 ms from one to its end."""
        self.longest_step = defaultdict(lambda: [0, ""])
        """By kind: the milliseconds of the longest step, and its name."""
        self.verdict = None
        self.facts = {}

    async def play(self, kinds):
        """Faults of these kinds; then the verdict."""
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
        readers = {name: Reader(nodes, name) for name in NAMES}
        subscribers = [
            Subscriber(nodes, "from the beginning", 0, "0"),
            Subscriber(nodes, "from now", 1, None),
            Subscriber(nodes, "elsewhere", 2, "0"),
        ]
        works = (publisher, feed, *subscribers, *readers.values())
        running = [asyncio.create_task(one.run()) for one in works]
        tasks += running
        await self._next_ack(nodes, publisher, running)
        of_nodes = [kind for kind in kinds if kind in OF_NODES]
        others = [kind for kind in kinds if kind in OF_ENGINE]
        async with asyncio.TaskGroup() as group:
            for some in (of_nodes, others) if self._beside else (kinds,):
                faults = Faults(nodes, self._engine, self._chance, self._leader_share)
                group.create_task(self._strikes(some, faults, nodes, publisher, readers, running))
        self.facts["longest_read_ms"] = round(1000 * max(one.longest_s for one in readers.values()))
        await self._judge(nodes, publisher, feed, subscribers, running)

    async def _strikes(self, kinds, faults, *more):
        """One fault after the other."""
        for kind in kinds:
            await asyncio.sleep(self._chance.uniform(*BETWEEN_S))
            await self._strike(kind, faults, *more)

    async def _strike(self, kind, faults, nodes, publisher, readers, running):
        """One fault, from its beginning until all nodes serve, and writes are acknowledged."""
        self.faults[kind] += 1
        if not self._beside:
            await nodes.stall()
        end = await faults.begin(kind)
        for name in faults.hits:
            readers[name].rests += 1
        began_s = time.monotonic()
        ending = asyncio.create_task(end())
        acked_s = await self._next_ack(nodes, publisher, running, began_s)
        if faults.hits_leader and not self._beside:
            self.waits_s[kind].append(round(acked_s - began_s, 3))
        await ending
        for name in NAMES:
            await nodes.until(lambda name=name: nodes.serves(name), f"{name} after {kind}")
        await self._next_ack(nodes, publisher, running, time.monotonic())
        count, longest = await nodes.stall()
        self.long_steps[kind] += count
        self.longest_step[kind] = max(self.longest_step[kind], longest)
        for name in faults.hits:
            readers[name].rests -= 1

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
        verdict.count("different", shown_as_stored(rows, found[NAMES[0]][3]))
        self.verdict = verdict
        log = self._engine.client()
        try:
            terms, void = await voids(log)
        finally:
            await log.close()
        self.facts |= {
            "acknowledged": len(publisher.acknowledged) + feed.last,
            "unknown": len(publisher.unknown),
            "terms": terms,
            "void": void,
            "moves": sum(one.moves for one in subscribers),
            "told_gaps": sum(one.gaps for one in subscribers),
            "longest_step_ms": max(self.longest_step.values()),
        }
        verdict.count("errors", nodes.errors())
        if not verdict.is_good:
            verdict.named.append(nodes.said())

    async def _caught_up(self, subscribers, stored, running):
        """Subscribers have had the time to read to the end."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            self._check(running[2:])
            if all(one.lines and one.lines[-1] == stored[-1] for one in subscribers):
                return
            await asyncio.sleep(POLL_S)
