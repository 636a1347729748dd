"""The embedded engine under a recorded log, and the logs that engines are compared on.

What an engine says of a log is a set of (key, window start, due, body, gone): when each window
began, when it was due, and what it gave. The embedded engine gathers releases onto a grid; a
schedule that remembers when its windows were opened says what each release stands for.
"""

import math
import os
import random
from collections import defaultdict

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from conflated_topics import FocusedConflator, PerKey
from conflated_topics.recorded import Spec, conflate_table
from tests.recordings import BUSES, MARKET

ROWS = None if os.environ.get("SOW_FULL") else 150_000

UTC = pa.timestamp("us", tz="UTC")
LOG = pa.schema([("key", pa.string()), ("ts", UTC), ("value", pa.string()), ("gone", pa.bool_())])


class Remembering(PerKey):
    """The schedule of the server's conflated topics, and when the windows were opened."""

    def __init__(self, interval_us):
        super().__init__(interval_us)
        self._opened = defaultdict(dict)

    def open(self, keys, now_us):
        # First, since the grid may begin again with it.
        super().open(keys, now_us)
        release_us = self.release_us(now_us + self.interval_us)
        self._opened[release_us].update(dict.fromkeys(keys, now_us))

    def released_at(self, due_us):
        """When the windows were opened that are released at `due_us`, by key."""
        return self._opened.pop(due_us)


def embedded(log, interval_us):
    """What the server's own conflation says of a log, driven record by record."""
    schedule, held, said = Remembering(interval_us), set(), set()
    topic = FocusedConflator(schedule, held.__contains__)

    def advance(now_us):
        while (due_us := topic.due_us()) is not None and due_us <= now_us:
            # Every window that is released now; one whose record came and went says nothing.
            opened = schedule.released_at(due_us)
            updates, removals = topic.take(due_us)
            for key, value in updates:
                said.add((key, opened[key], opened[key] + interval_us, value, False))
                held.add(key)
            for removal in removals:
                start_us = opened[removal.key]
                said.add((removal.key, start_us, start_us + interval_us, removal.value, True))
                held.discard(removal.key)

    columns = (log["key"], log["ts"].cast(pa.int64()), log["value"], log["gone"])
    for key, ts_us, value, gone in zip(*(c.to_pylist() for c in columns), strict=True):
        advance(ts_us)
        if gone:
            topic.remove((key,), (value,), "deleted", ts_us)
        else:
            topic.offer((key,), (value,), ts_us, None)
    advance(math.inf)
    return said


def spec(interval_us):
    return Spec(("key",), "ts", interval_us, delete="gone")


def recorded(log, interval_us):
    """What the vectorised core says of it."""
    return said_by(conflate_table(log, spec(interval_us)))


def said_by(table):
    """The rows of a conflated table in the common form."""
    start, end = (table[name].cast(pa.int64()) for name in ("window_start", "window_end"))
    columns = (table["key"], start, end, table["value"], table["gone"])
    return set(zip(*(column.to_pylist() for column in columns), strict=True))


def random_logs(count):
    """Many random logs as one, in order of time; each has keys of its own."""
    return pa.concat_tables(map(random_log, range(count))).sort_by("ts")


def random_log(seed):
    """A random log with keys of its own, in order of time."""
    chance = random.Random(seed)
    rows, now_us, keys = [], 1_700_000_000_000_000, chance.randrange(1, 5)
    for n in range(chance.randrange(1, 60)):
        now_us += chance.choice([0, 1, 7, 40_000, 99_999, 100_000, 100_001, 350_000])
        key = f"{seed}/{chance.randrange(keys)}"
        rows.append((now_us, key, f'{{"n":{n}}}', chance.random() < 0.3))
    ts, keys, values, gone = zip(*rows, strict=True)
    ts = pa.array(ts, pa.int64()).cast(UTC)
    return pa.table([keys, ts, values, gone], schema=LOG)


def book_levels(recordings, rows=None):
    """The recorded order books: a level without quantity is gone."""
    table = pyarrow.parquet.read_table(recordings / MARKET / "book_levels.parquet")
    table = table.slice(0, rows)
    text = {name: table[name].cast(pa.string()) for name in ("market", "symbol", "side", "price")}
    key = pc.binary_join_element_wise(*text.values(), "/")
    value = pc.binary_join_element_wise('{"qty":', table["qty"].cast(pa.string()), "}", "")
    return _log(key, table["ts"], value, pc.equal(table["qty"], 0))


def bus_positions(recordings):
    """The recorded bus positions; none is ever removed."""
    table = pyarrow.parquet.read_table(recordings / BUSES / "positions.parquet")
    names = table.column_names
    vehicle = next(name for name in names if "vehicle" in name)
    latitude = next(name for name in names if name.startswith("lat"))
    value = pc.binary_join_element_wise('{"lat":', table[latitude].cast(pa.string()), "}", "")
    nothing = pa.chunked_array([pa.repeat(pa.scalar(False), len(table))])
    return _log(table[vehicle].cast(pa.string()), table["ts"], value, nothing)


def _log(key, ts, value, gone):
    ts = ts.cast(pa.timestamp("us", tz="UTC"), safe=False)
    return pa.table([key, ts, value, gone], schema=LOG)
