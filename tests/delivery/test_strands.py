"""A strand gathers what its feeds say in one order and hands all members the same bytes."""

from dataclasses import replace

from sow.delivery.feeds import Feed
from sow.delivery.lines import FeedKey
from sow.delivery.strands import Strand
from sow.encodings import LINES
from tests.delivery.making import pulled, said, session
from tests.topic.making import ORDERS, put, records


class Several:
    """A strand over topics, one feed each."""

    def __init__(self, *definitions):
        self.strand = Strand("sub", LINES)
        self.topics = [records(definition) for definition in definitions]
        self.feeds = [Feed(self.strand, topic, FeedKey(), None) for topic in self.topics]

    def put(self, at, *documents, seq):
        self.feeds[at].hear(put(self.topics[at], *documents, seq=seq), 0)


def other(name, **more):
    return replace(ORDERS, name=name, **more)


def test_lines_come_in_the_order_of_the_changes_whatever_their_topic():
    several, client = Several(ORDERS, other("trades")), session()
    several.strand.join_at(client, 0)
    several.put(0, {"id": 1}, seq=1)
    several.put(1, {"id": 2}, seq=2)
    several.put(0, {"id": 3}, seq=3)
    several.strand.flush(0, 0)
    (frame,) = pulled(client)
    assert [(line["t"], line["d"]["id"]) for line in frame] == [
        ("orders", 1),
        ("trades", 2),
        ("orders", 3),
    ]


def test_what_comes_of_others_stands_behind_a_topic_that_is_heard_alone():
    several, client = Several(ORDERS, other("trades")), session()
    several.strand.join_at(client, 0)
    several.strand.hear_only(several.topics[0])
    several.put(0, {"id": 1}, seq=1)
    several.put(1, {"id": 3}, seq=3)
    several.strand.flush(0, 0)
    several.put(0, {"id": 2}, seq=2)
    several.strand.check()
    several.strand.hear_all(0)
    several.strand.flush(0, 0)
    assert [[line["bm"] for line in frame] for frame in pulled(client)] == [["1"], ["2", "3"]]


def test_all_members_get_the_same_bytes():
    several, clients = Several(ORDERS), [session("one"), session("two")]
    for client in clients:
        several.strand.join_at(client, 0)
    several.put(0, {"id": 1}, seq=1)
    several.strand.flush(0, 0)
    one, two = (client.pull(0, 0) for client in clients)
    assert one is two


def test_who_joins_later_is_not_told_what_went_before():
    several, early, late = Several(ORDERS), session("early"), session("late")
    several.strand.join_at(early, 0)
    several.put(0, {"id": 1}, seq=1)
    assert several.strand.waiting
    several.strand.flush(0, 0)
    several.strand.join_at(late, 1)
    several.put(0, {"id": 2}, seq=2)
    several.strand.flush(0, 0)
    assert said(late) == [("p", {"id": 2})]
    assert said(early) == [("p", {"id": 1}), ("p", {"id": 2})]


def test_topics_of_different_policies_are_handed_out_apart():
    definitions = (ORDERS, other("kept", conflation_policy="off"), other("more"))
    several, client = Several(*definitions), session()
    several.strand.join_at(client, 0)
    for seq, at in enumerate((0, 2, 1, 0), 1):
        several.put(at, {"id": seq}, seq=seq)
    several.strand.flush(0, 0)
    ids = [line["d"]["id"] for frame in pulled(client) for line in frame]
    assert ids == [1, 2, 3, 4]


def test_what_gathers_before_anybody_has_joined_waits_for_whoever_does():
    several = Several(ORDERS)
    several.put(0, {"id": 1}, seq=1)
    assert not several.strand.waiting
    assert len(several.strand.collect()) == 1
    assert several.strand.collect() == []


def test_what_was_collected_is_not_folded_with_what_comes_after():
    several, client = Several(ORDERS), session()
    several.put(0, {"id": 1}, seq=1)
    several.strand.collect()
    several.strand.join_at(client, 1)
    several.put(0, {"id": 2}, seq=2)
    several.strand.flush(0, 0)
    client.conflate(0)
    assert said(client) == [("p", {"id": 2})]


def test_a_member_that_left_is_told_nothing():
    several, client = Several(ORDERS), session()
    several.strand.join_at(client, 0)
    several.strand.leave(client)
    several.strand.leave(client)
    several.put(0, {"id": 1}, seq=1)
    several.strand.flush(0, 0)
    assert said(client) == []


def test_a_strand_does_nothing_by_itself():
    strand = Strand("sub", LINES)
    strand.release(10**9)
    strand.release_all()
    assert (strand.due_us(), strand.waiting) == (None, False)
