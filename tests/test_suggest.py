"""What is said to who has mistyped a word."""

from sow.suggest import KNOWN_TOLD_MAX, did_you_mean


def test_a_near_word_is_asked_for():
    assert did_you_mean("ordrs", ["orders", "quotes"]) == "; did you mean orders?"


def test_without_a_near_word_the_known_ones_are_told():
    assert did_you_mean("zzz", {"orders": 1, "quotes": 2}) == "; known are orders, quotes"


def test_of_many_known_words_some_are_told():
    known = [f"topic{number}" for number in range(KNOWN_TOLD_MAX + 1)]
    told = did_you_mean("zzz", known)
    assert told.endswith(f"topic{KNOWN_TOLD_MAX - 1}, …")
    assert not did_you_mean("zzz", known[:-1]).endswith("…")
