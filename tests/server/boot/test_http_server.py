"""The port of a server: what its opening refuses and warns of."""

import asyncio
import logging
import socket
from dataclasses import replace

import aiohttp
import pytest

from sow.core.clock import LogClock
from sow.core.definitions import Limits
from sow.errors import StoreError
from sow.server.api.nodes import Upstream
from sow.server.boot import http_server
from sow.server.boot.app import Server
from sow.server.boot.follower import Follower
from sow.server.boot.http_server import answering
from sow.server.net.listening import bind
from tests.edge.serving import configuration as edge_configuration
from tests.server.boot.servers import configuration, publish


def test_a_port_that_is_taken_is_said_and_the_directory_given_back(served, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = replace(configuration(), port=taken.getsockname()[1])
        with pytest.raises(StoreError, match=r"cannot listen on 127\.0\.0\.1:.*--port") as caught:
            served(publish, config)
    assert caught.value.reason == "address in use"

    async def nothing(_server):
        return True

    assert served(nothing), "nobody holds the directory any more"


def test_fewer_connections_than_are_wanted_are_sent_of(served, caplog, monkeypatch):
    monkeypatch.setattr(http_server, "raise_files_limit", lambda: 80)

    async def nothing(_server):
        return None

    with caplog.at_level(logging.WARNING, "sow"):
        served(nothing, configuration(limits=Limits(connections_max=85)))
        assert "connections" not in caplog.text, "a few less are nothing to warn of"
        served(nothing, configuration(limits=Limits(connections_max=100)))
    assert "there can be 80 connections, and not 100 (Limits/Connections)" in caplog.text


async def answered(url, path):
    async with aiohttp.ClientSession() as calls, calls.get(url + path) as answer:
        return answer.status, await answer.text(), answer.headers


def test_it_says_that_it_lives_and_for_what_it_waits():
    async def run():
        sockets = await bind("127.0.0.1", 0)
        url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        reasons = ["first", "second"]
        async with answering(sockets, None, lambda: reasons[0]):
            assert (await answered(url, "/healthz"))[:2] == (200, "ok\n")
            assert (await answered(url, "/readyz"))[:2] == (503, "replaying: first\n")
            reasons.pop(0)
            status, text, headers = await answered(url, "/v1/topics/orders/records")
            assert (status, headers["Content-Type"]) == (503, "application/problem+json")
            assert "second" in text
            assert int(headers["Retry-After"]) > 0
        # What comes between waits for the next who answers.
        late = asyncio.create_task(answered(url, "/readyz"))
        await asyncio.sleep(0.05)
        assert not late.done()
        async with answering(sockets, None, lambda: "third"):
            assert (await late)[1] == "replaying: third\n"
        for one in sockets:
            one.close()

    asyncio.run(run())


def test_a_follower_without_data_is_there_before_its_primary(tmp_path):
    async def run():
        own = edge_configuration("")
        follower = Follower(Upstream("http://127.0.0.1:1"), own, LogClock())
        server = Server(own, tmp_path, follower=follower)
        opening = asyncio.create_task(server.open())
        while not server._sockets:
            await asyncio.sleep(0.01)
        url = f"http://127.0.0.1:{server._sockets[0].getsockname()[1]}"
        assert (await answered(url, "/healthz"))[0] == 200
        status, text, _ = await answered(url, "/readyz")
        assert (status, text.startswith("replaying: the primary ")) == (503, True)
        assert server.startup_status() == follower.waits_for
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        assert server._sockets[0].fileno() == -1, "the port is released"

    asyncio.run(run())
