"""`Expect`: a body is asked for where it will be read, and refused before it comes where not."""

import json

import pytest

from tests.edge.serving import Running, configuration
from tests.edge.topics import MESSAGE_TYPES, TOPICS

LOGON = """<Security>
  <Authentication><Tokens><File>{}/tokens</File></Tokens></Authentication>
  <Role><Name>all</Name><Member>*</Member><Allow><Topic>.*</Topic><Read/><Write/></Allow></Role>
</Security>"""
BODY = b'[{"id":1}]'


LENGTH = len(BODY)


def said_first(server, path="/v1/topics/orders/records", method="POST", length=LENGTH, more=()):
    """What the server says before the body, and what it says after the body."""
    head = [
        f"{method} {path} HTTP/1.1",
        f"Host: {server.url.partition('//')[2]}",
        "Expect: 100-continue",
        f"Content-Length: {length}",
        *(more or ["Content-Type: application/json"]),
    ]
    with server.connection() as raw:
        raw.sendall("\r\n".join([*head, "", ""]).encode())
        first = raw.recv(65536)
        if b" 100 " not in first:
            return first, b""
        raw.sendall(BODY)
        return first, raw.recv(65536)


def test_a_body_that_is_read_is_requested_for_once(server):
    first, then = said_first(server)
    assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert then.startswith(b"HTTP/1.1 200 ")
    assert server.records("orders") == [{"id": 1}]


@pytest.mark.parametrize(
    ("status", "requested"),
    [
        (404, {"path": "/v1/topics/nope/records"}),
        (404, {"path": "/nowhere"}),
        (405, {"path": "/v1/topics", "method": "DELETE"}),
        (400, {"path": "/v1/topics/orders/records?wrong=1"}),
        (400, {"path": "/v1/topics/orders/records?ack=maybe"}),
        (400, {"path": "/v1/topics/orders-C/records"}),
        (404, {"path": "/v1/sessions/none"}),
        (413, {"length": 10**12}),
        (415, {"more": ["Content-Type: image/png"]}),
        (415, {"more": ["Content-Type: application/json; charset=klingon"]}),
        (415, {"more": ["Content-Type: text/csv; header=absent"]}),
        (415, {"more": ["Content-Type: application/json", "Content-Encoding: lzma"]}),
    ],
)
def test_what_is_refused_is_refused_before_the_body(server, status, requested):
    first, _ = said_first(server, **requested)
    head, _, body = first.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    # Whatever comes next may be the body, or another request.
    assert b"\r\nconnection: close" in head.lower()
    assert json.loads(body)["status"] == status


def test_who_is_not_known_is_sent_before_the_body(tmp_path):
    (tmp_path / "tokens").write_text("")
    server = Running(configuration(TOPICS, MESSAGE_TYPES + LOGON.format(tmp_path)), tmp_path / "d")
    first, _ = said_first(server)
    server.close()
    assert first.startswith(b"HTTP/1.1 401 ")
