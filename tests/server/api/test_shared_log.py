"""`/v1/log/…` of nodes over a log in a file: what they say, verify and trim."""

import asyncio

import pytest
from aiohttp import ClientSession

from sow.server.api.nodes import ServerNode
from sow.server.api.shared_log import SharedLogHandler
from sow.server.boot import log_reports
from sow.server.loop import log_checkpoint
from sow.server.loop.log_checkpoint import LogMark
from tests.ports import free_port
from tests.server.boot.log_nodes import WAIT_S, node_configuration, nodes_of
from tests.server.boot.servers import publish, records
from tests.shared_log.files import FileLog

pytestmark = [pytest.mark.edge, pytest.mark.usefixtures("steady")]


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(log_checkpoint, "KEPT_S", 0.02)
    monkeypatch.setattr(log_reports, "REPORT_S", 0.02)


class Pair:
    """Two nodes; the first leads, and both have five records."""

    def __init__(self, path, calls):
        self._path, self._calls = path, calls

    async def play(self, work):
        configs = [node_configuration(name, self._path, port=free_port()) for name in "ab"]
        self.shared = FileLog(self._path / "log")
        async with nodes_of(self.shared, *configs) as (self.first, self.second):
            await self.first.start()
            for number in range(5):
                await publish(self.first.server, number)
            await self.second.start()
            await self.second.until(lambda: len(records(self.second.server)) == 5)
            await work(self)

    async def ask(self, node, method, path):
        url = node.config.shared_log.advertise + path
        async with self._calls.request(method, url) as answer:
            return answer.status, await answer.json()

    async def reported(self, bookmark):
        """The status, once both nodes have a checkpoint of everything."""
        async with asyncio.timeout(WAIT_S):
            while True:
                status, found = await self.ask(self.first, "GET", "/v1/log/status")
                assert status == 200
                marks = [int(one["checkpoint"]["bookmark"]) for one in found["nodes"]]
                if len(marks) == 2 and min(marks) >= bookmark:
                    return found
                await asyncio.sleep(0.02)


def played(path, work):
    async def play():
        async with ClientSession() as calls:
            await Pair(path, calls).play(work)

    asyncio.run(play())


def test_a_node_says_who_leads_and_what_all_nodes_need_of_the_log(tmp_path):
    async def work(pair):
        found = await pair.reported(5)
        assert (found["engine"], found["role"], found["node"]) == ("nats", "primary", "a")
        assert (found["leader"], found["stale"], found["void"]) == ("a", False, 0)
        assert {one["url"] for one in found["nodes"]} == {
            one.config.shared_log.advertise for one in (pair.first, pair.second)
        }
        assert found["checkpoint"]["log"] == pair.first.server.runtime.journal.log_id
        _, other = await pair.ask(pair.second, "GET", "/v1/log/status")
        assert (other["role"], other["leader"], other["term"]) == ("follower", "a", found["term"])

    played(tmp_path, work)


def test_the_log_is_trimmed_as_far_as_every_node_has_a_checkpoint(tmp_path):
    async def work(pair):
        await pair.reported(5)
        status, refused = await pair.ask(pair.first, "POST", "/v1/log/trim?before=99")
        assert (status, refused["reason"]) == (400, "beyond the oldest checkpoint")
        assert "checkpoint" in refused["detail"]
        before = pair.shared._blocks[0].position
        status, found = await pair.ask(pair.first, "POST", "/v1/log/trim?before=4")
        assert (status, found["before"]) == (200, "4")
        assert pair.shared._blocks[0].position == found["position"] > before
        status, refused = await pair.ask(pair.second, "POST", "/v1/log/trim?before=4")
        assert (status, refused["reason"]) == (421, "not primary")
        status, refused = await pair.ask(pair.first, "POST", "/v1/log/trim?before=x")
        assert (status, refused["reason"]) == (400, "invalid bookmark")
        # Who starts from its checkpoint finds all that it needs.
        await pair.second.die()
        await publish(pair.first.server, 5)
        await pair.second.start()
        await pair.second.until(lambda: len(records(pair.second.server)) == 6)
        assert pair.second.member._driver._begins.position > 1

    played(tmp_path, work)


def test_a_node_that_says_nothing_holds_the_log_where_its_checkpoint_was(tmp_path):
    async def work(pair):
        await pair.reported(5)
        await pair.second.die()
        await publish(pair.first.server, 5)
        await pair.first.until(lambda: pair.first.member._keeper.kept.bookmark == 6)
        status, refused = await pair.ask(pair.first, "POST", "/v1/log/trim?before=7")
        assert (status, refused["reason"]) == (400, "beyond the oldest checkpoint")
        assert pair.second.config.shared_log.advertise in refused["detail"]

    played(tmp_path, work)


def test_who_leads_next_keeps_what_the_one_before_needs_and_knew_that_others_need(tmp_path):
    async def work(pair):
        await pair.reported(5)
        first, reports = pair.first.config.shared_log.advertise, pair.second.member.reports
        gone = ServerNode("http://gone", "follower", "2", None, 0, 7, first, 0, LogMark("2", 3))
        pair.first.server._nodes.note(gone)
        await pair.second.until(
            lambda: {one.url: one.checkpoint for one in reports.known}.get("http://gone")
        )
        await pair.first.die()
        await pair.second.until(lambda: not pair.second.follows)
        await publish(pair.second.server, 5)
        await pair.second.until(lambda: pair.second.member._keeper.kept.bookmark == 6)
        status, found = await pair.ask(pair.second, "GET", "/v1/log/status")
        marks = {one["url"]: one["checkpoint"]["bookmark"] for one in found["nodes"]}
        assert (status, marks[first], marks["http://gone"]) == (200, "5", "2")
        assert [one["role"] for one in found["nodes"]].count("primary") == 1
        status, refused = await pair.ask(pair.second, "POST", "/v1/log/trim?before=4")
        assert (status, refused["reason"]) == (400, "beyond the oldest checkpoint")
        assert "http://gone" in refused["detail"]

    played(tmp_path, work)


def test_the_log_is_read_by_one_at_a_time(tmp_path):
    async def work(pair):
        await pair.reported(5)
        shared, is_open = pair.first.member._shared, asyncio.Event()
        read = shared.read

        async def held(after):
            await is_open.wait()
            async for one in read(after):
                yield one

        shared.read = held
        first = asyncio.create_task(pair.ask(pair.first, "POST", "/v1/log/verify"))
        handler = pair.first.server._handlers[SharedLogHandler]
        await pair.first.until(lambda: handler._is_read)
        for path in ("/v1/log/verify", "/v1/log/trim?before=2"):
            status, refused = await pair.ask(pair.first, "POST", path)
            assert (status, refused["reason"]) == (503, "busy")
            assert "verified or trimmed already" in refused["detail"]
        is_open.set()
        assert (await first)[0] == 200
        status, _ = await pair.ask(pair.first, "POST", "/v1/log/trim?before=2")
        assert status == 200

    played(tmp_path, work)


def test_a_node_reads_the_log_again_and_finds_what_it_has_read(tmp_path):
    async def work(pair):
        await pair.reported(5)
        for node in (pair.first, pair.second):
            status, found = await pair.ask(node, "POST", "/v1/log/verify")
            assert (status, found["first"], found["equal"]) == (200, 1, True)
            assert found["groups"] >= 5
        status, found = await pair.ask(pair.first, "POST", "/v1/log/verify")
        assert [one["same"] for one in found["nodes"]] == [True, True]
        await pair.ask(pair.first, "POST", "/v1/log/trim?before=4")
        status, found = await pair.ask(pair.second, "POST", "/v1/log/verify")
        assert status == 200

    played(tmp_path, work)


def test_a_log_that_was_changed_behind_a_node_is_found(tmp_path):
    async def work(pair):
        await pair.reported(5)
        blocks = pair.shared._blocks
        changed = blocks[2]._replace(block=blocks[2].block[:-1] + b"?")
        blocks[2] = changed
        status, refused = await pair.ask(pair.first, "POST", "/v1/log/verify")
        assert (status, refused["reason"]) == (500, "log differs")

    played(tmp_path, work)


def test_records_that_differ_at_one_bookmark_are_found(tmp_path):
    async def work(pair):
        await pair.reported(5)
        engine = pair.second.server.engine
        topic = engine.topic("orders")
        topic.records.table.seqs[topic.records.table.slots["1"]] += 7
        engine.note_change(topic)
        async with asyncio.timeout(WAIT_S):
            while True:
                _, found = await pair.ask(pair.first, "POST", "/v1/log/verify")
                if not found["equal"]:
                    break
                await asyncio.sleep(0.02)
        assert [one["same"] for one in found["nodes"]] == [True, False]

    played(tmp_path, work)


def test_a_node_that_steps_down_is_followed_by_the_other(tmp_path):
    async def work(pair):
        status, found = await pair.ask(pair.first, "POST", "/v1/log/step-down")
        assert (status, found) == (200, {"node": "a"})
        await pair.second.until(lambda: not pair.second.follows)
        await pair.first.until(lambda: pair.first.follows)
        status, refused = await pair.ask(pair.first, "POST", "/v1/log/step-down")
        assert (status, refused["reason"]) == (421, "not primary")

    played(tmp_path, work)
