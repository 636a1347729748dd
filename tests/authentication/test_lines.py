"""Files of users: read line by line, written as a whole."""

import os
import threading

import pytest

from sow.authentication import lines
from sow.errors import ConfigError


def test_lines_that_say_something_have_their_numbers():
    assert [*lines.numbered("# who\n\n ann:x \r\nbob:y")] == [(3, "ann:x"), (4, "bob:y")]


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path):
    with pytest.raises(
        ConfigError, match=r"file of Users is not there: .*none; `sow user add NAME` makes it"
    ):
        lines.read(str(tmp_path / "none"), "Users")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not text in UTF-8"):
        lines.read(str(tmp_path / "bytes"), "Users")


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LARGEST_BYTES", 3)
    (tmp_path / "large").write_text("four")
    with pytest.raises(ConfigError, match="the file of Users is over"):
        lines.read(str(tmp_path / "large"), "Users")


def test_a_file_is_replaced_as_a_whole_and_its_owner_alone_reads_it(tmp_path):
    file = tmp_path / "tokens"
    lines.replace(str(file), "one\n")
    assert file.read_text() == "one\n"
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    lines.replace(str(file), "two\n")
    assert file.read_text() == "two\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["tokens"]


def test_a_file_stays_its_owners_and_where_it_lies(tmp_path, monkeypatch):
    file, link = tmp_path / "tokens", tmp_path / "link"
    file.write_text("old")
    link.symlink_to(file)
    given = []
    # As whoever is somebody else.
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(os, "chown", lambda _file, *whose: given.append(whose))
    lines.replace(str(link), "new")
    assert (file.read_text(), link.is_symlink()) == ("new", True)
    assert given == [(file.stat().st_uid, file.stat().st_gid)]


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path, monkeypatch):
    file = tmp_path / "tokens"
    file.write_text("one\n")

    def fail(*_):
        raise OSError("no room")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no room"):
        lines.replace(str(file), "two\n")
    assert file.read_text() == "one\n"
    assert os.listdir(tmp_path) == ["tokens"]


def test_those_who_change_a_file_take_turns(tmp_path):
    file = str(tmp_path / "tokens")
    lines.replace(file, "")
    told = []

    def append(name):
        with lines.held(file):
            text = lines.read(file, "Tokens")
            told.append(name)
            lines.replace(file, f"{text}{name}\n")

    threads = [threading.Thread(target=append, args=(str(at),)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lines.read(file, "Tokens").split() == told


def test_lines_are_edited_and_comments_stay():
    text = "# one\n\n a b \nc d\n"
    edited = lines.edited(text, lambda line: None if line == "a b" else line.upper())
    assert edited == "# one\n\nC D\n"
