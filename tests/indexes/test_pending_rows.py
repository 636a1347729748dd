from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from sow.indexes import pending_rows
from sow.indexes.pending_rows import PendingRows
from tests.effort import examples


def taken(kept: PendingRows, size: int, limit: int | None = None) -> list[int]:
    read: list[int] = []
    kept.work_off(size, limit, read.extend)
    return read


def test_at_first_every_slot_is_to_be_read() -> None:
    kept = PendingRows()
    assert (kept.count(3), kept.is_filled(3)) == (3, False)
    assert taken(kept, 3) == [0, 1, 2]
    assert (kept.count(3), kept.is_filled(3)) == (0, True)


def test_slots_are_read_from_the_start_as_many_as_are_wanted() -> None:
    kept = PendingRows()
    assert [taken(kept, 5, 2) for _ in range(4)] == [[0, 1], [2, 3], [4], []]


def test_what_is_touched_before_it_was_read_is_no_note() -> None:
    kept = PendingRows()
    taken(kept, 5, 2)
    kept.touch([1, 3])
    assert kept.count(5) == 4
    assert taken(kept, 5) == [2, 3, 4, 1]


def test_a_table_that_grew_has_more_to_read() -> None:
    kept = PendingRows()
    taken(kept, 2)
    kept.touch([2, 3])
    assert taken(kept, 4) == [2, 3]


def test_a_slot_that_is_touched_twice_is_read_once() -> None:
    kept = PendingRows()
    taken(kept, 3)
    kept.touch([1, 1])
    assert kept.count(3) == 2
    assert taken(kept, 3) == [1]


def test_notes_stay_in_proportion_to_the_slots() -> None:
    kept = PendingRows()
    taken(kept, 2)
    for _ in range(10_000):
        kept.touch([0, 1])
    assert kept.count(2) <= 2 * 2 + pending_rows.TOUCHED_SPARE
    assert taken(kept, 2) == [0, 1]


def test_portions_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(pending_rows, "CHUNK_ROWS", 2)
    read: list[int] = []
    PendingRows().work_off(5, None, lambda slots: read.append(len(slots)))
    assert read == [2, 2, 1]


def test_no_touch_looks_through_more_than_a_few_times_its_own_number() -> None:
    kept = PendingRows()
    taken(kept, 100_000)
    kept.touch(range(50_000))
    for slot in range(0, 50_000, 100):
        before = kept.count(100_000)
        kept.touch(range(slot, slot + 100))
        # What it finds to be noted twice is all that it can make less.
        assert before + 100 - kept.count(100_000) <= pending_rows.SIFTED_MIN
    assert kept.count(100_000) <= 3 * 50_000
    assert set(taken(kept, 100_000)) == set(range(50_000))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("touch"), st.lists(st.integers(0, 9))),
            st.tuples(st.just("grow"), st.integers(0, 3)),
            st.tuples(st.just("take"), st.none() | st.integers(0, 5)),
        )
    )
)
@examples(48)
def test_whatever_was_touched_is_read_after_it(acts: list) -> None:
    with (
        mock.patch.object(pending_rows, "SIFTED_MIN", 1),
        mock.patch.object(pending_rows, "SIFTED_FACTOR", 1),
    ):
        touch_and_read(acts)


def touch_and_read(acts: list) -> None:
    kept, size = PendingRows(), 3
    kept._touched_max = 2  # they are sifted soon
    now = list(range(10))  # what is in each slot; what the index has read of it
    seen: dict[int, int] = {}
    for what, how in acts:
        if what == "touch":
            for slot in how:
                now[slot] += 10
            kept.touch([slot for slot in how if slot < size])
        elif what == "grow":
            size = min(10, size + how)
        else:
            seen.update((slot, now[slot]) for slot in taken(kept, size, how))
        for slot in set(range(size)) - kept.slots(size):
            assert seen[slot] == now[slot]
    seen.update((slot, now[slot]) for slot in taken(kept, size))
    assert seen == dict(enumerate(now[:size]))
