"""A batch reaches listeners, feeds that the index finds, and all other feeds."""

import pytest

from sow.expressions import compile_filter
from sow.protocol.encodings import LINES
from sow.streaming.channel import Channel
from sow.streaming.conflated_channel import ConflatedChannel
from sow.streaming.feeds import ConflatedFeed
from sow.streaming.pattern_subscriptions import PatternSubscriptions
from sow.streaming.router import Router
from sow.streaming.update_encoder import FeedKey
from tests.topic.making import put, records

FILED, UNFILED = "/symbol = 'A'", "/px > 3"


class Following:
    """A router, and feeds that record the batches that reach them."""

    def __init__(self):
        self.topic = records()
        self.router = Router(self.topic, PatternSubscriptions())

    def feed(self, name, condition=None, **key):
        compiled = compile_filter(condition) if condition else None
        channel = Channel(name, LINES)
        made = self.router.make(channel, FeedKey(condition, **key), compiled)
        self.router.add(made)
        return made

    def reached(self, *documents, seq=1):
        batch = put(self.topic, *documents, seq=seq)
        return sorted(feed.name for feed in self.router.route(batch, 0)[0])


@pytest.fixture
def following():
    return Following()


def test_feeds_hear_what_they_want_whether_they_are_found_or_requested(following):
    for name, condition in (("all", None), ("filed", FILED), ("unfiled", UNFILED)):
        following.feed(name, condition)
    assert following.reached({"id": 1, "symbol": "A", "px": 1}) == ["all", "filed"]
    assert following.reached({"id": 2, "symbol": "B", "px": 5}, seq=2) == ["all", "unfiled"]
    both = ({"id": 3, "symbol": "B", "px": 1}, {"id": 4, "symbol": "A", "px": 9})
    assert following.reached(*both, seq=3) == ["all", "filed", "unfiled"]


def test_who_was_removed_hears_no_more_and_wants_no_fields(following):
    following.feed("stays", FILED)
    fields = set(following.topic.read([b'{"id":1}']).columns)
    made = [following.feed(name, name) for name in (FILED, UNFILED)]
    for feed in made:
        following.router.remove(feed)
        following.router.remove(feed)
    assert following.reached({"id": 1, "symbol": "A", "px": 5}) == ["stays"]
    assert [feed.name for feed in following.router.feeds()] == ["stays"]
    assert set(following.topic.read([b'{"id":1}']).columns) == fields


def test_equal_subscriptions_share_a_feed_under_another_name(following):
    one = following.feed("one", FILED)
    key = FeedKey(FILED)
    assert following.router.shared(key, ()) is one
    assert following.router.shared(key, {"one"}) is None
    assert following.router.shared(FeedKey(FILED, oof=True), ()) is None


def test_a_feed_that_has_given_account_is_not_shared(following):
    one = following.feed("one", accounts=True, oof=True)
    key = FeedKey(accounts=True, oof=True)
    assert following.router.shared(key, ()) is one
    following.reached({"id": 1})
    assert following.router.shared(key, ()) is None


def test_a_feed_is_of_the_kind_of_its_channel(following):
    channel = ConflatedChannel("c", LINES, 1000)
    assert isinstance(following.router.make(channel, FeedKey(), None), ConflatedFeed)


def test_listeners_hear_before_feeds(following):
    order = []

    class Listener:
        def on_batch(self, batch, now_us):
            order.append(("listener", len(batch), now_us))

    following.feed("all")
    following.router.follow(Listener())
    following.reached({"id": 1}, {"id": 2})
    assert order == [("listener", 2, 0)]
