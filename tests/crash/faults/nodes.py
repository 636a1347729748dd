"""Three nodes as processes, each behind relays of its own to the servers of the engine.

A node is forked from a process that has imported everything: it is started again after many faults.
"""

import asyncio
import json
import os
import re
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

import aiohttp

from sow.cli.main import main as cli
from tests.crash import runner
from tests.crash.victim import FORKS
from tests.ports import free_ports
from tests.shared_log.adapters.relay import Relay

ROOT = Path(__file__).parents[3]
FORKS.set_forkserver_preload(
    [
        runner.__name__,
        __name__,
        "sow.cli.commands.serve",
        "sow.server.boot.log_member",
        "sow.shared_log.adapters.nats",
        "sow.shared_log.adapters.postgres",
        "sow.shared_log.adapters.s3",
    ]
)
NAMES = ("a", "b", "c")
WAIT_S = 120.0
"""Nothing takes so long, on a busy machine either."""
POLL_S = 0.02
CONFIG = """<SOWConfig><Name>nodes</Name><Log>{log}<Lease>{lease}ms</Lease><Node>{name}</Node>
<Advertise>{url}</Advertise></Log><SOW>
<Topic><Name>plain</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>feed</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<View><Name>sums</Name><MessageType>json</MessageType><UnderlyingTopic>feed</UnderlyingTopic>
  <Projection><Field>/desk AS /desk</Field><Field>SUM(/n) AS /n</Field></Projection>
  <Grouping><Field>/desk</Field></Grouping></View></SOW></SOWConfig>"""
TOPICS = ("plain", "feed", "sums")
STEP = re.compile(r'^sow_step(s_long_total|_longest_seconds)\{step="([^"]*)"\} (\S+)', re.M)


class Nodes:
    """The processes; `where` says in which state each is: runs, killed or paused."""

    def __init__(self, directory, engine, http):
        self.directory, self._engine, self._http = directory, engine, http
        ports = zip(NAMES, free_ports(len(NAMES)), strict=True)
        self.urls = {name: f"http://127.0.0.1:{port}" for name, port in ports}
        self.relays = {name: [] for name in NAMES}
        self._processes = {}
        self._paused = set()
        """Those of this life: what they did then seems to have taken as long."""
        self._steps = {}
        """The figures of steps of each node, as they were last."""

    async def open(self):
        """Start all of them, and wait until each serves."""
        for name in NAMES:
            for port in self._engine.cluster.ports.values():
                relay = Relay(port)
                await relay.start()
                self.relays[name].append(relay)
            log = self._engine.elements([relay.port for relay in self.relays[name]])
            lease = round(1000 * self._engine.lease_s)
            text = CONFIG.format(log=log, name=name, url=self.urls[name], lease=lease)
            (self.directory / f"{name}.xml").write_text(text)
            await self.start(name)
        for name in NAMES:
            await self.until(lambda name=name: self.serves(name), f"{name} serves")

    async def start(self, name):
        self._paused.discard(name)
        port = self.urls[name].rpartition(":")[2]
        where = ("--port", port, "--data-dir", str(self.directory / name))
        words = ("serve", str(self.directory / f"{name}.xml"), *where)
        self._processes[name] = FORKS.Process(
            target=_run, args=(str(self.directory / f"{name}.log"), words), daemon=True
        )
        self._processes[name].start()

    async def kill(self, name):
        self._processes[name].kill()
        await asyncio.to_thread(self._processes[name].join)

    def pause(self, name):
        self._paused.add(name)
        os.kill(self._processes[name].pid, signal.SIGSTOP)

    def go_on(self, name):
        os.kill(self._processes[name].pid, signal.SIGCONT)

    def cut(self, name):
        """Nothing passes between it and the engine, and nobody notices."""
        for relay in self.relays[name]:
            relay.cut()

    def hold_answers(self, name):
        """What it sends arrives, and it hears nothing."""
        for relay in self.relays[name]:
            relay.hold_answers()

    def heal(self, name):
        for relay in self.relays[name]:
            relay.heal()

    def fill_disk(self, name):
        """No file of its may grow any more."""
        self._limit(name, 1)

    async def free_disk(self, name):
        """There is room again. A node that had to begin another role without any has waited."""
        self._limit(name, resource.RLIM_INFINITY)
        await self.until(lambda: self.serves(name), f"{name} serves with room")
        assert self._processes[name].exitcode is None, self.said()

    def _limit(self, name, size):
        with suppress(ProcessLookupError):
            pid = self._processes[name].pid
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    async def ask(self, name, path):
        """An answer as JSON; None if there is none."""
        text = await self.text(name, path)
        return None if text is None else json.loads(text)

    async def text(self, name, path):
        try:
            async with self._http.get(self.urls[name] + path) as answer:
                return await answer.text() if answer.status == 200 else None
        except (OSError, aiohttp.ClientError, TimeoutError):
            return None

    async def serves(self, name):
        status = await self.ask(name, "/v1/status")
        return status if status and status.get("role") in ("primary", "follower") else None

    async def primary(self):
        """Who leads."""

        async def found():
            for name in NAMES:
                status = await self.ask(name, "/v1/status")
                if status is not None and status["role"] == "primary":
                    return name
            return None

        return await self.until(found, "a node leads")

    async def until(self, what, why):
        """The first that is not None of what is requested again and again."""
        try:
            async with asyncio.timeout(WAIT_S):
                while (found := await what()) is None:
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise AssertionError(f"waited {WAIT_S} s in vain: {why}\n{self.said()}") from None
        return found

    async def stall(self):
        """What has kept everybody waiting since the last call, on nodes that answer and were not
        paused: how many steps over 50 ms, the longest step in milliseconds, and its name. A step
        that has taken longer before is in the number alone."""
        count, longest = 0, [0, ""]
        for name in sorted(set(NAMES) - self._paused):
            found = STEP.findall(await self.text(name, "/metrics") or "")
            now = {(what, step): float(value) for what, step, value in found}
            more, steps = since(self._steps.get(name, {}), now)
            count, longest = count + more, max([longest, *steps])
            self._steps[name] = now
        return count, longest

    def errors(self):
        """Where nodes have logged a traceback, which is none of any fault."""
        logs = self.directory.glob("*.log")
        return [f"{one.name}: a traceback" for one in logs if "Traceback" in one.read_text()]

    def said(self):
        """The end of what each node has logged."""
        logs = {name: self.directory / f"{name}.log" for name in NAMES}
        return "\n".join(
            f"--- {name}\n{log.read_text()[-2500:]}" for name, log in logs.items() if log.exists()
        )

    async def close(self):
        for name in self._processes:
            await self.kill(name)
        for relays in self.relays.values():
            for relay in relays:
                await relay.close()


def since(before, now):
    """Between two readings of the figures of a node: how many steps were over 50 ms, and the
    milliseconds and name of each kind whose longest is new. A server that has started again counts
    from 0."""
    count, steps = 0, []
    for (what, step), value in now.items():
        was = before.get((what, step), 0.0)
        if what == "s_long_total":
            count += round(value - was if value >= was else value)
        elif value != was:
            steps.append([round(1000 * value), step])
    return count, steps


def _run(log, words):
    """The process of a node, which logs to a file."""
    end = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(end, sys.stdout.fileno())
    os.dup2(end, sys.stderr.fileno())
    cli(words, prog_name="sow")
