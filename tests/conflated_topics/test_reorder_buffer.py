"""Records out of order: what waits for them, what is late, and what is remembered of it all."""

import random

import pyarrow as pa
import pytest

from conflated_topics.recorded import Spec, State, conflate_table
from conflated_topics.reorder_buffer import OrderedStream, fall_silent, take_in
from tests.cases import all_cases

SPEC = Spec(("key",), "at", 10, order=("n",), delete="gone")
SCHEMA = pa.schema(
    [("key", "string"), ("at", pa.timestamp("us")), ("n", "int64"), ("gone", "bool")]
)


def log(*records):
    """(key, time, number) or (key, time, number, True) for a delete."""
    names = SCHEMA.names
    return pa.Table.from_pylist(
        [dict(zip(names, (*record, False)[:4], strict=True)) for record in records], SCHEMA
    )


def said(table):
    """(key, window start, number) of each row."""
    start = table["window_start"].cast(pa.int64()).to_pylist()
    return list(zip(table["key"].to_pylist(), start, table["n"].to_pylist(), strict=True))


def numbers(table):
    return table["n"].to_pylist()


class Fed:
    """A stream that is fed batch by batch, its state going through bytes before each."""

    def __init__(self, lateness_us):
        self.lateness_us = lateness_us
        self.stream = OrderedStream(State(SPEC))

    def feed(self, *records, newest=None, ends=False):
        """What the windows that have ended say, and the numbers of late records."""
        came = log(*records)
        newest = max(
            [*(record[1] for record in records), *([newest] if newest else [])], default=None
        )
        self.stream = OrderedStream.from_bytes(self.stream.to_bytes(4), SPEC, 4)
        self.stream, out, late = take_in(self.stream, came, newest, self.lateness_us, ends)
        return said(out), numbers(late)


def test_records_that_are_late_by_what_is_allowed_take_part_in_their_order():
    fed = Fed(5)
    assert fed.feed(("k", 10, 3), ("k", 12, 4)) == ([], [])
    assert fed.feed(("k", 7, 1), ("k", 11, 2)) == ([], [])
    assert fed.feed(("l", 22, 5)) == ([("k", 7, 4)], [])


def test_a_record_later_than_that_is_never_folded():
    fed = Fed(5)
    fed.feed(("k", 10, 1), ("k", 20, 2))
    assert fed.feed(("k", 14, 3), ("k", 15, 4)) == ([], [3])
    assert fed.feed(ends=True) == ([("k", 10, 4), ("k", 20, 2)], [])


def test_records_of_one_batch_do_not_make_each_other_late():
    fed = Fed(0)
    assert fed.feed(("k", 50, 2), ("k", 0, 1)) == ([("k", 0, 1)], [])


def test_the_time_of_other_keys_counts():
    fed = Fed(0)
    assert fed.feed(("k", 0, 1), newest=9) == ([], [])
    assert fed.feed(newest=10) == ([("k", 0, 1)], [])
    assert fed.feed(("k", 9, 2)) == ([], [2])


def test_ties_of_time_are_broken_over_batches():
    fed = Fed(0)
    fed.feed(("k", 0, 5))
    fed.feed(("k", 0, 3))
    assert fed.feed(ends=True) == ([("k", 0, 5)], [])


def test_nothing_waits_for_a_stream_that_has_said_nothing_of_time():
    fed = Fed(0)
    assert fed.feed() == ([], [])
    assert fed.feed(ends=True) == ([], [])


def test_what_ended_is_closed_and_what_is_held_is_remembered():
    fed = Fed(5)
    fed.feed(("k", 0, 1), ("l", 8, 2))
    assert fed.feed(ends=True) == ([("k", 0, 1), ("l", 8, 2)], [])
    # Late is what is older than the newest; k's window is not reopened, but another opened.
    assert fed.feed(("k", 7, 3), ("k", 8, 4), ("l", 9, 5, True), ("m", 9, 6, True)) == ([], [3])
    assert fed.feed(ends=True) == ([("k", 8, 4), ("l", 9, 5)], [])


def test_lateness_may_change_from_run_to_run():
    fed = Fed(0)
    fed.feed(("k", 100, 1))
    fed.lateness_us = 50
    assert fed.feed(("k", 99, 2), ("k", 101, 3)) == ([], [2])
    assert fed.feed(("k", 120, 4), ("k", 100, 5)) == ([], [])
    assert fed.feed(ends=True) == ([("k", 100, 3), ("k", 120, 4)], [])


def test_silence_ends_windows_and_makes_as_little_late_as_can_be():
    fed = Fed(5)
    fed.feed(("k", 0, 1), ("l", 7, 2), ("k", 12, 3))
    fed.stream, out = fall_silent(fed.stream, 9)
    assert said(out) == []
    fed.stream, out = fall_silent(fed.stream, 18)
    assert said(out) == [("k", 0, 1), ("l", 7, 2)]
    assert fed.feed(("k", 16, 4), ("k", 17, 5)) == ([], [4])
    assert fed.feed(ends=True) == ([("k", 12, 5)], [])
    with pytest.raises(ValueError, match="nothing has come yet"):
        fall_silent(OrderedStream(State(SPEC)), 0)


@all_cases("lateness_us", [0, 3, 40])
@all_cases("seed", range(20))
def test_any_batches_give_the_windows_of_what_was_not_late(seed, lateness_us):
    chance = random.Random(seed)
    records = [
        (f"k{chance.randrange(4)}", chance.randrange(120), n, chance.random() < 0.2)
        for n in range(80)
    ]
    coming = sorted(records, key=lambda record: record[1] + chance.randrange(30))
    fed, found, late = Fed(lateness_us), [], []
    while coming:
        size = chance.randrange(1, 20)
        rows, missed = fed.feed(*coming[:size])
        found, late, coming = found + rows, late + missed, coming[size:]
    rows, _ = fed.feed(ends=True)
    whole = conflate_table(log(*(record for record in records if record[2] not in late)), SPEC)
    assert sorted(found + rows) == sorted(said(whole))


# --- state


def test_a_state_that_cannot_go_on_is_refused_with_what_to_do():
    stream, _, _ = take_in(OrderedStream(State(SPEC)), log(("k", 0, 1)), 0, 0)
    data = stream.to_bytes(32)
    assert OrderedStream.from_bytes(data, SPEC, 32).to_bytes(32) == data
    for bad, message in [
        (stream.state.to_bytes(), r"written by an earlier release.*shuffle partitions.*checkpoint"),
        (b"anything", "not the state of any conflated stream; begin again"),
        (data[:4] + b"\x07\x00" + data[6:], "the version 7, and this release reads 1"),
        (data[:30], "cut short"),
        (data[:-9], "cut short"),
    ]:
        with pytest.raises(ValueError, match=message):
            OrderedStream.from_bytes(bad, SPEC, 32)
    with pytest.raises(
        ValueError, match="it has buckets 32, not 8; continue with its settings, or begin again"
    ):
        OrderedStream.from_bytes(data, SPEC, 8)
    with pytest.raises(ValueError, match="interval_us 10, not 20"):
        OrderedStream.from_bytes(data, Spec(("key",), "at", 20, order=("n",), delete="gone"), 32)


def test_other_columns_than_those_before_are_refused():
    stream, _, _ = take_in(OrderedStream(State(SPEC)), log(("k", 0, 1)), 0, 0)
    more = log(("k", 0, 1)).append_column("more", pa.array([1]))
    with pytest.raises(ValueError, match=r"other columns than those before it: \['more int64'\]"):
        take_in(stream, more, 0, 0)
