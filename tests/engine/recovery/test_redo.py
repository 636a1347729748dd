"""Redo: checkpoints, log and accounts give back exactly what was there, in steps."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES, Limits, Topic
from sow.engine.recovery import redo
from sow.engine.recovery.redo import (
    LogTailReplay,
    Progress,
    restore,
    restore_accounts,
    stored_slices,
)
from sow.errors import StoreError
from sow.messages import message_type
from sow.messages.json import JsonDecoder
from sow.store.manifest import past_of
from sow.store.protocols import LogEntry, Slice, numbers
from sow.topic.records import Records
from tests.engine.making import COPIES, DESKS, ORDERS, SLOW, catalog, documents, put
from tests.laws import harness
from tests.laws.harness import SECOND, World
from tests.store.in_memory import MemoryCheckpoint, MemoryJournal

EXPIRING = replace(ORDERS, expires=True)


def entry(seq, *bodies, topic="orders", ts_us=0, op="publish", identities=None, expires_us=0):
    return LogEntry(op, topic, seq, ts_us, identities, bodies, expires_us)


def restored(topics, *log, checkpoints=None, before=None, **more):
    made, sequencer = catalog(*topics, **more)
    past = past_of(catalog(*(before or topics))[0].configuration)
    last_seq = max(one.seq + len(one) - 1 for one in log)
    steps = restore(made, sequencer, past, checkpoints or {}, log, last_seq, Progress())
    return made, sequencer, run_to_completion(steps)


def test_the_log_is_applied_in_its_order():
    log = [
        entry(1, b'{"id":1,"a":1}', b'{"id":2}'),
        entry(3, b'{"id":1,"a":2}'),
        entry(4, op="delete", identities=["2"]),
    ]
    made, sequencer, orphaned = restored([ORDERS], *log)
    assert documents(made.topics["orders"].records) == [{"id": 1, "a": 2}]
    assert (sequencer.seq, orphaned) == (4, [])
    assert not sequencer.open.entries, "a restart writes nothing"


def test_time_goes_on_from_the_newest_that_is_found():
    _, sequencer, _ = restored(
        [ORDERS], entry(1, b'{"id":1}', ts_us=70), entry(2, b'{"id":2}', ts_us=50)
    )
    assert sequencer.now_us == 70


def test_a_checkpoint_stands_before_the_log_after_it():
    first, _ = catalog(ORDERS)
    put(first.topics["orders"], {"id": 1, "a": 1}, {"id": 2, "a": 1}, now_us=90)
    checkpoint = MemoryCheckpoint()
    checkpoint.write(2, stored_slices(first, "orders", 10))
    made, sequencer, _ = restored(
        [ORDERS],
        entry(2, b'{"id":2,"a":0}'),
        entry(3, b'{"id":1,"a":2}'),
        checkpoints={"orders": checkpoint},
    )
    assert documents(made.topics["orders"].records) == [{"id": 1, "a": 2}, {"id": 2, "a": 1}]
    assert sequencer.now_us == 90


INDEXED = replace(ORDERS, hash_indexes=(("/a",),), indexes=("/b",))
LIVES = [
    (INDEXED, True),
    (replace(INDEXED, hash_indexes=(("/a",), ("/b",))), False),
    (replace(INDEXED, hash_indexes=(("/b",),)), False),
    (replace(INDEXED, indexes=()), False),
    (ORDERS, True),
]


@pytest.mark.parametrize(("life", "knows"), LIVES)
def test_what_indexes_knew_is_used_by_a_life_with_the_same_alone(life, knows, monkeypatch):
    first, _ = catalog(INDEXED)
    put(first.topics["orders"], *({"id": n, "a": n % 2, "b": n} for n in range(6)))
    checkpoint = MemoryCheckpoint()
    checkpoint.write(6, stored_slices(first, "orders", 4))
    assert all(part.values for part in checkpoint.load())
    read = []
    columns = JsonDecoder.columns
    monkeypatch.setattr(
        JsonDecoder, "columns", lambda self, bodies: read.extend(bodies) or columns(self, bodies)
    )
    log = entry(7, b'{"id":3,"a":8,"b":8}', b'{"id":9,"a":1}')
    made, _, _ = restored([life], log, checkpoints={"orders": checkpoint}, before=[INDEXED])
    records = made.topics["orders"].records
    assert len(read) == (2 if life is INDEXED else 0 if knows else 7)
    records.check()


def test_what_an_index_knew_of_a_field_is_not_that_of_another_written_alike():
    slashed, nested = (replace(ORDERS, hash_indexes=((path,),)) for path in ("$['a/b']", "/a/b"))
    first, _ = catalog(slashed)
    put(first.topics["orders"], {"id": 1, "a/b": "x"}, {"id": 2, "a": {"b": "x"}})
    checkpoint = MemoryCheckpoint()
    checkpoint.write(2, stored_slices(first, "orders", 4))
    log = entry(3, b'{"id":3}')
    made, _, _ = restored([nested], log, checkpoints={"orders": checkpoint}, before=[slashed])
    made.topics["orders"].records.check()


def test_expiries_and_copies_are_made_of_the_records():
    made, _, _ = restored([EXPIRING, SLOW], entry(1, b'{"id":1}', expires_us=40))
    assert made.topics["orders"].due_us() == 40
    assert documents(made.topics["slow"].records) == [{"id": 1}]
    made.check()


def test_empty_topics_over_a_limit_are_not_there_any_more_nor_are_their_copies():
    log = [entry(1, b'{"id":1}', topic="/desk/1"), entry(2, b'{"id":1}', topic="/desk/2")]
    log.append(entry(3, topic="/desk/2", op="delete", identities=["1"]))
    made, _, orphaned = restored([DESKS, COPIES], *log, limits=Limits(pattern_topics_max=1))
    assert list(made.topics) == ["/desk/1", "/desk/1-C"]
    assert orphaned == []
    made.check()


def test_records_without_a_place_are_handed_back():
    _, _, orphaned = restored([DESKS], entry(1, b'{"id":1}'), before=[ORDERS])
    assert [(one.name, one.count(0)) for one in orphaned] == [("orders", 1)]


def account(writer, seq, ts_us=0):
    body = b'{"writer":"%b","topic":"t"}' % writer.encode()
    return LogEntry("publish", WRITES.name, seq, ts_us, [writer], [body], 0, True)


def test_accounts_are_what_the_journal_keeps_and_nothing_else():
    made, sequencer = catalog(WRITES)
    own = made.topics[WRITES.name]
    own.records.put(["stale"], [b"{}"], {}, [1], [0])
    sequencer.begin_after(5)
    later = LogEntry("publish", "/sow/later", 3, 0, ["x"], [b"{}"], 0, True)
    assert restore_accounts(made, sequencer, [account("a", 3, ts_us=8), later]) == [own]
    assert list(own.records.table.slots) == ["a"]
    assert (sequencer.now_us, sequencer.open.entries) == (8, [])


def test_accounts_that_an_earlier_version_numbered_are_handed_to_the_journal():
    made, sequencer = catalog(WRITES)
    own = made.topics[WRITES.name]
    own.records.put(["old"], [b'{"writer":"old"}'], {}, [2], [0])
    sequencer.begin_after(5)
    restore_accounts(made, sequencer, None)
    assert list(own.records.table.slots) == ["old"]
    (written,) = sequencer.open.entries
    assert (written.account, written.seq, written.identities) == (True, 5, ["old"])


def test_what_an_earlier_version_numbered_after_the_newest_account_counts_too():
    made, sequencer = catalog(WRITES)
    own = made.topics[WRITES.name]
    own.records.put(["before", "after"], [b"{}", b"{}"], {}, [2, 4], [0, 0])
    sequencer.begin_after(5)
    restore_accounts(made, sequencer, [account("a", 3)])
    assert list(own.records.table.slots) == ["a", "after"]
    assert [entry.identities for entry in sequencer.open.entries] == [["after"]]


EXPIRING_T = Topic("t", "json", keys=("/id",), expires=True, expiration_us=10 * SECOND)


def state(world, name="orders"):
    table = world.engine.topics[name].records.table
    return [
        (table.identities[slot], table.bodies[slot], int(table.seqs[slot]), int(table.ts_us[slot]))
        for slot in table.live().tolist()
    ]


def checkpoint(world, name="orders", slots=3):
    """Write a checkpoint in small slices; `world` may be changed between them."""
    table = world.engine.topics[name].records.table
    world.checkpoints[name].write(
        world.engine.seq,
        [table.slice(start, slots) for start in range(0, len(table.bodies), slots)],
    )


def test_a_restart_from_the_log_alone():
    world = World(harness.ORDERS)
    world.publish("orders", {"id": 1}, {"id": 2})
    world.delete("orders", "/id = 1")
    world.publish("orders", {"id": 2, "px": 5})
    assert state(world.restart()) == state(world)


def test_bookmarks_go_on_where_they_stopped():
    world = World(harness.ORDERS)
    world.publish("orders", {"id": 1}, {"id": 2})
    assert world.restart().publish("orders", {"id": 3}) == 3


def test_records_keep_their_lifetime_over_a_restart():
    world = World(EXPIRING_T)
    world.publish("t", {"id": 1})
    again = world.restart()
    again.clock.advance(world.now - again.now)
    again.advance(10 * SECOND)
    assert again.records("t") == []


def test_records_keep_their_lifetime_over_a_checkpoint():
    world = World(EXPIRING_T)
    world.publish("t", {"id": 1})
    checkpoint(world, "t")
    again = world.restart()
    again.advance(9 * SECOND)
    assert again.records("t") == [{"id": 1}]
    again.advance(SECOND)
    assert again.records("t") == []


def test_a_record_that_expired_while_the_server_was_away_goes_at_once():
    world = World(EXPIRING_T)
    world.publish("t", {"id": 1})
    again = world.restart()
    again.clock.advance(60 * SECOND)
    again.engine.advance(again.now)
    assert again.records("t") == []


operations = st.lists(
    st.tuples(st.sampled_from(["publish", "publish", "publish", "delete"]), st.integers(0, 12)),
    max_size=60,
)


@example([("publish", 2), ("publish", 3), ("publish", 0)],
         [("delete", 0), ("publish", 0), ("publish", 1)], 0)  # fmt: skip
@example([], [("publish", 0), ("publish", 1), ("publish", 2), ("publish", 3)], 0)
@given(operations, operations, st.integers(0, 60))
def test_any_checkpoint_and_the_log_after_it_give_the_same_state(before, during, cut):
    """The checkpoint is fuzzy: each slice is cut at another moment of the traffic."""
    world = World(harness.ORDERS)
    apply(world, before)
    table = world.engine.topics["orders"].records.table
    seq, slices, start = world.engine.seq, [], 0
    for at, operation in enumerate(during):
        if start < len(table.bodies) and at >= cut % 5:
            slices.append(table.slice(start, 3))
            start += 3
        apply(world, [operation])
    while start < len(table.bodies):
        slices.append(table.slice(start, 3))
        start += 3
    world.checkpoints["orders"].write(seq, slices)
    again = world.restart()
    assert state(again) == state(world)
    again.check()


def apply(world, steps):
    for number, (kind, key) in enumerate(steps):
        if kind == "publish":
            world.publish("orders", {"id": key, "v": number, "symbol": f"S{key % 3}"})
        else:
            world.delete("orders", f"/id = {key}")


def times_of_the_log(world):
    return [entry.ts_us for entry in world.journal.read(world.journal.first_seq - 1)]


def test_a_clock_that_was_set_back_stops_nothing():
    world = World(harness.ORDERS, harness.SLOW, EXPIRING_T)
    world.publish("orders", {"id": 1})
    world.publish("t", {"id": 1})
    world = world.restart(start_us=SECOND)
    client = world.client()
    client.say(c="subscribe", t="orders", opts="conflation=1s")
    world.publish("orders", {"id": 2})
    world.publish("t", {"id": 2})
    world.advance(2 * SECOND)
    assert [record["id"] for record in world.records("orders-C")] == [1, 2]
    assert client.data() == [("p", {"id": 2})]
    world.advance(10 * SECOND)
    assert world.records("t") == []
    times = times_of_the_log(world)
    assert times == sorted(times)


def test_time_goes_on_from_a_checkpoint_when_the_log_is_gone():
    world = World(harness.ORDERS)
    world.publish("orders", {"id": 1})
    checkpoint(world)
    world.journal = MemoryJournal(retention_bytes=0)
    again = World(harness.ORDERS, checkpoints=world.checkpoints, start_us=SECOND)
    assert again.now == world.now


def test_time_goes_on_from_a_delete_that_every_checkpoint_contains():
    world = World(harness.ORDERS)
    world.publish("orders", {"id": 1})
    world.advance(SECOND)
    world.delete("orders", "1=1")
    checkpoint(world)
    assert world.restart(start_us=SECOND).now == world.now


def test_the_times_of_the_log_do_not_go_back_whatever_time_is_given():
    world = World(harness.ORDERS)
    world.publish("orders", {"id": 1})
    world.engine.publish("orders", [b'{"id":2}'], world.now - SECOND)
    world.engine.remove(world.engine.topics["orders"], ["1"], "delete", world.now - SECOND)
    world.settle()
    assert times_of_the_log(world) == [world.now] * 3


def test_a_clock_that_was_years_ahead_loses_nothing_once_it_is_right():
    years = 10 * 365 * 24 * 3600 * SECOND
    world = World(harness.ORDERS, harness.SLOW, EXPIRING_T, start_us=years)
    world.publish("orders", {"id": 1})
    world.publish("t", {"id": 1})
    world = world.restart(start_us=SECOND)
    world.publish("t", {"id": 2})
    world.advance(9 * SECOND)
    assert [record["id"] for record in world.records("t")] == [1, 2]
    world.advance(SECOND)
    assert world.records("t") == []
    assert [record["id"] for record in world.records("orders")] == [1]
    world.publish("orders", {"id": 1, "px": 2})
    world.advance(2 * SECOND)
    assert world.records("orders-C") == [{"id": 1, "px": 2}]


def records_of(keys=("/id",)):
    definition = Topic("t", "json", keys=keys)
    return Records(definition, message_type("json"), keys, "t")


def publish(seq, *ids, expires_us=0):
    bodies = [b'{"id":%d,"seq":%d}' % (one, seq + at) for at, one in enumerate(ids)]
    return LogEntry("publish", "t", seq, 10 * seq, None, bodies, expires_us)


def held(records):
    table = records.table
    return [
        (table.identities[slot], table.bodies[slot], int(table.seqs[slot]), int(table.ts_us[slot]),
         0 if table.expires_us is None else int(table.expires_us[slot]))
        for slot in table.live()
    ]  # fmt: skip


ids = st.lists(st.integers(0, 4), min_size=1, max_size=4)
logs = st.lists(st.tuples(st.sampled_from(["publish", "publish", "delete"]), ids), max_size=12)


def applied(entries, waiting_max, checkpoint=None):
    records = records_of()
    if checkpoint is not None:
        records.table.restore(checkpoint)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(redo, "WAITING_MAX", waiting_max)
        applying = LogTailReplay()
        for entry in entries:
            applying.add(records, entry)
        applying.apply()
    records.table.settle()
    records.table.check()
    return records


@given(logs, st.integers(2, 9), st.integers(0, 12))
def test_however_many_entries_gather_the_outcome_is_the_same(log, waiting_max, checkpointed):
    entries, seq = [], 1
    for op, of in log:
        if op == "publish":
            each = [(seq + at) % 3 for at in range(len(of))]
            entries.append(publish(seq, *of, expires_us=each if seq % 2 else seq % 3))
        else:
            entries.append(LogEntry("delete", "t", seq, 10 * seq, list(map(str, of)), ()))
        seq += len(of)
    one_by_one = applied(entries, 1)
    before = applied(entries[:checkpointed], 1).table.slice(0, 100)
    for limit in (waiting_max, redo.WAITING_MAX):
        assert held(applied(entries, limit)) == held(one_by_one)
        assert held(applied(entries, limit, before)) == held(one_by_one)


def test_what_a_checkpoint_holds_is_not_undone():
    newer = Slice(["1"], [b"newer"], *map(numbers, ([9], [0], [7], [0])))
    records = applied([publish(8, 1, 2, 1)], redo.WAITING_MAX, newer)
    assert [(key, seq) for key, _, seq, _, _ in held(records)] == [("1", 10), ("2", 9)]
    records = applied([publish(8, 1)], redo.WAITING_MAX, newer)
    assert records.table.bodies == [b"newer"]


def test_publishes_wait_for_more_and_a_removal_for_none():
    records, applying = records_of(), LogTailReplay()
    applying.add(records, publish(1, 1, 2))
    assert held(records) == []
    applying.add(records, LogEntry("expire", "t", 3, 30, ["1"], ()))
    assert [key for key, *_ in held(records)] == ["2"]


def test_records_that_are_named_need_not_be_read():
    records, applying = records_of(keys=()), LogTailReplay()
    applying.add(records, LogEntry("publish", "t", 1, 0, ["a"], [b"{}"]))
    applying.apply()
    assert [key for key, *_ in held(records)] == ["a"]


def test_a_record_that_cannot_be_read_is_named():
    records, applying = records_of(), LogTailReplay()
    applying.add(records, publish(1, 1))
    applying.add(records, LogEntry("publish", "t", 2, 0, None, [b'{"id":2}', b'{"other":1}']))
    with pytest.raises(StoreError, match="record 3 of the log cannot be read"):
        applying.apply()


@pytest.mark.parametrize("expires_us", [50, [50, 0, 70]])
def test_each_record_expires_at_the_time_of_its_entry(expires_us):
    table = applied([publish(1, 1, 2, 3, expires_us=expires_us)], redo.WAITING_MAX).table
    each = [50] * 3 if expires_us == 50 else expires_us
    assert table.expiries(["1", "2", "3"], -1) == each


def read(progress):
    return progress.topic, progress.done, progress.of, progress.is_settling


def test_records_are_counted_as_they_come_back():
    progress = Progress()
    assert read(progress) == ("", 0, 0, False)
    progress.begin(10)
    progress.put_back("a", 4)
    progress.put_back("b", 5)
    assert read(progress) == ("b", 9, 10, False)


def test_no_more_is_done_than_there_is():
    progress = Progress()
    progress.begin(3)
    progress.put_back("a", 4)
    assert read(progress) == ("a", 3, 3, False)


def test_what_is_made_of_records_comes_when_all_are_back():
    progress = Progress()
    progress.begin(3)
    progress.settle("a")
    assert read(progress) == ("a", 3, 3, True)
    progress.begin(2)
    assert read(progress) == ("", 0, 2, False)
