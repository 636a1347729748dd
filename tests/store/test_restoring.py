"""Restoring one record at a time, and verifying. A whole backup: `tests/edge/test_backups.py`."""

import re
from dataclasses import replace

import pytest
from hypothesis import given

from sow.errors import StoreError
from sow.store.directory import DataDirectory
from sow.store.protocols import LogEntry
from sow.store.restoring import (
    _shifted_slice,
    _until,
    copy_to_read,
    verify_directory,
    verify_store,
)
from tests.edge.lives import NOW_US, ORDERS, TRADES, lives_on
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


@pytest.fixture
def stored(tmp_path):
    with lives_on(tmp_path)(ORDERS, TRADES) as life:
        for topic in ("orders", "trades"):
            life.publish(topic, {"id": 1, "pad": "x" * 50}, now_us=NOW_US)
        life.checkpoint()
        life.publish("orders", {"id": 2, "pad": "needle"})
    return tmp_path


def problems(path):
    return {one.file: one.problem for one in verify_directory(path) if one and one.problem}


def files(path):
    return [one.file for one in verify_directory(path) if one]


def test_intact_files_are_reported_and_an_open_store_reports_the_same(stored):
    assert problems(stored) == {}
    with lives_on(stored)(ORDERS, TRADES) as life:
        found = [one for one in verify_store(life.opening) if one]
    assert [one.file for one in found] == files(stored)
    assert len(found) == 4
    assert [one.problem for one in found] == [""] * 4
    assert all(one.size_bytes for one in found)


def test_a_flipped_byte_of_the_log_is_named_with_the_command_that_helps(stored):
    file = stored / "journal" / "data.mdb"
    file.write_bytes(file.read_bytes().replace(b"needle", b"needlE"))
    found = problems(stored)
    assert list(found) == [str(stored / "journal")]
    assert "sow.store.repair" in found[str(stored / "journal")]


def test_a_damaged_checkpoint_does_not_hide_the_next_one(stored):
    for name in ("orders.json.sow", "trades.json.sow"):
        file = stored / name
        file.write_bytes(file.read_bytes().replace(b"xxxxx", b"xxxxX"))
    assert sorted(problems(stored)) == sorted(
        str(stored / name) for name in ("orders.json.sow", "trades.json.sow")
    )


def test_damage_to_what_indexes_know_is_named_and_hides_no_other(tmp_path):
    indexed = replace(ORDERS, hash_indexes=(("/pad",),))
    with lives_on(tmp_path)(indexed) as life:
        for number in range(12):
            life.publish("orders", {"id": number, "pad": "needle", "more": f"more{number}."})
        life.checkpoint()
    assert problems(tmp_path) == {}
    file = tmp_path / "orders.json.sow"
    # The first is that of the value, where it stands without its document.
    spoilt = re.sub(rb"(?<!\")needle", b"needlE", file.read_bytes())
    file.write_bytes(spoilt)
    (problem,) = problems(tmp_path).values()
    assert "what indexes know" in problem
    assert "slice 1" in problem
    assert "Nothing is lost" in problem
    with lives_on(tmp_path)(indexed) as life:
        assert len(list(life.opening.checkpoints["orders"].blocks())) == 4
    file.write_bytes(spoilt.replace(b"more11.", b"more11!"))
    (problem,) = problems(tmp_path).values()
    assert "is not safe to read" in problem


def test_what_is_missing_is_named_and_not_made(stored):
    (stored / "orders.json.sow").unlink()
    (stored / "manifest.json.copy").unlink()
    (stored / "journal" / "data.mdb").unlink()
    assert sorted(problems(stored)) == sorted(
        str(stored / name) for name in ("orders.json.sow", "manifest.json", "journal")
    )
    assert not (stored / "orders.json.sow").exists()
    assert not (stored / "journal" / "data.mdb").exists()


def test_what_is_no_data_directory_or_in_use_is_a_sentence(stored, tmp_path):
    with pytest.raises(StoreError, match="is no data directory"):
        problems(tmp_path / "nowhere")
    held = DataDirectory(stored)
    with pytest.raises(StoreError, match="is in use by process"):
        problems(stored)
    held.close()


def test_a_copy_to_read_has_all_files_and_leaves_the_lock(stored, tmp_path):
    place = tmp_path.with_name(tmp_path.name + "-copy")
    (stored / "removed").mkdir()
    copy_to_read(stored, place)
    assert {one.name for one in stored.iterdir()} - {one.name for one in place.iterdir()} == {
        "lock",
        "removed",
    }
    assert problems(place) == {}
    with pytest.raises(StoreError, match="is no data directory, nor a backup"):
        copy_to_read(tmp_path / "none", tmp_path / "other")
