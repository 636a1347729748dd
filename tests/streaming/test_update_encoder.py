"""How a subscription words an update, by itself or in a batch, and what a delivery keeps of it."""

import json
from dataclasses import replace

import pytest

from sow.core.definitions import Merge
from sow.protocol.replies import LINES
from sow.streaming.outbox import Delivery
from sow.streaming.update_encoder import FeedKey, UpdateEncoder
from sow.topic.batch import Update
from sow.topic.rendering import Shape
from tests.streaming.making import unframed
from tests.topic.making import ORDERS, allow, body, changed, put, records


def lines(definition=ORDERS, **key):
    return UpdateEncoder(records(definition), "sub", LINES, FeedKey(**key))


def update(old=None, new=None, seq=5, **more):
    old = None if old is None else body(**old)
    new = None if new is None else body(**new)
    known = more.pop("known", old is not None)
    return Update("1", known, new, seq, 0, more.pop("first_seq", seq), 0, old=old, **more)


def said(line):
    return None if line is None else json.loads(line)


ONE, TWO = {"id": 1, "px": 1}, {"id": 1, "px": 2}


def test_an_update_is_the_whole_record_or_its_delta():
    whole = said(lines().line(update(ONE, TWO)))
    assert (whole["c"], whole["s"], whole["t"], whole["d"]) == ("p", "sub", "orders", TWO)
    delta = said(lines(delta=True).line(update(ONE, TWO, delta={"px": 2})))
    assert delta["delta"] is True
    assert delta["d"] == {"id": 1, "px": 2}


def test_what_leaves_is_said_to_those_who_requested_and_with_its_last_state():
    gone = update(ONE, None, reason="deleted")
    assert lines().line(gone) is None
    oof = said(lines(oof=True).line(gone))
    assert (oof["c"], oof["reason"], oof["d"]) == ("oof", "deleted", ONE)
    parted = update(ONE, None, reason="match", parting=body(**TWO))
    assert said(lines(oof=True).line(parted))["d"] == TWO


def test_what_nobody_was_sent_of_is_not_said():
    assert lines(oof=True).line(update(None, None)) is None


@pytest.mark.parametrize(
    ("old", "new", "select", "empty"),
    [
        (ONE, ONE, None, True),
        (ONE, TWO, None, False),
        (ONE, TWO, ("/id",), True),
        (None, TWO, None, False),
    ],
)
def test_an_update_that_shows_nothing_new_is_empty(old, new, select, empty):
    wording = lines(no_empties=True, shape=Shape(select=select))
    assert (wording.line(update(old, new)) is None) == empty


def test_a_line_bears_the_first_bookmark_that_it_stands_for():
    assert said(lines().line(update(ONE, TWO, seq=9, first_seq=3)))["bm"] == "3"


def test_the_shorter_of_delta_and_whole_is_said():
    wording = lines(delta=True)
    short = update(ONE, {**TWO, "text": "x" * 50}, delta={"px": 2})
    assert said(wording.shortest_line(short))["delta"] is True
    long = update(ONE, TWO, delta={"px": 2, "text": "x" * 50})
    assert "delta" not in said(wording.shortest_line(long))
    assert said(wording.shortest_line(update(ONE, None, reason="expired")))["reason"] == "expired"


def test_a_line_of_a_batch_is_the_line_of_its_update():
    wording = lines()
    batch = put(wording.topic, ONE)
    (one,) = wording.of_batch(batch, 0, update(None, ONE, seq=1))
    (other,) = wording.published(batch.tails("p", Shape()), batch.changes.seqs)
    assert one == other
    assert said(one)["k"] == batch.keys()[0]
    pair = changed(wording.topic, (ONE, TWO))
    sent = update(ONE, TWO, seq=1, delta={"px": 2})
    assert said(lines(delta=True).of_batch(pair, 0, sent)[0])["delta"] is True


def test_updates_are_matched_by_the_subscriptions_key_where_it_has_one():
    updates = [update(None, {"id": 1, "symbol": "A"}), update(None, {"id": 1})]
    assert lines().keys(updates) == [("1",), ("1",)]
    assert lines(conflation_key=("/symbol",)).keys(updates) == [("A",), (None, "1")]
    # A subscriber that needs each record cannot have one replaced by another.
    assert lines(conflation_key=("/symbol",), oof=True).keys(updates) == [("1",), ("1",)]
    assert lines(conflation_key=("/id",)).conflation_key == ()


def test_deltas_are_never_merged():
    merging = replace(ORDERS, merges=(Merge("/px", "sum"),))
    one, two = update(None, ONE), update(ONE, TWO)
    assert json.loads(lines(merging).fold(one, two).new)["px"] == 3
    assert json.loads(lines(merging, delta=True).fold(one, two).new)["px"] == 2


class Sent:
    """A delivery of published records, as a feed without wishes makes it."""

    def __init__(self, *documents, definition=ORDERS):
        self.lines = lines(definition)
        batch = put(self.lines.topic, *documents)
        changes = batch.changes
        columns = (changes.identities, changes.news, changes.seqs, changes.ts_us)
        rendered = self.lines.published(batch.tails("p", Shape()), changes.seqs)
        self.delivery = Delivery("sub", LINES, rendered, [(self.lines, columns)])


def test_a_delivery_is_one_frame_and_the_updates_that_it_was_made_of():
    delivery = Sent({"id": 1}, {"id": 2}).delivery
    assert delivery.message_count == 2
    assert unframed(delivery.frame).count(b"\n") == 1
    assert delivery.frame is delivery.frame
    assert [json.loads(one.new)["id"] for _, _, one in delivery.keyed()] == [1, 2]
    assert delivery.keyed() is delivery.keyed()


def test_a_delivery_without_two_of_one_record_is_folded_as_it_is():
    delivery = Sent({"id": 1}, {"id": 2}).delivery
    assert delivery.folded(lambda one: pytest.fail("nothing to fold")) is delivery


def test_a_delivery_is_folded_once_for_all_who_want_it():
    sent = Sent({"id": 1, "v": 1}, {"id": 1, "v": 2})
    calls = []

    def fold(delivery):
        calls.append(delivery)
        (wording, _, _), (_, _, last) = delivery.keyed()
        return [(wording, last)]

    folded = sent.delivery.folded(fold)
    assert sent.delivery.folded(fold) is folded
    assert (len(calls), folded.message_count) == (1, 1)
    assert json.loads(unframed(folded.frame))["d"] == {"id": 1, "v": 2}


def test_a_delivery_is_dated_once_its_topics_policy_is_another():
    sent = Sent({"id": 1})
    assert sent.delivery.policy == "conflate"
    assert not sent.delivery.is_dated
    allow(sent.lines.topic, "off")
    assert sent.delivery.is_dated


LONG = {"id": 1, "px": 1, "text": "longer"}


@pytest.mark.parametrize(
    ("after", "key", "grown"),
    [
        (update(None, LONG, first_seq=5), {}, 16),
        (update(None, LONG, seq=1_000, first_seq=5), {}, 16),
        (update(None, LONG, seq=1_000), {}, None),
        (update(None, None, first_seq=5), {}, None),
        (update(TWO, LONG, first_seq=5), {}, None),
        (update(None, LONG, delta={"text": "longer"}), {"delta": True}, None),
        (update(None, LONG)._replace(identity="10"), {}, None),
        (update(None, LONG)._replace(mark=b',"edit":true'), {}, None),
        (update(None, LONG)._replace(first_ts_us=1), {"shape": Shape(timestamps=True)}, None),
        (update(None, LONG), {"shape": Shape(select=("/px",))}, None),
    ],
)
def test_how_much_longer_a_line_becomes_is_known_without_it_or_not_at_all(after, key, grown):
    encoder, before = lines(oof=True, **key), update(None, ONE)
    assert encoder.grown(before, after) == grown
    if grown is not None:
        assert len(encoder.shortest_line(after)) - len(encoder.shortest_line(before)) == grown


def test_a_line_of_another_type_is_encoded_to_know_its_length():
    encoder = lines(replace(ORDERS, message_type="nvfix"))
    before, after = (Update("1", False, text, 5, 0, 5, 0) for text in (b"id=1\x01", b"id=11\x01"))
    assert encoder.grown(before, after) is None
