"""Restart: topics and ledger go on where checkpoints, log and accounts end."""

from dataclasses import replace

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import WRITES, Limits
from sow.engine.progress import Progress
from sow.engine.recovery.recovery import restore, restore_accounts
from sow.engine.stored_topics import stored_slices
from sow.messages.json import JsonDecoder
from sow.store.in_memory import MemoryCheckpoint
from sow.store.protocols import LogEntry
from sow.store.stored_definitions import past_of
from tests.engine.making import COPIES, DESKS, ORDERS, SLOW, catalog, documents, put

EXPIRING = replace(ORDERS, expires=True)


def entry(seq, *bodies, topic="orders", ts_us=0, op="publish", identities=None, expires_us=0):
    return LogEntry(op, topic, seq, ts_us, identities, bodies, expires_us)


def restored(topics, *log, checkpoints=None, before=None, **more):
    made, ledger = catalog(*topics, **more)
    past = past_of(catalog(*(before or topics))[0].configuration)
    last_seq = max(one.seq + len(one) - 1 for one in log)
    steps = restore(made, ledger, past, checkpoints or {}, log, last_seq, Progress())
    return made, ledger, run_to_completion(steps)


def test_the_log_is_applied_in_its_order():
    log = [
        entry(1, b'{"id":1,"a":1}', b'{"id":2}'),
        entry(3, b'{"id":1,"a":2}'),
        entry(4, op="delete", identities=["2"]),
    ]
    made, ledger, orphaned = restored([ORDERS], *log)
    assert documents(made.topics["orders"].records) == [{"id": 1, "a": 2}]
    assert (ledger.seq, orphaned) == (4, [])
    assert not ledger.open.entries, "a restart writes nothing"


def test_time_goes_on_from_the_newest_that_is_found():
    _, ledger, _ = restored(
        [ORDERS], entry(1, b'{"id":1}', ts_us=70), entry(2, b'{"id":2}', ts_us=50)
    )
    assert ledger.now_us == 70


def test_a_checkpoint_stands_before_the_log_after_it():
    first, _ = catalog(ORDERS)
    put(first.topics["orders"], {"id": 1, "a": 1}, {"id": 2, "a": 1}, now_us=90)
    checkpoint = MemoryCheckpoint()
    checkpoint.write(2, stored_slices(first, "orders", 10))
    made, ledger, _ = restored(
        [ORDERS],
        entry(2, b'{"id":2,"a":0}'),
        entry(3, b'{"id":1,"a":2}'),
        checkpoints={"orders": checkpoint},
    )
    assert documents(made.topics["orders"].records) == [{"id": 1, "a": 2}, {"id": 2, "a": 1}]
    assert ledger.now_us == 90


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
    made, ledger = catalog(WRITES)
    own = made.topics[WRITES.name]
    own.records.put(["stale"], [b"{}"], {}, [1], [0])
    ledger.begin_after(5)
    later = LogEntry("publish", "/sow/later", 3, 0, ["x"], [b"{}"], 0, True)
    assert restore_accounts(made, ledger, [account("a", 3, ts_us=8), later]) == [own]
    assert list(own.records.table.slots) == ["a"]
    assert (ledger.now_us, ledger.open.entries) == (8, [])


def test_accounts_that_an_earlier_version_numbered_are_handed_to_the_journal():
    made, ledger = catalog(WRITES)
    own = made.topics[WRITES.name]
    own.records.put(["old"], [b'{"writer":"old"}'], {}, [2], [0])
    ledger.begin_after(5)
    restore_accounts(made, ledger, None)
    assert list(own.records.table.slots) == ["old"]
    (written,) = ledger.open.entries
    assert (written.account, written.seq, written.identities) == (True, 5, ["old"])


def test_what_an_earlier_version_numbered_after_the_newest_account_counts_too():
    made, ledger = catalog(WRITES)
    own = made.topics[WRITES.name]
    own.records.put(["before", "after"], [b"{}", b"{}"], {}, [2, 4], [0, 0])
    ledger.begin_after(5)
    restore_accounts(made, ledger, [account("a", 3)])
    assert list(own.records.table.slots) == ["a", "after"]
    assert [entry.identities for entry in ledger.open.entries] == [["after"]]
