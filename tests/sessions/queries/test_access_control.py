"""Seeing: how a guard joins what somebody asks."""

from sow.core.definitions import Topic
from sow.core.security_definitions import Allow, Authentication, Role, Security, User
from sow.engine.live_topic import HiddenTopic
from sow.errors import ClientError, InvalidTopic, UnknownTopic
from sow.expressions import compile_filter
from sow.protocol.commands import Command
from sow.query import Query
from sow.security.authorization import EVERYTHING, RoleSet
from sow.security.row_level_security import DENY_ALL, RowPolicy
from sow.sessions.queries.access_control import (
    is_visible,
    redact_error,
    restrict_key,
    restrict_query,
    restrict_shape,
    row_policy_for,
    row_policy_of,
)
from sow.streaming.update_encoder import FeedKey
from sow.topic.rendering import Shape
from tests.laws.guarding import desk, reading, rights
from tests.laws.harness import World


def records(topic):
    return World(topic).engine.topics[topic.name].records


ORDERS = records(Topic("orders", "json", keys=("/id",)))


def test_who_may_see_all_asks_what_he_requested():
    query, shape, key = Query(), Shape(), FeedKey()
    assert row_policy_for(EVERYTHING, ORDERS) is None
    assert is_visible(EVERYTHING, ORDERS)
    assert restrict_query(query, None) is query
    assert restrict_shape(shape, None) is shape
    assert restrict_key(key, None) is key


def test_a_guard_joins_query_shape_and_key():
    guard = rights(reading(filter="/desk = 'a'", select=("-/client",))).guard("orders")
    query = restrict_query(Query(filter=compile_filter("/px > 1")), guard)
    assert query.filter.text == "/desk = 'a' AND /px > 1"
    assert restrict_shape(Shape(), guard).select == guard.select
    assert restrict_key(FeedKey(filter="/px > 1"), guard) == FeedKey(
        filter="/px > 1", guard=guard, shape=Shape(select=guard.select)
    )


def test_what_was_made_for_one_client_has_no_guard():
    private = type("Records", (), {"name": HiddenTopic("orders"), "message_type": None})
    assert row_policy_for(desk(), private) is None


def test_of_messages_without_fields_nothing_may_be_seen_where_fields_say_what():
    blobs = records(Topic("orders", "binary"))
    assert row_policy_for(desk("a"), blobs) is DENY_ALL
    assert not is_visible(rights(reading(select=("-/x",))), blobs)
    assert is_visible(rights(reading()), blobs)
    assert is_visible(desk("a"), ORDERS)


def test_a_command_has_the_rights_of_its_user():
    given = desk("a")
    assert isinstance(row_policy_of(Command("sow", rights=given), ORDERS), RowPolicy)
    assert row_policy_of(Command("sow"), ORDERS) is None
    assert not is_visible(rights(), ORDERS)


ROLES = (Role("desk", ("*",), (Allow("orders|quotes", read=True),)),)
ANN = RoleSet(Security(authentication=Authentication(), roles=ROLES)).rights(User("ann"))
PATTERNS = {"secrets": "secret/.*", "quotes": "quotes/.*"}
NAMES = ("secret", "orders", "ordersecret")


def test_a_suggestion_is_made_of_what_he_sees():
    error = UnknownTopic("no topic 'orderse'; did you mean ordersecret?", wanted="orderse")
    assert redact_error(error, ANN, NAMES, {}).detail == "no topic 'orderse'; did you mean orders?"
    nothing = UnknownTopic("no topic 'x'; known are secret", wanted="x")
    assert redact_error(nothing, ANN, ("secret",), {}).detail == "no topic 'x'"
    error = UnknownTopic("no topic 'x'", wanted="x")
    mine = redact_error(error, ANN, ("orders", HiddenTopic("orders")), {})
    assert mine.detail == "no topic 'x'; known are orders", "a view that was made for one client"


def test_he_is_sent_of_the_patterns_that_he_sees():
    error = UnknownTopic("no topic 'x'; known are secret", wanted="x")
    detail = "no topic 'x'; known are orders, quotes (Pattern quotes/.*)"
    assert redact_error(error, ANN, NAMES, PATTERNS).detail == detail


def test_what_a_topic_is_made_of_is_sent_to_who_sees_all_of_it():
    for others, detail in ((("orders",), "of orders"), (("orders", "secret"), "of others")):
        error = InvalidTopic("of orders", others=others, alone="of others")
        assert redact_error(error, ANN, NAMES, PATTERNS).detail == detail


def test_where_nobody_is_requested_and_of_other_errors_nothing_is_changed():
    for error in (UnknownTopic("a secret", wanted="a"), InvalidTopic("b", others=("secret",))):
        detail = error.detail
        assert redact_error(error, EVERYTHING, NAMES, PATTERNS).detail == detail
    assert redact_error(ClientError("c"), ANN, NAMES, PATTERNS).detail == "c"
