"""Composites by themselves; what all types promise is in the contract tests."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import MessageTypeOptions, RecordField
from sow.core.delta import merged
from sow.core.paths import parse_path, value_at
from sow.errors import BadMessage, ConfigError
from sow.messages import message_type
from sow.messages.composite import CompositeLocal, gathered, missing
from tests.cases import all_cases

JSON = MessageTypeOptions("json", "json")
FIX = MessageTypeOptions("fix", "fix")
BYTES = MessageTypeOptions("binary", "binary")
TRADES = MessageTypeOptions(
    "trades", "record", b"\x02", (RecordField("id", "int"), RecordField("px", "decimal"))
)


def kind_of(module, *parts, name="mine"):
    options = MessageTypeOptions(name, module, parts=parts)
    return message_type(name, {name: options})


LOCAL = kind_of("composite-local", JSON, TRADES, BYTES)
GLOBAL = kind_of("composite-global", JSON, FIX, TRADES)
INNER = MessageTypeOptions("inner", "composite-local", parts=(JSON, TRADES))
NESTED = kind_of("composite-local", INNER, FIX)


def body(*parts, tail=b""):
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts) + tail


parts = st.tuples(
    st.sampled_from([b"", b'{"id":1}', b'{"id":"a","a":{"b":[1,2]}}', b'{\n"id":3}']),
    st.sampled_from([b"", b"1", b"1\x021.10", b"\x022"]),
    st.binary(max_size=3),
)
PATHS = tuple(
    map(
        parse_path,
        ("/0/id", "/0/a/b", "/0/a/b[1]", "/1/px", "/1/id", "/0", "/1", "/2", "/3", "/4", "/id",
         "/2/x", "/2[0]", "/1/px[1]"),
    )
)  # fmt: skip


@given(st.lists(st.tuples(parts, st.binary(max_size=3)), max_size=4))
def test_columns_are_what_the_parsed_messages_have(many):
    bodies = [body(*three, tail=tail) for three, tail in many]
    decoder = LOCAL.decoder(PATHS)
    stored, columns = decoder.read(bodies)
    documents = list(map(LOCAL.parse, stored))
    assert columns == [[value_at(document, path) for document in documents] for path in PATHS]
    assert decoder.columns(stored) == columns
    assert stored == [one.replace(b"\x00\x09{\n", b"\x00\x08{") for one in bodies]


@given(parts, st.binary(max_size=3))
def test_a_local_message_is_written_as_it_was_read(three, tail):
    (stored,), _ = LOCAL.decoder(()).read([body(*three, tail=tail)])
    assert LOCAL.encode(LOCAL.parse(stored)) == stored


def test_fields_stand_below_the_number_of_their_part():
    document = LOCAL.parse(body(b'{"id":1}', b"7\x021.5", b"\x00\xff", tail=b"hi"))
    assert document == {"0": {"id": 1}, "1": {"id": 7, "px": 1.5}, "2": "AP8=", "3": "aGk="}
    inner = body(b'{"id":1}', b"7")
    assert NESTED.parse(body(inner, b"8=x\x01")) == {
        "0": {"0": {"id": 1}, "1": {"id": 7}},
        "1": {"8": "x"},
    }
    path = parse_path("/0/1/id")
    assert NESTED.decoder((path,)).columns([body(inner, b"")]) == [[7]]


def test_parts_of_a_delta_that_are_empty_change_nothing():
    before = LOCAL.parse(body(b'{"id":1,"a":1}', b"7\x021.10", b"x", tail=b"old"))
    delta = LOCAL.parse(body(b'{"a":2}', b"", b"", tail=b""))
    assert LOCAL.encode(merged(before, delta)) == body(
        b'{"id":1,"a":2}', b"7\x021.10", b"x", tail=b"old"
    )
    tail = LOCAL.parse(body(b"", b"8", b"yy", tail=b"new"))
    assert LOCAL.encode(merged(before, tail)) == body(
        b'{"id":1,"a":1}', b"8\x021.10", b"yy", tail=b"new"
    )


def test_a_part_is_stored_as_its_type_stores_it():
    kind = kind_of("composite-global", JSON, FIX)
    (stored,), _ = kind.decoder(()).read([body(b'{"a":\n1}', b"8=x")])
    assert stored == body(b'{"a":1}', b"8=x\x01")


def test_the_fields_of_a_global_message_are_those_of_all_parts():
    one = body(b'{"id":1,"o":{"x":1},"l":[1]}', b"55=A\x01id=2\x01", b"3\x021.10")
    assert GLOBAL.parse(one) == {"id": [1, "2", 3], "o": {"x": 1}, "l": [1], "55": "A", "px": 1.1}
    paths = tuple(map(parse_path, ("/id", "/id[1]", "/o/x", "/55", "/0/id")))
    stored, columns = GLOBAL.decoder(paths).read([one, body(b"", b"", b"9")])
    assert columns == [[[1, "2", 3], 9], ["2", None], [1, None], ["A", None], [None, None]]
    assert GLOBAL.decoder(paths).columns(stored) == columns


def test_values_that_meet_become_one_list_and_objects_one_object():
    assert gathered([{"a": 1}, {"a": [2, 3]}, {"a": None}]) == {"a": [1, 2, 3, None]}
    assert gathered([{"a": {"b": 1}}, {"a": {"b": 2, "c": 3}}]) == {"a": {"b": [1, 2], "c": 3}}
    assert gathered([{"a": {"b": 1}}, {"a": 2}]) == {"a": [{"b": 1}, 2]}
    assert gathered([]) == {}


def test_what_the_server_writes_stands_in_the_first_part_that_can_hold_it():
    assert GLOBAL.encode({"id": [1, 2]}) == body(b'{"id":[1,2]}', b"", b"")
    kind = kind_of("composite-global", BYTES, TRADES, JSON)
    assert kind.encode({"id": 1}) == body(b"", b"1", b"")
    assert kind.encode({"x": 1}) == body(b"", b"", b'{"x":1}')
    with pytest.raises(BadMessage, match="no part of a mine message can hold"):
        kind_of("composite-global", TRADES).encode({"x": 1})


GOOD = body(b'{"id":1}', b"1", b"")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (b"", "the length of part 0 should be in 4 bytes at byte 0"),
        (b"\x00\x00", "the length of part 0 should be"),
        (b"\x00\x00\x00\x09{}", "part 0 should have 9 bytes from byte 4 on, and 2 follow"),
        (b"\xff\xff\xff\xff", "part 0 should have 4294967295 bytes"),
        (body(b'{"id":1}'), "the length of part 1 should be in 4 bytes at byte 12"),
        (body(b'{"id":}', b"1", b""), "part 0 is not a JSON object"),
        (body(b'{"id":1}', b"x", b""), "part 1: id is 'x'"),
        (
            body(b'{"a":' + b"[" * 300 + b"]" * 300 + b"}", b"", b""),
            "part 0 is nested more than 250",
        ),
    ],
)
def test_a_bad_part_is_named(bad, says):
    with pytest.raises(BadMessage) as caught:
        LOCAL.decoder(PATHS).read([GOOD, GOOD, bad, body(b"", b"y", b"")])
    assert caught.value.index == 2
    assert caught.value.detail.startswith("message 2: ")
    assert says in caught.value.detail
    assert len(caught.value.detail) < 400


def test_the_first_bad_message_is_named_whichever_part_is_bad():
    late, early = body(b"[]", b"", b""), body(b"", b"x", b"")
    with pytest.raises(BadMessage, match="message 1: part 1") as caught:
        LOCAL.decoder(()).read([body(b"", b"", b""), early, late, b""])
    assert caught.value.index == 1
    absent = body(b"", b"1", b"")
    with pytest.raises(BadMessage, match="message 3: part 0") as caught:
        LOCAL.decoder(()).read([absent, absent, GOOD, late])
    assert caught.value.index == 3


def test_nothing_may_follow_the_last_part_of_a_global_message():
    with pytest.raises(BadMessage, match="2 bytes follow the last part, 2, at byte 12"):
        GLOBAL.parse(body(b"", b"", b"", tail=b"hi"))


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "must be an object of parts"),
        ({"id": 1}, "have no part 'id'; their parts are 0 to 2"),
        ({"0": 5}, "part 0: a JSON message must be an object"),
        ({"1": {"x": 1}}, "part 1: messages of type trades have no field 'x'"),
        ({"2": "?"}, "part 2: bytes are written as base64"),
        ({"2": 5}, "part 2: bytes are written as base64"),
        ({"3": [1]}, "bytes are written as base64"),
    ],
)
def test_what_no_part_can_hold_is_not_written(document, says):
    with pytest.raises(BadMessage) as caught:
        LOCAL.encode(document)
    assert says in caught.value.detail


def test_a_line_holds_it_as_base64():
    assert orjson.loads(LOCAL.to_line(GOOD))
    assert LOCAL.from_line(LOCAL.to_line(GOOD)) == GOOD


@all_cases(
    ("kind", "path", "says"),
    [
        (LOCAL, "/0/any/thing", ""),
        (LOCAL, "/1/px", ""),
        (LOCAL, "/1/qty", "messages of type trades have no field '/qty'"),
        (LOCAL, "/id", "messages of type mine have no part at '/id'; write /0/id"),
        (LOCAL, "/3", ""),
        (LOCAL, "/4", "no part at '/4'"),
        (NESTED, "/0/1/id", ""),
        (NESTED, "/0/1/x", "messages of type trades have no field '/x'"),
        (GLOBAL, "/any", ""),
        (kind_of("composite-global", TRADES), "/x", "have no field '/x'"),
        (kind_of("composite-global", TRADES), "/id", ""),
        (message_type("json"), "/x", ""),
    ],
)
def test_a_path_that_leads_nowhere_is_known(kind, path, says):
    why = missing(kind, parse_path(path))
    assert says in why
    assert bool(says) == bool(why)


def test_a_composite_has_parts():
    with pytest.raises(ConfigError, match="a composite has no part"):
        CompositeLocal(MessageTypeOptions("x", "composite-local"), [])
