"""Copies by rows of changes, whose driver is killed ten times: the original at every bookmark.

One copy is another topic, the other one files, of which the statement of `merge_into` makes a table
again. After each death the copy is what the original was at one of its bookmarks, and has been what
the original was at each one before. Not collected by default: ``make crash-spark``.
"""

import random
import signal

import pyarrow.parquet as pq

from sow.spark.changes import merge_statement
from tests.crash.spark.drivers import Drivers
from tests.crash.spark.pipeline import ROWS_A_BATCH
from tests.edge.serving import records
from tests.spark.test_changes import in_duckdb
from tests.spark.test_faults import end_of_log

CHANGES, KEYS = 6 * ROWS_A_BATCH, 9
MOMENTS = (
    ("before", "read", 1),
    ("after", "read", 1),
    ("before", "stage", 1),
    ("after", "stage", 1),
    ("before", "commit", 1),
    ("after", "commit", 1),
    ("after", "read", 3),
    ("before", "commit", 2),
    ("after", "stage", 2),
    ("after", "commit", 2),
)
"""When each driver is killed: before or after the first, second or third such step of its life."""


class Counted(Drivers):
    """Drivers that are killed at a moment of their lives, whatever batch it is."""

    def __init__(self, url, checkpoint, files):
        super().__init__(url, checkpoint)
        self._command.append(str(files))
        self._steps = []

    def _live(self, said):
        self._steps.clear()
        return super()._live(said)

    def __call__(self, requested, forward):
        when, step, count = self._moment or (None, None, 0)
        if requested.step != step:
            return forward()
        self._steps.append(step)
        # Of two queries one may ask at the moment when the other one's request kills both: what it
        # asks ends in the next life, which must not die of it.
        if len(self._steps) != count:
            return forward()
        if when == "after":
            forward()
        raise self._killed()


def change(server):
    """Inserts, updates, publishes that change nothing, and deletes, one after the other."""
    chance, there = random.Random(40), {}
    for _ in range(CHANGES):
        key = chance.randrange(KEYS)
        if key in there and chance.random() < 0.3:
            del there[key]
            server.request("DELETE", records("orders", filter=f"/id = {key}"))
        else:
            there[key] = chance.randrange(3)
            server.publish("orders", {"id": key, "px": there[key]})


def log(server, topic, start):
    return server.get(f"/v1/log?topics={topic}&from={start}&limit=100000").rows


def as_records(rows):
    return {row["id"]: row["px"] for row in rows}


def made(rows):
    """What each row of a log makes of the records; a batch is visible from its last one on."""
    records, found = {}, []
    for row in rows:
        records.pop(row["k"], None)
        if row["op"] == "publish":
            records[row["k"]] = row["d"]
        found.append(as_records(records.values()))
    return found


def test_copies_killed_ten_times_are_the_original_at_every_bookmark(server, proxy, tmp_path):
    start = end_of_log(server)
    change(server)
    bookmarks = [row["bm"] for row in log(server, "orders", start)]
    originals = [as_records(server.records("orders", as_of=bookmark)) for bookmark in bookmarks]
    assert len(originals) == CHANGES
    proxy.way = drivers = Counted(proxy.url, tmp_path / "checkpoint", tmp_path / "files")
    for moment in (*MOMENTS, None):
        assert drivers.run(moment) == (-signal.SIGKILL if moment else 0), moment
        copied = made(log(server, "loud", start))
        assert copied == originals[: len(copied)], moment
        assert as_records(server.records("loud")) == (copied or [{}])[-1], moment
        print(moment, len(copied), flush=True)
    assert copied == originals
    assert merged(tmp_path / "whole", bookmarks) == originals


def merged(files, bookmarks):
    """What MERGE by MERGE a table is at each bookmark."""
    import duckdb

    connection, table = duckdb.connect(), pq.read_table(files)
    connection.register("rows", table)
    connection.execute("CREATE TABLE t (id BIGINT, px BIGINT)")
    merge = in_duckdb(merge_statement("t", "changes", table.column_names, ["id"]))
    found = []
    for bookmark in bookmarks:
        connection.execute(
            "CREATE OR REPLACE TEMP VIEW changes AS SELECT * FROM rows "
            f"WHERE _commit_version = {int(bookmark)}"
        )
        connection.execute(merge)
        found.append(dict(connection.execute("SELECT id, px FROM t").fetchall()))
    return found
