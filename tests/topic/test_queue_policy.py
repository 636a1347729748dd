"""Queue policy: which updates become one, and what of; each pair is merged only once."""

import json
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import ConflatedTopic, Merge, Topic
from sow.errors import ConfigError
from sow.messages import message_type
from sow.topic import queue_policy as module
from sow.topic.batch import Update
from sow.topic.queue_policy import (
    CachedMerger,
    CallableMerger,
    FieldMerger,
    key_of,
    load_callable,
    make_merger,
    queue_policy,
)

JSON = message_type("json")


def merged(current, new, *merges):
    merger = FieldMerger(JSON, [Merge(field, operation) for field, operation in merges])
    return json.loads(merger.merge(json.dumps(current).encode(), json.dumps(new).encode()))


@pytest.mark.parametrize(
    ("operation", "current", "new", "result"),
    [
        ("latest", 1, 2, 2),
        ("latest", 1, None, 1),
        ("sum", 1, 2, 3),
        ("sum", "1", 2, "3"),
        ("sum", "x", 2, 2),
        ("sum", 1, "x", 1),
        ("sum", True, 2, 2),
        ("min", 1, 2, 1),
        ("min", "10", "9", "9"),
        ("max", 1, 2, 2),
        ("max", None, 2, 2),
        ("first", 1, 2, 1),
        ("first", None, 2, 2),
        ("concat", "a", "b", "ab"),
        ("concat", [1], [2], [1, 2]),
        ("concat", [1], 2, [1, 2]),
        ("concat", 1, "b", "b"),
        ("concat", None, "b", "b"),
    ],
)
def test_operations(operation, current, new, result):
    before = {} if current is None else {"v": current}
    after = {} if new is None else {"v": new}
    if operation == "latest" and new is None:
        # A field that the newer message does not have is not looked for in the older one.
        assert merged(before, after, ("/v", operation)) == {}
    else:
        assert merged(before, after, ("/v", operation)) == {"v": result}


def test_fields_without_an_operation_take_the_newer_value():
    found = merged({"a": 1, "b": 1, "c": 1}, {"a": 2, "c": 2}, ("/c", "sum"))
    assert found == {"a": 2, "c": 3}


def test_a_field_below_others_is_put_where_it_was():
    assert merged({"o": {"n": 1, "x": 1}}, {"o": {"n": 2}}, ("/o/n", "sum")) == {"o": {"n": 3}}


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
def test_counts_are_those_of_all_messages_whatever_is_merged_first(values, data):
    merger = FieldMerger(JSON, [Merge("/n", "count")])
    bodies = [merger.single(json.dumps({"v": value}).encode()) for value in values]
    while len(bodies) > 1:
        at = data.draw(st.integers(0, len(bodies) - 2))
        bodies[at : at + 2] = [merger.merge(*bodies[at : at + 2])]
    assert json.loads(bodies[0]) == {"v": values[-1], "n": len(values)}


def test_only_a_count_needs_singles():
    summing = FieldMerger(JSON, [Merge("/v", "sum")])
    assert not summing.counts
    assert summing.single(b'{"v":1}') == b'{"v":1}'


def changes_in_place(current, new):
    current["seen"] = new["v"]
    return current


def raises(current, new):
    raise RuntimeError("as users do")


CALLABLES = {
    "the older": (lambda current, new: current, b'{"v":1}'),
    "the newer": (lambda current, new: new, b'{"v":2}'),
    "both": (lambda current, new: None, None),
    "another": (lambda current, new: {"v": 3}, b'{"v":3}'),
    "the older, changed": (changes_in_place, b'{"v":1,"seen":2}'),
    "what raises": (raises, None),
    "what is no message": (lambda current, new: object(), None),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_what_a_callable_may_say(name):
    callback, result = CALLABLES[name]
    current, new = b'{"v":1}', b'{"v":2}'
    merger = CallableMerger(JSON, callback)
    found = merger.merge(current, new)
    assert found == result
    assert (found is current) == (name == "the older")
    assert (found is new) == (name == "the newer")
    assert merger.errors == (name.startswith("what "))


def test_a_pair_is_merged_once_and_the_answer_is_still_one_of_the_two():
    calls = []
    merger = CachedMerger(CallableMerger(JSON, lambda current, new: calls.append(1) or current))
    for _ in range(3):
        current, new = bytes(bytearray(b'{"v":1}')), bytes(bytearray(b'{"v":2}'))
        assert merger.merge(current, new) is current
    assert (len(calls), merger.hits, merger.misses) == (1, 2, 1)


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "PAIRS_KEPT_MAX", 2)
    merger = CachedMerger(FieldMerger(JSON, [Merge("/n", "count")]))
    bodies = [merger.single(b'{"v":%d}' % number) for number in range(5)]
    reduce(merger.merge, bodies)
    assert len(merger._pairs) <= 2
    assert len(merger._singles) <= 2


def test_a_topic_has_the_merger_it_is_configured_with():
    assert make_merger(Topic("t", "json"), JSON) is None
    fields = make_merger(Topic("t", "json", merges=(Merge("/v", "sum"),)), JSON)
    assert isinstance(fields.merger, FieldMerger)
    called = make_merger(Topic("t", "json", merger=f"{__name__}:raises"), JSON)
    assert isinstance(called.merger, CallableMerger)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere:name", "cannot be loaded"),
        (f"{__name__}:nobody", "cannot be loaded"),
        ("", "cannot be loaded"),
        (f"{__name__}:JSON", "is not callable"),
    ],
)
def test_a_callable_that_cannot_be_is_refused(name, said):
    with pytest.raises(ConfigError, match=said):
        load_callable(name)


def policy(**settings):
    return queue_policy(Topic("orders", "json", keys=("/id",), **settings), message_type("json"))


def update(identity="1", known=True, **fields):
    new = json.dumps(fields).encode() if fields else None
    return Update(identity, known, new, 1, 0, 1, 0, old=b"{}" if known else None)


@pytest.mark.parametrize(
    ("values", "key"),
    [
        (["A", 5], ("A", "5")),
        (["A", 5.0], ("A", "5")),
        (["A", None], (None, "r")),
        ([True], ("true",)),
    ],
)
def test_what_an_update_is_matched_by(values, key):
    assert key_of(values, "r") == key


def test_by_default_updates_of_one_record_match():
    one, other, again = update("1", symbol="A"), update("2", symbol="A"), update("1", symbol="B")
    keys = policy().keys([one, other, again], by_record=False)
    assert keys == [("1",), ("2",), ("1",)]


def test_match_fields_make_updates_of_different_records_the_same():
    updates = [update("1", symbol="A"), update("2", symbol="A"), update("3", side="buy")]
    matched = policy(match=("/symbol",))
    assert matched.keys(updates, by_record=False) == [("A",), ("A",), (None, "3")]
    assert matched.keys(updates, by_record=True) == [("1",), ("2",), ("3",)]


def test_without_a_merge_the_newer_state_stands():
    folded = policy().fold(update(qty=1), update(qty=2))
    assert json.loads(folded.new) == {"qty": 2}
    assert not folded.merged


def test_a_merge_makes_one_message_that_is_sent_whole():
    merging = policy(merges=(Merge("/qty", "sum"),))
    folded = merging.fold(update(qty=1)._replace(delta={"qty": 1}), update(qty=2))
    assert json.loads(folded.new) == {"qty": 3}
    assert (folded.merged, folded.delta) == (True, None)


def test_whoever_wants_states_gets_no_merge():
    folded = policy(merges=(Merge("/qty", "sum"),)).fold(update(qty=1), update(qty=2), merges=False)
    assert json.loads(folded.new) == {"qty": 2}


def test_a_record_that_leaves_is_not_merged():
    merging = policy(merges=(Merge("/qty", "sum"),))
    assert merging.fold(update(qty=1), update()).new is None
    assert json.loads(merging.fold(update(), update(qty=2)).new) == {"qty": 2}


def test_counts_say_how_many_messages_stand_behind_one():
    counting = policy(merges=(Merge("/n", "count"),))
    folded = update(x=0)
    for number in range(1, 4):
        folded = counting.fold(folded, update(x=number))
    assert json.loads(folded.new) == {"x": 3, "n": 4}


def test_what_a_copy_holds_says_itself_what_it_stands_for():
    copy = ConflatedTopic("copy", "json", "orders", merges=(Merge("/n", "count"),))
    folded = queue_policy(copy, message_type("json")).fold(update(n=5), update(n=2))
    assert json.loads(folded.new)["n"] == 7


def first_of_two(current, new):
    return current


def neither(current, new):
    return None


@pytest.mark.parametrize(
    ("merger", "verdict"), [("first_of_two", "kept current"), ("neither", "kept both")]
)
def test_a_callable_may_keep_the_older_or_both(merger, verdict):
    called = policy(merger=f"{__name__}:{merger}")
    assert called.fold(update(qty=1), update(qty=2)) == verdict
