"""As-of joins: of whole tables against a naive model, and of streams table by table."""

import math
import random

import pyarrow as pa
import pytest

from conflated_topics.asof import AsOf, Came, JoinBuckets, Side, Sides, take_in
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


def several(chance, *sides):
    """Both logs in batches, each of some rows of each side, those of a batch in any order."""
    places = [0 for _ in sides]
    while any(place < len(side) for place, side in zip(places, sides, strict=True)):
        batch = []
        for at, side in enumerate(sides):
            count = chance.choice([0, 1, 3, 20])
            batch.append(side[places[at] : places[at] + count])
            places[at] += count
            chance.shuffle(batch[-1])
        yield batch


def swapped(chance, log, lateness_us):
    """The log with rows out of order by no more than `lateness_us`."""
    return sorted(log, key=lambda row: row[1] + chance.uniform(0, lateness_us))


END_US = 2_000_000


@all_cases("seed", range(60))
def test_a_stream_cut_anyhow_is_the_join_of_the_whole(seed):
    chance = random.Random(seed)
    left, right = logs(seed)
    lateness_us = chance.choice([0, 0, 7, 40])
    buckets = JoinBuckets(JOIN, TRADES, QUOTES, lateness_us)
    came = [swapped(chance, log, lateness_us) for log in (left, right)]
    batches = [*several(chance, *came), [[], []]]
    state, result = None, {}
    for number, (lefts, rights) in enumerate(batches):
        sides = buckets._sides(state)  # through bytes before each batch
        ends = number == len(batches) - 1
        newest = [
            END_US if ends else max((row[1] for row in rows), default=None)
            for rows in (lefts, rights)
        ]
        sides, rows, late = take_in(
            sides, JOIN, Came(trades(*lefts), quotes(*rights), *newest), lateness_us
        )
        assert set(late.values()) == {0}
        assert not result.keys() & set(found(rows))
        result |= found(rows)
        state = buckets._bytes(sides)
    assert result == naive(left, right)
    assert (len(sides.left.rows), len(sides.right.rows)) == (0, 0)


def fresh():
    return Sides(Side(TRADES.empty_table()), Side(QUOTES.empty_table()))


def test_a_row_waits_until_the_right_has_gone_beyond_it():
    sides, rows, _ = take_in(fresh(), JOIN, Came(trades(("a", 5, 0)), quotes(), 5, None), 0)
    assert len(rows) == 0
    sides, rows, _ = take_in(sides, JOIN, Came(trades(), quotes(("a", 5, 1)), None, 5), 0)
    assert len(rows) == 0
    _, rows, _ = take_in(sides, JOIN, Came(trades(), quotes(("b", 6, 2)), None, 6), 0)
    assert found(rows) == {0: 1}


def test_late_rows_take_no_part_and_are_counted():
    came = Came(trades(("a", 50, 0)), quotes(("a", 49, 1)), 50, 49)
    sides, _, late = take_in(fresh(), JOIN, came, 0)
    assert late == {"late_left": 0, "late_right": 0}
    came = Came(trades(("a", 49, 1), ("a", 50, 2)), quotes(("a", 48, 2)), 50, 60)
    _, rows, late = take_in(sides, JOIN, came, 0)
    assert (found(rows), late) == ({0: 1, 2: 1}, {"late_left": 1, "late_right": 1})


def test_of_the_right_only_what_may_still_be_joined_is_kept():
    rights = quotes(*(("a", at, at) for at in range(100)), ("b", 80, 1), ("c", 95, 2))
    came = Came(trades(("a", 98, 0)), rights, 98, 99)
    sides, rows, _ = take_in(fresh(), JOIN, came, 0)
    assert found(rows) == {0: 98}
    kept = sides.right.rows
    assert list(zip(kept["sym"].to_pylist(), kept["n"].to_pylist(), strict=True)) == [
        ("a", 98),
        ("a", 99),
        ("c", 2),
    ]


def test_a_state_is_gone_on_with_only_by_the_same_join():
    buckets = JoinBuckets(JOIN, TRADES, QUOTES)
    data = buckets._bytes(buckets._sides(None))
    assert buckets.turn(data, [], [], -(2**63), -(2**63))[0] == data
    other = JoinBuckets(AsOf(("sym",), "ts", 11, ("n",)), TRADES, QUOTES)
    with pytest.raises(ValueError, match="another as-of join: it has tolerance_us 10, not 11"):
        other._sides(data)
    with pytest.raises(ValueError, match="buckets 32, not 8"):
        JoinBuckets(JOIN, TRADES, QUOTES, count=8)._sides(data)
    with pytest.raises(ValueError, match="cut short"):
        buckets._sides(data[:-1])
    with pytest.raises(ValueError, match="not the state of any as-of join"):
        buckets._sides(b"CTRO" + data[4:])
