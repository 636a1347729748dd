"""A server that runs for a test."""

import asyncio

import pytest

from sow.server.boot.app import Server
from tests.server.boot.servers import START_US, configuration
from tests.virtual_clock import VirtualClock


@pytest.fixture
def served(tmp_path):
    """What a coroutine function makes of a server that runs meanwhile."""

    def run(work, config=None, **more):
        async def go():
            clock = VirtualClock(START_US)
            server = Server(
                config or configuration(), tmp_path, clock, names=lambda: ["here"], **more
            )
            await server.start()
            try:
                return await work(server)
            finally:
                await server.stop()

        return asyncio.run(go())

    return run
