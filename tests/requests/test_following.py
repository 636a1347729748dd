"""Following: who shares what, and topics that come later."""

import pytest

from sow.definitions import Topic
from tests.core.harness import World

DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
FLAT = Topic("t", "json", keys=("/id",))


@pytest.fixture
def world():
    return World(FLAT, DESKS)


def followed(world, **command):
    client = world.client()
    (ack,) = client.say(c="subscribe", cid="1", **command)
    assert ack["status"] == "success", ack
    return client.subscriptions[ack["s"]]


@pytest.mark.parametrize("topic", ["t", "^(t|/desk/.*)$"])
def test_equal_subscriptions_of_two_sessions_share_a_strand_and_its_feeds(world, topic):
    first, second = (followed(world, t=topic, filter="/a = 1") for _ in "12")
    assert first.strand is second.strand
    assert first.feeds is second.feeds
    assert list(first.strand.members) == [first.session, second.session]


@pytest.mark.parametrize(
    "other", [{"filter": "/a = 2"}, {"opts": "oof"}, {"opts": "conflation=auto"}]
)
def test_others_share_nothing(world, other):
    first, second = followed(world, t="t"), followed(world, t="t", **other)
    assert first.strand is not second.strand
    assert first.feeds["t"] is not second.feeds["t"]


def test_a_topic_that_comes_later_is_followed_from_its_beginning(world):
    one = followed(world, t="^/desk/")
    assert one.feeds == {}
    world.publish("/desk/1", {"id": 1})
    assert list(one.feeds) == ["/desk/1"]
    assert list(world.engine.topics["/desk/1"].router.feeds()) == [one.feeds["/desk/1"]]
