"""Batch reads: the records of a topic at one moment, split by key.

A snapshot on the server fixes the moment while the read is planned; each task reads its parts of
it. With `startingBookmark` the rows come from the log instead.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, In, InputPartition

from sow.history.bookmarks import POSITION
from sow.spark.columns import OF_THE_ROW, Messages, decoder
from sow.spark.http import member, segment
from sow.spark.options import SourceOptions
from sow.spark.pushdown import pushed
from sow.spark.rows import position, range_of_log
from sow.spark.snapshots import PARTS, SnapshotPart, Wanted, take

KEY = re.compile(r"[!-+\--~]+\Z")
"""A key as the server lists it: printable, without blanks and commas. No other can exist."""


class LogPart(InputPartition):
    """A range of the log called `log`: after one bookmark, up to and including another."""

    def __init__(self, after: int, until: int, log: str) -> None:
        self.after = after
        self.until = until
        self.log = log


class GroupsPart(InputPartition):
    """Rows of groups of records, queried while the read was planned: a repeated task has the same
    rows."""

    def __init__(self, rows: bytes) -> None:
        self.rows = rows

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, in Arrow."""
        return iter(pa.ipc.open_stream(self.rows))


class SowReader(DataSourceReader):
    """Reads the records of a topic, the rows of groups of them, or a range of its log.

    `messages` decodes the bodies whose fields are columns; None: the rows are read as they are.
    """

    def __init__(
        self,
        options: SourceOptions,
        schema: pa.Schema,
        from_log: bool,
        messages: Messages | None = None,
    ) -> None:
        self.options = options
        self.schema = schema
        self.messages = messages
        self.from_log = from_log
        self.filters: list[str] = [options.filter] if options.filter else []
        self.keys: tuple[str, ...] | None = None

    @property
    def condition(self) -> str | None:
        """All filters as one expression."""
        return " AND ".join(f"({one})" for one in self.filters) or None

    def partitions(self) -> Sequence[InputPartition]:
        """Take the snapshot, or divide the log, into parts for tasks."""
        if self.from_log:
            return self._log_parts()
        if self.options.groups:
            return [self._groups()]
        wanted = Wanted(self.options.topic, self.condition, self.keys, self.options.partitions)
        taken = take(self.options.server, wanted, self.options.as_of)
        return [part for one in taken for part in one.parts]

    def rows(self) -> Iterator[pa.RecordBatch]:
        """All rows as they are, one part after the other."""
        return (batch for part in self.partitions() for batch in self._rows(part))

    def _groups(self) -> GroupsPart:
        options = self.options
        reply = options.server.arrow(
            f"/v1/topics/{segment(options.topic)}/records",
            filter=self.condition,
            as_of=options.as_of,
            meta="true",
            **options.groups,
        )
        return GroupsPart(reply.body)

    def _log_parts(self) -> Sequence[InputPartition]:
        options = self.options
        start = {"earliest": "0", "latest": "now"}.get(options.starting, options.starting)
        part = options.server.json(
            "GET",
            "/v1/log/extent",
            topics=member(options.topic),
            to=self._ending(),
            **{"from": start},
        )
        parts = options.partitions or PARTS
        return split_log(int(part["from"]), int(part["to"]), parts, part["log"])

    def _ending(self) -> str | None:
        """The last bookmark of a read of the log; for a time, the last one before it."""
        ending = self.options.ending
        if ending is None or ending == "latest" or POSITION.fullmatch(ending):
            return None if ending == "latest" else ending
        found = self.options.server.json(
            "GET", "/v1/log/extent", topics=member(self.options.topic), limit=1, **{"from": ending}
        )
        return position(found["log"], int(found["from"]))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one part, as Arrow batches of the schema."""
        return map(decoder(self.schema, self.messages), self._rows(partition))

    def _rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part as they are."""
        server = self.options.server
        if isinstance(partition, LogPart):
            return range_of_log(
                server,
                self.options.topic,
                partition.after,
                partition.until,
                self.condition,
                self.options.fail_on_data_loss,
                partition.log,
            )
        if isinstance(partition, GroupsPart):
            return partition.read()
        assert isinstance(partition, SnapshotPart)
        return partition.read(server)


class PushingReader(SowReader):
    """The same with filters that Spark pushes down, for reads that enable it (`pushdown`).

    Spark 4.3 keeps the plan of a filtered read and uses it for the next read of the same DataFrame,
    whatever its filter. So this is safe only for a DataFrame that is always filtered in one way,
    and never the default.
    """

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Push filters to the server; Spark still evaluates each one."""
        if self.messages is None:
            if self.keys is None and not (self.from_log or self.options.as_of):
                self.keys = next((keys for one in filters if (keys := _keys(one))), None)
        elif self.messages.is_json:  # other types write numbers as texts
            fields = [field for field in self.schema if field.name not in OF_THE_ROW]
            self.filters += pushed(filters, pa.schema(fields))
        return filters


def _keys(condition: Filter) -> tuple[str, ...] | None:
    """The SowKeys that a filter on the column `key` names: both use the same text."""
    if getattr(condition, "attribute", ()) != ("key",):
        return None
    if isinstance(condition, EqualTo):
        values: tuple[Any, ...] = (condition.value,)
    elif isinstance(condition, In):
        values = tuple(condition.value)
    else:
        return None
    are_keys = all(isinstance(value, str) and KEY.match(value) for value in values)
    return values if values and are_keys else None


def split_log(after: int, until: int, parts: int, log: str) -> list[LogPart]:
    """A range of the log called `log` in parts of equal length, at least one."""
    parts = max(1, min(parts, until - after))
    cuts = [after + (until - after) * at // parts for at in range(parts + 1)]
    return [LogPart(start, end, log) for start, end in pairwise(cuts)]
