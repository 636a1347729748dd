"""Recorded logs to be conflated: written out, drawn by Hypothesis, at random, and their parts."""

import json
import random
from decimal import Decimal
from itertools import pairwise

import pyarrow as pa
from hypothesis import strategies as st

from conflated_topics.recorded import (
    Spec,
    State,
    step,
)

INTERVAL = 10
SPEC = Spec(("key",), "at", INTERVAL)
DELETES = Spec(("key",), "at", INTERVAL, delete="gone")
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("gone", pa.bool_()),
        ("number", pa.float64()),
        ("whole", pa.int64()),
        ("value", pa.binary()),
        ("name", pa.string()),
    ]
)


def table(records, schema=SCHEMA):
    return pa.Table.from_pylist(records, schema=schema)


def log(*records):
    """(key, time, number) or (key, time, number, True) for a delete."""
    return table(
        [
            {"key": key, "at": time, "number": number, "gone": bool(rest)}
            for key, time, number, *rest in records
        ]
    )


def rows(result, *names):
    """Rows as tuples, times as microseconds."""
    columns = []
    for name in names or result.column_names:
        column = result[name]
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        columns.append(column.to_pylist())
    return list(zip(*columns, strict=True))


def brief(result):
    return rows(result, "key", "window_start", "number")


documents = st.dictionaries(
    st.sampled_from("abc"),
    st.one_of(
        st.none(),
        st.integers(0, 9),
        st.lists(st.integers(0, 3), max_size=2),
        st.dictionaries(st.sampled_from("xy"), st.one_of(st.none(), st.integers(0, 9))),
    ),
)


@st.composite
def logs(draw):
    records, time = [], draw(st.integers(-30, 30))
    for gap in draw(st.lists(st.sampled_from([0, 0, 1, 2, 3, 9, 10, 11, 25]), max_size=40)):
        time += gap
        records.append(
            {
                "key": draw(st.sampled_from(["k", "l", "m"])),
                "at": time,
                "gone": draw(st.sampled_from([False, False, True, None])),
                "number": draw(st.one_of(st.none(), st.floats(-1e6, 1e6))),
                "whole": draw(st.one_of(st.none(), st.integers(-(2**55), 2**55))),
                "value": draw(st.one_of(st.none(), documents.map(encoded))),
                "name": draw(st.one_of(st.none(), st.sampled_from(["ann", "bob", "cy"]))),
            }
        )
    return records


def random_log(seed, count=400, keys=7):
    pick, time, records = random.Random(seed), 0, []
    for _ in range(count):
        time += pick.choice([0, 0, 0, 1, 1, 2, 5, 30])
        records.append(
            {
                "key": f"k{pick.randrange(keys)}",
                "at": time,
                "gone": pick.random() < 0.3,
                "number": pick.choice([None, pick.uniform(-1, 1), pick.uniform(-1e9, 1e9)]),
                "whole": pick.choice([None, pick.randrange(2**55)]),
                "value": pick.choice([None, encoded({pick.choice("ab"): pick.randrange(9)})]),
                "name": pick.choice([None, "ann", "bob"]),
            }
        )
    return records


def encoded(document):
    return json.dumps(document, separators=(",", ":")).encode()


def merged(current, new):
    result = dict(current)
    for name, value in new.items():
        if isinstance(value, dict):
            under = result.get(name)
            result[name] = merged(under if isinstance(under, dict) else {}, value)
        elif value is not None:
            result[name] = value
    return result


def merged_bytes(current, new):
    return encoded(merged(json.loads(current), json.loads(new)))


def joined(current, new):
    return current + new


def said(values):
    return [value for value in values if value is not None]


POLICIES = [
    {"number": "latest", "whole": "latest", "value": "latest", "name": "latest"},
    {"number": "merge", "whole": "merge", "value": "merge", "name": "merge"},
    {"number": "sum", "whole": "sum", "value": "first", "name": "count"},
    {"number": "min", "whole": "max", "value": joined, "name": "max"},
    {"number": "max", "whole": "min", "value": "count", "name": "min"},
    {"number": "first", "whole": "count", "value": "max", "name": "first"},
]


def in_batches(log, spec, cuts):
    """All that the steps give, the state going through bytes before each."""
    state, parts = State(spec), []
    bounds = [0, *sorted(cuts), len(log)]
    for start, stop in pairwise(bounds):
        state, part = step(State.from_bytes(state.to_bytes(), spec), log.slice(start, stop - start))
        parts.append(part)
    state, part = step(state, log.slice(0, 0), release_all=True)
    assert len(state.pending) == 0
    return pa.concat_tables([*parts, part])


EVERYTHING = {
    "struct": pa.array([{"a": 1}, None, {"a": 3}], pa.struct([("a", pa.int64())])),
    "list": pa.array([[1], None, [3]], pa.list_(pa.int64())),
    "decimal": pa.array([Decimal("1.50"), None, Decimal("3.25")], pa.decimal128(10, 2)),
    "date": pa.array([1, None, 3], pa.int32()).cast(pa.date32()),
    "dictionary": pa.array(["a", None, "c"]).dictionary_encode(),
    "flag": pa.array([True, None, False]),
    "small": pa.array([1, None, 3], pa.int8()),
    "unsigned": pa.array([2**64 - 3, None, 2], pa.uint64()),
    "fixed": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "large": pa.array(["a", None, "c"], pa.large_string()),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "time": pa.array([1, None, 3], pa.timestamp("ns")),
    "nothing": pa.nulls(3),
}


def of_all_types():
    log = pa.table({"key": ["k", "k", "k"], "at": pa.array([0, 1, 2], pa.timestamp("us"))})
    for name, column in EVERYTHING.items():
        log = log.append_column(name, column)
    return log
