"""The journal on disk: what survives, how it grows, and what a failing disk leaves."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import Damaged, DiskFull, StoreError
from sow.store.environment import RESERVE_BYTES, structural_damage
from sow.store.journal import LmdbJournal, accounts_in
from sow.store.layout import decode_entries
from sow.store.protocols import LogEntry
from tests.effort import examples
from tests.store.entries import group, records

CHILD = """
import resource, sys
from pathlib import Path
from sow.errors import DiskFull
from sow.store.journal import LmdbJournal
from tests.store.entries import group
journal = LmdbJournal(Path(sys.argv[1]), map_bytes=100_000)
def append(count, size=200):
    journal.append(group(journal.last_seq + 1, count, size))
    print(journal.last_seq, flush=True)
"""


def child(directory, code, **options):
    command = [sys.executable, "-c", CHILD + textwrap.dedent(code), str(directory)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        **options,
    )  # fmt: skip


def contents(journal):
    return records(journal.read(journal.first_seq - 1))


def expected(last_seq, count, size=200):
    return [r for seq in range(1, last_seq + 1, count) for r in records(group(seq, count, size))]


def test_everything_is_there_after_reopening(tmp_path):
    journal = LmdbJournal(tmp_path / "j")
    for seq in (1, 11, 21):
        journal.append(group(seq, 10, 200))
    journal.close()
    again = LmdbJournal(tmp_path / "j")
    assert contents(again) == expected(30, 10)
    again.close()


def test_the_base_survives_reopening_an_emptied_journal(tmp_path):
    journal = LmdbJournal(tmp_path / "j", retention_bytes=0)
    journal.append(group(1, 10))
    journal.trim(0, 11)
    journal.close()
    again = LmdbJournal(tmp_path / "j")
    again.append(group(11, 10))
    assert (again.first_seq, again.last_seq, len(contents(again))) == (11, 20, 10)
    again.close()


def test_a_large_group_is_split_and_still_read_as_one(tmp_path):
    journal = LmdbJournal(tmp_path / "j", group_bytes=1000)
    journal.append(group(1, 100, 200))
    assert contents(journal) == expected(100, 100)
    assert next(e.seq for e in journal.read(50)) in range(40, 52)
    journal.close()


def test_the_map_grows_as_needed(tmp_path):
    journal = LmdbJournal(tmp_path / "j", map_bytes=50_000)
    for seq in range(1, 2001, 100):
        journal.append(group(seq, 100, 200))
    assert contents(journal) == expected(2000, 100)
    journal.close()


def test_reading_goes_on_while_the_map_grows(tmp_path):
    journal = LmdbJournal(tmp_path / "j", map_bytes=50_000)
    journal.append(group(1, 100, 200))
    reader = journal.read(0)
    first = records([next(reader)])
    for seq in range(101, 2001, 100):
        journal.append(group(seq, 100, 200))
    assert first + records(reader) == expected(2000, 100)
    journal.close()


def test_a_thread_reads_while_another_appends(tmp_path):
    journal = LmdbJournal(tmp_path / "j", map_bytes=50_000, retention_bytes=100_000)

    def write():
        for seq in range(1, 10_001, 100):
            journal.append(group(seq, 100))
            journal.trim(0, seq)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        after_seq = journal.last_seq // 2 + journal.first_seq // 2
        try:
            seqs = [record[2] for record in records(journal.read(after_seq))]
        except StoreError:
            # The other thread trimmed as far between the two.
            assert after_seq + 1 < journal.first_seq
            continue
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs))) if seqs else True
    writer.join()
    assert journal.last_seq == 10_000
    journal.close()


def test_everything_acknowledged_survives_a_kill(tmp_path):
    rng = random.Random(7)
    for round_ in range(5):
        with child(tmp_path / "j", "while True: append(10)\n") as process:
            for _ in range(rng.randrange(3, 60)):
                acknowledged = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            acknowledged = int((process.stdout.read().split("\n")[:-1] or [acknowledged])[-1])
        journal = LmdbJournal(tmp_path / "j")
        assert journal.last_seq in (acknowledged, acknowledged + 10), round_
        assert contents(journal) == expected(journal.last_seq, 10)
        journal.close()


def test_a_refusing_disk_leaves_a_usable_journal(tmp_path):
    code = """
        append(100)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        for attempt in range(3):
            try:
                while True: append(100)
            except DiskFull: print("full", journal.last_seq, sum(map(len, journal.read(0))))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        append(100)
    """
    with child(tmp_path / "j", code) as process:
        output, errors = process.communicate()
    assert errors == ""
    lines = output.splitlines()
    last = int(lines[-5])
    assert lines[-4:] == [f"full {last} {last}"] * 3 + [str(last + 100)]
    journal = LmdbJournal(tmp_path / "j")
    assert contents(journal) == expected(last + 100, 100)
    journal.close()


@given(st.lists(st.tuples(st.integers(1, 300), st.booleans(), st.booleans()), max_size=12))
@examples(15)
def test_no_history_of_appends_and_trims_looks_damaged(tmp_path_factory, steps):
    directory = tmp_path_factory.mktemp("j")
    journal = LmdbJournal(directory, retention_bytes=30_000)
    for count, trim, reopen in steps:
        journal.append(group(journal.last_seq + 1, count))
        if trim:
            journal.trim(0, journal.last_seq)
        if reopen:
            journal.close()
            journal = LmdbJournal(directory, retention_bytes=30_000)
    seqs = [r[2] for r in contents(journal)]
    journal.close()
    assert seqs == list(range(journal.first_seq, journal.last_seq + 1))
    assert structural_damage(directory / "data.mdb") == ""


def test_a_commit_reported_as_failed_is_not_kept_even_if_it_is_there(tmp_path, monkeypatch):
    journal = LmdbJournal(tmp_path / "j")
    journal.append(group(1, 10, 200))
    write = journal._env.write

    def commit_and_fail(work):
        write(work)
        raise DiskFull("as if the sync had failed")

    with monkeypatch.context() as patch:
        patch.setattr(journal._env, "write", commit_and_fail)
        with pytest.raises(DiskFull):
            journal.append(group(11, 50, 400))
    assert contents(journal) == expected(10, 10)
    journal.append(group(11, 10, 200))
    assert contents(journal) == expected(20, 10)
    journal.close()


def test_a_disk_that_cannot_be_requested_has_no_room(tmp_path):
    def fail(path):
        raise OSError("unmounted")

    journal = LmdbJournal(tmp_path / "j", statvfs=fail)
    assert not journal.has_room()
    journal.close()


def test_a_journal_behind_its_checkpoints_is_damaged(tmp_path):
    LmdbJournal(tmp_path / "j").close()
    with pytest.raises(Damaged, match=r"ends at record 0; records up to 40 .* --after 40"):
        LmdbJournal(tmp_path / "j", at_least_seq=40)


def test_a_missing_data_file_is_damage(tmp_path):
    journal = LmdbJournal(tmp_path / "j")
    journal.append(group(1, 10))
    journal.close()
    (tmp_path / "j" / "data.mdb").unlink()
    with pytest.raises(Damaged, match=r"data.mdb is missing; records up to 10 were acknowledged"):
        LmdbJournal(tmp_path / "j")


def test_a_data_file_that_was_just_being_made_is_no_damage(tmp_path):
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / "data.mdb").touch()
    journal = LmdbJournal(tmp_path / "j")
    journal.append(group(1, 10))
    journal.close()
    (tmp_path / "j" / "data.mdb").write_bytes(b"")
    with pytest.raises(Damaged, match="records up to 10 were acknowledged"):
        LmdbJournal(tmp_path / "j")


def test_a_closed_journal_reports_it(tmp_path):
    journal = LmdbJournal(tmp_path / "j")
    journal.close()
    with pytest.raises(StoreError, match="has been closed"):
        journal.append(group(1, 10))


def test_a_journal_is_strained_when_it_keeps_more_than_there_is_room_left(tmp_path):
    free_bytes = 10**9

    def disk(_path):
        return SimpleNamespace(f_bavail=free_bytes, f_frsize=1, f_blocks=10**10)

    journal = LmdbJournal(tmp_path / "journal", retention_bytes=1000, statvfs=disk)
    try:
        journal.append(group(1, 100, 1000))
        assert not journal.is_strained()
        free_bytes = RESERVE_BYTES + 50_000
        assert journal.is_strained()
        while journal.trim(0, 101):
            pass
        assert not journal.is_strained()
    finally:
        journal.close()


def test_free_pages_are_room_on_a_full_disk(tmp_path):
    full = SimpleNamespace(f_bavail=0, f_blocks=10_000_000, f_frsize=1)
    journal = LmdbJournal(tmp_path / "j", statvfs=lambda _path: full)
    for first in range(1, 4001, 10):
        journal.append(group(first, 10, 500))
    assert (journal.has_room(), journal.takes(1)) == (False, False)
    while journal.trim(0, 3991, beyond=True):
        pass
    assert journal.has_room()
    assert journal.has_room(100_000)
    assert not journal.has_room(10**6)
    journal.close()


def test_a_journal_may_begin_behind_any_record(tmp_path):
    for _ in range(2):
        journal = LmdbJournal(tmp_path / "j", after_seq=10**15)
        assert (journal.first_seq, journal.last_seq) == (10**15 + 1, 10**15)
        journal.close()
    journal = LmdbJournal(tmp_path / "j")
    journal.append(group(10**15 + 1, 10))
    assert [entry.seq for entry in journal.read(10**15)] == [10**15 + 1]
    journal.close()


def test_what_is_held_is_not_trimmed_until_it_is_let_go(tmp_path):
    journal = LmdbJournal(tmp_path / "j", retention_bytes=0)
    for seq in (1, 11, 21):
        journal.append(group(seq, 10))
    journal.trim(0, 11)
    with journal.held() as base_seq:
        journal.trim(0, 31)
        assert (base_seq, journal.first_seq) == (10, 11)
    journal.trim(0, 31)
    assert journal.first_seq == 31
    journal.close()


def test_a_moment_has_the_accounts_of_its_last_record_and_its_blocks_end_there(tmp_path):
    journal = LmdbJournal(tmp_path / "j", retention_bytes=0)
    assert journal.moment() == (0, [])
    note = LogEntry("publish", "/sow/notes", 10, 5, ["w"], [b"seven"], account=True)
    journal.append([*group(1, 10), note])
    moment = journal.moment()
    journal.append([*group(11, 10), replace(note, seq=20, bodies=[b"eight"])])
    assert moment.seq == 10
    assert [entry.bodies for entry in accounts_in(moment.accounts)] == [[b"seven"]]
    blocks = [*journal.blocks(0, moment.seq)]
    assert records(e for block in blocks for e in decode_entries(block)) == expected(10, 10, 100)
    journal.trim(0, 21)
    assert journal.moment().seq == 20
    assert [entry.bodies for entry in accounts_in(journal.moment().accounts)] == [[b"eight"]]
    journal.close()
