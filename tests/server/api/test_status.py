"""What a server says of itself, and to whom; and the bookmark that answers have."""

import asyncio
import logging
import os
from dataclasses import replace

import pytest

from sow.core.security_definitions import Allow
from sow.engine.recovery.redo import Progress
from sow.server.api.nodes import Nodes, ServerNode
from sow.server.api.status import LOGGED_EVERY_S, StartupProgress, StatusHandler
from sow.server.api.topics import TopicsHandler
from sow.server.boot.routes import RecordsHere
from sow.server.http.authn_middleware import AUTHN
from sow.server.http.preconditions import MOMENTS, Moments
from tests.server.stand_ins import (
    Anybody,
    Served,
    World,
    asking,
    authenticator_of,
    routes_to,
    stepped,
    turns,
)


class Place(Served):
    """The status of a world, whose answers have moments."""

    def __init__(self, world, **more):
        self.nodes = Nodes(lambda: 0)

        async def is_known(request):
            return await self.app[AUTHN].is_known(request)

        status = StatusHandler(
            world.runtime,
            world.engine,
            "http://here:1",
            is_known,
            self.nodes,
            None,
            RecordsHere("n"),
            lambda: 3,
            self.above,
        )
        topics = TopicsHandler(world.runtime, world.engine)
        self.known_above = []
        super().__init__(world, *routes_to(status, topics), **more)
        self.app[MOMENTS] = moments = Moments()
        moments.follow(world.runtime)
        self.app.on_response_prepare.append(moments.mark)

    async def above(self, _request):
        return self.known_above


@stepped
async def test_the_server_above_is_asked_for_what_is_not_known_here():
    async with Place(World()) as place:
        place.nodes.note(ServerNode("http://below", "chained", pid=2))
        place.known_above = [
            ServerNode("http://top", "primary", pid=1),
            ServerNode("http://here:1", "follower", "0", pid=os.getpid()),
            ServerNode("http://below", "chained", "stale", pid=2),
        ]
        nodes = (await place.get("/v1/status")).json["nodes"]
        assert [(one["url"], one["bookmark"]) for one in nodes] == [
            ("http://here:1", "0"), ("http://below", None), ("http://top", None),
        ]  # fmt: skip
        assert nodes[0]["sessions"] == 3


@stepped
async def test_nobody_reports_in_the_name_of_this_server():
    async with Place(World()) as place:
        place.nodes.note(ServerNode("http://here:1", "chained", "9", pid=os.getpid()))
        (own,) = (await place.get("/v1/status")).json["nodes"]
        assert (own["role"], own["bookmark"]) == ("primary", "0")


@stepped
async def test_it_says_what_it_is_for_to_everybody():
    authn = authenticator_of(asking(Allow(".*", ("read",))), lambda _by: Anybody())
    world = World()
    world.engine.adopt(replace(world.engine.configuration, environment="live", colour="red"))
    async with Place(world, authn=authn) as place:
        nobody = await place.get("/v1/status")
        assert nobody.json == {"name": "test", "environment": "live", "colour": "red"}


@stepped
async def test_it_says_what_it_is_and_how_far_it_is():
    async with Place(world := World()) as place:
        world.publish(b'{"id":1}', b'{"id":2}')
        answer = await place.get("/v1/status")
        found = answer.json
        (node,) = found.pop("nodes")
        assert len(found.pop("state_hash")) == 16
        assert found == {
            "name": "test",
            "environment": None,
            "colour": None,
            "role": "primary",
            "upstream": None,
            "log": world.journal.log_id,
            "bookmark": "2",
            "lag_ms": 0,
        }
        assert (node["url"], node["pid"]) == ("http://here:1", os.getpid())
        assert answer.headers["SOW-Bookmark"] == "2"


@stepped
async def test_without_credentials_it_says_only_what_it_is_called():
    authn = authenticator_of(asking(Allow(".*", ("read",))), lambda _by: Anybody())
    async with Place(World(), authn=authn) as place:
        nobody = await place.get("/v1/status")
        assert nobody.json == {"name": "test", "environment": None, "colour": None}
        somebody = await place.get("/v1/status", Authorization="Bearer ann")
        assert somebody.json["role"] == "primary"


@stepped
async def test_every_answer_names_the_newest_durable_bookmark_errors_too():
    async with Place(world := World()) as place:
        world.publish(b'{"id":1}')
        await world.runtime.durable()
        assert (await place.get("/v1/topics")).headers["SOW-Bookmark"] == "1"
        missing = await place.get("/v1/topics/nothing")
        assert (missing.status, missing.headers["SOW-Bookmark"]) == (404, "1")


@stepped
async def test_a_request_waits_for_the_bookmark_that_it_is_to_contain():
    async with Place(world := World()) as place:
        socket = await place.begin("GET", "/v1/topics?min_bookmark=2&wait=30")
        world.publish(b'{"id":1}')
        await world.runtime.durable()
        await turns(20)
        assert not socket.written
        log = world.journal.log_id
        both = asyncio.create_task(place.get(f"/v1/topics?min_bookmark={log}-2"))
        world.publish(b'{"id":2}')
        await world.runtime.durable()
        assert (await both).headers["SOW-Bookmark"] == "2"
        assert b"200 OK" in socket.written
        late = await place.get("/v1/topics?min_bookmark=3&wait=0")
        assert (late.status, late.json["reason"]) == (504, "not yet")
        assert not world.runtime.bookmark_waits._by_seq


@stepped
async def test_what_is_no_bookmark_of_this_log_is_refused():
    async with Place(World()) as place:
        for text, status, reason in (
            ("now", 400, "invalid bookmark"),
            ("-1", 400, "invalid bookmark"),
            ("0123456789abcdef-1", 409, "another log"),
        ):
            answer = await place.get(f"/v1/topics?min_bookmark={text}")
            assert (answer.status, answer.json["reason"]) == (status, reason)


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.WARNING, "sow")
    return lambda: [record.getMessage() for record in caplog.records]


@stepped
async def test_it_says_what_it_is_at():
    progress = Progress()
    watch = StartupProgress(progress)
    assert watch.public_status() == "replaying: opening files"
    progress.begin(1000)
    progress.put_back("orders", 250)
    assert watch.public_status() == "replaying: orders, 250 of 1000 records"
    await asyncio.sleep(3)
    assert watch.public_status() == "replaying: orders, 250 of 1000 records, about 9 s left"
    assert watch.left_s() == 9
    progress.settle("orders")
    assert watch.public_status() == "replaying: making indexes and copies of orders"
    assert watch.left_s() is None


@stepped
async def test_strangers_are_sent_no_topic_and_no_count(logged):
    progress = Progress()
    watch = StartupProgress(progress, public=False)
    assert watch.public_status() == "replaying"
    progress.begin(1000)
    progress.put_back("orders", 250)
    watch.begin("http://127.0.0.1:8080")
    await asyncio.sleep(LOGGED_EVERY_S)
    watch.end()
    assert watch.public_status() == "replaying, about 15 s left"
    assert "orders, 250 of 1000" in logged()[0], "the log is the operator's"
    progress.settle("orders")
    assert watch.public_status() == "replaying"


@stepped
async def test_nothing_is_guessed_before_something_is_done():
    progress = Progress()
    watch = StartupProgress(progress)
    progress.begin(1000)
    await asyncio.sleep(3)
    assert watch.left_s() is None


def test_a_start_that_takes_long_says_so_now_and_then(logged):
    @stepped
    async def go():
        progress = Progress()
        watch = StartupProgress(progress)
        watch.begin("http://here")
        progress.begin(10)
        progress.put_back("orders", 5)
        await asyncio.sleep(2.5 * LOGGED_EVERY_S)
        watch.end()
        assert watch.is_over
        await asyncio.sleep(2 * LOGGED_EVERY_S)

    go()
    assert len(logged()) == 2
    assert logged()[0] == (
        "replaying: orders, 5 of 10 records, about 5 s left; requests to http://here wait"
    )


def test_a_start_that_is_soon_over_says_nothing(logged):
    @stepped
    async def go():
        watch = StartupProgress(Progress())
        watch.begin("http://here")
        watch.end()
        await asyncio.sleep(2 * LOGGED_EVERY_S)

    go()
    assert logged() == []
