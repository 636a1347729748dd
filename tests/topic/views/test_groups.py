"""Groups: rows enter, change, move and leave; a group is a function of those that are in it."""

from itertools import pairwise

import pytest

from sow.core.lossless_numbers import LosslessNumber
from sow.errors import TooLarge
from sow.expressions import compile_projection
from sow.topic.views import RowDeltas
from sow.topic.views import groups as module
from sow.topic.views.accumulators import Keeping
from sow.topic.views.groups import (
    KEY_LENGTH_MAX,
    VALUES_AS_ROW,
    RowGroup,
    RowGroups,
    grouped_rows,
)

PROJECTION = compile_projection(("/k", "SUM(/n) AS /n", "/n AS /last"), ("/k",), {"t": "json"})


def groups(projection=PROJECTION):
    return RowGroups(projection)


def came(*rows, born=1, seq=1):
    """Rows (identity, k, n) as having come."""
    names, keys, numbers = zip(*rows, strict=True)
    count = len(rows)
    return RowDeltas(
        names, None, [list(keys), list(numbers)], [False] * count, [True] * count,
        range(born, born + count), range(seq, seq + count), [7] * count,
    )  # fmt: skip


def changed(name, old, new, born, seq=9, reason="match"):
    """A row (k, n) that was one and is another; None: it was not in, or is not."""
    olds = None if old is None else [[value] for value in old]
    news = None if new is None else [[value] for value in new]
    return RowDeltas(
        [name], olds, news, [old is not None], [new is not None], [born], [seq], [9], reason
    )


def summed(found):
    return {key: group.accumulators.results() for key, group in found.take_dirty(99)}


def test_it_says_how_many_objects_it_may_hold():
    found = groups()
    assert found.objects_max(0) == 0
    found.take(came(("a", "x", 1), ("b", "y", 2)))
    assert found.objects_max(0) == 2 * (10 + 3 * len(PROJECTION.arguments))
    assert found.objects_max(2) > found.objects_max(0)


def test_groups_that_have_rows_are_counted_against_their_limit():
    found = groups()
    found.take(came(("a", "x", 1), ("b", "y", 2)))
    found.check_count(2)
    with pytest.raises(TooLarge, match=r"it has 2 groups, and the limit is 1 \(Limits/ViewGroups"):
        found.check_count(1)
    found.take(changed("a", ("x", 1), ("z", 1), 1))
    assert len(found) == 3
    found.check_count(2)
    found.check([])
    found.take(changed("b", ("y", 2), ("x", 2), 2))
    found.take(changed("b", ("x", 2), ("x", 3), 2))
    found.check_count(2)
    found.take(came(("c", "y", 1), born=3, seq=12))
    found.check([])
    with pytest.raises(TooLarge, match="it has 3 groups"):
        found.check_count(2)


def test_counting_groups_takes_as_long_however_many_have_changed():
    """A view that is filled has changed in all of them, and there may be millions."""
    found = groups()
    found.take(came(("a", "x", 1), ("b", "y", 2), ("c", "z", 3)))
    found._dirty = None  # nobody goes through it
    found.check_count(3)
    with pytest.raises(TooLarge, match="it has 3 groups"):
        found.check_count(2)


def test_rows_are_grouped_by_the_text_of_their_values():
    found = groups()
    found.take(came(("a", "x", 1), ("b", 5, 2), ("c", "5", 3), ("d", None, 4), ("e", "", 5)))
    assert summed(found) == {"x": [1, 1], "5": [5, 3], "": [9, 5]}
    assert found["5"].values() == (5,), "a number before the text that spells it"
    assert found["x"].values() == ("x",)
    assert found[""].values() == (None,)


def test_a_group_is_dirty_once_until_it_is_taken():
    found = groups()
    found.take(came(("a", "x", 1), ("b", "y", 2)))
    found.take(came(("c", "x", 3), born=3, seq=3))
    assert found.dirty_count == 2
    assert [key for key, _ in found.take_dirty(1)] == ["x"]
    assert [key for key, _ in found.take_dirty(9)] == ["y"]
    found.check(["x", "y"])


def test_a_row_that_moves_leaves_what_it_was_in():
    found = groups()
    found.take(came(("a", "x", 1), ("b", "x", 2)))
    found.take(changed("a", ("x", 1), ("y", 10), born=1))
    assert summed(found) == {"x": [2, 2], "y": [10, 10]}
    assert (found["x"].born, found["y"].born) == (2, 1)
    assert found["x"].reason == "match"
    assert found["x"].seq == found["y"].seq == 9


def test_a_group_without_rows_is_forgotten_once_that_was_sent():
    found = groups()
    found.take(came(("a", "x", 1)))
    found.take_dirty(9)
    found.take(changed("a", ("x", 1), None, born=1, reason="expired"))
    ((key, group),) = found.take_dirty(9)
    assert (key, group.count, group.reason) == ("x", 0, "expired")
    assert len(found) == 0


def test_the_order_of_a_group_is_that_of_its_oldest_row_whatever_came_and_went():
    found = groups()
    found.take(came(*[(str(at), "x", at) for at in range(20)]))
    for at in range(1, 19):
        found.take(changed(str(at), ("x", at), None, born=at + 1))
    assert found["x"].born == 1
    found.take(changed("0", ("x", 0), None, born=1))
    assert found["x"].born == 20
    found.take(changed("4", None, ("x", 4), born=5))
    found.take(changed("4", ("x", 4), None, born=5))
    found.take(changed("4", None, ("x", 4), born=5))
    assert found["x"].born == 5
    assert len(found["x"]._order) <= 2 * found["x"].count + 1, "births of the gone are forgotten"


def test_a_spelling_goes_with_the_last_row_that_has_it():
    found = groups()
    found.take(came(("a", 5, 1), ("b", "5", 2)))
    found.take(changed("a", (5, 1), None, born=1))
    assert found["5"].values() == ("5",)


def test_several_fields_make_a_key_that_cannot_be_mistaken():
    projection = compile_projection(("COUNT(1) AS /n",), ("/k", "/n"), {"t": "json"})
    found = groups(projection)
    found.take(came(("a", "x\x1f", "y"), ("b", "x", "\x1fy"), ("c", None, "y")))
    made = [group.values() for _, group in found.take_dirty(9)]
    assert made == [("x\x1f", "y"), ("x", "\x1fy"), (None, "y")]


def test_what_has_too_long_a_key_is_left_out_and_counted():
    found = groups()
    long = "x" * (KEY_LENGTH_MAX + 1)
    found.take(came(("a", long, 1), ("b", "x", 2)))
    assert (found.left_out, len(found)) == (1, 1)
    found.take(changed("a", (long, 1), ("x", 1), born=1))
    assert (found.left_out, summed(found)) == (0, {"x": [3, 1]})


def test_a_row_of_other_groups_is_let_go():
    found = groups()
    found.take(came(("a", "x", 1)))
    found.let_go("x", 5, 5)
    found.let_go("old", 5, 5)
    assert {key: group.count for key, group in found.take_dirty(9)} == {"x": 1, "old": 0}


def test_a_row_that_enters_a_group_that_was_to_go_is_grouped_by_its_values():
    found = groups()
    found.let_go("x", 5, 5)
    found.let_go("", 5, 5)
    found.take(came(("a", "x", 1), ("b", None, 2), seq=6))
    values = {key: [*group.values()] for key, group in found.take_dirty(9)}
    assert values == {"x": ["x"], "": [None]}


def test_a_value_that_is_written_otherwise_is_shown_as_it_is_written_now():
    ways = (
        5,
        "5",
        5.0,
        LosslessNumber("5.0"),
        LosslessNumber("5.00"),
        5,
        True,
        1,
        1.0,
        "1",
        None,
        "",
        None,
    )
    quick = groups()
    quick.take(came(("a", ways[0], 1)))
    for seq, (old, new) in enumerate(pairwise(ways), 2):
        quick.take(changed("a", (old, 1), (new, 1), born=1, seq=seq))
        from_scratch = groups()
        from_scratch.take(came(("a", new, 1), seq=seq))
        ((key, group),) = [found for found in quick.take_dirty(9) if found[1].count]
        assert [repr(value) for value in group.values()] == [
            repr(value) for value in from_scratch[key].values()
        ]
        assert group.seq == seq


def test_a_row_whose_key_is_too_long_stays_in_no_group():
    found, long = groups(), "x" * (KEY_LENGTH_MAX + 1)
    found.take(came(("a", long, 1)))
    found.take(changed("a", (long, 1), (long, 2), born=1))
    assert (len(found), found.left_out) == (0, 1)


def test_rows_say_which_groups_they_are_in_and_how_that_is_written():
    rows = grouped_rows(PROJECTION, [["a", 1.0, None, "x" * (KEY_LENGTH_MAX + 1)], [1, 2, 3, 4]], 4)
    assert rows.keys == ["a", "1", "", None]
    assert rows.spelled == [None, (1.0,), None, None]
    assert rows.values() == [(1,), (2,), (3,), (4,)]


def test_a_group_that_is_kept_elsewhere_goes_on_as_it_was():
    projection = compile_projection(("/k", "SUM(/n) AS /n"), ("/k",), {"t": "json"})
    keeping = Keeping(projection)
    group, moved = RowGroup(keeping.group(), ("1",)), RowGroup(keeping.group(), ("1",))
    group.change((0.1,), (1.0,), 1)
    group.change((0.2,), None, 1)
    moved.restore(group.state())
    for one in (group, moved):
        assert (one.count, one.values()) == (2, (1.0,))
        one.change((0.1,), (1.0,), -1)
        assert (one.count, one.values(), one.accumulators.results()) == (1, ("1",), [0.2])


def test_groups_of_many_rows_are_forgotten_fewer_at_a_time(monkeypatch):
    monkeypatch.setattr(module, "FORGOTTEN_ROWS", 3)
    found = groups()
    found.take(came(*[(str(row), str(row % 4), 1) for row in range(10)]))
    left = []
    while len(found):
        left.append(len(found))
        found.forget_some(3)
    assert left == [4, 2]
    assert found.dirty_count == 0, "and nothing is reported of them"


def test_fewer_groups_are_taken_at_once_whose_values_are_looked_through():
    least = compile_projection(("/k", "MIN(/n) AS /least"), ("/k",), {"t": "json"})
    found = groups(least)
    rows = [(str(at), str(at // (3 * VALUES_AS_ROW)), at) for at in range(9 * VALUES_AS_ROW)]
    found.take(came(*rows))
    assert (len(found.take_dirty(8)), found.taken_weight) == (2, 8)
    assert (len(found.take_dirty(1)), found.taken_weight) == (1, 4), "one at least"
    plain = groups(compile_projection(("/k", "SUM(/n) AS /sum"), ("/k",), {"t": "json"}))
    plain.take(came(*rows))
    assert (len(plain.take_dirty(8)), plain.taken_weight) == (3, 3)
