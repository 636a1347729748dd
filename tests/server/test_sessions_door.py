"""Sessions over HTTP: listed, switched by a filter over them, and closed."""

from sow.encodings import LINES
from sow.security import Allow
from sow.server.doorman import Doorman
from sow.server.route import Route
from sow.server.sessions_door import SESSIONS_PARAMETERS, SessionsDoor
from tests.server.stand_ins import ORDERS, Anybody, Served, World, asking, stepped, turns


class Place(Served):
    """The door to the sessions of a world."""

    def __init__(self, doorman=None):
        world = World(ORDERS)
        door = SessionsDoor(world.driver, world.executor)
        super().__init__(
            world,
            Route("GET", "/v1/sessions", "logon", door.listed, ""),
            Route("POST", "/v1/sessions", "logon", door.change_some, "", SESSIONS_PARAMETERS),
            Route("POST", "/v1/sessions/{id}", "logon", door.change, ""),
            Route("DELETE", "/v1/sessions/{id}", "logon", door.end, ""),
            doorman=doorman,
        )


@stepped
async def test_sessions_are_switched_by_a_filter_over_them_and_ended_by_id():
    async with Place() as place:
        session = place.world.executor.sessions.open(LINES, place.world.clock.now_us())
        assert [one["id"] for one in (await place.get("/v1/sessions")).json] == [session.id]
        path = "/v1/sessions?filter=/subscriptions%20%3D%200"
        off = b'{"conflated":false}'
        assert (await place.ask("POST", path, off)).json == {"changed": [session.id]}
        assert not session.conflates
        assert (await place.ask("POST", path, b'{"conflated":1}')).status == 400
        assert (await place.ask("POST", "/v1/sessions", off)).status == 400
        refused = await place.ask("POST", "/v1/sessions?filter=SOW_KEY()%20%3D%20'1'", off)
        assert (refused.status, refused.json["position"]) == (400, 0)
        path = "/v1/sessions?filter=UNIX_TIMESTAMP()%20%3C%200"
        assert (await place.ask("POST", path, off)).json == {"changed": []}
        assert (await place.ask("DELETE", f"/v1/sessions/{session.id}")).status == 200
        assert session.ended is not None
        assert (await place.ask("DELETE", "/v1/sessions/none")).status == 404


@stepped
async def test_who_loses_his_rights_while_his_body_comes_changes_no_session():
    here = Doorman(asking(Allow(admin=True)), lambda _by: Anybody())
    async with Place(here) as place:
        session = place.world.executor.sessions.open(LINES, place.world.clock.now_us())
        body = b'{"conflated":false}'
        headers = {"Authorization": "Bearer olga", "Content-Length": len(body)}
        socket = await place.begin("POST", f"/v1/sessions/{session.id}", headers=headers)
        here.go_on_under(here.read(asking()))
        socket.protocol.data_received(body)
        await turns(20)
        assert socket.written.startswith(b"HTTP/1.1 503 ")
        assert session.conflates
        socket.protocol.connection_lost(None)
