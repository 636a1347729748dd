"""The register: what it knows of subscriptions, and that it notices what does not agree."""

import pytest

from sow.expressions import compile_filter
from sow.protocol.replies import LINES
from sow.sessions.subscriptions.subscription import Register, Subscription
from sow.streaming.channel import DirectChannel
from sow.streaming.update_encoder import FeedKey
from tests.laws.harness import World


@pytest.fixture
def session():
    return World().client().session


def subscribed(register, session, text=None, **key):
    """A subscription that has joined its strand."""
    channel = DirectChannel(register.new_name("f"), LINES)
    condition = None if text is None else compile_filter(text)
    one = Subscription("t", channel, {}, session, FeedKey(**key), condition, complete=True)
    register.add(one)
    channel.join(session)
    register.check()
    return one


def test_what_a_session_follows_is_found_by_name_until_it_ends(session):
    register = Register()
    first, second = (subscribed(register, session) for _ in "12")
    assert register.of(session) == {first.name: first, second.name: second}
    register.remove(first)
    register.remove(first)
    register.check()
    assert register.of(session) == {second.name: second}
    register.remove(second)
    assert register.of(session) == {}


def test_filters_are_counted_and_those_at_the_clients_pace_are_known(session):
    register = Register()
    filtered = subscribed(register, session, "/a LIKE 'b'")
    paced = subscribed(register, session, auto=True)
    assert register.followed(session).filter_chars == len("/a LIKE 'b'")
    assert register.followed(session).search_cost == 1
    assert [*register.followed(session).at_own_pace] == [paced]
    register.remove(filtered)
    register.check()
    assert (register.followed(session).filter_chars, register.followed(session).search_cost) == (
        0,
        0,
    )
    register.remove(paced)
    assert [*register.followed(session).at_own_pace] == []
    assert register.followed(session).search_cost == 0


def test_check_finds_a_member_that_is_not_sent(session):
    register = Register()
    one = subscribed(register, session)
    one.channel.leave(session)
    with pytest.raises(AssertionError, match="a member that receives nothing"):
        register.check()
