import struct

import pytest

from sow.errors import BadMessage
from sow.messages import message_type
from tests.cases import all_cases

BFLAT = message_type("bflat")


def refused(body):
    with pytest.raises(BadMessage) as caught:
        BFLAT.parse(body)
    return caught.value.detail


@all_cases(
    ("body", "value"),
    [
        (b"\x01a", None),
        (b"\x09a\x02hi", "hi"),
        (b"\x11a\x02\x00\xff", "AP8="),
        (b"\x19a\xfe", -2),
        (b"\x21a\xfe\xff", -2),
        (b"\x29a\xfe\xff\xff\xff", -2),
        (b"\x31a" + b"\xff" * 8, -1),
        (b"\x39a\xae\x47\xe1\x7a\x14\xae\xf3\xbf", -1.23),
        (b"\x41a" + struct.pack("<q", 1700000000000), 1700000000000),
        (b"\x49a\x7e", -2),
        (b"\x49a\x80\x01", 128),
        (b"\x99a\x03\x01\x02\x03", [1, 2, 3]),
        (b"\x89a\x02\x01x\x00", ["x", ""]),
        (b"\x81a\x00", []),
        (b"\x19a\x01\x19a\x02", [1, 2]),
    ],
)
def test_every_type_is_read(body, value):
    assert BFLAT.parse(body) == {"a": value}


def test_a_long_tag_has_its_length_before_it():
    assert BFLAT.parse(b"\x18\x08quantity\x05") == {"quantity": 5}


@all_cases(
    ("value", "body"),
    [
        (None, b"\x01a"),
        ("hi", b"\x09a\x02hi"),
        (True, b"\x19a\x01"),
        (127, b"\x19a\x7f"),
        (-128, b"\x19a\x80"),
        (128, b"\x21a\x80\x00"),
        (-2, b"\x19a\xfe"),
        (2**20 - 1, b"\x49a\xff\xff\x3f"),
        (2**30, b"\x29a\x00\x00\x00\x40"),
        (2**63 - 1, b"\x31a" + b"\xff" * 7 + b"\x7f"),
        (-1.23, b"\x39a\xae\x47\xe1\x7a\x14\xae\xf3\xbf"),
        ([200, 300], b"\xa1a\x02\xc8\x00\x2c\x01"),
        ([1, 300], b"\xc9a\x02\x01\xac\x02"),
        ([1, "x"], b"\x19a\x01\x09a\x01x"),
    ],
)
def test_values_are_written_most_compactly(value, body):
    assert BFLAT.encode({"a": value}) == body
    assert BFLAT.parse(body) == {"a": value}


@pytest.mark.parametrize("value", [2**127 - 1, -(2**127), 2**64, -(2**63) - 1])
def test_integers_go_up_to_128_bits(value):
    assert BFLAT.parse(BFLAT.encode({"a": value})) == {"a": value}


def test_a_binary_value_is_written_back_as_binary():
    body = b"\x11a\x02\x00\xff" + b"\x91b\x02\x01x\x01y"
    assert BFLAT.encode(BFLAT.parse(body)) == body


@all_cases(
    ("body", "why"),
    [
        (b"\x19", "1 bytes should follow and 0 do"),
        (b"\x19a", "1 bytes should follow"),
        (b"\x09a\x05hi", "5 bytes should follow and 2 do"),
        (b"\x51a", "unknown type 10"),
        (b"\x18\x00", "a tag is empty"),
        (b"\x09a\x01\xff", "not UTF-8"),
        (b"\x09a" + b"\x80" * 11, "more than 10 bytes"),
        (b"\x49a" + b"\x80" * 20, "more than 19 bytes"),
        (b"\x49a" + b"\xff" * 18 + b"\x3f", "more than 128 bits"),
        (b"\x81a\xff\xff\xff\xff\x0f", "more elements than the message has bytes"),
        (b"\x99a\x7f\x01", "more elements than the message has bytes"),
    ],
)
def test_broken_input_is_refused_with_a_reason(body, why):
    assert why in refused(body)


def test_arrays_of_nulls_cannot_blow_up_a_small_message():
    assert "more elements" in refused(b"\x81a\x09" * 2 + b"\x81a\x09")


@pytest.mark.parametrize(
    "document", [[], {"": 1}, {"a": {}}, {"a": [[1]]}, {"a": [1, []]}, {"a": 2**127}, {1: 2}]
)
def test_what_has_no_place_in_a_field_is_not_written(document):
    with pytest.raises(BadMessage):
        BFLAT.encode(document)
