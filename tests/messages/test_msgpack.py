import base64
import struct
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sow.core.delta import merged
from sow.core.paths import parse_path
from sow.errors import BadMessage
from sow.messages import message_type
from sow.messages.documents import VALUES_MAX
from sow.messages.json import json_text
from sow.messages.msgpack import Extension, extension_bytes, read_map
from tests.cases import all_cases
from tests.effort import examples

KIND = message_type("msgpack")
TIME = b"\xd7\xff" + (999_999_999 << 34 | 1_700_000_000).to_bytes(8, "big")


def columns(body, *paths):
    decoder = KIND.decoder(tuple(map(parse_path, paths)))
    stored, read = decoder.read([body])
    assert stored == [body]
    assert decoder.columns([body]) == read
    for column in read:
        assert all(type(value) in (str, int, float, bool, list, type(None)) for value in column)
    return [column[0] for column in read]


@all_cases(
    ("value", "read", "shown"),
    [
        (b"\xc0", None, b"null"),
        (b"\xc3", True, b"true"),
        (b"\xff", -1, b"-1"),
        (b"\xcf" + b"\xff" * 8, 2**64 - 1, b"18446744073709551615"),
        (b"\xd3\x80" + b"\0" * 7, -(2**63), b"-9223372036854775808"),
        (b"\xca\x3f\x80\0\0", 1.0, b"1.0"),
        (b"\xa2hi", "hi", b'"hi"'),
        (b"\xc4\x02\x00\xff", "AP8=", b'"AP8="'),
        (b"\xc7\x02\x05\x00\xff", "AP8=", b'"AP8="'),
        (TIME, "//9qmWU=", None),
        (b"\x92\x01\xa1x", [1, "x"], b'[1,"x"]'),
    ],
)
def test_every_kind_is_read(value, read, shown):
    body = b"\x81\xa1a" + value
    if shown is None:  # a time: its eight bytes
        shown = json_text(KIND.parse(body))[5:-1]
        read = msgspec.json.decode(shown)
    assert columns(body, "/a") == [read]
    assert json_text(KIND.parse(body)) == b'{"a":%b}' % shown


def test_fields_of_fields_are_read():
    body = msgspec.msgpack.encode({"a": {"b": 1, "c": [{"d": 2}, {"d": 3}]}, "x": "y"})
    assert columns(body, "/a/b", "/a/c/d", "/a/c/d[1]", "/a", "/x") == [1, [2, 3], 3, None, "y"]


OWN_KINDS = [
    b"\xc4\x02\x00\xff",
    b"\xc7\x03\x05\x00\xff\x01",
    b"\xd4\x05\x01",
    TIME,
    b"\xd8\x01" + b"x" * 16,
    b"\xcf" + b"\xff" * 8,
    b"\x91\xd4\x05\x01",
    b"\x81\x05\xc3",
    b"\x81\xc0\xc0",
    b"\x81\xc4\x01x\x01",
]


@all_cases("value", OWN_KINDS)
def test_a_merged_message_keeps_what_the_delta_does_not_name(value):
    body = b"\x82\xa1a" + value + b"\xa1b\x01"
    delta = KIND.parse(b"\x81\xa1b\x02")
    assert KIND.encode(merged(KIND.parse(body), delta)) == b"\x82\xa1a" + value + b"\xa1b\x02"


def test_a_time_of_any_kind_is_kept():
    for moment in (datetime(1970, 1, 1, tzinfo=UTC), datetime(2262, 1, 1, 1, tzinfo=UTC)):
        body = msgspec.msgpack.encode({"a": moment, "b": {"c": 1}})
        assert KIND.encode(KIND.parse(body)) == body


def stamp(seconds, nanoseconds=0):
    return b"\xc7\x0c\xff" + struct.pack(">Iq", nanoseconds, seconds)


BEYOND = [
    stamp(253_402_300_799, 999_999_999),
    stamp(253_402_300_800),
    stamp(-62_135_596_801),
    stamp(2**40),
    stamp(-(2**63)),
    stamp(0, 2**32 - 1),
    b"\xd4\xff\x01",
]
"""The last a second of 9999, beyond the years of Python, and times that are none."""


@pytest.mark.parametrize("time", BEYOND)
def test_times_beyond_the_years_of_python_are_kept_as_any_extension(time):
    data = time[3 if time[0] == 0xC7 else 2 :]
    for value in (time, b"\x92\x01" + time, b"\x81\xa1t" + time):
        body = b"\x82\xa1n\x07\xa1a" + value
        assert KIND.encode(KIND.parse(body)) == body
        assert columns(body, "/n") == [7]
    body = b"\x81\xa1a" + time
    assert KIND.parse(body)["a"] == base64.b64encode(data).decode()
    assert columns(body, "/a") == [base64.b64encode(data).decode()]


def test_a_long_message_with_such_a_time_is_counted():
    plain = b"\xa1a\xdd" + (50_000).to_bytes(4, "big") + b"\xcd\x01\x00" * 50_000
    body = b"\x82" + plain + b"\xa1b" + BEYOND[1]
    assert len(body) > VALUES_MAX
    assert columns(body, "/b") == [base64.b64encode(BEYOND[1][3:]).decode()]
    many = b"\xa1a\xdd" + (200_000).to_bytes(4, "big") + b"\x01" * 200_000
    with pytest.raises(BadMessage, match="values"):
        columns(b"\x82" + many + b"\xa1b" + BEYOND[1], "/b")


def test_keys_that_are_no_text_are_named_by_their_text():
    body = msgspec.msgpack.encode({5: "five", True: "yes", "a": {1.5: 1}})
    assert columns(body, "/5", "/true", "/a/1.5") == ["five", "yes", 1]
    assert KIND.encode(KIND.parse(body)) == body


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\x81\xa1a\xdd\xff\xff\xff\xff", "not a MessagePack map"),
        (b"\x91\x01", "not a MessagePack map"),
        (b"\x80\x80", "trailing"),
        (b"\x81\xa1a" + b"\x91" * 101 + b"\xc0", "nested more than 100 levels"),
        (b"\x81\xa1a" + b"\x81\xa1a" * 101 + b"\xc0", "nested more than 100 levels"),
        (b"\x81\x91\x01\xc0", "a key is a container"),
    ],
)
def test_what_is_no_map_is_refused_with_the_reason(body, why):
    with pytest.raises(BadMessage, match=why):
        KIND.decoder(()).read([body])


def test_a_hundred_levels_are_taken_and_written():
    body = b"\x81\xa1a" * 100 + b"\xc0"
    assert KIND.encode(KIND.parse(body)) == body
    body = b"\x81\xa1a" + b"\x91" * 99 + b"\xc0"
    assert KIND.encode(KIND.parse(body)) == body


@pytest.mark.parametrize("document", [[], {"a": 2**64}, {"a": {1, 2}}, {1: 2}, {"a": "\ud800"}])
def test_what_msgpack_cannot_hold_is_not_written(document):
    with pytest.raises(BadMessage):
        KIND.encode(document)


def test_a_message_of_too_many_values_is_refused():
    kind = message_type("msgpack")
    plain = msgspec.msgpack.encode({"a": list(range(200_000)), "b": {"c": ["x", None, 0.5]}})
    assert kind.decoder(()).read([plain])[0] == [plain]
    assert len(kind.parse(plain)["a"]) == 200_000
    time = msgspec.msgpack.encode(
        {"a": list(range(200_000)), "b": msgspec.msgpack.Ext(-1, b"1234")}
    )
    extensions = msgspec.msgpack.encode({"a": [msgspec.msgpack.Ext(5, b"")] * 100_001})
    maps = msgspec.msgpack.encode({"a": [{"b": {}}] * 60_000})
    mixed = msgspec.msgpack.encode({"a": [1] * 200_000 + [[]]})
    lists = msgspec.msgpack.encode({"a": [[]] * 200_000})
    for body in (time, extensions, lists, maps, mixed):
        with pytest.raises(BadMessage, match="more than 100,000 values"):
            kind.decoder(()).read([body])
        # What was stored before there was a limit is read as it is.
        assert kind.parse(body)["a"]
    for count, why in ((2_000_001, "more than 2,000,000 values"), (5, "not a MessagePack map")):
        body = b"\x81\xa1a\xdd" + count.to_bytes(4, "big") + b"\x80" * 2_000_001
        with pytest.raises(BadMessage, match=why):
            kind.decoder(()).read([body])


atoms = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
    | st.binary(max_size=40)
)
values = st.recursive(
    atoms, lambda v: st.lists(v, max_size=20) | st.dictionaries(st.text("abc"), v, max_size=20)
)


@given(st.dictionaries(st.text("abc"), values, max_size=4))
@examples(15)
@example(dict.fromkeys(map(str, range(20)), 1))
@example(dict.fromkeys(map(str, range(70_000)), 1))
def test_what_is_read_is_what_msgspec_reads(document):
    assert read_map(msgspec.msgpack.encode(document)) == document


@pytest.mark.parametrize("size", [300, 70_000])
def test_long_values_are_read(size):
    document = {"t": "x" * size, "b": b"x" * size, "l": [1] * size, "m": dict.fromkeys(range(size))}
    assert read_map(msgspec.msgpack.encode(document)) == document


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 8, 16, 17, 255, 256, 65_536])
def test_an_extension_is_written_as_msgspec_writes_it(size):
    data = b"x" * size
    written = extension_bytes(Extension(-7, data))
    assert written == msgspec.msgpack.encode(msgspec.msgpack.Ext(-7, data))
    assert read_map(b"\x81\xa1a" + written) == {"a": Extension(-7, data)}


@pytest.mark.parametrize(
    "body", [b"\x91\x01", b"\x81\xa1a\xc1", b"\x81\xa1a\xd9\x05x", b"\x81\xa1a"]
)
def test_what_is_no_map_is_refused(body):
    with pytest.raises((ValueError, IndexError)):
        read_map(body)
