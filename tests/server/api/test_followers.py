"""What followers read and report; tests/edge/test_followers.py has whole servers.

`/v1/log/…` of nodes over a log in a file: what they say, verify and trim.
"""

import asyncio
import json
from dataclasses import replace

import pytest
from aiohttp import ClientSession

from sow.core.definitions import View
from sow.core.security_definitions import Allow
from sow.server.api.followers import FollowersHandler, SharedLogHandler, _Feed, node_address
from sow.server.api.nodes import HEARD_S, REMEMBERED_S, Nodes, ServerNode
from sow.server.boot import log_copy
from sow.server.loop import log_checkpoint
from sow.server.loop.log_checkpoint import LogMark
from sow.store.backup import BEAT_FRAME, FrameReader, beat_of
from tests.ports import free_port
from tests.server.boot.log_nodes import WAIT_S, node_configuration, nodes_of
from tests.server.boot.servers import publish, records
from tests.server.stand_ins import (
    ORDERS,
    Anybody,
    Served,
    World,
    asking,
    authenticator_of,
    routes_to,
    stepped,
)
from tests.shared_log.files import FileLog

OTHER = replace(ORDERS, name="other")
TOTALS = View("totals", "json", ("orders",), ("COUNT(1) AS /n", "/desk"), ("/desk",))
REPORT = {"bookmark": "7", "state_hash": "0" * 16, "lag_ms": 3, "pid": 42}


class Place(Served):
    def __init__(self, world, **more):
        self.now_s = 0.0
        self.nodes = Nodes(lambda: self.now_s)
        self.followers = FollowersHandler(world.runtime, world.engine, self.nodes)
        super().__init__(world, *routes_to(self.followers), **more)

    async def report(self, body, **headers):
        body = json.dumps(body).encode()
        return await self.ask("PUT", "/v1/nodes/http%3A%2F%2Fone", body, headers)


@stepped
async def test_a_position_that_the_log_has_not_is_refused():
    async with Place(World()) as place:
        for text, status, reason in (
            ("now", 400, "invalid bookmark"),
            ("7", 400, "invalid bookmark"),
            ("0123456789abcdef-0", 409, "another log"),
        ):
            answer = await place.get(f"/v1/log/entries?from={text}")
            assert (answer.status, answer.json["reason"]) == (status, reason)


@stepped
async def test_what_is_no_flag_is_refused_before_the_answer_begins():
    async with Place(World()) as place:
        answer = await place.get("/v1/log/entries?windows=2")
        assert (answer.status, answer.json["reason"]) == (400, "bad request")


@stepped
async def test_it_is_for_those_who_may_read_everything():
    authn = authenticator_of(asking(Allow("orders", ("read",))), lambda _by: Anybody())
    async with Place(World(), authn=authn) as place:
        headers = {"Authorization": "Bearer ann"}
        assert (await place.ask("GET", "/v1/log/entries", headers=headers)).status == 403
        assert (await place.report(REPORT, **headers)).status == 403


@stepped
async def test_nodes_are_known_as_long_as_they_are_heard():
    async with Place(World()) as place:
        assert (await place.report(REPORT)).json["bookmark"] == "7"
        node = ServerNode("http://one", "follower", "7", "0" * 16, 3, 42)
        assert place.nodes.all() == [node]
        place.now_s = HEARD_S + 1
        assert place.nodes.all() == [ServerNode("http://one", "follower")]
        place.now_s = REMEMBERED_S + 1
        assert place.nodes.all() == []
        assert (await place.report({"bookmark": 7})).status == 400


CHAINED = {"bookmark": None, "state_hash": None, "lag_ms": 0, "pid": 7, "role": "chained",
           "upstream": "http://here", "sessions": 12}  # fmt: skip


@stepped
async def test_what_a_node_needs_of_a_shared_log_is_said_and_shown():
    async with Place(World()) as place:
        mark = {"bookmark": "5", "position": 6}
        answer = await place.report({**REPORT, "checkpoint": mark})
        assert (answer.status, answer.json["checkpoint"]) == (200, mark)
        assert place.nodes.all()[0].checkpoint.position == 6


@stepped
async def test_a_chained_server_reports_and_a_follower_those_below_it():
    async with Place(World()) as place:
        answer = await place.report({**REPORT, "below": [{"url": "http://two", **CHAINED}]})
        assert answer.json["url"] == "http://one"
        two = ServerNode("http://two", "chained", None, None, 0, 7, "http://here", 12)
        assert place.nodes.all()[0] == two
        answer = await place.report({**REPORT, "below": 1_001 * [{"url": "u", **CHAINED}]})
        assert answer.status == 400
        nested = {"url": "u", **CHAINED, "below": []}
        assert (await place.report({**REPORT, "below": [nested]})).status == 400


@stepped
async def test_who_acts_for_others_may_report_a_chained_server_and_nothing_else():
    authn = authenticator_of(asking(Allow(impersonate=True)), lambda _by: Anybody())
    async with Place(World(), authn=authn) as place:
        headers = {"Authorization": "Bearer ann"}
        assert (await place.report(CHAINED, **headers)).status == 200
        assert (await place.report(REPORT, **headers)).status == 403
        below = {**CHAINED, "below": [{"url": "http://two", **CHAINED}]}
        assert (await place.report(below, **headers)).status == 403
        # It has no vote on what nodes of a log have, and takes none of what they need away.
        more = {"state_hash": "0" * 16, "checkpoint": {"bookmark": "9", "position": 9}}
        assert (await place.report({**CHAINED, **more}, **headers)).status == 200
        (found,) = place.nodes.all()
        assert (found.url, found.state_hash, found.checkpoint) == ("http://one", None, None)


@pytest.mark.parametrize(
    ("url", "caller", "expected"),
    [
        ("http://0.0.0.0:8080", "10.0.0.7", "http://10.0.0.7:8080"),
        ("https://[::]:8080", "fd00::7", "https://[fd00::7]:8080"),
        ("http://10.0.0.8:8080", "10.0.0.7", "http://10.0.0.8:8080"),
        ("http://one:8080", "10.0.0.7", "http://one:8080"),
        ("http://0.0.0.0:8080", "", "http://0.0.0.0:8080"),
        ("http://0.0.0.0:x", "10.0.0.7", "http://0.0.0.0:x"),
        ("http://[", "10.0.0.7", "http://["),
        ("", "10.0.0.7", ""),
    ],
)
def test_a_node_that_listens_everywhere_is_where_it_calls_from(url, caller, expected):
    assert node_address(url, caller) == expected


@pytest.mark.parametrize(
    "more",
    [
        {"lag_ms": 10**30},
        {"lag_ms": -1},
        {"pid": 2**63},
        {"bookmark": "x" * 10_000},
        {"bookmark": "-1"},
        {"state_hash": "ü"},
        {"more": 1},
    ],
)
@stepped
async def test_nonsense_of_a_node_is_refused_and_spoils_nothing(more):
    async with Place(World()) as place:
        answer = await place.report({**REPORT, **more})
        assert (answer.status, answer.json["reason"]) == (400, "bad request")
        assert place.nodes.all() == []


async def read_until_it_stops(place, socket):
    """The head of the answer, and its frames."""
    found = []
    reader = FrameReader(lambda kind, content: found.append((kind, content)))
    place.followers.close()
    while not socket.closed:
        socket.take()
        await asyncio.sleep(0.01)
    head, _, body = socket.written.partition(b"\r\n\r\n")
    while body:
        size, _, body = body.partition(b"\r\n")
        reader.feed(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    return head, found


@stepped
async def test_what_is_durable_leaves_with_beats_until_the_server_stops():
    world = World()
    async with Place(world) as place:
        world.engine.configurations.note(is_start=True)
        world.publish(b'{"id":1}')
        await world.runtime.durable()
        socket = await place.begin("GET", "/v1/log/entries?from=0&beat=1&node=one")
        await asyncio.sleep(0.1)
        head, found = await read_until_it_stops(place, socket)
        assert b"SOW-Log: " + world.journal.log_id.encode() in head
        kinds = [kind for kind, _ in found]
        assert kinds.index(b"a") < kinds.index(b"b") < kinds.index(b"t")
        assert place.nodes.positions() == {"one": 1}


@stepped
async def test_a_publish_that_no_request_holds_back_leaves_with_its_beat():
    """A follower with views waits for the end of a turn, for a second if no beat says it."""
    world = World(ORDERS, OTHER, TOTALS)

    def publishing():
        world.publish(b'{"id":1}', topic="other")
        yield
        world.publish(b'{"id":2}', topic="other")

    def beat():
        return _Feed(world.runtime, world.engine, world.engine.seq)._beat()

    async with Place(world):
        world.publish(b'{"id":1}')
        await world.runtime.durable()
        assert (beat().seq, beat().time_us) == (1, world.clock.now_us())
        request = world.engine.requests.together(publishing())
        next(request)
        world.publish(b'{"id":2}')
        world.runtime.wake()
        await world.runtime.durable()
        assert (beat().seq, beat().time_us) == (3, world.clock.now_us())
        for _ in request:
            pass


@stepped
async def test_a_beat_ends_no_turn_of_views_that_requests_hold_back():
    world = World(ORDERS, TOTALS)

    def publishing():
        world.publish(b'{"id":2}')
        yield
        yield
        world.publish(b'{"id":3}')

    async with Place(world) as place:
        world.publish(b'{"id":1}')
        await world.runtime.durable()
        request = world.engine.requests.together(publishing())
        next(request)
        world.runtime.wake()
        await world.runtime.durable()
        socket = await place.begin("GET", "/v1/log/entries?from=0&beat=1&node=one")
        await asyncio.sleep(0.1)
        for _ in request:
            pass
        world.runtime.wake()
        await world.runtime.durable()
        await asyncio.sleep(0.1)
        _, found = await read_until_it_stops(place, socket)
        beats = [beat_of(content).seq for kind, content in found if kind == BEAT_FRAME]
        assert beats == sorted(beats)
        assert {*beats} == {1, 3}, "its changes would be shown one by one"


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(log_checkpoint, "KEPT_S", 0.02)
    monkeypatch.setattr(log_copy, "REPORT_S", 0.02)


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


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
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


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
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


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
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


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
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


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
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


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
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


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
def test_a_log_that_was_changed_behind_a_node_is_found(tmp_path):
    async def work(pair):
        await pair.reported(5)
        blocks = pair.shared._blocks
        changed = blocks[2]._replace(block=blocks[2].block[:-1] + b"?")
        blocks[2] = changed
        status, refused = await pair.ask(pair.first, "POST", "/v1/log/verify")
        assert (status, refused["reason"]) == (500, "log differs")

    played(tmp_path, work)


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
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


@pytest.mark.edge
@pytest.mark.usefixtures("steady", "often")
def test_a_node_that_steps_down_is_followed_by_the_other(tmp_path):
    async def work(pair):
        status, found = await pair.ask(pair.first, "POST", "/v1/log/step-down")
        assert (status, found) == (200, {"node": "a"})
        await pair.second.until(lambda: not pair.second.follows)
        await pair.first.until(lambda: pair.first.follows)
        status, refused = await pair.ask(pair.first, "POST", "/v1/log/step-down")
        assert (status, refused["reason"]) == (421, "not primary")

    played(tmp_path, work)
