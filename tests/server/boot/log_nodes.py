"""Nodes of a shared log in one process, over a log in a file."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from sow.core.definitions import SharedLogSettings
from sow.server.api.status import StatusHandler
from sow.server.boot.app import Machine, Server
from sow.server.boot.log_member import LogMember, open_log
from tests.server.boot.servers import configuration

LEASE_US = 1_500_000
"""Servers that start beside each other in one loop hold it up: each must not seem dead then."""
WAIT_S = 120
"""A safety net."""


def node_configuration(name, directory, *topics, engine="nats", port=0, **more):
    """With a port others reach it there."""
    address = f"http://127.0.0.1:{port}" if port else f"http://{name}"
    shared = SharedLogSettings(engine, node=name, advertise=address, lease_us=LEASE_US)
    found = configuration(
        *topics, data_directory=str(directory / name), shared_log=replace(shared, **more)
    )
    return replace(found, port=port)


class Node:
    """A node: the server that it is at the moment."""

    def __init__(self, config, shared):
        opened = open_log if shared is None else lambda settings: Client(shared)
        self.config, self.member = config, LogMember(config, opened)
        self.server = self.is_over = None
        self.allow_loss = False

    def _make(self, config, follower, machine=None, kind=Server):
        return kind(
            config,
            Path(config.data_directory),
            reread=lambda: self.config,
            allow_loss=self.allow_loss,
            follower=follower,
            machine=machine or Machine(),
            names=lambda: ["here"],
        )

    async def start(self):
        """Start the server of now."""
        await self.member.joined()
        server, self.is_over = self.member.server(self._make, self.config.port)
        await server.start()
        self.server = server

    async def start_again(self):
        """The role has changed."""
        await self.is_over.wait()
        server, self.server = self.server, None
        await server.stop()
        await self.start()

    async def until(self, is_true):
        """Serve, whatever that takes, until something is true."""
        async with asyncio.timeout(WAIT_S):
            while not is_true():
                if self.is_over.is_set():
                    await self.start_again()
                await asyncio.sleep(0.01)

    @property
    def follows(self):
        return bool(self.server.engine.primary)

    async def status(self):
        return await self.server._handlers[StatusHandler].own()

    async def end(self):
        if self.server is not None:
            await self.server.stop()
        await self.member.leave()

    async def die(self):
        """The log hears no more of it."""
        await self.member.close()
        await self.server.stop()
        self.server = None


class Client:
    """A client of the log in a file."""

    def __init__(self, shared):
        self.append, self.read, self.last = shared.append, shared.read, shared.last
        self.trim = shared.trim

    async def close(self):
        pass


@asynccontextmanager
async def nodes_of(shared, *configs):
    """Nodes of the log in a file; None: of the engine that they are configured for."""
    found = [Node(config, shared) for config in configs]
    try:
        yield found
    finally:
        for node in found:
            await node.end()
        if shared is not None:
            shared.close()
