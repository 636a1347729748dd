"""What a repair finds and saves, and that nothing is deleted."""

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import Topic
from sow.errors import Damaged
from sow.store import repair as module
from sow.store.checkpoint import LmdbCheckpoint
from sow.store.directory import DataDirectory
from sow.store.journal import LmdbJournal
from sow.store.layout import ACCOUNT, BASE, GROUP, encode_entries, seal
from sow.store.manifest import Manifest, ManifestFile, StoredDefinition
from sow.store.protocols import LogEntry
from sow.store.repair import (
    begin,
    finish,
    holds,
    is_unfinished,
    main,
    put_in_place,
    read_blocks,
    repair_checkpoint,
    repair_journal,
    scan,
    set_aside,
    unbroken_run,
)
from tests.store.entries import group, part, records


def sealed(seq, count, chain=0, kind=GROUP):
    """A block, and its checksum."""
    return seal(kind, encode_entries(group(seq, count)), seq=seq, count=count, chain=chain)


def chained(*counts):
    """Blocks of groups, each of which is the next of the one before."""
    blocks, seq, chain = [], 1, 0
    for count in counts:
        block, chain = sealed(seq, count, chain)
        blocks.append(block)
        seq += count
    return blocks


@given(st.lists(st.binary(max_size=60), min_size=4, max_size=4))
def test_blocks_are_found_whatever_lies_around_them(tmp_path_factory, between):
    file = tmp_path_factory.getbasetemp() / "found"
    blocks = chained(3, 1, 2)
    file.write_bytes(
        b"".join(x for pair in zip(between, [*blocks, b""], strict=True) for x in pair)
    )
    found = list(scan(file))
    assert [(header.seq, header.last_seq) for header, _ in found] == [(1, 3), (4, 4), (5, 6)]
    assert [block for _, block in read_blocks(file, found)] == blocks


@pytest.mark.parametrize(
    "harm", [lambda b: b[:-1], lambda b: b[:40] + b"?" + b[41:], lambda b: b[1:]]
)
def test_what_is_not_whole_is_passed_over(tmp_path, harm):
    first, second = chained(2, 2)
    (tmp_path / "f").write_bytes(harm(first) + second)
    assert [header.seq for header, _ in scan(tmp_path / "f")] == [3]


def test_a_file_without_any_has_none(tmp_path):
    (tmp_path / "empty").touch()
    for name in ("none", "empty"):
        assert list(scan(tmp_path / name)) == []
        assert list(read_blocks(tmp_path / name, [])) == []


def test_a_file_holds_blocks_of_some_kinds(tmp_path):
    (tmp_path / "f").write_bytes(sealed(1, 1)[0])
    assert holds(tmp_path / "f", BASE, GROUP)
    assert not holds(tmp_path / "f", BASE, ACCOUNT)


def spans(run):
    return [(header.seq, header.last_seq) for header, _ in run]


def test_a_run_is_what_connects_with_the_record_that_is_wanted(tmp_path):
    blocks = chained(2, 2, 2, 2)
    (tmp_path / "f").write_bytes(b"".join([blocks[3], blocks[0], blocks[1]]))
    groups = list(scan(tmp_path / "f"))
    assert spans(unbroken_run(groups, 0)) == [(1, 2), (3, 4)]
    assert spans(unbroken_run(groups, 4)) == [(1, 2), (3, 4)], "what touches it is enough"
    assert spans(unbroken_run(groups, 5)) == []
    assert spans(unbroken_run(groups, 6)) == [(7, 8)]


def test_of_two_that_begin_alike_the_one_that_goes_on_is_taken(tmp_path):
    first, second = chained(2, 2)
    stale = sealed(1, 2, chain=7)[0]
    for order in ([stale, first, second], [second, first, stale]):
        (tmp_path / "f").write_bytes(b"".join(order))
        run = unbroken_run(list(scan(tmp_path / "f")), 0)
        assert [block for _, block in read_blocks(tmp_path / "f", run)] == [first, second]


def made(path, content):
    path.write_bytes(content)
    return path


def test_the_new_file_takes_the_place_and_the_old_one_is_kept(tmp_path):
    path = made(tmp_path / "t.sow", b"old")
    assert put_in_place(path, made(begin(path), b"new")) == tmp_path / "t.sow.damaged-1"
    assert (path.read_bytes(), (tmp_path / "t.sow.damaged-1").read_bytes()) == (b"new", b"old")
    assert sorted(found.name for found in tmp_path.iterdir()) == ["t.sow", "t.sow.damaged-1"]


def test_where_there_was_nothing_nothing_is_set_aside(tmp_path):
    path = tmp_path / "t.sow"
    assert put_in_place(path, made(begin(path), b"new")) is None
    assert path.read_bytes() == b"new"


def test_each_that_is_set_aside_has_a_name_of_its_own_and_is_the_servers_alone(tmp_path):
    names = [set_aside(made(tmp_path / "t.sow", b"%d" % n)).name for n in range(3)]
    assert names == ["t.sow.damaged-1", "t.sow.damaged-2", "t.sow.damaged-3"]
    assert [(tmp_path / name).read_bytes() for name in names] == [b"0", b"1", b"2"]
    assert {(tmp_path / name).stat().st_mode & 0o077 for name in names} == {0}


@pytest.mark.parametrize("of_a_directory", [False, True])
def test_what_was_interrupted_before_it_was_complete_is_begun_again(tmp_path, of_a_directory):
    path = tmp_path / "journal"
    left = begin(path)
    if of_a_directory:
        left.mkdir()
        for name in ("data.mdb", "lock.mdb", "newest"):
            made(left / name, b"half")
    else:
        made(left, b"half")
        made(left.with_name(left.name + "-lock"), b"")
    assert begin(path) == left
    assert list(tmp_path.iterdir()) == []


def test_a_complete_file_is_put_in_place_by_the_next_run(tmp_path):
    path = made(tmp_path / "t.sow", b"old")
    assert not is_unfinished(path)
    made(tmp_path / "t.sow.repaired", b"new")
    assert is_unfinished(path)
    assert finish(path) == tmp_path / "t.sow.damaged-1"
    assert not is_unfinished(path)
    assert path.read_bytes() == b"new"


def write(directory, groups=10, size=800, **options):
    journal = LmdbJournal(directory, **options)
    for _ in range(groups):
        journal.append(group(journal.last_seq + 1, 10, size))
        journal.trim(0, journal.last_seq - 30)
    journal.close()


def damage(file, record):
    """Change a byte of every copy of the record in the file."""
    data, name = file.read_bytes(), b"%08d" % record
    assert name in data
    file.write_bytes(data.replace(name, b"damaged!"))


def seqs(directory, **options):
    journal = LmdbJournal(directory, **options)
    try:
        return [r[2] for r in records(journal.read(journal.first_seq - 1))]
    finally:
        journal.close()


@pytest.mark.parametrize("size", [40, 800])
def test_the_whole_prefix_is_kept(tmp_path, size):
    write(tmp_path / "j", size=size)
    damage(tmp_path / "j" / "data.mdb", 55)
    report = repair_journal(tmp_path / "j")
    assert seqs(tmp_path / "j") == list(range(1, 51))
    assert (report.kept, report.lost) == ("records 1 to 50", "records 51 to 100")


def test_history_before_the_checkpoints_may_be_lost_without_loss_of_state(tmp_path):
    write(tmp_path / "j")
    damage(tmp_path / "j" / "data.mdb", 35)
    report = repair_journal(tmp_path / "j", after_seq=60)
    assert seqs(tmp_path / "j", at_least_seq=60) == list(range(41, 101))
    assert report.lost == "records 1 to 40"


def test_a_journal_whose_first_needed_record_is_lost_goes_on_after_the_checkpoints(tmp_path):
    write(tmp_path / "j")
    damage(tmp_path / "j" / "data.mdb", 65)
    repair_journal(tmp_path / "j", after_seq=62)
    journal = LmdbJournal(tmp_path / "j", at_least_seq=62)
    assert (journal.first_seq, journal.last_seq) == (63, 62)
    journal.close()


def test_a_repaired_journal_goes_on(tmp_path):
    write(tmp_path / "j")
    damage(tmp_path / "j" / "data.mdb", 55)
    repair_journal(tmp_path / "j")
    write(tmp_path / "j", groups=2)
    assert seqs(tmp_path / "j") == list(range(1, 71))


def test_what_was_trimmed_stays_trimmed(tmp_path):
    write(tmp_path / "j", groups=30, retention_bytes=20_000)
    first = seqs(tmp_path / "j")[0]
    damage(tmp_path / "j" / "data.mdb", 285)
    repair_journal(tmp_path / "j")
    assert first > 100
    assert seqs(tmp_path / "j") == list(range(first, 281))


def test_a_journal_without_meta_pages_is_saved_whole(tmp_path):
    write(tmp_path / "j")
    file = tmp_path / "j" / "data.mdb"
    file.write_bytes(bytes(8192) + file.read_bytes()[8192:])
    with pytest.raises(Damaged):
        LmdbJournal(tmp_path / "j")
    assert repair_journal(tmp_path / "j").lost == "nothing"
    assert seqs(tmp_path / "j") == list(range(1, 101))


def test_the_damaged_journal_is_set_aside_under_a_free_name(tmp_path):
    for number in (1, 2):
        write(tmp_path / "j")
        damage(tmp_path / "j" / "data.mdb", 55)
        before = (tmp_path / "j" / "data.mdb").read_bytes()
        aside = repair_journal(tmp_path / "j").set_aside
        assert aside == tmp_path / f"j.damaged-{number}"
        assert (aside / "data.mdb").read_bytes() == before


def test_whole_slices_of_a_checkpoint_are_kept(tmp_path):
    path = tmp_path / "t.sow"
    checkpoint = LmdbCheckpoint(path, topic="t", fingerprint="f")
    checkpoint.write(7, [part(0, 10), part(100, 10)])
    checkpoint.write(9, [part(0, 10), part(20, 10), part(40, 10)])
    checkpoint.close()
    damage(path, 25)
    report = repair_checkpoint(path)
    again = LmdbCheckpoint(path, topic="t", fingerprint="f")
    assert (again.seq, list(again.load())) == (9, [part(0, 10), part(40, 10)])
    assert (report.lost, report.set_aside) == (
        "10 records in 1 slices",
        path.with_name("t.sow.damaged-1"),
    )
    again.close()


def test_a_checkpoint_without_contents_is_set_aside(tmp_path):
    path = tmp_path / "t.sow"
    path.write_bytes(b"nothing of ours")
    with pytest.raises(Damaged):
        LmdbCheckpoint(path, topic="t")
    assert repair_checkpoint(path).lost == "the whole checkpoint"
    assert not path.exists()


def test_the_command_that_the_error_names_repairs(tmp_path, capsys):
    write(tmp_path / "j")
    damage(tmp_path / "j" / "data.mdb", 55)
    with pytest.raises(Damaged) as damaged:
        seqs(tmp_path / "j", at_least_seq=20)
    arguments = damaged.value.detail.split("-m sow.store.repair ")[1].split()
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("Kept records 1 to 50. Lost: records 51 to 100.")
    assert len(seqs(tmp_path / "j", at_least_seq=20)) == 50


def test_the_command_refuses_a_directory_in_use(tmp_path, capsys):
    held = DataDirectory(tmp_path)
    assert main([str(tmp_path), str(tmp_path / "j")]) == 1
    assert "in use by process" in capsys.readouterr().err
    held.close()


@pytest.mark.parametrize("step", range(8))
def test_a_repair_that_is_interrupted_can_be_run_again(tmp_path, monkeypatch, step):
    """Killed before any of its renames and syncs, it leaves what the next one goes on from."""
    write(tmp_path / "j")
    damage(tmp_path / "j" / "data.mdb", 95)

    class Killed(BaseException):
        """What ends the process here."""

    left = [step]

    def kill_at(original):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return original(*arguments, **options)

        return call

    for owner, name in ((Path, "rename"), (Path, "mkdir"), (module, "sync_directory")):
        monkeypatch.setattr(owner, name, kill_at(getattr(owner, name)))
    with contextlib.suppress(Killed):
        repair_journal(tmp_path / "j")
    monkeypatch.undo()
    repair_journal(tmp_path / "j")
    journal = LmdbJournal(tmp_path / "j")
    assert records(journal.read(journal.first_seq - 1))[-1][2] == 90
    journal.close()
    assert list(tmp_path.glob("j.damaged-*"))


def test_a_path_that_was_mistyped_is_refused(tmp_path, capsys):
    assert main([str(tmp_path), str(tmp_path / "jurnal")]) == 1
    assert "there is no file" in capsys.readouterr().err
    assert not (tmp_path / "jurnal").exists()


@pytest.fixture(params=["with a manifest", "without one"])
def directory(tmp_path, request):
    """A data directory with a journal, a checkpoint, and files that are neither."""
    made = tmp_path / "data"
    made.mkdir()
    write(made / "journal")
    checkpoint = LmdbCheckpoint(made / "t.sow", topic="t")
    checkpoint.write(10, [part(1, 10)])
    checkpoint.close()
    if request.param == "with a manifest":
        kept = StoredDefinition(Topic("t", "json", keys=("/id",), file_name="t.sow"), None)
        ManifestFile(made).write(Manifest(kept=(kept,)))
    (made / "notes.txt").write_text("mine")
    (made / "empty").touch()
    (made / "folder").mkdir()
    (made / "folder" / "notes.txt").write_text("mine")
    (tmp_path / "manifest.json").write_text("of something else")
    return made


def contents(directory):
    return {path: path.is_file() and path.read_bytes() for path in directory.rglob("*")}


@pytest.mark.parametrize(
    "name",
    ["notes.txt", "empty", "folder", ".", "journal/data.mdb", "journal/newest", "../manifest.json"],
)
def test_what_is_no_file_of_the_directory_is_refused_untouched(directory, capsys, name):
    before = contents(directory.parent)
    assert main([str(directory), str(directory / name)]) == 1
    assert "is no checkpoint of" in capsys.readouterr().err
    after = contents(directory.parent)
    assert {path: after.get(path) for path in before} == before


def test_what_is_a_file_of_the_directory_is_repaired(directory, capsys):
    assert main([str(directory), str(directory / "t.sow")]) == 0
    assert capsys.readouterr().out.startswith("Kept 10 records as of record 10")
    assert main([str(directory), str(directory / "journal")]) == 0
    assert capsys.readouterr().out.startswith("Kept records 1 to 100")


def test_a_file_may_be_named_as_it_is_in_the_directory(directory, capsys):
    assert main([str(directory), "t.sow"]) == 0
    assert main([str(directory), "journal"]) == 0


def test_a_repair_keeps_the_accounts_that_are_not_ahead_of_the_log(tmp_path):
    journal = LmdbJournal(tmp_path / "j")
    journal.append(group(1, 10))
    for ts_us, name, body in ((1, "a", b"old"), (2, "b", b"b"), (3, "a", b"new")):
        journal.append(
            [LogEntry("publish", "/sow/own", 10, ts_us, [name], [body], 0, account=True)]
        )
    journal.close()
    repair_journal(tmp_path / "j")
    mended = LmdbJournal(tmp_path / "j")
    found = {entry.identities[0]: entry.bodies[0] for entry in mended.accounts()}
    assert found == {"a": b"new", "b": b"b"}
    assert mended.last_seq == 10
    mended.close()


def with_loads(directory):
    """A log of ten records, two loads of twenty, and ten records behind each."""
    journal = LmdbJournal(directory)
    journal.append(group(1, 10))
    for name, first in (("a", 0), ("b", 30)):
        for at in (1, 11):
            (entry,) = group(first + at + 10, 10, ts_us=0)
            journal.loads.put(name, [replace(entry, seq=at)])
        seq = journal.last_seq + 1
        load = journal.loads.load(name)
        journal.append([LogEntry("publish", "orders", seq, 5, None, (), load=load)])
        journal.append(group(seq + 20, 10))
    journal.close()


def test_loads_are_kept_whole_and_a_broken_one_ends_the_log(tmp_path):
    with_loads(tmp_path / "j")
    before = seqs(tmp_path / "j")
    assert before == list(range(1, 71))
    assert repair_journal(tmp_path / "j").kept == "records 1 to 70"
    assert seqs(tmp_path / "j") == before
    damage(tmp_path / "j" / "data.mdb", 55)
    report = repair_journal(tmp_path / "j")
    assert (report.kept, report.lost) == ("records 1 to 40", "records 41 to 70")
    assert seqs(tmp_path / "j") == list(range(1, 41))


def test_a_broken_load_that_checkpoints_have_does_not_end_what_follows(tmp_path):
    with_loads(tmp_path / "j")
    damage(tmp_path / "j" / "data.mdb", 15)
    report = repair_journal(tmp_path / "j", after_seq=65)
    assert (report.kept, report.lost) == ("records 31 to 70", "records 1 to 30")
    assert seqs(tmp_path / "j", at_least_seq=65) == list(range(31, 71))
