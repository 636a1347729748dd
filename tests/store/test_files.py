"""Only the server's user can open the files; one has the last number that was marked, or 0."""

import logging
import os

import pytest

from sow.core.definitions import JournalSettings, Topic
from sow.store import (
    HighWaterMark,
    close_to_others,
    make_directory,
    open_file,
    read_high_water_mark,
    repair,
)
from sow.store.directory import DataDirectory
from sow.store.manifest import Manifest, ManifestFile, StoredDefinition
from sow.store.staging import Attempt, StagedBatch, Staging
from tests.store.entries import group, part

ORDERS = Topic("orders", "json", keys=("/id",), file_name="sow/deep/orders.sow")


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(directory):
    """The mode of the directory and of all in it."""
    found = {path: path.stat().st_mode & 0o777 for path in [directory, *directory.rglob("*")]}
    return {str(path.relative_to(directory)): mode for path, mode in found.items()}


def open_to_others(directory):
    """What is not as it has to be."""
    return [
        f"{name} {mode:o}"
        for name, mode in modes(directory).items()
        if mode != (0o700 if (directory / name).is_dir() else 0o600)
    ]


def live(path):
    """One life of a data directory: everything that is written in one is written."""
    data = DataDirectory(path)
    ManifestFile(path).write(Manifest(kept=(StoredDefinition(ORDERS, None),)))
    checkpoint = data.checkpoint(ORDERS)
    journal = data.journal(JournalSettings(), at_least_seq=checkpoint.seq)
    journal.append(group(journal.last_seq + 1, 2))
    checkpoint.write(journal.last_seq, [part(0, 2)])
    staging = Staging(path / "staging")
    staging.put(StagedBatch("writer", journal.last_seq, "t"), Attempt(0, "a"), 0, b"rows")
    for opened in (journal, checkpoint, data):
        opened.close()


def test_all_that_a_server_writes_is_private_from_the_start(tmp_path, umask):
    live(tmp_path / "up" / "data")
    assert open_to_others(tmp_path / "up" / "data") == []
    assert len(modes(tmp_path / "up" / "data")) > 10


def test_a_repair_writes_private_files_and_sets_private_ones_aside(tmp_path, umask):
    live(tmp_path / "data")
    journal, checkpoint = tmp_path / "data" / "journal", tmp_path / "data" / ORDERS.file_name
    for path in (checkpoint, journal / "data.mdb"):
        path.chmod(0o644)
    journal.chmod(0o755)
    assert repair.main([str(tmp_path / "data"), str(journal)]) == 0
    assert repair.main([str(tmp_path / "data"), str(checkpoint)]) == 0
    (aside,) = tmp_path.glob("data/journal.damaged-*")
    (aside / "data.mdb").chmod(0o600)  # nobody else gets as far as that
    assert open_to_others(tmp_path / "data") == []


def test_what_an_older_version_left_open_is_closed_and_sent(tmp_path, caplog):
    live(tmp_path / "data")
    for path in [tmp_path / "data", *(tmp_path / "data").rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    live(tmp_path / "data")
    left = {name for name, mode in modes(tmp_path / "data").items() if mode & 0o077}
    # What nobody opened any more lies behind a door that is closed.
    assert {name.split("/")[0] for name in left} <= {"staging", "sow"}
    assert not left & {"staging", ".", "sow/deep", "sow/deep/orders.sow", "journal", "lock"}
    assert [record.message for record in caplog.records] == [
        f"the data directory {tmp_path / 'data'} was open to other users; it is no longer"
    ]


def test_a_directory_of_others_is_left_as_it_is_and_sent(tmp_path, caplog):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    (shared / "something.else").write_text("")
    live(shared)
    assert shared.stat().st_mode & 0o777 == 0o755
    assert (shared / "journal").stat().st_mode & 0o777 == 0o700
    assert (shared / "sow" / "deep" / "orders.sow").stat().st_mode & 0o777 == 0o600
    (record,) = caplog.records
    assert "chmod 700" in record.message


def test_an_empty_directory_is_taken_over(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    live(tmp_path / "data")
    assert open_to_others(tmp_path / "data") == []


def test_what_cannot_be_closed_is_sent(tmp_path, monkeypatch, caplog):
    path = tmp_path / "file"
    path.write_text("")
    path.chmod(0o644)

    def refuse(*_arguments, **_named):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", refuse)
    with caplog.at_level(logging.WARNING):
        assert close_to_others(path)
    assert "cannot be changed: Operation not permitted" in caplog.records[0].message


def test_the_rights_of_the_user_are_kept(tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    path.chmod(0o575)
    assert close_to_others(path)
    assert path.stat().st_mode & 0o777 == 0o500
    assert not close_to_others(path)


def test_making_and_opening_again_changes_nothing(tmp_path, umask):
    for _ in range(2):
        make_directory(tmp_path / "a" / "b")
        os.close(open_file(tmp_path / "a" / "b" / "c"))
    assert open_to_others(tmp_path / "a") == []


@pytest.fixture
def path(tmp_path):
    return tmp_path / "newest"


def test_the_last_mark_is_read(path):
    newest = HighWaterMark(path)
    for seq in (5, 2**40, 7):
        newest.mark(seq)
        assert read_high_water_mark(path) == seq
    newest.close()
    assert read_high_water_mark(path) == 7


def test_without_a_file_there_is_no_mark(path):
    assert read_high_water_mark(path) == 0
    newest = HighWaterMark(path)
    assert read_high_water_mark(path) == 0
    newest.close()


def test_a_truncated_or_changed_file_has_no_number(path):
    newest = HighWaterMark(path)
    newest.mark(0x0102030405060708)
    newest.close()
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        assert read_high_water_mark(path) == 0, length
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert read_high_water_mark(path) == 0, at


def test_a_mark_that_cannot_be_written_stops_no_commit(path):
    newest = HighWaterMark(path)
    newest.mark(3)
    newest.close()
    newest.mark(4)
    newest.close()
    assert read_high_water_mark(path) == 3
