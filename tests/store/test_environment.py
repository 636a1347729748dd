"""What an LMDB environment leaves behind when the disk lets it down."""

import errno
import os
import threading
from itertools import count

import lmdb
import pytest

from sow.errors import Damaged, StoreError
from sow.store.environment import PIECES_AHEAD, Environment, ahead


def test_the_lock_has_room_on_the_disk_before_it_is_mapped(tmp_path):
    env = Environment(tmp_path / "t.sow", subdir=False)
    with env.read() as txn:
        assert txn.stat()["entries"] == 0
    size = os.stat(tmp_path / "t.sow-lock")
    assert size.st_blocks * 512 >= size.st_size > 0
    env.close()


def test_no_room_for_the_lock_is_an_error_and_not_the_end(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StoreError, match="No space left"):
        Environment(tmp_path / "t.sow", subdir=False)


def test_a_file_that_could_not_be_made_is_not_left_in_halves(tmp_path, monkeypatch):
    def fail(path, **_):
        with open(path, "wb") as file:
            file.write(bytes(4096))
        raise lmdb.Error("No space left on device")

    monkeypatch.setattr(lmdb, "open", fail)
    with pytest.raises(StoreError, match="No space left"):
        Environment(tmp_path / "t.sow", subdir=False)
    assert not (tmp_path / "t.sow").exists()


def test_a_file_that_was_moved_takes_nothing_and_reports_why(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    env = Environment(path, subdir=True)
    assert env.lost() is None
    assert env.has_room()
    path.rename(tmp_path / "elsewhere")
    assert (env.has_room(), env.takes(1), env.room_bytes) == (False, False, 0)
    assert "data.mdb: no such file or directory; nothing was stored" in env.lost().detail
    path.mkdir()
    (path / "data.mdb").write_bytes(b"")
    assert "data.mdb: another file is in its place" in env.lost().detail
    (path / "data.mdb").unlink()
    path.rmdir()
    (tmp_path / "elsewhere").rename(path)
    assert env.lost() is None
    assert env.has_room()
    env.close()


def readers():
    return [thread for thread in threading.enumerate() if thread.name == "sow-ahead"]


class Contended:
    """A lock that another thread has held until now, and that has released the files meanwhile."""

    def __init__(self, env):
        self._env = env

    def __enter__(self):
        if self._env._env is not None:
            self._env._env.close()
            self._env._env = None

    def __exit__(self, *_error):
        pass


def test_who_waits_while_a_failed_commit_releases_the_files_reads_on(tmp_path):
    env = Environment(tmp_path / "files", subdir=False)
    env.put([(b"key", b"value")])
    env._map_lock = Contended(env)
    with env.read() as txn:
        assert txn.get(b"key") == b"value"
    env.close()


@pytest.mark.parametrize("use", ["read", "write"])
def test_files_that_were_released_are_opened_by_one_at_a_time(tmp_path, use, monkeypatch):
    env, held = Environment(tmp_path / "files", subdir=False), []
    env._release()
    opened = env._open
    monkeypatch.setattr(env, "_open", lambda: held.append(env._map_lock.locked()) or opened())
    if use == "read":
        with env.read() as txn:
            txn.get(b"key")
    else:
        env.put([(b"key", b"value")])
    assert held == [True]
    env.close()


def test_pieces_read_ahead_are_the_same_in_order_and_few_of_them_at_a_time():
    taken, seen = [], []

    def pieces():
        for number in range(1000):
            seen.append((threading.current_thread().name, number - len(taken)))
            yield number

    for piece in ahead(pieces()):
        taken.append(piece)
    assert taken == list(range(1000))
    assert {name for name, _ in seen} == {"sow-ahead"}
    # Those that wait, and the one that is just being taken.
    assert max(before for _, before in seen) <= PIECES_AHEAD + 1
    assert not readers()


def test_pieces_that_may_be_empty_or_false_are_all_handed_on():
    assert list(ahead(piece for piece in (b"", None, 0, []))) == [b"", None, 0, []]
    assert list(ahead(piece for piece in ())) == []


def test_what_fails_ahead_fails_in_its_place():
    def pieces():
        yield from range(3)
        raise Damaged("the fourth")

    reading = ahead(pieces())
    assert [next(reading), next(reading), next(reading)] == [0, 1, 2]
    with pytest.raises(Damaged, match="the fourth"):
        next(reading)
    assert not readers()


def test_who_stops_early_closes_what_is_read_ahead():
    closed = []

    def pieces():
        try:
            yield from count()
        finally:
            closed.append(threading.current_thread().name)

    reading = ahead(pieces())
    assert [next(reading), next(reading)] == [0, 1]
    reading.close()
    assert closed == ["sow-ahead"]
    assert not readers()
    ahead(pieces())  # never begun
    assert not readers()
