"""Whether the upstream server is there: what clients see of a loss, and of its end."""

import asyncio
import logging

import pytest

from sow.server.api.nodes import Upstream
from sow.server.chained.upstream import UpstreamServer
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
