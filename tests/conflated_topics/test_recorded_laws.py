"""Conflation of recorded logs equals a naive reference, the embedded engine, itself when split."""

import math
import random
from functools import reduce

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conflated_topics import FocusedConflator, PerKey
from conflated_topics.recorded import (
    Spec,
    conflate_table,
)
from tests.cases import all_cases
from tests.conflated_topics.logs import (
    INTERVAL,
    POLICIES,
    in_batches,
    joined,
    log,
    logs,
    merged_bytes,
    random_log,
    rows,
    said,
    table,
)
from tests.effort import examples


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
@examples(30)
def test_it_is_what_a_record_by_record_reference_makes(records, policy, delete):
    assert_like_the_reference(records, policy, delete)


@all_cases("seed", range(20))
@all_cases("delete", [None, "gone"])
def test_long_random_logs_are_like_the_reference(seed, delete):
    assert_like_the_reference(random_log(seed), POLICIES[seed % len(POLICIES)], delete)


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
@examples(12)
def test_it_is_what_the_embedded_engine_releases(delete, column, operation, merge, records):
    if merge is not None:
        records = [record for record in records if record[column] is not None]
    spec = Spec(("key",), "at", INTERVAL, policy={column: operation}, delete=delete)
    result = rows(conflate_table(table(records), spec), "key", "window_start", "window_end", column)
    assert len(set(result)) == len(result)
    assert set(result) == embedded(records, column, merge, delete is not None)


@given(
    logs(),
    st.sampled_from(POLICIES),
    st.sampled_from([None, "gone"]),
    st.lists(st.integers(0, 40), max_size=6),
)
@examples(30)
def test_any_split_gives_the_same(records, policy, delete, cuts):
    spec = Spec(("key",), "at", INTERVAL, policy=policy, delete=delete)
    whole = conflate_table(table(records), spec)
    cuts = [min(cut, len(records)) for cut in cuts]
    assert in_batches(table(records), spec, cuts).equals(whole)


@all_cases("seed", range(12))
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
