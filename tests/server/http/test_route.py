"""One address: who is let in to it, and with which parameters."""

import json

import pytest
from aiohttp import web

from sow.errors import ClientError
from sow.protocol.commands import Options
from sow.server.api.records import QUERY_PARAMETERS, RecordsHandler
from sow.server.api.snapshots import AsOfQueries, SnapshotHandler
from sow.server.http.route import (
    READ_METHODS,
    WEBSOCKET,
    Route,
    allowed,
    read_count,
    read_flag,
    read_options,
    read_seconds,
    with_heads,
)
from sow.server.net.session_writer import STREAM_PARAMETERS, EventStreamHandler
from tests.server.stand_ins import ORDERS, Served, World, stepped


@stepped
async def test_a_parameter_that_the_route_does_not_name_reaches_no_handler():
    async def handler(_request):
        raise AssertionError("reached")

    for method in READ_METHODS:
        route = Route("GET", "/x", "logon", handler, "", ("a",))
        async with Served(World(), route) as place:
            assert (await place.ask(method, "/x?c=1")).status == 400


RECORDS = "/v1/topics/{topic}/records"


async def handler(request):
    return web.Response(text="seen", headers={"SOW-Matches": request.query.get("a", "0")})


TABLE = [
    Route("GET", "/x", "logon", handler, "", ("a",)),
    Route("PUT", "/x", "logon", handler, ""),
    Route("POST", "/y", "logon", handler, ""),
    Route("GET", WEBSOCKET, "nothing", handler, ""),
]


def test_all_that_can_be_got_has_a_head_but_the_websocket():
    found = [(route.method, route.path) for route in with_heads(TABLE)]
    assert [one for one in found if one[0] == "HEAD"] == [("HEAD", "/x")]
    assert allowed(TABLE) == {
        "/x": "GET, HEAD, OPTIONS, PUT",
        "/y": "OPTIONS, POST",
        WEBSOCKET: "GET, OPTIONS",
    }


@stepped
async def test_a_head_is_the_answer_without_its_body_and_refused_like_it():
    async with Served(World(), *TABLE) as place:
        head, answer = await place.ask("HEAD", "/x?a=7"), await place.get("/x?a=7")
        assert (head.status, head.body, answer.body) == (200, b"", b"seen")
        for name in ("Content-Length", "Content-Type", "SOW-Matches"):
            assert head.headers[name] == answer.headers[name]
        assert (await place.ask("HEAD", "/x?wrong=1")).status == 400
        assert (await place.ask("HEAD", "/y")).status == 405


@pytest.mark.parametrize("path", ["/x", "/x?wrong=1", "/y", WEBSOCKET])
@stepped
async def test_options_says_the_methods_of_an_address_and_asks_nothing(path):
    async with Served(World(), *TABLE) as place:
        answer = await place.ask("OPTIONS", path)
        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers["Allow"] == allowed(TABLE)[path.partition("?")[0]]


@stepped
async def test_another_method_is_sent_those_that_there_are():
    async with Served(World(), *TABLE) as place:
        refused = await place.ask("DELETE", "/x")
        assert (refused.status, refused.headers["Allow"]) == (405, "GET,HEAD,OPTIONS,PUT")
        assert (await place.ask("OPTIONS", "/nowhere")).status == 404


@stepped
async def test_the_head_of_an_answer_says_its_length_and_holds_nothing():
    world = World(ORDERS)
    past = AsOfQueries(world.runtime, world.executor.subscriptions.past)
    snapshots = SnapshotHandler(world.runtime, world.engine, past)
    door = RecordsHandler(world.runtime, world.executor, past, snapshots)
    route = Route("GET", RECORDS, "logon", door.query, "", QUERY_PARAMETERS)
    async with Served(world, route) as place:
        world.publish(*(json.dumps({"id": at}).encode() for at in range(1000)))
        path = "/v1/topics/orders/records"
        whole = await place.get(path)
        head = await place.ask("HEAD", path)
        assert (head.status, head.body) == (200, b"")
        for name in ("Content-Type", "Content-Length", "ETag", "SOW-Matches", "SOW-Bookmark"):
            assert head.headers[name] == whole.headers[name]
        assert place.requests.answers.used == 0


@stepped
async def test_the_head_of_a_stream_ends_and_follows_nothing():
    world = World(ORDERS)
    door = EventStreamHandler(world.runtime, world.executor)
    route = Route("GET", "/v1/topics/{topic}/stream", "logon", door.handle, "", STREAM_PARAMETERS)
    async with Served(world, route) as place:
        head = await place.ask("HEAD", "/v1/topics/orders/stream")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["Content-Type"].startswith("text/event-stream")
        assert (len(world.executor.sessions), [*world.engine.topic("orders").router.feeds()]) == (
            0,
            [],
        )
        assert (await place.ask("HEAD", "/v1/topics/none/stream")).status == 404


def test_options_of_a_query_are_read_as_those_of_a_command():
    requested = {"top_n": "3", "skip_n": "0", "select": "[+/id,-/px]", "filter": "1=1"}
    assert read_options(requested, "query") == Options(
        non_regex_topic=True, top_n=3, skip_n=0, select=("+/id", "-/px")
    )


def test_options_of_a_stream_are_flags_that_say_true_or_false_too():
    requested = {
        "oof": "true",
        "no_empties": "false",
        "conflation": "1s",
        "conflation_key": "/a,/b",
    }
    assert read_options(requested, "stream") == Options(
        non_regex_topic=True, oof=True, conflation=1_000_000, conflation_key=("/a", "/b")
    )


def test_an_option_that_is_ignored_in_a_command_is_ignored_of_a_stream():
    assert read_options({"max_backlog": "x"}, "stream").ignored == ("max_backlog",)


def test_nothing_requested_is_nothing_but_a_literal_name():
    assert read_options({}, "stream") == Options(non_regex_topic=True)


@pytest.mark.parametrize(
    ("request_", "requested"),
    [
        ("query", {"top_n": "x"}),
        ("query", {"skip_n": "-1"}),
        ("stream", {"oof": "yes"}),
        ("stream", {"conflation": "5"}),
    ],
)
def test_an_option_that_cannot_be_read_is_named(request_, requested):
    (name,) = requested
    with pytest.raises(ClientError, match=name):
        read_options(requested, request_)


@pytest.mark.parametrize("count", ["-1", "x", ""])
def test_a_count_is_refused_as_every_count_over_http(count):
    with pytest.raises(ClientError) as caught:
        read_options({"top_n": count}, "query")
    assert caught.value.reason == "bad request"
    assert str(caught.value) == f"top_n={count} must be a whole number, 0 or more"


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (read_flag, "true", True),
        (read_flag, "false", False),
        (read_count, "10", 10),
        (read_seconds, "1.5", 1.5),
    ],
)
def test_a_parameter_is_read(read, text, value):
    assert read({"name": text}, "name") == value
    assert not read({}, "name")


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_flag, "1"),
        (read_count, "-1"),
        (read_count, "٣"),
        (read_count, "1" * 10),
        (read_seconds, "inf"),
        (read_seconds, "-1"),
        (read_seconds, "soon"),
    ],
)
def test_what_cannot_be_read_is_named(read, text):
    with pytest.raises(ClientError, match="name="):
        read({"name": text}, "name")
