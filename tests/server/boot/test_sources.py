"""Where the records of a server are: the choice between its engine and an upstream server."""

import asyncio

import pytest

from sow.core.definitions import Configuration, JournalSettings, Topic
from sow.server.api.nodes import Upstream
from sow.server.boot.app import Server
from sow.server.boot.sources import RecordsHere, RecordsUpstream, without_records
from sow.server.chained.upstream import Circle, UpstreamServer
from tests.edge.serving import configuration
from tests.server.chained.chains import hurry


def test_records_here_can_always_be_reached():
    here = RecordsHere("node")
    assert (here.chain, here.refusal, here.log_id) == (["node"], None, "")


def test_records_upstream_cannot_be_reached_before_it_has_answered():
    upstream = UpstreamServer("http://127.0.0.1:1", "", "node")
    there = RecordsUpstream(upstream)
    assert (there.chain, there.refusal, there.log_id) == (["node"], None, "")
    upstream._set("it does not answer")
    assert there.refusal == "upstream lost"


def test_a_server_in_a_circle_does_not_start(tmp_path, monkeypatch):
    hurry(monkeypatch)
    asyncio.run(circles(tmp_path))


async def circles(tmp_path):
    one, two = configuration(""), configuration("")
    server = Server(one, tmp_path / "1", upstream=Upstream("http://127.0.0.1:1", ""))
    url = await server.open()
    server._source._upstream.url = url
    with pytest.raises(Circle, match="circle"):
        await server.restore()
    # Of two that have each other, none gets ready, and one at least ends.
    first = Server(one, tmp_path / "2", upstream=Upstream("http://127.0.0.1:1", ""))
    url = await first.open()
    second = Server(two, tmp_path / "3", upstream=Upstream(url, ""))
    first._source._upstream.url = await second.open()
    restoring = [asyncio.ensure_future(each.restore()) for each in (first, second)]
    done, rest = await asyncio.wait(restoring, return_when=asyncio.FIRST_COMPLETED)
    assert all(isinstance(one.exception(), Circle) for one in done)
    for one in rest:
        one.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def test_of_a_chained_server_topics_and_log_do_not_count():
    given = Configuration("desk", (Topic("a", "json"),), journal=JournalSettings(directory="j"))
    assert without_records(given) == Configuration("desk")
