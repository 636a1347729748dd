from datetime import UTC, datetime
from uuid import UUID

import bson
import pytest
from bson.binary import Binary, UuidRepresentation

from sow.core.delta import merged
from sow.core.paths import parse_path
from sow.errors import BadMessage
from sow.messages import message_type
from sow.messages.bson import VALUES_MAX, check_values
from sow.messages.json import json_text
from tests.cases import all_cases

KIND = message_type("bson")
OID = bson.ObjectId("65f0c0ffee65f0c0ffee65f0")
VALUES = [
    (None, None),
    (True, True),
    (5, 5),
    (2**40, 2**40),
    (bson.Int64(5), 5),
    (1.5, 1.5),
    ("hi", "hi"),
    (b"\x00\xff", "AP8="),
    (Binary(b"\x00\xff", 128), "AP8="),
    (Binary.from_uuid(UUID(int=1), UuidRepresentation.STANDARD), "AAAAAAAAAAAAAAAAAAAAAQ=="),
    (OID, "65f0c0ffee65f0c0ffee65f0"),
    (datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC), 1_700_000_000_123),
    (bson.DatetimeMS(2**62), 2**62),
    (bson.Decimal128("1.10"), "1.10"),
    (bson.Timestamp(1, 2), (1 << 32) + 2),
    (bson.Regex("^a", "i"), "^a"),
    (bson.Code("f()"), "f()"),
    (bson.Code("f()", {"x": 1}), "f()"),
    (bson.MinKey(), "MinKey"),
    (bson.MaxKey(), "MaxKey"),
    ([bson.Int64(1), "x", OID], [1, "x", "65f0c0ffee65f0c0ffee65f0"]),
]


@all_cases(("value", "read"), VALUES)
def test_every_kind_is_read_and_written_back_as_it_was(value, read):
    body = bson.encode({"a": value, "b": {"c": value}, "d": 1})
    ((a,), (c,)) = KIND.decoder((parse_path("/a"), parse_path("/b/c"))).read([body])[1]
    assert (a, c) == (read, read)
    plain = (str, int, float, bool, type(None))
    assert type(a) in plain or all(type(one) in plain for one in a)
    document = KIND.parse(body)
    assert document == {"a": read, "b": {"c": read}, "d": 1}
    assert KIND.encode(merged(document, {"d": 2})) == bson.encode(
        {"a": value, "b": {"c": value}, "d": 2}
    )
    assert json_text(document) == json_text({"a": read, "b": {"c": read}, "d": 1})


def test_a_reference_is_the_object_that_it_is_written_as():
    body = bson.encode({"a": bson.DBRef("orders", OID)})
    assert KIND.parse(body) == {"a": {"$ref": "orders", "$id": str(OID)}}
    assert KIND.encode(KIND.parse(body)) == body


def test_a_decimal_is_compared_as_a_number_and_is_a_key_by_its_digits():
    body = bson.encode({"id": bson.Decimal128("12.50")})
    assert KIND.decoder((parse_path("/id"),)).read([body])[1] == [["12.50"]]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not enough data"),
        (b"\x05\0\0\0\0x", "bad eoo"),
        (b"\xff\xff\xff\x7f\0", "objsize"),
        (bson.encode({"a": "x"}).replace(b"x", b"\xff"), "utf-8"),
    ],
)
def test_broken_input_is_refused_with_the_reason(body, why):
    with pytest.raises(BadMessage, match=why):
        KIND.parse(body)


def nested(levels):
    document = {}
    for _ in range(levels - 1):
        document = {"a": document}
    return document


def test_a_hundred_levels_are_taken_and_written():
    body = bson.encode(nested(100))
    assert KIND.encode(KIND.parse(body)) == body
    with pytest.raises(BadMessage, match="more than 100 levels"):
        KIND.parse(bson.encode(nested(101)))
    lists = {"a": []}
    for _ in range(99):
        lists = {"a": [lists["a"]]}
    with pytest.raises(BadMessage, match="more than 100 levels"):
        KIND.parse(bson.encode(lists))


@pytest.mark.parametrize(
    "document", [[], {"a": 2**63}, {"a": object()}, {1: 2}, {"a\0b": 1}, {"a": "\ud800"}]
)
def test_what_bson_cannot_hold_is_not_written(document):
    with pytest.raises(BadMessage):
        KIND.encode(document)


def listed(kind, value, count, end=b""):
    """A document whose only field is a list of `count` values of a kind, and what `end` holds."""
    values = b"".join(b"%c%d\0" % (kind, at) + value for at in range(count)) + end
    inner = b"\4a\0" + (len(values) + 5).to_bytes(4, "little") + values + b"\0"
    return (len(inner) + 5).to_bytes(4, "little") + inner + b"\0"


@pytest.mark.parametrize(
    ("kind", "value"), [(3, b"\5\0\0\0\0"), (4, b"\5\0\0\0\0"), (255, b""), (11, b"a\0\0")]
)
def test_what_is_too_many_is_refused_before_the_rest_is_made(kind, value):
    """What is wrong at the end is not found any more."""
    decoder, wrong = KIND.decoder(()), b"\x63x\0"
    for count, said in ((100_000, "not a BSON document"), (100_001, "more than 100,000 values")):
        with pytest.raises(BadMessage, match=said):
            decoder.read([listed(kind, value, count, wrong)])
    assert len(KIND.parse(listed(kind, value, 100_001))["a"]) == 100_001


def test_a_message_of_too_many_values_is_refused():
    few = bson.encode({"a": [bson.Decimal128("1")] * 9_000})
    assert KIND.decoder(()).read([few])[0] == [few]
    for values in ([b"x"] * 100_000, [bson.Decimal128("1")] * 10_001):
        body = bson.encode({"a": values})
        with pytest.raises(BadMessage, match="message 0: it has more than 100,000 values"):
            KIND.decoder(()).read([body])
        # What was stored before there was a limit is read as it is.
        assert len(KIND.parse(body)["a"]) == len(values)


@pytest.mark.parametrize(
    "document",
    [
        {"a": [[]] * VALUES_MAX},
        {"a": [{"b": [[]] * 1000}] * 101},
        {"a": {str(at): at for at in range(VALUES_MAX)}},
        {"a": [b""] * VALUES_MAX},
    ],
)
def test_values_that_are_looked_at_one_by_one_are_bounded(document):
    with pytest.raises(BadMessage, match="more than 100,000 values"):
        check_values(document, 1_000_000)


def test_plain_lists_do_not_count():
    check_values({"a": [1, "b", None] * VALUES_MAX}, 1_000_000)
