"""The sources and the sink of a pipeline.

A source gives its rows as a stream, with their time as a timestamp; a static table is read once.
Files are read with the given schema, or with their own; a topic of the server with the options that
its conflation needs; any other format as Spark reads it.

The sink is a topic of the server, or a sink of Spark's own, such as files. Spark's own sinks keep
their abilities. A topic takes appended rows through `format("sow")`, and updates batch by batch,
under a name that outlives the run: so the server recognizes a batch that Spark repeats.

A backfill runs a pipeline once more over a range of the log. It is another query with a state of
its own, beside that of the pipeline: what it interrupts goes on when the same one is run again, and
what is complete is removed. A changed definition makes another one.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow.parquet import read_schema
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
from pyspark.sql.types import StructType

from sow.core.pipelines import (
    FILES,
    STREAM,
    UNITS,
    Input,
    Pipeline,
    PipelineOption,
    Source,
    Static,
    TimeUnit,
    has_scheme,
    located,
    plain,
)
from sow.errors import ClientError
from sow.history.bookmarks import POSITION, is_time, moment_us
from sow.spark.http import ServerRefusal, SourceOptions, own_server, read_options, segment
from sow.spark.pipeline_conflation import SparkConflation, for_topic
from sow.spark.reader import STARTS
from sow.spark.rows import end_of_range, extent, position
from sow.spark.run_state import RunState, directory_of, opened
from sow.spark.source import SowDataSource
from sow.spark.stream import SowStreamReader
from sow.spark.views import SparkView
from sow.spark.write_target import writer_of

NANOSECONDS_OF: Mapping[TimeUnit, int] = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
NO_FILE = "no/file"
"""A pattern of names that matches nothing."""


class SourceRows:
    """The sources of a pipeline."""

    def __init__(
        self,
        spark: Any,
        pipeline: Pipeline,
        url: str,
        data_directory: Path,
        run_for: SparkConflation | SparkView | None,
        until: int | None = None,
    ) -> None:
        self._spark = spark
        self._until = until
        self._pipeline = pipeline
        self._url = url
        self._data_directory = data_directory
        self._run_for = run_for

    def table(self, static: Static) -> Any:
        """A static table, read once: its rows stay with Spark's executors."""
        reader = self._spark.read.format(static.format)
        if static.format == "sow":
            reader = reader.options(url=self._url, topic=static.topic or "")
        if static.schema is not None:
            reader = reader.schema(static.schema)
        reader = reader.options(**given(static.options))
        return reader.load(self._located(static)).localCheckpoint()

    def frame(self, source: Source, ticks: bool, takes_up: bool = True) -> Any:
        """The rows of a source as a stream. `ticks` adds rows for silence, `takes_up` includes new
        files."""
        reader = self._spark.readStream.format(source.format)
        if source.format == "sow" and self._until is not None:
            self._spark.dataSource.register(RangeSource)
            reader = self._spark.readStream.format(RangeSource.name()).option("until", self._until)
        schema, path = source.schema, self._located(source)
        if source.is_files:
            assert path is not None
            if schema is None:
                files = self._spark.read.format(source.format).options(**given(source.options))
                schema = files.load(path).schema
            if Path(path).is_file():
                # Spark streams directories; a single file is selected in its own.
                reader = reader.option("pathGlobFilter", Path(path).name)
                path = str(Path(path).parent)
        if path is not None:
            reader = reader.option("path", path)
        if source.format == "sow":
            reader = reader.options(**self._options(source, ticks))
            if ticks and schema is not None and self._pipeline.sql is None:
                schema = schema if "_op" in schema else f"{schema}, _op string"
        if schema is not None:
            reader = reader.schema(schema)
        reader = reader.options(**given(source.options))
        if source.is_files and not takes_up:
            reader = reader.option("pathGlobFilter", NO_FILE)
        frame = reader.load()
        if source.format == "parquet" and source.time_unit is None and _is_whole(frame, source):
            source = replace(source, time_unit=self._unit_of_file(source))
        frame = _timed(frame, source)
        if source.watermark_us is not None:
            frame = frame.withWatermark(source.time, f"{source.watermark_us} microseconds")
        return frame

    def _unit_of_file(self, source: Source) -> TimeUnit | None:
        """What a file says that its times count: Spark reads nanoseconds as numbers."""
        reader = self._spark.read.format(source.format).options(**given(source.options))
        if source.schema is not None:
            reader = reader.schema(source.schema)
        try:
            files = reader.load(self._located(source)).inputFiles()
            storage, name = opened(files[0], "Path")
            kind = read_schema(name, filesystem=storage).field(source.time).type
        except (IndexError, KeyError, OSError, pa.ArrowException, ClientError):
            return None  # the number needs a TimeUnit
        return "ns" if pa.types.is_timestamp(kind) and kind.unit == "ns" else None

    def _located(self, read: Input) -> str | None:
        return None if read.path is None else located(read.path, str(self._data_directory))

    def _options(self, source: Source, ticks: bool) -> dict[str, str]:
        options = {"url": self._url, "topic": source.topic or ""}
        if ticks and self._pipeline.conflate is not None:
            wanted = self._pipeline.conflate
            options["closesWithin"] = f"{wanted.interval_us + wanted.lateness_us}us"
        if isinstance(self._run_for, SparkView):
            # A view starts with the existing records, and continues with their changes.
            options["startingBookmark"] = "snapshot"
            options["consumer"] = f"view {self._run_for.definition.name}"
        elif self._run_for is not None:
            name = self._run_for.definition.name
            copy = own_server(self._url).json("GET", f"/v1/topics/{segment(name)}")
            options["closesWithin"] = f"{self._run_for.definition.interval_us}us"
            # The conflated topic holds all up to here; its consumer retains what comes later.
            options["startingBookmark"] = copy["filled_bookmark"]
            options["consumer"] = f"conflated topic {name}"
        return options


def given(options: Iterable[PipelineOption]) -> dict[str, str]:
    """Options as Spark takes them."""
    return {option.name: option.value for option in options}


def _timed(frame: Any, source: Source) -> Any:
    """The source's rows with their time as a timestamp."""
    from pyspark.sql.functions import col, expr
    from pyspark.sql.types import NumericType

    if source.time is None:
        return frame
    if source.time not in frame.columns:
        if source.time_column is None and source.watermark_us is None:
            return frame  # not requested; conflation checks it itself
        raise ClientError(
            f"the source has no column {source.time!r}; TimeColumn must be one of "
            f"{', '.join(frame.columns)}"
        )
    is_whole = _is_whole(frame, source)
    if is_whole or (source.time_unit is not None and _is_a(NumericType, frame, source)):
        return frame.withColumn(source.time, expr(_instant(source, is_whole)))
    return frame.withColumn(source.time, col(_quoted(source.time)).cast("timestamp"))


def _is_whole(frame: Any, source: Source) -> bool:
    """Whether the time is a whole number, which says nothing without a unit."""
    from pyspark.sql.types import IntegralType

    return _is_a(IntegralType, frame, source)


def _is_a(kind: type, frame: Any, source: Source) -> bool:
    return source.time in frame.columns and isinstance(frame.schema[source.time].dataType, kind)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _instant(source: Source, is_whole: bool = True) -> str:
    """A number as a timestamp, by integer arithmetic: a double lacks the digits."""
    column, unit = _quoted(source.time or ""), source.time_unit
    if unit is not None and not is_whole:
        # A double becomes the decimal that it is written as.
        column = f"floor(cast({column} AS decimal(38, 9)) * {NANOSECONDS_OF[unit]})"
        column, unit = f"cast({column} AS bigint)", "ns"
    match unit:
        case "s":
            return f"timestamp_seconds({column})"
        case "ms":
            return f"timestamp_millis({column})"
        case "us":
            return f"timestamp_micros({column})"
        case "ns":
            # Truncated to microseconds, also before 1970.
            return f"timestamp_micros(({column} - pmod({column}, 1000)) div 1000)"
    raise ClientError(
        f"the source's column {source.time!r} is a number; add its unit since 1970: "
        f"<TimeUnit>ns</TimeUnit> in Source, or another of {', '.join(UNITS)}"
    )


def written(
    frame: Any,
    pipeline: Pipeline,
    url: str,
    data_directory: Path,
    state: RunState,
    once: bool,
    restarts: bool = False,
) -> Any:
    """The query that writes the rows, with its checkpoint in `state`. If it `restarts`, its first
    batch is the complete content of the topic."""
    sink = pipeline.sink
    frame, written_by = (frame, {}) if sink.topic is None else for_topic(frame, pipeline)
    writer = frame.writeStream.queryName(pipeline.name).outputMode(pipeline.output_mode)
    writer = writer.option("checkpointLocation", state.checkpoint)
    if once:
        writer = writer.trigger(availableNow=True)
    else:
        assert pipeline.trigger_us is not None
        writer = writer.trigger(processingTime=f"{pipeline.trigger_us / 1000:g} milliseconds")
    options = given(sink.options)
    if sink.topic is None:
        columns = [name for name in options.pop("partitionBy", "").split(",") if name]
        if sink.path is not None:
            writer = writer.option("path", located(sink.path, str(data_directory)))
        writer = writer.format(sink.format).options(**options)
        return (writer.partitionBy(*columns) if columns else writer).start()
    options = {"url": url, "topic": sink.topic, **written_by, **options}
    if pipeline.output_mode == "append" and not restarts:
        return writer.format("sow").options(**options).start()
    name = _writer_name(state, pipeline)
    return writer.foreachBatch(_upsert(options, name, restarts)).start()


def _writer_name(state: RunState, pipeline: Pipeline) -> str:
    """The name under which the server knows this pipeline's batches, from its first run until its
    state is removed."""
    name = state.files.read("writer")
    if name is None:
        name = f"{writer_of(pipeline.name)}{uuid.uuid4()}"
        state.files.write("writer", name)
    return name


def _upsert(options: Mapping[str, str], name: str, restarts: bool) -> Callable[[Any, int], None]:
    """Writes a batch under the pipeline's name: a Python sink supports neither updates nor
    replacing."""

    def write(frame: Any, batch: int) -> None:
        writer = frame.write.format("sow").options(**options, writer=name, epoch=str(batch))
        if restarts and batch == 0:
            writer = writer.options(mode="replace", allowEmpty="true")
        writer.mode("append").save()

    return write


# The ending of a run over rows that have an end (`sow.spark.pipelines`).

SCHEMA = pa.schema([("ending", pa.int64())])


class EndingSource(DataSource):
    """`format("sow_ending")`: with the option `ends` true one row per run, else none ever."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._ends = options.get("ends") == "true"

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "sow_ending"

    def schema(self) -> str:
        """The number of the ending."""
        return "ending long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The only reader."""
        return _EndingReader(self._ends)


class _EndingReader(DataSourceStreamReader, AvailableNow):
    """Offsets count endings."""

    def __init__(self, ends: bool) -> None:
        self._ends = ends
        self._last: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"ending": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """All ranges follow from the option."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        if self._last is None:
            self._last = start["ending"] + self._ends
        return {"ending": self._last}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(n) for n in range(start["ending"] + 1, end["ending"] + 1)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield pa.RecordBatch.from_pydict({"ending": [partition.value]}, schema=SCHEMA)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept."""

    def stop(self) -> None:
        """Nothing is held."""


def endings(spark: Any, ends: bool) -> Any:
    """The stream of endings, for one of the two queries."""
    spark.dataSource.register(EndingSource)
    return spark.readStream.format(EndingSource.name()).option("ends", str(ends).lower()).load()


# Backfills.

UNLISTED = (*FILES, "orc", "text", "avro", "xml")
"""Formats whose files Spark lists beside them: those that one query has written."""


class Backfill(NamedTuple):
    """A pipeline over the records after `after`, up to and including `until`, of a log, with the
    rows of each of its sources."""

    pipeline: Pipeline
    log: str
    after: int
    until: int
    rows: Mapping[str, int]


def backfill(pipeline: Pipeline, url: str, data_directory: Path, start: str, end: str) -> Backfill:
    """A pipeline as it runs over a range of the log; raises ClientError for a range, or a pipeline,
    that makes no sense."""
    _check_ranged(pipeline)
    log, after, until = _range(_read_as(pipeline.source, url), start, end)
    # Another definition gives other rows, and cannot go on with the state of this one.
    made = blake2b(repr(replace(pipeline, line=0)).encode(), digest_size=4).hexdigest()
    directory = directory_of(pipeline, data_directory).rstrip("/")
    if end == "latest":
        until = _interrupted(directory, after, made) or until
    begin, stop = position(log, after), position(log, until)
    rows = {}
    for source in pipeline.sources:
        options = _read_as(source, url)
        # Which changes pass a filter, their count does not say.
        condition = None if options.cdc else options.filter or None
        rows[source.name] = int(_extent(options, begin, stop, condition=condition)["rows"])
    starts = PipelineOption("startingBookmark", begin)
    sources = tuple(
        replace(one, options=(*_kept_options(one.options), starts)) for one in pipeline.sources
    )
    place = f"{directory}/backfill-{after}-{until}-{made}"
    ranged = replace(pipeline, sources=sources, checkpoint=place, trigger_us=None)
    return Backfill(ranged, log, after, until, rows)


def _interrupted(directory: str, after: int, made: str) -> int | None:
    """Where a range ends that begins there and has a state: the latest bookmark is another one by
    now, at least by what that run has written. None: there is none, or it is not to be seen from
    here."""
    if has_scheme(directory):
        return None
    found = Path(directory).glob(f"backfill-{after}-*-{made}")
    return max([int(one.name.split("-")[2]) for one in found], default=None)


def _check_ranged(pipeline: Pipeline) -> None:
    for source in pipeline.sources:
        if source.format != "sow":
            raise ClientError(
                f"pipeline {pipeline.name} reads {source.format}, which has no bookmarks: a range "
                "is one of the log of topics. Its own runs take up all that is there"
            )
    sink = pipeline.sink
    if sink.topic is None and sink.format in UNLISTED:
        raise ClientError(
            f"pipeline {pipeline.name} writes {sink.format} to {sink.path}, and Spark lists there "
            "the files of one query: it would pass over those of a backfill. Read the range by "
            'spark.read.format("sow") with startingBookmark and endingBookmark, and write it to '
            "another directory"
        )


def _kept_options(options: Iterable[PipelineOption]) -> Iterable[PipelineOption]:
    """The options of a source that hold for a range too: its consumer is that of the pipeline."""
    left_out = {plain("startingBookmark"), "consumer"}
    return (one for one in options if plain(one.name) not in left_out)


def _read_as(source: Source, url: str) -> SourceOptions:
    return read_options({"url": url, "topic": source.topic or "", **given(source.options)}, STREAM)


def _range(options: SourceOptions, start: str, end: str) -> tuple[str, int, int]:
    """The name of the log, and the ends of a range in it."""
    here = _extent(options, "now", limit=1)
    for name, text in (("--from", start), ("--to", end)):
        at_us = moment_us(text) if is_time(text) else None
        if at_us is not None and at_us > here["ts_us"]:
            raise ClientError(f"{name} {text} lies in the future; write latest, or an earlier time")
    log, newest, oldest = here["log"], int(here["newest"]), int(here["oldest"])
    after = int(_extent(options, STARTS.get(start, start), limit=1)["from"])
    try:
        to = end_of_range(options.server, options.topic, end) or position(log, newest)
    except ServerRefusal as error:
        raise ClientError(f"--to: {error.detail}") from None
    named = POSITION.fullmatch(to)
    until = int(named[2]) if named else newest
    if named and named[1] not in (None, log):
        raise ClientError(f"--to {end} is of another log; this is the log {log}")
    if until > newest:
        raise ClientError(f"--to {end} is not there yet: the newest bookmark is {newest}")
    if after >= until:
        raise ClientError(
            f"--from {start} to {end} is empty: it begins after bookmark {after} and ends with "
            f"{until}; write a later --to, or an earlier --from"
        )
    if is_time(start) and after == oldest > 0:
        raise ClientError(
            f"the log begins with bookmark {oldest + 1}, and does not say what came between "
            f"{start} and that; write --from earliest for what there is"
        )
    return log, after, until


def _extent(
    options: SourceOptions,
    start: str,
    to: str | None = None,
    limit: int | None = None,
    condition: str | None = None,
) -> Any:
    try:
        return extent(options.server, options.topic, start, to, limit, condition)
    except ServerRefusal as error:
        raise ClientError(f"Topic {options.topic}: {error.detail}") from None


class RangeSource(SowDataSource):
    """`format("sow_range")`: the log of a topic as a stream that ends with the bookmark in the
    option `until`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._until = int(options["until"])
        super().__init__({name: text for name, text in options.items() if name != "until"})

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "sow_range"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a stream, which reads no further."""
        reader = super().streamReader(schema)
        assert isinstance(reader, SowStreamReader)
        reader.until = self._until
        return reader
