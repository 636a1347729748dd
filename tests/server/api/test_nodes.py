"""The nodes that a server knows: who is listed, for how long, and as what."""

import asyncio
import json

import msgspec
import pytest
from aiohttp import ClientSession, web

from sow.errors import TooLarge
from sow.server.api import nodes
from sow.server.api.nodes import (
    HEARD_S,
    NODES_MAX,
    REMEMBERED_S,
    Nodes,
    ServerNode,
    nodes_of,
    report,
)
from sow.server.loop.log_checkpoint import LogMark


def test_of_many_nodes_the_most_silent_are_forgotten():
    now_s = 0.0
    nodes = Nodes(lambda: now_s)
    with nodes.reading("http://reads", 5), nodes.reading("http://too", 7):
        for number in range(2 * NODES_MAX):
            now_s += 0.001
            nodes.note(ServerNode(f"http://{number}", "follower"))
        assert nodes.positions() == {"http://reads": 5, "http://too": 7}
        urls = [node.url for node in nodes.all()]
        assert urls[-1] == f"http://{2 * NODES_MAX - 1}"
        assert len(urls) == NODES_MAX - 2
        with pytest.raises(TooLarge):
            nodes.note(ServerNode("x" * 3_000, "follower"))
    now_s = 2 * REMEMBERED_S
    assert nodes.all() == []
    assert not nodes._heard_s


def test_a_report_of_many_nodes_is_sorted_once_and_noted_wholly_or_not_at_all():
    calls = 0

    def now_s():
        nonlocal calls
        calls += 1
        return 0.0

    nodes = Nodes(now_s)
    many = [ServerNode(f"http://{number}", "chained", pid=number) for number in range(NODES_MAX)]
    nodes.note(*many)
    assert calls <= NODES_MAX + 1, "the times are looked through once"
    assert nodes.all() == many
    with pytest.raises(TooLarge):
        nodes.note(ServerNode("http://new", "chained", pid=1), ServerNode("x" * 3_000, "chained"))
    assert nodes.all() == many


def test_the_log_is_kept_for_who_reads_and_a_while_longer():
    now_s = 0.0
    nodes = Nodes(lambda: now_s)
    with nodes.reading("one", 5) as reading:
        now_s = 2 * REMEMBERED_S
        assert nodes.positions() == {"one": 5}
        reading.reached(9)
    assert nodes.positions() == {"one": 9}
    now_s += REMEMBERED_S + 1
    assert nodes.positions() == {}


def test_chained_servers_of_one_address_are_several_and_one_that_was_replaced_is_none():
    now_s = 0.0
    nodes = Nodes(lambda: now_s)
    for pid in (1, 2):
        nodes.note(ServerNode("http://e", "chained", pid=pid))
    assert [node.pid for node in nodes.all()] == [1, 2]
    now_s = HEARD_S
    nodes.note(ServerNode("http://e", "chained", pid=3))
    now_s += 1
    assert [node.pid for node in nodes.all()] == [3]
    now_s += HEARD_S
    assert nodes.all() == [ServerNode("http://e", "chained")], "once, as not heard of"


def test_nodes_are_counted_by_role_with_the_lag_of_each():
    nodes = Nodes(lambda: 0.0)
    assert nodes.counts() == {"follower": 0, "chained": 0}
    nodes.note(ServerNode("http://f", "follower", lag_ms=1500))
    nodes.note(ServerNode("http://e", "chained", pid=1, lag_ms=20))
    nodes.note(ServerNode("http://e", "chained", pid=2, lag_ms=10))
    assert nodes.counts() == {"follower": 1, "chained": 2}
    assert nodes.lags_s() == {"http://f": 1.5, "http://e": 0.02}


OWN = ServerNode("http://0.0.0.0:1", "chained", "7", None, 0, 42, "http://up", 3, LogMark("7", 9))


async def asked(answer, work):
    """The result of some work at a server that answers so, and the requests that it got."""
    requests = []

    async def handle(request):
        requests.append((request.method, request.raw_path, await request.text()))
        return await answer(request)

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    async with ClientSession() as calls:
        found = await work(calls, f"http://{host}:{port}")
    await runner.cleanup()
    return found, requests


def answering(text, status=200):
    async def answer(_request):
        return web.Response(text=text, status=status)

    return answer


def reported(answer, below=()):
    return asyncio.run(asked(answer, lambda calls, url: report(calls, url, OWN, below=below)))


def test_a_report_says_all_of_it_and_the_answer_where_it_is_listed():
    listed = '{"url":"http://10.0.0.3:1","role":"chained","of_a_later_version":1}'
    found, [(method, path, body)] = reported(
        answering(listed), [msgspec.structs.replace(OWN, url="http://b")]
    )
    assert (found, method) == ("http://10.0.0.3:1", "PUT")
    assert path == "/v1/nodes/http:%2F%2F0.0.0.0:1"
    assert '"url": "http://b"' in body
    assert '"sessions": 3' in body
    said = json.loads(body)
    assert [one["checkpoint"]["position"] for one in (said, *said["below"])] == [9, 9]


@pytest.mark.parametrize(
    ("answer", "found"),
    [("no JSON", OWN.url), ('{"url":7}', OWN.url), ("[" * 10_000, OWN.url)],
)
def test_an_answer_of_nonsense_changes_nothing(answer, found):
    assert reported(answering(answer))[0] == found


@pytest.mark.parametrize("status", [301, 401, 403, 404, 500])
def test_a_refusal_is_told_from_an_answer(status):
    assert reported(answering("{}", status))[0] == ""


def known(answer):
    return asyncio.run(asked(answer, lambda calls, url: nodes_of(calls, url, {"A": "b"})))[0]


def test_what_is_known_above_is_read_as_far_as_it_is_understood():
    text = '{"name":"x","nodes":[{"url":"http://p","role":"primary","pid":1,"more":[]}]}'
    assert known(answering(text)) == [ServerNode("http://p", "primary", pid=1)]
    for text in ('{"name":"x"}', "nonsense", '{"nodes":[{"url":1}]}', "[" * 10_000):
        assert known(answering(text)) == []


def test_one_that_does_not_end_or_does_not_answer_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(nodes, "STATUS_S_MAX", 0.2)
    monkeypatch.setattr(nodes, "STATUS_BYTES_MAX", 100_000)

    async def endless(request):
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b" " * 10_000)

    async def silent(_request):
        await asyncio.sleep(1)

    assert known(endless) == []
    assert known(silent) == []
