"""The store of a publisher: what waits, in memory or in a file that is cut off at any byte."""

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.client import publish_store
from sow.client.publish_store import PublishStore, StoredFrame
from sow.errors import ClientError, Damaged


def entry(*bodies, command="publish"):
    return StoredFrame(command, "orders", [str(body).encode() for body in bodies], {"k": "1"})


def held(store):
    bodies = [[body.decode() for body in one.bodies] for one in store.waiting]
    return store.log_id, store.base, bodies


def filled(path=None):
    store = PublishStore("feed", path)
    for bodies in ((1, 2, 3), (4,), (5, 6)):
        store.add(entry(*bodies))
    store.number("aa", 10)
    store.applied(2)
    store.drop(2, 0)
    store.add(entry(7))
    store.drop(1, None)
    return store


EXPECTED = ("aa", 12, [["3"], ["6"], ["7"]])


def test_messages_wait_in_order_and_those_behind_one_that_leaves_move_up():
    store = filled()
    assert held(store) == EXPECTED
    assert (store.count, store.size_bytes) == (3, sum(one.size_bytes for one in store.waiting))
    store.add(entry(8, 9, command="sow_delete"))
    assert store.count == 4, "a delete has one number"
    store.applied(4)
    assert held(store) == ("aa", 16, [])
    assert store.size_bytes == 0


def test_a_file_is_read_again_and_belongs_to_one_publisher(tmp_path):
    path = tmp_path / "store"
    filled(path).close()
    again = PublishStore("feed", path)
    assert held(again) == EXPECTED
    assert again.waiting[0].fields == {"k": "1"}
    with pytest.raises(ClientError, match="in use"):
        PublishStore("feed", path)
    again.close()
    with pytest.raises(ClientError, match="that of the publisher 'feed'"):
        PublishStore("other", path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_cut_off_anywhere_has_what_came_before(tmp_path):
    path, seen = tmp_path / "store", []
    filled(path).close()
    data = path.read_bytes()
    for end in range(len(data)):
        path.write_bytes(data[:end])
        store = PublishStore("feed", path)
        seen.append(held(store))
        store.add(entry("new"))
        store.close()
        store = PublishStore("feed", path)
        assert held(store)[2][-1] == ["new"], "and goes on behind it"
        store.close()
    assert len(set(map(str, seen))) == 8


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_damage_in_a_file_is_an_error_and_never_another_message(tmp_path_factory, at, bit):
    path = tmp_path_factory.mktemp("damaged") / "store"
    filled(path).close()
    data = bytearray(path.read_bytes())
    at %= data.rindex(b"\n", 0, -1)
    data[at] ^= 1 << bit
    path.write_bytes(data)
    with pytest.raises(Damaged, match="is damaged at byte"):
        PublishStore("feed", path)


def test_a_file_of_the_past_is_written_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(publish_store, "REWRITTEN_BYTES_MIN", 1000)
    path = tmp_path / "store"
    store = PublishStore("feed", path)
    store.number("aa", 1)
    for number in range(500):
        store.add(entry(number, "x" * 50))
        store.applied(1 if number == 499 else 2)
    assert path.stat().st_size < 3000
    store.close()
    assert held(PublishStore("feed", path)) == ("aa", 1000, [["x" * 50]])
    assert [one.name for one in tmp_path.iterdir()] == ["store"]


def test_bodies_are_kept_byte_for_byte(tmp_path):
    store = PublishStore("feed", tmp_path / "store")
    store.add(StoredFrame("publish", "ü", [bytes(byte for byte in range(256) if byte != 10)]))
    store.close()
    (found,) = PublishStore("feed", tmp_path / "store").waiting
    assert (found.topic, found.bodies) == ("ü", [bytes(b for b in range(256) if b != 10)])


def test_a_file_that_cannot_be_written_anew_is_written_on(tmp_path, monkeypatch):
    monkeypatch.setattr(publish_store, "REWRITTEN_BYTES_MIN", 1000)
    path, tried = tmp_path / "store", []

    def full(file):
        tried.append(file)
        raise OSError(errno.ENOSPC, "no room")

    store = PublishStore("feed", path)
    store.number("aa", 1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        for number in range(100):
            store.add(entry(number, "x" * 50))
            store.applied(2)
        store.add(entry("last"))
    assert 1 < len(tried) < 10, "not for every message"
    assert [one.name for one in tmp_path.iterdir()] == ["store"]
    again = tmp_path / "again"
    again.write_bytes(path.read_bytes())
    assert held(PublishStore("feed", again)) == ("aa", 201, [["last"]]), "it is all there"
    with pytest.raises(ClientError, match="in use"):
        PublishStore("feed", path)
    for number in range(500):
        store.add(entry(number, "x" * 50))
        store.applied(2)
    assert path.stat().st_size < 3000, "there is room again"
    store.close()


def test_a_store_that_its_owner_writes_anew_while_another_opens_it_is_in_use(tmp_path, monkeypatch):
    path = tmp_path / "store"
    filled(path).close()
    before = path.read_bytes()
    lock = publish_store.fcntl.flock

    def late(file, operation):
        new = tmp_path / "new"
        new.write_bytes(before)
        new.replace(path)
        lock(file, operation)

    monkeypatch.setattr(publish_store.fcntl, "flock", late)
    with pytest.raises(ClientError, match="in use"):
        PublishStore("feed", path)


@pytest.mark.parametrize("data", [b'{"id": 1}', b"\0" * 100, b"00000000 "])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path, data):
    path = tmp_path / "orders.json"
    path.write_bytes(data)
    with pytest.raises(Damaged, match="is no store of the publisher 'feed'"):
        PublishStore("feed", path)
    assert path.read_bytes() == data


def test_frames_wait_together_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "store"
    store, write = PublishStore("feed", path), os.write

    def half(file, data):
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "no room")
        return write(file, data[:100])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", half)
        with pytest.raises(OSError, match="no room"):
            store.add(entry("a" * 50), entry("b" * 50))
    assert held(store) == ("", None, [])
    store.add(entry("c"), entry("d"))
    store.close()
    assert held(PublishStore("feed", path)) == ("", None, [["c"], ["d"]])
