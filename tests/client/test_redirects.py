"""No redirect is followed: neither of a question nor of a WebSocket's handshake."""

import asyncio
import re

import pytest
from aiohttp import web

from sow.client import Client, Unreachable


async def redirected(status, use):
    """What becomes of a client that is answered with a redirect; and what was asked in all."""
    requested = []

    async def answer(request):
        requested.append(request.path)
        return web.Response(status=status, headers={"Location": "/there/v1/ws"})

    server = web.Server(answer)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = "http://{}:{}".format(*runner.addresses[0][:2])
    try:
        async with Client(url, token="secret") as client:
            with pytest.raises(Unreachable) as refused:
                await use(client)
    finally:
        await runner.cleanup()
    return refused.value.detail, requested


async def asks(client):
    await client.query("orders")


async def follows(client):
    async with client.subscribe("orders"):
        pass


@pytest.mark.edge
@pytest.mark.parametrize("use", [asks, follows])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_client_goes_nowhere_else(status, use):
    said, requested = asyncio.run(redirected(status, use))
    assert re.fullmatch(r"http://\S+ redirects to /there/v1/ws, which is not followed; .*", said)
    assert len(requested) == 1
