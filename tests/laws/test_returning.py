"""Leaving and coming back: what waited before is not touched by what comes after."""

import pytest

from tests.laws.harness import short
from tests.laws.slow import slow, topic, world_of


def resubscribed(again, **more):
    """A session that shares its feed with another and leaves and joins it while updates wait."""
    world = world_of(topic(**more), queue_messages_max=1000)
    slow(world, c="sow_and_subscribe", opts="oof")
    client = slow(world, c="sow_and_subscribe", opts="oof")
    world.publish("t", {"id": 1, "v": 1})
    world.publish("t", {"id": 2, "v": 1})
    if again == "conflated before":
        client.session.conflate(world.now)
    (name,) = client.subscriptions
    client.execute(b'{"c":"unsubscribe","s":"%b"}' % name.encode())
    client.execute(b'{"c":"sow_and_subscribe","t":"t","opts":"oof"}')
    assert [*client.subscriptions] == [name], "the feed is shared, so its name is the same"
    world.publish("t", {"id": 1, "v": 2})
    world.delete("t", "/id = 2")
    world.publish("t", {"id": 1, "v": 3})
    client.session.conflate(world.now)
    world.check()
    return client.data()


@pytest.mark.parametrize("again", ["conflated before", "conflated once"])
@pytest.mark.parametrize("policy", ["conflate", "always"])
@pytest.mark.parametrize("placement", ["replace", "append"])
def test_nothing_is_folded_in_front_of_a_later_snapshot(again, policy, placement):
    lines = resubscribed(again, conflation_policy=policy, placement=placement)
    assert lines[:4] == [
        ("p", {"id": 1, "v": 1}),
        ("p", {"id": 2, "v": 1}),
        ("sow", {"id": 1, "v": 1}),
        ("sow", {"id": 2, "v": 1}),
    ]
    assert sorted(lines[4:]) == [("deleted", {"id": 2, "v": 1}), ("p", {"id": 1, "v": 3})]


def test_a_record_born_in_an_earlier_membership_is_born_again_in_the_next():
    world = world_of(topic(conflation_policy="always"), queue_messages_max=1000)
    client = slow(world, c="subscribe", opts="oof")
    world.publish("t", {"id": 1, "v": 1})
    world.publish("t", {"id": 1, "v": 2})
    (name,) = client.subscriptions
    client.execute(b'{"c":"unsubscribe","s":"%b"}' % name.encode())
    client.execute(b'{"c":"subscribe","t":"t","opts":"oof"}')
    world.delete("t", "/id = 1")
    world.publish("t", {"id": 1, "v": 3})
    client.session.conflate(world.now)
    world.check()
    assert client.data() == [("p", {"id": 1, "v": 2}), ("p", {"id": 1, "v": 3})]


def test_a_subscription_that_was_replaced_is_not_given_up_for_what_the_old_one_left_behind():
    world = world_of(topic(conflation_policy="unsubscribe"), topic("u"))
    client = slow(world)
    (name,) = client.subscriptions
    for number in range(8):
        world.publish("t", {"id": number})
    client.execute(b'{"c":"subscribe","t":"u","s":"%b","opts":"replace"}' % name.encode())
    for number in range(4):
        world.publish("u", {"id": number})
    lines = client.lines()
    # What waits of the old one stays: later lines rely on it.
    told = [("p", {"id": number}) for number in [*range(8), *range(4)]]
    assert short(lines) == told
    assert not any(line.get("dropped") for line in lines)
    assert [*client.subscriptions] == [name]


def test_what_was_given_up_can_be_followed_again_from_its_snapshot_on():
    world = world_of(topic(conflation_policy="unsubscribe"))
    slow(world, c="sow_and_subscribe").session.allow_folding(False)
    client = slow(world, c="sow_and_subscribe")
    for number in range(12):
        world.publish("t", {"id": number % 3, "n": number})
    client.execute(b'{"c":"sow_and_subscribe","t":"t"}')
    world.publish("t", {"id": 0, "n": 12})
    lines = client.lines()
    kinds_left = [line["c"] for line in lines]
    assert kinds_left.index("unsubscribed") < kinds_left.index("group_begin")
    assert short(lines)[-1] == ("p", {"id": 0, "n": 12})
    assert [line["c"] for line in lines].count("p") == 1
