"""Row changes: columns of one length."""

from sow.topic.views.row_deltas import RowDeltas


def test_changes_are_as_many_as_rows_are_named():
    changes = RowDeltas(
        ["a", "b"], [["x", None]], [["x", "y"]], [True, False], [True, True], [1, 2], [3, 4], [9, 9]
    )
    assert len(changes) == 2
    assert changes.reason == "match"
