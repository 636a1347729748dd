"""A feed says of each change what its table says, however the changes come."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.streaming.making import SECOND, Subscription
from tests.topic.making import ORDERS, changed, put, records

PRICES = st.none() | st.integers(0, 6)
steps = st.lists(st.tuples(PRICES, st.integers(0, 6)), min_size=1, max_size=5)


def documents(old, new):
    return (None if old is None else {"id": 1, "px": old}), {"id": 1, "px": new}


def table(old, new, oof):
    """What is to be said of one change to whoever wants prices above 3."""
    was, now = old is not None and old > 3, new > 3
    if now:
        return [("p", {"id": 1, "px": new})]
    return [("match", {"id": 1, "px": new})] if was and oof else []


@given(steps, st.booleans())
def test_what_is_said_stands_in_the_table(changes, oof):
    subscription = Subscription("/px > 3", oof=oof)
    batch = changed(subscription.topic, *(documents(*change) for change in changes))
    wanted = [line for change in changes for line in table(*change, oof)]
    assert subscription.on_batch(batch) == bool(wanted)
    assert subscription.said() == wanted


@given(steps, st.booleans())
def test_some_places_of_a_batch_say_what_all_of_it_says(changes, oof):
    whole, some = Subscription("/px > 3", oof=oof), Subscription("/px > 3", oof=oof)
    whole.on_batch(changed(whole.topic, *(documents(*change) for change in changes)))
    batch = changed(some.topic, *(documents(*change) for change in changes))
    some.feed.on_records(batch, range(len(batch)), 0)
    assert some.said() == whole.said()


def test_without_a_filter_everything_is_sent():
    subscription = Subscription()
    assert subscription.on_batch(put(subscription.topic, {"id": 1}, {"id": 2}))
    assert subscription.said() == [("p", {"id": 1}), ("p", {"id": 2})]
    assert not subscription.channel.waiting


def test_what_leaves_is_sent_only_to_those_who_requested():
    for oof, wanted in ((True, [("deleted", {"id": 1})]), (False, [])):
        subscription = Subscription(oof=oof)
        name = put(subscription.topic, {"id": 1}).changes.identities[0]
        batch = subscription.topic.drop([name], "deleted", lambda n: ([2], [0]))
        assert subscription.on_batch(batch) == oof
        assert subscription.said() == wanted


def test_a_delta_is_of_what_was_held_and_what_comes_back_is_sent_whole():
    subscription = Subscription("/px > 3", delta=True)
    topic = subscription.topic
    for number, (fields, wanted) in enumerate(
        [
            ({"px": 4, "q": 1}, {"id": 1, "px": 4, "q": 1}),
            ({"px": 5, "q": 1}, {"id": 1, "px": 5}),
            ({"px": 1, "q": 1}, None),
            ({"px": 5, "q": 1}, {"id": 1, "px": 5, "q": 1}),
        ],
        1,
    ):
        subscription.on_batch(put(topic, {"id": 1, **fields}, seq=number))
        assert subscription.said() == ([] if wanted is None else [("p", wanted)])


def test_an_empty_update_is_left_out_where_that_is_requested():
    for no_empties in (True, False):
        subscription = Subscription(no_empties=no_empties, oof=True)
        put(subscription.topic, {"id": 1})
        assert subscription.on_batch(put(subscription.topic, {"id": 1}, seq=2)) != no_empties


def test_who_had_no_snapshot_is_sent_of_what_it_was_sent_alone():
    subscription = Subscription("/px > 3", oof=True, accounts=True)
    topic = subscription.topic
    assert subscription.feed.can_be_joined()
    # The record was in focus before, but this subscriber has never received it.
    subscription.on_batch(changed(topic, documents(5, 1)))
    assert subscription.said() == []
    subscription.on_batch(changed(topic, documents(1, 5)))
    subscription.on_batch(changed(topic, documents(5, 1)))
    assert [kind for kind, _ in subscription.said()] == ["p", "match"]


def test_once_it_has_said_something_nobody_may_join_who_keeps_account():
    subscription = Subscription(oof=True, accounts=True)
    subscription.on_batch(put(subscription.topic, {"id": 1}))
    assert not subscription.feed.can_be_joined()
    plain = Subscription(oof=True)
    plain.on_batch(put(plain.topic, {"id": 1}))
    assert plain.feed.can_be_joined()


@pytest.mark.parametrize("retain", [True, False])
def test_where_nothing_is_stored_the_feed_itself_remembers(retain):
    subscription = Subscription("/px > 3", oof=True, topic=records(replace(ORDERS, retain=retain)))
    for seq, px in enumerate((5, 1), 1):
        subscription.on_batch(put(subscription.topic, {"id": 1, "px": px}, seq=seq))
    assert [kind for kind, _ in subscription.said()] == ["p", "match"]


def test_a_snapshot_is_kept_account_of():
    subscription = Subscription("/px > 3", oof=True, accounts=True)
    held = put(subscription.topic, {"id": 1, "px": 5})
    subscription.feed.keep_account_of(held.changes.slots)
    subscription.on_batch(put(subscription.topic, {"id": 1, "px": 1}, seq=2))
    assert [kind for kind, _ in subscription.said()] == ["match"]


# Conflated feeds: a window reports the change from its beginning to its end.

values = st.lists(st.none() | st.integers(0, 6), min_size=1, max_size=6)


def played(subscription, log):
    """Publish a record, or delete it where there is no value; the last value before and after."""
    for seq, value in enumerate(log, 1):
        if value is not None:
            subscription.on_batch(put(subscription.topic, {"id": 1, "px": value}, seq=seq), 0)
            continue
        names = subscription.topic.identities_of([b'{"id":1}'])
        batch = subscription.topic.drop(names, "deleted", lambda n, seq=seq: ([seq], [0]))
        if batch is not None:
            subscription.on_batch(batch, 0)


@given(values, values)
def test_a_window_reports_its_end_to_who_knows_its_beginning(before, log):
    subscription = Subscription("/px > 3", interval_us=SECOND, oof=True)
    played(subscription, before)
    subscription.said(SECOND)
    was, now = before[-1], log[-1]
    played(subscription, log)
    sent = subscription.said(3 * SECOND)
    held, holds = was is not None and was > 3, now is not None and now > 3
    if holds:
        assert sent == [("p", {"id": 1, "px": now})] or (held and sent == [])
        assert sent
    elif held:
        assert [kind for kind, _ in sent] in (["match"], ["deleted"])
    else:
        assert sent == []


def test_who_did_not_ask_is_not_sent_that_a_record_left():
    subscription = Subscription("/px > 3", interval_us=SECOND)
    played(subscription, [5])
    subscription.said(SECOND)
    played(subscription, [1])
    assert subscription.said(3 * SECOND) == []


def test_by_a_key_of_its_own_one_record_stands_for_another():
    subscription = Subscription(interval_us=SECOND, conflation_key=("/symbol",))
    batch = put(
        subscription.topic,
        {"id": 1, "symbol": "A"},
        {"id": 2, "symbol": "A"},
        {"id": 3},
        {"id": 4},
    )
    assert subscription.on_batch(batch)
    assert not subscription.feed.knows_what_is_held
    assert [document["id"] for _, document in subscription.said(SECOND)] == [2, 3, 4]


def test_a_key_that_is_the_records_own_is_none():
    subscription = Subscription(interval_us=SECOND, conflation_key=("/id",))
    assert subscription.feed.knows_what_is_held
    assert subscription.feed.encoder.conflation_key == ()
