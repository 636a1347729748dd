"""Pipelines: a source, SQL, conflation and a sink, put together as one streaming query.

Everything a run has to remember is in `pipelines/NAME` of the data directory: Spark's checkpoint,
from which the next run goes on exactly, the name under which batches are written, and a lock, since
two runs of one pipeline would undo each other's work.

Rows of files that are taken up once are a whole log, so their windows are all handed on; every
other source has no end, and its open windows wait in the checkpoint.
"""

import fcntl
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from conflated_topics.recorded import Spec
from conflated_topics.spark import conflate, conflate_each_batch
from sow.definitions import ConflatedTopic
from sow.errors import ClientError
from sow.expressions import compile_filter
from sow.messages import message_type
from sow.paths import Path as FieldPath
from sow.paths import parse_path
from sow.pipelines import Option, Pipeline, Sink, Source
from sow.spark.conflation import GONE as GONE_ROW
from sow.spark.conflation import SparkConflation
from sow.spark.http import Server, segment
from sow.spark.session import has_session, session
from sow.store.private import make_directory, open_file

ROWS_OF_A_BATCH = "100000"
GONE = "__gone"
OUTSIDE = "__outside"
ROWS_IN, ROWS_OUT = "sow_rows_in", "sow_rows_out"
NANOSECONDS = {"spark.sql.legacy.parquet.nanosAsLong": "true"}
"""Recorded data has times in nanoseconds, which Spark reads as numbers or not at all."""


class Running:
    """One run of a pipeline, from `start` until it has ended or is stopped."""

    def __init__(
        self,
        pipeline: Pipeline,
        url: str,
        data_directory: Path,
        once: bool,
        master: str | None,
        conflation: SparkConflation | None = None,
    ) -> None:
        self.pipeline = pipeline
        self._conflation = conflation
        self.once = once or pipeline.trigger_us is None
        self.query: Any = None
        self._url = url
        self._data_directory = data_directory
        self._directory = data_directory / "pipelines" / pipeline.name
        self._master = master or pipeline.master
        self._spark: Any = None
        self._lock: int | None = None
        self._began_spark = False

    def start(self) -> None:
        """Begin; raises ClientError for what the definition gets wrong."""
        if self.once and self.pipeline.source.format == "rate":
            raise ClientError("the source rate has no end; leave out --once and Trigger once")
        make_directory(self._directory)
        self._lock = _locked(self._directory / "lock", self.pipeline.name)
        conf = NANOSECONDS | _given(self.pipeline.settings)
        self._began_spark = not has_session()
        self._spark = session(f"sow {self.pipeline.name}", self._master, conf)
        for name, value in NANOSECONDS.items():
            self._spark.conf.set(name, value)
        try:
            self.query = self._written(self._rows())
        except Exception as error:
            raise ClientError(f"pipeline {self.pipeline.name}: {reason(error)}") from None

    def stop(self) -> None:
        """End the run between two batches, and Spark if this has started it."""
        if self.query is not None:
            self.query.stop()
        if self._spark is not None and self._began_spark:
            self._spark.stop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # Rows.

    def _rows(self) -> Any:
        from pyspark.sql.functions import count, lit

        frame = self._queried(ticks=self.pipeline.conflate is not None)
        if self.pipeline.conflate is not None:
            if not {"op", "_op"} & set(frame.columns):
                # The SQL has dropped what tells a tick from a record.
                frame = self._queried(ticks=False)
            frame = self._conflated(frame)
        return frame.observe(ROWS_OUT, count(lit(1)).alias("rows"))

    def _queried(self, ticks: bool) -> Any:
        """What comes of the source after the SQL."""
        from pyspark.sql.functions import count, lit

        frame = self._source(ticks)
        frame = frame.observe(ROWS_IN, count(lit(1)).alias("rows"))
        if self._conflation is not None:
            frame = _copied(frame, self._conflation)
        if self.pipeline.sql is not None:
            frame.createOrReplaceTempView("source")
            frame = self._spark.sql(self.pipeline.sql)
        return frame

    def _source(self, ticks: bool) -> Any:
        source = self.pipeline.source
        reader = self._spark.readStream.format(source.format)
        schema = source.schema
        if source.is_files:
            path = str(self._data_directory / (source.path or ""))
            if schema is None:
                files = self._spark.read.format(source.format).options(**_given(source.options))
                schema = files.load(path).schema
            reader = reader.option("path", _directory_of(path)).options(**_only(path))
        if source.format == "sow":
            reader = reader.options(**self._sow_options(ticks))
            if ticks and schema is not None and self.pipeline.sql is None:
                schema = schema if "_op" in schema else f"{schema}, _op string"
        if schema is not None:
            reader = reader.schema(schema)
        frame = _timed(reader.options(**_given(source.options)).load(), source)
        if source.watermark_us is not None:
            frame = frame.withWatermark(source.time, f"{source.watermark_us} microseconds")
        return frame

    def _sow_options(self, ticks: bool) -> dict[str, str]:
        options = {
            "url": self._url,
            "topic": self.pipeline.source.topic or "",
            "maxRowsPerTrigger": ROWS_OF_A_BATCH,
        }
        if ticks and self.pipeline.conflate is not None:
            options["closesWithin"] = f"{self.pipeline.conflate.interval_us}us"
        if self._conflation is not None:
            name = self._conflation.definition.name
            copy = Server(self._url).json("GET", f"/v1/topics/{segment(name)}")
            options["closesWithin"] = f"{self._conflation.definition.interval_us}us"
            # What the copy was filled with need not be read; what comes later is kept for it.
            options["startingBookmark"] = copy["filled_bookmark"]
            options["consumer"] = f"conflated topic {name}"
        return options

    def _conflated(self, frame: Any) -> Any:
        from pyspark.sql.functions import coalesce, col, lit, when

        wanted, time = self.pipeline.conflate, self.pipeline.source.time
        assert wanted is not None
        if time not in frame.columns:
            raise ClientError(f"after the SQL there is no column {time!r} to conflate by; keep it")
        columns = frame.columns
        gone = lit(False)
        does = next((name for name in ("op", "_op") if name in columns), None)
        if does is not None:
            gone = gone | coalesce(~col(does).isin("publish", "tick"), lit(False))
        if wanted.filter is not None:
            frame = _judged(frame, wanted.filter)
            gone = gone | col(OUTSIDE)
        frame = frame.withColumn(GONE, gone)
        keys = []
        if self._is_by_record(columns):
            # A delete has no body, and is its record's all the same.
            frame, keys = frame.withColumn("__key", col("key")), ["__key"]
        else:
            for place, text in enumerate(wanted.keys):
                name = f"__key_{place}"
                frame = frame.withColumn(name, _field(columns, parse_path(text)))
                keys.append(name)
        order = ("bookmark",) if "bookmark" in columns else ()
        spec = Spec(tuple(keys), time or "", wanted.interval_us, wanted.policy, order, GONE)
        if self.once and self.pipeline.source.is_files:
            frame = conflate_each_batch(frame, spec)
        else:
            interval = timedelta(microseconds=wanted.interval_us)
            frame = conflate(
                frame, keys, spec.time, interval, spec.policy, order=order, delete=GONE
            )
        if self.pipeline.sink.topic is not None:
            frame = frame.withColumn("op", when(col(GONE), "delete").otherwise("publish"))
        elif does is None:
            frame = frame.where(~col(GONE))
        else:
            left = col(GONE) & (col(does) == "publish")
            frame = frame.withColumn(does, when(left, "match").otherwise(col(does)))
        return frame.drop(*keys, GONE, OUTSIDE)

    def _is_by_record(self, columns: list[str]) -> bool:
        """Whether the keys are those of the source's topic, so that its SowKey is as good."""
        assert self.pipeline.conflate is not None
        source, wanted = self.pipeline.source, self.pipeline.conflate
        if source.format != "sow" or not {"key", "bookmark", "value"} <= set(columns):
            return False
        topic = Server(self._url).json("GET", f"/v1/topics/{segment(source.topic or '')}")
        return set(topic.get("keys", [])) == set(wanted.keys)

    # The sink.

    def _written(self, frame: Any) -> Any:
        sink, pipeline = self.pipeline.sink, self.pipeline
        writer = frame.writeStream.queryName(pipeline.name).outputMode(pipeline.output_mode)
        writer = writer.option("checkpointLocation", str(self._directory / "checkpoint"))
        if self.once:
            writer = writer.trigger(availableNow=True)
        else:
            assert pipeline.trigger_us is not None
            writer = writer.trigger(processingTime=f"{pipeline.trigger_us / 1000:g} milliseconds")
        options = _given(sink.options)
        if sink.topic is None:
            columns = [name for name in options.pop("partitionBy", "").split(",") if name]
            path = str(self._data_directory / (sink.path or ""))
            writer = writer.format(sink.format).option("path", path).options(**options)
            return (writer.partitionBy(*columns) if columns else writer).start()
        options = {"url": self._url, "topic": sink.topic, **options}
        if pipeline.output_mode == "append":
            return writer.format("sow").options(**options).start()
        return writer.foreachBatch(_upsert(options, self._writer_name())).start()

    def _writer_name(self) -> str:
        """The name under which this pipeline's batches are known to the server, from its first
        run until its state is removed."""
        file = self._directory / "writer"
        if not file.exists():
            unfinished = file.with_suffix(".new")
            unfinished.write_text(f"pipeline {self.pipeline.name} {uuid.uuid4()}")
            unfinished.replace(file)
        return file.read_text()


def conflated_topic(definition: ConflatedTopic) -> Pipeline:
    """What runs a conflated topic whose engine is Spark."""
    return Pipeline(
        name=quote(definition.name, safe=""),
        source=Source(format="sow", topic=definition.underlying),
        sink=Sink(topic=definition.name),
        autostart=True,
    )


def _copied(frame: Any, conflation: SparkConflation) -> Any:
    """Rows of a log as what the copy is to become."""
    from pyspark.sql.types import BooleanType, StructField, StructType

    schema = StructType([*frame.schema.fields, StructField(GONE_ROW, BooleanType())])

    def prepare(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(conflation.prepare, batches)

    spec = conflation.spec
    interval = timedelta(microseconds=spec.interval_us)
    frame = frame.mapInArrow(prepare, schema)
    frame = conflate(frame, spec.keys, spec.time, interval, spec.policy, spec.order, spec.delete)
    return frame.drop(GONE_ROW)


def _upsert(options: Mapping[str, str], name: str) -> Callable[[Any, int], None]:
    """Writes a batch under the pipeline's name: a Python sink takes no updates otherwise."""

    def write(frame: Any, batch: int) -> None:
        writer = frame.write.format("sow").options(**options, writer=name, epoch=str(batch))
        writer.mode("append").save()

    return write


def _locked(file: Path, name: str) -> int:
    lock = open_file(file)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(lock)
        raise ClientError(f"pipeline {name} is running already, as process {holder}") from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _given(options: Iterable[Option]) -> dict[str, str]:
    return {option.name: option.value for option in options}


def _directory_of(path: str) -> str:
    """Spark streams directories; a single file is the only one wanted of its own."""
    return str(Path(path).parent) if Path(path).is_file() else path


def _only(path: str) -> dict[str, str]:
    return {"pathGlobFilter": Path(path).name} if Path(path).is_file() else {}


def _timed(frame: Any, source: Source) -> Any:
    """The source's rows with their time as a timestamp, whatever it was counted in."""
    from pyspark.sql.functions import abs as magnitude
    from pyspark.sql.functions import col, timestamp_micros, when
    from pyspark.sql.types import IntegralType

    if source.time is None:
        return frame
    if source.time not in frame.columns:
        raise ClientError(
            f"the source has no column {source.time!r}; TimeColumn must be one of "
            f"{', '.join(frame.columns)}"
        )
    if not isinstance(frame.schema[source.time].dataType, IntegralType):
        return frame.withColumn(source.time, col(source.time).cast("timestamp"))
    # Of this century's times each unit has numbers of its own size.
    number = col(source.time)
    micros = (
        when(magnitude(number) >= 10**17, (number / 1000).cast("long"))
        .when(magnitude(number) >= 10**14, number)
        .when(magnitude(number) >= 10**11, number * 1000)
        .otherwise(number * 1_000_000)
    )
    return frame.withColumn(source.time, timestamp_micros(micros))


def _field(columns: list[str], path: FieldPath) -> Any:
    """A column, a field of one, or a field of the body in `value`."""
    from pyspark.sql.functions import col, get_json_object

    first, *inside = (str(step) for step in path.steps)
    if first in columns:
        return col(".".join(f"`{name}`" for name in (first, *inside)))
    if "value" not in columns:
        raise ClientError(
            f"there is no column {first!r} for the key {path}; use one of {', '.join(columns)}"
        )
    return get_json_object(col("value"), ".".join(["$", first, *inside]))


def _judged(frame: Any, text: str) -> Any:
    """Rows with the server's verdict on a filter: whether they are outside of it."""
    from pyspark.sql.types import BooleanType, StructField, StructType

    schema = StructType([*frame.schema.fields, StructField(OUTSIDE, BooleanType())])

    def judge(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        condition = compile_filter(text)
        for batch in batches:
            columns = _values(batch, condition.paths)
            inside = condition.matches(columns, len(batch)) if len(batch) else []
            outside = pa.array([not hit for hit in inside], pa.bool_())
            yield batch.append_column(OUTSIDE, outside)

    return frame.mapInArrow(judge, schema)


def _values(batch: pa.RecordBatch, paths: Iterable[FieldPath]) -> list[Any]:
    """The values that a filter reads, from columns or from bodies."""
    names, found = batch.schema.names, []
    bodies: list[bytes] | None = None
    for path in paths:
        first, *inside = path.steps
        if first in names:
            column = batch.column(first)
            for step in inside:
                column = pc.struct_field(column, step)
            found.append(column.to_pylist())
        elif "value" in names:
            if bodies is None:
                bodies = [(text or "{}").encode() for text in batch.column("value").to_pylist()]
            found += message_type("json", {}).decoder((path,)).columns(bodies)
        else:
            raise ClientError(f"the filter reads {path}, and there is no such column")
    return found


# What is said of errors.

OURS = ("Refused: ", "ClientError: ", "SowError: ", "DataLoss: ", "ValueError: ")
MISSING = "Failed to find the data source: kafka"
KAFKA = (
    "Spark's connector for Kafka is not here; add <Setting Name='spark.jars.packages' "
    "Value='org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0'/> to the pipeline"
)


def reason(error: BaseException) -> str:
    """One sentence of what Spark says in a hundred lines."""
    text = str(error)
    if MISSING in text or ("kafka" in text and "DATA_SOURCE_NOT_FOUND" in text):
        return KAFKA
    for mark in OURS:
        if mark in text:
            return text.rpartition(mark)[2].splitlines()[0].strip().strip("'\"")
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__
