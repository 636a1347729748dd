"""What is said to who has mistyped a word."""

from sow.core.suggest import KNOWN_SENT_MAX, PATTERNS_SENT_MAX, did_you_mean, no_topic


def test_a_near_word_is_requested_for():
    assert did_you_mean("ordrs", ["orders", "quotes"]) == "; did you mean orders?"


def test_without_a_near_word_the_known_ones_are_sent():
    assert did_you_mean("zzz", {"orders": 1, "quotes": 2}) == "; known are orders, quotes"


def test_of_many_known_words_some_are_sent():
    known = [f"topic{number}" for number in range(KNOWN_SENT_MAX + 1)]
    told = did_you_mean("zzz", known)
    assert told.endswith(f"topic{KNOWN_SENT_MAX - 1}, …")
    assert not did_you_mean("zzz", known[:-1]).endswith("…")


def test_who_misses_a_topic_is_sent_of_the_patterns_too_unless_one_is_near():
    patterns = {"by_book": "desk/([a-z]+)"}
    many = "by_book (Pattern desk/([a-z]+))"
    assert no_topic("zzz", ["quotes"], patterns) == f"no topic 'zzz'; known are quotes, {many}"
    assert no_topic("zzz", [], patterns) == f"no topic 'zzz'; known are {many}"
    assert no_topic("zzz", ["quotes"], {}) == "no topic 'zzz'; known are quotes"
    assert no_topic("quote", ["quotes"], patterns) == "no topic 'quote'; did you mean quotes?"


def test_of_many_or_long_patterns_some_are_sent():
    patterns = {f"p{number}": "x" * 1000 for number in range(PATTERNS_SENT_MAX + 1)}
    told = no_topic("zzz", [], patterns)
    assert len(told) < 100 * (PATTERNS_SENT_MAX + 1)
    assert told.endswith(", …")
