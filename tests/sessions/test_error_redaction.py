"""What a user is told of an error is about no topic but those that he sees."""

from sow.core.security_definitions import Allow, Authentication, Role, Security, User
from sow.errors import ClientError, InvalidTopic, UnknownTopic
from sow.security.authorization import EVERYTHING, RoleSet
from sow.sessions.error_redaction import redact_error

ROLES = (Role("desk", ("*",), (Allow("orders|quotes", read=True),)),)
ANN = RoleSet(Security(authentication=Authentication(), roles=ROLES)).rights(User("ann"))
PATTERNS = {"secrets": "secret/.*", "quotes": "quotes/.*"}
NAMES = ("secret", "orders", "ordersecret")


def test_a_suggestion_is_made_of_what_he_sees():
    error = UnknownTopic("no topic 'orderse'; did you mean ordersecret?", wanted="orderse")
    assert redact_error(error, ANN, NAMES, {}).detail == "no topic 'orderse'; did you mean orders?"
    nothing = UnknownTopic("no topic 'x'; known are secret", wanted="x")
    assert redact_error(nothing, ANN, ("secret",), {}).detail == "no topic 'x'"


def test_he_is_sent_of_the_patterns_that_he_sees():
    error = UnknownTopic("no topic 'x'; known are secret", wanted="x")
    said = "no topic 'x'; known are orders, quotes (Pattern quotes/.*)"
    assert redact_error(error, ANN, NAMES, PATTERNS).detail == said


def test_what_a_topic_is_made_of_is_sent_to_who_sees_all_of_it():
    for others, detail in ((("orders",), "of orders"), (("orders", "secret"), "of others")):
        error = InvalidTopic("of orders", others=others, alone="of others")
        assert redact_error(error, ANN, NAMES, PATTERNS).detail == detail


def test_where_nobody_is_requested_and_of_other_errors_nothing_is_changed():
    for error in (UnknownTopic("a secret", wanted="a"), InvalidTopic("b", others=("secret",))):
        detail = error.detail
        assert redact_error(error, EVERYTHING, NAMES, PATTERNS).detail == detail
    assert redact_error(ClientError("c"), ANN, NAMES, PATTERNS).detail == "c"
