"""Who comes and goes is freed at once: no connection leaves a circle of objects behind, which the
collector would not find, since what has been there for long is looked through no more
(`sow.server.loop.background_work`)."""

import asyncio
import base64
import contextlib
import gc
import socket
import ssl
from collections import Counter

import pytest

from tests.edge.certificates import certificates
from tests.edge.serving import Running, configuration

TOPIC = """<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
  <UnderlyingTopic>orders</UnderlyingTopic><Interval>100ms</Interval></ConflatedTopic>"""
CLIENTS = 5
REQUESTED = b"GET /v1/topics/orders/records HTTP/1.1\r\nHost: localhost\r\n"
UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(b"k" * 16) + b"\r\n\r\n"
)


def command(line):
    """A frame from a client, masked with zeros."""
    return b"\x81\xfe" + len(line).to_bytes(2, "big") + b"\0\0\0\0" + line


def requested(*lines):
    """What a client says that asks for something over a WebSocket."""
    return UPGRADE + b"".join(map(command, lines))


FOLLOWED = b'{"c":"sow_and_subscribe","t":"orders","cid":"1"}'
GONE = b'{"c":"unsubscribe","s":"all","cid":"2"}'
# Not what is no HTTP: aiohttp makes a circle of the error, which is young and holds nothing else.
SAID = {
    "nothing": (b"", b""),
    "half a header": (b"GET / HT", b""),
    "a question": (REQUESTED + b"\r\n", b"["),
    "a question, the last": (REQUESTED + b"Connection: close\r\n\r\n", b"["),
    "half a body": (
        b"POST /v1/topics/orders/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
        b"",
    ),
    "events": (b"GET /v1/topics/orders/stream HTTP/1.1\r\nHost: localhost\r\n\r\n", b"200"),
    "a WebSocket": (UPGRADE, b"101"),
    "a subscription": (requested(FOLLOWED), b"group_end"),
    "a subscription that ends": (requested(FOLLOWED, GONE), b'"cid":"2"'),
    "a conflated one": (
        requested(FOLLOWED[:-1] + b',"opts":"conflation=10ms,oof","filter":"/id > 0"}'),
        b"group_end",
    ),
    "a delta of a copy": (
        requested(b'{"c":"sow_and_delta_subscribe","t":"orders-C","cid":"1"}'),
        b"group_end",
    ),
    "a live window": (
        requested(FOLLOWED[:-1] + b',"opts":"live,oof","order_by":"/id","top_n":3}'),
        b"group_end",
    ),
    "the log": (requested(b'{"c":"subscribe","t":"orders","cid":"1","bm":"0"}'), b'"cid":"1"'),
    "a publish and its update": (
        requested(FOLLOWED, b'{"c":"publish","t":"orders","cid":"2","d":{"id":1}}'),
        b'"c":"p"',
    ),
    "what is refused": (
        requested(b'{"c":"sow","t":"orders","cid":"1","filter":"/id >"}'),
        b"filter",
    ),
    "a bad frame": (UPGRADE + b"\xff" * 20, b"101"),
}


@pytest.fixture(scope="module", params=["plain", "encrypted"])
def server(request, tmp_path_factory):
    more, context = "", None
    if request.param == "encrypted":
        files = certificates(tmp_path_factory.mktemp("certificates"))
        more = f"<Security>{files.element}</Security>"
        context = ssl.create_default_context(cafile=files.ca)
    sessions = "<Sessions><ReconnectTimeout>0s</ReconnectTimeout></Sessions>"
    running = Running(configuration(TOPIC, more + sessions), tmp_path_factory.mktemp("data"))
    yield running, context
    assert running.errors == []
    running.close()


def talk(server, context, said, heard):
    """A client that says something, waits for a part of the answer, and goes without a goodbye."""
    with socket.create_connection(server.address) as plain:
        wrapped = context.wrap_socket(plain, server_hostname="127.0.0.1") if context else plain
        with wrapped as one:
            one.sendall(said)
            came = b""
            while heard not in came:
                part = one.recv(2**16)
                assert part, came
                came += part
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def found_in_circles():
    """What the collector finds meanwhile, of kinds that a connection is made of."""
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    found = Counter()
    try:
        yield found
        gc.collect()
        kinds = (type(one) for one in gc.garbage)
        found.update(f"{kind.__module__}.{kind.__name__}" for kind in kinds if is_ours(kind))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def is_ours(kind):
    return kind.__module__.partition(".")[0] in ("asyncio", "aiohttp", "socket", "sow", "ssl")


async def all_gone(server):
    """Wait until all connections have ended, and what their ends had to do is done."""
    while server._http.crowd.connections:
        await asyncio.sleep(0.01)
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("what", SAID)
def test_no_circle_is_left(server, what):
    running, context = server
    talk(running, context, *SAID[what])  # what is loaded and made with the first of its kind
    running.wait(all_gone(running.server))
    with found_in_circles() as found:
        for _ in range(CLIENTS):
            talk(running, context, *SAID[what])
        running.wait(all_gone(running.server))
    assert found == {}
