"""Values as values of Arrow types: exact, or none."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.lossless_numbers import LosslessNumber
from sow.spark.arrow_cast import (
    ArrowCast,
    Number,
    document_of,
    is_variant,
    json_text,
    value_of,
    variant_of,
)
from tests.cases import all_cases

DECIMAL = pa.decimal128(20, 2)
LONG = "12345678901234567890123456789012345.678"
"""All the digits that a variant's decimal has."""


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
        ('{"7":1,"07":2}', pa.map_(pa.int64(), pa.int64()), None),
        ('{"2026-01-02":1}', pa.map_(pa.date32(), pa.int64()), [(date(2026, 1, 2), 1)]),
        ('{"2026-01-02":1,"20260102":2}', pa.map_(pa.date32(), pa.int64()), None),
        ('{"2026-01-02":1,"x":2}', pa.map_(pa.date32(), pa.int64()), None),
        (
            '{"2026-01-02T03:04:05Z":1}',
            pa.map_(pa.timestamp("us", tz="UTC"), pa.int64()),
            [(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), 1)],
        ),
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


# Variants.

VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]
)


def through_a_variant(text):
    """The value of a JSON text that a variant holds, None for one that it does not."""
    pytest.importorskip("pyspark")
    made = fitted(text, VARIANT)
    return None if made is None else value_of(made)


@all_cases(
    ("text", "value"),
    [
        ("true", True),
        ('""', ""),
        ("-129", -129),
        ("9223372036854775808", Decimal(2**63)),
        ("1.50", Decimal("1.50")),
        (LONG, Decimal(LONG)),
        ("1e3", 1000.0),
        ("1e41", 1e41),
        ("1.234567890123456789E-10", Decimal("1.234567890123456789E-10")),
        ('{"b":[1,null,{}],"a":"\\u00fc"}', {"a": "ü", "b": [1, None, {}]}),
        ("[[[]]]", [[[]]]),
        ("null", None),
        # What it would round is null, and so is what it cannot hold.
        ("[1e400,1.23456789012345678901234567890123456789012345]", [None, None]),
        ("1e99999999999999999999", None),
        ('"\\ud800"', None),
        ('{"\\ud800":1}', None),
    ],
)  # fmt: skip
def test_a_variant_holds_a_value_exactly_or_null_in_its_place(text, value):
    found = through_a_variant(text)
    assert found == value
    assert type(found) is type(value)
    assert str(found) == str(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.text() | st.integers(-(10**38) + 1, 10**38 - 1)
    | st.decimals(-(10**20), 10**20, places=6).map(lambda value: value + 0),  # no -0.000000
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(JSON.filter(lambda value: value is not None))
def test_a_value_comes_out_of_a_variant_as_it_was_written(value):
    text = json_text(numbers_as_written(value))
    assert json_text(numbers_as_written(through_a_variant(text))) == text


def numbers_as_written(value):
    """The value with numbers of Python's as their texts."""
    if isinstance(value, list):
        return [numbers_as_written(one) for one in value]
    if isinstance(value, dict):
        # Spark sorts names.
        return {name: numbers_as_written(value[name]) for name in sorted(value)}
    return Number(format(value, "f")) if isinstance(value, Decimal) else value


def test_numbers_of_other_messages_are_in_variants_too():
    pytest.importorskip("pyspark")
    made = variant_of({"f": 0.1, "nan": float("nan"), "l": LosslessNumber("1.50"), "raw": b"hi"})
    found = value_of(made)
    assert (found["f"], found["l"], found["raw"]) == (Decimal("0.1"), Decimal("1.50"), "aGk=")
    assert found["nan"] != found["nan"]
    assert ArrowCast(from_texts=True).fit("5", VARIANT) == variant_of("5")


def test_a_variant_is_known_by_the_mark_of_its_names():
    assert is_variant(VARIANT)
    alike = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    assert not is_variant(alike)
    assert not is_variant(pa.binary())


def test_what_python_has_no_value_for_is_a_value_error():
    pytest.importorskip("pyspark")
    far = b"\x30" + (2**62).to_bytes(8, "little")  # a timestamp of the year 148,000
    for broken in (b"", b"\xfc", far):
        with pytest.raises(ValueError, match=r"\w"):
            value_of({"value": broken, "metadata": b"\x01\x00\x00"})
