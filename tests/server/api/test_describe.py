"""Topics and sessions as documents."""

from dataclasses import replace

from sow.core.cooperative import run_to_completion
from sow.core.definitions import ConflatedTopic, Topic, View
from sow.protocol.encodings import LINES, timestamp
from sow.protocol.wire import read_frame
from sow.query import Query
from sow.security.authorization import EVERYTHING
from sow.server.api.describe import describe_pattern, describe_session, describe_topic
from sow.server.api.topic_list import members_of
from tests.laws.guarding import reading, rights
from tests.server.stand_ins import SECOND, World, stepped

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
    await world.driver.close()


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
    await world.driver.close()


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
    await world.driver.close()


DESK_ROWS = View(
    "by-desk", "json", ("orders",), ("/desk", "SUM(/qty) AS /qty"), ("/desk",), filter="/qty > 0"
)


@stepped
async def test_a_view_says_what_it_is_made_of_and_what_has_come_of_it():
    world = World(ORDERS, DESK_ROWS)
    world.publish(b'{"id":1,"desk":"a","qty":1}', b'{"id":2,"desk":"a","qty":2}')
    assert described(world, "by-desk")["pending"] == 1
    await world.driver.durable()
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
    await world.driver.close()


@stepped
async def test_a_view_that_spark_runs_is_described_as_one():
    world = World(ORDERS, replace(DESK_ROWS, engine="spark"))
    found = described(world, "by-desk")
    assert (found["kind"], found["engine"], found["records"]) == ("view", "spark", 0)
    assert (found["underlyings"], found["grouping"]) == (["orders"], ["/desk"])
    assert found["filled_bookmark"] == "0"
    assert "pending" not in found, "what waits is known to Spark"
    await world.driver.close()


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
    await world.driver.close()


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
    await world.driver.close()


@stepped
async def test_a_session_says_what_waits_for_it_and_for_how_long():
    world = World()
    since = timestamp(world.clock.now_us())
    session = world.executor.sessions.open(LINES, world.clock.now_us(), address="192.0.2.7")
    lines = b'{"c":"logon","cid":"1","client":"me"}\n{"c":"subscribe","t":"orders"}'
    world.executor.execute_all(session, list(read_frame(lines)), world.clock.now_us())
    world.publish(b'{"id":1}')
    await world.driver.durable()
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
    await world.driver.close()
