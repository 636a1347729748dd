"""Columns of Arrow: no value is changed by what other rows hold, however they are read."""

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.messages import arrow, making
from sow.messages.arrow import table_of_json
from sow.messages.arrow_values import table_of_documents


def column(*texts):
    """The column of a field whose values these are; an empty text is an absent value."""
    return table_of_json([b'{"f":%b}' % text.encode() if text else b"{}" for text in texts])["f"]


COLUMNS = [
    (["1", "2", ""], pa.int64(), [1, 2, None]),
    (["1", "0.5", "null"], pa.float64(), [1.0, 0.5, None]),
    (["0.1", "1e22", "123456789.123456"], pa.float64(), [0.1, 1e22, 123456789.123456]),
    (["9007199254740993", "9"], pa.int64(), [9007199254740993, 9]),
    (["9007199254740993", "0.5"], pa.string(), ["9007199254740993", "0.5"]),
    (["9007199254740992", "0.5"], pa.float64(), [2.0**53, 0.5]),
    (["123456789012345678901", "1"], pa.string(), ["123456789012345678901", "1"]),
    (["0.12345678901234567890", "1"], pa.string(), ["0.12345678901234567890", "1"]),
    (["1e-400", "1.0"], pa.string(), ["1e-400", "1.0"]),
    (['"2025-01-02"', '""'], pa.string(), ["2025-01-02", ""]),
    (['"2025-01-02T09:30:00+02:00"'], pa.string(), ["2025-01-02T09:30:00+02:00"]),
    (['"2025-01-02 09:30:00"', ""], pa.string(), ["2025-01-02 09:30:00", None]),
    (["true", "false", ""], pa.bool_(), [True, False, None]),
    (["true", "1"], pa.string(), ["true", "1"]),
    (['"1"', "1"], pa.string(), ['"1"', "1"]),
    (['{"a": 1}', "", "null"], pa.string(), ['{"a": 1}', None, None]),
    (["[1, 0.5]", '"x"'], pa.string(), ["[1, 0.5]", '"x"']),
    (["null", ""], pa.string(), [None, None]),
]


@pytest.mark.parametrize(("texts", "kind", "values"), COLUMNS, ids=lambda value: str(value)[:40])
def test_a_column_has_the_type_that_holds_all_values(texts, kind, values):
    found = column(*texts)
    assert (found.type, found.to_pylist()) == (kind, values)


def test_names_may_be_anything_and_come_twice():
    odd = table_of_json([b'{"a\\"b":1.12345678901234567,"\\u0070":[1]}', b'{"p":"x","":1}'])
    assert odd.column_names == ['a"b', "p", ""]
    assert odd.to_pylist()[0] == {'a"b': "1.12345678901234567", "p": "[1]", "": None}
    assert table_of_json([b'{"a":1,"a":2}']).to_pylist() == [{"a": 2}]
    assert table_of_json([]).num_columns == 0


def test_a_number_in_an_escaped_name_is_looked_at_too():
    found = table_of_json([b'{"\\u0070x":1.12345678901234567}', b'{"px":1.5}'])["px"]
    assert found.to_pylist() == ["1.12345678901234567", "1.5"]


def test_blocks_agree_on_a_type(monkeypatch):
    monkeypatch.setattr(arrow, "BLOCK_BYTES", 64)
    texts = ["1"] * 100 + ["9007199254740993"] + ["0.5"] * 100
    assert column(*texts).to_pylist() == texts
    days = ['"2025-01-02"'] * 100 + ['"never"']
    assert column(*days).to_pylist() == [json.loads(day) for day in days]


numbers = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(-(10**6), 10**6, places=18).map(str),
    st.decimals(-1, 1, places=3).map(str),
)
scalars = st.one_of(numbers, st.text().map(json.dumps), st.sampled_from(["true", "false", "null"]))
values = st.one_of(scalars, st.just("[1]"), st.just('{"a":0.5}'))


@given(st.lists(values, min_size=1) | st.lists(numbers, min_size=1) | st.lists(scalars))
def test_every_value_can_be_had_back(texts):
    if not texts:
        return
    found = column(*texts)
    for text, value in zip(texts, found.to_pylist(), strict=True):
        if text == "null":
            assert value is None
        elif found.type == pa.float64():
            assert Decimal(text) in (Decimal(value), Decimal(repr(value)))
        elif found.type == pa.int64():
            assert int(text) == value
        elif found.type == pa.bool_():
            assert json.loads(text) is value
        else:
            assert value in (text, json.loads(text))


@given(st.lists(values, min_size=1) | st.lists(numbers, min_size=1))
def test_a_column_is_the_same_in_however_many_steps_it_is_made(texts):
    bodies = [b'{"f":%b}' % text.encode() for text in texts]
    whole = table_of_json(bodies)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "PART_ROWS", 2)
        patch.setattr(making, "PART_ROWS", 2)
        in_steps = table_of_json(bodies)
        read = table_of_documents([{"f": json.loads(text)} for text in texts])
    assert in_steps.schema == whole.schema
    assert in_steps.to_pydict() == whole.to_pydict()
    assert read.equals(table_of_documents([{"f": json.loads(text)} for text in texts]))


@given(st.lists(values, min_size=1))
def test_documents_that_were_read_make_columns_of_the_same_types(texts):
    read = [{"f": json.loads(text)} for text in texts]
    assert table_of_documents(read)["f"].type in (column(*texts).type, pa.float64())
