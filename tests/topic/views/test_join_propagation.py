"""The flow of a join: which rows one change concerns, in which order, and no others."""

import pytest

from sow.topic.views.join_propagation import ENTERS, LEAVES, NEXT, NO_ROW, REPLACED, STAYS, in_parts
from tests.cases import all_cases
from tests.topic.views.joining import SHAPES, Joined

WORDS = {ENTERS: "+", STAYS: "=", LEAVES: "-", REPLACED: "~"}


def flow(joined, at):
    """The changes of rows from those of one topic, one letter an identity."""
    topic = joined.joins._topics[at]
    topic.take()
    said = []
    found = joined.joins._flow
    for one in found.of(at, found.keys(at, topic.next_taken(99))):
        if one is NEXT:
            said.append("|")
        elif one is NO_ROW:
            said.append(".")
        else:
            said.append(WORDS[one[0]] + "".join(name or "·" for name in one[1]))
    return " ".join(said)


def pair(kind):
    joined = Joined(("T0./a = T1./a",), [kind])
    joined.put("T0", {"id": "p", "a": "x"}, {"id": "q", "a": "x"}, {"id": "r", "a": "y"})
    joined.work()
    return joined


@pytest.mark.parametrize(
    ("kind", "first", "second", "gone", "last"),
    [
        ("left", "| ~p· +pb ~q· +qb", "| +pc +qc", "| -pb -qb", "| ~pc +p· ~qc +q·"),
        ("inner", "| +pb +qb", "| +pc +qc", "| -pb -qb", "| -pc -qc"),
        ("full", "| ~p· +pb ~q· +qb", "| +pc +qc", "| -pb -qb", "| ~pc +p· ~qc +q·"),
    ],
)
def test_the_first_and_the_last_that_is_met(kind, first, second, gone, last):
    joined = pair(kind)
    joined.put("T1", {"id": "b", "a": "x"})
    assert flow(joined, 1) == first
    joined.put("T1", {"id": "c", "a": "x"})
    assert flow(joined, 1) == second
    joined.delete("T1", "b")
    assert flow(joined, 1) == gone
    joined.delete("T1", "c")
    assert flow(joined, 1) == last


def test_a_record_that_nobody_meets_stands_alone_in_a_full_join():
    joined = pair("full")
    joined.put("T1", {"id": "b", "a": "z"}, {"id": "c"})
    assert flow(joined, 1) == "| +·b | +·c"
    joined.put("T0", {"id": "r", "a": "z"})
    assert flow(joined, 0) == "| -r· ~·b +rb"
    joined.delete("T0", "r")
    assert flow(joined, 0) == "| -rb +·b"


def test_what_joins_as_before_stays_and_what_moves_leaves_first():
    joined = pair("left")
    joined.put("T1", {"id": "b", "a": "x"})
    joined.work()
    joined.put("T1", {"id": "b", "a": "x", "v": 1})
    assert flow(joined, 1) == "| =pb =qb"
    joined.put("T1", {"id": "b", "a": "y"})
    assert flow(joined, 1) == "| ~pb +p· ~qb +q· ~r· +rb"
    joined.put("T0", {"id": "p", "a": "y"})
    assert flow(joined, 0) == "| -p· +pb"


def test_one_that_has_gone_and_come_again_is_another_row():
    joined = pair("left")
    joined.delete("T0", "p")
    joined.put("T0", {"id": "p", "a": "x"})
    assert flow(joined, 0) == "| -p· +p·"


def test_a_row_that_comes_to_nothing_is_a_sign():
    joined = Joined(("T0./a = T1./a", "T0./b = T2./b"), ["left", "inner"])
    joined.put("T0", {"id": "p", "a": "x", "b": "1"}, {"id": "q", "a": "x"})
    joined.work()
    joined.put("T1", {"id": "b", "a": "x"})
    assert flow(joined, 1) == "| . . . ."
    joined.put("T2", {"id": "c", "b": "1"})
    assert flow(joined, 2) == "| +pbc"


def test_parts_are_made_as_they_are_requested_for():
    taken = []
    parts = in_parts(taken.append(at) or at for at in range(1000))
    assert len(next(parts)) == len(taken) < 1000


MANY = [{"id": str(one), "a": "xyz"[one % 3], "b": "xy"[one % 2]} for one in range(5)]
MANY += [{"id": "n"}, {"id": "w", "a": "w", "b": 1}]


@all_cases("shape", sorted(SHAPES))
@all_cases("kind", ["left", "inner", "full"])
def test_rows_that_stay_are_found_at_once_in_the_order_of_the_flow(shape, kind):
    joined = Joined(SHAPES[shape], [kind] * 3)
    for topic in joined.topics[::-1]:
        joined.put(topic.name, *[one for one in MANY if topic.name == "T0" or one["id"] != "w"])
    joined.work()
    joined.put("T0", *[one | {"v": 1} for one in MANY])
    found, first = joined.joins._flow, joined.joins._topics[0]
    first.take()
    keys = found.keys(0, first.next_taken(99))
    rows = [row for which, row in found.of(0, keys) if which == STAYS]
    assert rows
    assert found.staying(0, keys, 999) == rows
    assert found.staying(0, keys, len(rows) - 1) is None, "too many to be held at once"


def test_one_that_joins_otherwise_does_not_stay():
    joined = pair("left")
    joined.put("T0", {"id": "p", "a": 1}, {"id": "q", "a": "x"})
    joined.work()
    # Equal to Python, and another text.
    joined.put("T0", {"id": "p", "a": True}, {"id": "q", "a": "x"})
    found, first = joined.joins._flow, joined.joins._topics[0]
    first.take()
    keys = found.keys(0, first.next_taken(99))
    assert keys.staying == {"q"}
    assert found.staying(0, keys, 999) is None
