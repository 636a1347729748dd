"""A view at work: rows that are records, released once for all that has happened."""

import json
from itertools import islice

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import View
from sow.errors import TooLarge
from sow.expressions import compile_projection
from sow.messages import message_type
from sow.protocol.replies import SentPlace
from sow.topic.records import Records
from sow.topic.views import SingleSource
from sow.topic.views.view import INHERITED_AT_ONCE, RELEASED_AT_ONCE, MaterializedView
from tests.topic.making import held, put, records

FIELDS = ("/desk", "SUM(/qty) AS /qty", "AVG(/qty) AS /avg")


def made(topic, fields=FIELDS, kind="json", woken=None, check=None):
    definition = View("desks", kind, ("orders",), fields, ("/desk",))
    projection = compile_projection(fields, ("/desk",), {"orders": "json"})
    keys = tuple(map(str, projection.keys))
    rows = Records(definition, message_type(kind), keys, "desks", makes_keys=True)
    producer = SingleSource(topic, [source.path for source in projection.inputs], None)
    wake = (lambda _view: None) if woken is None else woken.append
    return MaterializedView(
        rows, producer, projection, (0, 0), frozenset({"orders"}), wake, check_groups=check
    )


def said(batches):
    """(kind or reason, row, number) of what a release changes."""
    return [
        (batch.changes.reason or "p", json.loads(batch.parting(at)), batch.changes.seqs[at])
        for batch in batches
        for at in range(len(batch))
    ]


def test_a_row_is_sent_once_as_it_is_by_then():
    topic, woken = records(), []
    view = made(topic, woken=woken)
    view.on_batch(put(topic, {"id": 1, "desk": "a", "qty": 1}), 0)
    view.on_batch(put(topic, {"id": 2, "desk": "a", "qty": 2}, seq=2), 0)
    assert woken == [view], "once, until it is released"
    assert said(view.release()) == [("p", {"desk": "a", "qty": 3, "avg": 1.5}, 2)]
    assert (view.updates_in, view.updates_out) == (2, 1)
    view.check()


def test_of_a_copy_that_has_sent_less_than_a_view_began_with_the_place_has_a_time():
    """As on a follower that starts with windows of the primary: by the time a reader knows what
    its snapshot does not have."""
    topic, place = records(), SentPlace(5, 77)
    view = made(topic, check=lambda _groups: None)
    view.filled_seq = 9
    batch = put(topic, {"id": 1, "desk": "a", "qty": 1})
    batch.be_sent_at(place)
    view.on_batch(batch, 0)
    (released,) = view.release()
    assert (released.marks[-1], released.marks[-1].time_us) == (SentPlace(9, 77), 77)


def test_a_row_that_is_as_it_was_is_not_sent():
    topic = records()
    view = made(topic)
    view.on_batch(put(topic, {"id": 1, "desk": "a", "qty": 1}), 0)
    view.release()
    view.on_batch(put(topic, {"id": 1, "desk": "a", "qty": 1, "note": "x"}, seq=2), 0)
    assert view.release() == []
    view.on_batch(put(topic, {"id": 2, "desk": "b", "qty": 1}, seq=3), 0)
    view.on_batch(topic.drop(["2"], "deleted", lambda _: ([4], [4])), 0)
    assert view.release() == [], "it came and went in one turn"
    view.check()


def test_a_group_that_vanishes_says_why():
    topic = records()
    view = made(topic)
    view.on_batch(put(topic, {"id": 1, "desk": "a", "qty": 1}, {"id": 2, "desk": "b", "qty": 1}), 0)
    view.release()
    view.on_batch(topic.drop(["1"], "expired", lambda _: ([7], [4])), 0)
    view.on_batch(put(topic, {"id": 2, "desk": "c", "qty": 1}, seq=8), 0)
    assert said(view.release()) == [
        ("p", {"desk": "c", "qty": 1, "avg": 1.0}, 8),
        ("match", {"desk": "b", "qty": 1, "avg": 1.0}, 8),
        ("expired", {"desk": "a", "qty": 1, "avg": 1.0}, 7),
    ]
    assert len(view.groups) == 1


def test_what_cannot_be_written_is_null():
    topic = records()
    view = made(topic)
    view.on_batch(put(topic, {"id": 1, "desk": "a", "qty": "many"}), 0)
    assert said(view.release())[0][1] == {"desk": "a", "qty": None, "avg": None}
    topic = records()
    view = made(topic, ("/desk", "MAX(/sym) AS /sym", "COUNT(1) AS /n"), "nvfix")
    view.on_batch(put(topic, {"id": 1, "desk": "a", "sym": "b\x01c"}, seq=2), 0)
    view.release()
    assert view.rows.table.bodies == [b"desk=a\x01n=1\x01"]


def test_rows_stand_in_the_order_of_their_oldest_records():
    topic = records()
    view = made(topic)
    view.on_batch(put(topic, {"id": 1, "desk": "b"}, {"id": 2, "desk": "a"}), 0)
    view.on_batch(put(topic, {"id": 3, "desk": "b"}, seq=3), 0)
    view.release()
    assert [row["desk"] for row in held(view.rows)] == ["b", "a"]
    view.on_batch(topic.drop(["1"], "deleted", lambda _: ([4], [4])), 0)
    view.release()
    assert [row["desk"] for row in held(view.rows)] == ["a", "b"]
    view.rows.check()


def test_a_view_that_is_filled_is_as_one_that_has_heard_all_and_no_older():
    topic = records()
    put(topic, *[{"id": at, "desk": str(at % 3), "qty": 0.1 * at} for at in range(600)])
    routed, filled, beside = made(topic), made(topic), made(topic)
    for batch in topic.introduced():
        routed.on_batch(batch, 0)
    while routed.groups.dirty_count:
        routed.release()
    run_to_completion(filled.fill(1000))
    run_to_completion(beside.fill_beside(lambda: 1000))
    assert held(routed.rows) == held(filled.rows) == held(beside.rows)
    assert set(filled.rows.table.seqs[:3].tolist()) == {1000}
    assert not filled.groups.dirty_count


def test_filling_ends_however_much_changes_between_its_steps():
    topic, many = records(), 8 * RELEASED_AT_ONCE
    put(topic, *[{"id": at, "desk": at, "qty": 1} for at in range(many)])
    view, seq, newest_seqs = made(topic), many, []
    steps = view.fill_beside(lambda: seq)
    for _ in islice(steps, 200):
        some = [(seq + at) % many for at in range(2 * RELEASED_AT_ONCE)]
        batch = put(topic, *[{"id": at, "desk": at, "qty": seq} for at in some], seq=seq + 1)
        seq += len(some)
        view.on_batch(batch, 0)
        newest_seqs.append(view.rows.table.seqs.max(initial=0))
    assert next(steps, "over") == "over"
    assert len(newest_seqs) < 60
    while view.is_dirty:
        view.release()
    assert sorted(held(view.rows), key=str) == sorted(
        ({"desk": one["desk"], "qty": one["qty"], "avg": one["qty"]} for one in held(topic)),
        key=str,
    )


@pytest.mark.parametrize("most", [RELEASED_AT_ONCE + 1, 3 * RELEASED_AT_ONCE])
def test_a_view_that_stops_while_it_is_filled_is_done_with_that(most):
    topic = records()
    count = 3 * RELEASED_AT_ONCE
    put(topic, *[{"id": at, "desk": str(at), "qty": 1} for at in range(count)])

    def check(groups):
        if len(groups) > most:
            raise TooLarge("too many")

    view = made(topic, check=check)
    steps = view.fill_beside(lambda: 1000)
    for _ in islice(steps, 5):
        if len(view.rows.table):
            view.on_batch(put(topic, {"id": count, "desk": "one more", "qty": 1}, seq=count + 1), 0)
    assert "too many" in view.stopped
    assert next(steps, "done") == "done", "it goes on for ever"
    while view.is_dirty:
        view.release()
    assert not len(view.rows.table)


def test_a_view_that_succeeds_another_reports_what_differs():
    topic, woken = records(), []
    put(topic, {"id": 1, "desk": "a", "qty": 1}, {"id": 2, "desk": "b", "qty": 5})
    view = made(topic)
    run_to_completion(view.fill(2))
    assert (len(view.rows.table), view.updates_in, view.updates_out) == (2, 0, 0)
    other = made(topic, FIELDS, woken=woken)
    other.rows = view.rows
    other.producer = SingleSource(topic, other.producer._paths, None)
    put(topic, {"id": 2, "desk": "c", "qty": 5}, seq=3)
    run_to_completion(other.fill_groups())
    assert woken == []
    other.succeed(9, 9)
    assert woken == [other]
    assert said(other.release()) == [
        ("p", {"desk": "c", "qty": 5, "avg": 5.0}, 9),
        ("match", {"desk": "b", "qty": 5, "avg": 5.0}, 9),
    ]


def test_rows_of_the_view_before_are_looked_for_some_at_a_time():
    topic, many, left = records(), 3 * INHERITED_AT_ONCE, 3
    put(topic, *[{"id": at, "desk": at, "qty": 1} for at in range(many)])
    view = made(topic)
    run_to_completion(view.fill(many))
    other = made(topic)
    other.rows = view.rows
    run_to_completion(other.fill_groups())
    while other.groups.dirty_count:
        other.groups.take_dirty(many)
    topic.drop(["1"], "deleted", lambda _: ([many + 1], [0]))
    other.groups.forget_some(left)
    other.succeed(many + 2, 5)
    found = []
    while other.is_dirty:
        found.append(said(other.release()))
        assert other.looked_at <= 2 * RELEASED_AT_ONCE
        other.check()
    gone = [("match", {"desk": many - at, "qty": 1, "avg": 1.0}, many + 2) for at in (1, 2, 3)]
    assert sorted([one for some in found for one in some], key=str) == sorted(gone, key=str)
    assert len(found) == 3, "the last is known to be the last"
