"""Log entries and slices as columns: how many records, how many bytes, and single ones of them."""

from array import array
from dataclasses import replace

import pytest

from sow.store.checkpoint import LmdbCheckpoint
from sow.store.journal import LmdbJournal
from sow.store.protocols import Checkpoint, Journal, LogEntry, Slice, accounts_of, numbers
from tests.store.in_memory import MemoryCheckpoint, MemoryJournal


def test_an_entry_is_as_long_as_what_it_names():
    assert len(LogEntry("publish", "t", 1, 0, None, [b"1", b"2"])) == 2
    assert len(LogEntry("delete", "t", 1, 0, ["a", "b", "c"], [])) == 3
    assert len(LogEntry("expire", "t", 1, 0, [], [])) == 0


def test_its_size_is_in_bytes_whatever_the_text():
    entry = LogEntry("publish", "t", 1, 0, ["é", "\ud800"], [b"123", b""])
    assert entry.size_bytes() == 2 + 1 + 3


def test_its_bodies_are_counted_once_unless_it_is_known_how_long_they_are():
    entry = LogEntry("publish", "t", 1, 0, None, [b"123", b"4"])
    assert entry.bodies_bytes == 4
    entry.bodies = ()
    assert entry.bodies_bytes == 4
    assert LogEntry("publish", "t", 1, 0, None, [b"123"], 0, False, 3).bodies_bytes == 3


def test_an_account_is_sent_record_by_record():
    entry = LogEntry("publish", "w", 9, 5, ["a", "b"], [b"1", b"2"], 70, account=True)
    assert entry.bodies_bytes == 2
    found = dict(accounts_of(entry))
    assert [one.bodies_bytes for one in found.values()] == [1, 1]
    assert found["b"] == LogEntry("publish", "w", 9, 5, ["b"], [b"2"], 70, account=True)
    assert list(found) == ["a", "b"]
    gone = LogEntry("delete", "w", 9, 5, ["a"], [], account=True)
    assert dict(accounts_of(gone)) == {"a": None}


def test_some_records_of_a_slice():
    columns = map(numbers, ([1, 2, 3], [4, 5, 6], [7, 8, 9], [0, 1, 2]))
    whole = Slice(["a", "b", "c"], [b"1", b"2", b"3"], *columns)
    columns = list(map(numbers, ([3, 1], [6, 4], [9, 7], [2, 0])))
    assert whole.at([2, 0], str.upper) == Slice(["C", "A"], [b"3", b"1"], *columns)
    whole = replace(whole, sow_keys=array("Q", [7, 8, 2**64 - 1]))
    keyed = Slice(["C", "A"], [b"3", b"1"], *columns, array("Q", [2**64 - 1, 7]))
    assert whole.at([2, 0], str.upper) == keyed


@pytest.mark.parametrize(
    ("protocol", "kinds"),
    [(Journal, (LmdbJournal, MemoryJournal)), (Checkpoint, (LmdbCheckpoint, MemoryCheckpoint))],
)
def test_both_stores_implement_the_interface_of_the_engine(protocol, kinds):
    requested = {name for name in vars(protocol) if not name.startswith("_")}
    for kind in kinds:
        assert requested <= set(dir(kind)), kind
