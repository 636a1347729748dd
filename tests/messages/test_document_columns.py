"""Columns of parsed documents: what looking each path up finds, and no more work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.paths import Path, parse_path, value_at
from sow.messages import document_columns as module
from sow.messages.document_columns import LEVELS_MAX, DocumentColumns, document_columns
from sow.messages.typed_scalars import Base64, TypedInt, TypedText

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
