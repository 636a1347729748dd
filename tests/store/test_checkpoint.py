"""What every checkpoint promises, and what the one on disk leaves behind."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import DiskFull, StoreError
from sow.store.checkpoint import LmdbCheckpoint, seal_values, slice_key, values_key
from sow.store.environment import structural_damage
from sow.store.layout import decode_slice
from tests.effort import examples
from tests.store.entries import part, slices
from tests.store.in_memory import MemoryCheckpoint


def on_disk(tmp_path, **options):
    return LmdbCheckpoint(tmp_path / "t.sow", topic="t", **options)


@pytest.fixture(params=["disk", "memory"])
def checkpoint(request, tmp_path):
    made = on_disk(tmp_path) if request.param == "disk" else MemoryCheckpoint()
    yield made
    made.close()


def interrupted(*parts):
    yield from parts
    raise InterruptedError


def test_a_new_checkpoint_is_empty(checkpoint):
    assert (checkpoint.seq, list(checkpoint.load())) == (0, [])


def test_what_was_written_is_loaded(checkpoint):
    checkpoint.write(7, iter([part(0, 3), part(3, 2)]))
    assert (checkpoint.seq, list(checkpoint.load())) == (7, [part(0, 3), part(3, 2)])


def test_the_next_checkpoint_replaces_the_last(checkpoint):
    checkpoint.write(7, [part(0, 3), part(3, 2)])
    checkpoint.write(9, [part(5, 1)])
    assert (checkpoint.seq, list(checkpoint.load())) == (9, [part(5, 1)])


def test_an_empty_table_can_be_checkpointed(checkpoint):
    checkpoint.write(7, [part(0, 3)])
    checkpoint.write(9, [])
    assert (checkpoint.seq, list(checkpoint.load())) == (9, [])


def test_an_interrupted_write_leaves_the_old_checkpoint(checkpoint):
    checkpoint.write(7, [part(0, 3)])
    with pytest.raises(InterruptedError):
        checkpoint.write(9, interrupted(*(part(n, 1) for n in range(20))))
    assert (checkpoint.seq, list(checkpoint.load())) == (7, [part(0, 3)])


def test_a_write_after_an_interrupted_one_is_whole(checkpoint):
    with pytest.raises(InterruptedError):
        checkpoint.write(9, interrupted(*(part(n, 1) for n in range(20))))
    checkpoint.write(11, [part(50, 2)])
    assert (checkpoint.seq, list(checkpoint.load())) == (11, [part(50, 2)])


def test_one_that_is_kept_outlives_those_that_replace_it_until_it_is_forgotten(checkpoint):
    checkpoint.write(7, [part(0, 3), part(3, 2)], lambda: (8, 100))
    checkpoint.write(9, [part(5, 1)], lambda: None)
    checkpoint.write(11, [], lambda: (12, 200))
    checkpoint.write(13, [part(6, 1)])
    assert [one[:3] for one in checkpoint.kept] == [(7, 8, 100), (11, 12, 200)]
    first, second = checkpoint.kept
    assert list(checkpoint.load_kept(first)) == [part(0, 3), part(3, 2)]
    assert list(checkpoint.load_kept(second)) == []
    assert list(checkpoint.load()) == [part(6, 1)]
    checkpoint.forget(1)
    assert checkpoint.kept == [second]
    with pytest.raises(StoreError, match="no longer kept"):
        list(checkpoint.load_kept(first))


def test_one_that_is_interrupted_is_not_kept(checkpoint):
    checkpoint.write(7, [part(0, 3)], lambda: (8, 100))
    with pytest.raises(InterruptedError):
        checkpoint.write(9, interrupted(part(1, 1)), lambda: (9, 200))
    assert [one.seq for one in checkpoint.kept] == [7]


def test_what_is_kept_survives_a_start_and_its_slices_go_with_it(tmp_path):
    first = on_disk(tmp_path)
    first.write(7, [known(0, 3), part(3, 2)], lambda: (8, 100))
    first.write(9, [part(5, 1)])
    first.close()
    again = on_disk(tmp_path)
    (kept,) = again.kept
    # What indexes knew of it is of no use any more.
    assert list(again.load_kept(kept)) == [part(0, 3), part(3, 2)]
    reading = again.load_kept(kept)
    next(reading)
    again.forget(1)
    assert next(reading) == part(3, 2), "it is being read"
    reading.close()
    again.write(11, [])
    with again._env.read() as txn:
        assert txn.stat()["entries"] == 1
    again.close()


@given(st.lists(slices(), max_size=12))
@examples(15)
def test_any_slices_survive_reopening(tmp_path_factory, parts):
    directory = tmp_path_factory.mktemp("c")
    first = on_disk(directory)
    first.write(3, parts)
    first.close()
    again = on_disk(directory)
    assert (again.seq, list(again.load())) == (3, parts)
    again.close()
    assert structural_damage(directory / "t.sow") == ""


def test_leftovers_of_an_interrupted_write_are_cleared_on_opening(tmp_path):
    first = on_disk(tmp_path)
    first.write(7, [part(0, 3)])
    size_bytes = first.size_bytes
    with pytest.raises(InterruptedError):
        first.write(9, interrupted(*(part(n, 200) for n in range(200))))
    assert first.size_bytes > size_bytes
    first.close()
    again = on_disk(tmp_path)
    assert (again.size_bytes, list(again.load())) == (size_bytes, [part(0, 3)])
    again.close()


def test_checkpoints_reuse_the_room_of_those_they_replaced(tmp_path):
    checkpoint = on_disk(tmp_path, map_bytes=100_000)
    for seq in range(1, 30):
        checkpoint.write(seq, [part(n, 100) for n in range(20)])
    checkpoint.close()
    assert (tmp_path / "t.sow").stat().st_size < 4 * 20 * 20_000


def test_another_fingerprint_is_refused_with_what_to_do(tmp_path):
    on_disk(tmp_path, fingerprint="Key /id").close()
    with pytest.raises(StoreError, match=r"topic t: .*then Key /id, now Key /a.*move the file"):
        on_disk(tmp_path, fingerprint="Key /a")


def test_a_file_that_was_just_being_made_is_no_damage(tmp_path):
    (tmp_path / "t.sow").touch()
    made = on_disk(tmp_path)
    made.write(3, [part(1, 4)])
    made.close()
    assert on_disk(tmp_path).records == 4


def test_a_disk_that_refuses_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    checkpoint = on_disk(tmp_path)
    checkpoint.write(7, [part(0, 3)])

    def refuse(work):
        raise DiskFull("no room")

    monkeypatch.setattr(checkpoint._env, "write", refuse)
    with pytest.raises(DiskFull):
        checkpoint.write(9, [part(1, 1)])
    assert (checkpoint.seq, list(checkpoint.load())) == (7, [part(0, 3)])
    checkpoint.close()


def test_what_is_copied_stays_until_it_is_and_goes_then(tmp_path):
    checkpoint = on_disk(tmp_path)
    checkpoint.write(7, [part(0, 3), part(3, 2)])
    first, second = checkpoint.blocks(), checkpoint.blocks()
    assert next(first) == next(second)
    first.close()
    for seq in (8, 9):
        checkpoint.write(seq, [part(5, 1)])
    assert [decode_slice(block) for block in second] == [part(0, 3), part(3, 2)]
    assert list(checkpoint.load()) == [part(5, 1)]
    checkpoint.write(10, [])
    with checkpoint._env.read() as txn:
        assert txn.stat()["entries"] == 1
    checkpoint.close()


def test_a_load_that_is_abandoned_keeps_nothing(tmp_path):
    checkpoint = on_disk(tmp_path)
    checkpoint.write(7, [part(n, 1) for n in range(50)])
    loading = checkpoint.load()
    assert next(loading) == part(0, 1)
    del loading
    checkpoint.write(8, [])
    with checkpoint._env.read() as txn:
        assert txn.stat()["entries"] == 1
    checkpoint.close()


def known(first, count, values=b"known"):
    return replace(part(first, count), values=values)


def test_what_indexes_know_is_loaded_with_its_slice(checkpoint):
    parts = [known(0, 3), part(3, 2), known(5, 1, b"")]
    checkpoint.write(7, parts)
    assert list(checkpoint.load()) == parts
    with pytest.raises(InterruptedError):
        checkpoint.write(9, interrupted(*(known(n, 1, b"newer") for n in range(20))))
    assert list(checkpoint.load()) == parts
    checkpoint.write(11, [known(0, 3, b"newer")])
    assert [one.values for one in checkpoint.load()] == [b"newer"]


def test_what_indexes_knew_goes_with_its_slices(tmp_path):
    checkpoint = on_disk(tmp_path)
    checkpoint.write(7, [known(n, 1) for n in range(200)])
    with pytest.raises(InterruptedError):
        checkpoint.write(9, interrupted(*(known(n, 1) for n in range(20))))
    checkpoint.write(11, [part(0, 1)])
    with checkpoint._env.read() as txn:
        assert txn.stat()["entries"] == 2
    checkpoint.close()


def flipped(block, other):
    return block[:-1] + bytes([block[-1] ^ 1])


def cut_short(block, other):
    return block[:-1]


def empty(block, other):
    return b""


def of_another_slice(block, other):
    return seal_values(b"known", other)


@pytest.mark.parametrize("spoil", [flipped, cut_short, empty, of_another_slice])
def test_damage_to_stored_values_is_reported_once_and_loses_nothing(tmp_path, caplog, spoil):
    checkpoint = on_disk(tmp_path)
    checkpoint.write(7, [known(n, 2) for n in range(4)])
    with checkpoint._env.read() as txn:
        block, other = txn.get(values_key(1, 1)), txn.get(slice_key(1, 2))

    def put(txn):
        for number in (1, 3):
            txn.put(values_key(1, number), spoil(block, other))

    checkpoint._env.write(put)
    found = list(checkpoint.load())
    assert [replace(one, values=None) for one in found] == [part(n, 2) for n in range(4)]
    assert [one.values for one in found] == [b"known", None, None, None]
    (line,) = caplog.messages
    assert "what indexes know of the records" in line
    assert "slice 2: " in line
    checkpoint.close()
