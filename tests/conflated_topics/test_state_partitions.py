"""Buckets of a conflated stream: whatever the triggers, partitions and restarts, the same result.

Here a stream is run as Spark runs it, without Spark: the rows of each trigger in partitions, the
packed rows of each bucket together, its state as bytes in between.
"""

import random
import zlib

import numpy as np
import pyarrow as pa
import pytest

from conflated_topics.recorded import Spec, conflate_table
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
)
from tests.conflated_topics.engines import LOG, embedded, random_log, said_by
from tests.effort import seeds

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
