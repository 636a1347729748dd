"""A recording: rows of a Parquet file as messages, in the order of their recording.

Whole columns are converted to JSON texts (a column of numbers is one call), then combined row by
row with one format string. A *segment* can be sent as one publish and one delete: no record in it
is published after it was deleted, so sending the publishes first keeps the order of every record's
changes. Nulls are left out of the message; times are ISO 8601 text.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sow.core.humanize import did_you_mean
from sow.core.paths import parse_path
from sow.errors import BadFilter, ClientError, shown
from sow.expressions import Filter, Identifier, check_fields_alone, compile_filter
from sow.expressions.nodes import walk

BATCH_ROWS = 20_000
"""Rows converted at once: calls over whole columns pay off from thousands on, and so many rows take
a few megabytes."""
SEGMENT_ROWS_MAX = 1000
"""Rows of one publish: a frame, which is stored completely or not at all."""
WORD = re.compile(r"'[^']*'|\"[^\"]*\"|\[/[^\]]*\]|/\S+|[A-Za-z_]\w*")


@dataclass(slots=True)
class Segment:
    """Messages to publish, then messages whose records to delete; `recorded_s` from the start."""

    recorded_s: float
    publishes: list[bytes] = field(default_factory=list)
    deletes: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.publishes) + len(self.deletes)


class Recording:
    """The Parquet file at `path`, timed by `time_column`, its first `limit` rows.

    Raises ClientError for another file, or if the column is missing. `delete_when` is a filter over
    the row's columns, in which a bare name is a column.
    """

    def __init__(
        self, path: str, time_column: str, delete_when: str | None = None, limit: int | None = None
    ) -> None:
        try:
            self._file = pq.ParquetFile(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise ClientError(
                f"{path} is not a Parquet file: {error}; for lines there is sow publish"
            ) from None
        self._columns = list(self._file.schema_arrow.names)
        if time_column not in self._columns:
            raise ClientError(
                f"{path} has no column {time_column!r}; its columns are "
                f"{', '.join(self._columns)} (--time-column names the one of times)"
            )
        self._time_column = time_column
        self._deletes = self._condition(delete_when)
        rows = self._file.metadata.num_rows
        self._skipped = 0
        self.rows = min(rows, limit) if limit else rows

    def after(self, rows: int) -> "Recording":
        """This recording without its first rows; time still counts from the very first."""
        self._skipped += rows
        self.rows -= rows
        return self

    def _condition(self, text: str | None) -> Filter | None:
        if text is None:
            return None

        starts = {word.start() for word in WORD.finditer(text) if word[0] in self._columns}
        slashed = "".join([f"{'/' * (at in starts)}{text[at]}" for at in range(len(text))])
        try:
            condition = compile_filter(slashed)
            check_fields_alone(condition, "the filter of deletes")
        except ClientError as error:
            raise _without_slashes(error, starts) from None
        for node in walk(condition.expression):
            if isinstance(node, Identifier) and node.path.steps[0] not in self._columns:
                column = node.path.steps[0]
                meant = did_you_mean(column, self._columns)
                unknown = BadFilter(
                    f"the file has no column {shown(column)} (position {node.position}){meant}",
                    position=node.position,
                    expected="a column of the file",
                )
                raise _without_slashes(unknown, starts)
        return condition

    def segments(self, keys: Sequence[str], gather_s: float) -> Iterator[Segment]:
        """All rows, at most `gather_s` recorded seconds per segment; `keys` are the paths of the
        topic's key fields. Raises ClientError if the file lacks one, or has no times."""
        paths = [parse_path(key) for key in keys]
        for path in paths:
            if path.steps != (path.steps[0],) or path.steps[0] not in self._columns:
                raise ClientError(f"the file has no column for the topic's key field {path}")
        names = [path.steps[0] for path in paths]
        start: float | None = None
        skip, left = self._skipped, self.rows
        for batch in self._file.iter_batches(BATCH_ROWS):
            times = _seconds(batch.column(self._time_column))
            start = times[0] if start is None and times else start
            rows = len(batch)  # fewer at the end of each row group
            batch, times = batch.slice(skip, left), times[skip : skip + left]
            skip = max(0, skip - rows)
            left -= len(batch)
            yield from self._split(batch, names, [at - (start or 0) for at in times], gather_s)
            if not left:
                return

    def _split(
        self, batch: Any, names: list[str], times: list[float], gather_s: float
    ) -> Iterator[Segment]:
        bodies = documents(batch)
        deletes = self._is_delete(batch)
        keys = list(zip(*(batch.column(name).to_pylist() for name in names), strict=True))
        segment: Segment | None = None
        deleted: set[tuple[Any, ...]] = set()
        for body, is_delete, key, at in zip(bodies, deletes, keys, times, strict=True):
            if segment is not None and (
                at - segment.recorded_s > gather_s
                or len(segment) == SEGMENT_ROWS_MAX
                or (key in deleted and not is_delete)
            ):
                yield segment
                segment = None
            if segment is None:
                segment = Segment(at)
                deleted = set()
            if is_delete:
                segment.deletes.append(body)
                deleted.add(key)
            else:
                segment.publishes.append(body)
        if segment is not None:
            yield segment

    def _is_delete(self, batch: Any) -> list[bool]:
        if self._deletes is None:
            return [False] * len(batch)
        columns = [batch.column(path.steps[0]).to_pylist() for path in self._deletes.paths]
        return self._deletes.matches(columns, len(batch))


def _without_slashes(error: ClientError, starts: Collection[int]) -> ClientError:
    """The error, with its position in the text as it was before slashes were added at `starts`."""
    if error.position is not None:
        inserted = [start + number for number, start in enumerate(sorted(starts))]
        position = error.position - sum(at < error.position for at in inserted)
        error.detail = error.detail.replace(f"position {error.position}", f"position {position}", 1)
        error.position = position
    return error


def documents(batch: Any) -> list[bytes]:
    """Each row of a record batch as a JSON object, nulls left out."""
    columns = {name: json_texts(batch.column(name)) for name in batch.schema.names}
    if any(batch.column(name).null_count for name in columns):
        names = [orjson.dumps(name) for name in columns]
        return [
            b"{%b}"
            % b",".join(
                [b"%b:%b" % pair for pair in zip(names, row, strict=True) if pair[1] != b"null"]
            )
            for row in zip(*columns.values(), strict=True)
        ]
    names = [orjson.dumps(name).replace(b"%", b"%%") for name in columns]
    template = b"{%b}" % b",".join([b"%b:%%b" % name for name in names])
    return [template % row for row in zip(*columns.values(), strict=True)]


def json_texts(column: Any) -> list[bytes]:
    """A column's values as JSON texts."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        texts = [*json_texts(column.dictionary), b"null"]
        return [texts[-1 if at is None else at] for at in column.indices.to_pylist()]
    if pa.types.is_timestamp(kind):
        spelled = pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
        return [
            b"null" if text is None else b'"%b"' % text.encode() for text in spelled.to_pylist()
        ]
    values = column.to_pylist()
    if pa.types.is_decimal(kind):
        # A number, with all its digits.
        return [b"null" if value is None else format(value, "f").encode() for value in values]
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return orjson.dumps(values)[1:-1].split(b",") if values else []
    return [orjson.dumps(value, default=str) for value in values]


def _seconds(column: Any) -> list[float]:
    """Times as seconds since 1970; numbers are seconds already."""
    if pa.types.is_timestamp(column.type):
        unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[column.type.unit]
        return [value / unit for value in column.cast(pa.int64()).to_pylist()]
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return [float(value) for value in column.to_pylist()]
    raise ClientError(f"the time column holds {column.type}, not times or seconds")
