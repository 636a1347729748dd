"""The rows of a join as columns: values, the order of rows, and the newest change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import TooLarge
from sow.topic.views import join_propagation, join_state, joins
from tests.effort import examples
from tests.topic.views.joining import SHAPES, Joined


def reported(joined):
    """What was reported, part by part."""
    return list(joined.joins.work())


def pair(kind="left"):
    joined = Joined(("T0./a = T1./a",), [kind])
    joined.put("T0", {"id": "p", "a": "x", "v": 1}, {"id": "q", "a": "x", "v": 2})
    joined.put("T1", {"id": "b", "a": "x", "v": 9})
    joined.work()
    return joined


def test_values_stand_in_the_order_of_what_is_wanted():
    joined = Joined(("T0./a = T1./a",), ["left"])
    joined.put("T0", {"id": "p", "a": "x", "v": 1})
    [changes, *_] = reported(joined)
    assert changes.olds is None
    assert [column[0] for column in changes.news] == ["p", "x", None, 1, None, None, None, None]


def test_rows_stand_in_the_order_of_their_records():
    joined = pair()
    joined.put("T1", {"id": "a", "a": "x"})
    joined.put("T0", {"id": "r", "a": "y"})
    joined.work()
    order = sorted(joined.reported, key=lambda row: joined.reported[row][1])
    assert order == [("p", "b"), ("p", "a"), ("q", "b"), ("q", "a"), ("r", None)]


def test_a_row_that_comes_since_another_has_gone_has_the_number_of_that_change(monkeypatch):
    monkeypatch.setattr(joins, "ROWS_AT_ONCE", 100)  # all in one part
    joined = pair()
    joined.delete("T1", "b", reason="expired")
    [changes] = reported(joined)
    assert changes.identities == [("p", "b"), ("p", None), ("q", "b"), ("q", None)]
    assert list(changes.seqs) == list(changes.ts_us) == [4, 4, 4, 4]
    assert list(changes.newest_seqs)[1::2] == [1, 2], "those of the records that are there"
    assert changes.reason == "match", "others stand in their place"


def test_rows_leave_for_one_reason_at_a_time():
    joined = pair("inner")
    joined.delete("T0", "p", reason="expired")
    joined.delete("T0", "q")
    parts = [part for part in reported(joined) if len(part)]
    assert [(part.identities, part.reason) for part in parts] == [
        ([("p", "b")], "expired"),
        ([("q", "b")], "deleted"),
    ]


KEYS = st.sampled_from([None, "", 1, 1.0, "1", "x", True, ["x", "1"], [], "01"])
DOCUMENTS = st.builds(
    lambda number, a, b, v: {"id": number, "a": a, "b": b, "v": v},
    st.integers(0, 4),
    KEYS,
    KEYS,
    st.integers(0, 2),
)
CHANGES = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 3), st.lists(DOCUMENTS, min_size=1, max_size=4)),
    st.tuples(st.just("put"), st.integers(0, 3), st.lists(DOCUMENTS, min_size=1, max_size=4)),
    st.tuples(st.just("delete"), st.integers(0, 3), st.lists(st.integers(0, 4), min_size=1)),
)
HISTORIES = st.lists(st.one_of(CHANGES, st.tuples(st.just("work"), st.integers(0, 9))), max_size=24)
TYPES = st.lists(st.sampled_from(["left", "inner", "full"]), min_size=3, max_size=3)


@pytest.fixture(autouse=True, scope="module")
def small_steps():
    """So small that everything is cut somewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joins, "ROWS_AT_ONCE", 3)
        patch.setattr(join_propagation, "FETCHED_AT_ONCE", 2)
        yield


def change(joined, what, at, with_what):
    name = joined.topics[at % len(joined.topics)].name
    if what == "put":
        joined.put(name, *with_what)
    else:
        joined.delete(name, *with_what)


def run(joined, history):
    """Play a history; where it says so, work is begun, and the rest of it goes on meanwhile."""
    working, left = None, 0
    expected = None
    for step in history:
        if step[0] != "work":
            change(joined, *step)
        if working is None and step[0] == "work":
            expected = {row: what[:2] for row, what in joined.expected().items()}
            working, left = joined.joins.work(), step[1]
        if working is not None:
            for changes in working:
                joined.take(changes)
                left -= 1
                if left < 0:
                    break
            else:
                assert {row: what[:2] for row, what in joined.reported.items()} == expected
                working = None
            left = 2
    for changes in working or ():
        joined.take(changes)


@examples(48)
@given(st.sampled_from(sorted(SHAPES)), TYPES, st.booleans(), HISTORIES)
def test_rows_are_those_of_nested_loops(shape, types, joins_nulls, history):
    joined = Joined(SHAPES[shape], types, joins_nulls)
    run(joined, history)
    joined.work()
    joined.check()


@examples(18)
@given(st.sampled_from(sorted(SHAPES)), TYPES, st.booleans(), HISTORIES, HISTORIES)
def test_a_join_that_is_filled_while_records_change_is_no_other(
    shape, types, joins_nulls, before, meanwhile
):
    joined = Joined(SHAPES[shape], types, joins_nulls)
    on_batch, joined.joins.on_batch = joined.joins.on_batch, lambda _batch: None
    run(joined, [step for step in before if step[0] != "work"])
    joined.joins.on_batch = on_batch
    filling = joined.joins.filling(joined.take)
    for step in meanwhile:
        next(filling, None)
        if step[0] != "work":
            change(joined, *step)
    for _ in filling:
        pass
    joined.work()
    joined.check()


def test_a_change_may_concern_so_many_rows_and_no_more():
    joined = Joined(SHAPES["pair"], ["left"], fan_out_max=3)
    joined.put("T0", *[{"id": number, "a": "N/A"} for number in range(4)])
    joined.work()
    joined.put("T1", {"id": "b", "a": "N/A"})
    with pytest.raises(TooLarge, match=r"record 'b' of T1 concerns more than 3 .*JoinFanOut"):
        joined.work()


def test_a_change_of_many_rows_comes_in_parts():
    joined = Joined(SHAPES["pair"], ["left"])
    joined.put("T0", *[{"id": number, "a": "x"} for number in range(20)])
    joined.put("T1", {"id": "b", "a": "x"})
    joined.work()
    joined.put("T1", {"id": "b", "a": "x", "v": 1})
    assert joined.joins.is_behind
    parts = [len(part) for part in joined.joins.work()]
    assert max(parts) <= joins.ROWS_AT_ONCE
    assert sum(parts) == 20
    assert not joined.joins.is_behind


def test_a_join_that_is_stopped_has_nothing_read():
    joined = Joined(SHAPES["pair"], ["left"])
    joined.joins.stop()
    assert joined.topics[0].read([b'{"id":1,"v":2}']).columns.keys() == {joined.topics[0].keys[0]}


HISTORY = [
    ("put", 0, [{"id": 0, "a": "x"}, {"id": 1, "a": "x"}, {"id": 2, "a": "y", "b": "x"}]),
    ("put", 1, [{"id": 0, "a": "x", "b": "x"}]),
    ("put", 1, [{"id": 0, "a": "y", "b": "x"}, {"id": 1, "a": "y"}]),
    ("put", 0, [{"id": 1, "a": "y"}, {"id": 1, "a": "", "v": 2}]),
    ("delete", 1, [0, 1]),
    ("put", 1, [{"id": 0, "a": "x"}]),
    ("delete", 0, [0]),
    ("put", 0, [{"id": 0, "a": "x", "v": 1}]),
]


def plant(monkeypatch, name, wrong):
    monkeypatch.setattr(join_propagation.JoinPropagation, name, wrong)


PLANTED = {
    "nothing": lambda _patch: None,
    "no swap at the first and the last": lambda patch: plant(
        patch, "_is_alone", lambda _self, _at, _key: False
    ),
    "a full join that does not see the first": lambda patch: plant(
        patch, "_met", lambda _self, _at, _index, _key: iter(())
    ),
    "an old key that is not forgotten": lambda patch: patch.setattr(
        join_propagation.ChangedKeys, "take_out", lambda _self, _name: None
    ),
    "a state that is newer than what is applied": lambda patch: patch.setattr(
        join_state.JoinState, "states", states_of_now
    ),
    "a text that is not that of keys": lambda patch: patch.setattr(
        join_state, "_text", lambda value: str(value or "")
    ),
}


def states_of_now(topic, identities):
    pending, taken, topic._pending, topic._taken = topic._pending, topic._taken, {}, {}
    found = STATES(topic, identities)
    topic._pending, topic._taken = pending, taken
    return found


STATES = join_state.JoinState.states


@pytest.mark.parametrize("bug", PLANTED)
def test_bugs_that_are_planted_are_found(monkeypatch, bug):
    """One history finds them all: the law has teeth."""
    PLANTED[bug](monkeypatch)

    def play():
        for kind in ("left", "full"):
            joined = Joined(SHAPES["pair"], [kind])
            for step in HISTORY:
                change(joined, *step)
                joined.work()
                joined.check()
            change(joined, "put", 0, [{"id": 0, "a": 1.0}])
            change(joined, "put", 1, [{"id": 0, "a": "1"}])
            joined.work()
            joined.check()

    if bug == "nothing":
        play()
    else:
        with pytest.raises((AssertionError, KeyError)):
            play()
