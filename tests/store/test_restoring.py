"""Restoring one record at a time. What comes of a whole backup: `tests/edge/test_backups.py`."""

import pytest
from hypothesis import given

from sow.store.protocols import LogEntry
from sow.store.restoring import _shifted_slice, _until
from tests.store.entries import entry_lists, part, records


@given(entry_lists())
def test_an_entry_is_cut_behind_any_of_its_records(entries):
    for entry in entries:
        for seq in range(entry.seq, entry.seq + len(entry)):
            cut = _until(entry, seq)
            assert records([cut]) == records([entry])[: seq - entry.seq + 1]
            assert cut.bodies_bytes == sum(map(len, cut.bodies))


def test_numbers_move_and_nothing_else():
    moved = _shifted_slice(part(5, 3), 1000)
    assert list(moved.seqs) == list(moved.born) == [1005, 1006, 1007]
    assert (moved.identities, moved.ts_us) == (part(5, 3).identities, part(5, 3).ts_us)


@pytest.mark.parametrize("op", ["delete", "expire"])
def test_a_delete_is_cut_by_its_names(op):
    entry = LogEntry(op, "t", 5, 1, ["a", "b", "c"], [])
    assert _until(entry, 6).identities == ["a", "b"]
