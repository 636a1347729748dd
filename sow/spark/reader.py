"""Batch reads: the records of a topic at one moment, split by key.

A snapshot on the server fixes the moment while the read is planned; each task reads its parts of
it. With `startingBookmark` the rows come from the log instead.

Pushing a filter of Spark's to the server only saves transfers: a pushed filter must accept every
row for which Spark's own is true, and Spark still evaluates its own. So a filter is pushed only if
the server's comparison is at least as wide as Spark's:

* numbers, over columns of whole numbers and doubles. A `float` is rounded where the body is not,
  and decimals, times and texts have rules of their own;
* texts that start like no JSON value other than a text. A text column shows other values as JSON
  (`true`, `12.50`, `{"a":1}`), and to the server a boolean is a number and an object nothing;
* prefixes and suffixes of texts for the same reason, and substrings never: an object's text may
  contain anything.

Columns that are not fields of the body are never pushed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringEndsWith,
    StringStartsWith,
)

from sow.spark.changes import OF_LOG, ChangeRows
from sow.spark.columns import OF_THE_ROW, Messages, decoder, requested_columns
from sow.spark.http import ServerRefusal, SourceOptions, segment
from sow.spark.rows import (
    PARTS,
    Needed,
    SnapshotPart,
    Wanted,
    end_of_range,
    extent,
    position,
    range_of_log,
    take,
)

STARTS = {"earliest": "0", "latest": "now"}
"""Start positions in the log by name."""
KEY = re.compile(r"[!-+\--~]+\Z")
"""A key as the server lists it: printable, without blanks and commas. No other can exist."""


class LogPart(InputPartition):
    """A range of the log called `log`: after one bookmark, up to and including another. It is read
    at the address number `place` first."""

    def __init__(self, after: int, until: int, log: str, place: int = 0) -> None:
        self.after = after
        self.until = until
        self.log = log
        self.place = place

    def read(
        self, options: SourceOptions, condition: str | None, needed: Needed
    ) -> Iterator[pa.RecordBatch]:
        """The rows that pass the filter, in Arrow; raises DataLoss and ServerRefusal."""
        return range_of_log(
            options.server.at(self.place),
            options.topic,
            self.after,
            self.until,
            condition,
            options.fail_on_data_loss,
            self.log,
            needed,
        )


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
        self.changes = ChangeRows(schema, messages) if options.cdc and from_log else None

    @property
    def needed(self) -> Needed:
        """What the server is to send of a row."""
        if self.changes is not None:
            return {**self.changes.needed, **OF_LOG}
        return requested_columns(self.schema, self.messages)

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
        options = self.options
        wanted = Wanted(options.topic, self.condition, self.keys, options.partitions, options.last)
        taken = take(options.server, wanted, options.as_of)
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
        start = STARTS.get(options.starting, options.starting)
        end = end_of_range(options.server, options.topic, options.ending)
        part = extent(options.server, options.topic, start, to=end, is_compared=options.cdc)
        return split_log(options, part, options.partitions or (1 if options.cdc else PARTS))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one part, as Arrow batches of the schema."""
        if self.changes is not None:
            return map(self.changes.of, self._rows(partition))
        return map(decoder(self.schema, self.messages), self._rows(partition))

    def _rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part as they are."""
        if isinstance(partition, LogPart):
            return partition.read(self.options, self.condition, self.needed)
        if isinstance(partition, GroupsPart):
            return partition.read()
        assert isinstance(partition, SnapshotPart)
        return partition.read(self.options.server, self.needed)


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


def split_log(options: SourceOptions, part: Mapping[str, Any], parts: int) -> list[LogPart]:
    """A range of the log, as its `extent`, in at most `parts` parts of equally many rows of the
    topic, at least one; a row is counted before the filter."""
    after, until, log = int(part["from"]), int(part["to"]), part["log"]
    rows, cuts = -(-part["rows"] // parts), [after]
    end = position(log, until)
    while part["rows"] and len(cuts) < parts:
        start = position(log, cuts[-1])
        try:
            found = extent(options.server, options.topic, start, to=end, limit=rows)
        except ServerRefusal as error:
            if error.reason != "invalid bookmark":
                raise
            break  # removed meanwhile; the task that reads the rest says so
        if int(found["to"]) >= until:
            break
        cuts.append(int(found["to"]))
    ranges = pairwise([*cuts, until])
    return [LogPart(start, stop, log, place) for place, (start, stop) in enumerate(ranges)]


COMPARISON_FILTERS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
PLAIN_WORDS = re.compile(r"[A-Za-z_][ -&(-\[\]-~]*\Z")
"""Printable, without quotes and backslashes, and not the start of a number, array or object."""
OF_JSON = re.compile(r"(true|false|null|nan|inf(inity)?)\Z", re.IGNORECASE)
"""Words that are a text here and another value there."""
BEGINNING = re.compile(r"(?![tfn])[A-Za-z_][A-Za-z0-9_ ]*\Z")
"""Literal in a pattern, and not the start of another JSON value."""
ENDING = re.compile(r"[A-Za-z0-9_ ]*(?![el])[A-Za-z_]\Z")
"""The same for the ends of other values: a digit, a bracket, true, false or null."""
EXACT = 2**53
"""Whole numbers below it are exact as doubles, so that both sides compare alike."""


def pushed(filters: Iterable[Filter], fields: pa.Schema) -> list[str]:
    """Expressions of the server's for those of `filters` that can be pushed.

    `fields` are the columns that are fields of the body.
    """
    found = (expression(one, fields) for one in filters)
    return [text for text in found if text is not None]


def expression(condition: Filter, fields: pa.Schema) -> str | None:
    """One filter over fields of the body as an expression, or None."""
    if isinstance(condition, Not):
        # Only for numbers: inequality of texts differs between the two.
        child = condition.child
        if isinstance(child, EqualTo) and _number(child.value) is not None:
            inner = expression(child, fields)
            return None if inner is None else f"NOT ({inner})"
        return None
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    if not attribute or attribute[0] not in fields.names or not all(map(NAME.match, attribute)):
        return None
    path, kind = "/" + "/".join(attribute), _kind(attribute, fields)
    is_number = kind is not None and (pa.types.is_integer(kind) or pa.types.is_float64(kind))
    is_text = kind is not None and pa.types.is_string(kind)
    if isinstance(condition, IsNotNull):
        # To the server an empty text is NULL.
        return f"{path} IS NOT NULL" if is_number else None
    literal = _number if is_number else _text if is_text else None
    if literal is None:
        return None
    if isinstance(condition, In):
        values = [literal(value) for value in condition.value]
        known = [value for value in values if value is not None]
        return f"{path} IN ({', '.join(known)})" if known and len(known) == len(values) else None
    value: Any = getattr(condition, "value", None)
    if is_text and isinstance(condition, StringStartsWith):
        return f"{path} LIKE '^{value}'" if BEGINNING.match(value) else None
    if is_text and isinstance(condition, StringEndsWith):
        return f"{path} LIKE '{value}$'" if ENDING.match(value) else None
    operator, written = COMPARISON_FILTERS.get(type(condition)), literal(value)
    if operator is None or written is None or (is_text and operator != "="):
        return None
    return f"{path} {operator} {written}"


def _kind(attribute: tuple[str, ...], fields: pa.Schema) -> pa.DataType | None:
    """The type of a column, or of a field within one."""
    kind: pa.DataType | None = fields.field(attribute[0]).type
    for name in attribute[1:]:
        if kind is None or not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(name).type
    return kind


def _number(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return repr(value) if abs(value) < EXACT else None


def _text(value: Any) -> str | None:
    if not isinstance(value, str) or not PLAIN_WORDS.match(value) or OF_JSON.match(value):
        return None
    return f"'{value}'"
