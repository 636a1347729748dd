"""The soak: everything that a day has, in rounds, for as long as one likes.

In each round publishers publish, followers follow, others stop reading, crowds come and go
(`tests.storm`), the configuration is changed and read again; then all of them leave, and what the
server holds is looked at. Between rounds it is killed now and then, and what was acknowledged is
looked for. What it holds may not grow from round to round.
"""

import asyncio
import json
import re
import subprocess
from typing import NamedTuple
from urllib.request import urlopen

from tests.storm.storms import UPGRADE, idle, reconnects, slowloris, target

CONFIG = """<SOWConfig><Name>soak</Name><Listen>127.0.0.1:0</Listen>
<DataDirectory>data</DataDirectory>{more}
<ServerLog><Level>error</Level></ServerLog>
<Limits><HeaderTimeout>300ms</HeaderTimeout></Limits>
<Sessions><QueueMaxMessages>1000</QueueMaxMessages><ReconnectTimeout>100ms</ReconnectTimeout>
</Sessions>
<TransactionLog><RetentionSize>64MB</RetentionSize></TransactionLog><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>{interval}</Interval></ConflatedTopic>
</SOW></SOWConfig>"""
INTERVALS = ("100ms", "200ms")
RECORDS = 2_000
"""All of them are published again in each batch, so that the topic does not grow by itself."""
CALM_S = 0.1
CALM_TRIES = 600
"""How often it is looked whether all have left: a minute, in which a crowd of thousands closes."""
GROWN_BYTES_MAX = 96 * 1024**2
"""What may be held more after a round than after the first of the same life: an allocator keeps
what a crowd took."""
LONGER_S_MAX = 0.5
"""How much longer the longest step of later rounds may be than that of the first: on a machine
that does other things a step is some hundred milliseconds longer by chance, and one that grows
with what a server has held is longer than that before long."""
FILES_MORE_MAX = 20
"""Files that may be open more: those of the journal and of a checkpoint, and the probe's."""


class Sizes(NamedTuple):
    """How many there are of each in a round."""

    batches: int
    followers: int
    slow: int
    idle: int
    reconnects: int
    slowloris: int


FULL = Sizes(200, 20, 20, 10_000, 2_000, 500)
SMALL = Sizes(6, 3, 2, 60, 20, 5)


class Look(NamedTuple):
    """What the server held when all had left."""

    memory_bytes: int
    files: int
    longest_s: float
    """Its longest step so far in this life,"""
    longest: str = ""
    """and what that was."""


class Soak:
    """One soak in a directory, of servers that `begin` begins."""

    def __init__(self, directory, sizes, begin=subprocess.Popen):
        self._begin = begin
        self._directory = directory
        self._sizes = sizes
        self._acknowledged = 0
        self._number = 0
        self.rounds = 0

    async def live(self, is_over):
        """One life of the server, of rounds until `is_over`, killed at the end; what it held after
        each of them."""
        looks = []
        async with target(self._directory, text=self._config(), begin=self._begin) as server:
            await self._check_kept(server)
            while True:
                await self._round(server)
                looks.append(await self._calm(server))
                self.rounds += 1
                if is_over():
                    break
            await server.kill()
        return looks

    def _config(self):
        interval = INTERVALS[self.rounds % len(INTERVALS)]
        return CONFIG.replace("{interval}", interval)

    async def _round(self, server):
        sizes, over = self._sizes, asyncio.Event()
        following = [asyncio.create_task(follow(server, over)) for _ in range(sizes.followers)]
        slow = [await subscribe(server, "orders") for _ in range(sizes.slow)]
        for reader, _ in slow:
            reader._transport.pause_reading()
        publishing = asyncio.create_task(self._publish(server))
        await idle(server, sizes.idle)
        await reconnects(server, sizes.reconnects)
        await slowloris(server, sizes.slowloris)
        (self._directory / "config.xml").write_text(self._config().format(more=""))
        server.reload()
        await publishing
        over.set()
        told = await asyncio.gather(*following)
        assert all(told), "a follower was sent nothing"
        for _, writer in slow:
            writer.transport.abort()

    async def _publish(self, server):
        for _ in range(self._sizes.batches):
            self._number += 1
            rows = [{"id": key, "n": self._number, "text": "x" * 200} for key in range(RECORDS)]
            body = json.dumps(rows).encode()
            assert await server.ask(b"/v1/topics/orders/records", b"POST", body) == 200
            self._acknowledged = self._number

    async def _check_kept(self, server):
        """What was acknowledged in the lives before is there."""
        rows = await asyncio.to_thread(ask, server, "/v1/topics/orders/records")
        numbers = {row["id"]: row["n"] for row in json.loads(rows)}
        kept = min(numbers.values(), default=0) if len(numbers) == RECORDS else 0
        assert kept >= self._acknowledged, f"{self._acknowledged} was acknowledged, {kept} is there"

    async def _calm(self, server):
        """What is held when all have left."""
        for _ in range(CALM_TRIES):
            text = (await asyncio.to_thread(ask, server, "/metrics")).decode()
            stay = figure(text, "sow_sessions"), figure(text, "sow_sessions_away")
            if not any(stay):
                break
            await asyncio.sleep(CALM_S)
        else:
            raise AssertionError(
                f"{stay[0]:.0f} sessions stay though their clients have gone, and {stay[1]:.0f} of "
                "those who may come back"
            )
        steps = re.findall(r'^sow_step_longest_seconds\{step="(.*)"\} (\S+)$', text, re.M)
        longest_s, longest = max((float(took_s), step) for step, took_s in steps)
        return Look(server.memory_bytes, server.files, longest_s, longest)


def faults(looks):
    """What has grown within one life."""
    first = looks[0]
    for number, look in enumerate(looks[1:], 2):
        if look.memory_bytes - first.memory_bytes > GROWN_BYTES_MAX:
            more = (look.memory_bytes - first.memory_bytes) >> 20
            yield f"round {number}: {more} MiB more than after the first"
        if look.files - first.files > FILES_MORE_MAX:
            yield f"round {number}: {look.files} files are open, {first.files} after the first"
        if look.longest_s - first.longest_s > LONGER_S_MAX:
            took, before = (round(one.longest_s * 1000) for one in (look, first))
            said = f"{look.longest} took {took} ms, no step over {before} ms in the first"
            yield f"round {number}: {said}"


async def subscribe(server, topic):
    """A WebSocket that follows a topic."""
    reader, writer = await server.connect()
    line = b'{"c":"subscribe","t":"%b","cid":"1"}' % topic.encode()
    writer.write(UPGRADE + b"\x81" + bytes([0x80 | len(line)]) + b"\0\0\0\0" + line)
    await reader.readuntil(b'"success"')
    return reader, writer


async def follow(server, over):
    """Follow the conflated topic until it is over; returns the number of bytes sent."""
    reader, writer = await subscribe(server, "orders-C")
    told, ending = 0, asyncio.create_task(over.wait())
    while not ending.done():
        reading = asyncio.create_task(reader.read(2**16))
        await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            reading.cancel()
            break
        told += len(reading.result())
        if not reading.result():
            break
    ending.cancel()
    writer.transport.abort()
    return told


def ask(server, path):
    with urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=60) as answer:
        return answer.read()


def figure(text, name):
    return float(re.search(rf"^{name} (\S+)$", text, re.M)[1])
