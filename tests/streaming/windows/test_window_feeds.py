"""A topic as a window sees it: its stretch, its set, and its place in the topic's router."""

from sow.streaming.update_encoder import WindowKey
from sow.streaming.windows.window_feeds import terms_of
from tests.laws.harness import World
from tests.laws.window_reader import WindowReader


def test_the_order_is_that_of_first_publication_unless_it_is_said():
    assert terms_of(WindowKey(None, 0, 5, False)) == ()
    (term,) = terms_of(WindowKey("/px DESC", 0, 5, False))
    assert term.descending


def test_it_shows_a_stretch_of_its_set_as_long_as_it_is_followed():
    world = World()
    world.publish("orders", *[{"id": at, "px": -at} for at in range(9)])
    reader = WindowReader(world.client(), "orders", "/px", top_n=2, skip_n=3)
    reader.begin()
    (feed,) = world.engine.topics["orders"].router.feeds()
    assert (feed.end, feed.length) == (5, 2)
    assert [row.body for row in feed.page().rows.values()] == [
        b'{"id":5,"px":-5}', b'{"id":4,"px":-4}'
    ]  # fmt: skip
    reader.client.say(c="unsubscribe", s="all")
    assert not feed.can_be_read
    assert feed.due_us() is None
    world.check()
