"""The soak of memory bounds: sessions that are kept away, and what the process takes for them.

`python -m tests.soak.bounds [SECONDS]` keeps 2,000 sessions away that share nothing: lines, deltas,
`oof` and windows, each with a select list of its own. Records change, `QueueMemory` is lowered and
raised, some clients come back and go again, and the server is killed now and then. After each batch
the process may take no more than the sum in docs/operations.md (`stated_bytes`).
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from sow.server.boot.http_server import raise_files_limit
from tests.soak.soak import ask, figure
from tests.storm.storms import UPGRADE, each, target

CONFIG = """<SOWConfig><Name>bounds</Name><Listen>127.0.0.1:0</Listen>
<DataDirectory>data</DataDirectory><ServerLog><Level>error</Level></ServerLog>{more}
<Sessions><ReconnectTimeout>1h</ReconnectTimeout></Sessions>
<TransactionLog><RetentionSize>64MB</RetentionSize></TransactionLog><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
</SOW></SOWConfig>"""
LIMITS = "<Limits><QueueMemory>{queues}</QueueMemory><GroupMemory>{groups}</GroupMemory></Limits>"
KINDS = (
    {"c": "subscribe"},
    {"c": "delta_subscribe"},
    {"c": "subscribe", "opts": "oof"},
    {"c": "subscribe", "opts": "conflation=1h"},
)
RECORD_BYTES, SESSION_BYTES = 280, 20 * 1024
"""What a record takes beside its body, and a session that is away with one subscription."""
OVERHEAD = 1.2
"""What a byte of `QueueMemory` or `GroupMemory` may take of the process."""
KEPT_BYTES = 96 * 1024**2
"""What an allocator keeps of requests and of answers that are over."""


class Sizes(NamedTuple):
    """How much there is of each."""

    sessions: int
    queue_bytes: int
    group_bytes: int
    small: int
    large: int
    large_bytes: int
    batches: int


FULL = Sizes(2_000, 256 * 1024**2, 64 * 1024**2, 200, 4, 100_000, 4)
SMALL = Sizes(24, 2 * 1024**2, 1024**2, 20, 2, 20_000, 6)


class Look(NamedTuple):
    """What the process took, what it may take, what waited and what may wait."""

    memory_bytes: int
    stated_bytes: float
    queue_bytes: float
    limit_bytes: float


class Bounds:
    """One soak in a directory, of servers that `begin` begins."""

    def __init__(self, directory, sizes, begin=subprocess.Popen):
        self._directory, self._sizes, self._begin = directory, sizes, begin
        self._number = 0
        self._names = []
        self.rounds = 0

    async def live(self, is_over):
        """A life of the server, killed at the end; what it took after each batch."""
        looks, self._names = [], []
        async with target(self._directory, self._limits(1), CONFIG, self._begin) as server:
            start_bytes = server.memory_bytes
            while True:
                await self._away(server)
                for _ in range(self._sizes.batches):
                    await self._publish(server)
                    looks.append(await self._look(server, start_bytes))
                await self._return(server)
                self.rounds += 1
                part = 4 if self.rounds % 2 else 1
                text = CONFIG.format(more=self._limits(part))
                (Path(self._directory) / "config.xml").write_text(text)
                server.reload()
                if is_over():
                    break
            await server.kill()
        return looks

    def _limits(self, part):
        sizes = self._sizes
        return LIMITS.format(queues=sizes.queue_bytes // part, groups=sizes.group_bytes // part)

    async def _away(self, server):
        """Keep so many sessions away: some were closed for the bound."""
        text = await self._metrics(server)
        missing = self._sizes.sessions - int(figure(text, "sow_sessions_away"))
        self._names += await each(missing, lambda _number: self._leave(server))

    async def _leave(self, server, session=None):
        """Log on, follow and go without a word; the name of the session."""
        self._number += 1
        number = self._number
        reader, writer = await server.connect()
        more = {} if session is None else {"session": session, "seen": 0}
        logon = {"c": "logon", "client": f"c{number}", "cid": "0", **more}
        follow = {"t": "orders", "select": f"-/f{number}", "cid": "1", **KINDS[number % len(KINDS)]}
        writer.write(UPGRADE + framed(logon))
        await reader.readuntil(b'"session":"')
        name = (await reader.readuntil(b'"'))[:-1].decode()
        if session is None:
            writer.write(framed(follow))
            await reader.readuntil(b'"success"')
        writer.transport.abort()
        return name

    async def _return(self, server):
        """Some come back, to a session that may be closed, and go again before they have read."""
        returning, self._names = self._names[:20], self._names[20:]
        for name in returning:
            self._names.append(await self._leave(server, name))

    async def _publish(self, server):
        self._number += 1
        sizes = self._sizes
        rows = [{"id": key, "n": self._number, "pad": "x" * 200} for key in range(sizes.small)]
        pad = "x" * sizes.large_bytes
        rows += [{"id": -1 - key, "n": self._number, "pad": pad} for key in range(sizes.large)]
        body = json.dumps(rows).encode()
        assert await server.ask(b"/v1/topics/orders/records", b"POST", body) == 200
        # A query of groups comes and goes beside.
        grouped = b"/v1/topics/orders/records?grouping=/id&projection=/id,SUM(/n)%20AS%20/n"
        assert await server.ask(grouped) in (200, 507)

    async def _look(self, server, start_bytes):
        text = await self._metrics(server)
        return Look(
            server.memory_bytes,
            stated_bytes(self._sizes, start_bytes),
            figure(text, "sow_queue_memory_bytes"),
            figure(text, "sow_queue_memory_limit_bytes"),
        )

    @staticmethod
    async def _metrics(server):
        return (await asyncio.to_thread(ask, server, "/metrics?topics=false")).decode()


def stated_bytes(sizes, start_bytes):
    """The most that the process may take. A bound that was lowered does not lower it: an allocator
    keeps what was there before."""
    bodies = sizes.small * 240 + sizes.large * (sizes.large_bytes + 40)
    records = bodies + (sizes.small + sizes.large) * RECORD_BYTES
    bounds = OVERHEAD * (sizes.queue_bytes + sizes.group_bytes)
    a_slice = sizes.sessions * 1024
    sessions = sizes.sessions * SESSION_BYTES
    return start_bytes + records + sessions + bounds + a_slice + KEPT_BYTES


def faults(looks):
    """Where more was taken than is stated."""
    for number, look in enumerate(looks, 1):
        if look.memory_bytes > look.stated_bytes:
            taken, stated = look.memory_bytes / 2**20, look.stated_bytes / 2**20
            yield f"batch {number}: {taken:.0f} MiB are taken, and {stated:.0f} MiB are stated"


def framed(command):
    """A command as a masked WebSocket frame."""
    line = json.dumps(command).encode()
    assert len(line) < 2**16
    size = bytes([0x80 | len(line)]) if len(line) < 126 else b"\xfe" + len(line).to_bytes(2, "big")
    return b"\x81" + size + b"\0\0\0\0" + line


async def main(seconds):
    raise_files_limit()
    until_s, found = time.monotonic() + seconds, []
    print("| life | batches | most memory | stated | most that waited | bound |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as directory:
        soak, life = Bounds(directory, FULL), 0
        while time.monotonic() < until_s:
            life += 1
            ends_s = min(until_s, time.monotonic() + seconds / 3)
            looks = await soak.live(lambda ends_s=ends_s: time.monotonic() > ends_s)
            found += [f"life {life}, {fault}" for fault in faults(looks)]
            most = [max(getattr(look, name) / 2**20 for look in looks) for name in Look._fields]
            taken, stated, waited, bound = (f"{size:.0f} MiB" for size in most)
            cells = f"{taken} | {stated} | {waited} | {bound}"
            print(f"| {life} | {len(looks)} | {cells} |", flush=True)
    sys.exit("; ".join(found[:10]) or None)


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if sys.argv[1:] else 3600.0))
