"""Seeing: how a guard joins what somebody asks."""

from sow.commands import Command
from sow.definitions import Topic
from sow.delivery.lines import FeedKey
from sow.engine.private_names import PrivateName
from sow.expressions import compile_filter
from sow.guards import BLIND, Guard
from sow.query import Query
from sow.requests.seeing import guard_for, guard_of, may_see, seen_key, seen_query, seen_shape
from sow.rights import EVERYTHING
from sow.topic.rendering import Shape
from tests.core.guarding import desk, reading, rights
from tests.core.harness import World


def records(topic):
    return World(topic).engine.topics[topic.name].records


ORDERS = records(Topic("orders", "json", keys=("/id",)))


def test_who_may_see_all_asks_what_he_asked():
    query, shape, key = Query(), Shape(), FeedKey()
    assert guard_for(EVERYTHING, ORDERS) is None
    assert may_see(EVERYTHING, ORDERS)
    assert seen_query(query, None) is query
    assert seen_shape(shape, None) is shape
    assert seen_key(key, None) is key


def test_a_guard_joins_query_shape_and_key():
    guard = rights(reading(filter="/desk = 'a'", select=("-/client",))).guard("orders")
    query = seen_query(Query(filter=compile_filter("/px > 1")), guard)
    assert query.filter.text == "/desk = 'a' AND /px > 1"
    assert seen_shape(Shape(), guard).select == guard.select
    assert seen_key(FeedKey(filter="/px > 1"), guard) == FeedKey(
        filter="/px > 1", guard=guard, shape=Shape(select=guard.select)
    )


def test_what_was_made_for_one_client_has_no_guard():
    private = type("Records", (), {"name": PrivateName("orders"), "message_type": None})
    assert guard_for(desk(), private) is None


def test_of_messages_without_fields_nothing_may_be_seen_where_fields_say_what():
    blobs = records(Topic("orders", "binary"))
    assert guard_for(desk("a"), blobs) is BLIND
    assert not may_see(rights(reading(select=("-/x",))), blobs)
    assert may_see(rights(reading()), blobs)
    assert may_see(desk("a"), ORDERS)


def test_a_command_has_the_rights_of_its_user():
    given = desk("a")
    assert isinstance(guard_of(Command("sow", rights=given), ORDERS), Guard)
    assert guard_of(Command("sow"), ORDERS) is None
    assert not may_see(rights(), ORDERS)
