"""Every damage is reported or harmless: what is read is what was written, or nothing is."""

import shutil

import pytest

from sow.errors import Damaged
from sow.store.checkpoint import LmdbCheckpoint
from sow.store.journal import LmdbJournal
from tests.store.entries import group, part, records

OUTCOMES = {"whole", "damaged"}


@pytest.fixture
def journal(tmp_path):
    journal = LmdbJournal(tmp_path / "j", retention_bytes=12_000)
    for seq in range(1, 121, 10):
        journal.append(group(seq, 10, 200 if seq % 20 == 1 else 40))
        journal.trim(0, seq - 20)
    journal.close()
    return tmp_path / "j"


@pytest.fixture
def checkpoint(tmp_path):
    checkpoint = LmdbCheckpoint(tmp_path / "t.sow", topic="t")
    for seq in (10, 20):
        checkpoint.write(seq, [part(0, 30), part(30, 3)])
    checkpoint.close()
    return tmp_path / "t.sow"


def read_journal(directory):
    journal = LmdbJournal(directory)
    try:
        return records(journal.read(journal.first_seq - 1))
    finally:
        journal.close()


def read_checkpoint(path):
    checkpoint = LmdbCheckpoint(path, topic="t")
    try:
        return [checkpoint.seq, *checkpoint.load()]
    finally:
        checkpoint.close()


def outcome(read, path, good):
    try:
        found = read(path)
    except Damaged:
        return "damaged"
    # Losing only a trim brings back what it had removed: whole, and longer.
    return "whole" if found[-len(good) :] == good else "served damage"


def flipped(data, position):
    return data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :]


def outcomes(path, file, read, variants):
    """What reading says of each variant of the bytes in `file` of a copy of `path`."""
    good, data = read(path), (path / file).read_bytes()
    found = set()
    for variant in variants(data):
        copy = path.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)
        (copy / file).write_bytes(variant)
        found.add(outcome(read, copy, good))
    return found


def test_a_flipped_byte_anywhere_in_the_journal_is_reported_or_harmless(journal):
    def variants(data):
        return (flipped(data, at) for at in range(0, len(data), 197))

    assert outcomes(journal, "data.mdb", read_journal, variants) == OUTCOMES


def test_a_flipped_byte_in_the_meta_pages_is_reported_or_harmless(journal):
    def variants(data):
        return (flipped(data, page + at) for page in (0, 4096) for at in range(0, 156, 3))

    assert outcomes(journal, "data.mdb", read_journal, variants) == OUTCOMES


def test_a_journal_cut_anywhere_is_reported_or_harmless(journal):
    def variants(data):
        return (data[:length] for length in range(1, len(data), 1501))

    # Harmless where only free pages at the end are missing.
    assert outcomes(journal, "data.mdb", read_journal, variants) <= OUTCOMES


def test_a_journal_cut_within_its_records_is_reported(journal):
    def variants(data):
        return (data[:length] for length in (1, 100, 4096, 9000, data.index(b"%08d" % 95)))

    assert outcomes(journal, "data.mdb", read_journal, variants) == {"damaged"}


def test_losing_the_newest_group_with_its_meta_page_is_reported(journal):
    def variants(data):
        newest = max((0, 4096), key=lambda page: data[page + 144 : page + 152][::-1])
        older = 4096 - newest
        copied = bytearray(data)
        copied[newest + 16 : newest + 152] = data[older + 16 : older + 152]
        return [bytes(copied)]

    assert outcomes(journal, "data.mdb", read_journal, variants) == {"damaged"}


def test_a_damaged_newest_file_is_harmless(journal):
    def variants(data):
        return [flipped(data, at) for at in range(len(data))] + [data[:5], b""]

    assert outcomes(journal, "newest", read_journal, variants) == {"whole"}


def test_a_flipped_byte_in_a_checkpoint_is_reported_or_harmless(checkpoint):
    good, data = read_checkpoint(checkpoint), checkpoint.read_bytes()
    found = set()
    for at in range(0, len(data), 53):
        checkpoint.write_bytes(flipped(data, at))
        found.add(outcome(read_checkpoint, checkpoint, good))
    assert found == OUTCOMES


def test_a_shortened_checkpoint_is_reported(checkpoint):
    good, data = read_checkpoint(checkpoint), checkpoint.read_bytes()
    found = set()
    for length in range(1, len(data), 1501):
        checkpoint.write_bytes(data[:length])
        found.add(outcome(read_checkpoint, checkpoint, good))
    assert "damaged" in found <= OUTCOMES


@pytest.mark.parametrize("kind", ["checkpoint", "journal"])
def test_large_values_cut_at_any_page_are_reported_and_never_end_the_process(tmp_path, kind):
    path = tmp_path / kind
    if kind == "checkpoint":
        large = part(0, 300, 500)
        checkpoint = LmdbCheckpoint(path, topic="t")
        for seq in (10, 20):
            checkpoint.write(seq, [large, large, large])
        checkpoint.close()
        file, read = path, read_checkpoint
    else:
        journal = LmdbJournal(path)
        for seq in range(1, 90, 30):
            journal.append(group(seq, 30, 2000))
        journal.close()
        file, read = path / "data.mdb", read_journal
    good, data = read(path), file.read_bytes()
    found = set()
    for length in range(4096, len(data), 4096):
        file.write_bytes(data[:length])
        found.add(outcome(read, path, good))
    assert "damaged" in found <= OUTCOMES


def test_the_report_names_the_last_whole_record_and_what_to_run(tmp_path):
    journal = LmdbJournal(tmp_path / "j")
    for seq in (1, 11, 21):
        journal.append(group(seq, 10, 800))
    journal.close()
    file = tmp_path / "j" / "data.mdb"
    file.write_bytes(file.read_bytes().replace(b"%08d" % 15, b"%08d" % 99, 1))
    with pytest.raises(Damaged) as damage:
        read_journal(tmp_path / "j")
    assert "whole up to record 10: the checksum does not match" in damage.value.detail
    assert f"-m sow.store.repair {tmp_path} {tmp_path / 'j'}" in damage.value.detail
