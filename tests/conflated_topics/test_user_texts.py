"""The one grammar of intervals, and the word that a mistyped one was meant to be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conflated_topics.user_texts import (
    COMPARED_CHARS_MAX,
    INTERVAL_US_MAX,
    UNITS_NS,
    IntervalError,
    interval_us,
    nearest,
    parse_interval,
)
from sow.config.diagnostics import MistakeError
from sow.config.value_types import duration_us
from sow.errors import ClientError
from sow.protocol.commands import OPTIONS, read_value
from tests.cases import all_cases


@pytest.mark.parametrize(
    ("text", "us"),
    [("0", 0), ("500us", 500), ("1ns", 1), ("1001ns", 2), ("1.5 h", 5_400_000_000), ("0.0s", 0)],
)
def test_an_interval_is_read_as_microseconds_rounded_up(text, us):
    assert interval_us(text) == us


@all_cases("text", ["", "s", "5S", "-1s", "1e3s", "1..2s", "٣s", " 1s", "5", "1s1s"])
def test_what_is_no_interval_is_refused_with_what_to_write(text):
    with pytest.raises(IntervalError) as caught:
        interval_us(text)
    assert caught.value.wrong
    assert caught.value.instead
    assert str(caught.value) == f"{caught.value.wrong}; {caught.value.instead}"


def test_an_interval_is_no_longer_than_its_bound():
    weeks = INTERVAL_US_MAX // (UNITS_NS["w"] // 1000)
    assert interval_us(f"{weeks}w") <= INTERVAL_US_MAX
    with pytest.raises(IntervalError, match="too long"):
        interval_us(f"{weeks + 1}w")


def read(reader, text):
    try:
        return reader(text)
    except (MistakeError, ClientError, ValueError):
        return None


def option(text):
    return read_value(OPTIONS["conflation"], text)


@given(
    st.from_regex(r"[0-9]{1,30}(\.[0-9]{1,3})? {0,2}[A-Za-z]{0,2}", fullmatch=True)
    | st.builds(
        "{}{}".format, st.integers(0, 10**12) | st.floats(0.001, 1e6), st.sampled_from([*UNITS_NS])
    )
)
def test_an_interval_means_the_same_wherever_it_is_written(text):
    """In a configuration, an option and an argument; what is refused there is too short."""
    meant = read(interval_us, text)
    assert read(duration_us, text) == meant
    if meant is None:
        assert read(parse_interval, text) is None
        assert read(option, text) is None
        return
    assert read(parse_interval, text) == (meant or None)
    assert read(option, text) in ({meant} if meant >= 10_000 else {None})


@pytest.mark.parametrize(
    ("text", "instead"),
    [("1min", "write 1m"), ("90 sec", "write 90s"), ("10MS", "write 10ms"), ("2 Hours", "write 2h"),
     ("1M", "use one of ns us ms s m h d w")],
)  # fmt: skip
def test_the_word_for_a_unit_is_answered_with_the_unit(text, instead):
    with pytest.raises(IntervalError, match="which is none") as refused:
        interval_us(text)
    assert refused.value.instead == instead


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
