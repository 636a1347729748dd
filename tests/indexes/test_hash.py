import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.cooperative import run_to_completion
from sow.core.paths import parse_path
from sow.expressions import compare
from sow.indexes import HashIndex
from sow.indexes import hash as hash_module
from tests.effort import examples

A, B = parse_path("/a"), parse_path("/b")
LITERALS = ["5", "05", "5.0", "a", "true", "", 5, 5.5, 1, 0, 2**53 + 1, None, "1e400", 10**30]
SCALARS = st.sampled_from([*LITERALS, True, False, 5.0, "5e0", "b", float(2**53), 1e30])
VALUES = st.one_of(SCALARS, SCALARS, st.lists(SCALARS, max_size=3))
SLOTS = st.integers(0, 9)


def found(index: HashIndex, *literals: object) -> list[int]:
    slots = index.find([[literal] for literal in literals])
    assert slots is not None
    return sorted(slots.tolist())


def equal_slots(records: dict[int, tuple], literals: tuple) -> list[int]:
    return sorted(
        slot
        for slot, values in records.items()
        if all(
            compare("=", value, literal) for value, literal in zip(values, literals, strict=True)
        )
    )


def apply(index: HashIndex, records: dict[int, tuple], step: object) -> None:
    match step:
        case int():
            index.refresh(step or None)
        case [int(), *_]:
            gone = [slot for slot in set(step) if records.pop(slot, None)]
            index.drop(gone)
        case [*changes]:
            slots = [slot for slot, *_ in changes]
            columns = [list(column) for column in zip(*[c[1:] for c in changes], strict=True)]
            index.put(slots, columns)
            records.update({slot: tuple(values) for slot, *values in changes})


def check(index: HashIndex, records: dict) -> None:
    columns = [[values[at] for values in records.values()] for at in range(len(index.paths))]
    index.check(list(records), columns)


def test_a_record_under_another_value_than_its_own_is_found_out() -> None:
    index = HashIndex((A,))
    index.put([0, 1], [["x", "y"]])
    check(index, {0: ("x",), 1: ("y",)})
    for wrong in ({0: ("y",), 1: ("y",)}, {0: ("x",)}, {0: ("x",), 1: (None,)}):
        with pytest.raises(AssertionError, match="stands under another value"):
            check(index, wrong)


def steps(*values: st.SearchStrategy) -> st.SearchStrategy:
    puts = st.lists(st.tuples(SLOTS, *values), min_size=1, max_size=8)
    drops = st.lists(SLOTS, min_size=1, max_size=4)
    return st.lists(st.one_of(puts, puts, drops, st.integers(0, 4)), max_size=10)


@pytest.fixture(
    autouse=True,
    params=[(1 / 64, 1 / 4, 1024, 1000), (9.0, 9.0, 0, 1000), (9.0, 9.0, 0, 2)],
    ids=["all", "chains", "columns"],
)
def _ways(request, monkeypatch) -> None:
    """Small indexes compare all codes, and take records in one by one; with other limits they
    follow chains, and sweep, and take in columns."""
    monkeypatch.setattr(hash_module, "CHAIN_SHARE_MAX", request.param[0])
    monkeypatch.setattr(hash_module, "NOTES_SHARE_MAX", request.param[1])
    monkeypatch.setattr(hash_module, "CODES_SPARE", request.param[2])
    monkeypatch.setattr(hash_module, "MANY", request.param[3])


@given(steps(VALUES))
@examples(36)
def test_a_lookup_finds_exactly_what_equals_the_literal(changes: list) -> None:
    index, records = HashIndex((A,)), {}
    for step in changes:
        apply(index, records, step)
        check(index, records)
    for literal in LITERALS:
        assert found(index, literal) == equal_slots(records, (literal,)), literal


@given(st.lists(st.one_of(st.none(), VALUES), max_size=20), st.integers(1, 7), steps(VALUES))
@examples(36)
def test_records_that_are_taken_in_by_parts_are_as_if_put_one_by_one(
    rows: list, size: int, changes: list
) -> None:
    """A slot whose row is None here is free."""
    index, records = HashIndex((A,)), {}
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        held = {start + at: value for at, value in enumerate(part) if value is not None}
        index.take_in(np.array([*held], np.int64), [list(held.values())], start + len(part))
        records.update({slot: (value,) for slot, value in held.items()})
        check(index, records)
    assert index.dirty_count == 0
    for literal in LITERALS:
        assert found(index, literal) == equal_slots(records, (literal,)), literal
    for step in changes:
        apply(index, records, step)
        check(index, records)


@given(steps(VALUES, VALUES), st.sampled_from(LITERALS))
@examples(36)
def test_two_fields_must_both_equal_theirs(changes: list, second: object) -> None:
    index, records = HashIndex((A, B)), {}
    for step in changes:
        apply(index, records, step)
        check(index, records)
    for literal in LITERALS:
        assert found(index, literal, second) == equal_slots(records, (literal, second))


def test_a_number_is_found_in_all_its_spellings() -> None:
    index = HashIndex((A,))
    index.put(range(6), [[5, 5.0, "5", "05", "5e0", "5x"]])
    assert found(index, 5) == [0, 1, 2, 3, 4]


def test_a_text_is_found_as_itself_and_as_a_number() -> None:
    index = HashIndex((A,))
    index.put(range(4), [[5, "5", "05", "5.0"]])
    assert found(index, "5") == [0, 1]


def test_a_list_is_found_by_every_element() -> None:
    index = HashIndex((A,))
    index.put([0, 1], [[["x", "05"], ["y", None]]])
    assert [found(index, literal) for literal in ("x", 5, "y", None)] == [[0], [0], [1], []]


def test_a_value_that_returns_to_where_it_was_needs_no_move() -> None:
    index = HashIndex((A,))
    index.put([0], [["x"]])
    index.refresh()
    index.put([0, 0], [["y", "x"]])
    index.refresh()
    check(index, {0: ("x",)})
    assert (found(index, "x"), found(index, "y")) == ([0], [])


def test_an_unchanged_value_leaves_nothing_to_do() -> None:
    index = HashIndex((A,))
    index.put([0], [["x"]])
    index.refresh()
    index.put([0], [["x"]])
    assert index.dirty_count == 0


def test_notes_stay_in_proportion_to_the_records() -> None:
    index = HashIndex((A,))
    for turn in range(5000):
        index.put([0], [[turn % 2]])
    assert index.dirty_count < 3000


def test_codes_of_values_that_are_gone_are_given_up() -> None:
    index = HashIndex((A,))
    for turn in range(5000):
        index.put([0], [[turn]])
    assert len(index._heads) < 3000
    assert found(index, 4999) == [0]


def test_no_put_looks_at_more_codes_than_a_few_times_its_own_number() -> None:
    index = HashIndex((A,))
    size = 3000
    index.put(range(size), [[f"0{number}" for number in range(size)]])
    fewest = size
    for turn in range(1, 20):
        for slot in range(0, size, 10):
            before = len(index._old)
            index.put(range(slot, slot + 10), [[f"0{turn * size + slot + n}" for n in range(10)]])
            looked_at = before - len(index._old)
            # What is old when a sweep begins is laid aside whole.
            assert looked_at <= (hash_module.SWEPT_FACTOR + 1) * 10
            fewest = min(fewest, len(index._codes))
    assert fewest < size // 2  # it was swept
    assert len(index._heads) < 4 * size
    assert len(index._spellings[0]._texts) == len(index._codes) + len(index._old) - 2
    assert [found(index, 19 * size + 5), found(index, 5)] == [[5], []]


@pytest.mark.parametrize("swept", [False, True])
def test_a_frozen_copy_stays_as_it_was_and_has_no_values_of_its_own(swept: bool) -> None:
    index = HashIndex((A,))
    if swept:  # some codes are free, and others laid aside
        for turn in range(2000):
            index.put([turn % 50], [[f"old{turn}"]])
    names = [[f"0{slot}"] for slot in range(20)]
    index.put(
        range(20), [[[name[0], "x"] if at == 3 else name[0] for at, name in enumerate(names)]]
    )
    frozen = run_to_completion(index.freezing())
    assert frozen._codes is index._codes, "a million in one step"
    for turn in range(5000):
        index.put([turn % 50], [[f"new{turn}"]])
        if turn == 30:
            index.drop([4, 40])
            index.refresh()
    index.refresh()
    assert [found(frozen, slot) for slot in range(20)] == [[slot] for slot in range(20)]
    assert found(frozen, "x") == [3]
    assert found(frozen, "new4999") == found(frozen, "new7") == []
    assert found(index, "new4999") == [49]
    values = {slot: (f"new{4950 + slot}",) for slot in range(50)}
    check(index, values)
    del frozen
    for turn in range(15_000):
        index.put([turn % 50], [[f"newer{turn}"]])
    assert len(index._codes) < 12_000, "what is gone is given up again"
    check(index, {slot: (f"newer{14_950 + slot}",) for slot in range(50)})


def test_too_many_combinations_are_declined() -> None:
    index = HashIndex((A, B))
    many = [f"v{number}" for number in range(1000)]
    assert index.find([many, many]) is None
