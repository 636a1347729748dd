"""A relay between a client and its engine, or two of its servers, that can fail as a network does.

    cut            nothing passes and nobody notices; what is on its way passes when it is healed
    hold_answers   what a client sends arrives; what it is answered waits
    delay_s        each piece of an answer takes so long
    lose           every connection breaks, and what was held is lost
    refuse         nobody listens any more

Connections that begin while it is cut are accepted, as by a machine that has stalled.
"""

import asyncio
import threading
from contextlib import suppress

from tests.ports import free_port

PIECE_BYTES = 64 * 1024


class Relay:
    """Relays what comes to `port` to another port of this machine."""

    def __init__(self, target):
        self._target = target
        self.port = free_port()
        self.delay_s = 0.0
        self._requests, self._answers = asyncio.Event(), asyncio.Event()
        self._connections = set()
        self._writers = set()
        self._server = None

    async def start(self):
        """Listen, at the same port as before."""
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, limit=PIECE_BYTES
        )
        self.heal()

    def cut(self):
        self._requests.clear()
        self._answers.clear()

    def hold_answers(self):
        self._answers.clear()

    def heal(self):
        self._requests.set()
        self._answers.set()
        self.delay_s = 0.0

    def lose(self):
        for writer in self._writers:
            writer.transport.abort()

    async def refuse(self):
        server, self._server = self._server, None
        server.close()
        self.lose()
        await self._ended()

    async def close(self):
        if self._server is not None:
            await self.refuse()

    async def _ended(self):
        connections = list(self._connections)
        for one in connections:
            one.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _accept(self, reader, writer):
        task = asyncio.current_task()
        self._connections.add(task)
        self._writers.add(writer)
        answers = None
        try:
            await self._requests.wait()
            other_reader, other = await asyncio.open_connection(
                "127.0.0.1", self._target, limit=PIECE_BYTES
            )
            self._writers.add(other)
            answers = asyncio.create_task(self._pump(other_reader, writer, self._answers))
            try:
                await self._pump(reader, other, self._requests)
            finally:
                answers.cancel()
                await asyncio.wait([answers])
                self._writers.discard(other)
                other.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _pump(self, reader, writer, passes):
        with suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                await passes.wait()
                if passes is self._answers and self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(piece)
                await writer.drain()
        writer.transport.abort()


class Links:
    """A relay for each server and each other one that it connects to, in a thread of their own:
    who starts the servers waits for them."""

    def __init__(self, ports):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._relays = {
            (name, other): Relay(port)
            for other, port in ports.items()
            for name in ports
            if name != other
        }
        self._each(self._relays, lambda relay: relay.start())

    def ports(self, name):
        """Where a server finds the others."""
        return [relay.port for (one, _), relay in self._relays.items() if one == name]

    def cut(self, name):
        """Nothing passes between a server and the others, and nobody notices."""
        self._each([pair for pair in self._relays if name in pair], lambda relay: relay.cut())

    def heal(self):
        self._each(self._relays, lambda relay: relay.heal())

    def close(self):
        self._each(self._relays, lambda relay: relay.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _each(self, pairs, do):
        async def done():
            for pair in pairs:
                if (waits := do(self._relays[pair])) is not None:
                    await waits

        asyncio.run_coroutine_threadsafe(done(), self._loop).result()
