"""The story of a session: what its client does not get, since when, why, and what to do."""

import re
from types import SimpleNamespace

import pytest

from sow.core.security_definitions import Allow
from sow.errors import UnknownRecord
from sow.security.authorization import EVERYTHING
from sow.server.api.explain_session import (
    FOLD_AGAIN,
    SEND_ALL,
    SENT_SUBSCRIPTIONS,
    SLOW_DOWN,
    SUBSCRIBE_AGAIN,
    WHY_GONE,
    ExplainSessionHandler,
    story_of,
)
from sow.streaming.sessions import SLOW
from tests.laws.guarding import reading, rights
from tests.laws.harness import SECOND
from tests.laws.slow import slow, topic, world_of
from tests.server.stand_ins import Served, routes_to, stepped
from tests.server.stand_ins import World as ServedWorld

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
