"""Open windows in files beside the log: an index that may be missing, and never wrong."""

import errno
import logging

import pytest

from sow.errors import StoreError
from sow.store import kept_windows
from sow.store.files import rewrite
from sow.store.journal import LmdbJournal
from sow.store.kept_windows import WindowFiles
from sow.store.protocols import LogEntry, OpenWindows, WindowsPlace

STATE = [["orders", "orders-C", [0, 3, 7, [[b"\xff", "ä", None]]]]]


def found(seq, time_us=1_000):
    return OpenWindows(seq, time_us, STATE)


def places(files):
    return [one.seq for one in files.places]


def test_what_is_kept_is_read_by_another_process(tmp_path):
    files = WindowFiles(tmp_path / "windows", 0)
    assert places(files) == []
    for seq in (9, 10, 200):
        files.put(found(seq))
    again = WindowFiles(tmp_path / "windows", 200)
    assert places(again) == places(files) == [9, 10, 200]
    assert again.load(WindowsPlace(10, 1_000)) == found(10)
    assert (tmp_path / "windows").stat().st_mode & 0o777 == 0o700


def test_what_is_behind_the_end_of_the_log_goes(tmp_path):
    files = WindowFiles(tmp_path, 0)
    for seq in (9, 10):
        files.put(found(seq))
    assert places(WindowFiles(tmp_path, 9)) == [9]
    assert places(WindowFiles(tmp_path, 99)) == [9], "for good"


def test_what_the_log_has_no_more_goes(tmp_path):
    files = WindowFiles(tmp_path, 0)
    for seq in (9, 10, 11):
        files.put(found(seq))
    files.forget(10)
    assert places(files) == places(WindowFiles(tmp_path, 99)) == [10, 11]
    assert files.load(WindowsPlace(9, 1_000)) is None


@pytest.mark.parametrize(
    "spoil", [lambda block: block[:-1], lambda block: block[:-1] + b"\0", lambda _: b""]
)
def test_what_is_not_as_it_was_written_is_left_out(tmp_path, caplog, spoil):
    files = WindowFiles(tmp_path, 0)
    files.put(found(9))
    (path,) = tmp_path.iterdir()
    path.write_bytes(spoil(path.read_bytes()))
    again = WindowFiles(tmp_path, 9)
    with caplog.at_level(logging.WARNING):
        assert again.load(WindowsPlace(9, 1_000)) is None
    assert "is left out" in caplog.text
    assert places(again) == []


def test_other_files_are_none_of_them(tmp_path):
    for name in ("x.windows", "9-.windows", "-9-1.windows", "9-1.unfinished", "9-1"):
        (tmp_path / name).write_bytes(b"")
    assert places(WindowFiles(tmp_path, 99)) == []


def test_a_disk_that_refuses_says_so(tmp_path):
    (tmp_path / "windows").write_bytes(b"")
    with pytest.raises(StoreError, match="cannot be written"):
        WindowFiles(tmp_path / "windows", 0).put(found(9))


def test_nothing_is_left_of_what_a_full_disk_refuses(tmp_path, monkeypatch):
    files = WindowFiles(tmp_path, 0)
    files.put(found(9))

    class Full:
        def __init__(self, path):
            self._file = rewrite(path)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            self._file.close()

        def write(self, block):
            self._file.write(block[:9])
            self._file.flush()
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(kept_windows, "rewrite", Full)
    with pytest.raises(StoreError, match="No space left on device"):
        files.put(found(10))
    assert places(files) == [9]
    assert [one.name for one in tmp_path.iterdir()] == ["9-1000.windows"]


def test_nothing_is_left_of_what_a_process_died_in(tmp_path):
    WindowFiles(tmp_path, 0).put(found(9))
    (tmp_path / "10-1000.unfinished").write_bytes(b"half")
    assert places(WindowFiles(tmp_path, 10)) == [9]
    assert [one.name for one in tmp_path.iterdir()] == ["9-1000.windows"]


def test_they_go_with_the_log(tmp_path):
    journal = LmdbJournal(tmp_path, retention_bytes=0)
    for seq in (1, 2, 3):
        journal.append([LogEntry("publish", "orders", seq, seq, ["a"], [b"{}"])])
        journal.windows.put(found(seq, seq))
    journal.trim(10, 3)
    assert places(journal.windows) == [2, 3], "the first is behind what is gone"
    journal.close()
