"""Who may come in, at every door, by the headers that browsers, programs and proxies send."""

import asyncio
import dataclasses
import re

import pytest

from sow.client import Client
from sow.core.security_definitions import Security
from sow.server.boot.routes import TABLE
from sow.server.http.route import with_heads
from tests.cases import all_cases
from tests.edge.serving import WAIT_S, Running, configuration, records, stream
from tests.edge.topics import MESSAGE_TYPES, TOPICS

DESK = "https://desk.example"
EVIL = "http://evil.example"
SECURITY = f"""<Security><AllowedHosts>sow.example</AllowedHosts>
<AllowedOrigins>{DESK}</AllowedOrigins></Security>"""
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


ADDRESSES = [(route.method, re.sub(r"\{\w+\}", "1", route.path)) for route in with_heads(TABLE)]
ADDRESSES += [("GET", "/nowhere"), ("PUT", "/v1/topics"), ("OPTIONS", "/v1/topics")]
ADDRESSES += [("OPTIONS", "/nowhere"), ("TRACE", "/"), ("GET", "/v1/../v1/topics")]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with a <Security>, on a machine called box."""
    config = configuration(TOPICS, MESSAGE_TYPES + SECURITY)
    server = Running(config, tmp_path_factory.mktemp("guarded"), names=lambda: ["Box", "b.corp"])
    yield server
    server.close()
    assert server.errors == []


# Nobody from elsewhere, at any door.


@all_cases(("method", "path"), ADDRESSES)
def test_no_door_opens_to_another_name_or_another_sites_page(server, method, path):
    upgrade = WEBSOCKET if path == "/v1/ws" else {}

    def requested(**headers):
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return server.request(method, path, headers=upgrade | named)

    refused = {
        421: [requested(Host="localhost.evil.example:8080")],
        403: [
            requested(Origin=EVIL),
            requested(Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors"),
        ],
    }
    for status, answers in refused.items():
        for answer in answers:
            assert answer.status == status, answer
            assert answer.headers["Content-Type"].startswith("application/problem+json")
            assert not [name for name in answer.headers if name.startswith("Access-Control")]
            if method != "HEAD":
                assert answer.json["detail"]


def test_a_refusal_has_a_stable_reason_and_says_what_to_write(server):
    host = server.request("GET", "/v1/topics", headers={"Host": "sow.example:80"}).json
    origin = server.request("GET", "/v1/topics", headers={"Origin": DESK}).json
    assert (host["reason"], origin["reason"]) == ("unknown host", "foreign origin")
    assert "<AllowedHosts>sow.example</AllowedHosts>" in host["detail"]
    assert f"<AllowedOrigins>{DESK}</AllowedOrigins>" in origin["detail"]


ACROSS = {"Origin": EVIL, "Sec-Fetch-Site": "cross-site"}
NO_CORS = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
NAVIGATE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TEXT = {"Content-Type": "text/plain;charset=UTF-8"}
PREFLIGHT = {"Access-Control-Request-Method": "PATCH"}
BY_A_PAGE = {
    "fetch": ("GET", records("orders"), ACROSS | {"Sec-Fetch-Mode": "cors"}, None),
    "fetch without cors": ("GET", records("orders"), NO_CORS | {"Sec-Fetch-Dest": "empty"}, None),
    "an image": ("GET", "/v1/topics", NO_CORS | {"Sec-Fetch-Dest": "image"}, None),
    "a script": ("GET", records("orders"), NO_CORS | {"Sec-Fetch-Dest": "script"}, None),
    "a neighbour's script": ("GET", records("orders"), {"Sec-Fetch-Site": "same-site"}, None),
    "a frame": ("GET", "/", NAVIGATE | {"Sec-Fetch-Dest": "iframe"}, None),
    "a link into the data": ("GET", records("orders"), NAVIGATE, None),
    "a simple publish": ("POST", records("orders"), ACROSS | TEXT, b'{"id":"forged"}'),
    "an older browser's": ("POST", records("orders"), {"Origin": EVIL} | TEXT, b'{"id":1}'),
    "a form": ("POST", records("orders"), ACROSS | NAVIGATE | FORM, b'{"id":1}='),
    "a sandboxed form": ("POST", records("orders"), ACROSS | FORM | {"Origin": "null"}, b"{}"),
    "a reload": ("POST", "/v1/config/reload", ACROSS | TEXT, b""),
    "a preflight": ("OPTIONS", records("orders"), ACROSS | PREFLIGHT, None),
    "events": ("GET", stream("orders"), ACROSS | {"Accept": "text/event-stream"}, None),
    "a socket": ("GET", "/v1/ws", {"Origin": EVIL} | WEBSOCKET, None),
}


@all_cases("name", BY_A_PAGE)
def test_what_a_page_of_another_site_tries_is_refused_and_changes_nothing(server, name):
    method, path, headers, body = BY_A_PAGE[name]
    answer = server.request(method, path, headers=headers, data=body)
    assert answer.status == 403
    assert not [name for name in answer.headers if name.startswith("Access-Control")]
    assert server.records("orders") == []


def test_a_page_whose_name_was_made_to_point_here_is_refused(server):
    """DNS rebinding: to the browser this is the page's own server, so it sends no Origin."""
    _, port = server.address
    same = {"Host": f"evil.example:{port}", "Sec-Fetch-Site": "same-origin"}
    posted = same | {"Origin": f"http://evil.example:{port}"}
    assert server.request("GET", "/v1/topics", headers=same).status == 421
    assert server.request("POST", records("orders"), headers=posted, data=b"{}").status == 421
    assert server.request("GET", "/v1/ws", headers=posted | WEBSOCKET).status == 421
    believed = same | {"X-Forwarded-Host": "localhost", "X-Forwarded-For": "127.0.0.1"}
    assert server.request("GET", "/v1/topics", headers=believed).status == 421


# The server's own pages, and those that the configuration lists.


def test_a_page_of_the_server_itself_reads_publishes_and_subscribes(server):
    own = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    assert server.request("GET", "/v1/topics", headers=own).status == 200
    answer = server.request("POST", records("orders"), headers=own, data=b'{"id":1}')
    assert answer.status == 200
    assert "Access-Control-Allow-Origin" not in answer.headers
    with server.socket(headers={"Origin": server.url}) as ws:
        assert ws.ask({"c": "sow", "t": "orders"})[-1]["status"] == "success"


def test_a_listed_page_may_do_all_and_read_the_answers(guarded):
    listed = {"Origin": DESK, "Sec-Fetch-Site": "cross-site"}
    answers = [
        guarded.request("POST", records("orders"), headers=listed | TEXT, data=b'{"id":1}'),
        guarded.request("GET", records("orders"), headers=listed),
        guarded.request("GET", "/nowhere", headers=listed),
        guarded.request("GET", records("orders", filter="/a ="), headers=listed),
    ]
    assert [answer.status for answer in answers] == [200, 200, 404, 400]
    for answer in answers:
        assert answer.headers["Access-Control-Allow-Origin"] == DESK
        assert answer.headers["Vary"] == "Origin"
        assert answer.headers["Access-Control-Allow-Credentials"] == "true"
        readable = answer.headers["Access-Control-Expose-Headers"].split(", ")
        ours = {name for name in answer.headers if name.startswith(("SOW-", "ETag"))}
        assert ours <= {*readable}
    assert "SOW-Matches" in answers[1].headers["Access-Control-Expose-Headers"]
    with guarded.events("orders", headers=listed) as events:
        assert events.headers["Access-Control-Allow-Origin"] == DESK
        assert events.until("group_end")[1].line["d"] == {"id": 1}
    with guarded.socket(headers=listed) as ws:
        assert ws.ask({"c": "sow", "t": "orders"})[-1]["status"] == "success"


def test_a_listed_pages_preflight_is_answered(guarded):
    requested = {
        "Origin": DESK,
        "Sec-Fetch-Site": "cross-site",
        "Access-Control-Request-Method": "DELETE",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    for path in (records("orders"), "/v1/sessions/1", "/nowhere"):
        answer = guarded.request("OPTIONS", path, headers=requested)
        assert answer.status == 204
        assert answer.headers["Access-Control-Allow-Origin"] == DESK
        assert "DELETE" in answer.headers["Access-Control-Allow-Methods"]
        assert answer.headers["Access-Control-Allow-Headers"] == "authorization,content-type"
        assert answer.headers["Access-Control-Allow-Credentials"] == "true"
    del requested["Access-Control-Request-Headers"]
    answer = guarded.request("OPTIONS", "/v1/topics", headers=requested)
    assert "Access-Control-Allow-Headers" not in answer.headers


# One answer has no end: HEAD has the headers of GET.
@all_cases(("method", "path"), [one for one in ADDRESSES if one != ("GET", "/v1/log/entries")])
def test_no_answer_is_put_into_another_page(server, method, path):
    answer = server.request(method, path)
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_nobody_else_is_sent_that_he_may_read(guarded):
    for headers in ({}, {"Origin": guarded.url}, {"Origin": EVIL}, {"Origin": DESK + ":8443"}):
        answer = guarded.request("GET", "/v1/topics", headers=headers)
        assert answer.status == (200 if headers.get("Origin") in (None, guarded.url) else 403)
        assert answer.headers["Vary"] == "Origin", "a cache must not mix the answers up"
        assert not [name for name in answer.headers if name.startswith("Access-Control")]
    plain = {"Origin": guarded.url, "Access-Control-Request-Method": "POST"}
    answer = guarded.request("OPTIONS", "/v1/topics", headers=plain)
    assert (answer.status, answer.headers["Allow"]) == (204, "GET, HEAD, OPTIONS")
    assert not [name for name in answer.headers if name.startswith("Access-Control")]


# Whoever is no browser goes on as before.

CALLED = {
    "curl": "127.0.0.1:{port}",
    "curl by name": "localhost:{port}",
    "curl over version 6": "[::1]:{port}",
    "a worker of Spark's, by the machine's name": "box:{port}",
    "a worker of Spark's, by its full name": "b.corp:{port}",
    "a worker of Spark's, by address": "192.0.2.7:{port}",
    "a container's port 8080 mapped to 9000": "localhost:9000",
    "a tunnel, ssh -L 12345:localhost:8080": "localhost:12345",
    "a proxy that puts its own upstream into Host": "127.0.0.1:8080",
    "a proxy that passes Host on": "sow.example",
    "a load balancer that asks the address": "10.1.2.3",
}


@all_cases("name", CALLED)
def test_programs_come_in_by_every_name_of_the_server(guarded, name):
    _, port = guarded.address
    host = CALLED[name].format(port=port)
    answer = guarded.request("POST", records("orders"), headers={"Host": host}, data=b'{"id":1}')
    assert answer.status == 200
    # So does the page that the server serves under that name, and pages from elsewhere do not.
    page = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    assert guarded.request("GET", "/v1/topics", headers=page).status == 200
    assert guarded.request("GET", "/v1/topics", headers=page | {"Origin": EVIL}).status == 403


def status_of(server, *lines):
    """The status of a request of these lines."""
    text = "\r\n".join((*lines, "Connection: close", "", ""))
    return server.said(text.encode()).split()[1]


def test_the_host_of_an_absolute_address_has_to_be_the_servers(server):
    good = f"Host: {server.url.partition('//')[2]}"
    for host, status in ((server.url, b"200"), ("http://localhost:1", b"200")):
        assert status_of(server, f"GET {host}/v1/topics HTTP/1.1", good) == status
    for host in ("http://evil.example", "http://localhost@evil.example", "ftp://evil.example"):
        assert status_of(server, f"GET {host}/v1/topics HTTP/1.1", good) in (b"400", b"421")
    assert status_of(server, "GET http://evil.example/v1/topics HTTP/1.0") == b"421"


def test_a_clients_own_headers_come_in(guarded):
    async def work():
        async with Client(guarded.url.replace("127.0.0.1", "localhost"), name="test") as client:
            await client.publish("orders", {"id": 1})
            return (await client.query("orders")).records

    assert {"id": 1} in asyncio.run(asyncio.wait_for(work(), WAIT_S))


# Proxies.


def test_what_a_proxy_says_is_read_from_trusted_ones_only(tmp_path):
    said = {"X-Forwarded-Host": "sow.example", "Origin": "https://sow.example"}
    config = configuration(TOPICS, MESSAGE_TYPES + SECURITY)
    trusting = Security(allowed_hosts=("sow.example",), trusted_proxies=("127.0.0.0/8",))
    for security, status in ((config.security, 403), (trusting, 200)):
        server = Running(dataclasses.replace(config, security=security), tmp_path)
        try:
            page = server.request("GET", "/v1/topics", headers=said)
            program = server.request("GET", "/v1/topics", headers={"X-Forwarded-Host": "other"})
            evil = server.request("GET", "/v1/topics", headers=said | {"Host": "evil.example"})
        finally:
            server.close()
        assert (page.status, evil.status) == (status, 421)
        assert program.status == (200 if security is not trusting else 421)


def test_who_may_come_in_can_be_changed_by_a_reload(tmp_path):
    config = configuration(TOPICS, MESSAGE_TYPES)
    more = dataclasses.replace(config, security=Security(allowed_origins=(DESK,)))
    server = Running(config, tmp_path, reread=lambda: more)
    try:
        assert server.request("GET", "/v1/topics", headers={"Origin": DESK}).status == 403
        assert server.request("POST", "/v1/config/reload").json == {"changes": ["security changed"]}
        answer = server.request("GET", "/v1/topics", headers={"Origin": DESK})
        assert answer.headers["Access-Control-Allow-Origin"] == DESK
    finally:
        server.close()
