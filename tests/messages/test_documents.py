"""The plain decoder: columns of whole documents, and the first bad one named by its place.

One walk for all formats: what is of their own is shown, and written back as what it was.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import MessageTypeOptions
from sow.core.paths import Path, parse_path, value_at
from sow.errors import BadMessage, LargeMessage
from sow.messages import documents as module
from sow.messages import message_type
from sow.messages.documents import (
    LEVELS_MAX,
    NESTING_MAX,
    Base64,
    BinaryTypes,
    DocumentColumns,
    TextType,
    TypedInt,
    TypedText,
    bare,
    document_columns,
    plain,
)
from sow.messages.json import json_text
from tests.cases import all_cases


class Jsonish(TextType):
    """The least that a type has."""

    def parse(self, body):
        try:
            return json.loads(body)
        except ValueError:
            raise BadMessage("not JSON") from None

    def encode(self, document):
        return json.dumps(document).encode()


class Trimmed(Jsonish):
    def stored(self, bodies):
        return [body.strip() for body in bodies]


def decoder(*texts, kind=Jsonish):
    return kind(MessageTypeOptions("a", "a")).decoder(tuple(map(parse_path, texts)))


def test_columns_stand_in_the_order_of_the_paths():
    found = decoder("/b", "/a/c").columns([b'{"a":{"c":1},"b":2}', b'{"b":[3,4]}'])
    assert found == [[2, [3, 4]], [1, None]]


def test_what_is_kept_may_be_another_body_than_came():
    bodies, columns = decoder("/a", kind=Trimmed).read([b' {"a":1} ', b'{"a":2}'])
    assert bodies == [b'{"a":1}', b'{"a":2}']
    assert columns == [[1, 2]]


def test_the_first_bad_message_is_named_by_its_place():
    with pytest.raises(BadMessage, match=r"^message 1: not JSON$") as caught:
        decoder("/a").read([b"{}", b"{", b"["])
    assert caught.value.index == 1


def test_no_path_is_required():
    assert decoder().read([b"{}"]) == ([b"{}"], [])


names = st.sampled_from(["a", "b", "c"])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.just("") | st.binary()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
documents = st.lists(st.dictionaries(names, values, max_size=3), max_size=4)
paths = st.lists(
    st.builds(
        Path, st.lists(names, min_size=1, max_size=3).map(tuple), st.none() | st.integers(0, 2)
    ),
    max_size=8,
)


@given(paths, documents)
def test_what_is_read_is_what_looking_finds(wanted, batch):
    looked_up = [[value_at(document, path) for document in batch] for path in wanted]
    assert repr(DocumentColumns(wanted)(batch)) == repr(looked_up)


@given(paths, documents)
def test_a_tree_that_has_grown_reads_as_one_that_was_made_at_once(wanted, batch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SHARED_PATHS", 2)
        module._tree.cache_clear()
        for count in range(len(wanted) + 1):
            some = tuple(wanted[:count])
            assert repr(document_columns(some)(batch)) == repr(DocumentColumns(some)(batch))
    module._tree.cache_clear()


def test_a_path_may_have_more_names_than_the_stack_has_room():
    document, deep = {"a": "found"}, Path(("a",) * 5000)
    for _ in range(2 * LEVELS_MAX - 1):
        document = {"a": document}
    wanted = [Path(("a",) * 2 * LEVELS_MAX), deep]
    assert DocumentColumns(wanted)([document, {}]) == [["found", None], [None, None]]


def test_columns_hold_plain_values():
    document = {"a": TypedInt(1, "x"), "b": [TypedText("t", 1), 2], "c": {"d": Base64("AA==")}}
    wanted = list(map(parse_path, ("/a", "/b", "/c/d", "/e")))
    ((a,), (b,), (d,), (none,)) = DocumentColumns(wanted)([document])
    assert (a, b, d, none) == (1, ["t", 2], "AA==", None)
    assert [type(a), *map(type, b), type(d)] == [int, str, int, str]


def test_names_that_no_document_has_are_not_looked_for():
    class Counting(dict):
        requested = 0

        def get(self, name, default=None):
            Counting.requested += 1
            return super().get(name, default)

    wanted = [parse_path(f"/p{number}") for number in range(1000)]
    columns = DocumentColumns(wanted)([Counting(p7=1, other=2)])
    assert (columns[7], columns[8], Counting.requested) == ([1], [None], 1)


PLAIN = {"a": [1, "x", None, {"b": 0.5}], "c": True}


class Complex(BinaryTypes):
    """A format with complex numbers, and keys that are numbers."""

    def shown(self, value, _level):
        return TypedText(str(value), value)

    def named(self, key):
        return TypedText(str(key), key)

    def remembered(self, value):
        return value.original

    def key(self, name):
        return name.original if isinstance(name, TypedText) else super().key(name)


def nested(levels, value=None):
    for _ in range(levels):
        value = {"a": value} if levels % 2 else [value]
    return {"a": value}


def test_plain_values_stay_as_they_are():
    found = {"a": [1, "x", None, {"b": 0.5}], "c": True}
    assert BinaryTypes().document(found) is found
    assert BinaryTypes().message(found) == found == PLAIN


def test_what_is_the_formats_own_comes_back_as_what_it_was():
    kinds, found = Complex(), {"a": [1j, {"b": 2j}], 7: 3j}
    document = kinds.document(found)
    assert document == {"a": ["1j", {"b": "2j"}], "7": "3j"}
    assert kinds.message(document) == {"a": [1j, {"b": 2j}], 7: 3j}


def test_a_format_that_has_not_what_another_had_writes_what_is_shown():
    document = {"a": TypedText("x", object()), "b": TypedInt(5, object()), "c": Base64.of(b"y")}
    assert BinaryTypes().message(document) == {"a": "x", "b": 5, "c": b"y"}
    for bad in ({"a": object()}, {5: 1}):
        with pytest.raises(TypeError):
            BinaryTypes().message(bad)
    for bad in ({"a": 1j}, {5: 1}):
        with pytest.raises(ValueError, match=r"complex|int"):
            BinaryTypes().document(bad)


@pytest.mark.parametrize("kinds", [BinaryTypes(), Complex()])
def test_depth_is_bounded_in_both_directions(kinds):
    assert kinds.document(nested(NESTING_MAX - 1)) == nested(NESTING_MAX - 1)
    assert kinds.message(nested(NESTING_MAX - 1)) == nested(NESTING_MAX - 1)
    with pytest.raises(LargeMessage, match="nested more than 100 levels deep"):
        kinds.document(nested(NESTING_MAX))
    with pytest.raises(LargeMessage, match="nested more than 100 levels deep"):
        kinds.message(nested(NESTING_MAX + 1))


def test_bytes_are_base64_text_that_knows_them():
    text = Base64.of(b"\x00\xff")
    assert (text, text.data) == ("AP8=", b"\x00\xff")


def test_a_marked_value_equals_what_it_looks_like():
    text, number = TypedText("1.10", object()), TypedInt(5, object())
    assert (text, number) == ("1.10", 5)
    assert {text: number} == {"1.10": 5}
    assert json_text({text: [text, number]}) == b'{"1.10":["1.10",5]}'


def test_plain_is_what_is_left_of_a_scalar():
    found = [plain(v) for v in (TypedText("a", 1), TypedInt(5, 1), Base64("AA=="), True, 1.5)]
    assert found == ["a", 5, "AA==", True, 1.5]
    assert [type(value) for value in found] == [str, int, str, bool, float]
    assert [plain(None), plain({}), plain([1])] == [None, None, None]


def test_a_bare_document_remembers_nothing():
    found = bare({TypedText("a", 1): [TypedInt(5, 1), {"b": Base64("AA==")}], "c": 2**70})
    assert found == {"a": [5, {"b": "AA=="}], "c": 2**70}
    assert [type(name) for name in found] == [str, str]
    assert [type(found["a"][0]), type(found["a"][1]["b"])] == [int, str]
    with pytest.raises(TypeError, match="named by int"):
        bare({1: 2})


def test_what_is_no_value_of_a_document_is_refused():
    assert bare({"a": None}) == {"a": None}
    with pytest.raises(TypeError, match="of the type bytes"):
        bare({"a": [b"x"]})


def read(name, body):
    return message_type(name).decoder(()).read([body])[0][0]


@pytest.mark.parametrize("body", [b"0", b"-1", b"9223372036854775807", b"-9223372036854775808"])
def test_an_int64_is_decimal_digits(body):
    assert read("int64", body) == body


@pytest.mark.parametrize(
    "body", [b"", b"+1", b" 1", b"1\n", b"1.0", b"1e3", b"0x1", b"9223372036854775808", b"\xd9\xa1"]
)
def test_an_int64_is_nothing_else(body):
    with pytest.raises(BadMessage, match="is not an int64"):
        read("int64", body)


@pytest.mark.parametrize("body", [b"0", b"-1.5", b"6.02e23", b"1E-400", b"1e+16"])
def test_a_double_is_written_as_in_json(body):
    assert read("double", body) == body


@pytest.mark.parametrize("body", [b"", b"NaN", b"inf", b"1.", b".5", b"1e400", b"1_0", b"1\n"])
def test_a_double_is_nothing_else(body):
    with pytest.raises(BadMessage, match="is not a double"):
        read("double", body)


def test_a_long_bad_number_is_shown_in_part():
    with pytest.raises(BadMessage) as caught:
        read("int64", b"x" * 1000)
    assert len(caught.value.detail) < 200


@pytest.mark.parametrize("name", ["int64", "double"])
@pytest.mark.parametrize("line", [b"42", b'"42"'])
def test_a_number_comes_as_json_number_or_string_and_leaves_as_string(name, line):
    kind = message_type(name)
    assert kind.from_line(line) == b"42"
    assert kind.to_line(b"42") == b'"42"'


def test_text_travels_as_a_json_string():
    assert message_type("string").to_line("é\n".encode()) == '"é\\n"'.encode()


def test_a_line_that_is_no_string_is_refused():
    with pytest.raises(BadMessage, match="must be a JSON string"):
        message_type("string").from_line(b"[1]")


def test_bytes_travel_in_base64():
    assert message_type("binary").to_line(b"\x00\xff") == b'"AP8="'


@pytest.mark.parametrize("line", [b'"AP8"', b'"A P8="', b'"\xc3\xa9"', b"1"])
def test_what_is_not_base64_is_refused(line):
    with pytest.raises(BadMessage):
        message_type("binary").from_line(line)


@all_cases(
    ("name", "value"),
    [
        ("int64", True),
        ("int64", 2**63),
        ("int64", 1.0),
        ("double", True),
        ("double", "1"),
        ("double", float("inf")),
        ("double", 10**400),
        ("string", b"x"),
        ("string", 1),
        ("string", None),
    ],
)
def test_a_value_of_another_kind_is_not_written(name, value):
    with pytest.raises(BadMessage, match=f"messages of type {name} are "):
        message_type(name).encode({"value": value})


@all_cases("document", [{}, {"value": 1, "more": 2}, {"more": 1}, 1, "x", []])
@all_cases("name", ["string", "int64", "double"])
def test_a_document_of_other_fields_is_not_written(name, document):
    with pytest.raises(BadMessage, match="with no other field"):
        message_type(name).encode(document)


@pytest.mark.parametrize(
    ("name", "body", "value"),
    [("string", b"", ""), ("int64", b"-7", -7), ("double", b"1e3", 1000.0)],
)
def test_the_message_is_the_field_value(name, body, value):
    kind = message_type(name)
    assert kind.parse(body) == {"value": value}
    assert kind.decoder((parse_path("/value"), parse_path("/v"))).read([body])[1] == [
        [value],
        [None],
    ]


def test_a_double_may_be_written_as_an_integer():
    assert message_type("double").encode({"value": 4}) == b"4"
