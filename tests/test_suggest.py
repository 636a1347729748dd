"""What a mistyped word is taken for."""

import pytest

from sow.suggest import KNOWN_TOLD_MAX, did_you_mean, nearest


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("ordrs", "orders"),
        ("ORDERS", "orders"),
        ("Quote", "Quotes"),
        ("orders", "orders"),
        ("zzz", None),
        ("", None),
    ],
)
def test_a_slip_is_known_whatever_its_case(word, meant):
    assert nearest(word, ["orders", "Quotes"]) == meant


def test_without_known_words_none_is_near():
    assert nearest("a", []) is None


def test_a_near_word_is_asked_for():
    assert did_you_mean("ordrs", ["orders", "quotes"]) == "; did you mean orders?"


def test_without_a_near_word_the_known_ones_are_told():
    assert did_you_mean("zzz", {"orders": 1, "quotes": 2}) == "; known are orders, quotes"


def test_of_many_known_words_some_are_told():
    known = [f"topic{number}" for number in range(KNOWN_TOLD_MAX + 1)]
    told = did_you_mean("zzz", known)
    assert told.endswith(f"topic{KNOWN_TOLD_MAX - 1}, …")
    assert not did_you_mean("zzz", known[:-1]).endswith("…")


def test_of_a_long_word_only_the_beginning_is_compared():
    assert nearest("o" * 100_000, ["o" * 80]) == "o" * 80
