"""Runs of pipelines: sources, SQL, conflation and a sink combined into one streaming query.

The state of a run is in one directory (`sow.spark.run_state`): Spark's checkpoint, from which the
next run continues exactly, and the name under which batches are written. One run at a time holds
it. A path or checkpoint with a scheme (`s3a://…`) is passed to Spark unchanged.

A run over files that is started once ends, and emits all windows at its end; every other source has
no end, and its open windows wait in the checkpoint. A streaming query does not know which of its
batches is the last. So a run over files is two queries on one checkpoint: the first reads the
files; the second has no new files, but its data source `sow_ending` has one row that makes
`conflate` emit all open windows (`ToItsEnd`). Both consist of ordinary batches: an interrupted one
runs again unchanged.

An error of Spark's has a hundred lines, and `reason` makes one sentence of it. Errors of SOW are
raised in Spark's workers and come back wrapped in Spark's own; their sentence is extracted. Spark's
own errors have a class, which maps to an element of the pipeline. The text is for users only:
nothing depends on it.
"""

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as AvailableNow
from pyspark.sql.types import StructType

from conflated_topics.user_texts import nearest
from sow.core.definitions import ConflatedTopic, View
from sow.core.pipelines import KNOWN_FORMATS, SPARKS_FORMATS, Pipeline, Sink, Source, has_scheme
from sow.errors import BadFilter, ClientError, SowError, clipped
from sow.spark.conflation import SparkConflation
from sow.spark.http import ServerRefusal, own_server, segment
from sow.spark.pipeline_conflation import conflated, copied, row_columns
from sow.spark.pipeline_io import SourceRows, given, written
from sow.spark.rows import DataLoss
from sow.spark.run_state import HadoopFiles, LeasedState, LocalState, RunState, directory_of
from sow.spark.session import has_session, session
from sow.spark.views import SparkView, following_operators, rows_of_groups

ROWS_IN, ROWS_OUT = "sow_rows_in", "sow_rows_out"
"""Names under which rows are counted; those in, for each source."""
NANOSECONDS = {"spark.sql.legacy.parquet.nanosAsLong": "true"}
"""Recorded data has times in nanoseconds, which Spark reads as numbers or not at all."""


FINISH_S_MAX = 30.0
"""How long a stopped run waits for its batch: some managers kill after that time."""
LOOK_S = 0.1
"""Poll interval: too short to notice when a user stops a run."""


class Running:
    """One run of a pipeline, from `start` until it ends or is stopped."""

    def __init__(
        self,
        pipeline: Pipeline,
        url: str,
        data_directory: Path,
        once: bool,
        master: str | None,
        run_for: SparkConflation | SparkView | None = None,
    ) -> None:
        self.pipeline = pipeline
        self._run_for = run_for
        """The topic whose engine is Spark, if this run serves one."""
        self.once = once or pipeline.trigger_us is None
        self.query: Any = None
        self._url = url
        self._data_directory = data_directory
        self._master = master or pipeline.master
        self._spark: Any = None
        self._state: RunState | None = None
        self._began_spark = False

    def start(self) -> None:
        """Start; raises ClientError for mistakes of the definition."""
        if self.once and any(source.format == "rate" for source in self.pipeline.sources):
            raise ClientError("the source rate has no end; leave out --once and Trigger once")
        directory = directory_of(self.pipeline, self._data_directory)
        if not has_scheme(directory):
            # Before Spark starts: a conflict is reported at once.
            state = LocalState(self.pipeline.name, Path(directory))
            self._hold(state)
            if isinstance(self._run_for, SparkView):
                state.make_for(self._purpose(self._run_for))
        conf = NANOSECONDS | given(self.pipeline.settings)
        self._began_spark = not has_session()
        self._spark = session(f"sow {self.pipeline.name}", self._master, conf)
        for name, value in NANOSECONDS.items():
            self._spark.conf.set(name, value)
        try:
            if has_scheme(directory):
                self._hold(self._leased(directory))
            for static in self.pipeline.statics:
                self._reads().table(static).createOrReplaceTempView(static.name)
            if isinstance(self._run_for, SparkView):
                with following_operators(self._spark):
                    self.query = self._begun(False)
            else:
                self.query = ToItsEnd(self._begun) if self._ends else self._begun(False)
        except Exception as error:
            raise ClientError(f"pipeline {self.pipeline.name}: {reason(error)}") from None

    def _purpose(self, view: SparkView) -> str:
        path = f"/v1/topics/{segment(view.definition.name)}"
        return view.purpose(own_server(self._url).json("GET", path)["filled_bookmark"])

    def _hold(self, state: RunState) -> None:
        state.hold()
        self._state = state

    def _leased(self, directory: str) -> LeasedState:
        if not hasattr(self._spark, "_jsc"):
            raise ClientError(
                f"Checkpoint {directory} is reached by the driver's Java, and over Spark Connect "
                "there is none; give a path, or run the pipeline where its driver is"
            )
        holder = f"process {os.getpid()} of {os.uname().nodename} ({secrets.token_hex(4)})"
        files = HadoopFiles(self._spark, directory)
        return LeasedState(self.pipeline.name, directory, files, time.time, holder)

    def keep(self) -> None:
        """To be called every few seconds while it runs; raises ClientError if another run has
        taken over its state."""
        if self._state is not None:
            self._state.keep()

    def finish(self) -> None:
        """Wait for the current batch to end, unless that takes too long.

        The next run repeats an interrupted batch, which is not counted here. Raises the error that
        has ended the query.
        """
        made = _batches_of(self.query)
        for _ in range(round(FINISH_S_MAX / LOOK_S)):
            if not self.query.status["isTriggerActive"] or _batches_of(self.query) > made:
                return
            if self.query.awaitTermination(LOOK_S):
                return

    def stop(self) -> None:
        """End the run, and Spark if this run started it; `finish` lets the last batch end first."""
        if self.query is not None:
            self.query.stop()
        if self._state is not None:
            self._state.release()
            self._state = None
        if self._spark is not None and self._began_spark:
            self._spark.stop()

    @property
    def _ends(self) -> bool:
        """Whether there are windows that a run has to end."""
        one = self.pipeline
        return self.once and one.source.is_files and one.conflate is not None

    def _begun(self, ends: bool) -> Any:
        """A query; the one that `ends` a run reads nothing new."""
        assert self._state is not None
        return written(
            self._rows(ends),
            self.pipeline,
            self._url,
            self._data_directory,
            self._state,
            self.once,
            isinstance(self._run_for, SparkView),
        )

    # Rows.

    def _rows(self, ends: bool) -> Any:
        from pyspark.sql.functions import count, lit

        frame = self._queried(self.pipeline.conflate is not None, ends)
        if self.pipeline.conflate is not None:
            if "op" not in row_columns(frame.columns, self.pipeline, has_text=False).names:
                # The SQL has dropped the column that distinguishes ticks from records.
                frame = self._queried(False, ends)
            # Part of every query over files, so that any run can continue any other.
            last = endings(self._spark, ends) if self.pipeline.source.is_files else None
            frame = conflated(frame, self.pipeline, self._url, last, str(self._data_directory))
        return frame.observe(ROWS_OUT, count(lit(1)).alias("rows"))

    def _reads(self) -> SourceRows:
        return SourceRows(
            self._spark, self.pipeline, self._url, self._data_directory, self._run_for
        )

    def _queried(self, ticks: bool, ends: bool) -> Any:
        """The result of the SQL over the sources."""
        if self.pipeline.sql is None:
            return self._taken(self.pipeline.source, ticks, ends)
        for source in self.pipeline.sources:
            self._taken(source, ticks, ends).createOrReplaceTempView(source.name)
        return self._spark.sql(self.pipeline.sql)

    def _taken(self, source: Source, ticks: bool, ends: bool) -> Any:
        """The rows of a source, counted: each under its own name, as Spark requires."""
        from pyspark.sql.functions import count, lit

        frame = self._reads().frame(source, ticks, takes_up=not ends)
        frame = frame.observe(f"{ROWS_IN}_{source.name}", count(lit(1)).alias("rows"))
        if isinstance(self._run_for, SparkView):
            return rows_of_groups(frame, self._run_for)
        return frame if self._run_for is None else copied(frame, self._run_for)


def topic_pipeline(definition: ConflatedTopic | View) -> Pipeline:
    """The pipeline of a conflated topic or a view whose engine is Spark."""
    return Pipeline(
        name=quote(definition.name, safe=""),
        sources=(Source(format="sow", topic=definition.underlying),),
        sink=Sink(topic=definition.name),
        autostart=True,
    )


def _batches_of(query: Any) -> int:
    """The number of batches that a query has reported, as far as it remembers."""
    return max((int(progress["batchId"]) for progress in query.recentProgress), default=-1)


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


class ToItsEnd:
    """The two queries of a run over files, with the interface of one.

    `begin` starts a query; its argument is whether the query ends the run.
    """

    def __init__(self, begin: Callable[[bool], Any]) -> None:
        self._begin = begin
        self._before: list[Any] = []
        self._ends = False
        self._query = begin(False)

    @property
    def recentProgress(self) -> list[Any]:
        """Batches of both queries."""
        return [*self._before, *self._query.recentProgress]

    @property
    def status(self) -> Any:
        """The status of the running query."""
        return self._query.status

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait for at most so many seconds; raises the error of a failed query."""
        ended: bool | None = self._query.awaitTermination(timeout)
        if self._ends or ended is False:
            return ended
        self._before = self._query.recentProgress
        self._ends = True
        self._query = self._begin(True)
        return self.awaitTermination(timeout)

    def stop(self) -> None:
        """Stop between two batches."""
        self._query.stop()


# Errors of Spark's.

KINDS = (ServerRefusal, BadFilter, ClientError, SowError, DataLoss, ValueError)
OURS = tuple(f"{kind.__name__}: " for kind in KINDS)
MISSING = "Failed to find the data source: kafka"
KAFKA = (
    "Spark's connector for Kafka is missing; add <Setting Name='spark.jars.packages' "
    "Value='org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0'/> to the pipeline"
)

OTHER_SOURCES = "sources in the checkpoint offsets and now there are"
EARLIER_RELEASE = (
    "this checkpoint comes from an earlier release, without Conflate or with other sources, and "
    "cannot be continued; start again by removing it: it is the Checkpoint of the pipeline "
    "or its directory under pipelines in the data directory"
)
CALLED = re.compile(r"An error occurred while calling \S+\.\s*:?\s*(?:[\w.$]+: )?")
"""The prefix that Python's bridge to Java adds."""
CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]\s+(.+)")
SQLSTATE = re.compile(r"\s*SQLSTATE: \w+.*")
WITHOUT_SCHEMA = "Schema must be specified"


class Meant(NamedTuple):
    """The element that an error of Spark's concerns, and what to write there."""

    element: str
    instead: str


WRONG_SCHEMA = Meant("Schema", "write the columns as the files have them, or leave Schema out")
ELEMENTS = {
    "PATH_NOT_FOUND": Meant(
        "Path",
        "create it, or write where the files are; a relative path starts at the data directory",
    ),
    "UNABLE_TO_INFER_SCHEMA": Meant("Path", "there are no such files yet: write a <Schema>"),
    "FAILED_READ_FILE": WRONG_SCHEMA,
    "CANNOT_READ_FILE_FOOTER": Meant("Format", "the files at Path have another one"),
    "UNRESOLVED_COLUMN": Meant("SQL", "write a column of its views"),
    "UNRESOLVED_ROUTINE": Meant("SQL", "write a function of Spark's"),
    "TABLE_OR_VIEW_NOT_FOUND": Meant("SQL", "write the name of a Source or a Static"),
    "PARSE_SYNTAX_ERROR": Meant("SQL", "sow check shows where"),
    "DATATYPE_MISMATCH": Meant("SQL", "cast the column"),
    "CAST_INVALID_INPUT": Meant("SQL", "use try_cast, or leave the rows out"),
}
"""By the class of an error, or by its prefix."""


def reason(error: BaseException) -> str:
    """One sentence for an error of Spark's."""
    text = str(error)
    if MISSING in text or ("kafka" in text and "DATA_SOURCE_NOT_FOUND" in text):
        return KAFKA
    if OTHER_SOURCES in text:
        return EARLIER_RELEASE
    for mark in OURS:
        if mark in text:
            detail = text.rpartition(mark)[2].splitlines()[0].strip().strip("'\"")
            return SQLSTATE.sub("", detail)
    return _of_spark(CALLED.sub("", text, count=1).strip()) or type(error).__name__


def _of_spark(text: str) -> str:
    """The text of an error of Spark's own classes, with the element that it concerns."""
    if WITHOUT_SCHEMA in text:
        return "Schema: files of this format do not declare their columns; write a <Schema>"
    for condition, detail in CONDITION.findall(text):
        detail = clipped(SQLSTATE.sub("", detail).strip())
        if condition == "DATA_SOURCE_NOT_FOUND":
            return _no_format(detail)
        for begin, meant in ELEMENTS.items():
            if condition.startswith(begin):
                return f"{meant.element}: {detail.rstrip('.')}; {meant.instead}"
    return text.splitlines()[0] if text else ""


def _no_format(detail: str) -> str:
    name = detail.partition("data source: ")[2].partition(".")[0].strip()
    meant = nearest(name, [*KNOWN_FORMATS, *SPARKS_FORMATS])
    near = f"did you mean {meant}? " if meant else ""
    return (
        f"Format: Spark has no format {name}; {near}Add a package with "
        "<Setting Name='spark.jars.packages' Value='…'/>"
    )
