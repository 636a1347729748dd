"""The index of one side of a join: values meet as texts, each key has its records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.lossless_numbers import LosslessNumber
from sow.core.paths import parse_path
from sow.store.memory import Usage
from sow.topic.views import join_state as module
from sow.topic.views.join_state import (
    PLACE_BYTES,
    STATE_BORN,
    STATE_VALUES,
    JoinIndex,
    JoinState,
    join_keys,
)
from tests.effort import examples
from tests.topic.making import ORDERS, put, records


@pytest.mark.parametrize(
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
        assert list(index.get(key)) == sorted(held)
        assert (key in index) == bool(held)
        places, keys = sum(map(len, model.values())), sum(map(bool, model.values()))
        assert usage.bytes == index.bytes == places * PLACE_BYTES + keys
    assert list(index.get("nobody")) == []
    index.forget()
    assert usage.bytes == index.bytes == 0


def test_very_many_records_of_one_key_are_not_put_in_order(monkeypatch):
    monkeypatch.setattr(module, "SORTED_MAX", 2)
    index = JoinIndex()
    for name in "cab":
        index.add("x", name)
    assert list(index.get("x")) == ["c", "a", "b"], "each lookup would take long"


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


SYMBOL, QTY = parse_path("/symbol"), parse_path("/qty")


def joined(target):
    return JoinState(target, [QTY], [(SYMBOL,)], joins_nulls=False)


def values(states):
    return {name: state[STATE_VALUES] for name, state in states.items()}


def test_until_it_is_applied_a_change_is_not_seen():
    target = records()
    put(target, {"id": "a", "symbol": "X", "qty": 1})
    topic = joined(target)
    topic.on_batch(put(target, {"id": "a", "symbol": "Y", "qty": 2}, {"id": "b"}, seq=2))
    assert values(topic.states(["a", "b", "c"])) == {"a": ("X", 1)}
    topic.take()
    topic.on_batch(put(target, {"id": "a", "qty": 3}, seq=4))
    assert values(topic.states(["a"])) == {"a": ("X", 1)}
    changes = topic.next_taken(1)
    assert changes["a"].new[STATE_VALUES] == ("Y", 2), "as it was when the changes were taken"
    assert values(topic.states(["a"])) == {"a": ("Y", 2)}
    assert topic.next_taken(9).keys() == {"b"}
    assert topic.is_behind
    topic.take()
    assert topic.next_taken(9)["a"].new[STATE_VALUES] == (None, 3)
    assert not topic.is_behind


def test_changes_of_one_record_are_one():
    target = records()
    put(target, {"id": "a", "qty": 1})
    topic = joined(target)
    topic.on_batch(put(target, {"id": "a", "qty": 2}, {"id": "a", "qty": 3}, seq=2, ts_us=7))
    batch = target.drop(["a"], "expired", lambda _: ([4], [9]))
    topic.on_batch(batch)
    topic.on_batch(put(target, {"id": "a", "qty": 5}, seq=5, ts_us=11))
    topic.take()
    change = topic.next_taken(9)["a"]
    assert (change.old[STATE_VALUES], change.new[STATE_VALUES]) == ((None, 1), (None, 5))
    assert (change.old[STATE_BORN], change.new[STATE_BORN]) == (1, 5), "it has gone and come again"
    assert (change.seq, change.ts_us, change.reason) == (5, 11, None)


def test_what_has_gone_says_why():
    target = records()
    put(target, {"id": "a", "qty": 1})
    topic = joined(target)
    topic.on_batch(target.drop(["a"], "expired", lambda _: ([2], [9])))
    assert values(topic.states(["a"])) == {"a": (None, 1)}
    topic.take()
    change = topic.next_taken(9)["a"]
    assert (change.new, change.reason) == (None, "expired")
    assert topic.states(["a"]) == {}


def test_its_topic_reads_its_fields_until_it_is_stopped():
    target = records(ORDERS)
    put(target, {"id": "a", "symbol": "X", "qty": 1})
    topic = joined(target)
    assert topic.paths[topic.place(QTY)] == QTY
    assert QTY in target.read([b'{"id":"b","qty":1}']).columns
    topic.stop()
    assert QTY not in target.read([b'{"id":"b","qty":1}']).columns
    arrivals = topic.arrivals(["a", "nobody"])
    assert arrivals["a"].old is None
    assert topic.keys(topic.states(["a"]), (SYMBOL,)) == {"a": "X"}
    assert topic.keys({}, (SYMBOL,)) == {}


def test_it_is_forgotten_some_at_a_time_once_it_has_been_stopped():
    target = records()
    topic = joined(target)
    topic.on_batch(put(target, {"id": "a"}, {"id": "b"}))
    topic.take()
    topic.on_batch(put(target, {"id": "c"}, seq=3))
    for name in "xyz":
        topic.indexes[SYMBOL,].add(name, name)
    topic.stop()
    left = []
    while len(topic):
        left.append(len(topic))
        topic.forget_some(2)
    assert left == [6, 4, 2]
