"""What updates are folded by is the same in a queue or a window and in a recorded log.

A queue folds two messages at a time, a recorded log a column at once. Every operation that both
know is tried on the same values; what a column cannot be folded by, it says.
"""

import json
from datetime import UTC, datetime
from functools import reduce
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conflated_topics.folds import RECORDED_OPERATIONS, objection
from conflated_topics.recorded import Spec, State, conflate_table, step
from sow.config.elements.pipeline import CONFLATE
from sow.core.definitions import Merge, Operation
from sow.core.delta import merged
from sow.messages import message_type
from sow.topic.queue_policy import FIELD_OPERATIONS, FieldMerger
from tests.effort import examples

COMMON = sorted(FIELD_OPERATIONS.keys() & set(RECORDED_OPERATIONS))
COLUMNS = {
    pa.int64(): st.integers(-(2**40), 2**40),
    pa.float64(): st.floats(-1e9, 1e9),
    pa.string(): st.text(st.characters(codec="utf-8", exclude_characters="0123456789")),
    pa.bool_(): st.booleans(),
}
"""Kinds of columns. Text that spells a number is one in a message, since FIX has nothing else; in a
column it is text."""
DAY = Spec(("key",), "at", 86_400_000_000)


def embedded(values, operation):
    """What a queue or a window makes of messages with these values, one after the other."""
    merger = FieldMerger(message_type("json"), [Merge("/v", operation)])
    bodies = [merger.single(json.dumps({"v": value}).encode()) for value in values]
    return json.loads(reduce(merger.merge, bodies)).get("v")


def recorded_table(values, kind):
    schema = pa.schema([("key", pa.string()), ("at", pa.timestamp("us", "UTC")), ("v", kind)])
    at = datetime(2024, 1, 1, tzinfo=UTC)
    return pa.Table.from_pylist([{"key": "k", "at": at, "v": value} for value in values], schema)


def spec_of(operation):
    return Spec(DAY.keys, DAY.time, DAY.interval_us, policy={"v": operation})


def recorded(values, kind, operation):
    """What one window of a recorded log makes of them."""
    return conflate_table(recorded_table(values, kind), spec_of(operation))["v"].to_pylist()[0]


def same(one, other):
    return one == other and type(one) is type(other)


def test_these_are_the_common_operations():
    assert COMMON == ["count", "first", "latest", "max", "min", "sum"]
    assert set(get_args(Operation)) == FIELD_OPERATIONS.keys() == {*COMMON, "concat"}
    assert {*RECORDED_OPERATIONS} == {*COMMON, "merge"}


@pytest.mark.parametrize("kind", COLUMNS, ids=str)
@pytest.mark.parametrize("operation", COMMON)
@given(data=st.data())
@examples(6)
def test_a_window_is_folded_alike(operation, kind, data):
    if objection(kind, operation) is not None:
        return
    values = data.draw(st.lists(st.none() | COLUMNS[kind], min_size=1, max_size=12))
    together = recorded(values, kind, operation)
    assert same(together, embedded(values, operation))
    # Nor does it matter in how many parts the log comes.
    cut = data.draw(st.integers(0, len(values)))
    log = recorded_table(values, kind)
    state, _ = step(State(spec_of(operation)), log.slice(0, cut))
    assert same(step(state, log.slice(cut), release_all=True)[1]["v"].to_pylist()[0], together)


@pytest.mark.parametrize("kind", COLUMNS, ids=str)
def test_only_sums_of_what_is_no_number_are_refused(kind):
    refused = {operation for operation in COMMON if objection(kind, operation) is not None}
    assert refused == (set() if kind in (pa.int64(), pa.float64()) else {"sum"})


mixed = st.one_of(
    st.none(),
    st.integers(-9, 9),
    st.floats(-9, 9),
    st.integers(-9, 9).map(str),
    st.sampled_from(["a", "b", "9z", "", "NaN", "inf", "1_0", "1e2", "+1."]),
    st.booleans(),
)


@pytest.mark.parametrize("operation", ["min", "max"])
@given(values=st.lists(mixed, min_size=3, max_size=3))
def test_values_of_several_kinds_are_compared_alike_in_whatever_parts(operation, values):
    fold = FIELD_OPERATIONS[operation]
    one, two, three = values
    assert same(fold(fold(one, two), three), fold(one, fold(two, three)))


documents = st.recursive(
    st.none() | st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), documents), min_size=1, max_size=6))
def test_documents_are_merged_as_a_delta_publish_merges_them(texts):
    logged = recorded([json.dumps(text) for text in texts], pa.string(), "merge")
    if len(texts) > 1:
        table = recorded_table([json.dumps(text) for text in texts], pa.string())
        table = table.rename_columns(["key", "at", "value"])
        spec = Spec(DAY.keys, DAY.time, DAY.interval_us, policy="merge")
        folded = json.loads(conflate_table(table, spec)["value"].to_pylist()[0])
        assert folded == reduce(lambda document, delta: merged(document, delta, "ignore"), texts)
    assert json.loads(logged) == texts[-1]


def test_a_pipeline_takes_every_recorded_operation():
    (policy,) = [element for element in CONFLATE.children if element.name == "Policy"]
    assert set(policy.kind.name.replace("`", "").split(" or ")) == set(RECORDED_OPERATIONS)
