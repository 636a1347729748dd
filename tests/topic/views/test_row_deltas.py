"""Row changes: columns of one length.

Single rows: the records of a topic that a filter passes, from batches or given in steps.
"""

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.paths import parse_path
from sow.engine.queries import matching
from sow.expressions import compile_filter
from sow.topic import views
from sow.topic.views import RowDeltas, SingleSource
from tests.topic.making import put, records


def test_changes_are_as_many_as_rows_are_named():
    changes = RowDeltas(
        ["a", "b"], [["x", None]], [["x", "y"]], [True, False], [True, True], [1, 2], [3, 4], [9, 9]
    )
    assert len(changes) == 2
    assert changes.reason == "match"


PATHS = [parse_path("/desk"), parse_path("/qty")]


def rows_of(topic, condition=None, finds=False):
    passing = compile_filter(condition) if condition else None

    def find():
        yield
        return (yield from matching(topic, passing))

    return SingleSource(topic, PATHS, passing, find if finds else None)


def deltas_of(rows, batch):
    return [(c.olds, c.news, c.was_in, c.is_in, c.borns) for c in rows.on_batch(batch)]


def test_a_change_has_the_values_before_and_after():
    topic = records()
    rows = rows_of(topic)
    found = deltas_of(rows, put(topic, {"id": 1, "desk": "a", "qty": 2}))
    assert found == [(None, [["a"], [2]], [False], [True], [1])]
    found = deltas_of(rows, put(topic, {"id": 1, "desk": "b"}, seq=5))
    assert found == [([["a"], [2]], [["b"], [None]], [True], [True], [1])]
    found = deltas_of(rows, topic.drop(["1"], "expired", lambda _: ([6], [6])))
    assert found == [([["b"], [None]], None, [True], [False], [1])]


def test_only_what_passes_the_filter_is_in():
    topic = records()
    rows = rows_of(topic, "/qty > 2")
    assert deltas_of(rows, put(topic, {"id": 1, "qty": 1})) == []
    (found,) = deltas_of(rows, put(topic, {"id": 1, "qty": 3}, {"id": 2, "qty": 1}, seq=2))
    assert found[2:4] == ([False, False], [True, False])
    (found,) = deltas_of(rows, put(topic, {"id": 1, "qty": 0}, seq=4))
    assert (found[1], found[3]) == (None, [False])


def test_fields_are_read_as_records_come_and_no_longer_when_it_stops():
    topic = records()
    before = topic.watched.paths
    rows = rows_of(topic, "/sym = 'A'")
    assert {str(path) for path in topic.watched.paths} >= {"/desk", "/qty", "/sym"}
    rows.stop()
    assert set(topic.watched.paths) == set(before)


def held(changes):
    """What somebody holds who takes these changes, by identity."""
    found = {}
    for one in changes:
        for at, name in enumerate(one.identities):
            if one.was_in[at]:
                assert found.pop(name) == [column[at] for column in one.olds]
            if one.is_in[at]:
                assert name not in found
                found[name] = [column[at] for column in one.news]
    return found


@pytest.mark.parametrize("finds", [False, True])
@pytest.mark.parametrize("step", range(6))
def test_a_filling_gives_what_is_there_in_the_end_whatever_happens_between_two_steps(
    monkeypatch, step, finds
):
    monkeypatch.setattr(views, "STEP_ROWS", 2)
    monkeypatch.setattr(views, "LOOKED_AT_MAX", 0)
    topic = records()
    put(topic, *[{"id": at, "desk": "a", "qty": at} for at in range(6)])
    rows, taken = rows_of(topic, "/qty < 5", finds), []
    steps = rows.filling(taken.append)

    def meanwhile(seq):
        assert deltas_of(rows, put(topic, {"id": seq % 6, "desk": "b", "qty": 1}, seq=seq)) == []
        batch = topic.drop([str(seq % 5)], "deleted", lambda _: ([seq + 1], [0]))
        assert deltas_of(rows, batch) == [] if batch else True
        assert deltas_of(rows, put(topic, {"id": 90 + seq, "qty": 2}, seq=seq + 2)) == []

    for at, _ in enumerate(steps):
        if at <= step:
            meanwhile(10 + 4 * at)
    table = topic.table
    wanted = {}
    for name, slot in table.slots.items():
        (desk,), (qty,) = topic.decoder(tuple(PATHS)).columns([table.bodies[slot]])
        if qty < 5:
            wanted[name] = [desk, qty]
    assert held(taken) == wanted
    assert (
        held([*taken, *rows.on_batch(put(topic, {"id": 70, "qty": 1}, seq=99))]).keys()
        > wanted.keys()
    )


def test_what_the_filter_leaves_out_is_not_looked_at_where_it_is_found(monkeypatch):
    monkeypatch.setattr(views, "LOOKED_AT_MAX", 99)
    topic, looked_at = records(), []
    put(topic, *[{"id": at, "qty": at % 10} for at in range(100)])
    rows, rows_in = rows_of(topic, "/qty = 7", finds=True), SingleSource._rows_in
    monkeypatch.setattr(
        SingleSource,
        "_rows_in",
        lambda self, slots: looked_at.append(slots) or rows_in(self, slots),
    )
    assert len(held_after(rows)) == 10
    assert sum(map(len, looked_at)) == 10


def held_after(rows):
    taken = []
    run_to_completion(rows.filling(taken.append))
    return held(taken)


def test_all_rows_at_once_after_a_restart():
    topic = records()
    put(topic, *[{"id": at, "desk": "a", "qty": at} for at in range(3)])
    assert held(rows_of(topic, "/qty > 0").rows()) == {"1": ["a", 1], "2": ["a", 2]}
