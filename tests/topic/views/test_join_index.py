"""The index of one side of a join: values meet as texts, each key has its records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.lossless_numbers import LosslessNumber
from sow.store.memory import Usage
from sow.topic.views import join_index as module
from sow.topic.views.join_index import PLACE_BYTES, JoinIndex, join_keys
from tests.cases import all_cases
from tests.effort import examples


@all_cases(
    ("value", "key"),
    [
        ("x", "x"),
        (1, "1"),
        (1.0, "1"),
        (1.5, "1.5"),
        (True, "true"),
        ("01", "01"),
        (LosslessNumber("12345678901234567890"), "12345678901234567890"),
        (["a", "b"], "a"),
        (None, None),
        ("", None),
        ([], None),
        ([None, "b"], None),
    ],
)
def test_a_value_joins_by_its_text(value, key):
    assert join_keys([[value, "plain"]], joins_nulls=False) == [key, "plain"]
    assert join_keys([[value]], joins_nulls=True) == [key or ""]


def test_several_fields_are_one_key_and_none_if_one_is_null():
    columns = [["x", "x", None], [1, None, ""]]
    assert join_keys(columns, joins_nulls=False) == [("x", "1"), None, None]
    assert join_keys(columns, joins_nulls=True) == [("x", "1"), ("x", ""), ("", "")]


def test_columns_of_texts_are_not_changed():
    column = ["x", "y"]
    assert join_keys([column], joins_nulls=True) == column
    assert join_keys([column], joins_nulls=True) is not column


@examples(30)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from("xyz"), st.sampled_from("abcd"))))
def test_an_index_is_a_set_for_each_key(steps):
    usage = Usage()
    index, model = JoinIndex(usage), {}
    for comes, key, name in steps:
        held = model.setdefault(key, set())
        if comes and name not in held:
            index.add(key, name)
            held.add(name)
        elif not comes and name in held:
            index.discard(key, name)
            held.discard(name)
        assert sorted(index.get(key)) == sorted(held)
        assert (key in index) == bool(held)
        places, keys = sum(map(len, model.values())), sum(map(bool, model.values()))
        assert usage.bytes == index.bytes == places * PLACE_BYTES + keys
    assert list(index.get("nobody")) == []
    index.forget()
    assert usage.bytes == index.bytes == 0


def test_what_joins_by_nothing_is_not_there():
    index = JoinIndex()
    index.add(None, "a")
    index.discard(None, "a")
    index.check({"a": None})
    index.add("x", "a")
    with pytest.raises(AssertionError):
        index.check({"a": "y"})


def test_an_index_that_nobody_asks_is_forgotten_some_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "FORGOTTEN_AT_ONCE", 3)
    index = JoinIndex()
    for name in "abcdefgh":
        index.add("many", name)
    index.add("few", "a")
    index.forget_some(1)
    assert (len(index), "few" in index) == (1, False)
    left = []
    while len(index):
        left.append(len([*index.get("many")]))
        index.forget_some(1)
    assert left == [8, 5, 2], "of one key it may be a million"
