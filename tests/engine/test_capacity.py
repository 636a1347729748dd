"""Records are bounded, of a topic and in all: what grows beyond is refused as a whole."""

from dataclasses import replace

import numpy as np
import orjson
import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES, WRITES_BEFORE, ConflatedTopic, Limits, Topic
from sow.engine.capacity import DiskReserve
from sow.engine.wal import CommitSequencer
from sow.errors import DiskFull, Full, StoreError, StoreFailing, TooLarge
from sow.sessions.commands.commit_plan import StagedRows
from sow.sessions.commands.staged_writes import StagedWrites
from sow.store.memory import RECORD_BYTES
from sow.store.protocols import LogEntry
from tests.laws.harness import MS, ORDERS, SECOND, SLOW, World

FEW = replace(ORDERS, records_max=3)
DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/", records_max=2)
BODY = b'{"id":%d}'


def bounded(*topics, memory_bytes_max):
    world = World(*topics)
    limit(world, memory_bytes_max)
    return world


def limit(world, memory_bytes_max):
    limits = Limits(memory_bytes_max=memory_bytes_max)
    world.engine.adopt(replace(world.engine.configuration, limits=limits))


def bodies(*numbers):
    return [BODY % number for number in numbers]


def publish(world, *numbers, topic="orders", **more):
    return world.engine.publish(topic, bodies(*numbers), world.now, **more)


def ids(world, topic="orders"):
    return sorted(world.engine.topics[topic].records.table.slots)


def counted(world):
    """What the tables hold, added up."""
    tables = [topic.records.table for topic in world.engine.catalog.listed()]
    return sum(table.bytes + RECORD_BYTES * len(table) for table in tables)


def test_a_topic_holds_so_many_records_and_the_rest_is_refused_as_a_whole():
    world = World(FEW)
    publish(world, 1, 2)
    with pytest.raises(Full, match=r"may hold 3 records \(MaxRecords\)") as refused:
        publish(world, 3, 4)
    assert (refused.value.status, refused.value.reason) == (507, "topic full")
    assert len(ids(world)) == 2
    publish(world, 3, 3, 3)
    publish(world, 1, 2, 3)
    with pytest.raises(Full):
        publish(world, 1, 4)
    table = world.engine.topics["orders"].records.table
    run_to_completion(world.engine.removal("orders", table.live()[:1], world.now))
    publish(world, 4)
    assert len(ids(world)) == 3


def test_a_message_has_so_many_bytes():
    world = World(ORDERS)
    limits = Limits(message_bytes_max=len(BODY % 1))
    world.engine.adopt(replace(world.engine.configuration, limits=limits))
    publish(world, 1)
    with pytest.raises(TooLarge, match=r"a message of \d+ bytes is over .* \(Limits/MessageSize\)"):
        publish(world, 2, 1000)
    assert len(ids(world)) == 1


def test_each_topic_of_a_pattern_is_bounded_by_itself():
    world = World(DESKS)
    publish(world, 1, 2, topic="/desk/1")
    publish(world, 1, 2, topic="/desk/2")
    with pytest.raises(Full):
        publish(world, 3, topic="/desk/1")
    with pytest.raises(Full):
        publish(world, 1, 2, 3, topic="/desk/3")
    assert "/desk/3" not in world.engine.topics


def test_memory_counts_bodies_and_what_is_kept_beside_each_and_copies():
    world = bounded(ORDERS, SLOW, memory_bytes_max=2 * 2 * (len(BODY % 1) + RECORD_BYTES))
    publish(world, 1, 2)
    world.settle()
    world.advance(2 * SECOND)
    with pytest.raises(Full, match=r"\(Limits/Memory\)") as refused:
        publish(world, 3)
    assert refused.value.reason == "memory full"
    assert world.engine.capacity.used_bytes == counted(world)
    assert world.engine.capacity.is_full
    publish(world, 1, 2)
    with pytest.raises(Full):
        world.engine.publish("orders", [b'{"id":1,"more":true}'], world.now)
    with pytest.raises(Full):
        world.engine.publish("orders", [b'{"more":true,"id":1}'], world.now, delta=True)
    run_to_completion(world.engine.removal("orders", np.array([0]), world.now))
    world.settle()
    world.advance(2 * SECOND)
    assert world.engine.capacity.used_bytes == counted(world)
    publish(world, 3)


def test_what_expires_makes_room():
    short = replace(ORDERS, records_max=1, expires=True)
    world = World(short)
    publish(world, 1, expires_s=1)
    with pytest.raises(Full):
        publish(world, 2)
    world.advance(SECOND + MS)
    publish(world, 2)


def test_a_session_is_sent_and_the_good_commands_of_its_frame_are_carried_out():
    world = World(FEW)
    client = world.client()
    commands = [
        {"c": "publish", "t": "orders", "d": {"id": number}, "cid": str(number)}
        for number in range(5)
    ]
    acks = client.send(b"\n".join(orjson.dumps(command) for command in commands))
    assert [ack["status"] for ack in acks] == ["success"] * 3 + ["failure"] * 2
    assert acks[-1]["reason"] == "topic full"


def test_a_lower_limit_starts_and_hides_nothing_but_takes_no_more():
    world = World(ORDERS)
    publish(world, 1, 2, 3, 4)
    world.settle()
    again = world.restart(FEW)
    assert len(ids(again)) == 4
    assert again.engine.capacity.used_bytes == counted(again)
    publish(again, 4)
    with pytest.raises(Full):
        publish(again, 5)
    limit(again, 1)
    assert again.engine.capacity.is_full
    publish(again, 4)


def test_a_staged_batch_is_taken_with_the_room_that_it_makes_or_not_at_all():
    world = World(FEW, WRITES, WRITES_BEFORE)
    publish(world, 1, 2, 3)
    writes = StagedWrites(world.engine)
    topic = writes.topic("orders")

    def apply(epoch, *rows):
        operations, numbers = zip(*rows, strict=True)
        read = StagedRows(operations, [None] * len(rows), bodies(*numbers))
        steps, rejected = writes.read(topic, read)
        assert not rejected
        return writes.apply("w", epoch, "orders", steps, world.now)

    with pytest.raises(Full):
        apply(1, ("publish", 4), ("delete", 9))
    assert writes.applied("w", 1, "orders") is None
    with pytest.raises(Full):
        apply(1, ("delta", 4), ("delta", 5))
    apply(1, ("delete", 1), ("delete", 2), ("publish", 4), ("delta", 5), ("delta", 3))
    assert len(ids(world)) == 3


def test_a_topic_without_records_is_bounded_by_its_copies():
    passing = replace(ORDERS, retain=False)
    copy = ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND)
    world = bounded(passing, copy, memory_bytes_max=2 * RECORD_BYTES)
    publish(world, 1)
    world.settle()
    world.advance(2 * SECOND)
    with pytest.raises(Full):
        publish(world, 2, 3)
    publish(world, 1)


def test_a_copy_that_is_removed_takes_its_share_along():
    world = World(ORDERS, SLOW)
    publish(world, 1, 2)
    world.advance(2 * SECOND)
    world.executor.reconfigure(
        replace(
            world.engine.configuration,
            topics=tuple(t for t in world.engine.configuration.topics if t.name != SLOW.name),
        ),
        world.now,
    )
    assert world.engine.capacity.used_bytes == counted(world)


def test_max_records_can_be_changed_while_the_server_runs():
    world = World(FEW, DESKS)
    publish(world, 1, 2, topic="/desk/1")
    topics = tuple(
        replace(t, records_max=5) if t.name in ("orders", "desks") else t
        for t in world.engine.configuration.topics
    )
    changes = world.executor.reconfigure(
        replace(world.engine.configuration, topics=topics), world.now
    )
    assert changes == ["MaxRecords of orders changed", "MaxRecords of desks changed"]
    publish(world, 1, 2, 3, 4, 5)
    publish(world, 3, 4, topic="/desk/1")
    publish(world, 1, 2, 3, 4, topic="/desk/2")
    with pytest.raises(Full):
        publish(world, 6)


def test_it_is_sent_how_full_it_is():
    world = bounded(ORDERS, memory_bytes_max=2 * (len(BODY % 1) + RECORD_BYTES))
    publish(world, 1)
    assert world.engine.capacity.warning is None
    publish(world, 2)
    assert world.engine.capacity.warning == (
        "records and views take 616 of 616 bytes (Limits/Memory)"
    )


class Disk:
    """A disk that is full or not, with a reserve."""

    def __init__(self):
        self.is_full, self.reserve_bytes, self.lost = False, 10, None
        self.sequencer = CommitSequencer()
        self.room = DiskReserve(
            self.sequencer,
            lambda _size_bytes: not self.is_full,
            lambda size_bytes: size_bytes <= self.reserve_bytes,
            lambda: self.lost,
        )


@pytest.fixture
def disk():
    return Disk()


def test_a_full_disk_takes_no_messages_but_what_fits_into_its_reserve(disk):
    disk.room.check()
    disk.is_full = True
    with pytest.raises(DiskFull, match="nothing was stored"):
        disk.room.check()
    disk.room.check_reserve(lambda: 10)
    with pytest.raises(DiskFull, match="and so is its reserve"):
        disk.room.check_reserve(lambda: 11)


def test_a_disk_that_has_lost_what_it_had_is_not_called_full(disk):
    disk.is_full, disk.lost = True, StoreFailing("it has gone")
    for check in (
        disk.room.check,
        lambda: disk.room.check_whole(1),
        lambda: disk.room.check_reserve(lambda: 11),
    ):
        with pytest.raises(StoreFailing, match="it has gone"):
            check()


def test_what_is_on_its_way_has_its_part_of_the_reserve(disk):
    disk.is_full = True
    disk.sequencer.write(LogEntry("delete", "t", 1, 0, ["four"], ()))
    disk.room.check_reserve(lambda: 6)
    with pytest.raises(DiskFull):
        disk.room.check_reserve(lambda: 7)


def test_the_size_is_only_requested_for_on_a_full_disk(disk):
    disk.room.check_reserve(lambda: pytest.fail("asked"))


def test_a_removal_takes_the_bytes_of_its_identities(disk):
    disk.is_full = True
    disk.room.check_removal(["äöü", "four"])
    with pytest.raises(DiskFull):
        disk.room.check_removal(["äöü", "fives"])


def test_while_the_disk_refuses_nothing_is_taken(disk):
    failure = StoreError("the disk is on fire")
    disk.room.fail(failure)
    assert disk.room.failure is failure
    for ask in (disk.room.check, lambda: disk.room.check_removal(["a"])):
        with pytest.raises(StoreError, match="on fire"):
            ask()
    disk.room.recover()
    disk.room.check()
    disk.room.check_removal(["a"])
    assert disk.room.failure is None
