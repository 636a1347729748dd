"""The table of addresses: what is let in by it, and what is made from it.

Where the records of a server are: the choice between its engine and an upstream server.
"""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest
from aiohttp import web

from sow.core.definitions import Configuration, JournalSettings, Topic
from sow.core.quota import Quota
from sow.core.security_definitions import Allow, Authentication, Role, Security
from sow.engine.recovery.redo import Progress
from sow.errors import Busy, NotReached, Replaying
from sow.protocol.commands import COMMANDS
from sow.server.api.followers import FollowersHandler, SharedLogHandler
from sow.server.api.nodes import Nodes, Upstream
from sow.server.api.static_files import description
from sow.server.api.status import HealthHandler, StartupProgress, StatusHandler
from sow.server.boot.app import Server
from sow.server.boot.routes import (
    RELEASED_AT_ONCE,
    TABLE,
    WAIT_S_MAX,
    WAITING_MAX,
    ReadinessGate,
    RecordsHere,
    RecordsUpstream,
    open_handlers,
    routes,
    without_records,
)
from sow.server.chained.upstream import Circle, UpstreamServer
from sow.server.http.connections import ConnectionLimiter
from sow.server.http.preconditions import MOMENTS
from sow.server.http.route import WEBSOCKET, Route, admit, with_heads
from sow.server.http.server_log import LastError
from sow.store.staging import Staging
from tests.edge.serving import configuration
from tests.server.chained.chains import hurry
from tests.server.stand_ins import (
    Anybody,
    Served,
    World,
    authenticator_of,
    request_of,
    stepped,
    turns,
)


def status_of():
    crowd = ConnectionLimiter(lambda: Configuration("test", ()), 100)
    replay = StartupProgress(Progress())
    return HealthHandler(
        replay,
        crowd,
        Quota(lambda: 1),
        dict,
        LastError(),
        NotImplemented,
        RecordsHere("n"),
        Nodes(lambda: 0.0),
    )


def table_of(world, directory):
    nodes = Nodes(lambda: 0)
    status_of_server = StatusHandler(
        world.runtime,
        world.engine,
        "http://here",
        NotImplemented,
        nodes,
        None,
        RecordsHere("n"),
    )
    handlers = open_handlers(
        world.runtime,
        world.executor,
        Staging(directory, 0),
        authenticator_of(Security(), NotImplemented),
        SimpleNamespace(),
        status_of_server,
        FollowersHandler(world.runtime, world.engine, nodes),
        SharedLogHandler(world.runtime, None, nodes, status_of_server),
    )
    status = status_of()
    status.follow(world.runtime, world.executor, lambda: None)
    gate = ReadinessGate(lambda: "replaying")
    gate.open(handlers)
    return routes(gate, status)


@pytest.fixture
def place(tmp_path):
    """Makes all routes of a world, served."""
    return lambda world: Served(world, *table_of(world, tmp_path / "staging"))


@stepped
async def test_every_address_stands_once_and_in_the_description(tmp_path):
    world = World()
    table = table_of(world, tmp_path)
    assert [route[:2] for route in table] == [route[:2] for route in TABLE]
    assert len({(route.method, route.path) for route in table}) == len(table)
    described = description(table)
    assert {
        (method.upper(), path) for path, found in described["paths"].items() for method in found
    } == {(route.method, route.path) for route in table}
    assert set(described["paths"][WEBSOCKET]["get"]["x-commands"]) == set(COMMANDS)
    await world.runtime.close()


@stepped
async def test_a_parameter_is_described_by_where_it_stands_and_what_it_holds(tmp_path):
    world = World()
    paths = description(table_of(world, tmp_path))["paths"]
    found = {one["name"]: one for one in paths["/v1/topics/{topic}/records"]["get"]["parameters"]}
    assert (found["topic"]["in"], found["topic"]["required"]) == ("path", True)
    assert (found["filter"]["in"], found["filter"]["required"]) == ("query", False)
    assert found["top_n"]["schema"] == {"type": "integer"}
    await world.runtime.close()


@stepped
async def test_a_parameter_that_is_not_in_the_table_reaches_no_handler():
    async def handler(_request):
        raise AssertionError("reached")

    async with Served(World(), Route("GET", "/x", "logon", handler, "", ("a",))) as place:
        assert (await place.get("/x?c=1")).status == 400


ROLES = (Role("desk", ("*",), (Allow("orders", read=True),)),)
ASKS = Security(authentication=Authentication(tokens_file="tokens"), roles=ROLES)


@pytest.mark.parametrize(
    ("method", "later", "status"),
    [
        ("GET", ASKS, 200),
        ("GET", replace(ASKS, roles=()), 503),
        ("HEAD", replace(ASKS, roles=()), 503),
        ("POST", replace(ASKS, roles=()), 200),
    ],
)
@stepped
async def test_an_answer_that_was_found_by_rights_of_before_is_not_given(method, later, status):
    here = authenticator_of(ASKS, lambda _by: Anybody())

    async def handler(_request):
        # While it waits for its turn, or for the disk.
        here.swap_security(here.read(later))
        return web.Response(body=b"rows")

    async with Served(World(), Route(method, "/x", "logon", handler, ""), authn=here) as place:
        answer = await place.ask(method, "/x", headers={"Authorization": "Bearer ann"})
        assert (answer.status, answer.body == b"rows") == (status, status == 200)


AT_ONCE = {"/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/functions", "/"} | {
    "/console/{file}",
    "/console/{folder}/{file}",
    "/sow.js",
    "/sow.d.ts",
}


@stepped
async def test_before_the_doors_are_open_only_what_needs_no_record_is_answered(tmp_path):
    world = World()
    gate, status = ReadinessGate(lambda: "replaying"), status_of()
    async with Served(world, *routes(gate, status)) as served:
        for route in with_heads(routes(gate, status)):
            path, known = route.path.replace("{", "").replace("}", ""), gate.waiting
            socket = await served.begin(route.method, path)
            assert (gate.waiting == known) == (route.path in AT_ONCE), route
            assert bool(socket.written) == (route.path in AT_ONCE), route
        assert (await served.get("/v1/topics?planted=1")).status == 400, "no wait for a mistake"
        gate.close("the server stops")


@stepped
async def test_the_pages_of_the_table_itself_answer(place):
    async with place(World()) as served:
        assert (await served.get("/openapi.json")).json["openapi"] == "3.1.0"
        assert b"sow_bookmark_total" in (await served.get("/metrics")).body
        assert b"<title>SOW</title>" in (await served.get("/")).body


DOORS = "the doors"


def readiness_gate():
    return ReadinessGate(lambda: "replaying: orders, 1 of 2 records")


async def waiting(place, count):
    tasks = [asyncio.ensure_future(place.handlers()) for _ in range(count)]
    await turns()
    assert place.waiting == count
    return tasks


@stepped
async def test_who_comes_early_waits_and_who_comes_later_does_not():
    place = readiness_gate()
    (early,) = await waiting(place, 1)
    assert not early.done()
    place.open(DOORS)
    assert await early == DOORS
    assert await place.handlers() == DOORS
    assert place.waiting == 0


@stepped
async def test_many_are_let_in_some_in_each_round_and_in_their_order():
    place, came = readiness_gate(), []

    async def come(number):
        await place.handlers()
        came.append(number)

    tasks = [asyncio.ensure_future(come(number)) for number in range(3 * RELEASED_AT_ONCE)]
    await turns()
    place.open(DOORS)
    await turns(2)
    assert 0 < len(came) < len(tasks)
    await asyncio.gather(*tasks)
    assert came == list(range(len(tasks)))


@stepped
async def test_who_has_waited_for_long_is_sent_how_far_it_is():
    place, loop = readiness_gate(), asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(Replaying, match="replaying: orders, 1 of 2 records") as caught:
        await place.handlers()
    assert loop.time() - began_s == pytest.approx(WAIT_S_MAX, abs=0.1)
    assert (caught.value.status, caught.value.reason) == (503, "replaying")
    assert caught.value.retry_after_s > 0
    assert place.waiting == 0


@stepped
async def test_one_of_too_many_is_sent_at_once():
    place = readiness_gate()
    tasks = await waiting(place, WAITING_MAX)
    with pytest.raises(Replaying, match="1,000 requests wait already"):
        await place.handlers()
    tasks.pop().cancel()
    await turns()
    late = asyncio.ensure_future(place.handlers())
    await turns()
    place.open(DOORS)
    assert set(await asyncio.gather(late, *tasks)) == {DOORS}


@stepped
async def test_whose_client_has_gone_waits_no_more():
    place = readiness_gate()
    (task,) = await waiting(place, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert place.waiting == 0
    place.open(DOORS)
    await turns()


@stepped
async def test_when_the_server_stops_before_all_are_sent_why():
    place = readiness_gate()
    (early,) = await waiting(place, 1)
    place.close("the disk is gone")
    place.close("the server stops")
    for asking in (early, place.handlers()):
        with pytest.raises(Busy, match="the disk is gone"):
            await asking


@stepped
async def test_when_the_server_stops_later_requests_under_way_still_find_their_doors():
    place = readiness_gate()
    place.open(DOORS)
    place.close("the server stops")
    assert await place.handlers() == DOORS


@stepped
async def test_who_has_waited_for_the_start_waits_for_a_moment_as_well():
    """A follower that has started may be behind what a client has seen elsewhere."""
    world, place = World(), readiness_gate()
    early, late = (
        request_of("GET", f"/v1/topics?min_bookmark={number}&wait=1") for number in (2, 3)
    )
    for one in (early, late):
        admit(one, ("min_bookmark", "wait"))
    waits = asyncio.ensure_future(place.handlers(early))
    await turns()
    early.app[MOMENTS].follow(world.runtime)
    place.open(DOORS)
    await turns()
    assert not waits.done()
    world.publish(b'{"id":1}', b'{"id":2}')
    await world.runtime.durable()
    assert await waits == DOORS
    other = readiness_gate()
    waits = asyncio.ensure_future(other.handlers(late))
    await turns()
    late.app[MOMENTS].follow(world.runtime)
    other.open(DOORS)
    with pytest.raises(NotReached, match="bookmark 3 is not reached"):
        await waits
    await world.runtime.close()


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
