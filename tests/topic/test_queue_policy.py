"""Which queued updates match, and what two that do become."""

import json

import pytest

from sow.core.definitions import ConflatedTopic, Merge, Topic
from sow.messages import message_type
from sow.topic.queue_policy import key_of, queue_policy
from sow.topic.updates import Update


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
