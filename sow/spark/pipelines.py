"""Runs of pipelines: a source, SQL, conflation and a sink, put together as one streaming query.

Everything a run has to remember is in `pipelines/NAME` of the data directory: Spark's checkpoint,
from which the next run goes on exactly, the name under which batches are written, and a lock, since
two runs of one pipeline would undo each other's work.

Files that are taken up once come to an end, where their windows are all handed on
(`sow.spark.ending`); every other source has none, and its open windows wait in the checkpoint.
"""

import fcntl
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sow.definitions import ConflatedTopic
from sow.errors import ClientError
from sow.pipelines import Pipeline, Sink, Source
from sow.spark.conflation import SparkConflation
from sow.spark.ending import ToItsEnd, endings
from sow.spark.pipeline_conflation import conflated, copied
from sow.spark.pipeline_sink import written
from sow.spark.pipeline_source import SourceRows, given
from sow.spark.reasons import reason
from sow.spark.session import has_session, session
from sow.store.private import make_directory, open_file

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
        conf = NANOSECONDS | given(self.pipeline.settings)
        self._began_spark = not has_session()
        self._spark = session(f"sow {self.pipeline.name}", self._master, conf)
        for name, value in NANOSECONDS.items():
            self._spark.conf.set(name, value)
        try:
            self.query = ToItsEnd(self._begun) if self._ends else self._begun(False)
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

    @property
    def _ends(self) -> bool:
        """Whether there are windows that a run has to end."""
        one = self.pipeline
        return self.once and one.source.is_files and one.conflate is not None

    def _begun(self, ends: bool) -> Any:
        """A query; the one that `ends` a run takes up nothing new."""
        return written(
            self._rows(ends),
            self.pipeline,
            self._url,
            self._data_directory,
            self._directory,
            self.once,
        )

    # Rows.

    def _rows(self, ends: bool) -> Any:
        from pyspark.sql.functions import count, lit

        frame = self._queried(self.pipeline.conflate is not None, ends)
        if self.pipeline.conflate is not None:
            if not {"op", "_op"} & set(frame.columns):
                # The SQL has dropped what tells a tick from a record.
                frame = self._queried(False, ends)
            # Part of every query over files, so that any run goes on from any other.
            told = endings(self._spark, ends) if self.pipeline.source.is_files else None
            frame = conflated(frame, self.pipeline, self._url, told)
        return frame.observe(ROWS_OUT, count(lit(1)).alias("rows"))

    def _queried(self, ticks: bool, ends: bool) -> Any:
        """What comes of the source after the SQL."""
        from pyspark.sql.functions import count, lit

        reads = SourceRows(
            self._spark, self.pipeline, self._url, self._data_directory, self._conflation
        )
        frame = reads.frame(ticks, takes_up=not ends)
        frame = frame.observe(ROWS_IN, count(lit(1)).alias("rows"))
        if self._conflation is not None:
            frame = copied(frame, self._conflation)
        if self.pipeline.sql is not None:
            frame.createOrReplaceTempView("source")
            frame = self._spark.sql(self.pipeline.sql)
        return frame


def conflated_topic(definition: ConflatedTopic) -> Pipeline:
    """What runs a conflated topic whose engine is Spark."""
    return Pipeline(
        name=quote(definition.name, safe=""),
        source=Source(format="sow", topic=definition.underlying),
        sink=Sink(topic=definition.name),
        autostart=True,
    )


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
