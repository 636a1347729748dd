"""Declared types: which values they hold, exactly, and which names they go by."""

from datetime import UTC, date, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.errors import ClientError
from sow.messages.value_types import (
    FIRST_US,
    LAST_US,
    VALUE_TYPES,
    day_of,
    from_text,
    moment_us,
    value_type,
)
from tests.cases import all_cases

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "fits", "others"),
    [
        ("int64", ["0", "-9223372036854775808"], ["9223372036854775808", "1.0", '"1"', "true"]),
        ("float64", ["1", "0.1", "1e300"], ["9007199254740993", '"1"', "[1]"]),
        ("decimal(4,2)", ["12.34", "12.3400", "7"], ["123.4", "1.234", '"1"']),
        ("decimal(3)", ["123"], ["1234", "0.5"]),
        ("string", ['""', '"1"'], ["1", "true", "{}"]),
        ("bool", ["true", "false"], ["0", '"true"']),
        (
            "timestamp",
            ['"2025-01-31T09:30:00.000001Z"', '"2025-01-31 09:30"', "0", "-1"],
            ['"2025-02-30T00:00:00Z"', '"2025-01-31"', '"now"', "1.5", "9223372036854775807"],
        ),
        ("date", ['"2025-01-31"'], ['"2025-02-30"', '"2025-01-31T00:00"', "20250131"]),
        ("json", ["1", "{}", '"x"', "1e400"], []),
    ],
)
def test_a_type_takes_what_it_holds_and_nothing_else(kind, fits, others):
    judged = value_type(kind).fits
    assert [text for text in fits if not judged(text.encode())] == []
    assert [text for text in others if judged(text.encode())] == []


@pytest.mark.parametrize("name", [*VALUE_TYPES, "decimal(18,4)", "decimal( 5 )"])
def test_a_type_has_one_name(name):
    kind = value_type(name)
    assert value_type(kind.name) == kind
    assert kind.about


@pytest.mark.parametrize(
    ("name", "word"),
    [("int", "int64"), ("decimal(0,0)", "p,s"), ("decimal(39,1)", "38"), ("decimal(2,3)", "p,s")],
)
def test_a_slip_in_a_type_is_sent_what_to_write(name, word):
    with pytest.raises(ClientError, match=word):
        value_type(name)


@given(st.datetimes(timezones=st.just(UTC)), st.integers(-23, 23))
def test_a_moment_is_the_same_in_every_zone(time, hours):
    exact_us = (time - EPOCH) // timedelta(microseconds=1)
    assert moment_us(b"%d" % exact_us) == exact_us
    zone = f"{'-' if hours < 0 else '+'}{abs(hours):02d}:00"
    naive = time.replace(tzinfo=None).isoformat()
    found = moment_us(msgspec.json.encode(naive + zone))
    shifted_us = exact_us - hours * 3_600_000_000
    assert found == (shifted_us if FIRST_US <= shifted_us <= LAST_US else None)
    assert moment_us(msgspec.json.encode(naive + "000Z")) == (
        exact_us if time.microsecond else None
    )


@given(st.dates())
def test_a_day_is_read_back(day):
    assert day_of(msgspec.json.encode(day.isoformat())) == day
    assert day_of(b'"2025-1-1"') is None
    assert day_of(b"1") is None
    assert isinstance(day, date)


@all_cases(
    ("text", "kind", "json_text"),
    [
        ("12", "int64", b"12"),
        ("12", "string", b'"12"'),
        ("12", "json", b'"12"'),
        ("x", "int64", None),
        ("1.50", "decimal(4,2)", b"1.50"),
        ("Y", "bool", b"true"),
        ("maybe", "bool", None),
        ("1738315800000000", "timestamp", b"1738315800000000"),
        ("2025-01-31T09:30:00Z", "timestamp", b'"2025-01-31T09:30:00Z"'),
        ("2025-01-31", "date", b'"2025-01-31"'),
    ],
)
def test_a_bare_text_says_a_value_where_a_type_is_wanted(text, kind, json_text):
    assert from_text(text, value_type(kind)) == json_text
