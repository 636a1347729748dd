"""A client leaves no socket behind when its loop ends with it, and follows no redirect."""

import asyncio
import gc
import re
import ssl
import warnings

import pytest
from aiohttp import web

from sow.client import Client, Unreachable
from sow.client import connector as module
from sow.client.connector import ClientAuth, Connector
from sow.errors import ClientError
from tests.edge.certificates import certificates
from tests.edge.serving import Running, configuration

TOPIC = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def encrypting(tmp_path_factory, files):
    tls = (
        f"<Security><TLS><Certificate>{files.certificate}</Certificate>"
        f"<PrivateKey>{files.key}</PrivateKey></TLS></Security>"
    )
    running = Running(configuration(TOPIC, tls), tmp_path_factory.mktemp("data"))
    yield running
    assert running.errors == []
    running.close()


async def query(client):
    await asyncio.gather(*[client.query("orders") for _ in range(3)])


async def publish(client):
    await client.publish("orders", {"id": 1})


async def follow(client):
    async with client.live("orders"):
        await client.publish("orders", {"id": 1})


def left_by(work):
    """What the collector finds of a loop that has run this and ended."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(5):
            asyncio.run(work())
            gc.collect()
    return [str(one.message) for one in found]


@pytest.mark.parametrize("use", [query, publish, follow])
def test_nothing_is_left_when_the_loop_ends_with_the_client(encrypting, files, use):
    async def work():
        async with Client(encrypting.url, ca=files.ca) as client:
            await use(client)

    assert left_by(work) == []


def test_from_a_server_that_does_not_say_goodbye_connections_are_taken(files, monkeypatch):
    monkeypatch.setattr(module, "GOODBYE_S", 0.0)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    trusting = ssl.create_default_context(cafile=files.ca)

    async def work():
        requested, over = asyncio.Event(), asyncio.Event()

        async def silent(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            requested.set()
            await over.wait()
            writer.transport.abort()

        server = await asyncio.start_server(silent, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        connector = Connector(trusting)
        async with module.aiohttp.ClientSession(connector=connector) as http:
            waits = asyncio.create_task(http.get(f"https://127.0.0.1:{port}/"))
            await requested.wait()
            (transport,) = connector._still_open.values()
            waits.cancel()
        assert transport.is_closing()
        await asyncio.gather(waits, return_exceptions=True)
        over.set()
        server.close()
        await server.wait_closed()

    assert left_by(work) == []


async def redirected(status, use):
    """The error of a client that is redirected, and all requests that it sent."""
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


async def queries(client):
    await client.query("orders")


async def follows(client):
    async with client.subscribe("orders"):
        pass


@pytest.mark.edge
@pytest.mark.parametrize("use", [queries, follows])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_client_goes_nowhere_else(status, use):
    said, requested = asyncio.run(redirected(status, use))
    assert re.fullmatch(r"http://\S+ redirects to /there/v1/ws, which is not followed; .*", said)
    assert len(requested) == 1


def test_a_token_and_a_password_travel_in_the_header_of_http():
    assert ClientAuth().headers() == {}
    assert ClientAuth(token="abc.def").headers() == {"Authorization": "Bearer abc.def"}
    given = iter(["first", "second"])
    requested = ClientAuth(token=lambda: next(given))
    assert [requested.headers()["Authorization"] for _ in "ab"] == ["Bearer first", "Bearer second"]
    requested = ClientAuth(user="ann", password="pässword")
    assert requested.headers() == {"Authorization": "Basic YW5uOnDDpHNzd29yZA=="}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"token": "a", "user": "ann"}, "not both"),
        ({"token": "a\nb"}, "copy it again"),
        ({"token": "a b"}, "copy it again"),
        ({"token": ""}, "copy it again"),
        ({"token": lambda: "a b"}, "copy it again"),
        ({"user": "ann"}, "has no password"),
        ({"user": "a:b", "password": ""}, "has a colon"),
    ],
)
def test_what_cannot_be_said_is_refused(given, said):
    with pytest.raises(ClientError, match=said) as caught:
        ClientAuth(**given).headers()
    assert "a b" not in str(caught.value)


def test_no_secret_is_shown():
    shown = repr(ClientAuth(token="secret-1", user="ann", password="secret-2"))
    assert "secret" not in shown


def test_certificates_that_are_trusted_and_those_that_are_shown(tmp_path):
    files = certificates(tmp_path)
    assert ClientAuth().context() is True
    assert isinstance(ClientAuth(ca=files.ca).context(), ssl.SSLContext)
    shown = ClientAuth(ca=files.ca, certificate=files.certificate, key=files.key)
    assert isinstance(shown.context(), ssl.SSLContext)
    with pytest.raises(ClientError, match=r"missing\.pem cannot be used"):
        ClientAuth(ca=str(tmp_path / "missing.pem")).context()
    with pytest.raises(ClientError, match="cannot be used"):
        ClientAuth(certificate=files.ca, key=files.key).context()
