"""Conflation of recorded logs: equal to a naive reference, to the embedded engine and to itself."""

import json
import math
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import reduce
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conflated_topics import FocusedConflator, PerKey
from conflated_topics.recorded import (
    Spec,
    State,
    conflate_table,
    key_codes,
    parse_interval,
    standing_alone,
    step,
)
from conflated_topics.windows import cut

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


# --- logs


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


# --- a naive reference: one record after the other


def said(values):
    return [value for value in values if value is not None]


def nothing_or(function):
    return lambda values: function(said(values)) if said(values) else None


REFERENCE = {
    "latest": lambda values: values[-1],
    "merge": nothing_or(lambda values: values[-1]),
    "first": nothing_or(lambda values: values[0]),
    "min": nothing_or(min),
    "max": nothing_or(max),
    "sum": nothing_or(lambda values: reduce(lambda a, b: a + b, values)),
    "count": len,
    "documents": nothing_or(lambda values: reduce(merged_bytes, values)),
    joined: nothing_or(lambda values: reduce(joined, values)),
}


def reference(records, operations, deletes):
    """Windows as (key, start, folded values), in the order of the result."""
    open_windows, held, closed = {}, set(), []

    def close(key):
        start, window, last = open_windows.pop(key)
        if not (window[-1]["gone"] and deletes) or key in held:
            values = tuple(REFERENCE[op]([r[name] for r in window]) for name, op in operations)
            closed.append((start, last, key, values))
        (held.discard if window[-1]["gone"] else held.add)(key)

    for place, record in enumerate(records):
        key = record["key"]
        if key in open_windows and record["at"] >= open_windows[key][0] + INTERVAL:
            close(key)
        if key not in open_windows:
            if deletes and record["gone"] and key not in held:
                continue
            open_windows[key] = (record["at"], [], place)
        start, window, _ = open_windows[key]
        if deletes and (record["gone"] or (window and window[-1]["gone"])):
            window = []
        open_windows[key] = (start, [*window, record], place)
    for key in list(open_windows):
        close(key)
    return [(key, start, *values) for start, _, key, values in sorted(closed, key=lambda c: c[:2])]


POLICIES = [
    {"number": "latest", "whole": "latest", "value": "latest", "name": "latest"},
    {"number": "merge", "whole": "merge", "value": "merge", "name": "merge"},
    {"number": "sum", "whole": "sum", "value": "first", "name": "count"},
    {"number": "min", "whole": "max", "value": joined, "name": "max"},
    {"number": "max", "whole": "min", "value": "count", "name": "min"},
    {"number": "first", "whole": "count", "value": "max", "name": "first"},
]


def assert_like_the_reference(records, policy, delete):
    spec = Spec(("key",), "at", INTERVAL, policy=policy, delete=delete)
    operations = {**policy}
    if policy["value"] == "merge":
        operations["value"] = "documents"
    result = conflate_table(table(records), spec)
    expected = reference(records, operations.items(), delete is not None)
    assert rows(result, "key", "window_start", *policy) == expected
    ends = result["window_end"].cast(pa.int64()).to_pylist()
    assert ends == [start + INTERVAL for _, start, *_ in expected]


@given(logs(), st.sampled_from(POLICIES), st.sampled_from([None, "gone"]))
@settings(max_examples=200, deadline=None)
def test_it_is_what_a_record_by_record_reference_makes(records, policy, delete):
    assert_like_the_reference(records, policy, delete)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("delete", [None, "gone"])
def test_long_random_logs_are_like_the_reference(seed, delete):
    assert_like_the_reference(random_log(seed), POLICIES[seed % len(POLICIES)], delete)


# --- the embedded engine


def embedded(records, column, merge, deletes):
    """(key, start, deadline, value) as the embedded engine releases them.

    Its grid points are a microsecond apart here, so it releases windows at their deadlines.
    """
    held, released = set(), set()
    topic = FocusedConflator(PerKey(INTERVAL), held.__contains__, merge)

    def advance(now):
        while (due := topic.due_us()) is not None and due <= now:
            updates, removals = topic.take(due)
            held.update(key for key, _ in updates)
            held.difference_update(removal.key for removal in removals)
            updates += [(removal.key, removal.value) for removal in removals]
            released.update((key, due - INTERVAL, due, value) for key, value in updates)

    for record in records:
        advance(record["at"])
        keys, values = [record["key"]], [record[column]]
        if deletes and record["gone"]:
            topic.remove(keys, values, "deleted", record["at"])
        else:
            topic.offer(keys, values, record["at"], None)
    advance(math.inf)
    return released


@pytest.mark.parametrize("delete", [None, "gone"])
@pytest.mark.parametrize(
    ("column", "operation", "merge"),
    [
        ("whole", "latest", None),
        ("value", "merge", merged_bytes),
        ("number", "sum", joined),
        ("value", joined, joined),
    ],
)
@given(logs())
@settings(max_examples=50, deadline=None)
def test_it_is_what_the_embedded_engine_releases(delete, column, operation, merge, records):
    if merge is not None:
        records = [record for record in records if record[column] is not None]
    spec = Spec(("key",), "at", INTERVAL, policy={column: operation}, delete=delete)
    result = rows(conflate_table(table(records), spec), "key", "window_start", "window_end", column)
    assert len(set(result)) == len(result)
    assert set(result) == embedded(records, column, merge, delete is not None)


# --- the law of splitting


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


@given(
    logs(),
    st.sampled_from(POLICIES),
    st.sampled_from([None, "gone"]),
    st.lists(st.integers(0, 40), max_size=6),
)
@settings(max_examples=200, deadline=None)
def test_any_split_gives_the_same(records, policy, delete, cuts):
    spec = Spec(("key",), "at", INTERVAL, policy=policy, delete=delete)
    whole = conflate_table(table(records), spec)
    cuts = [min(cut, len(records)) for cut in cuts]
    assert in_batches(table(records), spec, cuts).equals(whole)


@pytest.mark.parametrize("seed", range(12))
def test_long_logs_split_into_many_batches_give_the_same(seed):
    records, pick = table(random_log(seed)), random.Random(seed)
    spec = Spec(("key",), "at", INTERVAL, POLICIES[seed % len(POLICIES)], delete="gone")
    cuts = [pick.randrange(400) for _ in range(30)]
    assert in_batches(records, spec, cuts).equals(conflate_table(records, spec))


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_sum_is_the_sum_from_left_to_right_to_the_last_bit(size):
    numbers = np.random.default_rng(size).normal(0, 1e8, 5000)
    records = log(*(("k", 0, number) for number in numbers))
    spec = Spec(("key",), "at", INTERVAL, policy={"number": "sum"})
    plain = 0.0
    for number in numbers.tolist():
        plain += number
    assert plain != float(np.add.reduce(numbers)), "this test needs numbers where order matters"
    assert conflate_table(records, spec)["number"].to_pylist() == [plain]
    split = in_batches(records, spec, range(size, 5000, size) if size > 1 else [1, 2, 3])
    assert split["number"].to_pylist() == [plain]


# --- windows


def test_a_window_is_half_open_and_never_reset():
    result = conflate_table(log(("k", 0, 1), ("k", 9, 2), ("k", 10, 3), ("k", 19, 4)), SPEC)
    assert brief(result) == [("k", 0, 2.0), ("k", 10, 4.0)]


def test_the_result_is_sorted_by_time_whatever_the_order_of_the_input():
    result = conflate_table(log(("b", 12, 1), ("a", 3, 2), ("a", 1, 3), ("b", 0, 4)), SPEC)
    assert brief(result) == [("b", 0, 4.0), ("a", 1, 2.0), ("b", 12, 1.0)]


def test_order_columns_break_ties_of_time_nulls_first():
    schema = pa.schema(
        [("key", "string"), ("at", pa.timestamp("us")), ("o", "int64"), ("v", "int64")]
    )
    records = [("k", 0, 5, 1), ("k", 0, None, 2), ("k", 0, 7, 3), ("k", 0, 6, 4)]
    log = table([dict(zip(schema.names, r, strict=True)) for r in records], schema)
    spec = Spec(("key",), "at", INTERVAL, policy={"v": "first"}, order=("o",))
    assert rows(conflate_table(log, spec), "v", "o") == [(2, 7)]


def test_keys_of_several_columns_are_told_apart():
    schema = pa.schema([("a", "int64"), ("b", "string"), ("at", pa.timestamp("us"))])
    records = [{"a": a, "b": b, "at": 0} for a in (1, 2, 3) for b in ("x", "y", "")] * 2
    spec = Spec(("a", "b"), "at", INTERVAL, order=())
    result = conflate_table(table(records, schema), spec)
    assert rows(result, "a", "b") == [(a, b) for a in (1, 2, 3) for b in ("x", "y", "")]


def test_records_without_a_key_are_refused():
    schema = pa.schema([("a", "int64"), ("b", "string"), ("at", pa.timestamp("us"))])
    records = [{"a": 1, "b": "x", "at": 0}, {"a": 1, "b": None, "at": 0}]
    with pytest.raises(ValueError, match=r"1 records have no 'b', which is a key.*leave them out"):
        conflate_table(table(records, schema), Spec(("a", "b"), "at", INTERVAL))


def test_an_empty_log_gives_an_empty_result_with_all_columns():
    result = conflate_table(SCHEMA.empty_table(), DELETES)
    assert len(result) == 0
    assert result.schema == DELETES.output_schema(SCHEMA)


def test_more_keys_than_sort_in_one_pass():
    count = 70_000
    schema = pa.schema([("key", "int64"), ("at", pa.timestamp("us"))])
    log = pa.table([np.tile(np.arange(count), 2), np.repeat([0, 5], count)], ["key", "at"])
    result = conflate_table(log.cast(schema), SPEC)
    assert result["key"].to_pylist() == list(range(count))
    assert set(rows(result, "at")) == {(5,)}


def test_keys_may_be_dictionaries_that_differ_from_batch_to_batch():
    records = log(("k", 0, 1), ("l", 0, 1), ("l", 12, 1), ("m", 13, 1), ("k", 15, 1, True))
    whole = conflate_table(records, DELETES)
    state, parts = State(DELETES), []
    for place in range(len(records)):
        part = records.slice(place, 1)
        part = part.set_column(0, "key", part["key"].dictionary_encode())
        state, out = step(State.from_bytes(state.to_bytes(), DELETES), part)
        parts.append(out)
    parts.append(step(state, part.slice(0, 0), release_all=True)[1])
    assert [row for part in parts for row in rows(part)] == rows(whole)


def naive_cut(times, leads, interval):
    starts, end = [], None
    for place, (time, lead) in enumerate(zip(times, leads, strict=True)):
        if lead or time >= end:
            starts.append(place)
            end = time + interval
    return starts


@pytest.mark.parametrize("interval", [1, 10**6, 2**61])
def test_positions_beyond_64_bits_are_halved(interval):
    # Each key spans 60,000 years, so that all of them end to end would not fit.
    pick = np.random.default_rng(4)
    times = np.sort(pick.integers(0, 2**60, (20, 50)), axis=1).ravel()
    leads = np.arange(1000) % 50 == 0
    starts, stops = cut(times, leads, interval)
    assert starts.tolist() == naive_cut(times.tolist(), leads, interval)
    assert stops.tolist() == [*starts.tolist()[1:], 1000]


@pytest.mark.parametrize("interval", [2**58, 2**59])
def test_long_intervals_over_long_times_are_cut_right(interval):
    times = np.sort(np.random.default_rng(5).integers(-(2**59), 2**59, (40, 30)), axis=1).ravel()
    leads = np.arange(1200) % 30 == 0
    starts, _ = cut(times, leads, interval)
    assert starts.tolist() == naive_cut(times.tolist(), leads, interval)


def test_times_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="73,000 years apart"):
        cut(np.array([-(2**62), 2**62]), np.array([True, False]), 10)


# --- deletes


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([("k", 0, 1, True)], []),
        ([("k", 0, 1, True), ("k", 5, 2), ("k", 14, 3)], [("k", 5, 3.0)]),
        ([("k", 0, 1), ("k", 5, 2, True)], []),
        ([("k", 0, 1), ("k", 5, 2, True), ("k", 6, 3)], [("k", 0, 3.0)]),
        ([("k", 0, 1), ("k", 12, 2, True)], [("k", 0, 1.0), ("k", 12, 2.0)]),
        (
            [("k", 0, 1), ("k", 12, 2, True), ("k", 22, 3, True), ("k", 23, 4)],
            [("k", 0, 1.0), ("k", 12, 2.0), ("k", 23, 4.0)],
        ),
        ([("k", 0, 1), ("l", 11, 2, True), ("l", 12, 3)], [("k", 0, 1.0), ("l", 12, 3.0)]),
    ],
)
def test_who_was_not_told_of_a_record_is_not_told_that_it_left(records, expected):
    assert brief(conflate_table(log(*records), DELETES)) == expected


def test_a_delete_starts_the_fold_again():
    spec = Spec(("key",), "at", INTERVAL, policy={"number": "sum"}, delete="gone")
    records = log(("k", 0, 1), ("k", 1, 20, True), ("k", 2, 300), ("k", 3, 4000))
    assert brief(conflate_table(records, spec)) == [("k", 0, 4300.0)]


def test_a_held_key_is_remembered_over_batches():
    state, _ = step(State(DELETES), log(("k", 0, 1), ("l", 0, 1)), release_all=True)
    assert sorted(state.held["key"].to_pylist()) == ["k", "l"]
    state = State.from_bytes(state.to_bytes(), DELETES)
    state, out = step(state, log(("k", 20, 2, True), ("m", 20, 2, True)), now_us=30)
    assert brief(out) == [("k", 20, 2.0)]
    assert state.held["key"].to_pylist() == ["l"]


def test_without_a_delete_column_nobody_is_tracked():
    state, _ = step(State(SPEC), log(("k", 0, 1)), release_all=True)
    assert state.held is None


# --- streams


def test_windows_are_handed_on_when_the_clock_or_a_record_says_so():
    state, out = step(State(SPEC), log(("k", 0, 1), ("l", 4, 2)))
    assert brief(out) == []
    state, out = step(state, log(), now_us=9)
    assert brief(out) == []
    state, out = step(state, log(), now_us=10)
    assert brief(out) == [("k", 0, 1.0)]
    state, out = step(state, log(("k", 14, 3)))
    assert brief(out) == [("l", 4, 2.0)]
    state, out = step(state, log(), release_all=True)
    assert brief(out) == [("k", 14, 3.0)]


def test_a_record_older_than_those_of_an_earlier_batch_is_refused():
    state, _ = step(State(SPEC), log(("k", 0, 1), ("l", 25, 2)))
    with pytest.raises(ValueError, match="1 records are older than those of an earlier batch"):
        step(state, log(("k", 24, 3), ("k", 25, 4)))


# --- folds


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


# --- state


def test_state_of_another_spec_or_version_is_refused():
    state, _ = step(State(SPEC), log(("k", 0, 1)))
    data = state.to_bytes()
    assert State.from_bytes(data, SPEC).pending.equals(state.pending)
    with pytest.raises(ValueError, match=r"interval_us 10, not 20"):
        State.from_bytes(data, Spec(("key",), "at", 20))
    with pytest.raises(ValueError, match=r"policy 'latest', not .*test_recorded:joined"):
        State.from_bytes(data, Spec(("key",), "at", INTERVAL, policy=joined))
    with pytest.raises(ValueError, match="version 7"):
        State.from_bytes(data[:4] + b"\x07\x00" + data[6:], SPEC)
    for nonsense in (b"", b"CTRS", b"something else"):
        with pytest.raises(ValueError, match="not the state of a conflation"):
            State.from_bytes(nonsense, SPEC)
    for short in (data[:20], data[:-9]):
        with pytest.raises(ValueError, match="cut short"):
            State.from_bytes(short, SPEC)


def test_a_batch_with_other_columns_is_refused():
    state, _ = step(State(SPEC), log(("k", 0, 1)))
    with pytest.raises(ValueError, match=r"other columns than those before.*number"):
        step(state, log(("k", 0, 1)).drop_columns("number"))
    names = log().schema.names
    with pytest.raises(ValueError, match=r"columns in another order.*select them as key, at"):
        step(state, log(("k", 0, 1)).select(names[::-1]))


def test_a_state_is_never_changed():
    state, _ = step(State(DELETES), log(("k", 0, 1)))
    before = state.to_bytes()
    step(state, log(("k", 1, 2), ("k", 30, 1)))
    assert state.to_bytes() == before


# --- mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keys": "key"}, r'write \("key",\)'),
        ({"keys": ()}, "at least one key"),
        ({"interval_us": 0}, "not longer than nothing"),
        ({"policy": "newest"}, "'newest' is not an operation; "),
        ({"policy": {"number": "summ"}}, "did you mean 'sum'"),
        ({"time": "key"}, "'key' is named twice"),
        ({"delete": "at"}, "'at' is named twice"),
    ],
)
def test_a_spec_that_says_nonsense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Spec(**{"keys": ("key",), "time": "at", "interval_us": 10, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keys": ("kee",)}, "no column 'kee', which keys names; did you mean 'key'"),
        ({"time": "ats"}, "no column 'ats', which time names; did you mean 'at'"),
        ({"order": ("numbr",)}, "which order names; did you mean 'number'"),
        ({"delete": "gon"}, "which delete names; did you mean 'gone'"),
        ({"delete": "number"}, "'number' is double; make it boolean"),
        ({"time": "number"}, "'number' is double; cast it to timestamp"),
        ({"policy": {"numbr": "sum"}}, "which policy names; did you mean 'number'"),
        ({"policy": {"at": "max"}}, "always the last record's"),
        ({"policy": {"name": "sum"}}, "'name' is string, but sum adds integers and floats"),
        ({"policy": "sum"}, "sum adds integers and floats"),
    ],
)
def test_a_spec_that_does_not_fit_the_columns_is_refused(arguments, message):
    spec = Spec(**{"keys": ("key",), "time": "at", "interval_us": 10, **arguments})
    with pytest.raises(ValueError, match=message):
        conflate_table(log(("k", 0, 1)), spec)


def test_columns_that_cannot_be_are_refused():
    good = log(("k", 0, 1))
    with pytest.raises(ValueError, match="rename the input's"):
        conflate_table(good.append_column("window_end", pa.array([1])), SPEC)
    with pytest.raises(ValueError, match="two columns have the same name"):
        conflate_table(good.append_column("number", pa.array([1])), SPEC)
    with pytest.raises(ValueError, match="1 records have no time in 'at'"):
        conflate_table(log(("k", None, 1)), SPEC)
    with pytest.raises(ValueError, match="make columns of its fields"):
        conflate_table(of_all_types(), Spec(("struct",), "at", INTERVAL))
    with pytest.raises(ValueError, match="max compares numbers, times and text"):
        conflate_table(of_all_types(), Spec(("key",), "at", INTERVAL, policy={"list": "max"}))
    with pytest.raises(ValueError, match="no column 'value', which a callable policy names"):
        conflate_table(good.drop_columns("value"), Spec(("key",), "at", 10, policy=joined))


# --- intervals


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ("1s", 1_000_000),
        ("100ms", 100_000),
        ("5m", 300_000_000),
        ("1.5 h", 5_400_000_000),
        ("2d", 172_800_000_000),
        ("0.5us", 1),
        (timedelta(milliseconds=250), 250_000),
    ],
)
def test_intervals_carry_units(interval, expected):
    assert parse_interval(interval) == expected


@pytest.mark.parametrize(
    ("interval", "message"),
    [
        ("10", "no unit; write 10s"),
        ("10 parsecs", "'parsecs', which is none"),
        ("soon", "not an interval"),
        ("-1s", "not an interval"),
        ("0s", "not longer than nothing"),
        (timedelta(0), "not longer than nothing"),
        ("99999999w", "too long"),
        (5, "5 is not an interval"),
    ],
)
def test_what_is_no_interval_is_refused(interval, message):
    with pytest.raises(ValueError, match=message):
        parse_interval(interval)


def test_times_keep_their_zone():
    result = conflate_table(log(("k", 0, 1)), SPEC)
    assert result["window_end"].to_pylist() == [datetime(1970, 1, 1, 0, 0, 0, INTERVAL, tzinfo=UTC)]


def test_an_interval_may_be_nothing_where_that_is_allowed():
    assert parse_interval("0s", least_us=0) == 0
    with pytest.raises(ValueError, match="less than nothing"):
        parse_interval(timedelta(-1), least_us=0)


def test_a_record_can_stand_alone():
    spec = Spec(("key",), "at", INTERVAL, policy={"whole": "sum", "name": "count"})
    records = table([{"key": "k", "at": 3, "whole": 7, "name": "ann"}])
    alone = standing_alone(records, spec)
    assert alone.schema == spec.output_schema(SCHEMA)
    assert rows(alone, "key", "at", "whole", "name", "window_start", "window_end") == [
        ("k", 3, 7, 1, None, None)
    ]
