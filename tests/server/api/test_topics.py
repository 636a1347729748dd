"""Which topics are there for somebody, and what he may see of them.

What is answered of the last two minutes, to whom, and that somebody takes it once a second.
"""

import asyncio
from dataclasses import replace
from urllib.parse import quote

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic, Topic, View
from sow.core.security_definitions import Allow
from sow.engine.patterns import PatternTopic
from sow.query import Query
from sow.security.authorization import EVERYTHING
from sow.server.api.topics import (
    LOOKED_AT_ONCE,
    RatesHandler,
    counting,
    describe_pattern,
    describe_topic,
    members_of,
    there_for,
)
from tests.laws.guarding import reading, rights
from tests.laws.harness import World as LawWorld
from tests.server.stand_ins import (
    SECOND,
    Anybody,
    Served,
    World,
    asking,
    authenticator_of,
    routes_to,
    stepped,
)

NAMES = [f"t{at}" for at in range(3)]
GIVEN = rights(reading("t0", filter="/desk = 'a'"), reading("t1"))


@pytest.fixture
def world():
    world = LawWorld(*[Topic(name, "json", keys=("/id",)) for name in NAMES])
    for name in NAMES:
        world.publish(name, {"id": 1, "desk": "a"}, {"id": 2, "desk": "b"})
    return world


def topics(world):
    return [world.engine.topic(name) for name in NAMES]


def test_those_are_listed_that_are_there_and_counted_of_which_some_rows_are(world):
    assert [one.name for one in run_to_completion(there_for(GIVEN, topics(world)))] == ["t0", "t1"]
    assert run_to_completion(counting(world.engine, GIVEN, topics(world))) == {"t0": 1, "t2": 0}


def test_some_are_requested_for_by_how_their_names_begin_and_how_many(world):
    def named(given, *how):
        return [one.name for one in run_to_completion(there_for(given, topics(world), *how))]

    assert named(EVERYTHING, "t", 2) == ["t0", "t1"]
    assert named(EVERYTHING, "", 1) == ["t0"]
    assert named(EVERYTHING, "t1") == ["t1"]
    assert named(EVERYTHING, "x") == named(EVERYTHING, "", 0) == []
    assert named(GIVEN, "t", 5) == ["t0", "t1"], "of those alone that are there for him"
    assert named(GIVEN, "t2") == []


def test_who_may_everything_has_all_and_nothing_is_counted(world):
    assert run_to_completion(there_for(EVERYTHING, topics(world))) == topics(world)
    assert run_to_completion(counting(world.engine, EVERYTHING, topics(world))) == {}


class Made(PatternTopic):
    """A pattern of these topics."""

    name = "all"

    def __init__(self, *topics):
        self.members = dict(enumerate(topics))


def test_of_a_pattern_those_topics_and_records_count_that_are_there(world):
    counts = run_to_completion(counting(world.engine, GIVEN, topics(world)))
    pattern = Made(*topics(world))
    assert run_to_completion(members_of(GIVEN, [pattern], counts)) == {
        "all": (2, 3, None, 0, 0, None)
    }
    assert run_to_completion(members_of(EVERYTHING, [pattern], {})) == {
        "all": (3, 6, 6, 0, 0, None)
    }
    many = Made(*topics(world)[:1] * (2 * LOOKED_AT_ONCE))
    assert sum(1 for _ in members_of(GIVEN, [many], counts)) == 2


def test_very_many_are_looked_at_in_steps(world):
    many = topics(world)[:1] * (2 * LOOKED_AT_ONCE)
    assert sum(1 for _ in there_for(GIVEN, many)) == 2
    assert sum(1 for _ in counting(world.engine, GIVEN, many)) >= 2


def test_a_topic_that_has_gone_meanwhile_holds_nothing(world):
    found = topics(world)
    world.engine.catalog.topics.pop("t0")
    assert run_to_completion(counting(world.engine, GIVEN, found[:1])) == {"t0": 0}


ORDERS = Topic("orders", "json", keys=("/id",), hash_indexes=(("/id",), ("/symbol", "/side")))
SLOW = ConflatedTopic("orders-C", "json", "orders", interval_us=2 * SECOND, filter="/px > 1")
DESKS = replace(ORDERS, name="desks", pattern="^/desk/")


def described(world, name):
    return describe_topic(world.engine.topic(name), world.clock.now_us())


@stepped
async def test_a_topic_says_what_it_holds_and_which_indexes_serve_it():
    world = World(ORDERS)
    world.publish(b'{"id":1}', b'{"id":2,"symbol":"X"}')
    found = described(world, "orders")
    assert (found["name"], found["kind"], found["message_type"]) == ("orders", "topic", "json")
    assert (found["records"], found["bytes"]) == (2, len(b'{"id":1}{"id":2,"symbol":"X"}'))
    assert found["keys"] == ["/id"]
    assert found["indexes"] == [["/id"], ["/symbol", "/side"]], "that of the key stands once"
    assert (found["memos"], found["subscriptions"]) == ([], 0)
    await world.runtime.close()


@stepped
async def test_what_is_sent_names_no_field_that_may_not_be_seen():
    secret = replace(ORDERS, hash_indexes=(("/symbol",), ("/symbol", "/secret")))
    view = View("sums", "json", ("orders",), ("/symbol", "SUM(/secret) AS /sum"), ("/symbol",))
    world = World(secret, replace(SLOW, filter="/secret > 1"), replace(view, filter="/secret > 1"))
    world.publish(b'{"id":1,"secret":5}')
    world.engine.queries.at_once("orders", Query(filter=world.engine.filter("/secret = 5")))
    shown = [
        [
            describe_topic(world.engine.topic(name), 0, given)
            for name in ("orders", "orders-C", "sums")
        ]
        for given in (
            rights(reading(".*", select=("-/secret",))),
            rights(reading(".*", filter="1=1")),
        )
    ]
    assert "secret" not in str(shown[0])
    assert [one["underlying"] for one in shown[0][1:]] == ["orders", "orders"]
    assert all("secret" in str(one) for one in shown[1])
    await world.runtime.close()


@stepped
async def test_a_conflated_topic_says_how_far_its_copy_is():
    world = World(ORDERS, SLOW)
    world.publish(b'{"id":1,"px":5}')
    world.clock.advance(SECOND // 2)
    found = described(world, "orders-C")
    assert (found["kind"], found["underlying"], found["filter"]) == (
        "conflated",
        "orders",
        "/px > 1",
    )
    assert (found["interval_ms"], found["pending"], found["oldest_pending_ms"]) == (2000, 1, 500)
    assert (found["updates_in"], found["updates_out"], found["records"]) == (1, 0, 0)
    world.clock.advance(2 * SECOND)
    world.engine.advance(world.clock.now_us())
    found = described(world, "orders-C")
    assert (found["pending"], found["oldest_pending_ms"], found["updates_out"]) == (0, 0, 1)
    await world.runtime.close()


DESK_ROWS = View(
    "by-desk", "json", ("orders",), ("/desk", "SUM(/qty) AS /qty"), ("/desk",), filter="/qty > 0"
)


@stepped
async def test_a_view_says_what_it_is_made_of_and_what_has_come_of_it():
    world = World(ORDERS, DESK_ROWS)
    world.publish(b'{"id":1,"desk":"a","qty":1}', b'{"id":2,"desk":"a","qty":2}')
    assert described(world, "by-desk")["pending"] == 1
    await world.runtime.durable()
    found = described(world, "by-desk")
    assert (found["kind"], found["underlying"], found["underlyings"]) == (
        "view", "orders", ["orders"]
    )  # fmt: skip
    assert (found["projection"], found["grouping"], found["filter"]) == (
        ["/desk", "SUM(/qty) AS /qty"], ["/desk"], "/qty > 0"
    )  # fmt: skip
    assert (found["records"], found["indexes"], found["keys"]) == (1, [["/desk"]], ["/desk"])
    assert (found["pending"], found["left_out"]) == (0, 0)
    assert (found["updates_in"], found["updates_out"], found["conflation_ratio"]) == (2, 1, 2.0)
    await world.runtime.close()


@stepped
async def test_a_view_that_spark_runs_is_described_as_one():
    world = World(ORDERS, replace(DESK_ROWS, engine="spark"))
    found = described(world, "by-desk")
    assert (found["kind"], found["engine"], found["records"]) == ("view", "spark", 0)
    assert (found["underlyings"], found["grouping"]) == (["orders"], ["/desk"])
    assert found["filled_bookmark"] == "0"
    assert "pending" not in found, "what waits is known to Spark"
    await world.runtime.close()


@stepped
async def test_a_pattern_says_how_many_topics_it_has_made():
    world = World(DESKS)
    world.publish(b'{"id":1}', b'{"id":2}', topic="/desk/1")
    world.publish(b'{"id":1}', topic="/desk/2")
    pattern = world.engine.catalog.patterns["desks"]
    members = run_to_completion(members_of(EVERYTHING, [pattern], {}))
    found = describe_pattern(pattern, members["desks"], world.clock.now_us())
    assert found["updates"] == 3
    assert (found["kind"], found["pattern"], found["topics"], found["records"]) == (
        "pattern",
        "^/desk/",
        2,
        3,
    )
    assert described(world, "/desk/1")["of_pattern"] == "desks"
    assert described(world, "/desk/1")["key_domain"] == "/desk/1"
    await world.runtime.close()


@stepped
async def test_a_pattern_of_conflated_topics_says_what_all_of_them_save():
    world = World(DESKS, replace(SLOW, name="desks-C", underlying="desks", topic_format="%n-C"))
    for topic in ("/desk/1", "/desk/2"):
        world.publish(b'{"id":1,"px":5}', b'{"id":1,"px":6}', topic=topic)
    world.clock.advance(SECOND // 2)
    pattern = world.engine.catalog.patterns["desks-C"]

    def found():
        members = run_to_completion(members_of(EVERYTHING, [pattern], {}))
        return describe_pattern(pattern, members["desks-C"], world.clock.now_us())

    assert (found()["updates_in"], found()["updates_out"], found()["pending"]) == (4, 0, 2)
    assert found()["oldest_pending_ms"] == 500
    world.clock.advance(2 * SECOND)
    world.engine.advance(world.clock.now_us())
    assert (found()["updates_out"], found()["pending"], found()["oldest_pending_ms"]) == (2, 0, 0)
    await world.runtime.close()


RATES = "/v1/topics/orders/rates"


class Place(Served):
    def __init__(self, **more):
        world = World()
        self.rates = RatesHandler(world.runtime, world.engine)
        super().__init__(world, *routes_to(self.rates), **more)

    async def second(self, *bodies):
        """A second in which these are published."""
        if bodies:
            self.world.publish(*bodies)
        self.world.clock.advance(SECOND)
        await self.rates.look()

    def key(self):
        return self.world.engine.topic("orders").records.table.sow_key(0)


@stepped
async def test_two_minutes_are_answered_a_figure_a_second():
    async with Place() as place:
        await place.rates.look()
        await place.second(b'{"id":1}', b'{"id":2}')
        await place.second()
        answer = await place.get(RATES)
        assert answer.json == {
            "step_ms": 1000,
            "end": "1970-01-01T00:16:42.000000Z",
            "in": [2, 0],
            "out": [2, 0],
        }


@stepped
async def test_one_record_is_watched_from_when_it_is_asked_for():
    async with Place() as place:
        await place.second(b'{"id":1}')
        key = place.key()
        path = f"{RATES}?k={quote(key)}"
        assert (await place.get(path)).json["in"] == []
        await place.second(b'{"id":1}', b'{"id":2}')
        assert (await place.get(path)).json["in"] == [1]
        answer = await place.get(f"{RATES}?k=none")
        assert (answer.status, answer.json["reason"]) == (404, "not found")


@stepped
async def test_a_topic_that_is_not_there_has_no_rates():
    async with Place() as place:
        assert (await place.get("/v1/topics/none/rates")).status == 404


@stepped
async def test_who_sees_some_records_only_gets_no_figures_of_the_others():
    rows = Allow("orders", ("read",), filter="/id = 1")
    async with Place(authn=authenticator_of(asking(rows), lambda _by: Anybody())) as place:
        await place.rates.look()
        await place.second(b'{"id":2}')
        hidden = place.key()
        ask = {"Authorization": "Bearer ann"}
        answer = await place.get(RATES, **ask)
        assert (answer.status, answer.json["in"], answer.json["out"]) == (200, [], [])
        assert (await place.get(f"{RATES}?k={quote(hidden)}", **ask)).status == 404


@stepped
async def test_somebody_looks_once_a_second_until_the_server_stops():
    async with Place() as place:
        place.rates.begin()
        await asyncio.sleep(0.5)
        for number in range(3):
            place.world.publish(b'{"id":%d}' % number)
            place.world.clock.advance(SECOND)
            await asyncio.sleep(1)
        assert (await place.get(RATES)).json["in"] == [1, 1, 1]
