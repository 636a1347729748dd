import pytest

from sow.messages.json import json_text
from sow.messages.typed_scalars import Base64, TypedInt, TypedText, bare, plain


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
