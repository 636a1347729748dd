"""Whether the upstream server is there: what clients see of a loss, and of its end.

HTTP requests of a chained server: forwarded, and refused while upstream is lost.
"""

import asyncio
import logging

import pytest

from sow.server.api.nodes import Upstream
from sow.server.chained.upstream import UpstreamServer
from sow.server.http.negotiation import FORMAT_ENDINGS
from tests.edge.serving import Running, configuration, records
from tests.server.chained.chains import ALL, BACK, LOST, begin, lines_up_to, numbers


@pytest.mark.parametrize("how", ["cut", "be_lost"])
def test_a_loss_is_reported_and_what_came_meanwhile_follows(pair, how):
    with pair.chained.socket() as one:
        begin(one, ALL)
        pair.upstream.publish("orders", {"id": 1})
        lines_up_to(one, 1)
        getattr(pair.relay, how)()
        assert one.line() == LOST
        answer = pair.chained.get("/readyz")
        assert (answer.status, answer.body.split(b";")[0]) == (503, b"upstream lost\n")
        assert pair.chained.get("/healthz").status == 200
        answer = pair.chained.get(records("orders"))
        assert (answer.status, answer.json["reason"]) == (503, "upstream lost")
        assert pair.chained.publish("orders", {"id": 2}).status == 503
        for command in ({"c": "publish", "d": {"id": 2}}, {"c": "sow"}, ALL):
            ack = one.ask({"t": "orders", **command}, cid="9")[-1]
            assert (ack["status"], ack["reason"]) == ("failure", "upstream lost")
        pair.upstream.publish("orders", {"id": 3}, {"id": 4})
        pair.relay.mend() if how == "cut" else pair.relay.be_silent(False)
        lines = lines_up_to(one, 4)
        assert BACK in lines
        assert numbers(lines) == [3, 4]
        pair.upstream.publish("orders", {"id": 5})
        assert numbers(lines_up_to(one, 5)) == [5]
        assert pair.chained.get("/readyz").status == 200


def test_a_chain_of_three_reports_a_loss_at_its_end(pair, tmp_path):
    third = Running(configuration(""), tmp_path / "third", upstream=Upstream(pair.chained.url, ""))
    with third.socket() as one:
        begin(one, ALL)
        pair.upstream.publish("orders", {"id": 1})
        lines_up_to(one, 1)
        pair.relay.cut()
        assert one.line() == LOST
        assert third.get(records("orders")).status == 503
        pair.upstream.publish("orders", {"id": 2})
        pair.relay.mend()
        assert numbers(lines_up_to(one, 2)) == [2]
    third.close()
    assert third.errors == []


OK = b"HTTP/1.1 200 OK\r\nSOW-Chain: ab\r\n"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "no SOW server"),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", "no SOW server"),
        (OK + b"Content-Length: 3\r\n\r\n\xff\xfe\xfd", "\ufffd"),
        (OK + b"Content-Type: text/plain; charset=no\r\nContent-Length: 2\r\n\r\nhi", "hi"),
        (OK + b"\r\n" + b"x" * 10_000_000, "x" * 50),
        (b"SSH-2.0-Open\r\n", ""),
    ],
)
def test_what_is_no_server_is_waited_for_and_named_once(answer, said, caplog):
    pauses = []

    async def pause(_seconds):
        pauses.append(1)
        if len(pauses) == 3:
            raise TimeoutError

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async def work():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        upstream = UpstreamServer(url, "", "n", pause)
        with pytest.raises(TimeoutError):
            await upstream.reach()
        await upstream.close()
        server.close()

    with caplog.at_level(logging.WARNING, "sow"):
        asyncio.run(work())
    (line,) = [one for one in caplog.messages if "waiting for the upstream" in one]
    assert said in line
    assert len(line) < 500


def nodes_at(running, count):
    """The nodes in the status of a server, once there are so many that were heard."""
    while True:
        nodes = running.get("/v1/status").json["nodes"]
        if len([one for one in nodes if one["pid"]]) >= count:
            return nodes


def test_each_server_of_a_chain_lists_all_of_them(pair, tmp_path):
    third = Running(configuration(""), tmp_path / "third", upstream=Upstream(pair.chained.url))
    pair.upstream.publish("orders", {"id": 1})
    try:
        for running in (pair.upstream, pair.chained, third):
            nodes = {one["url"]: one for one in nodes_at(running, 3)}
            assert {one["role"] for one in nodes.values()} == {"primary", "chained"}
            assert nodes[pair.upstream.url]["state_hash"]
            assert nodes[pair.upstream.url]["upstream"] is None
            assert nodes[pair.chained.url]["upstream"] == pair.relay.url
            assert nodes[third.url]["upstream"] == pair.chained.url
            assert nodes[third.url]["state_hash"] is None
        while third.get("/v1/status").json["bookmark"] != "1":
            pass  # it is upstream's when that last answered
    finally:
        third.close()
    assert third.errors == []


def test_metrics_tell_of_upstream_and_there_of_its_nodes(pair):
    def figures(running):
        page = running.get("/metrics").body.decode()
        return {
            line.split()[0]: float(line.split()[1])
            for line in page.splitlines()
            if line.startswith(("sow_upstream", "sow_node"))
        }

    with pair.chained.socket() as one, pair.chained.socket() as two:
        for socket in (one, two):
            begin(socket, ALL)
        pair.upstream.publish("orders", {"id": 1})
        lines_up_to(one, 1)
        found = figures(pair.chained)
        assert found["sow_upstream_connected"] == 1
        assert found["sow_upstream_subscriptions"] == 1
        assert found["sow_upstream_subscribers"] == 2
        assert found["sow_upstream_lines_total"] > 0
        assert found["sow_upstream_bytes_total"] > found["sow_upstream_lines_total"]
        assert found["sow_upstream_losses_total"] == 0
        pair.relay.cut()
        while one.line() != LOST:
            pass
        found = figures(pair.chained)
        assert (found["sow_upstream_connected"], found["sow_upstream_losses_total"]) == (0, 1)
        (own,) = pair.chained.get("/v1/status").json["nodes"]
        assert own["lag_ms"] >= 0
        pair.relay.mend()
        while figures(pair.chained)["sow_upstream_reconnects_total"] < 1:
            pass
        assert figures(pair.chained)["sow_upstream_connected"] == 1
    nodes_at(pair.upstream, 2)
    found = figures(pair.upstream)
    assert found['sow_nodes{role="chained"}'] == 1
    assert not any(name.startswith("sow_upstream") for name in found)


def test_requests_are_answered_from_upstream(pair):
    assert pair.chained.publish("orders", {"id": 1}, {"id": 2}).json["published"] == 2
    assert pair.chained.records("orders") == [{"id": 1}, {"id": 2}]
    assert pair.upstream.records("orders") == [{"id": 1}, {"id": 2}]
    answer = pair.chained.get(records("nix"))
    assert (answer.status, answer.json["reason"]) == (404, "invalid topic")
    assert pair.chained.get("/v1/topics/orders").json["name"] == "orders"
    log = pair.chained.get("/readyz").headers["SOW-Log"]
    assert log == pair.upstream.get("/readyz").headers["SOW-Log"]
    status = pair.chained.get("/v1/status").json
    assert (status["role"], status["log"], status["state_hash"]) == ("chained", log, None)
    assert status["upstream"] == pair.relay.url
    answer = pair.chained.get(records("orders", min_bookmark=2))
    assert answer.headers["SOW-Bookmark"] == "2"


def test_what_is_no_bookmark_is_refused_by_all_that_it_answers(pair):
    for path in ("/v1/status", "/v1/sessions", "/v1/topics"):
        for text in ("%25", "x", "-1"):
            answer = pair.chained.get(f"{path}?min_bookmark={text}")
            assert (answer.status, answer.json["reason"]) == (400, "invalid bookmark")
        assert pair.chained.get(f"{path}?min_bookmark=0").status == 200
        log = pair.upstream.get("/readyz").headers["SOW-Log"]
        assert pair.chained.get(f"{path}?min_bookmark={log}-0").status == 200
        answer = pair.chained.get(f"{path}?min_bookmark={'f' * 16}-0")
        assert (answer.status, answer.json["reason"]) == (409, "another log")


def test_an_answer_is_that_of_upstream_in_every_form(pair):
    pair.upstream.publish("orders", *({"id": number, "x": "x" * 50} for number in range(500)))
    for headers in ({}, {"Accept-Encoding": "gzip"}, {"Accept": "text/csv"}):
        found = [
            server.request("GET", records("orders"), headers=headers)
            for server in (pair.chained, pair.upstream)
        ]
        assert found[0].body == found[1].body
        for name in ("ETag", "Content-Encoding", "Content-Type", "SOW-Bookmark"):
            assert found[0].headers.get(name) == found[1].headers.get(name)
    tag = found[0].headers["ETag"]
    again = {"If-None-Match": tag, "Accept": "text/csv"}
    assert pair.chained.request("GET", records("orders"), headers=again).status == 304
    with pair.chained.events("orders", filter="/id = 1", snapshot="true") as events:
        assert [event.name for event in events.until("group_end")][1] == "sow"


def test_a_target_that_is_a_whole_address_is_that_of_this_server(pair):
    pair.upstream.publish("orders", {"id": 1})
    target = "http://127.0.0.1:1/v1/topics/orders/records?filter=/id=1"
    head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = pair.chained.said(head.encode())
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'[{"id": 1}]' in answer


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ("Accept: text/csv\r\nConnection: close, X-Own\r\nX-Own: 1", "text/csv"),
        ("Accept: text/csv;q=0.1\r\nAccept: application/json\r\nConnection: close", "json"),
        ("Accept: application/json\r\nAccept: text/csv;q=0.1\r\nConnection: close", "json"),
    ],
)
def test_headers_that_are_sent_twice_count_twice(pair, headers, kind):
    head = f"GET {records('orders')} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n"
    answer = pair.chained.said(head.encode())
    assert answer.startswith(b"HTTP/1.1 200")
    assert kind.encode() in answer.partition(b"Content-Type:")[2].partition(b"\r\n")[0]


def test_nothing_is_requested_that_the_client_has_not_requested(pair):
    pair.upstream.publish("orders", *({"id": number, "x": "x" * 50} for number in range(500)))
    target = f"{records('orders')} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    for more in ("\r\n", "Range: bytes=1-9\r\n\r\n"):
        request = f"GET {target}{more}".encode()
        answer, straight = (server.said(request) for server in (pair.chained, pair.upstream))
        assert b"Content-Encoding" not in answer
        assert answer.split(b"\r\n", 1)[0] == straight.split(b"\r\n", 1)[0]
    assert answer.endswith(b'\r\n\r\n{"id": 0,')
    # Not even the type of a body.
    body = b'{"id": 501}'
    head = f"POST {target}Content-Length: {len(body)}\r\n\r\n".encode()
    found = [server.said(head + body)[:15] for server in (pair.chained, pair.upstream)]
    assert found[0] == found[1]


@pytest.mark.parametrize("ending", FORMAT_ENDINGS)
def test_a_file_is_that_of_upstream(pair, ending):
    pair.upstream.publish("orders", *({"id": number, "x": "x" * 50} for number in range(50)))
    for path in (f"/v1/topics/orders/records.{ending}", f"/v1/log.{ending}"):
        found = [server.get(path) for server in (pair.chained, pair.upstream)]
        assert found[0].body == found[1].body
        for name in ("ETag", "Content-Type", "Content-Length", "Content-Disposition"):
            assert found[0].headers[name] == found[1].headers[name]
        part = {"Range": "bytes=5-9", "If-Range": found[0].headers["ETag"]}
        answer = pair.chained.request("GET", path, headers=part)
        assert (answer.status, answer.body) == (206, found[1].body[5:10])
