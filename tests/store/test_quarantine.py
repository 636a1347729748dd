"""A file put in the place of another: the old one stays, and an interruption is gone on from."""

import pytest

from sow.store.quarantine import begin, finish, is_unfinished, put_in_place, set_aside


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
