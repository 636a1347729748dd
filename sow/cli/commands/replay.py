"""`sow replay`: publishes a recorded update stream from a Parquet file, at any speed.

Rows become messages in batches, column by column (`sow.cli.recording`). Each is sent when its time
has come, counted from the first row and divided by the speed. Rows that match `--delete-when`
delete their record instead; the changes of one record are never reordered. The command ends when
everything is durable.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Protocol

import click
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn

from sow.cli.connecting import server_command
from sow.cli.options import note_expression, topic_names
from sow.cli.output import as_json, show
from sow.cli.recording import Recording
from sow.cli.tables import progress
from sow.client import Client
from sow.errors import ClientError

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
