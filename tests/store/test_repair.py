"""What a repair saves, and that nothing is deleted."""

import contextlib
from pathlib import Path

import pytest

from sow.core.definitions import Topic
from sow.errors import Damaged
from sow.store import quarantine
from sow.store import repair as module
from sow.store.checkpoint import LmdbCheckpoint
from sow.store.directory import DataDirectory
from sow.store.journal import LmdbJournal
from sow.store.manifest import Manifest, ManifestFile
from sow.store.protocols import LogEntry
from sow.store.repair import main, repair_checkpoint, repair_journal
from sow.store.stored_definitions import StoredDefinition
from tests.store.entries import group, part, records


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

    syncs = ((module, "sync_directory"), (quarantine, "sync_directory"))
    for owner, name in ((Path, "rename"), (Path, "mkdir"), *syncs):
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
