"""Queues in an engine: where messages come from, what is stored of them, and where they end."""

import tracemalloc
from dataclasses import replace

import pytest

from sow.core.definitions import (
    CHAINS,
    LEASES,
    KeyChainSettings,
    Limits,
    QueueSettings,
    Topic,
)
from sow.engine import queues
from sow.engine.queues import ReceivingConsumer
from sow.errors import ClientError, ConfigError, Full, InvalidTopic
from tests.laws.harness import ORDERS, SECOND, SlowDisk, World
from tests.store.in_memory import MemoryCheckpoint

LEASE_US = 10 * SECOND
SETTINGS = QueueSettings("orders", lease_us=LEASE_US)
DEAD = Topic("dead", "json", keys=("/id",))


def topic(**more):
    settings = replace(SETTINGS, **more)
    return Topic("jobs", "json", conflation_policy="off", queue=settings)


def world(*topics, **more):
    settings = {name: more.pop(name) for name in ("limits", "start_us") if name in more}
    return World(ORDERS, DEAD, topic(**more), *topics, LEASES, **settings)


def taken(world, count=100, name="a"):
    """What a consumer gets that takes so many at once, and keeps them leased."""
    got, queue = [], world.executor.queues.find("jobs")
    consumer = ReceivingConsumer(count, lambda bookmark: f"{bookmark}-{name}", got.extend)
    queue.join(consumer, world.now)
    queue.leave(consumer)
    world.settle()
    world.check()
    return got


def acknowledge(world, *messages):
    queue = world.executor.queues.find("jobs")
    count = sum(queue.acknowledge([one.bookmark], one.lease, world.now) for one in messages)
    queue.settle(world.now)
    world.settle()
    world.check()
    return count


def test_each_publish_is_a_message_also_of_the_same_key_and_a_delta_is_as_merged():
    here = world()
    first = here.publish("orders", {"id": 1, "a": 1})
    second = here.publish("orders", {"id": 1, "a": 2}, {"id": 2})
    third = here.publish("orders", {"id": 1, "b": 3}, delta=True)
    got = taken(here)
    assert [message.bookmark for message in got] == [first, second - 1, second, third]
    assert [message.body for message in got] == [
        b'{"id":1,"a":1}',
        b'{"id":1,"a":2}',
        b'{"id":2}',
        b'{"id":1,"a":2,"b":3}',
    ]
    assert [message.key for message in got] == [here.sow_key("orders", k) for k in "1121"]
    assert {(message.deliveries, message.until_us) for message in got} == {(1, here.now + LEASE_US)}


def test_an_acknowledgement_leaves_the_record_and_a_delete_the_message():
    here = world()
    here.publish("orders", {"id": 1}, {"id": 2})
    here.delete("orders", "/id = 1")
    got = taken(here)
    assert acknowledge(here, *got) == 2
    assert acknowledge(here, *got) == 0
    assert here.records("orders") == [{"id": 2}]
    assert here.records("jobs") == []


def test_a_queue_of_a_topic_without_keys_and_without_records_has_the_publishers_keys():
    bare = replace(ORDERS, keys=(), hash_indexes=(), retain=False)
    here = World(bare, topic(), LEASES)
    here.publish("orders", {"a": 1}, key="mine")
    assert [message.key for message in taken(here)] == ["mine"]


def test_leases_and_deliveries_hold_through_a_restart_until_they_end():
    here = world()
    here.publish("orders", {"id": 1}, {"id": 2})
    (held,) = taken(here, 1)
    here = here.restart()
    (other,) = taken(here, 9, "b")
    assert other.bookmark == held.bookmark + 1
    assert acknowledge(here, held) == 1
    here.advance(LEASE_US)
    here = here.restart()
    (again,) = taken(here, 9, "c")
    assert (again.bookmark, again.deliveries) == (other.bookmark, 2)
    assert acknowledge(here, other) == 0


def test_what_was_acknowledged_leaves_nothing_behind():
    here = world()
    here.publish("orders", *({"id": number} for number in range(300)))
    acknowledge(here, *taken(here, 300))
    assert not here.engine.topics[LEASES.name].records.table.slots
    assert not here.restart().executor.queues.find("jobs").queue.messages


class CountedSlots(dict):
    """The slots of a table, which notes those that somebody goes through."""

    def __init__(self, slots, read):
        super().__init__(slots)
        self.read = read

    def __iter__(self):
        for one in super().__iter__():
            self.read.append(one)
            yield one

    def items(self):
        return ((one, self[one]) for one in self)


def test_messages_and_leases_are_read_again_in_steps(monkeypatch):
    here = world()
    here.publish("orders", *({"id": number} for number in range(95)))
    held, read = taken(here, 35), []
    monkeypatch.setattr(queues, "RESTORED_AT_ONCE", 10)
    monkeypatch.setattr(queues, "GIVEN_AT_ONCE", 10)
    for name in ("jobs", LEASES.name):
        table = here.engine.topics[name].records.table
        table.slots = CountedSlots(table.slots, read)
    all_queues, steps = here.executor.queues.queues, []
    before = all_queues.by_name["jobs"].queue
    for _ in all_queues.restoring():
        steps.append(len(read))
        read.clear()
    assert sum(steps) == 95 + 35
    assert max(steps) < 2 * 10  # the last leases, and the first messages
    after = all_queues.by_name["jobs"].queue
    assert [*after.messages] == [*before.messages]
    assert after.leased == len(held)


def test_many_messages_are_given_out_in_steps(monkeypatch):
    monkeypatch.setattr(queues, "GIVEN_AT_ONCE", 200)
    here = world()
    here.publish("orders", *({"id": number} for number in range(300)))
    got, queue = [], here.executor.queues.find("jobs")
    queue.join(ReceivingConsumer(1_000, lambda one: f"{one}-a", got.append), here.now)
    assert [len(part) for part in got] == [queues.GIVEN_AT_ONCE]
    assert here.engine.due_us() == 0
    here.advance(0)
    assert sum(map(len, got)) == 300
    here.advance(LEASE_US)
    assert queue.expired == 300


def test_what_a_consumer_held_that_is_gone_goes_to_others_in_steps(monkeypatch):
    here = world()
    here.publish("orders", *({"id": number} for number in range(9)))
    got, queue = [], here.executor.queues.find("jobs")
    gone = ReceivingConsumer(9, lambda _: "gone", lambda _messages: None)
    queue.join(gone, here.now)
    queue.join(ReceivingConsumer(9, lambda _: "b", got.append), here.now)
    monkeypatch.setattr(queues, "GIVEN_AT_ONCE", 4)
    queue.end(gone)
    assert queue.acknowledge([got[0][0].bookmark], "b", here.now) == 1
    assert queue.queue.leased == 8
    here.check()
    here.advance(0)
    assert [len(part) for part in got] == [4, 4, 1]
    assert {one.deliveries for part in got for one in part} == {2}


def test_a_message_that_was_delivered_too_often_is_a_dead_letter_as_it_was_published():
    here = world(deliveries_max=2, dead_letters="dead")
    here.publish("orders", {"id": 1, "a": 1})
    here.publish("orders", {"id": 1, "a": 2})
    for _ in range(2):
        assert len(taken(here)) == 2
        here.advance(LEASE_US)
    assert taken(here) == []
    assert here.records("dead") == [{"id": 1, "a": 2}]
    queue = here.executor.queues.find("jobs")
    assert (queue.dead, queue.dropped) == (2, 0)
    assert here.records("jobs") == []


def test_without_a_topic_for_it_a_dead_message_is_dropped_and_counted():
    here = world(deliveries_max=1)
    here.publish("orders", {"id": 1})
    taken(here)
    here.advance(LEASE_US)
    assert here.executor.queues.find("jobs").dropped == 1
    assert here.records("jobs") == []


def test_a_dead_message_is_kept_while_its_topic_does_not_take_it():
    full = replace(DEAD, records_max=0)
    here = World(ORDERS, full, topic(deliveries_max=1, dead_letters="dead"), LEASES)
    here.failures = []
    here.publish("orders", {"id": 1})
    taken(here)
    here.advance(LEASE_US)
    assert "dead does not take 1 dead message: " in here.failures[0]
    assert here.records("jobs") == [{"id": 1}]
    here = here.restart(ORDERS, DEAD, topic(deliveries_max=1, dead_letters="dead"), LEASES)
    here.advance(LEASE_US)
    assert here.records("dead") == [{"id": 1}]
    assert here.records("jobs") == []


def test_a_dead_message_that_is_not_taken_holds_up_no_other_and_is_reported_once_a_lease():
    few = replace(DEAD, records_max=1)
    here = World(ORDERS, few, topic(deliveries_max=1, dead_letters="dead"), LEASES)
    here.failures = []
    here.publish("orders", {"id": 1}, {"id": 2}, {"id": 1, "a": 2})
    taken(here)
    here.advance(LEASE_US)
    assert here.records("dead") == [{"id": 1, "a": 2}]
    assert here.records("jobs") == [{"id": 2}]
    here.publish("orders", {"id": 3})
    acknowledge(here, *taken(here))
    assert len(here.failures) == 1
    here.advance(LEASE_US)
    assert len(here.failures) == 2


def test_what_one_step_gives_out_is_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(queues, "BYTES_AT_ONCE", 30)
    here = world()
    here.publish("orders", *({"id": number} for number in range(10, 20)))
    got, queue = [], here.executor.queues.find("jobs")
    queue.join(ReceivingConsumer(9, lambda one: f"{one}-a", got.append), here.now)
    assert [len(part) for part in got] == [4]
    here.advance(0)
    assert [len(part) for part in got] == [4, 4, 1]


def test_a_dead_letter_may_go_to_chains():
    chained = Topic("dead", "json", chain=KeyChainSettings("/id", "/of"))
    here = World(ORDERS, chained, topic(deliveries_max=1, dead_letters="dead"), LEASES, CHAINS)
    here.publish("orders", {"id": 1}, {"id": 2, "of": 1})
    taken(here)
    here.advance(LEASE_US)
    assert here.records("dead") == [{"id": 2, "of": 1}]


def test_at_most_once_a_message_has_left_the_queue_on_disk_before_it_is_sent():
    here = SlowDisk(ORDERS, topic(semantics="at-most-once"), LEASES)
    here.publish("orders", {"id": 1})
    client = here.client()
    here.held = True
    client.execute(b'{"c":"subscribe","t":"jobs"}')
    assert client.sent() == []
    assert World.restart(here).records("jobs") == [{"id": 1}]
    here.held = False
    here.catch_up()
    (message,) = [line for line in client.sent() if line["c"] == "p"]
    assert (message["d"], message["deliveries"]) == ({"id": 1}, 1)
    assert here.restart().records("jobs") == []


def test_priorities_are_numbers_and_anything_else_is_none():
    here = world(priority="/p")
    values = [1, "7", None, True, "x", 10**300, -2, {"a": 1}]
    for number, value in enumerate(values):
        here.publish("orders", {"id": number, "p": value})
    order = [message.body for message in taken(here)]
    assert order[1] == b'{"id":1,"p":"7"}'
    assert order[-1] == b'{"id":6,"p":-2}'
    assert len(order) == len(values)


def test_a_barrier_is_one_after_a_restart_too():
    here = world(barrier="/b = 1")
    here.publish("orders", {"id": 1}, {"id": 2, "b": 1}, {"id": 3})
    here = here.restart()
    for id_ in (1, 2, 3):
        (one,) = taken(here)
        assert one.body.startswith(b'{"id":%d' % id_)
        acknowledge(here, one)


def test_a_publish_is_refused_whose_message_has_no_room():
    here = world(limits=Limits(memory_bytes_max=3_000))
    messages = here.executor.queues.find("jobs").queue.messages
    while len(messages) < 5:
        here.publish("orders", {"id": 1})
    with pytest.raises(Full):
        here.publish("orders", *({"id": 1} for _ in range(20)))
    assert len(messages) == 5
    here.check()


def test_nobody_publishes_to_a_queue_or_deletes_from_it():
    here = world()
    for act in (
        lambda: here.engine.publish("jobs", [b"{}"], here.now, key="a"),
        lambda: here.engine.catalog.deletable("jobs"),
    ):
        with pytest.raises(InvalidTopic, match="messages are the publishes to orders: publish the"):
            act()


def test_a_batch_of_too_many_rows_is_refused():
    queue = world().executor.queues.find("jobs")
    queue.check_room(queues.COMMITTED_MAX)
    with pytest.raises(ClientError, match="write it in several batches"):
        queue.check_room(queues.COMMITTED_MAX + 1)


def test_a_topic_without_a_queue_has_none():
    here = World(ORDERS)
    assert here.engine.topics["orders"].queues == ()
    assert here.executor.queues.queues.by_name == {}


# Reloads.


def reload(world, *topics):
    configuration = replace(world.configuration, topics=(*topics, LEASES))
    changes = world.executor.reconfigure(configuration, world.now)
    world.configuration = configuration
    world.settle()
    world.check()
    return changes


def with_file(world):
    """What a server makes before it adds the queue."""
    world.checkpoints["jobs"] = MemoryCheckpoint()
    return world


def test_a_queue_that_a_reload_adds_begins_with_what_comes_then_and_lives_on():
    here = with_file(World(ORDERS, DEAD, LEASES))
    here.publish("orders", {"id": 1})
    assert reload(here, ORDERS, DEAD, topic()) == ["queue jobs added"]
    assert taken(here) == []
    here.publish("orders", {"id": 2}, {"id": 3})
    (held,) = taken(here, 1)
    here = here.restart()
    (other,) = taken(here, 9, "b")
    assert (held.body, other.body) == (b'{"id":2}', b'{"id":3}')
    assert acknowledge(here, held, other) == 2


def test_a_queue_is_removed_by_a_reload_while_it_has_no_messages():
    here = world()
    client = here.client()
    client.say(c="subscribe", t="jobs", cid="1")
    here.publish("orders", {"id": 1})
    with pytest.raises(ConfigError, match="queue jobs cannot be removed while it has 1 message "):
        reload(here, ORDERS, DEAD)
    (line,) = client.lines()
    client.say(c="sow_delete", t="jobs", bm=line["bm"])
    assert reload(here, ORDERS, DEAD) == ["queue jobs removed"]
    assert [(one["c"], one["reason"]) for one in client.lines()] == [("unsubscribed", "REMOVAL")]
    assert client.say(c="sow", t="jobs", cid="2")[-1]["reason"] == "invalid topic"
    here.publish("orders", {"id": 2})
    assert here.engine.topics["orders"].queues == ()
    assert not here.engine.topics[LEASES.name].records.table.slots
    assert reload(here, ORDERS, DEAD, topic()) == ["queue jobs added"]
    here.publish("orders", {"id": 3})
    here = here.restart()
    assert [one.body for one in taken(here)] == [b'{"id":3}']


def test_leases_and_backlogs_change_while_messages_wait_and_what_is_held_stays_held():
    here = world()
    here.publish("orders", *({"id": number} for number in range(4)))
    (held,) = taken(here, 1)
    changed = topic(lease_us=SECOND, deliveries_max=1, backlog_max=2, dead_letters="dead")
    assert reload(here, ORDERS, DEAD, changed) == [
        "DeadLetterTopic, LeasePeriod, MaxBacklog, MaxDeliveries of jobs changed"
    ]
    (other,) = taken(here, 9, "b")
    assert (held.until_us - other.until_us) == 9 * SECOND
    assert acknowledge(here, held) == 1
    here.advance(SECOND)
    assert here.records("dead") == [{"id": 1}]


def test_a_message_is_never_delivered_more_often_than_a_lower_limit_says():
    here = world()
    here.publish("orders", {"id": 1}, {"id": 2})
    for _ in range(2):
        assert len(taken(here, 1)) == 1
        here.advance(LEASE_US)
    reload(here, ORDERS, DEAD, topic(deliveries_max=2, dead_letters="dead"))
    assert [one.body for one in taken(here)] == [b'{"id":2}']
    here.advance(0)
    assert here.records("dead") == [{"id": 1}]


def test_what_becomes_of_messages_is_changed_only_while_there_are_none():
    here = world()
    here.publish("orders", {"id": 1})
    changed = topic(priority="/p", barrier="/b = 1", semantics="at-most-once")
    with pytest.raises(ConfigError, match="BarrierExpression, Priority, Semantics of queue jobs "):
        reload(here, ORDERS, DEAD, changed)
    acknowledge(here, *taken(here))
    reload(here, ORDERS, DEAD, topic(priority="/p", underlying="dead"))
    here.publish("orders", {"id": 1})
    here.publish("dead", {"id": 2, "p": 1}, {"id": 3, "p": 2})
    assert [one.body for one in taken(here)] == [b'{"id":3,"p":2}', b'{"id":2,"p":1}']


@pytest.mark.parametrize("after", [(), (topic(priority="/p"),)])
def test_a_message_that_comes_while_a_reload_works_is_under_the_new_queue(after):
    here = world()
    configuration = replace(here.configuration, topics=(ORDERS, DEAD, *after, LEASES))
    number = 0
    for _ in here.executor.reconfiguration(configuration, here.now):
        number += 2
        here.publish("orders", *({"id": at, "p": at} for at in (number, number + 1)))
    bodies = [one.body for one in taken(here)] if after else []
    assert bodies == sorted(bodies, reverse=True)
    assert len(bodies) == (number if after else 0)
    assert ("jobs" in here.engine.topics) == bool(after)
    here.check()


def test_a_lease_takes_no_more_memory_than_its_record_shows():
    here = world()
    here.publish("orders", *({"id": number} for number in range(200)))
    taken(here, 100)
    tracemalloc.start()
    try:
        taken(here, 100, "b")
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken_bytes < 100 * 2_000
