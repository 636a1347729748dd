"""Times to text and back: fractions, formats of C, and what is no time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import BadFilter
from sow.expressions.date_functions import DATE_FUNCTIONS, FORMAT_CHARS_MAX


def formatted(form, seconds):
    return DATE_FUNCTIONS["STRFTIME"].prepare(form, 0)(seconds)


def read(text, form):
    return DATE_FUNCTIONS["STRPTIME"].prepare(form, 0)(text)


@pytest.mark.parametrize(
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
