"""What becomes of values in a window: of every type, of documents, text, what is no number."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest

from conflated_topics.recorded import (
    Spec,
    conflate_table,
    key_codes,
)
from tests.conflated_topics.logs import (
    EVERYTHING,
    INTERVAL,
    encoded,
    in_batches,
    joined,
    log,
    of_all_types,
    rows,
    said,
    table,
)


@pytest.mark.parametrize(
    ("policy", "place"), [("latest", 2), ("merge", 2), ("first", 0)], ids=lambda value: str(value)
)
@pytest.mark.parametrize("cuts", [[], [1], [1, 2]])
def test_values_of_any_type_pass(policy, place, cuts):
    spec = Spec(("key",), "at", INTERVAL, policy=policy)
    result = in_batches(of_all_types(), spec, cuts)
    assert len(result) == 1
    for name, column in EVERYTHING.items():
        assert result[name].type == column.type
        assert result[name].to_pylist() == [column[place].as_py()], name


@pytest.mark.parametrize("name", ["decimal", "date", "flag", "small", "unsigned", "large", "time"])
@pytest.mark.parametrize("operation", ["min", "max"])
def test_the_least_and_the_greatest_of_any_type_that_has_an_order(name, operation):
    spec = Spec(("key",), "at", INTERVAL, policy={name: operation})
    values = said(EVERYTHING[name].to_pylist())
    least, greatest = sorted(values)[0], sorted(values)[-1]
    result = conflate_table(of_all_types(), spec)[name]
    assert result.to_pylist() == [least if operation == "min" else greatest]
    assert result.type == EVERYTHING[name].type


def test_what_is_not_a_number_is_the_greatest():
    records = log(("k", 0, math.nan), ("k", 1, 2), ("k", 2, 1), ("k", 3, math.nan))
    least, greatest = (
        conflate_table(records, Spec(("key",), "at", INTERVAL, policy={"number": operation}))
        for operation in ("min", "max")
    )
    assert least["number"].to_pylist() == [1.0]
    assert math.isnan(greatest["number"][0].as_py())


def test_a_key_that_is_a_float_is_what_spark_takes_for_one():
    nan = np.frombuffer(b"\x01\0\0\0\0\0\xf8\xff")[0]
    keys = pa.table({"k": pa.array([0.0, -0.0, math.nan, nan, 1.0, None])})
    assert key_codes(keys).tolist() == [0, 0, 1, 1, 2, 3]


def test_infinite_numbers_are_found():
    spec = Spec(("key",), "at", INTERVAL, policy={"number": "min"})
    records = log(("k", 0, None), ("k", 1, math.inf), ("k", 2, math.nan))
    assert conflate_table(records, spec)["number"].to_pylist() == [math.inf]


def test_integers_add_up_exactly_and_wider_than_they_came():
    schema = pa.schema(
        [("key", "string"), ("at", pa.timestamp("us")), ("n", "int8"), ("w", "int64")]
    )
    records = table([{"key": "k", "at": 0, "n": 100, "w": 2**60 + 1}] * 3, schema)
    spec = Spec(("key",), "at", INTERVAL, policy={"n": "sum", "w": "sum"})
    result = conflate_table(records, spec)
    assert rows(result, "n", "w") == [(300, 3 * 2**60 + 3)]
    assert result.schema == spec.output_schema(schema)
    with pytest.raises(ValueError, match="does not fit 64 bits"):
        conflate_table(pa.concat_tables([records] * 4), spec)


def test_documents_merge_path_by_path_and_null_changes_nothing():
    texts = [
        {"a": {"b": 1, "c": 2}, "list": [1, 2], "x": 1, "o": 7},
        {"a": {"b": None, "d": 4}, "list": [3], "x": None, "o": {"p": None, "q": 1}},
    ]
    records = table([{"key": "k", "at": 0, "value": encoded(text)} for text in texts])
    result = conflate_table(records, Spec(("key",), "at", INTERVAL, policy="merge"))
    assert json.loads(result["value"][0].as_py()) == {
        "a": {"b": 1, "c": 2, "d": 4}, "list": [3], "x": 1, "o": {"q": 1}
    }  # fmt: skip


def test_a_document_alone_in_its_window_is_not_touched():
    text = b'{ "a" : null }'
    records = table([{"key": "k", "at": 0, "value": text}])
    result = conflate_table(records, Spec(("key",), "at", INTERVAL, policy="merge"))
    assert result["value"].to_pylist() == [text]


def test_documents_may_be_text_and_a_text_that_is_none_is_named():
    schema = pa.schema([("key", "string"), ("at", pa.timestamp("us")), ("value", "string")])
    spec = Spec(("key",), "at", INTERVAL, policy={"value": "merge"})
    good = table([{"key": "k", "at": 0, "value": v} for v in ('{"a":"é"}', '{"b":1}')], schema)
    assert conflate_table(good, spec)["value"].to_pylist() == ['{"a":"é","b":1}']
    bad = table([{"key": "k", "at": 0, "value": v} for v in ('{"a":1}', "nonsense")], schema)
    with pytest.raises(ValueError, match=r"'nonsense' is not JSON.*use the policy latest"):
        conflate_table(bad, spec)


def test_a_callable_folds_the_values_in_their_order():
    records = table(
        [{"key": "k", "at": at, "value": v} for at, v in [(2, b"c"), (0, b"a"), (1, b"b")]]
    )
    spec = Spec(("key",), "at", INTERVAL, policy=joined)
    assert conflate_table(records, spec)["value"].to_pylist() == [b"abc"]
