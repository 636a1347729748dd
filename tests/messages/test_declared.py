"""Declared fields: a message that does not fit is refused by its index and the field."""

from datetime import UTC, date, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import Declared
from sow.core.paths import parse_path
from sow.errors import BadMessage, ClientError
from sow.messages import message_type
from sow.messages.declared import (
    FIRST_US,
    LAST_US,
    VALUE_TYPES,
    DeclaredFields,
    JudgingDecoder,
    day_of,
    from_text,
    moment_us,
    value_type,
)

SCHEMA = (
    Declared("/id", "int64"),
    Declared("/px", "decimal(6,2)"),
    Declared("/order/at", "timestamp"),
    Declared("/more", "json"),
)


def judging(kind="json", schema=SCHEMA):
    made = message_type(kind)
    paths = (parse_path("/id"),)
    return JudgingDecoder(made.decoder(paths), DeclaredFields(made, schema))


GOOD = [
    b'{"id":1,"px":12.50,"order":{"at":"2025-01-31T09:30:00Z"},"more":[1,{"a":2}]}',
    b'{"id":null}',
    b'{"order":null,"other":"anything"}',
    b'{"order":7}',
    b"{}",
]


def test_what_fits_is_read_as_without_a_schema():
    decoder = judging()
    assert decoder.read(GOOD) == (GOOD, [[1, None, None, None, None]])
    assert decoder.columns(GOOD) == [[1, None, None, None, None]]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"id":1.0}', "/id"),
        (b'{"id":"1"}', "/id"),
        (b'{"id":[1]}', "/id"),
        (b'{"px":12.345}', "/px"),
        (b'{"px":12345.6}', "/px"),
        (b'{"order":{"at":"soon"}}', "/order/at"),
        (b'{"order":[{"at":0}]}', "/order/at"),
        (b'{"order":{"at":{"x":1}}}', "/order/at"),
        (b'{"id":1,"id":"x"}', "/id"),
    ],
)
def test_what_does_not_fit_is_refused_by_index_and_field(body, field):
    with pytest.raises(BadMessage) as caught:
        judging().read([*GOOD, body, b'{"id":"later"}'])
    assert caught.value.fields() == {"index": len(GOOD), "field": field}
    assert field in caught.value.detail
    assert caught.value.moved(3).fields() == {"index": len(GOOD) + 3, "field": field}


def test_what_is_no_message_is_refused_as_such():
    with pytest.raises(BadMessage) as caught:
        judging().read([b'{"id":"x"}', b"["])
    assert caught.value.fields() == {"index": 1}


def test_a_long_value_is_not_repeated():
    with pytest.raises(BadMessage) as caught:
        judging().read([b'{"id":"%s"}' % (b"x" * 1_000_000)])
    assert len(caught.value.detail) < 300


def test_texts_of_fix_are_judged_by_what_they_say():
    schema = (Declared("/1", "int64"), Declared("/2", "bool"), Declared("/3", "string"))
    decoder = judging("fix", schema)
    decoder.read([b"1=12\x012=Y\x013=12\x01", b"3=x\x01"])
    for body, field in ((b"1=x\x01", "/1"), (b"1=1\x011=2\x01", "/1"), (b"2=1\x01", "/2")):
        with pytest.raises(BadMessage) as caught:
            decoder.read([body])
        assert caught.value.field == field


def test_typed_values_of_other_types_are_judged_as_they_are():
    kind = message_type("bflat")
    decoder = judging("bflat", (Declared("/id", "int64"), Declared("/f", "float64")))
    good = kind.encode({"id": 1, "f": 0.5})
    assert decoder.read([good])[0] == [good]
    with pytest.raises(BadMessage) as caught:
        decoder.read([kind.encode({"id": "1"})])
    assert caught.value.field == "/id"


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


@pytest.mark.parametrize(
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
