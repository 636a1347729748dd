"""Quantities in a word or two."""

import pytest

from sow.core.humanize import (
    KNOWN_SENT_MAX,
    PATTERNS_SENT_MAX,
    counted,
    did_you_mean,
    duration,
    no_topic,
    size,
)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 records"), (1, "1 record"), (2000, "2,000 records")]
)
def test_counts(count, text):
    assert counted(count, "record") == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (20 * 1024**2, "20 MiB"),
     (5000 * 1024**4, "5,000 TiB")],
)  # fmt: skip
def test_sizes(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 ms"), (0.00034, "0.34 ms"), (0.035, "35 ms"), (2.5, "2.5 s"), (90, "90.0 s"),
     (180, "3 min"), (7200, "2 h"), (3 * 86400, "3 d")],
)  # fmt: skip
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_a_near_word_is_requested_for():
    assert did_you_mean("ordrs", ["orders", "quotes"]) == "; did you mean orders?"


def test_without_a_near_word_the_known_ones_are_sent():
    assert did_you_mean("zzz", {"orders": 1, "quotes": 2}) == "; known are orders, quotes"


def test_of_many_known_words_some_are_sent():
    known = [f"topic{number}" for number in range(KNOWN_SENT_MAX + 1)]
    text = did_you_mean("zzz", known)
    assert text.endswith(f"topic{KNOWN_SENT_MAX - 1}, …")
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
    text = no_topic("zzz", [], patterns)
    assert len(text) < 100 * (PATTERNS_SENT_MAX + 1)
    assert text.endswith(", …")
