"""What columns are is what was held, in whatever order, and only ever widens."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.lossless_numbers import LosslessNumber
from sow.errors import TooLarge
from sow.messages import column_types, message_type
from sow.messages.column_types import (
    ColumnTypes,
    kind_of_text,
    kind_of_value,
    parts,
    pieces,
    type_of,
)
from tests.cases import all_cases

JSON = message_type("json")
CASES = [
    (["1", "2"], "int64"),
    (["1", "0.5", "null"], "float64"),
    (["0.1", "1e22", "123456789.123456"], "float64"),
    (["9007199254740993", "9"], "int64"),
    (["9007199254740993", "0.5"], "json"),
    (["9007199254740992", "0.5"], "float64"),
    (["123456789012345678901", "1"], "json"),
    (["0.12345678901234567890", "1"], "json"),
    (["1e-400", "1.0"], "json"),
    (["1.0"], "float64"),
    (['"x"', '""'], "string"),
    (['"1"', "1"], "json"),
    (["true"], "json"),
    (["[1]"], "json"),
    (["{}"], "json"),
    (["null"], "string"),
    ([], "string"),
]
VALUES = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.text(max_size=3).map(json.dumps),
    st.sampled_from(["true", "null", "[1]", "{}", "0.1234567890123456789", "1e400"]),
)


def heard(*texts, kind=JSON, **more):
    types = ColumnTypes(kind, **more)
    for text in texts:
        types.observe([b'{"f":%b}' % text.encode()])
    return types


@all_cases(("texts", "kind"), CASES)
def test_a_column_has_the_type_that_holds_all_values(texts, kind):
    assert type_of(heard(*texts).kinds.get("f", 0)) == kind


@given(st.lists(VALUES), st.randoms())
def test_the_order_in_which_values_come_means_nothing(texts, random):
    found = type_of(heard(*texts).kinds.get("f", 0))
    random.shuffle(texts)
    assert type_of(heard(*texts).kinds.get("f", 0)) == found
    at_once = ColumnTypes(JSON)
    at_once.observe([b'{"f":%b}' % text.encode() for text in texts])
    assert type_of(at_once.kinds.get("f", 0)) == found


@given(st.lists(VALUES, min_size=1))
def test_a_type_never_narrows(texts):
    types, before = ColumnTypes(JSON), None
    for text in texts:
        types.observe([b'{"f":%b}' % text.encode()])
        now = type_of(types.kinds["f"])
        assert before in (None, now, "string", "int64", "float64")
        if before == "float64":
            assert now in ("float64", "json")
        if before == "json":
            assert now == "json"
        if types.kinds["f"]:
            before = now


@given(VALUES.filter(lambda text: "e4" not in text and "." not in text))
def test_values_are_of_the_kinds_of_their_texts(text):
    assert kind_of_value(json.loads(text)) == kind_of_text(text.encode())


def test_values_that_no_text_is_have_kinds_too():
    assert type_of(kind_of_value(b"x")) == "binary"
    assert type_of(kind_of_value(float("nan"))) == "json"
    assert type_of(kind_of_value(10**5_000)) == "json"
    assert type_of(kind_of_value(b"x") | kind_of_value("x")) == "json"


@pytest.mark.parametrize(
    ("name", "bodies", "kind"),
    [
        ("string", [b"x"], "string"),
        ("int64", [b"7"], "int64"),
        ("double", [b"7"], "float64"),
        ("binary", [b"\xff"], "binary"),
    ],
)
def test_messages_without_fields_have_one_column_whether_there_are_any_or_not(name, bodies, kind):
    types = ColumnTypes(message_type(name))
    assert {name: type_of(kinds) for name, kinds in types.kinds.items()} == {"value": kind}
    types.observe(bodies)
    assert {name: type_of(kinds) for name, kinds in types.kinds.items()} == {"value": kind}


def test_fields_of_fix_are_texts_and_lists_of_them():
    types = ColumnTypes(message_type("fix"))
    types.observe([b"1=a\x012=b\x01", b"2=b\x012=c\x01"])
    assert [type_of(kinds) for kinds in types.kinds.values()] == ["string", "json"]


def test_who_wants_to_know_is_sent_what_has_become_something_else():
    told = []
    types = heard("1", "2", "0.5", "3", widened=told.append)
    types.observe([b'{"f":1,"g":1}', b'{"g":"x"}'])
    assert told == [["f"], ["f"], ["g", "g"]]


def test_what_was_known_before_counts():
    before = heard("1", '"x"').kinds
    assert type_of(ColumnTypes(JSON, before).kinds["f"]) == "json"


def test_more_fields_than_there_may_be_columns_are_said_and_not_kept(monkeypatch):
    monkeypatch.setattr(column_types, "COLUMNS_MAX", 2)
    told = []
    types = ColumnTypes(JSON, widened=told.append)
    types.observe([b'{"a":1,"b":1}'])
    types.check("t")
    types.observe([b'{"c":1}'])
    types.observe([b'{"d":1}'])
    assert told == [["a", "b"], []]
    with pytest.raises(TooLarge, match="different fields"):
        types.check("t")
    with pytest.raises(TooLarge):
        ColumnTypes(JSON, types.kinds, is_full=types.is_full).check("t")
    monkeypatch.setattr(column_types, "NAMES_CHARS_MAX", 10)
    types = ColumnTypes(JSON)
    types.observe([b'{"%b":1}' % (b"x" * 100)])
    assert (types.kinds, types.is_full) == ({}, True)


@pytest.mark.parametrize("text", ["1.10", "0.12345678901234567890", "-0", "1e22", "5.0"])
def test_a_number_with_digits_is_of_the_kind_of_its_text(text):
    assert kind_of_value(LosslessNumber(text)) == kind_of_text(text.encode())


def test_items_come_in_parts(monkeypatch):
    monkeypatch.setattr(column_types, "PART_ROWS", 2)
    assert list(parts(b"abcde")) == [b"ab", b"cd", b"e"]
    assert list(parts([])) == []


def test_bodies_come_in_pieces_of_so_many_bytes_or_one_body(monkeypatch):
    monkeypatch.setattr(column_types, "PART_ROWS", 4)
    monkeypatch.setattr(column_types, "PIECE_BYTES", 5)
    bodies = [b"12", b"345", b"", b"6", b"7890abc", b"d", b"efgh", b"i"]
    assert list(pieces(bodies)) == [
        [b"12", b"345", b""],
        [b"6"],
        [b"7890abc"],
        [b"d", b"efgh"],
        [b"i"],
    ]
    assert list(pieces([])) == []
