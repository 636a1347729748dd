"""One walk for all formats: what is of their own is shown, and written back as what it was."""

import pytest

from sow.errors import LargeMessage
from sow.messages.binary_types import NESTING_MAX, BinaryTypes
from sow.messages.typed_scalars import Base64, TypedInt, TypedText

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
