"""The generated reader: the same columns as looking each path up, or it says that it cannot."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.paths import parse_path, value_at
from sow.messages.json_columns import (
    GENERATED_PATHS_MAX,
    READ_FAILURES,
    STEPS_MAX,
    columns_reader,
)

names = st.sampled_from(["a", "b", "ä", "class", 'quote"d', "f0"])
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text("xy", max_size=3)
documents = st.dictionaries(
    names, scalars | st.lists(scalars, max_size=2) | st.dictionaries(names, scalars, max_size=2)
)
PATHS = tuple(parse_path(text) for text in ("/a/b", "/b", "/ä", "/class/f0", "/f0"))


def reader(*texts):
    return columns_reader(tuple(map(parse_path, texts)))


@given(st.lists(documents, max_size=5))
def test_what_is_read_fast_is_what_looking_finds(records):
    read = columns_reader(PATHS)
    assert read is not None
    block = b"\n".join(json.dumps(record).encode() for record in records)
    try:
        found = read(block, len(records))
    except READ_FAILURES:
        return
    assert found == [[value_at(record, path) for record in records] for path in PATHS]


@given(st.lists(documents, max_size=5))
def test_of_many_paths_the_same_is_found(records):
    many = *PATHS, *(parse_path(f"/more/{number}") for number in range(GENERATED_PATHS_MAX))
    block = b"\n".join(json.dumps(record).encode() for record in records)
    found = columns_reader(many)(block, len(records))
    assert found == [[value_at(record, path) for record in records] for path in many]


def test_records_of_scalars_are_read_fast():
    block = b'{"a":{"b":1},"b":"x"}\n{"b":null,"c":[1]}'
    assert reader("/a/b", "/b")(block, 2) == [[1, None], ["x", None]]


@pytest.mark.parametrize("texts", [("/a", "/a/b"), ("/a/b", "/a"), ("/a[0]",)])
def test_paths_that_no_struct_can_hold_do_not_suit(texts):
    assert reader(*texts) is None


def test_types_nest_within_reason():
    deep = "/".join(["", *(["a"] * STEPS_MAX)])
    assert reader(deep) is not None
    assert reader(deep + "/a") is None


@pytest.mark.parametrize("body", [b'{"a":[1]}', b'{"a":{"x":1}}', b"[1]", b'{"a":', b"3", b"{}{}"])
def test_a_record_of_another_shape_is_left_to_the_slow_reader(body):
    with pytest.raises(READ_FAILURES):
        reader("/a")(body, 1)


def test_a_block_that_holds_more_records_than_bodies_is_not_taken():
    with pytest.raises(READ_FAILURES):
        reader("/a")(b'{"a":1}\n{"a":2}', 1)
