"""Values as values of Arrow types: exact, or none."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.lossless_numbers import LosslessNumber
from sow.spark.arrow_cast import ArrowCast, Number, document_of, json_text
from tests.cases import all_cases

DECIMAL = pa.decimal128(20, 2)


def fitted(text, kind, **how):
    """The value of `{"v": text}` as one of an Arrow type."""
    return ArrowCast(**how).fit(document_of(f'{{"v":{text}}}').get("v"), kind)


@all_cases(
    ("text", "kind", "value"),
    [
        ("5", pa.int64(), 5),
        ("5.0", pa.int64(), None),
        ("9223372036854775807", pa.int64(), 2**63 - 1),
        ("9223372036854775808", pa.int64(), None),
        ("-129", pa.int8(), None),
        ("-128", pa.int8(), -128),
        ("true", pa.int64(), None),
        ("true", pa.bool_(), True),
        ("1", pa.bool_(), None),
        ('"5"', pa.int64(), None),
        ("0.10", DECIMAL, Decimal("0.10")),
        ("12345678901234567.89", DECIMAL, Decimal("12345678901234567.89")),
        ("0.123", DECIMAL, None),
        ("1.50", pa.string(), "1.50"),
        ('"a"', pa.string(), "a"),
        ('{"b":1.0}', pa.string(), '{"b":1.0}'),
        ('"aGk="', pa.binary(), b"hi"),
        ('"hi!"', pa.binary(), None),
        ('"2026-01-02"', pa.date32(), date(2026, 1, 2)),
        ('"2026-01-02T03:04:05Z"', pa.timestamp("us"), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ('"tomorrow"', pa.date32(), None),
        ("5", pa.list_(pa.int64()), None),
        ('[1,"x"]', pa.list_(pa.int64()), [1, None]),
        ('{"7":1}', pa.map_(pa.int64(), pa.int64()), [(7, 1)]),
        ('{"x":1}', pa.map_(pa.int64(), pa.int64()), None),
        ('{"a":1}', pa.struct([("a", pa.int64()), ("b", pa.string())]), {"a": 1, "b": None}),
        ("5", pa.struct([("a", pa.int64())]), None),
        ("null", pa.int64(), None),
    ],
)
def test_a_value_fits_or_is_none(text, kind, value):
    assert fitted(text, kind) == value


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ('"5"', pa.int64(), 5),
        ('"true"', pa.bool_(), True),
        ('"5"', pa.list_(pa.int64()), [5]),
        ('"hi"', pa.binary(), b"hi"),
        ('"x"', pa.int64(), None),
    ],
)
def test_of_messages_that_have_only_texts_a_text_may_be_a_number(text, kind, value):
    assert fitted(text, kind, from_texts=True) == value


@pytest.mark.parametrize("text", ["[1]", "{", '{"a":NaN}', "5", '{"a":' * 100_000])
def test_what_is_no_document_has_no_fields(text):
    assert document_of(text) == {}


@given(st.integers())
def test_whole_numbers_are_kept_as_they_are_or_not_at_all(number):
    found = fitted(str(number), pa.int64())
    assert found == (number if -(2**63) <= number < 2**63 else None)


def test_json_shows_numbers_as_they_were_written():
    assert json_text({"a": [Number("1.50"), "ä", None, True]}) == '{"a":[1.50,"ä",null,true]}'


def test_a_number_of_a_message_keeps_its_digits():
    value = LosslessNumber("0.12345678901234567890")
    fit = ArrowCast().fit
    assert fit(value, pa.decimal128(38, 20)) == Decimal(value.text)
    assert fit(value, pa.string()) == value.text
    assert fit(value, pa.float64()) == float(value)
    assert json_text([value, 1.5]) == "[0.12345678901234567890,1.5]"
