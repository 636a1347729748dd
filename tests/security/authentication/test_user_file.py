"""Files of users: read line by line, written as a whole."""

import errno
import os
import pwd
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sow.errors import ConfigError
from sow.security.authentication import credentials, htpasswd

ROOT = Path(__file__).parents[3]
SOMEBODY = 64_321
"""The number of a user whom nobody has; such a one is the unit's."""


def test_lines_that_say_something_have_their_numbers():
    assert [*credentials.numbered("# who\n\n ann:x \r\nbob:y")] == [(3, "ann:x"), (4, "bob:y")]


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path):
    with pytest.raises(
        ConfigError, match=r"file of Users is not there: .*none; `sow user add NAME` makes it"
    ):
        credentials.read(str(tmp_path / "none"), "Users")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not text in UTF-8"):
        credentials.read(str(tmp_path / "bytes"), "Users")


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(credentials, "LARGEST_BYTES", 3)
    (tmp_path / "large").write_text("four")
    with pytest.raises(ConfigError, match="the file of Users is over"):
        credentials.read(str(tmp_path / "large"), "Users")


def test_a_file_is_replaced_as_a_whole_and_its_owner_alone_reads_it(tmp_path):
    file = tmp_path / "tokens"
    credentials.replace(str(file), "one\n")
    assert file.read_text() == "one\n"
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o640)
    credentials.replace(str(file), "two\n")
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
    credentials.replace(str(link), "new")
    assert (file.read_text(), link.is_symlink()) == ("new", True)
    assert given == [(file.stat().st_uid, file.stat().st_gid)]


ELSEWHERE = """
import os, sys
from sow.security.authentication import htpasswd
from sow.errors import ConfigError

uid, file = int(sys.argv[1]), sys.argv[2]
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
try:
    print(*htpasswd.Users.read(file).hashes)
except ConfigError as error:
    print(error)
"""
"""Reads a file of users as a user who owns nothing else, as the server of the unit does."""


def read_as(uid, file):
    command = [sys.executable, "-c", ELSEWHERE, str(uid), str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.rstrip("\n")


@pytest.mark.root
def test_what_root_writes_for_another_user_he_reads_and_goes_on_reading():
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # pytest's own are root's alone
        file = Path(folder) / "users"
        htpasswd.put(str(file), "ann", "one long password")
        assert read_as(SOMEBODY, file) == (
            f"the file of Users cannot be read: {file}: permission denied for {SOMEBODY}, the "
            f"user of the server: chown {SOMEBODY} {file}"
        )
        os.chown(file, SOMEBODY, -1)
        assert read_as(SOMEBODY, file) == "ann"
        htpasswd.put(str(file), "bob", "another password")
        assert read_as(SOMEBODY, file) == "ann bob"
        assert file.stat().st_mode & 0o777 == 0o600


def test_who_may_not_read_a_file_is_named_with_what_mends_it(monkeypatch):
    denied = PermissionError(errno.EACCES, "Permission denied")
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert credentials.unreadable("f", denied).endswith(f"chown {user} f")
    assert credentials.unreadable("f", IsADirectoryError(errno.EISDIR, "")) == "f: is a directory"


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path, monkeypatch):
    file = tmp_path / "tokens"
    file.write_text("one\n")

    def fail(*_):
        raise OSError("no room")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no room"):
        credentials.replace(str(file), "two\n")
    assert file.read_text() == "one\n"
    assert os.listdir(tmp_path) == ["tokens"]


def test_those_who_change_a_file_take_turns(tmp_path):
    file = str(tmp_path / "tokens")
    credentials.replace(file, "")
    told = []

    def append(name):
        with credentials.held(file):
            text = credentials.read(file, "Tokens")
            told.append(name)
            credentials.replace(file, f"{text}{name}\n")

    threads = [threading.Thread(target=append, args=(str(at),)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert credentials.read(file, "Tokens").split() == told


def test_lines_are_edited_and_comments_stay():
    text = "# one\n\n a b \nc d\n"
    edited = credentials.edited(text, lambda line: None if line == "a b" else line.upper())
    assert edited == "# one\n\nC D\n"
