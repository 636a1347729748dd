"""The storms. Each returns what became of its clients; a probe polls /healthz meanwhile.

Clients are bare sockets on asyncio: what they send is written out, since no proper client would.
"""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

HOST = b"Host: localhost\r\n"
UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
AT_ONCE = 200
"""So many connections are opened beside each other."""
CONFIG = """<SOWConfig><Name>storm</Name><Listen>127.0.0.1:0</Listen>{more}<SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
  <Durability>transient</Durability></Topic>
<Topic><Name>desks</Name><MessageType>json</MessageType><Key>/id</Key><Pattern>^/desk/</Pattern>
  <Durability>transient</Durability></Topic>
</SOW></SOWConfig>"""


class Outcome(NamedTuple):
    """What a storm did: `said` in words, memory more, the longest that /healthz took."""

    said: str
    grown_bytes: int
    stall_s: float


class Target:
    """A server in a process of its own."""

    def __init__(self, process, port):
        self._process = process
        self.port = port

    @property
    def memory_bytes(self):
        """What it takes of the machine for itself: pages of files that it has mapped, such as
        the journal's, are the system's cache, which has more of them the longer it runs."""
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()
        return (int(pages[1]) - int(pages[2])) * 4096

    @property
    def files(self):
        """How many it has open."""
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    def reload(self):
        """Have it read its configuration again."""
        self._process.send_signal(signal.SIGHUP)

    async def kill(self):
        """End it where it stands."""
        self._process.kill()
        await asyncio.to_thread(self._process.wait)

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.port, limit=2**26)

    async def ask(self, path, method=b"GET", body=b""):
        """The status of one request on a connection of its own."""
        reader, writer = await self.connect()
        writer.write(
            b"%b %b HTTP/1.1\r\n%bConnection: close\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (method, path, HOST, len(body), body)
        )
        answer = await reader.read()
        writer.close()
        return int(answer.split()[1])


@asynccontextmanager
async def target(directory, more="", text=CONFIG, begin=subprocess.Popen):
    """A server that was just started, by what begins a process."""
    config = Path(directory) / "config.xml"
    config.write_text(text.format(more=more))
    command = [sys.executable, "-m", "sow.cli", "serve", str(config), "--json"]
    with begin(command, stdout=subprocess.PIPE) as process:
        try:
            ready = json.loads(await asyncio.to_thread(process.stdout.readline))
            yield Target(process, int(ready["url"].rpartition(":")[2]))
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait)


async def weather(server, storm, count):
    """Send one storm, and look how the server does meanwhile."""
    before, over = server.memory_bytes, threading.Event()
    probing = asyncio.create_task(asyncio.to_thread(probe, server, over))
    try:
        said = await storm(server, count)
    finally:
        over.set()
        stall_s, peak_bytes = await probing
    return Outcome(said, peak_bytes - before, stall_s)


def probe(server, over):
    """Poll /healthz until it is over, in a thread beside the storm: the longest that it took, and
    the most memory that was seen."""
    stall_s, peak_bytes = 0.0, server.memory_bytes
    while not over.wait(0.05):
        start = time.monotonic()
        with urlopen(f"http://127.0.0.1:{server.port}/healthz", timeout=30) as answer:
            assert answer.status == 200
        stall_s = max(stall_s, time.monotonic() - start)
        peak_bytes = max(peak_bytes, server.memory_bytes)
    return stall_s, peak_bytes


async def each(count, work):
    """Do something for so many clients, some beside each other; the results."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number):
        async with gate:
            return await work(number)

    return await asyncio.gather(*(one(number) for number in range(count)))


async def slowloris(server, count):
    """Headers that never end."""
    streams = await each(count, lambda _number: server.connect())
    for _, writer in streams:
        writer.write(b"GET /v1/topics HTTP/1.1\r\nX-Slow: ")
    told = await asyncio.gather(*(reader.read() for reader, _ in streams))
    for _, writer in streams:
        writer.close()
    assert all(answer.startswith(b"HTTP/1.1 408") for answer in told)
    return f"all {count} were answered 408 and closed"


async def idle(server, count):
    """Connections without requests."""
    streams = await each(count, lambda _number: server.connect())
    assert await server.ask(b"/v1/topics") == 200
    for _, writer in streams:
        writer.close()
    return f"{count} were held, and others served"


async def reconnects(server, count):
    """Everybody comes, subscribes, goes and comes back at once, three times."""
    subscribe = b'{"c":"sow_and_subscribe","t":"orders","cid":"1"}'
    frame = b"\x81" + bytes([0x80 | len(subscribe)]) + b"\0\0\0\0" + subscribe

    async def visit(_number):
        reader, writer = await server.connect()
        writer.write(UPGRADE + frame)
        try:
            await reader.readuntil(b'"success"')
        except asyncio.IncompleteReadError as error:
            raise AssertionError(f"no success was reported: {error.partial!r}") from None
        writer.close()

    for _ in range(3):
        await each(count, visit)
    return f"{3 * count} sessions began, subscribed and went"


async def slow_readers(server, count):
    """Queries of everything by clients that do not read the answer."""
    rows = [{"id": number, "text": "x" * 1000} for number in range(20_000)]
    for start in range(0, len(rows), 2000):
        body = json.dumps(rows[start : start + 2000]).encode()
        assert await server.ask(b"/v1/topics/orders/records", b"POST", body) == 200

    async def begin(_number):
        reader, writer = await server.connect()
        reader._transport.pause_reading()
        writer.write(b"GET /v1/topics/orders/records HTTP/1.1\r\n" + HOST + b"\r\n")
        return writer

    writers = await each(count, begin)
    for _ in range(20):
        assert await server.ask(b"/v1/topics") == 200
    for writer in writers:
        writer.transport.abort()
    return f"{count} answers of {len(rows)} records stood still, and others were served"


async def topics(server, count):
    """A topic of a pattern for each message."""
    reader, writer = await server.connect()
    writer.write(UPGRADE)
    await reader.readuntil(b"\r\n\r\n")
    for number in range(count):
        line = b'{"c":"publish","t":"/desk/%d","d":{"id":1}}' % number
        writer.write(b"\x81" + bytes([0x80 | len(line)]) + b"\0\0\0\0" + line)
        if number % 1000 == 0:
            await writer.drain()
    line = b'{"c":"flush","cid":"end"}'
    writer.write(b"\x81" + bytes([0x80 | len(line)]) + b"\0\0\0\0" + line)
    await reader.readuntil(b'"cid":"end"')
    writer.close()
    return f"{count} topics came into being"


STORMS = {
    slowloris: (500, 20),
    idle: (10_000, 200),
    reconnects: (2_000, 30),
    slow_readers: (100, 5),
    topics: (100_000, 300),
}
"""How many clients a storm has, and how many in the default run."""
