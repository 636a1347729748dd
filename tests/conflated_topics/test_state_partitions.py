"""Buckets of a conflated stream: whatever the triggers, partitions and restarts, the same result.

Here a stream is run as Spark runs it, without Spark: the rows of each trigger in partitions, the
packed rows of each bucket together, its state as bytes in between.
"""

import random
import zlib

import numpy as np
import pyarrow as pa
import pytest

from conflated_topics.recorded import Spec, State, conflate_table
from conflated_topics.state_partitions import (
    AHEAD,
    BUCKET,
    KEYLESS,
    LATE,
    NEVER_US,
    PACKED,
    TAKEN,
    TICK,
    VERDICT,
    Buckets,
    OrderedStream,
    fall_silent,
    take_in,
)
from tests.cases import all_cases
from tests.conflated_topics.engines import LOG, embedded, random_log, said_by
from tests.effort import seeds

BY_N = Spec(("key",), "at", 10, order=("n",), delete="gone")
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
        self.stream = OrderedStream(State(BY_N))

    def feed(self, *records, newest=None, ends=False):
        """What the windows that have ended say, and the numbers of late records."""
        came = log(*records)
        newest = max(
            [*(record[1] for record in records), *([newest] if newest else [])], default=None
        )
        self.stream = OrderedStream.from_bytes(self.stream.to_bytes(4), BY_N, 4)
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
        fall_silent(OrderedStream(State(BY_N)), 0)


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
    whole = conflate_table(log(*(record for record in records if record[2] not in late)), BY_N)
    assert sorted(found + rows) == sorted(said(whole))


# --- state


def test_a_state_that_cannot_go_on_is_refused_with_what_to_do():
    stream, _, _ = take_in(OrderedStream(State(BY_N)), log(("k", 0, 1)), 0, 0)
    data = stream.to_bytes(32)
    assert OrderedStream.from_bytes(data, BY_N, 32).to_bytes(32) == data
    for bad, message in [
        (stream.state.to_bytes(), r"written by an earlier release.*shuffle partitions.*checkpoint"),
        (b"anything", "not the state of any conflated stream; begin again"),
        (data[:4] + b"\x07\x00" + data[6:], "the version 7, and this release reads 1"),
        (data[:30], "cut short"),
        (data[:-9], "cut short"),
    ]:
        with pytest.raises(ValueError, match=message):
            OrderedStream.from_bytes(bad, BY_N, 32)
    with pytest.raises(
        ValueError, match="it has buckets 32, not 8; continue with its settings, or begin again"
    ):
        OrderedStream.from_bytes(data, BY_N, 8)
    with pytest.raises(ValueError, match="interval_us 10, not 20"):
        OrderedStream.from_bytes(data, Spec(("key",), "at", 20, order=("n",), delete="gone"), 32)


def test_other_columns_than_those_before_are_refused():
    stream, _, _ = take_in(OrderedStream(State(BY_N)), log(("k", 0, 1)), 0, 0)
    more = log(("k", 0, 1)).append_column("more", pa.array([1]))
    with pytest.raises(ValueError, match=r"other columns than those before it: \['more int64'\]"):
        take_in(stream, more, 0, 0)


@pytest.mark.parametrize("lateness_us", [0, 40])
def test_a_state_of_another_zone_goes_on_since_a_moment_is_the_same_in_all(lateness_us):
    def through(*zones):
        stream, found = OrderedStream(State(BY_N)), []
        for at, zone in enumerate(zones):
            rows = log(("k", 10 * at, at), ("l", 10 * at + 1, at))
            place = rows.schema.get_field_index("at")
            rows = rows.set_column(place, "at", rows["at"].cast(pa.timestamp("us", tz=zone)))
            stream, out, _ = take_in(stream, rows, 10 * at + 1, lateness_us)
            stream = OrderedStream.from_bytes(stream.to_bytes(32), BY_N, 32)
            found += out.to_pylist()
        return found

    assert through(*["UTC"] * 8) == through(*["Europe/Berlin"] * 4, *["UTC"] * 4) != []


INTERVAL_US = 100_000
LATENESS_US = 300_000
ORDERED = LOG.append(pa.field("place", pa.int64()))
SPEC = Spec(("key",), "ts", INTERVAL_US, order=("place",), delete="gone")


class Driver:
    """What Spark does for a stream: divides rows, brings buckets together, keeps their states."""

    def __init__(self, count=3, lateness_us=LATENESS_US, seed=0):
        self.buckets = Buckets(SPEC, ORDERED, lateness_us, count)
        self.states = dict.fromkeys(range(count))
        self.chance = random.Random(seed)
        self.rows = []

    def trigger(self, table, verdicts=None, ends=False):
        """One batch, in any number of partitions; some fail at first and are run again."""
        verdicts = (
            np.zeros(len(table), np.int8) if verdicts is None else np.array(verdicts, np.int8)
        )
        codes = [
            zlib.crc32((key or "").encode()) % self.buckets.count
            for key in table["key"].to_pylist()
        ]
        table = table.append_column(VERDICT, pa.array(verdicts))
        table = table.append_column(BUCKET, pa.array(codes, pa.int32()))
        partitions = np.array([self.chance.randrange(5) for _ in codes], np.int8)
        packed = []
        for partition in range(5):
            part = table.filter(pa.array(partitions == partition))
            packed += self.buckets.pack(part.to_batches(max_chunksize=7))
        if ends:
            packed += self.buckets.end([pa.record_batch({"any": [1]})])
        self.chance.shuffle(packed)
        for bucket, came in self._by_bucket(packed).items():
            attempts = 1 + (self.chance.random() < 0.2)
            turns = [self.buckets.turn(self.states[bucket], *came) for _ in range(attempts)]
            assert turns[0].state == turns[-1].state
            self.states[bucket] = turns[-1].state
            self.rows.append(turns[-1].rows)

    def _by_bucket(self, packed):
        if not packed:
            return {}
        rows = pa.Table.from_batches(packed, PACKED).to_pylist()
        mine = {bucket: [row for row in rows if row[BUCKET] == bucket] for bucket in self.states}
        assert all(mine.values()), "every bucket gets every trigger"
        return {
            bucket: (
                [row["rows"] for row in came],
                max(row["newest_us"] for row in came),
                any(row["ends"] for row in came),
            )
            for bucket, came in mine.items()
        }

    def result(self, verdict=TAKEN):
        rows = pa.concat_tables(self.rows)
        return rows.filter(pa.array(np.asarray(rows[VERDICT]) == verdict))


def in_order(seed):
    """A log in order of time, and where each record stands in it."""
    log = random_log(seed).sort_by("ts")
    return log.append_column("place", pa.array(np.arange(len(log))))


def as_it_comes(log, delay_us, chance):
    """The same records, each delayed by up to so much."""
    ts = np.asarray(log["ts"].cast(pa.int64()))
    delays = np.array([chance.randrange(delay_us + 1) for _ in ts])
    return log.take(pa.array(np.argsort(ts + delays, kind="stable")))


def in_triggers(driver, coming):
    """The records, cut anywhere; some triggers have none."""
    at = 0
    while at < len(coming):
        size = driver.chance.choice([0, 1, 3, 10, 40])
        driver.trigger(coming.slice(at, size))
        at += size
    driver.trigger(coming.slice(0, 0), ends=True)


GROUP = 20
"""Logs of one test: a second or so."""


@pytest.mark.parametrize("part", seeds(2))
def test_logs_in_any_pieces_say_what_the_batch_and_the_embedded_engine_say(part):
    for seed in range(GROUP * part, GROUP * part + GROUP):
        log, driver = in_order(seed), Driver(seed=seed)
        in_triggers(driver, as_it_comes(log, LATENESS_US, driver.chance))
        assert len(driver.result(LATE)) == 0
        said = said_by(driver.result())
        assert len(said) == len(driver.result())
        assert said == said_by(conflate_table(log, SPEC)) == embedded(log, INTERVAL_US), seed


def test_what_comes_later_still_is_set_aside_and_the_others_are_as_if_it_were_not():
    late = 0
    for seed in seeds(GROUP):
        log, driver = in_order(seed), Driver(lateness_us=LATENESS_US // 6, seed=seed)
        in_triggers(driver, as_it_comes(log, LATENESS_US, driver.chance))
        aside = driver.result(LATE)
        assert aside["window_start"].null_count == aside["window_end"].null_count == len(aside)
        places = set(aside["place"].to_pylist())
        late += len(places)
        kept = log.filter(pa.array([place not in places for place in log["place"].to_pylist()]))
        assert said_by(driver.result()) == embedded(kept, INTERVAL_US), seed
    assert late > 10


def table(*records):
    """(key, time, place)."""
    rows = [
        {"key": key, "ts": time, "value": "{}", "gone": False, "place": place}
        for key, time, place in records
    ]
    return pa.Table.from_pylist(rows, ORDERED)


def test_rows_that_take_no_part_come_out_as_they_are_and_stop_no_clock():
    driver = Driver()
    driver.trigger(
        table(("a", 0, 0), ("a", 10**15, 1), (None, 5, 2), ("a", INTERVAL_US, 3)),
        [TAKEN, AHEAD, KEYLESS, TAKEN],
    )
    driver.trigger(table(("a", LATENESS_US + INTERVAL_US, 4)))
    assert driver.result()["place"].to_pylist() == [0]
    assert driver.result(AHEAD)["place"].to_pylist() == [1]
    assert driver.result(KEYLESS)["place"].to_pylist() == [2]
    assert len(driver.result(LATE)) == 0


def test_a_tick_reports_all_keys_the_time_and_is_no_row():
    driver = Driver(lateness_us=0)
    driver.trigger(table(("a", 0, 0), ("b", 0, 1)))
    driver.trigger(table((None, INTERVAL_US, None)), [TICK])
    assert sorted(driver.result()["place"].to_pylist()) == [0, 1]
    assert sum(map(len, driver.rows)) == 2


def test_a_tick_without_a_time_says_nothing():
    driver = Driver(lateness_us=0)
    driver.trigger(table(("a", 0, 0)))
    driver.trigger(table((None, None, None)), [TICK])
    assert len(driver.result()) == 0


def test_a_bucket_that_is_silent_hands_on_what_has_ended_by_the_clock():
    buckets = Buckets(SPEC, ORDERED, 0, 1)
    packed = table(("a", 0, 0), ("b", 60_000, 1))
    packed = packed.append_column(VERDICT, pa.array([0, 0], pa.int8()))
    (batch,) = packed.append_column(BUCKET, pa.array([0, 0], pa.int32())).to_batches()
    (came,) = buckets.pack([batch])
    turn = buckets.turn(None, came["rows"].to_pylist(), came["newest_us"][0].as_py(), False)
    assert turn.waits
    turn = buckets.silence(turn.state, INTERVAL_US)
    assert turn.rows["place"].to_pylist() == [0]
    turn = buckets.silence(turn.state, 2 * INTERVAL_US)
    assert turn.rows["place"].to_pylist() == [1]
    assert not turn.waits
    assert buckets.turn(None, [], NEVER_US, False).rows.schema == buckets.result_schema()


def test_rows_that_cannot_be_sent_apart_or_timed_are_refused_before_they_are_kept():
    driver = Driver()
    with pytest.raises(ValueError, match="1 records have no 'key'"):
        driver.trigger(table((None, 0, 0)))
    with pytest.raises(ValueError, match="1 records have no time in 'ts'"):
        driver.trigger(table(("a", None, 0)))
    assert set(driver.states.values()) == {None}


@pytest.mark.parametrize("count", [0, 5000])
def test_so_many_buckets_cannot_be(count):
    with pytest.raises(
        ValueError, match=f"{count} is no number of buckets; write a number from 1 to 4096"
    ):
        Buckets(SPEC, ORDERED, 0, count)
