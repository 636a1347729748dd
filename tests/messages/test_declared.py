"""Declared fields: a message that does not fit is refused by its index and the field."""

import pytest

from sow.core.definitions import Declared
from sow.core.paths import parse_path
from sow.errors import BadMessage
from sow.messages import message_type
from sow.messages.declared import DeclaredFields, JudgingDecoder

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
