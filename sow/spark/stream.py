"""Stream reads: the log of a topic, from bookmark to bookmark.

An offset is a bookmark, and names the beginning of its batch: Spark does not store where a query
began, and `latest`, or the oldest retained entry, has moved when the first batch runs again. So an
offset names a range of the log, which always has the same rows, and a batch that Spark repeats
after a failure is unchanged. Columns and rows are those of the log (`readMode` changes), or only
the last row of each key per batch (latest).

An offset also names its log, because bookmarks of another one mean nothing here, and its topic,
because the earlier rows of another topic are not behind this reader. It carries a name that the
query got at its beginning, which distinguishes queries with the same consumer.

With `startingBookmark` snapshot the first batch is the records of one moment, and the log follows
from there. Its offset names the snapshot and the moment, so that it too always has the same rows:
from the snapshot, or from the log if the server has released it.

A silent stream has no time. With `closesWithin`, one row whose op is ``tick`` follows the last rows
once all windows that they opened have ended; it is part of the offset, so that it too is the same
when it is read again.
"""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from sow.errors import AnotherLog
from sow.spark.changes import OF_LOG, ChangeRows
from sow.spark.columns import ROW, Messages, decoder, requested_columns
from sow.spark.http import ServerRefusal, SourceOptions, segment
from sow.spark.reader import STARTS, LogPart, split_log
from sow.spark.rows import (
    DataLoss,
    SnapshotPart,
    TakenSnapshot,
    Wanted,
    extent,
    last_of_each_key,
    oldest_to_go_on_from,
    position,
    take,
)

SNAPSHOT = "snapshot"
ROWS_OF_A_BATCH = 100_000
"""Default rows of a batch: seconds of work, so that a stream over a long log shows results soon,
and its writes block the server for no more than a tenth of a second."""
PARTS_MAX = 8
"""Tasks of a batch, unless `partitions` is set: more add load on the server for little gain."""
ROWS_OF_A_PART = 50_000
"""Fewer rows are read in less time than another task takes to start."""
SLOW_S = 2.0
"""Counting what is unread takes a few milliseconds, unless a row policy makes the server read it.
If it takes longer than this, the figures stand for ten times as long as it took."""
EMPTY_AFTER = 100_000
"""So many changes of other topics are worth a batch without rows, to move past them."""


class TickPartition(InputPartition):
    """No rows but the time: everything before it has been read."""

    def __init__(self, bookmark: int, time_us: int) -> None:
        self.bookmark = bookmark
        self.time_us = time_us


class SowStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a topic's log as a stream: fields of `messages`, or rows as they are without them."""

    def __init__(
        self, options: SourceOptions, schema: pa.Schema, messages: Messages | None = None
    ) -> None:
        self.options = options
        self.messages = messages
        self.schema = schema
        self._server = options.server
        self._changes = ChangeRows(schema, messages) if options.cdc else None
        self._end: int | None = None
        self._empty: tuple[int, int] | None = None
        """A range that turned out to have no rows."""
        self._reached: int | None = None
        """The end of the last batch that was planned."""
        self._planned: dict[str, Any] | None = None
        self._noted: dict[str, Any] | None = None
        """The offsets of that batch, and of the last one whose end the consumer has noted."""
        self.until: int | None = None
        """The last bookmark to read, for a stream that ends: one that is in the log already."""
        self.now_s = time.monotonic
        self._lag: dict[str, Any] | None = None
        self._lag_until_s = 0.0

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins."""
        starting = self.options.starting
        start = "now" if starting == SNAPSHOT else STARTS.get(starting, starting)
        found = self._extent(start, limit=1)
        offset = {
            "bookmark": int(found["from"]),
            "log": found["log"],
            "topic": self.options.topic,
            "reader": uuid.uuid4().hex,
        }
        return offset | {"starts": SNAPSHOT} if starting == SNAPSHOT else offset

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limits of a batch from the options."""
        rows_max = self.options.rows_max
        return ReadMaxRows(ROWS_OF_A_BATCH if rows_max is None else rows_max)

    def prepareForTriggerAvailableNow(self) -> None:
        """Set the end of this run; later rows are for the next one."""
        self._end = self.until
        if self._end is None:
            self._end = int(self._extent("now", limit=1)["newest"])

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch: within its row limit and the run's end.

        Spark plans a batch when the one before is done, and says so only when another one follows:
        a consumer would stay behind for as long as nothing comes."""
        if start == self._planned:
            self.commit(start)
        end = self._next_end(start, limit)
        self._reached = int(end["bookmark"])
        return end

    def _next_end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = after = int(start["bookmark"])
        if self._empty is not None and self._empty[0] == begin:
            after = self._empty[1]
        here = self._here(start)
        if start.get("starts") == SNAPSHOT:
            return self._records(start, here)
        after = self._oldest(after, here)
        if after < begin:  # the log was truncated: continue at its end
            return self._offset(start, here, after, begin)
        if self._end is not None and after >= self._end:
            return start
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        found = self._extent(after, limit=rows, to=self._end, log=here["log"])
        reached = int(found["to"])
        if found["rows"]:
            return self._offset(start, found, reached, after, at_us=found["ts_us"])
        if self._is_silent(start, found):
            return self._offset(start, found, reached, after, tick_us=found["ts_us"])
        if reached - begin > EMPTY_AFTER:
            return self._offset(start, found, reached, after, at_us=start.get("at_us"))
        self._empty = (begin, reached)
        return start

    def _records(self, start: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
        """The end of the first batch, of the records: takes a snapshot now."""
        wanted = Wanted(self.options.topic, self.options.filter, parts=self.options.partitions)
        try:
            taken = take(self._server, wanted)
        except ServerRefusal as error:
            if error.reason != "invalid topic":
                raise
            taken = []  # a topic of a pattern that does not exist yet
        bookmark = taken[0].number if taken else int(here["newest"])
        # Read the clock afterwards, so that no record is younger than it.
        found = self._here(here)
        offset = self._offset(start, found, bookmark, bookmark, at_us=found["ts_us"])
        return offset | {"records": [[one.name, one.requested] for one in taken]}

    def _offset(
        self,
        start: Mapping[str, Any],
        found: Mapping[str, Any],
        bookmark: int,
        after: int,
        at_us: int | None = None,
        tick_us: int | None = None,
    ) -> dict[str, Any]:
        """The end of a range; no row so far is younger than the server's clock at `at_us`."""
        offset = {"bookmark": bookmark, "after": after, "log": found["log"]}
        offset["topic"] = self.options.topic
        if "reader" in start:
            offset["reader"] = start["reader"]
        if tick_us is not None:
            offset["tick_us"] = tick_us
        elif self.options.closes_within_us is not None and at_us is not None:
            offset["at_us"] = at_us
        return offset

    def _here(self, offset: Mapping[str, Any]) -> Mapping[str, Any]:
        """The extent of the log; raises DataLoss if an offset belongs to another log or topic."""
        topic = offset.get("topic", self.options.topic)
        if topic != self.options.topic:
            raise DataLoss(
                f"{self.options.url}: the checkpoint belongs to another topic, {topic}, and this "
                f"query reads {self.options.topic}: its earlier rows would never be read. Give "
                "each topic a checkpoint of its own"
            )
        reached = int(offset.get("bookmark", offset.get("newest", 0)))
        least = position(offset.get("log", ""), reached)
        try:
            here: Mapping[str, Any] = self._extent("now", limit=1, least=least)
        except ServerRefusal as error:
            if error.reason != AnotherLog.reason:
                raise
            raise DataLoss(f"{self.options.url}: {error.detail}, with a new checkpoint") from None
        if offset.get("log", here["log"]) != here["log"]:
            raise DataLoss(
                f"{self.options.url}: the checkpoint belongs to another log, {offset['log']}, and "
                f"this one is {here['log']}: the data directory was replaced, or the address "
                "belongs to another server. Bookmarks of one mean nothing in the other; start "
                "again with a new checkpoint"
            )
        return here

    def _oldest(self, after: int, here: Mapping[str, Any]) -> int:
        return oldest_to_go_on_from(
            self.options.url, here, self.options.topic, after, self.options.fail_on_data_loss
        )

    def _is_silent(self, start: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
        """Whether all windows of the last rows have ended without a tick so far."""
        within_us = self.options.closes_within_us
        if within_us is None or self._end is not None or "at_us" not in start:
            return False
        return int(found["ts_us"]) >= int(start["at_us"]) + within_us

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the log, for the query's progress; with the topic's rows that are in no batch
        yet, and how long the oldest of them has been there."""
        began_s = self.now_s()
        if self._lag is not None and began_s < self._lag_until_s:
            return self._lag
        self._lag = self._measured()
        took_s = self.now_s() - began_s
        self._lag_until_s = began_s + (10 * took_s if took_s > SLOW_S else 0.0)
        return self._lag

    def _measured(self) -> dict[str, Any]:
        try:
            found = self._extent("now" if self._reached is None else self._reached, limit=None)
        except ServerRefusal as error:
            if error.reason != "invalid bookmark":
                raise
            # Removed meanwhile: the next batch says so, not a figure.
            return {"bookmark": int(self._extent("now", limit=1)["newest"])}
        since_us = found.get("since_us")  # an older server has none, and refuses to be read
        waits_us = 0 if since_us is None else found["ts_us"] - since_us
        return {
            "bookmark": int(found["newest"]),
            "lag_rows": found["rows"],
            "lag_seconds": max(0, waits_us) / 1_000_000,
        }

    def _extent(
        self,
        start: str | int,
        limit: int | None,
        to: int | None = None,
        log: str = "",
        least: str | None = None,
    ) -> Any:
        """The rows in a range of the log; numbers are those of `log`."""
        begin = start if isinstance(start, str) else position(log, start)
        end = None if to is None else position(log, to)
        return extent(
            self._server,
            self.options.topic,
            begin,
            end,
            limit,
            is_compared=self.options.cdc,
            least=least,
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The range in parts; one part if only the last row of each key is wanted."""
        if start == end or "after" not in end:
            # The beginning of a query is no range; `latest` may have moved by now.
            return []
        after, until = int(end["after"]), int(end["bookmark"])
        self._reached = until  # a batch of an earlier run is planned without `latestOffset`
        self._planned = end
        if "records" in end:
            moment = position(self._here(end)["log"], until)
            taken = [TakenSnapshot(name, requested, moment) for name, requested in end["records"]]
            return [part for one in taken for part in one.parts]
        if "tick_us" in end:
            return [TickPartition(until, int(end["tick_us"]))]
        here = self._here(end)
        after = self._oldest(after, here)
        if after >= until:
            return []
        found = self._extent(after, limit=None, to=until, log=here["log"])
        parts = -(-found["rows"] // ROWS_OF_A_PART)
        # The server knows what records were where the last reader of changes has stopped.
        parts_max = 1 if self.options.cdc else PARTS_MAX
        parts = min(parts, self.options.partitions or parts_max)
        # Up to its own end, whatever the log has: a task names what it lacks.
        whole = {**found, "to": until}
        return split_log(self.options, whole, 1 if self.options.latest else max(1, parts))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one part, as Arrow batches of the schema."""
        if self._changes is not None:
            return map(self._changes.of, self._rows(partition))
        return map(decoder(self.schema, self.messages), self._rows(partition))

    def _rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part as they are."""
        if isinstance(partition, TickPartition):
            return iter([self._tick(partition)])
        if isinstance(partition, SnapshotPart):
            return self._part(partition)
        assert isinstance(partition, LogPart)
        needed = self._needed()
        if self.options.cdc:
            return partition.read(self.options, self.options.filter, {**needed, **OF_LOG})
        if not self.options.latest:
            return partition.read(self.options, self.options.filter, needed)
        needed["columns"] = ",".join({"topic", "key", *needed["columns"].split(",")})
        return last_of_each_key(partition.read(self.options, self.options.filter, needed))

    def _needed(self) -> dict[str, str]:
        """What the server is to send of a row."""
        if self._changes is not None:
            return {**self._changes.needed}
        return requested_columns(self.schema, self.messages)

    def _part(self, part: SnapshotPart) -> Iterator[pa.RecordBatch]:
        try:
            return part.read(self.options.server, self._needed())
        except ServerRefusal as error:
            if error.reason not in ("invalid bookmark", AnotherLog.reason):
                raise
            raise DataLoss(
                f"{self.options.url}: the records of {self.options.topic} that the stream starts "
                f"with, as of bookmark {part.bookmark}, cannot be read any more: {error.detail}. "
                "Start again with a new checkpoint"
            ) from None

    def _tick(self, tick: TickPartition) -> pa.RecordBatch:
        row = {"bookmark": tick.bookmark, "topic": self.options.topic, "op": "tick"}
        row["ts"] = tick.time_us
        return pa.RecordBatch.from_pylist([row], ROW)

    def commit(self, end: dict[str, Any]) -> None:
        """Everything up to here is processed: the log need not be retained for this consumer."""
        if self.options.consumer and end != self._noted:
            path = f"/v1/log/consumers/{segment(self.options.consumer)}"
            reached = position(end.get("log", ""), end["bookmark"])
            noted = {"bookmark": reached, "reader": end.get("reader", "")}
            self._server.json("PUT", path, {**noted, "topics": [self.options.topic]})
            self._noted = end

    def stop(self) -> None:
        """Nothing is held."""
