"""Records as cells: what a field is called, and what its value looks like."""

import json

from hypothesis import given
from hypothesis import strategies as st

from sow.messages.flat_cells import cells, column_of, columns, steps_of


def test_top_level_fields_are_columns():
    assert cells(b'{"id":1,"name":"a b"}') == {"id": "1", "name": "a b"}


def test_nested_fields_are_named_by_their_path():
    assert cells(b'{"a":{"b":{"c":1},"d":2}}') == {"/a/b/c": "1", "/a/d": "2"}


def test_numbers_keep_their_spelling():
    assert cells(b'{"px":1.10,"n":123456789012345678901234}') == {
        "px": "1.10",
        "n": "123456789012345678901234",
    }


def test_arrays_stay_json_and_null_is_empty():
    assert cells(b'{"a":[1,{"b":2}],"c":null,"d":{}}') == {"a": '[1,{"b":2}]', "c": "", "d": "{}"}


def test_a_record_without_fields_is_one_value():
    assert cells(b'"text"') == {"value": "text"}


def test_columns_are_the_union_in_the_order_met():
    assert columns([{"a": "", "b": ""}, {"c": "", "a": ""}]) == ["a", "b", "c"]


NAMES = st.text(st.sampled_from("a/~."), max_size=3)
DOCUMENTS = st.recursive(
    st.integers(), lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3)
)


@given(st.dictionaries(NAMES, DOCUMENTS))
def test_no_two_fields_have_one_name_and_each_can_be_had_back(document):
    found = cells(json.dumps(document).encode())
    again = {}
    for name, cell in found.items():
        level, steps = again, steps_of(name)
        assert column_of(steps) == name
        for step in steps[:-1]:
            level = level.setdefault(step, {})
        level[steps[-1]] = int(cell)
    assert again == document


def test_columns_that_are_whole_are_not_looked_into():
    assert cells(b'{"a":{"b":{"c":1}}}', ["/a/b"]) == {"/a/b": '{"c":1}'}
