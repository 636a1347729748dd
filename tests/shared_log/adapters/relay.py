"""A relay between a client and its engine, which can fail as a network does.

    cut            nothing passes and nobody notices; what is on its way passes when it is healed
    hold_answers   what a client sends arrives; what it is answered waits
    delay_s        each piece of an answer takes so long
    lose           every connection breaks, and what was held is lost
    refuse         nobody listens any more

Connections that begin while it is cut are accepted, as by a machine that has stalled.
"""

import asyncio
from contextlib import suppress

PIECE_BYTES = 64 * 1024


class Relay:
    """Relays what comes to `port` to another port of this machine."""

    def __init__(self, target):
        self._target = target
        self.port = None
        self.delay_s = 0.0
        self._requests, self._answers = asyncio.Event(), asyncio.Event()
        self._connections = set()
        self._writers = set()
        self._server = None

    async def start(self):
        """Listen, at the same port as before."""
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port or 0, limit=PIECE_BYTES
        )
        self.port = self._server.sockets[0].getsockname()[1]
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
