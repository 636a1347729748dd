"""`sow pipeline`: lists and runs the Spark pipelines of a config.xml."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import click
import orjson

from sow.cli.options import example, json_option, variables_option
from sow.cli.output import as_json, json_text, show
from sow.cli.supervision import end_with_input
from sow.config import require
from sow.config.diagnostics import MistakeError
from sow.config.elements.pipeline import spark_master
from sow.core.definitions import Configuration, ConflatedTopic, View
from sow.core.humanize import did_you_mean
from sow.core.pipelines import Pipeline
from sow.errors import ClientError

REFRESH_S = 0.5
"""How often the progress of a run is read: a batch takes a second at least."""
REPORT_EVERY_S = 10.0
"""Progress interval without a terminal, so that the log of a day stays readable."""
ASIDE_WORDS = {"late": "late", "ahead": "ahead of the clock", "without_key": "without a key"}
"""Names of the rows that `Conflate` leaves out."""
SUMMED = ("rows_in", "rows_out", *ASIDE_WORDS, "dead_letters")
STOPPING = (signal.SIGINT, signal.SIGTERM)


@click.group(epilog=example("sow pipeline list", "sow pipeline run bars --once"))
def pipeline() -> None:
    """List and run the pipelines of a configuration."""


def _config_options(command: Callable[..., Any]) -> Callable[..., Any]:
    config = click.option(
        "--config", default="config.xml", show_default=True, type=click.Path(),
        help="The configuration.",
    )  # fmt: skip
    return config(variables_option(json_option(command)))


def _run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    master = click.option(
        "--master", metavar="M", help="Spark's master, instead of Master in the file."
    )
    url = click.option(
        "--url", envvar="SOW_URL", default=None, show_envvar=True,
        help="Address of the server, instead of Listen in the file.",
    )  # fmt: skip
    data = click.option(
        "--data-dir", metavar="D", type=click.Path(file_okay=False),
        help="Directory of all data, instead of DataDirectory in the file.",
    )  # fmt: skip
    return master(url(data(command)))


@pipeline.command("list", epilog=example("sow pipeline list --config desk.xml"))
@_config_options
def list_pipelines(config: str, variables: dict[str, str]) -> None:
    """Name the pipelines, what they read and where they write."""
    configuration = require(config, variables, os.environ)
    found = [one.described() for one in configuration.pipelines]
    found += [
        {
            "name": copy.name,
            "source": f"sow {copy.underlying}",
            "sink": f"{'view' if isinstance(copy, View) else 'conflated topic'} {copy.name}",
            "trigger": "every 1 s",
            "master": "local[2]",
            "autostart": True,
        }
        for copy in run_by_spark(configuration)
    ]
    lines = [f"{one['name']}: {one['source']} -> {one['sink']}, {one['trigger']}" for one in found]
    show(found, lines)


@pipeline.command(
    "run",
    epilog=example("sow pipeline run bars", 'sow pipeline run bars --once --master "local[4]"'),
)
@click.argument("name")
@click.option("--once", is_flag=True, help="Process everything there is, and end.")
@_run_options
@click.option("--until-input-ends", is_flag=True,
              help="End when standard input ends, as a child of a server does.")  # fmt: skip
@_config_options
def run_pipeline(
    name: str,
    once: bool,
    master: str | None,
    url: str | None,
    data_dir: str | None,
    until_input_ends: bool,
    config: str,
    variables: dict[str, str],
) -> None:
    """Run the pipeline NAME until it ends, or Ctrl-C or SIGTERM stops it.

    It continues where its last run ended: it loses no row and writes none twice.
    """
    if until_input_ends:
        end_with_input()
    configuration = require(config, variables, os.environ)
    from sow.spark.pipelines import Running, topic_pipeline

    directory = Path(data_dir or configuration.data_directory).absolute()
    if master is not None:
        _check_master(master)
    address = url or configuration.url
    found = _named(configuration, name)
    if isinstance(found, Pipeline):
        log_on_by(found)
        running = Running(found, address, directory, once, master)
    else:
        run_for = _run_for(found, configuration)
        running = Running(topic_pipeline(found), address, directory, once, master, run_for)
    _follow(running, PipelineScreen(name, as_json(), until_input_ends, running.dead_letters))


@pipeline.command(
    "backfill",
    epilog=example(
        "sow pipeline backfill bars --from 2026-11-21T09:00:00Z --to 2026-11-21T10:00:00Z",
        "sow pipeline backfill bars --from earliest --to 4711 --dry-run",
    ),
)
@click.argument("name")
@click.option("--from", "start", metavar="B", required=True,
              help="Bookmark after which, or time at which, it begins; or earliest.")  # fmt: skip
@click.option("--to", "end", metavar="B", required=True,
              help="Last bookmark, or time before which it ends; or latest.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say how many rows there are, and end.")
@_run_options
@_config_options
def backfill_pipeline(
    name: str,
    start: str,
    end: str,
    dry_run: bool,
    master: str | None,
    url: str | None,
    data_dir: str | None,
    config: str,
    variables: dict[str, str],
) -> None:
    """Run the pipeline NAME once more over a range of the log.

    Its own progress stays where it is. What is interrupted goes on with the same command.
    """
    configuration = require(config, variables, os.environ)
    found = _named(configuration, name)
    if not isinstance(found, Pipeline):
        raise ClientError(
            f"{name} is a topic that Spark runs, whose records are those of its whole log: a range "
            "of it cannot be run again"
        )
    from sow.spark.pipeline_io import backfill
    from sow.spark.pipelines import Running

    if master is not None:
        _check_master(master)
    log_on_by(found)
    directory, address = Path(data_dir or configuration.data_directory), url or configuration.url
    part = backfill(found, address, directory.absolute(), start, end)
    rows, ends = sum(part.rows.values()), {"from": str(part.after), "to": str(part.until)}
    if dry_run or not rows:
        line = f"{rows:,} rows after bookmark {part.after} up to {part.until}"
        show({"pipeline": name, **ends, "rows": rows, "sources": dict(part.rows)}, line)
        return
    running = Running(part.pipeline, address, directory.absolute(), True, master, until=part.until)
    _follow(running, PipelineScreen(name, as_json(), dead_letters=running.dead_letters))


def log_on_by(one: Pipeline) -> None:
    """Make all requests of this process, and of Spark's workers, use the pipeline's token: each
    reads it from the file. Raises ClientError if it holds none."""
    if one.token_file:
        from sow.spark.http import TokenSource

        try:
            TokenSource(token_file=one.token_file).header()
        except ClientError as error:
            raise ClientError(f"TokenFile of pipeline {one.name}: {error.detail}") from None
        os.environ["SOW_TOKEN_FILE"] = os.path.abspath(one.token_file)


def _check_master(text: str) -> None:
    try:
        spark_master(text)
    except MistakeError as mistake:
        raise click.BadParameter(
            f"{mistake.message}; {mistake.instead}", param_hint="'--master'"
        ) from None


def run_by_spark(configuration: Configuration) -> list[ConflatedTopic | View]:
    """The conflated topics and views whose engine is Spark."""
    found = [one for one in configuration.topics if isinstance(one, ConflatedTopic | View)]
    return [one for one in found if one.engine == "spark"]


def _run_for(topic: ConflatedTopic | View, configuration: Configuration) -> Any:
    """What Spark does for a topic whose engine it is."""
    from sow.spark.pipeline_conflation import SparkConflation
    from sow.spark.views import SparkView

    kinds = configuration.message_types
    if isinstance(topic, ConflatedTopic):
        return SparkConflation(topic, kinds)
    types = {one.name: one.message_type for one in configuration.topics}
    return SparkView(topic, types[topic.underlying], kinds)


def beside(configuration: Configuration) -> list[str]:
    """The commands to run beside a server: pipelines that start by themselves, and Spark's
    topics."""
    pipelines = [one.name for one in configuration.pipelines if one.autostart]
    return pipelines + [copy.name for copy in run_by_spark(configuration)]


def _named(configuration: Configuration, name: str) -> Pipeline | ConflatedTopic | View:
    runnable: list[Pipeline | ConflatedTopic | View] = [*configuration.pipelines]
    runnable += run_by_spark(configuration)
    names = [one.name for one in runnable]
    for one in runnable:
        if one.name == name:
            return one
    raise ClientError(f"no pipeline {name!r}{did_you_mean(name, names)}")


def _follow(running: Any, screen: "PipelineScreen") -> None:
    """Start a run and show its progress until it ends; raises ClientError when it fails."""
    wanted = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        # Only set a flag: Spark must not be interrupted in the middle of a write.
        wanted.set()

    def listen() -> list[tuple[signal.Signals, Any]]:
        return [(number, signal.signal(number, stop)) for number in STOPPING]

    before = listen()
    try:
        screen.write("starting Spark")
        running.start()
        listen()  # Spark has replaced one of them
        with screen.open():
            while not (wanted.is_set() or running.has_ended(REFRESH_S)):
                running.keep()
                screen.show(running.query)
            if wanted.is_set():
                running.finish()
            screen.show(running.query)
            if not wanted.is_set():
                running.complete()
        screen.end()
    except ClientError:
        raise
    except Exception as error:
        raise ClientError(running.reason(error)) from None
    finally:
        running.stop()
        for number, handler in before:
            signal.signal(number, handler)


class PipelineScreen:
    """Progress of a run of the pipeline `name`: a line that is overwritten in a terminal, else a
    line now and then; with `as_json`, or where a parent process `reports`, a line for each batch.
    `dead_letters` counts those of a batch."""

    def __init__(
        self,
        name: str,
        as_json: bool,
        reports: bool = False,
        dead_letters: Callable[[int], int] = lambda _batch: 0,
    ) -> None:
        self._name = name
        self._reports = reports
        self._as_json = as_json
        self._dead_letters = dead_letters
        self._live: Any = None
        self._batch = -1
        self._batches = 0
        self._sums = dict.fromkeys(SUMMED, 0)
        self._reported_s = 0.0

    def write(self, text: str) -> None:
        """Write a line for people. A parent process takes the last line for an error."""
        if not (self._as_json or self._reports):
            click.echo(f"sow: pipeline {self._name}: {text}", err=True)

    def open(self) -> Any:
        """The context around `show`."""
        # Imported here: a server without pipelines draws nothing, and starts sooner.
        from rich.console import Console
        from rich.live import Live

        self._live = Live(console=Console(stderr=True), auto_refresh=False)
        return self._live

    def show(self, query: Any) -> None:
        """Show the batches of the query since the last call."""
        for progress in query.recentProgress:
            # An idle query reports the coming batch, too.
            was_run = "addBatch" in progress["durationMs"]
            if was_run and progress["batchId"] > self._batch:
                self._batch = progress["batchId"]
                self._show_batch(_figures(progress, self._dead_letters(self._batch)))

    def _show_batch(self, figures: Mapping[str, Any]) -> None:
        self._batches += 1
        for name in SUMMED:
            self._sums[name] += figures[name]
        if self._as_json or self._reports:
            click.echo(json_text({"pipeline": self._name, **figures}))
            return
        rate, lag = f", {figures['rows_per_s']:,} rows/s", figures["lag"]
        behind = "" if lag is None else f", {lag:,} behind"
        line = f"batch {figures['batch']}: {_counts(figures, rate + behind)}"
        if sys.stderr.isatty() and self._live is not None:
            from rich.text import Text

            self._live.update(Text(line), refresh=True)
        elif time.monotonic() - self._reported_s > REPORT_EVERY_S:
            self._reported_s = time.monotonic()
            self.write(line)

    def end(self) -> None:
        """Report the whole run, if it had batches."""
        if self._batches:
            count = f"{self._batches:,} batch{'es' * (self._batches != 1)}"
            self.write(f"{count}: {_counts(self._sums)}")


def _figures(progress: Any, dead_letters: int) -> dict[str, Any]:
    """The figures of one batch, and the lag after it."""
    observed = progress.get("observedMetrics") or {}
    rows_in = sum(_rows(observed, name) for name in observed if name.startswith("sow_rows_in"))
    rows_out = _rows(observed, "sow_rows_out")
    lag, lag_s = _lag(progress)
    return {
        "batch": progress["batchId"],
        "rows_in": rows_in,
        "rows_out": rows_out,
        **{why: _rows(observed, "sow_rows_aside", why) for why in ASIDE_WORDS},
        "dead_letters": dead_letters,
        "rows_per_s": round(progress.get("processedRowsPerSecond") or 0.0) if rows_in else 0,
        "lag": lag,
        "lag_seconds": lag_s,
        "conflation_ratio": _ratio(rows_in, rows_out),
    }


def _ratio(rows_in: int, rows_out: int) -> float:
    return round(rows_in / max(1, rows_out), 2)


def _counts(figures: Mapping[str, int], more: str = "") -> str:
    """Rows in and out, and those left out, as text."""
    rows_in, rows_out = figures["rows_in"], figures["rows_out"]
    words = {**ASIDE_WORDS, "dead_letters": "dead letters"}
    aside = "".join(f", {figures[why]:,} {text}" for why, text in words.items() if figures[why])
    ratio = _ratio(rows_in, rows_out)
    return f"{rows_in:,} rows in, {rows_out:,} out ({ratio:g}x){more}{aside}"


def _rows(observed: Any, name: str, count: str = "rows") -> int:
    found = observed.get(name)
    if found is None:
        return 0
    return int(found[count] if isinstance(found, dict) else getattr(found, count))


def _lag(progress: Any) -> tuple[int | None, float | None]:
    """Rows that are in no batch yet, and for how long, each of the source where it is most."""
    rows, seconds = [], []
    for source in progress.get("sources") or []:
        try:
            offset = orjson.loads(source["latestOffset"])
            rows.append(int(offset["lag_rows"]))
            seconds.append(float(offset.get("lag_seconds", 0)))
        except (KeyError, TypeError, ValueError):
            continue
    return max(rows, default=None), max(seconds, default=None)
