"""Sessions over HTTP: listed, switched by a filter over them, and closed."""

from sow.core.security_definitions import Allow, User
from sow.protocol.replies import LINES, timestamp
from sow.protocol.wire import read_frame
from sow.server.api.sessions import SessionsHandler, describe_session
from tests.server.stand_ins import (
    ORDERS,
    SECOND,
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
    """The door to the sessions of a world."""

    def __init__(self, authn=None):
        world = World(ORDERS)
        door = SessionsHandler(world.runtime, world.executor)
        super().__init__(
            world,
            *routes_to(door),
            authn=authn,
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
async def test_whose_a_session_is_is_sent_to_its_user_and_to_who_administers():
    here = authenticator_of(asking(Allow(topic=".*", read=True)), lambda _by: Anybody())
    async with Place(here) as place:
        executor, now_us = place.world.executor, place.world.clock.now_us()
        for user, address in (("ann", "192.0.2.7"), ("ben", "2001:db8::8")):
            rights = here.role_set.rights(User(user))
            executor.sessions.open(LINES, now_us, rights, address=address)
        gone = executor.sessions.open(LINES, now_us, here.role_set.rights(User("ann")))
        gone.address = "192.0.2.9"
        executor.sessions.close(gone)

        async def seen(user, query=""):
            headers = {"Authorization": f"Bearer {user}"}
            found = (await place.get(f"/v1/sessions{query}", **headers)).json
            assert all(one["since"] == timestamp(now_us) for one in found)
            return [(one["user"], one["address"]) for one in found]

        assert await seen("ann") == [("ann", "192.0.2.7")]
        assert await seen("ann", "?closed=true") == [("ann", "192.0.2.9")]
        assert await seen("ben", "?closed=true") == []
        here.swap_security(here.read(asking(Allow(admin=True))))
        assert await seen("olga") == [("ann", "192.0.2.7"), ("ben", "2001:db8::8")]


@stepped
async def test_who_loses_his_rights_while_his_body_comes_changes_no_session():
    here = authenticator_of(asking(Allow(admin=True)), lambda _by: Anybody())
    async with Place(here) as place:
        session = place.world.executor.sessions.open(LINES, place.world.clock.now_us())
        body = b'{"conflated":false}'
        headers = {"Authorization": "Bearer olga", "Content-Length": len(body)}
        socket = await place.begin("POST", f"/v1/sessions/{session.id}", headers=headers)
        here.swap_security(here.read(asking()))
        socket.protocol.data_received(body)
        await turns(20)
        assert socket.written.startswith(b"HTTP/1.1 503 ")
        assert session.conflates
        socket.protocol.connection_lost(None)


@stepped
async def test_a_session_says_what_waits_for_it_and_for_how_long():
    world = World()
    since = timestamp(world.clock.now_us())
    session = world.executor.sessions.open(LINES, world.clock.now_us(), address="192.0.2.7")
    lines = b'{"c":"logon","cid":"1","client":"me"}\n{"c":"subscribe","t":"orders"}'
    world.executor.execute_all(session, list(read_frame(lines)), world.clock.now_us())
    world.publish(b'{"id":1}')
    await world.runtime.durable()
    world.clock.advance(3 * SECOND)
    found = describe_session(session, 1, world.clock.now_us())
    assert (found["client"], found["subscriptions"], found["connected_ms"]) == ("me", 1, 3000)
    assert found["queue_messages"] == 1
    assert (found["user"], found["address"], found["since"]) == (None, "192.0.2.7", since)
    assert found["lag_ms"] == 3000
    assert (found["connected"], found["reason"]) == (True, None)
    assert session.name not in found.values(), "the name that resumes a session is secret"
    world.executor.sessions.end(session, "because")
    found = describe_session(session, 0, world.clock.now_us())
    assert (found["connected"], found["reason"]) == (False, "because")
    await world.runtime.close()
