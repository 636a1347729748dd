"""Fields are read as the texts that stand in the message, with all their digits."""

import json
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.lossless_numbers import LosslessNumber
from sow.messages.json_texts import (
    INT64_MAX,
    INT64_MIN,
    NUMBER_TEXT,
    FieldTexts,
    fits_decimal,
    fits_double,
    fits_int64,
    json_text,
    text_within,
)

NAMES = st.sampled_from(["a", "b", "ä", 'quote"d', "line\nbreak", "f0", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=5,
)


@given(
    st.lists(st.dictionaries(NAMES, VALUES), max_size=4), st.lists(NAMES, unique=True, min_size=1)
)
def test_each_field_has_the_text_of_its_value_or_none(documents, names):
    found = FieldTexts(names)([json.dumps(document).encode() for document in documents])
    for name, texts in zip(names, found, strict=True):
        for document, text in zip(documents, texts, strict=True):
            if name in document:
                assert json.loads(text) == document[name]
            else:
                assert text is None


@given(
    st.lists(st.dictionaries(NAMES, VALUES), max_size=4), st.lists(NAMES, unique=True, min_size=1)
)
def test_documents_have_these_fields_and_no_others(documents, names):
    found = FieldTexts(names).documents([json.dumps(document).encode() for document in documents])
    for document, text in zip(documents, found, strict=True):
        assert json.loads(text) == {name: document[name] for name in names if name in document}


def test_digits_stay_as_they_were_written():
    bodies = [b'{"a": 1.50 , "b":1e2}', b'{"a":123456789012345678901234567890}', b'{"a":null}']
    assert FieldTexts(["a"])(bodies) == [[b"1.50", b"123456789012345678901234567890", b"null"]]
    assert FieldTexts(["a"]).documents(bodies)[0] == b'{"a":1.50}'
    assert FieldTexts([]).documents(bodies)[0] == b"{}"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["b", "c"], b"1.0"),
        (["b"], b'{"c": 1.0}'),
        (["b", "c", "d"], None),
        (["x", "c"], None),
        (["l", "c"], b"[1]"),
    ],
)
def test_what_lies_within_is_found_and_arrays_are_not_looked_into(names, text):
    assert text_within(b'{"b": {"c": 1.0}, "l": [1]}', names) == text


def test_what_is_not_there_has_nothing_within():
    assert text_within(None, ["a"]) is None


def test_numbers_of_documents_keep_their_digits():
    value = {
        "a": [LosslessNumber("1.10"), "ä", None],
        "b": {"c": LosslessNumber("-0"), "d": b"x"},
        "e": 2**70,
    }
    text = b'{"a":[1.10,"\xc3\xa4",null],"b":{"c":-0,"d":"eA=="},"e":1180591620717411303424}'
    assert json_text(value) == text
    assert json_text(LosslessNumber("1.10")) == b"1.10"
    assert json_text({"a": 1.5}) == b'{"a":1.5}'


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


@pytest.mark.parametrize(
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
