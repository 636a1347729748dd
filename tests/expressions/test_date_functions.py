"""Times to text and back: fractions, formats of C, and what is no time."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import BadFilter
from sow.expressions import compile_filter
from sow.expressions.date_functions import DATE_FUNCTIONS, FORMAT_CHARS_MAX
from tests.cases import all_cases


def formatted(form, seconds):
    return DATE_FUNCTIONS["STRFTIME"].prepare(form, 0)(seconds)


def read(text, form):
    return DATE_FUNCTIONS["STRPTIME"].prepare(form, 0)(text)


@all_cases(
    ("form", "seconds", "result"),
    [
        ("%F %T", 0, "1970-01-01 00:00:00"),
        ("%H:%M:%S.%f", "1.000001", "00:00:01.000001"),
        ("%S.%03f", 1.0625, "01.062"),
        ("%%03f", 0, "%03f"),
        ("100%%", 0, "100%"),
        ("%F", -1, "1969-12-31"),
        ("%F", 1e18, None),
        ("%F", float("nan"), None),
        ("%F", "tomorrow", None),
        ("é %Y", 0, "é 1970"),
        ("%A" * 17, 0, None),
    ],
)
def test_a_time_as_text(form, seconds, result):
    assert formatted(form, seconds) == result


@pytest.mark.parametrize(
    ("text", "form", "result"),
    [
        ("1970-01-01T00:00:01.5", "%Y-%m-%dT%H:%M:%S.%f", 1.5),
        ("00:00:01.250 1970-01-01", "%T.%03f %F", 1.25),
        ("1970-01-01 01:00 +0100", "%Y-%m-%d %H:%M %z", 0.0),
        ("1970", "%F", None),
        (None, "%F", None),
        ("9" * 1000, "%Y", None),
    ],
)
def test_a_text_as_time(text, form, result):
    assert read(text, form) == result


@pytest.mark.parametrize("form", ["%Q", "%", "%Y %Y", "%-d", "x" * (FORMAT_CHARS_MAX + 1)])
def test_a_format_that_cannot_be_is_refused(form):
    with pytest.raises(BadFilter):
        DATE_FUNCTIONS["STRPTIME"].prepare(form, 0)


@given(st.integers(0, 253_402_300_799))
def test_what_was_written_is_read_again(seconds):
    form = "%Y-%m-%d %H:%M:%S"
    text = formatted(form, seconds)
    assert len(text) < 19 or read(text, form) == seconds


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("%s", "1704067199"),
        ("%%s %s.%03f", "%s 1704067199.999"),
        ("%C %y", "20 23"),
        ("%G-W%V-%u %g", "2023-W52-7 23"),
        ("%h %r%t%n", "Dec 11:59:59 PM\t\n"),
    ],
)
def test_all_codes_of_c_are_in_utc(form, text, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        compiled = compile_filter(f"STRFTIME('{form}', /a) = /b")
        assert compiled.truth([1704067199.9991, text]) is True
    finally:
        monkeypatch.undo()
        time.tzset()


def test_seconds_before_1970_are_rounded_down():
    assert compile_filter("STRFTIME('%s', /a) = '-1'").truth([-0.5]) is True


@pytest.mark.parametrize("form", ["%s", "%C", "%g", "%k", "%E"])
def test_a_code_that_says_no_moment_cannot_be_read(form):
    with pytest.raises(BadFilter, match=r"cannot be read back|is not known") as error:
        compile_filter(f"STRPTIME(/a, '{form}') = 1")
    assert error.value.expected


@pytest.mark.parametrize("name", ["DATE", "DATE_UTC"])
def test_a_day_begins_at_midnight_in_utc(name):
    compiled = compile_filter(f"{name}(/a) = /b")
    for seconds, day in ((0, 0), (86399, 0), (86400.5, 86400), (-1, -86400), ("90000", 86400)):
        assert compiled.truth([seconds, day]) is True
    for seconds in (None, "x", 1e300, float("nan"), 10**400):
        assert compile_filter(f"{name}(/a) IS NULL").truth([seconds]) is True


def test_the_time_stands_for_a_trait_and_an_offset_for_nothing():
    assert compile_filter("TODAY() = DATE(UNIX_TIMESTAMP())").truth([90_000.5]) is True
    assert compile_filter("TODAY_UTC() = 86400").truth([90_000.5]) is True
    assert compile_filter("TIMEZONEOFFSET() = 0").traits == ()
