"""A conflated feed: what a window says is what changed from its beginning to its end."""

from hypothesis import given
from hypothesis import strategies as st

from tests.streaming.making import SECOND, Subscription
from tests.topic.making import put

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
    assert subscription.feed.lines.conflation_key == ()
