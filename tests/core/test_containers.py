"""What is made of texts is kept up to a weight, and let go when nobody asks for it.

A dictionary in parts beside one that is whole.
"""

import weakref
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core import containers as module
from sow.core.containers import (
    DICTIONARIES,
    MOVED_AT_ONCE,
    Cache,
    KeyTable,
    ShardedDict,
    add_all,
    get_all,
    indexed_if_many,
    kept,
    sharded_if_long,
    sweep,
)
from tests.core.keys_in_python import INDEXES, KEY_INDEX


class Made:
    pass


def test_the_latest_are_kept_up_to_a_weight():
    few = Cache(10)
    for name in "abc":
        few.keep(name, name.upper(), 4)
    assert [few.get(name) for name in "acb"] == [None, "C", "B"]
    assert (few.weight, len(few)) == (8, 2)
    few.keep("d", "D", 4)
    assert [few.get(name) for name in "cb"] == [None, "B"], "the one asked for last"


def test_one_that_is_too_heavy_is_not_kept_and_costs_the_others_nothing():
    few = Cache(10)
    few.keep("a", "A", 10)
    few.keep("b", "B", 11)
    assert [few.get(name) for name in "ab"] == ["A", None]


def test_what_is_kept_again_counts_once():
    few = Cache(10)
    for weight in (9, 3, 3):
        few.keep("a", weight, weight)
    few.keep("a", 11, 11)
    assert (few.get("a"), few.weight) == (None, 0)


def test_what_nobody_asks_for_goes_with_the_second_sweep():
    few = Cache(10)
    few.keep("asked", "A", 3)
    few.keep("unasked", made := Made(), 3)
    gone = weakref.ref(made)
    del made
    list(sweep())
    assert few.get("asked") == "A"
    assert gone() is not None
    list(sweep())
    assert (few.get("asked"), few.weight, gone()) == ("A", 3, None)
    list(sweep())
    list(sweep())
    assert (few.get("asked"), few.weight, len(few)) == (None, 0, 0)


def test_what_nobody_has_requested_for_goes_first_where_there_is_too_much():
    few = Cache(10)
    few.keep("old", "O", 4)
    few.keep("asked", "A", 4)
    few.sweep()
    few.get("asked")
    few.keep("new", "N", 4)
    assert [few.get(name) for name in ("old", "asked", "new")] == [None, "A", "N"]


def test_results_of_a_function_go_with_the_next_sweep():
    @kept(2)
    def made(name):
        return Made()

    first = made("a")
    assert made("a") is first
    gone = weakref.ref(first)
    del first
    list(sweep())
    assert gone() is None


keys = st.integers(0, 30).map(str)
steps = st.lists(st.tuples(st.sampled_from(["set", "pop", "del", "update"]), keys), max_size=60)


@given(st.lists(keys, max_size=20), steps)
def test_it_holds_what_a_dictionary_holds(first, log):
    model = dict.fromkeys(first, 0)
    held: ShardedDict[str, int] = ShardedDict(dict(model))
    for value, (step, key) in enumerate(log):
        if step == "set":
            held[key] = model[key] = value
        elif step == "update":
            held.update([(key, value), (key + "0", value)])
            model.update({key: value, key + "0": value})
        elif step == "pop":
            assert held.pop(key, None) == model.pop(key, None)
        elif key in model:
            del held[key], model[key]
        else:
            with pytest.raises(KeyError):
                del held[key]
        assert (len(held), bool(held), held) == (len(model), bool(model), model)
        assert (held.get(key), held.get(key, -1)) == (model.get(key), model.get(key, -1))
        assert (key in held) is (key in model)
    for key in model:
        assert held[key] == model[key]
    assert sorted(held) == sorted(model)
    assert held.keys() & {"1", "2"} == model.keys() & {"1", "2"}
    with pytest.raises(KeyError):
        held["none"]


def test_a_key_that_goes_moves_a_few_others_and_one_that_comes_or_stays_moves_none():
    count = 10 * (MOVED_AT_ONCE + 1)
    first = {str(at): at for at in range(count)}
    held = ShardedDict(first)
    for at, new in enumerate("abcdefghij", 1):
        held["0"] = at
        held.update({new: -at, "1": at})
        assert len(first) == count
        assert held.get_all(["0", "1", new, "none"]) == [at, at, -at, None]
    for at in range(9):
        assert held.pop(str(at)) is not None
        assert len(first) == count - (at + 1) * (MOVED_AT_ONCE + 1)
        assert len(held) == count + 10 - (at + 1)
        assert held.get_all(["9", str(count - 1), "j", str(at)]) == [9, count - 1, -10, None]
    del held["9"]
    assert (first, len(held)) == ({}, count)
    assert held._first is not first, "what is empty is as large as it was"


@given(st.lists(keys, max_size=20), st.lists(keys, max_size=20), st.lists(keys, max_size=40))
def test_many_keys_are_looked_up_as_one_is(first, then, requested):
    held: ShardedDict[str, int] = ShardedDict(dict.fromkeys(first, 1))
    held.update(dict.fromkeys(then, 2))
    one_by_one = [held.get(key) for key in requested]
    assert list(get_all(held, requested)) == held.get_all(requested) == one_by_one
    assert list(get_all(dict(held), requested)) == one_by_one


def test_no_part_has_many_more_keys_than_another():
    held: ShardedDict[str, int] = ShardedDict()
    held.update((f"order-{at}", at) for at in range(DICTIONARIES * 200))
    sizes = list(map(len, held._parts))
    assert sum(sizes) == DICTIONARIES * 200
    assert max(sizes) < 300


def test_a_dictionary_is_put_in_parts_before_it_grows_further(monkeypatch):
    monkeypatch.setattr(module, "LONG_KEYS", 3)
    short = dict.fromkeys("abc", 1)
    assert sharded_if_long(short) is short
    long = dict.fromkeys("abcd", 1)
    held = sharded_if_long(long)
    assert isinstance(held, ShardedDict)
    assert sharded_if_long(held) is held
    assert sorted(islice(held, 4)) == list("abcd")


@pytest.mark.parametrize("first", [{}, {"a": None}])
def test_a_key_may_stand_for_nothing(first):
    held = ShardedDict(first)
    held.update({"a": None})
    assert "a" in held
    assert held["a"] is None
    with pytest.raises(KeyError):
        held["b"]


def test_it_is_emptied_a_part_at_a_time():
    held: ShardedDict[str, int] = ShardedDict()
    held.update((str(at), at) for at in range(DICTIONARIES * 100))
    counts = [len(held), *[len(held) for _ in held.emptying()]]
    assert max(before - after for before, after in pairwise(counts)) < 200
    assert (len(counts), counts[-1], bool(held)) == (DICTIONARIES + 1, 0, False)


@pytest.fixture(params=INDEXES, ids=lambda make: make.__name__)
def indexing(request, monkeypatch):
    """With an index of keys, in C or as it would be in Python."""
    loops = module.INNER_LOOPS._replace(key_index=request.param)
    monkeypatch.setattr(module, "INNER_LOOPS", loops)
    monkeypatch.setattr(module, "INDEXED_KEYS", 2)


def test_many_keys_of_a_table_are_indexed_and_few_are_not(indexing):
    few = {"a": 0, "b": 1}
    assert indexed_if_many(few, ["a", "b"]) is few
    names = ["a", "b", "c", None, "\ud800"]
    held = indexed_if_many({"a": 0, "b": 1, "c": 2}, names)
    assert isinstance(held, KeyTable)
    assert indexed_if_many(held, names) is held
    assert sharded_if_long(held) is held
    assert add_all(held, ["\ud800", "a"], [4, 4]) == [4, 0]
    assert dict(held) == dict(held.items()) == {"a": 0, "b": 1, "c": 2, "\ud800": 4}
    assert (len(held), sorted(held.values()), held == dict(held)) == (4, [0, 1, 2, 4], True)
    assert [*get_all(held, ["c", "d", "a"])] == [2, None, 0]
    assert (held.get("b"), held.get("d"), held.get("d", 7), held["c"]) == (1, None, 7, 2)
    assert ("b" in held, "d" in held, 5 in held) == (True, False, False)
    assert held.keys() & {"a", "d"} == {"a"}


def test_a_key_leaves_an_index_and_comes_back_in_another_slot(indexing):
    names = ["a", "b", "c"]
    held = KeyTable(names, {"a": 0, "b": 1, "c": 2})
    assert (held.pop("b"), held.pop("b"), held.pop("b", 7)) == (1, None, 7)
    for wanted in (lambda: held["b"], lambda: held.__delitem__("b")):
        with pytest.raises(KeyError):
            wanted()
    names[1] = None
    names.append("b")
    held.update([("b", 3)])
    assert held["b"] == 3
    names[1] = "b"
    held["b"] = 1
    assert held["b"] == 1
    del held["c"]
    assert (sorted(held), len(held), bool(held)) == (["a", "b"], 2, True)
    with pytest.raises(ValueError, match="before its name"):
        held.update({"z": 0})


def test_a_key_that_goes_while_others_are_read_is_no_error(indexing):
    names = [f"order-{at}" for at in range(1_000)]
    held = KeyTable(names, {name: at for at, name in enumerate(names)})
    reading, seen = iter(held), []
    for name in reading:
        seen.append(name)
        for gone in (name, f"order-{len(seen)}"):
            if (slot := held.pop(gone)) is not None:
                names[slot] = None
    assert len(seen) == len(set(seen)) > 300
    assert not len(held) - sum(name is not None for name in names)


def test_without_c_keys_are_in_dictionaries(monkeypatch):
    monkeypatch.setattr(module, "INNER_LOOPS", module.INNER_LOOPS._replace(key_index=None))
    monkeypatch.setattr(module, "INDEXED_KEYS", 2)
    many = {"a": 0, "b": 1, "c": 2}
    assert indexed_if_many(many, [*many]) is many
    assert add_all(many, ["c", "d"], [9, 3]) == [2, 3]
    assert KEY_INDEX is not None
