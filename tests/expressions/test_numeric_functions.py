"""Functions of numbers at their edges: no result, infinities, and numbers that are none.

Times to text and back: fractions, formats of C, and what is no time.
"""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import BadFilter
from sow.expressions import compile_filter
from sow.expressions.numeric_functions import (
    ARRAY_FUNCTIONS,
    DATE_FUNCTIONS,
    FORMAT_CHARS_MAX,
    NUMERIC_FUNCTIONS,
)
from tests.cases import all_cases


@all_cases(
    ("name", "arguments", "result"),
    [
        ("ABS", ("-3",), 3),
        ("ABS", ("x",), None),
        ("ROUND", (25, -1), 20),
        ("ROUND", (7, 2), 7),
        ("ROUND", (2.5, 10**9), 2.5),
        ("ROUND", (math.inf,), math.inf),
        ("CEILING", (math.inf,), math.inf),
        ("FLOOR", (10**400,), 10**400),
        ("CEILING", ("-" + "9" * 400,), 1 - 10**400),
        ("SQRT", (-1,), None),
        ("POWER", (0, -1), None),
        ("POWER", (10, 400), None),
        ("EXP", (1000,), None),
        ("GREATEST", (None, "a"), None),
        ("GREATEST", (math.nan, 1), 1),
        ("GREATEST", (1, math.nan), 1),
        ("LEAST", (math.nan,), None),
        ("LEAST", ("10", 9), 9),
        ("WIDTH_BUCKET", (-1, 0, 10, 5), 0),
        ("WIDTH_BUCKET", (10, 0, 10, 5), 6),
        ("WIDTH_BUCKET", (3, 10, 0, 5), 4),
        ("WIDTH_BUCKET", (3, 1, 1, 5), None),
        ("WIDTH_BUCKET", (3, 1, 2, math.inf), None),
        ("SIGN", (0,), 0),
    ],
)
def test_edges(name, arguments, result):
    assert NUMERIC_FUNCTIONS[name].run(*arguments) == result


@pytest.mark.parametrize("name", ["LOG", "LOG2", "LOG10"])
def test_there_is_no_logarithm_of_nothing_or_less(name):
    run = NUMERIC_FUNCTIONS[name].run
    assert math.isnan(run(0))
    assert math.isnan(run(-1.5))
    assert run(1) == 0


def test_a_degree_along_a_meridian_is_some_111_km():
    distance = NUMERIC_FUNCTIONS["GEO_DISTANCE"].run
    assert distance(60, 25, 61, 25) == pytest.approx(111_195, abs=1)
    assert distance(0, 0, 0, 180) == pytest.approx(math.pi * 6_371_008.8)
    assert distance(math.inf, 0, 0, 0) is None


@all_cases(
    ("name", "value", "result"),
    [
        ("ARRAY_COUNT", None, 0),
        ("ARRAY_COUNT", 5, 1),
        ("ARRAY_COUNT", [None, "", 1], 1),
        ("ARRAY_MAX", [2, "10", 3.5], "10"),
        ("ARRAY_MAX", [2, "ten"], "ten"),
        ("ARRAY_MAX", [math.nan, 1], 1),
        ("ARRAY_MAX", [], None),
        ("ARRAY_MIN", [2, "10", None], 2),
        ("ARRAY_MIN", "x", "x"),
        ("ARRAY_SUM", [], 0),
        ("ARRAY_SUM", [1, "2", "x", None], 3),
        ("ARRAY_SUM", [10**400, 0.5], math.inf),
        ("ARRAY_SUM", [-(10**400), 0.5], -math.inf),
    ],
)
def test_a_list_gives(name, value, result):
    assert ARRAY_FUNCTIONS[name].run(value) == result


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
