"""Updates: what is said of one, and that folding tells what happened from first to last."""

from functools import reduce
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.delta import difference, merged
from sow.topic.batch import Update, compose

BEFORE, AFTER = b"before", b"after"


def update(old, new, at=1, delta=None, **more):
    """A change of record `r` from one state to another; None: it is not there."""
    return Update("r", old is not None, new, at, at * 10, at, at * 10, delta=delta, old=old, **more)


states = st.lists(st.none() | st.sampled_from([b"1", b"2", b"3"]), min_size=2, max_size=6).filter(
    lambda walk: (None, None) not in pairwise(walk)
)


def walked(walk):
    """The updates that lead from each state to the next."""
    return [update(old, new, at) for at, (old, new) in enumerate(pairwise(walk), 1)]


@given(states)
def test_folded_updates_lead_from_the_first_state_to_the_last(walk):
    updates = walked(walk)
    folded = reduce(compose, updates)
    assert (folded.old, folded.known, folded.new) == (walk[0], walk[0] is not None, walk[-1])
    assert (folded.first_seq, folded.seq) == (1, len(updates))
    assert (folded.first_ts_us, folded.ts_us) == (10, 10 * len(updates))


@given(states, st.data())
def test_it_does_not_matter_in_which_order_they_are_folded(walk, data):
    updates = walked(walk)
    while len(updates) > 1:
        at = data.draw(st.integers(0, len(updates) - 2))
        updates[at : at + 2] = [compose(updates[at], updates[at + 1])]
    assert updates == [reduce(compose, walked(walk))]


@pytest.mark.parametrize(
    ("old", "new", "is_void"),
    [(None, None, True), (None, AFTER, False), (BEFORE, AFTER, False), (BEFORE, None, False)],
)
def test_what_came_and_went_unseen_is_nothing_to_tell(old, new, is_void):
    assert update(old, new).is_void == is_void


def test_an_oof_carries_what_no_longer_matches_or_what_was_sent():
    assert update(BEFORE, None, reason="match", parting=AFTER).last == AFTER
    assert update(BEFORE, None, reason="deleted", parting=AFTER).last == BEFORE
    assert update(None, None, reason="deleted").last == b""


def test_folding_keeps_the_newer_reason():
    folded = compose(update(BEFORE, AFTER), update(AFTER, None, 2, reason="expired"))
    assert (folded.reason, folded.old, folded.new) == ("expired", BEFORE, None)


documents = st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), min_size=1)


@given(documents, documents, documents)
def test_folded_deltas_say_what_changed_since_the_first(one, two, three):
    first = update(b"1", b"2", 1, difference(one, two))
    second = update(b"2", b"3", 2, difference(two, three))
    delta = compose(first, second).delta
    if delta is not None:
        assert merged(one, delta) == three


def test_where_one_of_them_needs_the_whole_both_do():
    partial = update(BEFORE, AFTER, 1, {"a": 1})
    whole = update(BEFORE, AFTER, 2)
    assert compose(partial, whole).delta is None
    assert compose(whole, partial).delta is None
    assert compose(partial, update(BEFORE, AFTER, 2, {"b": 2})).delta == {"a": 1, "b": 2}


def test_an_update_of_another_record_says_what_it_says_in_the_place_of_the_older_one():
    first = update(b"1", b"2", 3, {"x": 1})
    other = update(b"8", b"9", 5, {"y": 2})._replace(identity="s")
    assert compose(first, other) == other._replace(first_seq=3, first_ts_us=30)
    gone = other._replace(new=None, delta=None, reason="deleted")
    assert compose(update(None, b"2"), gone).last == b"8", "what s was, and not what r was"
    assert not compose(update(None, b"2"), gone).is_void
