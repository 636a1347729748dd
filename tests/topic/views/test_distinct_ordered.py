"""Appearances: different texts, in the order in which the rows that are there first came."""

from sow.topic.views import distinct_ordered
from sow.topic.views.distinct_ordered import DistinctOrdered


def test_texts_stand_in_the_order_of_their_first_rows():
    found = DistinctOrdered()
    for born, value in enumerate(["b", 1, "b", None, "", True, ["c", "d"], 2.5]):
        found.add(value, born)
    assert found.joined(",") == "b,1,c,2.5"
    found.remove("b", 0)
    assert found.joined("; ") == "1; b; c; 2.5"
    found.replace(1, "c", 1)
    assert found.joined(",") == "c,b,1,2.5"


def test_a_text_that_is_too_long_is_null_until_it_is_shorter(monkeypatch):
    monkeypatch.setattr(distinct_ordered, "CONCATENATED_CHARS_MAX", 5)
    found = DistinctOrdered()
    found.add("ab", 1)
    found.add("cd", 2)
    assert found.joined(",") == "ab,cd"
    found.add("e", 3)
    assert found.joined(",") is None
    found.remove("e", 3)
    assert found.joined(",") == "ab,cd"


def test_nothing_is_null():
    assert DistinctOrdered().joined(",") is None
