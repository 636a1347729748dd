"""Sessions over HTTP: listed, switched by a filter over them, and closed."""

import re
from types import SimpleNamespace

import pytest

from sow.core.security_definitions import Allow, User
from sow.errors import UnknownRecord
from sow.protocol.replies import LINES, timestamp
from sow.protocol.wire import read_frame
from sow.security.authorization import EVERYTHING
from sow.server.api.sessions import (
    FOLD_AGAIN,
    SEND_ALL,
    SENT_SUBSCRIPTIONS,
    SLOW_DOWN,
    SUBSCRIBE_AGAIN,
    WHY_GONE,
    ExplainSessionHandler,
    SessionsHandler,
    describe_session,
    story_of,
)
from sow.streaming.sessions import SLOW
from tests.executing import execute_all
from tests.laws.guarding import reading, rights
from tests.laws.slow import slow, topic, world_of
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
from tests.server.stand_ins import World as ServedWorld


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
    execute_all(world.executor, session, list(read_frame(lines)), world.clock.now_us())
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


START = "1970-01-01T00:16:40.000000Z"
"""When a world begins."""


def door(world):
    return ExplainSessionHandler(SimpleNamespace(now_us=lambda: world.now), world.executor)


def explained(client):
    """What is said of a client's session, and what to do."""
    found = door(client.world).explain(client.session.id, EVERYTHING)
    return found["why"], found["instead"]


def test_who_keeps_up_is_sent_so_and_need_do_nothing():
    world = world_of(topic())
    client = world.client()
    client.say(c="subscribe", t="t", filter="/px > 1")
    world.advance(90 * SECOND)
    assert explained(client) == (
        [
            f"it is connected, since {START} (90.0 s ago)",
            "nothing waits for it: it keeps up",
            "it follows t where /px > 1, each update as it comes",
        ],
        [],
    )


def test_what_waits_is_sent_with_since_when_and_what_may():
    world = world_of(topic())
    client = slow(world)
    world.publish("t", {"id": 1}, {"id": 2})
    world.advance(2 * SECOND)
    why, instead = explained(client)
    assert re.fullmatch(
        rf"waiting: 2 messages \(\d+ B\), the first since {START} \(2.0 s ago\), as its client "
        r"reads more slowly than updates come; 10 and 16 MiB may wait",
        why[1],
    )
    assert instead == [SLOW_DOWN]


def test_of_a_full_queue_it_is_sent_which_updates_became_one_and_when_they_came():
    world = world_of(topic(), topic("u"))
    client = slow(world)
    client.say(c="subscribe", t="u")
    for px in range(11):
        world.publish("t", {"id": 1, "px": px})
        world.clock.advance(SECOND)
    why, instead = explained(client)
    assert why[3] == (
        "folded into later updates of the same records, since its queue had filled: 10 updates of "
        "t, by such as came from 1970-01-01T00:16:41.000000Z to 1970-01-01T00:16:50.000000Z"
    )
    assert why[4:] == ["it follows u, each update as it comes"], "none of it was folded"
    assert instead == [SLOW_DOWN, SEND_ALL.replace("{id}", client.session.id)]


def test_of_a_topic_that_is_always_conflated_that_is_the_reason():
    world = world_of(topic(conflation_policy="always"))
    client = slow(world)
    world.publish("t", {"id": 1, "px": 1}, {"id": 1, "px": 2})
    world.publish("t", {"id": 1, "px": 3})
    (said,) = [line for line in explained(client)[0] if line.startswith("folded")]
    assert "since its ConflationPolicy is always, and they waited: 2 updates of t, by such" in said


def test_what_was_dropped_is_sent_with_its_topic_and_time():
    world = world_of(topic("u", conflation_policy="unsubscribe"))
    client = slow(world, t="u")
    for px in range(11):
        world.publish("u", {"id": px})
    why, instead = explained(client)
    assert why[-1] == (
        f"dropped {START}, since its queue was full and ConflationPolicy there is unsubscribe: "
        "11 messages of u, with 1 subscription"
    )
    assert instead == [SLOW_DOWN, SUBSCRIBE_AGAIN]


def test_what_it_requested_to_have_conflated_is_sent_as_its_own_wish():
    world = world_of(topic())
    client = world.client()
    client.say(c="subscribe", t="t", opts="conflation=1s")
    client.say(c="subscribe", t="t", opts="conflation=auto", cid="2")
    world.publish("t", {"id": 1, "px": 1})
    world.publish("t", {"id": 1, "px": 2})
    why, instead = explained(client)
    assert why[2] == (
        "it follows t, each record once in 1s at most, as requested by conflation=1s; "
        "updates in 2, out 0, waiting 1"
    )
    assert why[3].startswith("it follows t, each record as fast as it reads, as requested by")
    assert instead == []


def test_that_folding_was_switched_off_is_sent_with_how_to_switch_it_on():
    client = world_of(topic()).client()
    client.session.allow_folding(False)
    why, instead = explained(client)
    assert why[-1] == "nothing is folded in its queue: that is switched off for it"
    assert instead == [FOLD_AGAIN.replace("{id}", client.session.id)]


def test_who_is_away_is_sent_how_long_it_is_waited_for():
    client = world_of(topic()).client()
    client.session.disconnect()
    assert explained(client)[0][0] == (
        "its client has gone; what it follows is kept for 60.0 s at most (ReconnectTimeout)"
    )
    client.session.end(SLOW, 0)
    assert explained(client)[0][0] == f"it is being closed: {SLOW}"


def test_of_many_subscriptions_the_first_are_sent():
    client = world_of(topic()).client()
    for number in range(SENT_SUBSCRIPTIONS + 5):
        client.say(c="subscribe", t="t", filter=f"/px > {number}", cid=str(number))
    why = explained(client)[0]
    assert len(why) == 2 + SENT_SUBSCRIPTIONS + 1
    assert why[-1] == "it follows more: GET /v1/sessions/{id} lists them"


def test_one_that_is_gone_keeps_its_reason_its_losses_and_what_to_do():
    world = world_of(topic(), topic("u", conflation_policy="unsubscribe"))
    client = slow(world)
    client.say(c="subscribe", t="u")
    for px in range(11):
        world.publish("u", {"id": px})
        world.publish("t", {"id": 1, "px": px})
    world.publish("t", *({"id": number} for number in range(12)))
    world.advance(2 * SECOND)
    world.publish("t", {"id": 99})
    world.executor.sessions.drop(client.session, world.now)
    world.advance(3 * SECOND)
    why, instead = explained(client)
    assert why[0].startswith("it ended 1970-01-01T00:16:42.000000Z, 3.0 s ago: slow client")
    assert why[1] == WHY_GONE[SLOW]
    assert why[2].startswith("folded into later ones while it lasted: ")
    assert why[3].startswith("dropped, with subscriptions that were too slow: ")
    assert instead == [SLOW_DOWN]


def test_a_session_is_there_for_its_user_and_for_administrators_alone():
    world = world_of(topic())
    client = world.client()
    client.session.entitle(rights(reading(), name="ann"))
    called = client.session.id
    gone = world.client()
    gone.session.entitle(rights(reading(), name="ann"))
    world.executor.sessions.close(gone.session)
    for one in (called, gone.session.id):
        assert door(world).explain(one, rights(reading(), name="ann"))["id"] == one
        assert door(world).explain(one, rights(Allow(admin=True), name="root"))["id"] == one
        with pytest.raises(UnknownRecord, match=f"no session '{one}'"):
            door(world).explain(one, rights(reading(), name="bob"))
    with pytest.raises(UnknownRecord):
        door(world).explain("nobody", EVERYTHING)


def test_a_story_is_made_of_a_bounded_part_of_what_is_followed():
    client = world_of(topic()).client()
    seen = []

    def followed():
        for number in range(1000):
            seen.append(number)
            yield SimpleNamespace(
                topic="t", name="f", feeds={}, channel=None,
                key=SimpleNamespace(filter=None, auto=False, interval_us=None),
            )  # fmt: skip

    story_of(client.session, followed(), 0)
    assert len(seen) == SENT_SUBSCRIPTIONS + 1


@stepped
async def test_it_is_sent_at_its_address():
    world = ServedWorld()
    requested = ExplainSessionHandler(world.runtime, world.executor)
    async with Served(world, *routes_to(requested)) as place:
        assert (await place.get("/v1/sessions/nobody/why")).status == 404
