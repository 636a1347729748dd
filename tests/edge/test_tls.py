"""A server that encrypts: all doors by https and wss; nobody is held up by who is not done."""

import asyncio
import json
import socket
import ssl
from dataclasses import replace
from datetime import UTC, datetime
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.client import Client, Disconnected, Unreachable
from sow.errors import ConfigError, SowError
from sow.spark.http import SowServer
from sow.spark.http import certificates as certificates_of
from tests.edge.certificates import certificates
from tests.edge.serving import Running, configuration

TOPIC = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
REQUESTED = ("query", "orders", "--top", "1", "--format", "ndjson")


def secure(files, more=""):
    return configuration(TOPIC, f"<Security>{files.element}</Security>{more}")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(tmp_path_factory, files):
    running = Running(secure(files), tmp_path_factory.mktemp("data"))
    yield running
    assert running.errors == []
    running.close()


def trusting(files):
    return ssl.create_default_context(cafile=files.ca)


def test_the_client_publishes_queries_and_follows(server, files):
    async def work():
        async with Client(server.url, ca=files.ca) as client:
            await client.publish("orders", [{"id": n, "px": n / 4} for n in range(2000)])
            assert (await client.query("orders", filter="/px > 499")).matches == 3
            async with client.live("orders", filter="/id < 10") as live:
                assert len(live) == 10
                return server.url

    assert server.wait(work()).startswith("https://127.0.0.1:")


def test_the_command_line_trusts_what_it_is_sent_to(server, files):
    def run(*words):
        return CliRunner().invoke(main, [*words, "--url", server.url], catch_exceptions=False)

    refused = run(*REQUESTED)
    assert refused.exit_code != 0
    assert "certificate" in refused.output
    assert "Traceback" not in refused.output
    assert json.loads(run(*REQUESTED, "--ca", files.ca).output)["id"] == 0


def test_sparks_workers_trust_the_text_that_the_driver_read(server, files):
    found = SowServer(server.url, ca=certificates_of(files.ca)).json("GET", "/v1/topics")
    assert [topic["name"] for topic in found] == ["orders"]
    with pytest.raises(SowError, match="is not trusted"):
        SowServer(server.url, retry_s=0).json("GET", "/v1/topics")


def test_a_server_of_another_authority_is_not_trusted(server, tmp_path):
    other = certificates(tmp_path, signed_by="another")

    async def work():
        async with Client(server.url, ca=other.ca) as client:
            await client.topics()

    with pytest.raises(Unreachable, match="certificate"):
        server.wait(work())


def test_a_large_answer_and_one_that_is_not_read_to_its_end(server, files):
    context = trusting(files)
    with urlopen(f"{server.url}/v1/topics/orders/records", context=context) as answer:
        assert len(json.loads(answer.read())) == 2000
    with urlopen(f"{server.url}/v1/topics/orders/records", context=context) as answer:
        answer.read(10)


def test_who_closes_his_side_has_closed(server, files):
    with (
        socket.create_connection(server.address) as plain,
        trusting(files).wrap_socket(plain, server_hostname="localhost") as wrapped,
    ):
        wrapped.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not wrapped.recv(1000).endswith(b"\n"):
            pass
        wrapped.unwrap().close()


def test_plain_http_and_noise_get_nothing_and_leave_their_place(server):
    before = server.call(lambda: server.server._http.crowd.connections)
    for said in (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x00\xff", b""):
        with socket.create_connection(server.address) as plain:
            plain.sendall(said)
            plain.shutdown(socket.SHUT_WR)
            while plain.recv(1000):
                pass

    async def left():
        while server.server._http.crowd.connections > before:
            await asyncio.sleep(0)

    server.wait(left())


def test_a_handshake_that_does_not_end_is_given_up(tmp_path, files):
    more = "<Limits><HeaderTimeout>1s</HeaderTimeout></Limits>"
    running = Running(secure(files, more), tmp_path)
    try:
        with socket.create_connection(running.address) as plain:
            plain.sendall(b"\x16\x03\x01\x02\x00")
            assert plain.recv(1000) == b""
        assert running.errors == []
    finally:
        running.close()


def expiry(running, files):
    """When the certificate of a server ends, as its metrics say."""
    return running.server._in_force.tls.certificates[files.certificate].expires_s


def test_a_reload_takes_a_renewed_certificate_and_open_connections_go_on(tmp_path):
    files = certificates(tmp_path)
    config = secure(files)
    running = Running(config, tmp_path / "data", reread=lambda: running.next)
    running.next = config
    try:

        async def renew():
            async with Client(running.url, ca=files.ca) as client:
                await client.publish("orders", {"id": 1})
                assert await running.server.reload() == []
                before = expiry(running, files)
                renewed = certificates(
                    tmp_path, signed_by="another", not_after=datetime(2222, 1, 2, 3, 4, tzinfo=UTC)
                )
                assert await running.server.reload() == [
                    f"certificate {files.certificate} read again, valid until 2222-01-02 03:04 UTC"
                ]
                assert before > expiry(running, files) == 7952439840.0
                async with Client(running.url, ca=renewed.ca) as other:
                    assert (await other.query("orders")).records == [{"id": 1}]
                assert await client.publish("orders", {"id": 2}) == "2"

        running.wait(renew())
        (tmp_path / "key.pem").write_text("nothing")
        with pytest.raises(ConfigError, match="TLS cannot be used"):
            running.wait(running.server.reload())
        running.next = replace(config, security=replace(config.security, tls=None))
        with pytest.raises(ConfigError, match="restart the server"):
            running.wait(running.server.reload())
    finally:
        running.close()


@pytest.mark.parametrize(
    "asking",
    [lambda client: client.topics(), lambda client: client.publish("orders", {"id": 1})],
    ids=["HTTP", "WebSocket"],
)
def test_a_client_of_plain_http_is_sent_to_write_https(server, asking):
    async def work():
        async with Client(server.url.replace("https", "http")) as client:
            await asking(client)

    with pytest.raises(Disconnected, match=r"was lost: .*; if the server has TLS, write https://"):
        server.wait(work())
