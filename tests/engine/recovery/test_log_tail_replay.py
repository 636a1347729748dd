"""The tail of a log: short entries do what long ones do, over what a checkpoint holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import Topic
from sow.engine.recovery import log_tail_replay
from sow.engine.recovery.log_tail_replay import LogTailReplay
from sow.errors import StoreError
from sow.messages import message_type
from sow.store.protocols import LogEntry, Slice, numbers
from sow.topic.records import Records


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
        patched.setattr(log_tail_replay, "WAITING_MAX", waiting_max)
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
    for limit in (waiting_max, log_tail_replay.WAITING_MAX):
        assert held(applied(entries, limit)) == held(one_by_one)
        assert held(applied(entries, limit, before)) == held(one_by_one)


def test_what_a_checkpoint_holds_is_not_undone():
    newer = Slice(["1"], [b"newer"], *map(numbers, ([9], [0], [7], [0])))
    records = applied([publish(8, 1, 2, 1)], log_tail_replay.WAITING_MAX, newer)
    assert [(key, seq) for key, _, seq, _, _ in held(records)] == [("1", 10), ("2", 9)]
    records = applied([publish(8, 1)], log_tail_replay.WAITING_MAX, newer)
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
    table = applied([publish(1, 1, 2, 3, expires_us=expires_us)], log_tail_replay.WAITING_MAX).table
    each = [50] * 3 if expires_us == 50 else expires_us
    assert table.expiries(["1", "2", "3"], -1) == each
