"""A channel collects the lines of its feeds in one order and sends all members the same bytes."""

from dataclasses import replace

from sow.protocol.replies import LINES
from sow.streaming.channel import DirectChannel
from sow.streaming.feeds import DirectFeed
from sow.streaming.update_encoder import FeedKey
from tests.streaming.making import pulled, said, session
from tests.topic.making import ORDERS, put, records


class Several:
    """A channel over topics, one feed each."""

    def __init__(self, *definitions):
        self.channel = DirectChannel("sub", LINES)
        self.topics = [records(definition) for definition in definitions]
        self.feeds = [DirectFeed(self.channel, topic, FeedKey(), None) for topic in self.topics]

    def put(self, at, *documents, seq):
        self.feeds[at].on_batch(put(self.topics[at], *documents, seq=seq), 0)


def other(name, **more):
    return replace(ORDERS, name=name, **more)


def test_lines_come_in_the_order_of_the_changes_whatever_their_topic():
    several, client = Several(ORDERS, other("trades")), session()
    several.channel.join(client)
    several.put(0, {"id": 1}, seq=1)
    several.put(1, {"id": 2}, seq=2)
    several.put(0, {"id": 3}, seq=3)
    several.channel.flush(0, 0)
    (frame,) = pulled(client)
    assert [(line["t"], line["d"]["id"]) for line in frame] == [
        ("orders", 1),
        ("trades", 2),
        ("orders", 3),
    ]


def test_what_comes_of_others_waits_behind_an_exclusive_topic():
    several, client = Several(ORDERS, other("trades")), session()
    several.channel.join(client)
    several.channel.hold_others(several.topics[0])
    several.put(0, {"id": 1}, seq=1)
    several.put(1, {"id": 3}, seq=3)
    several.channel.flush(0, 0)
    several.put(0, {"id": 2}, seq=2)
    several.channel.check()
    several.channel.release_others(0)
    several.channel.flush(0, 0)
    assert [[line["bm"] for line in frame] for frame in pulled(client)] == [["1"], ["2", "3"]]


def test_all_members_get_the_same_bytes():
    several, clients = Several(ORDERS), [session("one"), session("two")]
    for client in clients:
        several.channel.join(client)
    several.put(0, {"id": 1}, seq=1)
    several.channel.flush(0, 0)
    one, two = (client.pull(0, 0) for client in clients)
    assert one is two


def test_who_joins_later_is_not_sent_what_went_before():
    several, early, late = Several(ORDERS), session("early"), session("late")
    several.channel.join(early)
    several.put(0, {"id": 1}, seq=1)
    assert several.channel.waiting
    several.channel.flush(0, 0)
    several.channel.join(late)
    several.put(0, {"id": 2}, seq=2)
    several.channel.flush(0, 0)
    assert said(late) == [("p", {"id": 2})]
    assert said(early) == [("p", {"id": 1}), ("p", {"id": 2})]


def test_topics_of_different_policies_are_handed_out_apart():
    definitions = (ORDERS, other("kept", conflation_policy="off"), other("more"))
    several, client = Several(*definitions), session()
    several.channel.join(client)
    for seq, at in enumerate((0, 2, 1, 0), 1):
        several.put(at, {"id": seq}, seq=seq)
    several.channel.flush(0, 0)
    ids = [line["d"]["id"] for frame in pulled(client) for line in frame]
    assert ids == [1, 2, 3, 4]


def test_what_gathers_before_anybody_has_joined_waits_for_whoever_does():
    several = Several(ORDERS)
    several.put(0, {"id": 1}, seq=1)
    assert not several.channel.waiting
    assert len(several.channel.collect()) == 1
    assert several.channel.collect() == []


def test_what_was_collected_is_not_folded_with_what_comes_after():
    several, client = Several(ORDERS), session()
    several.put(0, {"id": 1}, seq=1)
    several.channel.collect()
    several.channel.join(client)
    several.put(0, {"id": 2}, seq=2)
    several.channel.flush(0, 0)
    client.conflate(0)
    assert said(client) == [("p", {"id": 2})]


def test_a_member_that_left_is_sent_nothing():
    several, client = Several(ORDERS), session()
    several.channel.join(client)
    several.channel.leave(client)
    several.channel.leave(client)
    several.put(0, {"id": 1}, seq=1)
    several.channel.flush(0, 0)
    assert said(client) == []
