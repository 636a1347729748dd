"""Publish and delete: records, keys, bookmarks, all or nothing."""

import pytest

from sow.core.definitions import CONSUMERS, WRITES, WRITES_BEFORE, Topic
from sow.errors import BadMessage, DiskFull, InvalidTopic
from sow.sessions.commands.commit_plan import StagedRows
from sow.sessions.commands.consumers import Consumers
from sow.sessions.commands.staged_writes import StagedWrites
from tests.laws.harness import ORDERS, SECOND, World

SHORT = Topic("short", "json", keys=("/id",), expires=True)


@pytest.fixture
def world():
    return World()


def test_a_publish_inserts_a_record(world):
    world.publish("orders", {"id": 1, "symbol": "A"})
    assert world.records("orders") == [{"id": 1, "symbol": "A"}]


def test_a_publish_with_the_same_key_replaces_the_record_in_its_place(world):
    world.publish("orders", {"id": 1, "px": 1}, {"id": 2})
    world.publish("orders", {"id": 1, "px": 2})
    assert world.records("orders") == [{"id": 1, "px": 2}, {"id": 2}]


def test_a_key_twice_in_one_batch_keeps_the_later_message(world):
    world.publish("orders", {"id": 1, "px": 1}, {"id": 1, "px": 2})
    assert world.records("orders") == [{"id": 1, "px": 2}]


def test_a_record_deleted_and_published_again_comes_last(world):
    world.publish("orders", {"id": 1}, {"id": 2})
    world.delete("orders", "/id = 1")
    world.publish("orders", {"id": 1})
    assert world.records("orders") == [{"id": 2}, {"id": 1}]
    world.check()


def test_bookmarks_count_every_record(world):
    assert world.publish("orders", {"id": 1}, {"id": 2}) == 2
    assert world.publish("orders", {"id": 1}) == 3


def test_one_bad_message_refuses_the_whole_batch(world):
    with pytest.raises(BadMessage) as refused:
        world.publish("orders", {"id": 1}, {"no": "key"}, {"id": 3})
    assert refused.value.index == 1
    assert world.records("orders") == []
    assert world.engine.seq == 0


def test_publishing_to_a_conflated_topic_says_where_to_publish(world):
    with pytest.raises(InvalidTopic, match="publish to orders"):
        world.publish("orders-C", {"id": 1})


def test_a_full_disk_refuses_at_the_door_and_reads_go_on(world):
    world.publish("orders", {"id": 1})
    world.journal.full = True
    with pytest.raises(DiskFull):
        world.publish("orders", {"id": 2})
    assert world.records("orders") == [{"id": 1}]
    world.journal.full = False
    world.publish("orders", {"id": 2})
    assert len(world.records("orders")) == 2


@pytest.fixture
def full():
    """A world on a full disk; its reserve has room for some names of records."""
    world = World(ORDERS, SHORT, WRITES, WRITES_BEFORE, CONSUMERS)
    world.publish("orders", *({"id": n} for n in range(1000)))
    world.publish("short", {"id": 1}, expires_s=1)
    world.journal.full, world.journal.reserve_bytes = True, 10_000
    return world


def test_records_are_deleted_out_of_the_reserve_of_a_full_disk(full):
    (ack,) = full.client().say(c="sow_delete", t="orders", filter="/id < 10", a="persisted")
    assert (ack["status"], ack["deleted"]) == ("success", 10)
    full.advance(2 * SECOND)
    assert full.records("short") == []
    assert len(full.restart().records("orders")) == 990
    with pytest.raises(DiskFull):
        full.publish("orders", {"id": 1})


def test_a_delete_that_the_reserve_cannot_take_is_refused_whole(full):
    full.journal.reserve_bytes = 100
    (ack,) = full.client().say(c="sow_delete", t="orders", filter="1=1")
    assert (ack["status"], ack["reason"]) == ("failure", "disk full")
    assert len(full.records("orders")) == 1000
    (ack,) = full.client().say(c="sow_delete", t="orders", filter="/id = 1", cid="1")
    assert ack["deleted"] == 1


def test_what_is_on_its_way_has_its_part_of_the_reserve(full):
    full.journal.reserve_bytes = 25
    client = full.client()
    delete = '{"c":"sow_delete","t":"orders","cid":"%d","filter":"/id = %d"}'
    acks = client.send("\n".join(delete % (n, n) for n in range(100, 120)).encode())
    assert [ack["status"] for ack in acks] == ["success"] * 8 + ["failure"] * 12
    full.restart().check()


def test_consumers_move_on_a_full_disk_as_far_as_the_reserve_goes(full):
    consumers = Consumers(full.engine)
    consumers.move("reader", 5, full.now)
    full.settle()
    assert Consumers(full.restart().engine).positions() == {"reader": 5}
    full.journal.reserve_bytes = 0
    with pytest.raises(DiskFull):
        consumers.move("reader", 6, full.now)
    with pytest.raises(DiskFull):
        consumers.remove("reader", full.now)
    assert consumers.positions() == {"reader": 5}


@pytest.mark.parametrize(
    ("operations", "taken"),
    [(["delete"], True), (["delete", "publish"], False), (["delta"], False)],
)
def test_a_staged_batch_that_only_deletes_is_applied_on_a_full_disk(full, operations, taken):
    writes, orders = StagedWrites(full.engine), full.engine.topics["orders"]
    bodies = [b'{"id":%d}' % n for n in range(len(operations))]
    steps, _ = writes.read(orders, StagedRows(operations, [None] * len(bodies), bodies))
    if taken:
        writes.apply("w", 1, "orders", steps, full.now)
        full.settle()
        assert len(full.restart().records("orders")) == 999
    else:
        with pytest.raises(DiskFull):
            writes.apply("w", 1, "orders", steps, full.now)
    assert (writes.applied("w", 1, "orders") is not None) is taken


def test_a_delete_by_filter_reports_how_many(world):
    world.publish("orders", {"id": 1, "px": 1}, {"id": 2, "px": 5}, {"id": 3, "px": 7})
    (ack,) = world.client().say(c="sow_delete", t="orders", filter="/px > 4", cid="d")
    assert ack["deleted"] == 2
    assert world.records("orders") == [{"id": 1, "px": 1}]


def test_a_delete_by_body_goes_by_the_key_fields(world):
    world.publish("orders", {"id": 1}, {"id": 2})
    world.client().say(c="sow_delete", t="orders", d={"id": 2, "other": "field"})
    assert world.records("orders") == [{"id": 1}]


def test_a_delete_by_bodies_that_follow(world):
    world.publish("orders", {"id": 1}, {"id": 2}, {"id": 3})
    world.client().send(b'{"c":"sow_delete","t":"orders","n":2}\n{"id":3}\n{"id":1}')
    assert world.records("orders") == [{"id": 2}]


def test_a_delete_by_sow_key(world):
    world.publish("orders", {"id": 1}, {"id": 2})
    world.client().say(c="sow_delete", t="orders", k=world.sow_key("orders", "2"))
    assert world.records("orders") == [{"id": 1}]


def test_explicit_keys_are_the_records_names():
    world = World(Topic("blobs", "binary"))
    world.engine.publish("blobs", [b"\x00\x01"], world.now, key="a")
    world.engine.publish("blobs", [b"\x02"], world.now, key="a")
    table = world.engine.topics["blobs"].records.table
    assert (len(table), table.bodies[table.find("a")]) == (1, b"\x02")


def test_equal_values_of_different_json_types_are_one_key(world):
    world.publish("orders", {"id": 1})
    world.publish("orders", {"id": "1", "new": True})
    assert len(world.records("orders")) == 1


def test_records_expire_after_the_default_lifetime():
    world = World(Topic("t", "json", keys=("/id",), expires=True, expiration_us=10 * SECOND))
    world.publish("t", {"id": 1})
    world.advance(9 * SECOND)
    assert len(world.records("t")) == 1
    world.advance(SECOND)
    assert world.records("t") == []


def test_a_publish_renews_the_lifetime():
    world = World(Topic("t", "json", keys=("/id",), expires=True, expiration_us=10 * SECOND))
    world.publish("t", {"id": 1})
    world.advance(9 * SECOND)
    world.publish("t", {"id": 1})
    world.advance(9 * SECOND)
    assert len(world.records("t")) == 1


def test_a_message_may_carry_its_own_lifetime():
    world = World(Topic("t", "json", keys=("/id",), expires=True))
    world.publish("t", {"id": 1}, expires_s=2)
    world.publish("t", {"id": 2})
    world.advance(2 * SECOND)
    assert world.records("t") == [{"id": 2}]


def test_the_log_holds_every_change_in_order(world):
    world.publish("orders", {"id": 1}, {"id": 2})
    world.delete("orders", "/id = 1")
    entries = list(world.journal.read(0))
    assert [(entry.op, entry.seq, len(entry)) for entry in entries] == [
        ("publish", 1, 2),
        ("delete", 3, 1),
    ]


def test_a_transient_topic_keeps_its_place_in_the_log_but_not_its_bodies():
    world = World(Topic("t", "json", keys=("/id",), durability="transient"), ORDERS)
    world.publish("t", {"id": 1})
    assert [list(entry.bodies) for entry in world.journal.read(0)] == [[b""]]
    again = world.restart()
    assert again.records("t") == []
    assert again.publish("orders", {"id": 1}) == 2


# Publishes that follow each other are carried out as one batch, without a visible difference.


def publishes(*bodies):
    lines = [
        b'{"c":"publish","t":"orders","cid":"%d","d":%b}' % (n, b) for n, b in enumerate(bodies)
    ]
    return b"\n".join(lines)


def test_commands_between_publishes_keep_their_place(world):
    frame = publishes(b'{"id":1}') + b'\n{"c":"sow","t":"orders"}\n' + publishes(b'{"id":2}')
    lines = world.client().send(frame)
    assert [line["d"] for line in lines if line["c"] == "sow"] == [{"id": 1}]


def test_publishes_to_different_topics_keep_their_order():
    world = World(ORDERS, Topic("trades", "json", keys=("/id",)))
    frame = b"\n".join(
        b'{"c":"publish","t":"%b","d":{"id":%d}}' % (topic, number)
        for number, topic in enumerate([b"orders", b"orders", b"trades", b"orders"])
    )
    world.client().send(frame)
    assert [entry.topic for entry in world.journal.read(0)] == ["orders", "trades", "orders"]
