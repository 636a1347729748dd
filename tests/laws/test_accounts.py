"""The server's own accounts: exact and durable, and no holes in the log of everybody else."""

from dataclasses import replace

import pytest

from sow.core.definitions import CONSUMERS, WRITES, WRITES_BEFORE
from sow.errors import ClientError
from sow.sessions.commands.commit_plan import StagedRows
from sow.sessions.commands.consumers import Consumers
from sow.sessions.commands.staged_writes import EpochPassed, StagedWrites
from sow.store.protocols import LogEntry
from tests.history.reading import extent, log_rows
from tests.laws.harness import ORDERS, SECOND, World

TRADES = replace(ORDERS, name="trades")


@pytest.fixture
def world():
    return World(ORDERS, WRITES, WRITES_BEFORE, CONSUMERS)


def write(world, epoch, *ids, topic="orders"):
    writes, orders = StagedWrites(world.engine), world.engine.topics[topic]
    bodies = [b'{"id":%d}' % n for n in ids]
    steps, _ = writes.read(orders, StagedRows(["publish"] * len(ids), [None] * len(ids), bodies))
    bookmark = writes.apply("w", epoch, topic, steps, world.now)
    world.settle()
    return bookmark


def logged(world):
    topics = {"orders": world.engine.topics["orders"].records}
    part = extent(world.journal, 0, None, 10**6, topics)
    return [seq for rows in log_rows(world.journal, part, topics) for seq in rows.seqs]


def test_neither_commits_nor_consumers_leave_holes_in_the_log(world):
    world.publish("orders", {"id": 1})
    assert write(world, 1, 2, 3) == 3
    Consumers(world.engine).move("reader", 2, world.now)
    world.settle()
    assert write(world, 2) == 3
    assert world.publish("orders", {"id": 4}) == 4
    Consumers(world.engine).remove("reader", world.now)
    world.settle()
    assert world.publish("orders", {"id": 5}) == 5
    assert logged(world) == [1, 2, 3, 4, 5]
    world.check()


def test_accounts_are_exact_after_a_restart(world):
    for n in range(5):
        write(world, n, n)
        Consumers(world.engine).move("reader", n, world.now)
        Consumers(world.engine).move(f"other {n}", n, world.now)
    Consumers(world.engine).remove("other 2", world.now)
    world.settle()
    again = world.restart()
    assert Consumers(again.engine).positions() == {
        "reader": 4, "other 0": 0, "other 1": 1, "other 3": 3, "other 4": 4
    }  # fmt: skip
    assert StagedWrites(again.engine).applied("w", 4, "orders") == "5"
    assert StagedWrites(again.engine).applied("w", 5, "orders") is None
    again.check()
    assert again.publish("orders", {"id": 9}) == 6


def test_a_commit_that_a_crash_took_back_is_not_known(world):
    write(world, 1, 1)
    writes, orders = StagedWrites(world.engine), world.engine.topics["orders"]
    steps, _ = writes.read(orders, StagedRows(["publish"], [None], [b'{"id":2}']))
    writes.apply("w", 2, "orders", steps, world.now)
    again = world.restart()
    assert StagedWrites(again.engine).applied("w", 2, "orders") is None
    assert write(again, 2, 2) == 2


def test_a_writers_account_expires_for_good(world):
    write(world, 1, 1)
    again = world.restart()
    again.clock.advance(31 * 86_400 * SECOND)
    again.engine.advance(again.now)
    again.settle()
    assert StagedWrites(again.engine).applied("w", 1, "orders") is None
    assert StagedWrites(again.restart().engine).applied("w", 1, "orders") is None


def test_a_writer_has_an_account_for_each_topic():
    world = World(ORDERS, TRADES, WRITES, WRITES_BEFORE, CONSUMERS)
    write(world, 5, 1)
    writes = StagedWrites(world.engine)
    assert writes.applied("w", 5, "orders") == "1"
    assert writes.applied("w", 5, "trades") is None
    with pytest.raises(EpochPassed, match="epoch 5 to orders, and this is epoch 4"):
        writes.applied("w", 4, "orders")
    assert writes.applied("w", 4, "orders", passes_over=True) == "1"
    assert write(world, 5, 2, topic="trades") == 2
    again = StagedWrites(world.restart().engine)
    assert again.applied("w", 5, "trades") == "2"
    assert again.applied("w", 6, "trades") is None


def test_a_writers_account_of_the_version_before_stands_for_every_topic(world):
    before = b'{"writer":"w","epoch":7,"bookmark":"0","rows":1}'
    account = LogEntry("publish", WRITES_BEFORE.name, 0, world.now, ["w"], [before], 0, True)
    world.journal.append([account])
    again = world.restart()
    writes = StagedWrites(again.engine)
    assert writes.applied("w", 7, "orders") == "0"
    with pytest.raises(EpochPassed):
        writes.applied("w", 6, "orders")
    assert write(again, 8, 1) == 1
    assert writes.applied("w", 8, "orders") == "1"


def test_accounts_that_an_earlier_version_has_numbered_are_taken_over(world):
    now, applied = world.now, b'{"writer":"w","epoch":7,"bookmark":"1"}'
    world.journal.append(
        [
            LogEntry("publish", "orders", 1, now, None, [b'{"id":1}']),
            LogEntry("publish", CONSUMERS.name, 2, now, None, [b'{"name":"a","bookmark":"1"}']),
            LogEntry("publish", CONSUMERS.name, 3, now, None, [b'{"name":"b","bookmark":"1"}']),
            LogEntry("publish", WRITES_BEFORE.name, 4, now, None, [applied], now + 60 * SECOND),
            LogEntry("delete", CONSUMERS.name, 5, now, ["b"], []),
        ]
    )  # fmt: skip
    older = world.restart()
    assert Consumers(older.engine).positions() == {"a": 1}
    older.settle()
    Consumers(older.engine).remove("a", older.now)
    assert older.publish("orders", {"id": 2}) == 6
    again = older.restart()
    assert Consumers(again.engine).positions() == {}
    assert StagedWrites(again.engine).applied("w", 7, "orders") == "1"
    again.advance(61 * SECOND)
    assert StagedWrites(again.engine).applied("w", 7, "orders") is None
    again.check()


def test_what_an_earlier_version_numbers_in_between_is_taken_over_too(world):
    write(world, 1, 1, 2)
    Consumers(world.engine).move("a", 1, world.now)
    Consumers(world.engine).move("b", 2, world.now)
    world.settle()
    moved = b'{"name":"a","bookmark":"3"}'
    seq, applied = world.engine.seq, b'{"writer":"w","epoch":2,"bookmark":"3"}'
    world.journal.append(
        [
            LogEntry("publish", "orders", seq + 1, world.now, None, [b'{"id":3}']),
            LogEntry("publish", WRITES_BEFORE.name, seq + 2, world.now, None, [applied]),
            LogEntry("publish", CONSUMERS.name, seq + 3, world.now, None, [moved]),
        ]
    )  # fmt: skip
    again = world.restart()
    assert Consumers(again.engine).positions() == {"a": 3, "b": 2}
    assert StagedWrites(again.engine).applied("w", 2, "orders") == "3"
    again.settle()
    Consumers(again.engine).remove("a", again.now)
    again.settle()
    assert Consumers(again.restart().engine).positions() == {"b": 2}


def test_accounts_of_a_later_version_are_left_to_it(world):
    world.journal.append([LogEntry("publish", "/sow/later", 0, world.now, ["x"], [b"{}"], 0, True)])
    again = world.restart()
    assert Consumers(again.engine).positions() == {}
    assert [entry.topic for entry in world.journal.accounts()] == ["/sow/later"]


def test_what_has_no_log_is_not_replayed_but_can_be_followed(world):
    client = world.client()
    (ack,) = client.say(c="subscribe", t=CONSUMERS.name, bm="0", cid="1")
    assert "not in the log" in ack["detail"]
    client.say(c="sow_and_subscribe", t=CONSUMERS.name, cid="2", opts="oof")
    replay = world.client()
    replay.say(c="subscribe", t="orders", bm="0", cid="3")
    consumers = Consumers(world.engine)
    for position in (0, 1):
        world.publish("orders", {"id": position})
        consumers.move("reader", position, world.now)
        world.settle()
    consumers.remove("reader", world.now)
    world.settle()
    told = [line["c"] for line in client.lines() if line["c"] in ("p", "oof")]
    assert told == ["p", "p", "oof"]
    assert [d for _, d in replay.data()] == [{"id": 0}, {"id": 1}]


def test_a_consumer_cannot_be_ahead_of_the_log(world):
    with pytest.raises(ClientError, match="not there yet"):
        Consumers(world.engine).move("reader", 1, world.now)
