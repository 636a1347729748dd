"""Conflation of recorded logs: windows, deletes, streams and the state between batches.

That it equals a naive reference, the embedded engine and itself in any split is in
test_recorded_laws.py; what becomes of values of each type in test_recorded_values.py.

An envelope is decoded completely, or refused with a sentence; tables are bytes and back.
"""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conflated_topics import recorded
from conflated_topics.recorded import (
    Envelope,
    Spec,
    State,
    conflate_table,
    cut,
    from_ipc,
    standing_alone,
    step,
    to_ipc,
)
from tests.conflated_topics.logs import (
    DELETES,
    INTERVAL,
    SCHEMA,
    SPEC,
    brief,
    joined,
    log,
    of_all_types,
    rows,
    table,
)


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


def test_keys_of_several_columns_are_sent_apart():
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
def test_who_was_not_sent_of_a_record_is_not_sent_that_it_left(records, expected):
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


def test_state_of_another_spec_or_version_is_refused():
    state, _ = step(State(SPEC), log(("k", 0, 1)))
    data = state.to_bytes()
    assert State.from_bytes(data, SPEC).pending.equals(state.pending)
    with pytest.raises(ValueError, match=r"interval_us 10, not 20"):
        State.from_bytes(data, Spec(("key",), "at", 20))
    with pytest.raises(ValueError, match=r"policy 'latest', not .*logs:joined"):
        State.from_bytes(data, Spec(("key",), "at", INTERVAL, policy=joined))
    with pytest.raises(ValueError, match="version 7"):
        State.from_bytes(data[:4] + b"\x07\x00" + data[6:], SPEC)
    for nonsense in (b"", b"CTRS", b"something else"):
        with pytest.raises(ValueError, match="not the state of any conflation"):
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


def test_times_keep_their_zone():
    result = conflate_table(log(("k", 0, 1)), SPEC)
    assert result["window_end"].to_pylist() == [datetime(1970, 1, 1, 0, 0, 0, INTERVAL, tzinfo=UTC)]


def test_a_record_can_stand_alone():
    spec = Spec(("key",), "at", INTERVAL, policy={"whole": "sum", "name": "count"})
    records = table([{"key": "k", "at": 3, "whole": 7, "name": "ann"}])
    alone = standing_alone(records, spec)
    assert alone.schema == spec.output_schema(SCHEMA)
    assert rows(alone, "key", "at", "whole", "name", "window_start", "window_end") == [
        ("k", 3, 7, 1, None, None)
    ]


keys = st.lists(
    st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=8), max_size=5
)


def columns(log):
    """Keys one after the other, each in the order of time: times, first records, openers."""
    rows = [
        (at, place == 0, opens)
        for key in log
        for place, (at, opens) in enumerate(sorted(key, key=lambda one: one[0]))
    ]
    times, leads, opens = zip(*rows, strict=True) if rows else ((), (), ())
    return np.array(times, np.int64), np.array(leads, bool), np.array(opens, bool)


def naive(times, leads, interval, opens):
    """What the rule says, record by record."""
    found, end_us = [], None
    for at, (time, lead) in enumerate(zip(times, leads, strict=True)):
        if lead:
            end_us = None
        if end_us is not None and time >= end_us:
            end_us = None
        if end_us is None and (opens is None or opens[at]):
            found.append([at, at])
            end_us = time + interval
        if end_us is not None:
            found[-1][1] = at + 1
    return found


@given(keys, st.integers(1, 40), st.booleans())
def test_windows_are_those_of_walking_record_by_record(log, interval, some_open):
    times, leads, opens = columns(log)
    chosen = opens if some_open else None
    starts, ends = cut(times, leads, interval, chosen)
    wanted = naive(times.tolist(), leads.tolist(), interval, chosen)
    assert starts.tolist() == [start for start, _ in wanted]
    # A window ends before the next record that it does not hold, whether that opens one or not.
    for (start, last), end in zip(wanted, ends.tolist(), strict=True):
        assert end >= last
        assert np.all(times[start:end] < times[start] + interval)
        assert not leads[start + 1 : end].any()


def test_a_record_at_the_end_of_a_window_opens_the_next():
    times = np.array([0, 9, 10, 19, 20], np.int64)
    leads = np.array([True, *[False] * 4])
    starts, ends = cut(times, leads, 10)
    assert starts.tolist() == [0, 2, 4]
    assert ends.tolist() == [2, 4, 5]


def test_nothing_has_no_windows():
    starts, ends = cut(np.array([], np.int64), np.array([], bool), 10)
    assert (len(starts), len(ends)) == (0, 0)


def test_nobody_may_open_a_window():
    starts, _ = cut(np.array([1], np.int64), np.array([True]), 10, np.array([False]))
    assert len(starts) == 0


@given(keys.filter(lambda log: len(log) > 1), st.integers(1, 40))
def test_a_line_that_is_cut_in_two_has_the_same_windows(log, interval):
    times, leads, _ = columns(log)
    whole = cut(times, leads, interval)
    with pytest.MonkeyPatch.context() as patch:
        longest = max(sum(np.diff(sorted(at for at, _ in key)), 0) for key in log)
        patch.setattr(recorded, "LINE_US_MAX", interval + longest + 1)
        halves = cut(times, leads, interval)
    assert [part.tolist() for part in halves] == [part.tolist() for part in whole]


def test_times_that_lie_too_far_apart_are_refused():
    times = np.array([-(2**62), 2**62], np.int64)
    with pytest.raises(ValueError, match="73,000 years"):
        cut(times, np.array([True, False]), 10)


def test_an_interval_longer_than_all_time_is_one_window():
    starts, ends = cut(np.array([0, 5], np.int64), np.array([True, False]), 2**61)
    assert (starts.tolist(), ends.tolist()) == ([0], [2])


@pytest.mark.parametrize("interval", [1, 10**6, 2**61])
def test_positions_beyond_64_bits_are_halved(interval):
    # Each key spans 60,000 years, so that all of them end to end would not fit.
    pick = np.random.default_rng(4)
    times = np.sort(pick.integers(0, 2**60, (20, 50)), axis=1).ravel()
    leads = np.arange(1000) % 50 == 0
    starts, stops = cut(times, leads, interval)
    assert starts.tolist() == [first for first, _ in naive(times.tolist(), leads, interval, None)]
    assert stops.tolist() == [*starts.tolist()[1:], 1000]


@pytest.mark.parametrize("interval", [2**58, 2**59])
def test_long_intervals_over_long_times_are_cut_right(interval):
    times = np.sort(np.random.default_rng(5).integers(-(2**59), 2**59, (40, 30)), axis=1).ravel()
    leads = np.arange(1200) % 30 == 0
    starts, _ = cut(times, leads, interval)
    assert starts.tolist() == [first for first, _ in naive(times.tolist(), leads, interval, None)]


def test_times_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="73,000 years apart"):
        cut(np.array([-(2**62), 2**62]), np.array([True, False]), 10)


ENVELOPE = Envelope(b"TEST", 3, "test", "begin again")
ABOUT = {"keys": ["a"], "newest_us": None}
PARTS = [b"first", b"", b"\0third"]
SEALED = ENVELOPE.seal(ABOUT, PARTS)


def test_what_is_sealed_is_opened_as_it_was():
    about, parts = ENVELOPE.open(SEALED)
    assert about == {**ABOUT, "sizes": [5, 0, 6]}
    assert parts == PARTS
    assert ENVELOPE.open(ENVELOPE.seal({}, [])) == ({"sizes": []}, [])


def test_what_is_cut_short_or_goes_on_too_long_is_refused():
    for data in [SEALED[:size] for size in range(10, len(SEALED))] + [SEALED + b"x"]:
        with pytest.raises(ValueError, match="cut short; use an earlier one, or begin again"):
            ENVELOPE.open(data)


@pytest.mark.parametrize("data", [b"", b"TEST", b"ELSE" + SEALED[4:]])
def test_what_is_something_else_is_refused(data):
    with pytest.raises(ValueError, match="this is not the state of any test; begin again"):
        ENVELOPE.open(data)


def test_another_version_is_refused_by_both_numbers():
    other = Envelope(b"TEST", 4, "test", "begin again")
    with pytest.raises(ValueError, match="the version 3, and this release reads 4"):
        other.open(SEALED)


def test_what_was_stored_under_other_values_is_refused_by_both():
    stored = {"keys": ["a"], "order": [], "time": "ts"}
    ENVELOPE.refuse_another(stored, {"keys": ["a"]})
    says = (
        r"another test: it has keys \['a'\], not \['b'\], late None, not 2; "
        "continue with its settings"
    )
    with pytest.raises(ValueError, match=says):
        ENVELOPE.refuse_another(stored, {"keys": ["b"], "order": [], "late": 2})


def test_the_bytes_are_those_that_are_on_disks_already():
    assert SEALED[:10] == b"TEST\x03\x00" + len(SEALED[10:-11]).to_bytes(4, "little")
    assert SEALED[10:-11] == b'{"keys": ["a"], "newest_us": null, "sizes": [5, 0, 6]}'
    assert SEALED[-11:] == b"first\0third"


TABLES = {
    "rows": pa.table({"key": ["a", None], "at": pa.array([1, 2], pa.timestamp("us", "UTC"))}),
    "no rows": pa.table({"key": pa.array([], pa.string())}),
    "no columns": pa.table({}),
    "several batches": pa.concat_tables([pa.table({"n": [1]}), pa.table({"n": [2, 3]})]),
    "a dictionary": pa.table({"key": pa.array(["a", "b", "a"]).dictionary_encode()}),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_comes_back_as_it_was(table):
    back = from_ipc(to_ipc(table))
    assert back.schema == table.schema
    assert back.to_pydict() == table.to_pydict()


def test_what_is_no_stream_is_refused():
    with pytest.raises(pa.ArrowInvalid):
        from_ipc(b"PAR1")
