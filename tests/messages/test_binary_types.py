"""One walk for all formats: what is of their own is shown, and written back as what it was."""

import pytest

from sow.errors import LargeMessage
from sow.messages.binary_types import (
    NESTING_MAX,
    Base64,
    BinaryTypes,
    TypedInt,
    TypedText,
    bare,
    plain,
)
from sow.messages.json import json_text

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
