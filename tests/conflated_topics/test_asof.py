"""As-of joins of whole tables, against a naive model."""

import math
import random

import pyarrow as pa
import pytest

from conflated_topics.asof import AsOf
from tests.cases import all_cases
from tests.conflated_topics.joins import JOIN, QUOTES, TRADES, found, logs, naive, quotes, trades


@all_cases("seed", range(30))
def test_a_join_finds_what_looking_one_by_one_does(seed):
    left, right = logs(seed)
    chance = random.Random(-seed)
    chance.shuffle(left), chance.shuffle(right)
    result = JOIN.joined(trades(*left), quotes(*right))
    assert found(result) == naive(left, right)
    assert result["id"].to_pylist() == [number for _, _, number in left]
    assert all(
        row["leg"] == (None if row["n"] is None else {"px": row["n"]}) for row in result.to_pylist()
    )


def test_the_bounds_are_inclusive_and_of_one_time_the_order_decides():
    right = quotes(("a", 10, 7), ("a", 10, 5), ("a", 11, 9))
    rows = JOIN.joined(trades(("a", 10, 0), ("a", 21, 1), ("a", 22, 2), ("a", 9, 3)), right)
    assert found(rows) == {0: 7, 1: 9, 2: None, 3: None}
    without_order = AsOf(("sym",), "ts", 10)
    assert found(without_order.joined(trades(("a", 10, 0)), right)) == {0: 5}


@pytest.mark.parametrize("values", [(None, 1.0, math.inf, math.nan), (-math.inf, -0.5, math.nan)])
def test_of_one_time_the_greatest_is_last_and_that_is_nan_as_to_spark(values):
    when = pa.array([0], pa.int64()).cast(pa.timestamp("us"))
    left = pa.table({"sym": ["a"], "ts": when})
    for order in (values, values[::-1]):
        times = pa.chunked_array([when] * len(order))
        right = pa.table({"sym": ["a"] * len(order), "ts": times, "o": pa.array(order)})
        (found,) = AsOf(("sym",), "ts", 0, ("o",)).joined(left, right)["o"].to_pylist()
        assert math.isnan(found)


def test_sides_may_be_empty():
    assert found(JOIN.joined(trades(("a", 1, 0)), quotes())) == {0: None}
    assert len(JOIN.joined(trades(), quotes(("a", 1, 0)))) == 0
    assert len(JOIN.joined(trades(), quotes())) == 0


@pytest.mark.parametrize(
    ("left", "right", "join", "says"),
    [
        (TRADES, QUOTES.append(pa.field("id", pa.int8())), JOIN, "both sides have a column 'id'"),
        (TRADES, QUOTES.remove(0), JOIN, "the right side has no column 'sym'"),
        (TRADES.set(0, pa.field("sym", pa.int64())), QUOTES, JOIN, "int64 on the left and string"),
        (TRADES, QUOTES, AsOf(("sym",), "ts", 1, ("m",)), "no column 'm', which order names"),
        (TRADES, QUOTES, AsOf((), "ts", 1), "name at least one column"),
        (TRADES, QUOTES, AsOf(("ts",), "sym", 1), "the time column 'sym' is string"),
    ],
)
def test_columns_that_do_not_fit_are_refused(left, right, join, says):
    with pytest.raises(ValueError, match=says):
        join.result_schema(left, right)
