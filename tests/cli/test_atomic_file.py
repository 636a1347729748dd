"""A file that a command writes is there as a whole, or as it was."""

import pytest

from sow.cli.atomic_file import new_file
from sow.errors import ClientError


def test_what_is_written_is_there_at_the_end_and_not_before(tmp_path):
    path = tmp_path / "a"
    with new_file(str(path)) as file:
        file.write(b"x")
        assert not path.exists()
    assert [path.read_bytes(), list(tmp_path.iterdir())] == [b"x", [path]]


def test_what_is_given_up_leaves_what_stood_there(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), new_file(str(path), force=True) as file:
        file.write(b"%d" % (1 // 0))
    assert [path.read_bytes(), list(tmp_path.iterdir())] == [b"old", [path]]


def test_a_file_that_came_meanwhile_is_not_written_over(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(ClientError, match="is there already"), new_file(str(path)):
        path.write_bytes(b"of another")
    assert [path.read_bytes(), list(tmp_path.iterdir())] == [b"of another", [path]]


def test_a_directory_is_no_file(tmp_path):
    with pytest.raises(ClientError, match="is a directory"), new_file(str(tmp_path), force=True):
        pass
