"""A stream of events: a snapshot or the log, then what comes, until somebody ends it."""

import asyncio
from dataclasses import replace

import pytest

from sow.server.http.route import Route
from sow.server.net.sse import STREAM_PARAMETERS, EventStreamHandler
from tests.server.stand_ins import ORDERS, Served, Socket, World, stepped, turns

PASSING = replace(ORDERS, name="passing", durability="transient")
STREAM = "/v1/topics/{topic}/stream"


class Place(Served):
    def __init__(self):
        world = World(ORDERS, PASSING)
        self.door = EventStreamHandler(world.runtime, world.executor)
        super().__init__(
            world, Route("GET", STREAM, "logon", self.door.handle, "", STREAM_PARAMETERS)
        )

    async def open(self, query="", topic="orders", **headers):
        return await self.begin("GET", f"/v1/topics/{topic}/stream{query}", headers=headers)

    async def publish(self, *bodies, topic="orders"):
        self.world.publish(*bodies, topic=topic)
        await self.world.runtime.durable()
        await turns()

    async def lose(self, socket):
        socket.protocol.connection_lost(None)
        await turns(10)

    @property
    def sessions(self):
        return list(self.world.executor.sessions)


def events(socket):
    """The kinds of the events that were written, in order."""
    return [
        line.removeprefix(b"event: ").removeprefix(b"event:").strip().decode()
        for line in socket.written.split(b"\n")
        if line.startswith(b"event:")
    ]


@stepped
async def test_a_bookmark_that_is_not_kept_is_refused_or_passed_over_as_is_said():
    async with Place() as place:
        await place.publish(b'{"id":1}')
        statuses = []
        for query in ("99", "99&bookmark_not_found=epoch", f"{'0' * 16}-1&bookmark_not_found=now"):
            socket = await place.open(f"?bookmark={query}")
            statuses.append(int(socket.written.split()[1]))
            assert events(socket) == (["p"] if statuses[-1] == 200 else [])
        assert statuses == [400, 200, 409]


@stepped
async def test_a_snapshot_comes_first_then_what_changes():
    async with Place() as place:
        await place.publish(b'{"id":1}')
        socket = await place.open("?oof=true")
        assert b"text/event-stream" in socket.written
        assert b"no-store" in socket.written
        assert events(socket) == ["group_begin", "sow", "group_end"]
        await place.publish(b'{"id":2}')
        assert events(socket)[3:] == ["p"]
        await place.lose(socket)
        assert place.sessions == [], "a stream that was left leaves nothing"


@stepped
async def test_options_that_are_ignored_are_named_in_a_header():
    async with Place() as place:
        socket = await place.open("?max_backlog=50&ack_conflation=1s&oof=true")
        assert b"SOW-Ignored: max_backlog, ack_conflation\r\n" in socket.written
        assert events(socket) == ["group_begin", "group_end"]
        await place.lose(socket)
        socket = await place.open()
        assert b"SOW-Ignored" not in socket.written
        await place.lose(socket)


@stepped
async def test_a_live_window_stays_in_order_and_begins_anew_for_who_comes_back():
    async with Place() as place:
        await place.publish(b'{"id":1}', b'{"id":2}')
        window = "?live=true&positions=true&top_n=1&order_by=/id%20DESC"
        for header in ({}, {"Last-Event-ID": "1"}):
            socket = await place.open(window, **header)
            assert events(socket) == ["group_begin", "sow", "group_end"]
            await place.lose(socket)
        socket = await place.open(window)
        await place.publish(b'{"id":3}')
        assert events(socket)[3:] == ["oof", "p", "turn_end"]
        assert b'"at":0' in socket.written
        await place.lose(socket)
        refused = await place.open("?live=true&order_by=/id")
        assert b"400" in refused.written.split(b"\r\n")[0]


@stepped
async def test_who_comes_back_gets_what_it_missed_where_the_log_has_it():
    async with Place() as place:
        for topic in ("orders", "passing"):
            await place.publish(b'{"id":1}', topic=topic)
            await place.publish(b'{"id":2}', topic=topic)
        header = {"Last-Event-ID": "1"}
        resumed = await place.open(**header)
        assert events(resumed) == ["p"]
        assert b'"id":2' in resumed.written
        fresh = await place.open("", "passing", **header)
        assert events(fresh)[0] == "group_begin", "a snapshot makes up for it"
        await place.lose(fresh)
        for query in ("?oof=true", "?delta=true", "?oof=true&as_of=2"):
            told = await place.open(query, "orders", **header)
            assert events(told) == ["p"]
            await place.lose(told)
        unknown = await place.open(**{"Last-Event-ID": "nonsense"})
        ahead = await place.open(**{"Last-Event-ID": f"1.{place.world.clock.now_us() + 1}"})
        for socket in (unknown, ahead):
            assert events(socket)[0] == "group_begin"
        for socket in (resumed, unknown, ahead):
            await place.lose(socket)


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/v1/topics/nope/stream", 404, "no topic"),
        ("/v1/topics/orders/stream?filter=/a%20%3E", 400, "position"),
        ("/v1/topics/orders/stream?bookmark=0&snapshot=true", 400, "not both"),
        ("/v1/topics/orders/stream?top=1", 400, "no parameter"),
        ("/v1/topics/orders/stream?replace=true", 400, "an option of commands over a WebSocket"),
    ],
)
@stepped
async def test_what_would_be_a_stream_of_one_error_is_a_problem(path, status, says):
    async with Place() as place:
        answer = await place.get(path)
        assert (answer.status, says in answer.json["detail"]) == (status, True)
        assert place.sessions == []


@stepped
async def test_a_stream_needs_chunks():
    async with Place() as place:
        watched = place.connections.supervise("192.0.2.7")
        socket = Socket(watched)
        watched.connection_made(socket)
        watched.data_received(b"GET /v1/topics/orders/stream HTTP/1.0\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(1)
        assert b"it needs HTTP/1.1" in socket.written
        watched.connection_lost(None)


@stepped
async def test_every_stream_ends_when_the_server_stops():
    async with Place() as place:
        sockets = [await place.open(), await place.open()]
        place.door.close()
        await asyncio.sleep(1)
        for socket in sockets:
            assert socket.written.endswith(b"0\r\n\r\n"), "ended, and not broken off"
            await place.lose(socket)
        assert place.sessions == []
