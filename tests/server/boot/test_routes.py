"""The table of addresses: what is let in by it, and what is made from it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from aiohttp import web

from sow.core.definitions import Configuration
from sow.core.quota import Quota
from sow.core.security_definitions import Allow, Authentication, Role, Security
from sow.engine.recovery.redo import Progress
from sow.protocol.commands import COMMANDS
from sow.server.api.health import HealthHandler
from sow.server.boot.routes import WEBSOCKET, Route, description, open_handlers, routes
from sow.server.http.connection_limits import ConnectionLimiter
from sow.server.http.route import with_heads
from sow.server.http.startup_barrier import ReadinessGate
from sow.server.loop.startup_progress import StartupProgress
from sow.store.staging import Staging
from tests.server.stand_ins import Anybody, Served, World, authenticator_of, stepped


def table_of(world, directory):
    doors = open_handlers(
        world.driver,
        world.executor,
        lambda _loss: [],
        Staging(directory, 0),
        SimpleNamespace(),
        authenticator_of(Security(), NotImplemented),
    )
    crowd = ConnectionLimiter(lambda: Configuration("test", ()), 100)
    status = HealthHandler(StartupProgress(Progress()), crowd, Quota(lambda: 1))
    status.follow(world.driver, world.executor)
    gate = ReadinessGate(lambda: "replaying")
    gate.open(doors)
    return routes(status, gate)


@pytest.fixture
def place(tmp_path):
    """Makes all routes of a world, served."""
    return lambda world: Served(world, *table_of(world, tmp_path / "staging"))


@stepped
async def test_every_address_stands_once_and_in_the_description(tmp_path):
    world = World()
    table = table_of(world, tmp_path)
    assert len({(route.method, route.path) for route in table}) == len(table)
    described = description(table)
    assert {
        (method.upper(), path) for path, found in described["paths"].items() for method in found
    } == {(route.method, route.path) for route in table}
    assert set(described["paths"][WEBSOCKET]["get"]["x-commands"]) == set(COMMANDS)
    await world.driver.close()


@stepped
async def test_a_parameter_is_described_by_where_it_stands_and_what_it_holds(tmp_path):
    world = World()
    paths = description(table_of(world, tmp_path))["paths"]
    found = {one["name"]: one for one in paths["/v1/topics/{topic}/records"]["get"]["parameters"]}
    assert (found["topic"]["in"], found["topic"]["required"]) == ("path", True)
    assert (found["filter"]["in"], found["filter"]["required"]) == ("query", False)
    assert found["top_n"]["schema"] == {"type": "integer"}
    await world.driver.close()


@stepped
async def test_a_parameter_that_is_not_in_the_table_reaches_no_handler():
    async def handler(_request):
        raise AssertionError("reached")

    async with Served(World(), Route("GET", "/x", "logon", handler, "", ("a",), ("b",))) as place:
        assert (await place.get("/x?c=1")).status == 400
        assert "not available yet" in (await place.get("/x?b=1")).json["detail"]


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
    "/v1/status",
    "/console/{file}",
    "/console/{folder}/{file}",
    "/sow.js",
    "/sow.d.ts",
}


@stepped
async def test_before_the_doors_are_open_only_what_needs_no_record_is_answered(tmp_path):
    world = World()
    crowd = ConnectionLimiter(lambda: Configuration("test", ()), 100)
    gate = ReadinessGate(lambda: "replaying")
    status = HealthHandler(StartupProgress(Progress()), crowd, Quota(lambda: 1))
    async with Served(world, *routes(status, gate)) as served:
        for route in with_heads(routes(status, gate)):
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
