"""Changes are columns of equal length; how many there are does not hang on why they left."""

from sow.core.changes import Changes


def test_a_batch_is_as_long_as_it_names_records():
    assert len(Changes("t", ["a", "b"], [0, 1], [None, b"1"], [b"2", b"3"], [1, 2], [0, 0])) == 2


def test_records_that_left_count_although_there_is_nothing_new():
    gone = Changes("t", ["a"], [0], [b"1"], None, [1], [0], reason="expired")
    assert len(gone) == 1
    assert gone.partings is None
