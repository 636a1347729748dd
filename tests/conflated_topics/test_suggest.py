"""What a mistyped word is taken for."""

import pytest

from conflated_topics.suggest import COMPARED_CHARS_MAX, nearest


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


def test_of_a_long_word_only_the_beginning_is_compared():
    assert nearest("o" * 100_000, ["o" * COMPARED_CHARS_MAX]) == "o" * COMPARED_CHARS_MAX
