"""`sow replay`: publishes a recorded update stream from a Parquet file, at any speed.

Rows become messages in batches. Whole columns are converted to JSON texts (a column of numbers is
one call), then combined row by row with one format string. Nulls are left out of the message; times
are ISO 8601 text. A *segment* can be sent as one publish and one delete: no record in it is
published after it was deleted, so sending the publishes first keeps the order of every record's
changes.

Each message is sent when its time has come, counted from the first row and divided by the speed.
Rows that match `--delete-when` delete their record instead; the changes of one record are never
reordered. The command ends when everything is durable.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import click
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from sow.cli.connecting import server_command
from sow.cli.options import note_expression, topic_names
from sow.cli.output import as_json, show
from sow.cli.tables import progress
from sow.client import Client
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


SPEED_MAX = float("inf")
GATHER_S = 0.01
"""Real time within which rows are sent together: shorter than anybody can notice."""


class RowSink(Protocol):
    """A destination of rows, such as a `sow.client.Publisher`."""

    async def send(self, bodies: list[bytes]) -> None:
        """Publish."""
        ...

    async def delete(self, bodies: list[bytes]) -> None:
        """Delete the records whose key fields these bodies have."""
        ...


@dataclass(slots=True)
class Played:
    """The progress of a replay."""

    published: int = 0
    deleted: int = 0
    recorded_s: float = 0.0
    seconds: float = 0.0

    @property
    def rows(self) -> int:
        """Rows sent, of both kinds."""
        return self.published + self.deleted


class ReplayPace:
    """Maps recorded time to real time; the caller gives `now` and `sleep`."""

    def __init__(
        self, speed: float, now: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._speed = speed
        self.gather_s = speed * GATHER_S
        """Recorded seconds that may be sent together."""
        self._now = now
        self._sleep = sleep
        self._started: float | None = None

    async def wait_for(self, recorded_s: float) -> None:
        """Return when the moment `recorded_s` after the first row has come."""
        if self._started is None:
            self._started = self._now()
        if self._speed == SPEED_MAX:
            return
        ahead_s = recorded_s / self._speed - (self._now() - self._started)
        if ahead_s > 0:
            await self._sleep(ahead_s)


def speed_of(_ctx: click.Context, _parameter: click.Parameter, text: str) -> float:
    """`1x`, `10x`, `0.5x` or `max` as a factor; raises BadParameter for anything else."""
    if text == "max":
        return SPEED_MAX
    try:
        factor = float(text.removesuffix("x"))
    except ValueError:
        factor = 0.0
    if not 0 < factor < SPEED_MAX:
        raise click.BadParameter(f"{text!r} is not a speed; write 1x, 10x, 0.5x or max")
    return factor


@server_command("sow replay day.parquet --topic quotes --speed 10x --time-column ts")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--topic", required=True, metavar="T", shell_complete=topic_names,
              help="Topic to publish to.")  # fmt: skip
@click.option("--speed", default="1x", show_default=True, callback=speed_of, metavar="S",
              help="1x, 10x, ... of the recording's own speed, or max.")  # fmt: skip
@click.option("--time-column", default="ts", show_default=True, metavar="C",
              help="Column of times, ascending, that gives the timing of the rows.")  # fmt: skip
@click.option("--delete-when", metavar="EXPR", callback=note_expression(""),
              help="Rows that match delete their record: \"qty == 0\".")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N rows.")
async def replay(
    client: Client,
    file: str,
    topic: str,
    speed: float,
    time_column: str,
    delete_when: str | None,
    limit: int | None,
) -> None:
    """Publish a recorded update stream (Parquet) with its own timing."""
    recording = Recording(file, time_column, delete_when, limit)
    started = time.monotonic()
    keys = (await client.topic(topic))["keys"]
    if not keys:
        raise ClientError(f"topic {topic} has no Key; rows of a table cannot be published to it")
    bar = progress(
        "replay",
        recording.rows,
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}/{task.total:,.0f} rows"),
        TextColumn("{task.fields[shown]}"),
        TimeRemainingColumn(),
        is_shown=not as_json(),
        shown="",
    )
    async with await client.publisher(topic) as publisher:
        with bar as advance:
            began = time.monotonic()

            def on_played(rows: int, played: Played) -> None:
                rate = played.rows / max(1e-6, time.monotonic() - began)
                text = f"{rate:,.0f} rows/s, {played.recorded_s:.1f} s into the recording"
                advance(rows, shown=text)

            pace = ReplayPace(speed, time.monotonic, asyncio.sleep)
            played = await play(recording, keys, pace, publisher, on_played)
    played.seconds = round(time.monotonic() - started, 3)
    rate = played.rows / played.seconds if played.seconds else 0
    show(
        {**asdict(played), "rows": played.rows},
        f"{played.rows:,} rows to {topic}: {played.published:,} published, "
        f"{played.deleted:,} deleted, {played.seconds:.1f} s, {rate:,.0f} rows/s",
    )


async def play(
    recording: Recording,
    keys: list[str],
    pace: ReplayPace,
    sink: RowSink,
    on_played: Callable[[int, Played], None] = lambda _rows, _played: None,
) -> Played:
    """Send a whole recording to `sink`, at `pace`; returns the result, and calls `on_played` after
    each segment, with its rows and the progress. `keys` are the paths of the topic's key fields."""
    played = Played()
    for segment in recording.segments(keys, gather_s=pace.gather_s):
        await pace.wait_for(segment.recorded_s)
        await sink.send(segment.publishes)
        await sink.delete(segment.deletes)
        played.published += len(segment.publishes)
        played.deleted += len(segment.deletes)
        played.recorded_s = segment.recorded_s
        on_played(len(segment), played)
    return played
