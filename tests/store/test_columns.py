"""Columns: SowKeys, places, room made before it is needed, and holds of one moment."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.keys import sow_key, sow_keys
from sow.store import columns
from sow.store.columns import COPIED_AT_ONCE, CopyOnWrite, GrowableArray
from sow.store.memory import Table

SIZE = 10 * COPIED_AT_ONCE
writes = st.lists(st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=3), min_size=10)


@given(writes)
def test_what_is_written_meanwhile_is_in_the_larger_block_too(log):
    block = np.arange(2 * SIZE).reshape(2, SIZE)
    larger, number = GrowableArray(block, 2 * SIZE), 0
    for places in log:
        block[:, places] = number = number - 1
        is_complete = larger.write(np.array(places))
        block[1, places] = number  # what is written last of all, to the same places
        if is_complete:
            break
        larger.write(np.array(places))
    else:
        raise AssertionError("ten places have been written to")
    assert np.array_equal(larger.block[0, :SIZE], block[0])
    assert not larger.block[:, SIZE:].any()


def test_each_place_that_is_written_to_has_a_few_copied():
    block = np.ones((2, SIZE), np.int64)
    larger = GrowableArray(block, SIZE + 1)
    for at in range(1, 10):
        assert not larger.write(np.array([0]))
        assert np.count_nonzero(larger.block) == 2 * at * COPIED_AT_ONCE
    assert larger.write(np.array([0]))
    assert np.count_nonzero(larger.block) == 2 * SIZE


names = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5)


def key(identity):
    return sow_key("t", identity)


def put(table, identities):
    some = list(identities)
    table.put(some, [b"{}"] * len(some), range(1, len(some) + 1), [0] * len(some))


@given(names)
def test_a_record_is_found_by_its_key_and_by_nothing_that_looks_like_it(identities):
    table = Table(sow_keys, "t")
    table.put(identities, [b""] * len(identities), range(len(identities)), [0] * len(identities))
    for identity in identities:
        slot = table.slots[identity]
        text = table.sow_key(slot)
        assert text == str(key(identity))
        assert table.find(text) == slot
        assert [table.find(bad) for bad in (f"0{text}", f"+{text}", f" {text}", "", "x")] == [
            None
        ] * 5


def test_keys_of_records_that_have_just_gone_are_still_sent():
    table = Table(sow_keys, "t")
    table.put(["a", "b"], [b"", b""], [1, 2], [0, 0])
    gone, slots, _ = table.drop(["b", "a", "c"])
    assert gone == ["b", "a"]
    assert table.sow_keys(slots, gone) == [str(key("b")), str(key("a"))]
    assert table.sow_keys(slots[:1], gone[:1]) == [str(key("b"))]
    assert table.find(str(key("a"))) is None


def test_without_a_function_an_identity_is_its_own_key():
    table = Table(None)
    table.put(["7"], [b""], [1], [0])
    assert table.find("7") == 0
    assert table.sow_key(0) == "7"
    assert table.sow_keys([0], ["7"]) == ["7"]


def test_sow_keys_are_made_findable_a_few_at_a_time_while_records_change():
    table = Table(sow_keys, "t")
    put(table, "abcde")
    assert (table.unkeyed_count, table.key(2), table.unkeyed_count) == (5, 2, 3)
    table.drop(["b", "d"])
    put(table, "fgh")
    assert [table.key(2) for _ in range(3)] == [2, 2, 0]
    put(table, "i")
    assert table.unkeyed_count == 1
    found = {name: table.find(str(key(name))) for name in "abcdefghi"}
    assert found == {name: table.slots.get(name) for name in "abcdefghi"}


def test_a_table_whose_sow_keys_are_identities_has_none_to_make_findable():
    table = Table(None)
    table.put(["a"], [b"{}"], [1], [1])
    assert table.unkeyed_count == 0


def test_records_that_are_equal_otherwise_are_sent_apart_as_they_stand():
    table = Table(sow_keys, "t")
    table.put(list("abc"), [b"{}"] * 3, [1, 2, 3], [0] * 3)
    assert table.ties(table.live()) == [*map(table.tie, table.live().tolist())] == [1, 2, 3]
    table.arrange("abc", [5, 4, 4])
    assert table.is_arranged
    ties = table.ties(table.live())
    assert ties == [*map(table.tie, table.live().tolist())]
    assert ties == sorted(ties)
    assert [place for place, _ in ties] == [4, 4, 5]


def test_columns_have_room_for_what_was_reserved_and_keep_what_they_hold():
    table = Table(sow_keys, "t")
    put(table, "ab")
    table.arrange("ab", [7, 8], [1, 2])
    table.reserve(1000)
    assert min(map(len, (table.seqs, table.born, table.order, table.newest))) >= 1000
    assert (table.seqs[:2].tolist(), table.order[:2].tolist()) == ([1, 2], [7, 8])
    before = len(table.seqs)
    table.reserve(10)
    assert len(table.seqs) == before


def test_of_what_is_not_there_numbers_are_those_of_others():
    table = Table(sow_keys, "t")
    put(table, "ab")
    assert table.places_of([1, None, 0], [5, 6, 7]) == [2, 6, 1]
    assert table.newest_of([1, None], [5, 6]) is None
    table.arrange("ab", [7, 8], [11, 12])
    assert table.newest_of([1, None], [5, 6]) == [12, 6]


def test_a_hold_has_what_stood_there_first():
    holds = CopyOnWrite()
    first = holds.take()
    assert holds.save([1, 2, 1], ["a", "b", "c"])
    second = holds.take()
    assert holds.save([2], ["d"])
    assert dict(first) == {1: "a", 2: "b"}
    assert dict(second) == {2: "d"}


def test_an_unreferenced_hold_saves_nothing_more():
    holds = CopyOnWrite()
    hold, other = holds.take(), holds.take()
    del hold
    assert holds.save([0], ["a"])
    del other
    assert not holds.save([0], ["b"])


def test_a_table_reports_what_it_replaces_and_what_it_removes():
    table = Table(None)
    table.put(["a", "b"], [b"1", b"2"], [1, 2], [0, 0])
    bodies, identities = table.hold_bodies(), table.hold_identities()
    table.put(["a", "a", "c"], [b"3", b"4", b"5"], [3, 4, 5], [0, 0, 0])
    table.drop(["b"])
    table.put(["d"], [b"6"], [6], [0])
    assert dict(bodies) == {0: b"1", 2: None, 1: b"2"}
    assert dict(identities) == {1: "b"}
    del bodies, identities
    table.put(["a"], [b"7"], [7], [0])
    table.drop(["a"])
    assert table._body_holds is table._identity_holds is None


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_a_frozen_table_stays_as_it_was(seed, keyed):
    chance, table = Random(seed), Table(sow_keys, "t")
    names = [f"n{number}" for number in range(12)]

    def change(seq):
        some = chance.sample(names, 3)
        if chance.random() < 0.4:
            table.drop(some)
        else:
            bodies = [b"%d" % (seq + at) for at in range(3)]
            table.put(some, bodies, range(seq, seq + 3), [seq] * 3, chance.choice([0, seq]))

    def state(of):
        live = of.live().tolist()
        return (
            [(of.identities[slot], of.bodies[slot], of.sow_key(slot)) for slot in live],
            of.seqs[live].tolist(), of.ts_us[live].tolist(), of.born[live].tolist(),
            [of.slots.get(name) for name in names], [name in of.slots for name in names],
            [of.find(key) for key in keys], len(of), sorted(of.slots),
        )  # fmt: skip

    for seq in range(1, 40, 3):
        change(seq)
    keys = [str(key) for key in sow_keys("t", names)]
    if keyed:
        table.find(keys[0])
    before = state(table) if keyed else None
    frozen = run_to_completion(table.freezing())
    before = before or state(frozen)
    for seq in range(100, 160, 3):
        change(seq)
        assert state(frozen) == before
        table.check()
    table.thaw()
    change(1000)
    assert table._gone is None
    with pytest.raises(KeyError):
        frozen.slots["none"]
    held = frozen.hold_bodies(), frozen.hold_identities()
    had = [frozen.bodies[:], frozen.identities[:]]
    now = state(table)
    run_to_completion(frozen.emptying())
    assert not any(frozen.bodies + frozen.identities)
    assert not frozen._gone
    assert not frozen._gone_keys
    assert [[hold[slot] for slot in range(len(hold))] for hold in held] == had
    assert state(table) == now


def test_a_step_of_freezing_copies_some_rows_of_one_column(monkeypatch):
    monkeypatch.setattr(columns, "COPIED_ROWS", 10)
    table = Table(sow_keys, "t")
    names = [str(number) for number in range(40)]
    table.put(names, [b"1"] * 40, range(1, 41), [1] * 40, 5)
    table.arrange(names, range(40), range(40))
    steps = sum(1 for _ in table.freezing())
    assert steps >= 6 * 4  # bodies, identities, numbers, expiries, places and the newest
