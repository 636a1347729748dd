"""The port of a server: what its opening refuses and warns of.

Accepting: as long as there is a file, and with a word to who is too many.
"""

import asyncio
import errno
import logging
import socket
from dataclasses import replace
from itertools import pairwise

import aiohttp
import pytest

from sow.core.clock import LogClock
from sow.core.definitions import Configuration, Limits
from sow.core.quota import Quota
from sow.errors import StoreError
from sow.server.api.nodes import Upstream
from sow.server.boot import http_server
from sow.server.boot import http_server as module
from sow.server.boot.app import Server
from sow.server.boot.follower import Follower
from sow.server.boot.http_server import (
    ACCEPTED_AT_ONCE,
    LINGER_S,
    LINGERING_MAX,
    LOGGED_EVERY_S,
    RETRY_S,
    Listener,
    answering,
    bind,
    raise_files_limit,
)
from sow.server.http.body_reading import ReadBackpressure
from sow.server.http.connections import ConnectionLimiter
from sow.server.net.connection_supervisor import Connections
from tests.edge.serving import configuration as edge_configuration
from tests.server.boot.servers import configuration, publish
from tests.server.stand_ins import stepped, turns


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


INFINITY = module.resource.RLIM_INFINITY


class Accepted:
    """A connection as `accept` gives it."""

    def __init__(self):
        self.sent, self.closed = b"", False

    def setblocking(self, _on):
        pass

    def send(self, data):
        self.sent += data

    def shutdown(self, _how):
        pass

    def close(self):
        self.closed = True


class ListeningSocket:
    """A socket that listens, whose file is a real one so that a loop can watch it."""

    def __init__(self):
        self.pair = socket.socketpair()
        self.fileno = self.pair[0].fileno

    def knock(self):
        self.pair[1].send(b"x")

    def close(self):
        for one in self.pair:
            one.close()


class Place:
    """What listens, with connections or errors that come one after the other."""

    def __init__(self, *coming, connections_max=100):
        self.coming, self.requested = list(coming), 0
        configuration = Configuration("test", (), limits=Limits(connections_max=connections_max))
        self.crowd = ConnectionLimiter(lambda: configuration, 1000)
        self.connections = Connections(
            asyncio.Protocol,
            self.crowd,
            ReadBackpressure(Quota(lambda: 1 << 20)),
            lambda: configuration.limits,
        )
        self.connected = []
        self.listener = ListeningSocket()
        self.listening = Listener(
            [self.listener], self.connections, lambda: None, accept=self.accept
        )
        self.listening._connect = self.connect

    def accept(self, _listener):
        self.requested += 1
        if not self.coming:
            self.listener.pair[0].recv(1)
            raise BlockingIOError
        found = self.coming.pop(0)
        if isinstance(found, Exception):
            raise found
        return found, ("192.0.2.7", 40_000)

    async def connect(self, connection, address):
        self.connected.append((connection, address))

    async def knock(self):
        self.listener.knock()
        await turns(5)


def no_files():
    return OSError(errno.EMFILE, "Too many open files")


@stepped
async def test_all_who_wait_are_let_in_by_their_address():
    place = Place(Accepted(), Accepted())
    await place.knock()
    assert [address for _, address in place.connected] == ["192.0.2.7"] * 2
    assert place.crowd.connections == 2
    place.listening.close()


@stepped
async def test_no_more_are_accepted_at_once_than_others_can_wait_for():
    place = Place(*(Accepted() for _ in range(ACCEPTED_AT_ONCE + 1)), connections_max=1000)
    place.listening._accept(place.listener)
    assert place.requested == ACCEPTED_AT_ONCE
    place.listening.close()


@stepped
async def test_without_a_file_it_is_tried_again_and_said_once_a_minute(caplog):
    tries = round(1.5 * LOGGED_EVERY_S / RETRY_S)
    place = Place(*(no_files() for _ in range(tries)), Accepted())
    with caplog.at_level(logging.ERROR, "sow"):
        place.listener.knock()
        await asyncio.sleep(2 * LOGGED_EVERY_S)
    assert len(place.connected) == 1
    assert place.listening.starved == tries
    assert len(caplog.records) == 2
    assert "Too many open files" in caplog.text
    place.listening.close()


@stepped
async def test_an_error_that_is_no_lack_of_files_is_not_swallowed():
    place = Place(OSError(errno.EBADF, "bad file"))
    with pytest.raises(OSError, match="bad file"):
        place.listening._accept(place.listener)
    place.listening.close()


@stepped
async def test_who_is_too_many_reads_why_and_is_then_closed():
    refused = Accepted()
    place = Place(Accepted(), refused, connections_max=1)
    await place.knock()
    assert refused.sent.startswith(b"HTTP/1.1 503 ")
    assert b"(Limits/Connections)" in refused.sent
    assert not refused.closed
    await asyncio.sleep(2 * LINGER_S)
    assert refused.closed
    assert place.crowd.connections == 1
    place.listening.close()


@stepped
async def test_a_flood_of_the_refused_takes_no_more_files_than_are_set_aside():
    refused = [Accepted() for _ in range(LINGERING_MAX + 3)]
    place = Place(*refused, connections_max=0)
    await place.knock()
    assert [one.closed for one in refused] == [True] * 3 + [False] * LINGERING_MAX
    place.listening.close()
    assert all(one.closed for one in refused)


def test_a_name_is_listened_at_on_all_of_its_addresses():
    async def work():
        bound = await bind("127.0.0.1", 0)
        try:
            return [one.getsockname()[0] for one in bound]
        finally:
            for one in bound:
                one.close()

    assert asyncio.run(work()) == ["127.0.0.1"]


def test_a_port_that_is_taken_is_an_error_and_leaves_nothing_open():
    async def work():
        (bound,) = await bind("127.0.0.1", 0)
        try:
            await bind("127.0.0.1", bound.getsockname()[1])
        finally:
            bound.close()

    with pytest.raises(OSError, match="in use"):
        asyncio.run(work())


@pytest.mark.parametrize(
    ("limits", "least", "most"),
    [
        ((1024, 4096), 3000, 4096),
        ((100, 100), 1, 75),
        ((module.resource.RLIM_INFINITY,) * 2, 2**31, 2**31),
    ],
)
def test_the_system_says_how_many_connections_there_can_be(monkeypatch, limits, least, most):
    raised = []
    monkeypatch.setattr(module.resource, "getrlimit", lambda _which: limits)
    monkeypatch.setattr(module.resource, "setrlimit", lambda _which, to: raised.append(to))
    assert least <= raise_files_limit() <= most
    assert raised == ([] if limits[0] == limits[1] else [(limits[1], limits[1])])


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ((1024, 4096), "may have 4,096 files open, not 1,024"),
        ((4096, 4096), "may have 4,096 files open"),
        ((1024, INFINITY), "may have any number of files open, not 1,024"),
    ],
)
def test_how_many_files_there_may_be_stands_in_the_log(monkeypatch, caplog, limits, message):
    monkeypatch.setattr(module.resource, "getrlimit", lambda _which: limits)
    monkeypatch.setattr(module.resource, "setrlimit", lambda _which, _to: None)
    with caplog.at_level("DEBUG", "sow"):
        raise_files_limit()
    assert caplog.messages == [message]


def test_a_system_that_refuses_more_files_keeps_what_there_are(monkeypatch):
    def refuse(_which, _to):
        raise ValueError

    monkeypatch.setattr(module.resource, "getrlimit", lambda _which: (1024, 10**9))
    monkeypatch.setattr(module.resource, "setrlimit", refuse)
    assert 1 <= raise_files_limit() <= 1024


@stepped
async def test_of_many_who_come_at_once_one_begins_to_agree_on_a_key_in_a_round(monkeypatch):
    place = Place()
    loop, begun = asyncio.get_running_loop(), []

    async def connect(_protocol, connection, **how):
        begun.append((connection, how))

    monkeypatch.setattr(loop, "connect_accepted_socket", connect)
    place.listening._encryption = lambda: "a context"
    connecting = Listener._connect
    coming = [loop.create_task(connecting(place.listening, n, "192.0.2.7")) for n in range(5)]
    counts = []
    while not all(task.done() for task in coming):
        await asyncio.sleep(0)
        counts.append(len(begun))
    assert [connection for connection, _ in begun] == list(range(5))
    assert all(after - before <= 1 for before, after in pairwise([0, *counts]))
    limits = place.connections.limits()
    for _, how in begun:
        assert how["ssl_handshake_timeout"] == limits.header_timeout_us / 1e6
        # Who still reads the end of his answer has as long as without TLS.
        assert how["ssl_shutdown_timeout"] == limits.idle_timeout_us / 1e6
    place.listening.close()
