from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sow.core.paths import Path, container_at, parse_path, value_at
from sow.errors import BadFilter
from tests.cases import all_cases


@all_cases(
    ("text", "path"),
    [
        ("/id", Path(("id",))),
        ("/order/id", Path(("order", "id"))),
        (" /55 ", Path(("55",))),
        ("/legs[2]", Path(("legs",), 2)),
        ("/a/b[10]", Path(("a", "b"), 10)),
        ("[/odd name]", Path(("odd name",))),
        ("[/a b/c d]", Path(("a b", "c d"))),
        ("[/odd name][1]", Path(("odd name",), 1)),
        ("/Order/@update", Path(("Order", "@update"))),
        ("$.order.id", Path(("order", "id"))),
        ("$.legs[0]", Path(("legs",), 0)),
        ("$['odd name'].id", Path(("odd name", "id"))),
        ("$['a/b'][1]", Path(("a/b",), 1)),
        (r"""$['it\'s "a/b"']""", Path(('it\'s "a/b"',))),
    ],
)
def test_both_notations_are_read(text, path):
    assert parse_path(text) == path


NOT_XPATHS = "/ id //id /a/ /a[ /a[] /a[-1] /a[0]/b /a]b [] [/] [/a//b] [/a/] [a] [/a][] [/a]b"
NOT_JSONPATHS = """$ $. $.* $..id $.a[*] $.a[0].b $[0] $.a[-1] $.a[0][1] $.a[0,1] $.a[1:2]
    $.a[?(@.b>1)] $.a,b $.a.`parent` $.[ $.a|b $.a& $x"""


@all_cases("text", ["", "/a b", *NOT_XPATHS.split(), *NOT_JSONPATHS.split()])
def test_what_is_not_a_path_is_refused(text):
    with pytest.raises(BadFilter):
        parse_path(text)


def test_the_refusal_says_what_to_write():
    with pytest.raises(BadFilter, match="write an absolute path such as /order/id"):
        parse_path("order.id")


plain = st.text(st.characters(exclude_characters="/]", exclude_categories=["Cs"]), min_size=1)
steps = plain | st.text("/]['\\\" a,", max_size=9)


@given(st.lists(steps, min_size=1, max_size=3).map(tuple), st.none() | st.integers(0, 99))
def test_a_path_is_written_as_it_can_be_read(names, index):
    path = Path(names, index)
    # A star in quotes is every name to JSONPath, in which odd names have to be written.
    assume("*" not in names or not str(path).startswith("$"))
    assert parse_path(str(path)) == path


@all_cases("odd", ["a/b", "]", ""])
def test_a_star_beside_an_odd_name_cannot_be_written(odd):
    with pytest.raises(BadFilter, match="JSONPath"):
        parse_path(str(Path(("*", odd))))


@given(st.text("/[]$.*'a0-,:?@`|& \n", max_size=12).map("$".__add__))
def test_no_text_raises_anything_but_bad_filter(text):
    with suppress(BadFilter):
        assert parse_path(text).steps


def test_a_path_of_many_steps_is_read():
    assert len(parse_path("/a" * 30_000).steps) == 30_000


DOCUMENT = {
    "n": 1,
    "text": "",
    "no": False,
    "null": None,
    "o": {"C": [{"x": 1}, {"x": 2}, {"y": 3}], "array": ["a", "b"], "deep": {"er": 2.5}},
    "empty": [],
    "nested": [[1, [2]], [], [3]],
    "mixed": [1, None, {"a": 4}, "s"],
}


@all_cases(
    ("path", "value"),
    [
        ("/n", 1),
        ("/text", ""),
        ("/no", False),
        ("/null", None),
        ("/missing", None),
        ("/o", None),
        ("/o/deep/er", 2.5),
        ("/n/x", None),
        ("/o/C/x", [1, 2]),
        ("/o/C/x[1]", 2),
        ("/o/C/x[2]", None),
        ("/o/C/y", [3]),
        ("/o/C/z", None),
        ("/o/array", ["a", "b"]),
        ("/o/array[0]", "a"),
        ("/n[0]", 1),
        ("/n[1]", None),
        ("/empty", None),
        ("/nested", [1, 2, 3]),
        ("/nested[2]", 3),
        ("/mixed", [1, None, "s"]),
        ("/mixed/a", [4]),
    ],
)
def test_a_document_is_seen_as_paths_and_scalars(path, value):
    assert repr(value_at(DOCUMENT, parse_path(path))) == repr(value)


@pytest.mark.parametrize("document", [1, "text", None, b"bytes", [], {}])
def test_what_has_no_fields_has_no_values(document):
    assert value_at(document, parse_path("/a")) is None


def test_a_container_is_an_object_or_a_list_that_holds_one():
    document = {"o": {"a": {"b": 1}}, "l": [1, {"b": 2}], "p": [1, 2], "e": {}, "n": None}
    at = {text: container_at(document, parse_path(text)) for text in ("/o/a", "/l", "/p", "/e")}
    assert at == {"/o/a": {"b": 1}, "/l": [1, {"b": 2}], "/p": None, "/e": None}
    assert container_at(document, parse_path("/l/b")) is None
