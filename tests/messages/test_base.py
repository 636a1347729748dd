"""The promises to a message type, checked of each: nothing is left out, nothing more is offered."""

import inspect
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.paths import parse_path
from sow.errors import BadMessage
from sow.messages import MESSAGE_TYPES, message_type
from sow.messages.base import (
    Decoder,
    MessageType,
    base64_body,
    base64_line,
    bytes_of,
    string_body,
    string_line,
    text_of,
)
from tests.cases import all_cases
from tests.messages.examples import OPTIONS


def promised(protocol):
    return {
        name: list(inspect.signature(found).parameters)[1:]
        for name, found in vars(protocol).items()
        if inspect.isfunction(found) and not name.startswith("_")
    }


@all_cases("name", MESSAGE_TYPES)
def test_a_type_takes_what_is_promised(name):
    found = message_type(name, OPTIONS)
    offered = {
        method: list(inspect.signature(getattr(found, method)).parameters)
        for method in promised(MessageType)
    }
    assert {method: len(names) for method, names in offered.items()} == {
        method: len(names) for method, names in promised(MessageType).items()
    }
    assert isinstance(found.name, str)
    assert isinstance(found.structured, bool)
    assert found.enc in (None, "base64")


@all_cases("name", MESSAGE_TYPES)
def test_its_decoder_reads_the_columns_that_it_was_made_for(name):
    decoder = message_type(name, OPTIONS).decoder((parse_path("/a"), parse_path("/b")))
    assert promised(Decoder).keys() <= {n for n in dir(decoder) if not n.startswith("_")}
    assert decoder.columns([]) == [[], []]
    assert decoder.read([]) == ([], [[], []])


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_comes_back_as_it_was(text):
    line = string_line(text.encode())
    assert json.loads(line) == text
    assert b"\n" not in line
    assert string_body(line) == text.encode()
    assert text_of(bytes_of(text)) == text


@given(st.binary())
def test_bytes_come_back_as_they_were(body):
    line = base64_line(body)
    assert base64_body(line) == body
    assert b"\n" not in line


def test_a_byte_that_is_no_text_is_named():
    with pytest.raises(BadMessage, match="byte 2 is not UTF-8 text"):
        text_of(b"ab\xff")


def test_half_a_surrogate_pair_is_named():
    with pytest.raises(BadMessage, match="character 1 is half a surrogate pair"):
        bytes_of("a\ud800")


@pytest.mark.parametrize("d", [b"1", b"null", b'["a"]', b"{}"])
def test_a_body_must_be_a_string(d):
    for read in (string_body, base64_body):
        with pytest.raises(BadMessage, match="must be a JSON string"):
            read(d)


def test_what_is_no_json_is_refused():
    with pytest.raises(BadMessage, match="not a JSON string"):
        string_body(b'"a')


@pytest.mark.parametrize("text", ["a", "ab-_", "YQ", "YQ==\n", "ä"])
def test_base64_is_written_in_one_way(text):
    with pytest.raises(BadMessage, match="write it with"):
        base64_body(json.dumps(text).encode())
