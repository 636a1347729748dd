"""A hold is told what stands in a column no more, for as long as somebody refers to it."""

from sow.store.copy_on_write import CopyOnWrite
from sow.store.memory import Table


def test_a_hold_has_what_stood_there_first():
    holds = CopyOnWrite()
    first = holds.take()
    assert holds.save([1, 2, 1], ["a", "b", "c"])
    second = holds.take()
    assert holds.save([2], ["d"])
    assert dict(first) == {1: "a", 2: "b"}
    assert dict(second) == {2: "d"}


def test_an_unreferenced_hold_saves_nothing_more():
    holds = CopyOnWrite()
    hold, other = holds.take(), holds.take()
    del hold
    assert holds.save([0], ["a"])
    del other
    assert not holds.save([0], ["b"])


def test_a_table_reports_what_it_replaces_and_what_it_removes():
    table = Table(None)
    table.put(["a", "b"], [b"1", b"2"], [1, 2], [0, 0])
    bodies, identities = table.hold_bodies(), table.hold_identities()
    table.put(["a", "a", "c"], [b"3", b"4", b"5"], [3, 4, 5], [0, 0, 0])
    table.drop(["b"])
    table.put(["d"], [b"6"], [6], [0])
    assert dict(bodies) == {0: b"1", 2: None, 1: b"2"}
    assert dict(identities) == {1: "b"}
    del bodies, identities
    table.put(["a"], [b"7"], [7], [0])
    table.drop(["a"])
    assert table._body_holds is table._identity_holds is None
