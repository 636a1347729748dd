"""Groups that clients ask for take so much memory, in all and for one client, and no more."""

from dataclasses import replace

import pytest

from sow.core.definitions import Limits
from sow.sessions.queries import aggregations
from tests.laws.harness import SECOND
from tests.sessions.queries.test_aggregations import DESKS, QTY, followed, private, world_with


def limit_groups(world, size):
    """From now on groups may take so much, a quarter for one client."""
    limits = Limits(group_memory_bytes_max=size)
    world.configuration = replace(world.configuration, limits=limits)
    world.engine.adopt(world.configuration)


def memory(world):
    """What groups take, by client."""
    return world.executor.subscriptions.aggregations.memory


EACH = "projection=[/id],grouping=[/id]"


def ended(client):
    """What a client is told of subscriptions that have ended."""
    lines = [line for line in client.lines() if line["c"] == "unsubscribed"]
    return [(line["s"], line["reason"], line["detail"]) for line in lines]


@pytest.mark.parametrize("command", ["sow", "sow_and_subscribe", "sow_and_delta_subscribe"])
def test_groups_beyond_the_memory_are_refused(command):
    world, client = world_with(*[{"id": n, "desk": "a"} for n in range(1_000)])
    limit_groups(world, 4 * 300_000)
    most = []
    lines = client.say_in_steps(
        lambda: most.append(memory(world).used), c=command, t="orders", opts=EACH, cid="1"
    )
    (ack,) = [line for line in lines if line["c"] == "ack"]
    assert (ack["status"], ack["reason"]) == ("failure", "group memory")
    assert "Limits/GroupMemory" in ack["detail"]
    assert 100_000 < max(most) < 300_000, "it is refused while it is filled"
    assert memory(world).used == private(world) == 0
    assert client.say(c=command, t="orders", opts=QTY, cid="2")[0].get("status") != "failure"
    world.check()


def test_groups_that_become_too_many_while_they_are_followed_end_the_subscription():
    world, client = world_with(*DESKS)
    other = world.client()
    large, _ = followed(client, opts=EACH)
    for one in (client, other):
        one.say(c="sow_and_subscribe", t="orders", opts=QTY)
    limit_groups(world, 4 * memory(world).used)
    world.publish("orders", *[{"id": at, "desk": "a", "qty": 0} for at in range(20, 99)])
    world.advance(SECOND)
    assert ended(client) == [(large, "FAILURE", "group memory")]
    assert ended(other) == []
    assert private(world) == 1, "the one that takes less goes on"
    world.publish("orders", {"id": 21, "desk": "new", "qty": 0})
    assert client.data() == other.data() == [("p", {"qty": 0, "desk": "new"})]
    world.check()


def test_a_reload_that_lowers_it_ends_the_largest_at_once():
    world, client = world_with(*DESKS)
    large, _ = followed(client, opts=EACH)
    client.say(c="sow_and_subscribe", t="orders", opts=QTY)
    limits = Limits(group_memory_bytes_max=4 * memory(world).used - 4)
    world.executor.reconfigure(replace(world.configuration, limits=limits), world.now)
    world.advance(SECOND)
    assert ended(client) == [(large, "FAILURE", "group memory")], "though nothing was published"
    assert private(world) == 1
    world.check()


def test_who_has_too_many_groups_of_its_own_does_not_end_what_it_shares_with_others():
    world, client = world_with(*DESKS)
    other = world.client()
    for one in (client, other):
        one.say(c="sow_and_subscribe", t="orders", opts=EACH)
    shared = memory(world).used
    client.say(c="sow_and_subscribe", t="orders", opts=QTY)
    assert memory(world).used < 2 * shared, "what is shared counts once"
    limit_groups(world, 4 * memory(world).used)
    world.publish("orders", {"id": 20, "desk": "a"})
    world.advance(SECOND)
    assert [reason for _, _, reason in ended(client)] == ["group memory"]
    assert ended(other) == []
    world.publish("orders", {"id": 21, "desk": "a"})
    assert other.data() == [("p", {"id": 21})]
    assert private(world) == 2
    world.check()


def test_who_has_a_quarter_leaves_room_for_others():
    world, client = world_with(*DESKS)
    client.say(c="sow_and_subscribe", t="orders", opts=EACH)
    limit_groups(world, 4 * memory(world).used)
    others = [world.client() for _ in range(5)]
    fields = ["/px", "/px", "/desk", "/book"]
    found = [
        other.say(c="sow", t="orders", opts=f"projection=[{field}],grouping=[{field}]", cid="1")
        for other, field in zip([client, *others], fields, strict=False)
    ]
    assert [lines[-1].get("reason") for lines in found] == ["group memory", None, None, None]


def test_the_largest_groups_of_all_end_where_all_have_too_many():
    world, client = world_with(*DESKS)
    others = [world.client() for _ in range(6)]
    for at, other in enumerate(others):
        other.say(c="sow_and_subscribe", t="orders", opts=QTY, filter=f"/qty > -{at + 1}")
    client.say(c="sow_and_subscribe", t="orders", opts=EACH)
    limit_groups(world, memory(world).used)
    world.publish("orders", *[{"id": 20 + at, "desk": f"d{at}", "qty": 0} for at in range(3)])
    world.advance(SECOND)
    assert [why for _, _, why in ended(client)] == ["group memory"]
    assert [ended(other) for other in others] == [[]] * 6
    assert memory(world).room >= 0
    world.check()


def test_groups_of_clients_are_no_records():
    world, client = world_with(*DESKS)
    used_bytes = world.engine.capacity.used_bytes
    client.say(c="sow_and_subscribe", t="orders", opts=EACH)
    assert world.engine.capacity.used_bytes == used_bytes
    assert memory(world).used > aggregations.VIEW_BYTES
    client.say(c="unsubscribe", s="all")
    assert memory(world).used == 0
    world.check()


def test_groups_that_shrink_count_less_for_their_client():
    world, client = world_with(*[{"id": at, "desk": "a", "qty": 1} for at in range(3)])
    client.say(c="sow_and_subscribe", t="orders", opts=EACH, filter="/qty = 1", cid="1")
    world.publish("orders", *[{"id": at, "desk": "a", "qty": 1} for at in range(400)])
    world.advance(SECOND)
    grown = memory(world).used
    client.say(c="sow_delete", t="orders", filter="/id > 2")
    world.advance(SECOND)
    world.settle()
    assert [*memory(world)._by_client.values()] == [memory(world).used]
    assert memory(world).used < grown


def test_a_client_whose_largest_groups_are_still_read_loses_smaller_ones():
    world, client = world_with(*[{"id": at, "desk": "a", "qty": 1} for at in range(300)])
    aggregations = world.executor.subscriptions.aggregations
    client.say(c="sow_and_subscribe", t="orders", opts=EACH, filter="/qty = 1", cid="1")
    (account,) = memory(world)._by_client
    limit_groups(world, 4 * (memory(world).used + 60_000))
    (largest,) = aggregations._shared.values()
    largest.held.join(account)  # an answer of HTTP that is being read
    for qty in range(2, 8):
        options = "projection=[/px],grouping=[/px]"
        client.say(c="sow_and_subscribe", t="orders", opts=options, filter=f"/qty = {qty}")
    for at in range(0, 240, 20):
        rows = [(qty, px) for qty in range(2, 8) for px in range(at, at + 20)]
        world.publish("orders", *[{"id": 1000 * q + px, "qty": q, "px": px} for q, px in rows])
        world.advance(SECOND)
    assert not memory(world).is_over_share(account)
