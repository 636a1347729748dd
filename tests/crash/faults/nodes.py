"""Three nodes as processes, each behind relays of its own to the servers of the engine."""

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

from tests.crash.test_nodes import free_port
from tests.shared_log.adapters.relay import Relay

ROOT = Path(__file__).parents[3]
NAMES = ("a", "b", "c")
WAIT_S = 120.0
"""Nothing takes so long, on a busy machine either."""
POLL_S = 0.02
CONFIG = """<SOWConfig><Name>nodes</Name><Log>{log}<Lease>1s</Lease><Node>{name}</Node>
<Advertise>{url}</Advertise></Log><SOW>
<Topic><Name>plain</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>feed</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<View><Name>sums</Name><MessageType>json</MessageType><UnderlyingTopic>feed</UnderlyingTopic>
  <Projection><Field>/desk AS /desk</Field><Field>SUM(/n) AS /n</Field></Projection>
  <Grouping><Field>/desk</Field></Grouping></View></SOW></SOWConfig>"""
TOPICS = ("plain", "feed", "sums")
STEP = re.compile(r"^sow_step_longest_seconds\{[^}]*\} (\S+)", re.M)
LONG_STEP = re.compile(r"kept everybody waiting for ([\d,]+) ms")


class Nodes:
    """The processes; `where` says in which state each is: runs, killed or paused."""

    def __init__(self, directory, engine, http):
        self.directory, self._engine, self._http = directory, engine, http
        port = free_port()
        self.urls = {name: f"http://127.0.0.1:{port + at}" for at, name in enumerate(NAMES)}
        self.relays = {name: [] for name in NAMES}
        self._processes = {}
        self._longest_step_s = 0.0

    async def open(self):
        """Start all of them, and wait until each serves."""
        for name in NAMES:
            for port in self._engine.cluster.ports.values():
                relay = Relay(port)
                await relay.start()
                self.relays[name].append(relay)
            log = self._engine.elements([relay.port for relay in self.relays[name]])
            text = CONFIG.format(log=log, name=name, url=self.urls[name])
            (self.directory / f"{name}.xml").write_text(text)
            await self.start(name)
        for name in NAMES:
            await self.until(lambda name=name: self.serves(name), f"{name} serves")

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

    def pause(self, name):
        self._processes[name].send_signal(signal.SIGSTOP)

    def go_on(self, name):
        self._processes[name].send_signal(signal.SIGCONT)

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
        assert self._processes[name].returncode is None, self.said()

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

    async def note_steps(self):
        """Keep the longest step of each node that answers."""
        for name in NAMES:
            found = STEP.findall(await self.text(name, "/metrics") or "")
            self._longest_step_s = max([self._longest_step_s, *map(float, found)])

    def longest_step_s(self):
        """The longest step of all, also of servers that were killed: they log long ones."""
        logs = "".join(log.read_text() for log in self.directory.glob("*.log"))
        logged = (int(ms.replace(",", "")) / 1000 for ms in LONG_STEP.findall(logs))
        return max([self._longest_step_s, *logged])

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
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        for relays in self.relays.values():
            for relay in relays:
                await relay.close()
