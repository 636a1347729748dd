"""The rows of a join as columns: values, the order of rows, and the newest change."""

from tests.topic.views.joining import Joined


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


def test_a_row_that_comes_since_another_has_gone_has_the_number_of_that_change():
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
