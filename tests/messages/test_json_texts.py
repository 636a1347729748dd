"""Fields are read as the texts that stand in the message, with all their digits."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.lossless_numbers import LosslessNumber
from sow.messages.json_texts import FieldTexts, json_text, text_within

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


def test_digits_stay_as_they_were_written():
    bodies = [b'{"a": 1.50 , "b":1e2}', b'{"a":123456789012345678901234567890}', b'{"a":null}']
    assert FieldTexts(["a"])(bodies) == [[b"1.50", b"123456789012345678901234567890", b"null"]]


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
