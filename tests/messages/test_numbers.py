"""Which types hold a number, judged by its text."""

import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.messages.numbers import (
    INT64_MAX,
    INT64_MIN,
    NUMBER_TEXT,
    fits_decimal,
    fits_double,
    fits_int64,
)
from tests.cases import all_cases

NUMBERS = st.from_regex(NUMBER_TEXT.pattern.decode().replace(r"\Z", ""), fullmatch=True)


@given(st.integers(-(2**70), 2**70))
def test_a_whole_number_fits_if_it_has_64_bits(number):
    assert fits_int64(b"%d" % number) == (INT64_MIN <= number <= INT64_MAX)


@pytest.mark.parametrize("text", [b"1.0", b"1e3", b'"1"', b"true", b"", b"-", b"01", b"1" * 9_999])
def test_what_has_a_fraction_or_is_no_number_is_no_whole_one(text):
    assert not fits_int64(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_fits_as_its_shortest_text_and_as_all_of_its_digits(number):
    assert fits_double(repr(number).encode())
    assert fits_double(str(Decimal(number)).encode())


@given(NUMBERS)
def test_what_fits_a_double_comes_back_from_it(text):
    if fits_double(text.encode()):
        double = float(text)
        assert struct.unpack("d", struct.pack("d", double))[0] == double
        assert Decimal(text) in (Decimal(double), Decimal(repr(double)))


@pytest.mark.parametrize("text", [b"9007199254740993", b"0.1234567890123456789", b"1e-400"])
def test_what_is_only_near_a_double_does_not_fit(text):
    assert not fits_double(text)


@all_cases(
    ("text", "fits"),
    [
        (b"0", True),
        (b"0.000", True),
        (b"123.45", True),
        (b"-123.4500", True),
        (b"1.2345e2", True),
        (b"12e1", True),
        (b"999.99", True),
        (b"1000", False),
        (b"0.001", False),
        (b"1e3", False),
        (b"1e-3", False),
        (b"1e99999999999999999999", False),
    ],
)
def test_a_decimal_has_so_many_digits_before_and_behind_the_point(text, fits):
    assert fits_decimal(text, 5, 2) == fits
