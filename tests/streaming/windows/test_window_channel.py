"""What a window's members are sent, and when: slow ones, intervals, lost sockets."""

import pytest

from sow.core.definitions import SessionSettings, Topic
from sow.streaming.update_encoder import WindowKey
from sow.streaming.windows.ordered_sets import OrderedSet
from sow.streaming.windows.window_channel import WindowChannel, terms_of
from tests.laws.harness import MS, SECOND, World
from tests.laws.window_reader import WindowReader


def world_of(bound=10, **more):
    topic = Topic("orders", "json", keys=("/id",), **more)
    world = World(topic, sessions=SessionSettings(queue_messages_max=bound))
    world.publish("orders", *[{"id": at, "px": at} for at in range(20)])
    return world


def reader_of(world, **requested):
    reader = WindowReader(world.client(), "orders", "/px", **{"top_n": 3, **requested})
    reader.begin()
    return reader


def churn(world, times):
    """The window's first record is another one each time."""
    for at in range(times):
        world.publish("orders", {"id": 100 + at, "px": -at})


def test_lines_leave_in_their_order_with_a_mark_at_the_end():
    world = world_of()
    reader = reader_of(world)
    world.publish("orders", {"id": 9, "px": -1}, {"id": 0, "px": 1.5})
    lines = reader.client.lines()
    assert [(line["c"], line.get("d", {}).get("id"), line.get("at")) for line in lines] == [
        ("oof", 2, 2), ("p", 9, 0), ("p", 0, 2), ("turn_end", None, None)
    ]  # fmt: skip
    assert lines[-1]["bm"] == str(world.engine.seq)


def test_members_of_one_window_are_handed_the_same_bytes():
    world = world_of()
    first, second = reader_of(world), reader_of(world)
    churn(world, 1)
    frames = [one.client.session.outbox.queue.entries[0].frame for one in (first, second)]
    assert frames[0] is frames[1]


def test_who_does_not_keep_up_is_sent_one_difference_later():
    world = world_of()
    prompt, slow = reader_of(world), reader_of(world)
    for at in range(50):
        churn(world, at)
        prompt.read()
        prompt.check(world)
    assert slow.client.session.outbox.message_count <= 10
    assert slow.client.session.ended is None
    slow.read()
    slow.check(world)
    assert slow.turns < prompt.turns


@pytest.mark.parametrize("top_n", [1, 2, 3, 4, 5])
def test_a_client_that_sleeps_is_not_closed_for_a_window_whose_turn_its_queue_has_room_for(top_n):
    """A turn of the whole window is twice `top_n` lines and its end."""
    world = world_of(bound=2 * top_n + 1)
    slow = reader_of(world, top_n=top_n)
    for turn in range(1, 9):
        # Of the window one record, two, all: another one each time.
        some = range(1 + turn % top_n)
        world.publish("orders", *({"id": f"{turn} {at}", "px": -turn} for at in some))
        world.advance(2 * SECOND)
        world.check()
    assert slow.client.session.ended is None
    slow.read()
    slow.check(world)
    assert slow.turns < 9


def test_windows_of_one_session_share_its_room():
    world = world_of(bound=9)
    client, readers = world.client(), []
    for skip_n in (0, 1, 2, 3):
        reader = WindowReader(client, "orders", "/px", top_n=3, skip_n=skip_n)
        reader.begin()
        readers.append(reader)
    for turn in range(10):
        some = range(1 + turn % 6)
        world.publish("orders", *({"id": f"{turn} {at}", "px": -turn} for at in some))
        world.advance(2 * SECOND)
    assert client.session.ended is None
    while lines := client.lines():
        for reader in readers:
            reader.release_others(lines)
    for reader in readers:
        reader.check(world)


def test_a_turn_that_is_longer_than_the_queue_is_sent_when_nothing_waits():
    world = world_of(bound=4)
    slow = reader_of(world, top_n=5)
    for turn in (1, 2, 3):
        world.publish("orders", *({"id": f"{turn} {at}", "px": -turn} for at in range(5)))
    assert slow.client.session.outbox.message_count == 11
    slow.read()
    slow.check(world)
    world.publish("orders", *({"id": at, "px": -9} for at in range(5)))
    world.advance(2 * SECOND)
    world.publish("orders", {"id": 0, "px": -10})
    assert slow.client.session.ended is not None


@pytest.mark.parametrize(
    ("policy", "waits"), [("off", True), ("unsubscribe", True), ("always", False)]
)
def test_the_topics_policy_says_who_waits_for_whom(policy, waits):
    world = world_of(bound=1000, conflation_policy=policy)
    reader = reader_of(world)
    churn(world, 5)
    waiting = reader.client.session.outbox.message_count
    assert waiting == (5 * 3 if waits else 3)
    reader.read()
    reader.check(world)
    assert reader.turns == (5 if waits else 2)


def test_a_topic_that_is_not_worth_more_is_given_up():
    world = world_of(conflation_policy="unsubscribe")
    reader = reader_of(world)
    churn(world, 5)
    assert [line["reason"] for line in reader.client.lines() if line["c"] == "unsubscribed"] == [
        "BACK_PRESSURE"
    ]
    world.check()


def test_an_interval_conflates_who_is_in_the_window():
    world = world_of()
    reader = reader_of(world, opts=("conflation=1s",))
    churn(world, 4)
    world.publish("orders", {"id": 103, "px": 50}, {"id": 0, "px": 50})
    assert reader.client.lines() == []
    world.advance(SECOND - 1)
    assert reader.client.lines() == []
    world.advance(1)
    lines = reader.client.lines()
    assert [line["c"] for line in lines] == ["oof", "oof", "oof", "p", "p", "p", "turn_end"]
    reader.release_others(lines)
    reader.check(world)
    assert world.due_us() is None


def test_what_came_and_went_within_an_interval_is_not_mentioned():
    world = world_of()
    reader = reader_of(world, opts=("conflation=100ms",))
    world.publish("orders", {"id": 77, "px": -1})
    world.delete("orders", "/id = 77")
    world.advance(100 * MS)
    assert reader.client.lines() == []


def test_a_session_that_comes_back_goes_on_without_loss():
    world = world_of()
    reader = reader_of(world)
    client = reader.client
    name = client.say(c="logon")[0]["session"]
    churn(world, 2)
    world.executor.sessions.drop(client.session, world.now)
    churn(world, 30)
    back = world.client()
    (ack, *lines) = back.say(c="logon", session=name)
    assert ack["resumed"]
    reader.release_others(lines)
    reader.client = back
    reader.read()
    reader.check(world)


def test_deltas_are_of_what_the_client_holds():
    world = world_of()
    reader = reader_of(world, delta=True)
    world.publish("orders", {"id": 1, "px": 1, "n": 5})
    (line, _) = reader.client.lines()
    assert line["delta"]
    assert line["d"] == {"id": 1, "n": 5}


def test_no_empties_leaves_out_what_is_not_seen_unless_it_has_moved():
    world = world_of()
    reader = reader_of(world, delta=True, opts=("no_empties",), select="/id")
    world.publish("orders", {"id": 1, "px": 1, "n": 5})
    assert reader.client.lines() == []
    world.publish("orders", {"id": 1, "px": -1})
    reader.read()
    reader.check(world)
    assert reader.turns == 1


def test_a_window_that_cannot_be_sent_is_ended_alone(monkeypatch):
    world = world_of()
    world.failures = []
    reader, other = reader_of(world), world.client()
    other.say(c="subscribe", t="orders")
    monkeypatch.setattr(WindowChannel, "_line", lambda *_: 1 / 0)
    churn(world, 1)
    world.advance(SECOND)
    assert [line["reason"] for line in reader.client.lines()] == ["FAILURE"]
    assert len(other.data()) == 1
    assert len(world.failures) == 1
    world.check()


def test_an_order_that_cannot_be_kept_ends_its_windows_alone(monkeypatch):
    world = world_of()
    world.failures = []
    readers = [reader_of(world), reader_of(world, skip_n=2)]
    monkeypatch.setattr(OrderedSet, "_take", lambda *_: 1 / 0)
    assert world.publish("orders", {"id": 0, "px": -1})
    world.advance(SECOND)
    for reader in readers:
        assert [line["reason"] for line in reader.client.lines()] == ["FAILURE"]
    world.check()


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
