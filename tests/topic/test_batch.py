"""A batch: what can be worked out of changes, and that it is worked out once."""

import json

from hypothesis import given
from hypothesis import strategies as st

from sow.core.paths import parse_path
from sow.expressions import compile_filter
from sow.topic.batch import SELECTED_BYTES_MAX, SELECTED_DELTA_BYTES, SELECTED_FIELD_BYTES, Changes
from sow.topic.rendering import Renderer, Shape
from tests.topic.making import body, changed, put, records


def test_a_batch_is_as_long_as_it_names_records():
    assert len(Changes("t", ["a", "b"], [0, 1], [None, b"1"], [b"2", b"3"], [1, 2], [0, 0])) == 2


def test_records_that_left_count_although_there_is_nothing_new():
    gone = Changes("t", ["a"], [0], [b"1"], None, [1], [0], reason="expired")
    assert len(gone) == 1
    assert gone.partings is None


PX = parse_path("/px")
ABOVE = compile_filter("/px > 3")
prices = st.none() | st.integers(0, 6)


def both(old, new):
    """A change of record 1's price; an old price of None: it is new."""
    return (None if old is None else {"id": 1, "px": old}), {"id": 1, "px": new}


@given(st.lists(st.tuples(prices, st.integers(0, 6)), min_size=1, max_size=4))
def test_focus_is_sent_of_the_whole_batch_as_of_one_record(steps):
    batch = changed(records(), *(both(old, new) for old, new in steps))
    for condition in (ABOVE, None):
        was = [old is not None and (condition is None or old > 3) for old, _ in steps]
        is_now = [condition is None or new > 3 for _, new in steps]
        assert list(batch.old_focus(condition)) == was
        assert list(batch.new_focus(condition)) == is_now
        for at in range(len(steps)):
            assert batch.was_in_focus(condition, at) == was[at]
            assert batch.is_in_focus(condition, at) == is_now[at]
    assert batch.column(PX) == [new for _, new in steps]
    assert batch.old_column(PX) == [old for old, _ in steps]


def gone(target, *olds, reason="deleted", partings=None):
    names = [str(at) for at in range(len(olds))]
    changes = Changes(
        target.name,
        names,
        (),
        olds,
        None,
        range(1, 1 + len(olds)),
        [0] * len(olds),
        reason,
        partings,
    )
    return target.batch(changes, {})


def test_what_has_left_is_in_nobodys_focus():
    batch = gone(records(), body(id=1, px=5))
    assert list(batch.new_focus(None)) == [False]
    assert not batch.is_in_focus(ABOVE, 0)
    assert batch.was_in_focus(ABOVE, 0)


def test_an_oof_carries_what_made_the_record_leave():
    old, new = body(id=1, px=5), body(id=1, px=1)
    assert gone(records(), old).parting(0) == old
    assert gone(records(), old, reason="match", partings=[new]).parting(0) == new
    assert gone(records(), None).parting(0) == b""
    assert changed(records(), ({"id": 1, "px": 5}, {"id": 1, "px": 1})).parting(0) == new


def test_a_delta_is_of_what_is_shown():
    batch = changed(records(), ({"id": 1, "a": 1, "b": 1}, {"id": 1, "a": 2, "b": 1}))
    assert batch.delta(Shape(), 0) == {"a": 2}
    assert batch.delta(Shape(select=("/b",)), 0) == {}
    assert batch.is_empty(Shape(select=("/b",)), 0)
    assert not batch.is_empty(Shape(), 0)


def test_a_new_record_and_one_that_lost_a_field_are_sent_whole():
    batch = changed(records(), (None, {"id": 1}), ({"id": 2, "a": 1}, {"id": 2}))
    assert batch.delta(Shape(), 0) is None
    assert batch.delta(Shape(), 1) is None
    assert not batch.is_empty(Shape(), 0)


def test_equal_bytes_are_nothing_new_whatever_their_type():
    same = changed(records(), ({"id": 1}, {"id": 1}))
    assert same.is_empty(Shape(), 0)


def test_lines_are_made_once_for_all_who_share_their_shape():
    batch = put(records(), {"id": 1}, {"id": 2})
    tails = batch.tails("p", Shape())
    assert batch.tails("p", Shape()) is tails
    assert batch.tail("p", Shape(), 1) is tails[1]
    assert batch.tails("p", Shape(timestamps=True)) != tails


def test_one_line_of_many_is_the_line_that_all_would_give():
    for kind in ("p", "oof"):
        few, all_of_them = (put(records(), {"id": 1}, {"id": 2}) for _ in range(2))
        assert few.tail(kind, Shape(), 1) == all_of_them.tails(kind, Shape())[1]


def test_once_many_were_requested_for_one_by_one_all_lines_are_made_together(monkeypatch):
    rendered = []
    lines_of = Renderer.lines

    def lines(self, kind, shape, columns):
        rendered.append(len(columns.bodies))
        return lines_of(self, kind, shape, columns)

    monkeypatch.setattr(Renderer, "lines", lines)
    for shape, times in ((Shape(), [1, 1, 32]), (Shape(select=("/id",)), [1] * 32)):
        batch = put(records(), *({"id": at} for at in range(32)))
        singles = [batch.tail("p", shape, at) for at in range(32)]
        assert rendered == times
        assert singles == batch.tails("p", shape)
        rendered.clear()


def test_a_line_has_key_bookmark_and_body():
    batch = put(records(), {"id": 1, "px": 5}, seq=7)
    line = json.loads(b"{" + batch.tails("p", Shape())[0].lstrip(b","))
    assert line == {"k": batch.keys()[0], "bm": "7", "d": {"id": 1, "px": 5}}


def test_lines_and_deltas_of_many_select_lists_are_not_all_kept_whatever_the_batch():
    def kept():
        lines = [line for batch in batches for tails in batch._tails.values() for line in tails]
        deltas = [delta for batch in batches for delta in batch._deltas.values()]
        return sum(map(len, lines)) + sum(
            SELECTED_DELTA_BYTES + SELECTED_FIELD_BYTES * len(one) for one in deltas
        )

    fields, pad = {f"f{n}": n for n in range(500)}, "x" * 50_000
    before, after = {"id": 1, **dict.fromkeys(fields, -1)}, {"id": 1, "pad": pad, **fields}
    batches = [changed(records(), (before, after)) for _ in range(3)]
    most = 0
    for number in range(100):
        shape = Shape(select=(f"-/f{number}",))
        for batch in batches:
            (whole,) = batch.tails("delta", shape)
            assert batch.tail("delta", shape, 0) == whole
            assert len(batch.delta(shape, 0)) == 500
            most = max(most, kept())
    assert 3 * 100 * len(pad) > SELECTED_BYTES_MAX >= most > SELECTED_BYTES_MAX / 2


def test_a_long_delta_is_there_for_who_has_read_it_though_it_was_forgotten_meanwhile():
    shape = Shape(select=("/id", "/px"))
    batch = changed(records(), ({"id": 1, "px": 1}, {"id": 1, "px": 2}))
    for _ in batch.reading(shape, 0):
        batch.forget_selected()
    assert batch._deltas == {(shape.select, 0): {"px": 2}}
