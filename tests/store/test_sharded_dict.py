"""A dictionary in parts beside one that is whole."""

from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.store import sharded_dict as module
from sow.store.sharded_dict import (
    DICTIONARIES,
    MOVED_AT_ONCE,
    ShardedDict,
    get_all,
    sharded_if_long,
)

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


def test_it_is_emptied_a_part_at_a_time():
    held: ShardedDict[str, int] = ShardedDict()
    held.update((str(at), at) for at in range(DICTIONARIES * 100))
    counts = [len(held), *[len(held) for _ in held.emptying()]]
    assert max(before - after for before, after in pairwise(counts)) < 200
    assert (len(counts), counts[-1], bool(held)) == (DICTIONARIES + 1, 0, False)
