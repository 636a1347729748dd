"""What followers read and report; tests/edge/test_followers.py has whole servers."""

import asyncio
import json
from dataclasses import replace

import pytest

from sow.core.definitions import View
from sow.core.security_definitions import Allow
from sow.server.api.followers import FollowersHandler, _Feed, node_address
from sow.server.api.nodes import HEARD_S, REMEMBERED_S, Nodes, ServerNode
from sow.store.backup import BEAT_FRAME, FrameReader, beat_of
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
