"""What a node says to the server above it, and what it makes of the answer."""

import asyncio

import msgspec
import pytest
from aiohttp import ClientSession, web

from sow.server.api.nodes import ServerNode
from sow.server.boot import reporting
from sow.server.boot.reporting import nodes_of, report

OWN = ServerNode("http://0.0.0.0:1", "chained", "7", None, 0, 42, "http://up", 3)


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
    monkeypatch.setattr(reporting, "STATUS_S_MAX", 0.2)
    monkeypatch.setattr(reporting, "STATUS_BYTES_MAX", 100_000)

    async def endless(request):
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b" " * 10_000)

    async def silent(_request):
        await asyncio.sleep(1)

    assert known(endless) == []
    assert known(silent) == []
