"""What goes on from one authenticator to the next; how hashing takes turns is seen in
test_authenticator.py."""

from sow.authentication import logons
from sow.authentication.logons import Known, Logons


def test_so_many_are_known(monkeypatch):
    monkeypatch.setattr(logons, "KNOWN_MAX", 2)
    known = Known()
    for at in range(3):
        known.put(known.sum_of(str(at)), at, None)
    assert [known.get(known.sum_of(str(at)), 0) for at in range(3)] == [None, 1, 2]
    assert known.sum_of("a", "bc") != known.sum_of("ab", "c")
    assert known.sum_of("a") != Known().sum_of("a")


def test_what_is_known_for_a_while_is_not_known_after_it():
    known = Known()
    known.put(b"x", "ann", 10)
    assert known.get(b"x", 9) == "ann"
    assert known.get(b"x", 10) is None


def test_attempts_are_bounded_where_it_is_said():
    assert Logons().attempts is None
    assert Logons(20).attempts.wait_us("a", 0) == 0
