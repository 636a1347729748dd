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
own errors have a class, which maps to an element of the pipeline. The text is for users: all
that depends on it is that a query begins again where the machine was too busy (`TOO_BUSY`).
"""

import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from conflated_topics.user_texts import nearest
from sow.core.definitions import ConflatedTopic, View
from sow.core.pipelines import (
    KNOWN_FORMATS,
    SPARKS_FORMATS,
    Pipeline,
    PipelineOption,
    Sink,
    Source,
    has_scheme,
)
from sow.errors import BadFilter, ClientError, SowError
from sow.spark.http import ServerRefusal, any_option, own_server, segment
from sow.spark.pipeline_conflation import SparkConflation, conflated, copied, row_columns
from sow.spark.pipeline_io import SourceRows, endings, given, written
from sow.spark.rows import DataLoss
from sow.spark.run_state import (
    DeadLetters,
    HadoopFiles,
    LeasedState,
    LocalState,
    RunState,
    directory_of,
)
from sow.spark.session import has_session, session
from sow.spark.views import SparkView, following_operators, rows_of_groups

Result = TypeVar("Result")
ROWS_IN, ROWS_OUT = "sow_rows_in", "sow_rows_out"
"""Names under which rows are counted; those in, for each source."""
NANOSECONDS = {"spark.sql.legacy.parquet.nanosAsLong": "true"}
"""Recorded data has times in nanoseconds, which Spark reads as numbers or not at all."""
FINISH_S_MAX = 30.0
"""How long a stopped run waits for its batch: some managers kill after that time."""
LOOK_S = 0.1  # nobody notices, who stops a run
TOO_BUSY = "Python worker failed to connect back"
"""What Spark says of a Python that did not start in ten seconds, for which it has no setting."""
BUSY_MAX = 5
"""So many times a run begins its query again: later it is not the machine that is busy."""


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
        until: int | None = None,
    ) -> None:
        self.pipeline = pipeline
        self._until = until
        """The last bookmark, of a run over a range of the log (`sow.spark.pipeline_io`)."""
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
        self._busy = 0

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
                with concerning(f"Static {static.name}", static.options):
                    self._reads().table(static).createOrReplaceTempView(static.name)
            self._begin()
        except Exception as error:
            raise ClientError(self.reason(error)) from None

    def _begin(self) -> None:
        self.query = None
        while self.query is None:
            self.query = self._unless_busy(self._queries)

    def _queries(self) -> Any:
        if isinstance(self._run_for, SparkView):
            with following_operators(self._spark):
                return self._begun(False)
        return ToItsEnd(self._begun) if self._ends else self._begun(False)

    def _unless_busy(self, work: Callable[[], Result]) -> Result | None:
        """The result of work; None where a Python did not start in time, and it may be repeated."""
        try:
            return work()
        except Exception as error:
            if TOO_BUSY not in str(error) or self._busy == BUSY_MAX:
                raise
            self._busy += 1
            return None

    def has_ended(self, wait_s: float) -> bool:
        """Wait for so long; whether it has ended by itself. Raises the error of a failed query."""
        found = self._unless_busy(lambda: bool(self.query.awaitTermination(wait_s)))
        if found is None:
            self._begin()
        return found is True

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

    def complete(self) -> None:
        """To be called when the query has ended by itself: a range has no next run, and needs no
        state."""
        if self._until is not None and self._state is not None:
            self._state.files.remove()

    def dead_letters(self, batch: int) -> int:
        """The rows that a batch has put into the `deadLetterPath` of the sink."""
        assert self._state is not None
        sink = self.pipeline.sink
        path = any_option(given(sink.options), "deadLetterPath")
        if path is None or sink.topic is None:
            return 0
        writer = self._state.files.read("writer") or str(self.query.id)
        try:
            return DeadLetters(path, sink.topic, writer, batch).count()
        except OSError:
            return 0  # a figure ends no run

    def reason(self, error: BaseException) -> str:
        """One sentence for what has ended the run."""
        read = [option for one in self.pipeline.sources for option in one.options]
        names = given([*read, *self.pipeline.sink.options])
        return f"pipeline {self.pipeline.name}: {reason(error, options=names)}"

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
    def _is_finite(self) -> bool:
        """Whether there is an end to the source."""
        return self.pipeline.source.is_files or self._until is not None

    @property
    def _ends(self) -> bool:
        """Whether there are windows that a run has to end."""
        return self.once and self._is_finite and self.pipeline.conflate is not None

    def _begun(self, ends: bool) -> Any:
        """A query; the one that `ends` a run reads nothing new."""
        assert self._state is not None
        rows = self._rows(ends)
        with concerning("Sink", self.pipeline.sink.options):
            return written(
                rows,
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
            # Part of every query with an end, so that any run can continue any other.
            last = endings(self._spark, ends) if self._is_finite else None
            with concerning("Conflate"):
                frame = conflated(frame, self.pipeline, self._url, last, str(self._data_directory))
        return frame.observe(ROWS_OUT, count(lit(1)).alias("rows"))

    def _reads(self) -> SourceRows:
        return SourceRows(
            self._spark, self.pipeline, self._url, self._data_directory, self._run_for, self._until
        )

    def _queried(self, ticks: bool, ends: bool) -> Any:
        """The result of the SQL over the sources."""
        if self.pipeline.sql is None:
            return self._taken(self.pipeline.source, ticks, ends)
        for source in self.pipeline.sources:
            self._taken(source, ticks, ends).createOrReplaceTempView(source.name)
        with concerning("SQL"):
            return self._spark.sql(self.pipeline.sql)

    def _taken(self, source: Source, ticks: bool, ends: bool) -> Any:
        """The rows of a source, counted: each under its own name, as Spark requires."""
        from pyspark.sql.functions import count, lit

        where = "Source" if len(self.pipeline.sources) == 1 else f"Source {source.name}"
        with concerning(where, source.options):
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
    def id(self) -> Any:
        """The name of the query, which both share."""
        return self._query.id

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
CALLED = re.compile(r"An error occurred while calling \S+(?:\s*Trace:)?\s*:?\s*")
"""The prefix that Python's bridge to Java adds."""
STREAM_FAILED = re.compile(r"\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception:\s*")
WRAPPED = re.compile(
    r"Job aborted due to stage failure:.*?Lost task [^)]*\)[^)]*\):\s*"
    r"|(?:[\w$]+\.){2,}[\w$]+: "
)
"""What Spark and Java put before a cause."""
CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]\s+(.+)")
SQLSTATE = re.compile(r"\s*SQLSTATE: \w+.*")
WITHOUT_SCHEMA = "Schema must be specified"
CAUSED = re.compile(r"^\s*Caused by: (.+)", re.MULTILINE)
TRACEBACK = "Traceback (most recent call last):"
RAISED = re.compile(rf"{re.escape(TRACEBACK)}\n(?:[ \t].*\n)*(\S.*)")
"""A cause in Python, which is the line after its frames."""


class Meant(NamedTuple):
    """The element that an error of Spark's concerns, and what to write there."""

    element: str
    instead: str


OF_PIPELINE = ("SQL", "OutputMode", "Checkpoint", "Master", "Setting")
"""Elements that stand in the pipeline itself, wherever an error of them is raised."""
DDL = Meant("Schema", "write columns as in SQL, such as id long, px double")
OF_DDL = ("PARSE_SYNTAX_ERROR", "UNSUPPORTED_DATATYPE", "DATATYPE_MISSING_SIZE")
WRONG_SCHEMA = Meant("Schema", "write the columns as the files have them, or leave Schema out")
OTHER_FILES = Meant("Format", "the files at Path have another one, or are damaged")
MODE = Meant("OutputMode", "write update, or a Watermark in the Source")
OTHER_QUERY = Meant("Checkpoint", "if the SQL has changed, begin with an empty one")
PACKAGE = "add its package: <Setting Name='spark.jars.packages' Value='…'/>"
ELEMENTS = {
    "PATH_NOT_FOUND": Meant(
        "Path",
        "create it, or write where the files are; a relative path starts at the data directory",
    ),
    "UNABLE_TO_INFER_SCHEMA": Meant("Path", "there are no such files yet: write a <Schema>"),
    "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER": OTHER_FILES,
    "FAILED_READ_FILE.NO_HINT": OTHER_FILES,
    "FAILED_READ_FILE.FILE_NOT_EXIST": Meant("Path", "leave files there while they are read"),
    "FAILED_READ_FILE": WRONG_SCHEMA,
    "CANNOT_READ_FILE_FOOTER": OTHER_FILES,
    "MALFORMED_RECORD_IN_PARSING": Meant("Option mode", "write PERMISSIVE, or mend the file"),
    "UNRESOLVED_COLUMN": Meant("SQL", "write a column of its views"),
    "UNRESOLVED_ROUTINE": Meant("SQL", "write a function of Spark's"),
    "TABLE_OR_VIEW_NOT_FOUND": Meant("SQL", "write the name of a Source or a Static"),
    "PARSE_": Meant("SQL", "sow check --spark shows where"),
    "DATATYPE_MISMATCH": Meant("SQL", "cast the column"),
    "CAST_INVALID_INPUT": Meant("SQL", "use try_cast, or leave the rows out"),
    "DIVIDE_BY_ZERO": Meant("SQL", "use try_divide, or leave the rows out"),
    "INVALID_PARAMETER_VALUE": Meant("Option", "write one that Spark knows"),
    "CODEC_NOT_AVAILABLE": Meant("Option compression", "write one of these"),
    "XML_ROW_TAG_MISSING": Meant("Option rowTag", "add it"),
    "AVRO_DATA_SOURCE_NOT_ENABLED": Meant("Format", PACKAGE),
    "STREAMING_OUTPUT_MODE": MODE,
    "UNSUPPORTED_STREAMING_OPERATOR_WITHOUT_WATERMARK": MODE,
    "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING": Meant("SQL", "group by window(…) instead"),
    "UNSUPPORTED_DATA": Meant("SQL", "cast to another type"),
    "DATATYPE_MISSING_SIZE": Meant("SQL", "write one"),
    "PARTITION_COLUMN_NOT_FOUND_IN_SCHEMA": Meant("Option partitionBy", "name columns of the rows"),
    "INVALID_CONF_VALUE": Meant("Setting", "write a value as Spark documents it"),
    "INVALID_SPARK_CONFIG": Meant("Setting", "write a value as Spark documents it"),
    "CANNOT_MODIFY_": Meant("Setting", "set it where Spark is started"),
    "CONCURRENT_STREAM_LOG_UPDATE": Meant("Checkpoint", "another query goes on from it: end one"),
    "STATE_STORE_": OTHER_QUERY,
    "STREAMING_STATEFUL_OPERATOR_": OTHER_QUERY,
    "STREAMING_CHECKPOINT_": OTHER_QUERY,
    "JAVA_GATEWAY_EXITED": Meant(
        "Setting",
        "Java ended before Spark began, mostly for a package or a jar that does not exist, or for "
        "memory; it says why in the lines before this one",
    ),
}
"""By the class of an error, or by its prefix."""
OF_WORDS = {
    "No FileSystem for scheme": Meant("Path", PACKAGE),
    "Class org.apache.hadoop.fs.": Meant("Path", PACKAGE),
    "is not a directory": Meant("Path", "write where a directory is, or can be"),
    "Permission denied": Meant("Path", "let Spark's user read and write there"),
    "Mkdirs failed": Meant("Path", "let Spark's user read and write there"),
    "No suitable driver": Meant("Option", PACKAGE),
    "UnknownHostException": Meant("", "no machine of this name is known here: mend the address"),
    "OutOfMemoryError": Meant("Setting", "give spark.driver.memory or spark.executor.memory more"),
    "ClassNotFoundException": Meant("Setting", f"Spark lacks this class; {PACKAGE}"),
    "NoClassDefFoundError": Meant("Setting", f"Spark lacks this class; {PACKAGE}"),
    "Could not parse Master URL": Meant("Master", "write local[2], spark://host:7077 or such"),
    "All masters are unresponsive": Meant("Master", "no Spark answers there"),
    "Answer from Java side is empty": Meant(
        "Setting", "Spark's Java has ended, or was killed; give spark.driver.memory more"
    ),
    "Partition column": Meant("Option partitionBy", "name columns of the rows"),
    "streaming DataFrames/Datasets": Meant("SQL", "a stream has no end: leave that out"),
    TOO_BUSY: Meant(
        "", "the machine was too busy to start a process in ten seconds: start it again"
    ),
}
"""The same by what is said where Spark has no class of errors."""
RAISED_IN = {"sow/spark/writer.py": "Sink", "sow/spark/stream.py": "Source"}
"""The element by the module of ours that raised an error in a worker."""
CAUSE_CHARS_MAX = 300
"""A cause is a sentence, and some have the plan of the query after it."""


def reason(error: BaseException, where: str = "", options: Iterable[str] = ()) -> str:
    """One sentence for an error of Spark's, with the element of config.xml that it concerns;
    `where` is the element at whose reading it was raised, and `options` are the names of its
    options, as the error may name one."""
    if isinstance(error, SowError):
        return _placed(error.detail, where)
    text = str(error)
    if MISSING in text or ("kafka" in text and "DATA_SOURCE_NOT_FOUND" in text):
        return _placed(KAFKA, where)
    if OTHER_SOURCES in text:
        return EARLIER_RELEASE
    for mark in OURS:
        if mark in text:
            place = where or next((RAISED_IN[one] for one in RAISED_IN if one in text), "")
            detail = text.rpartition(mark)[2].splitlines()[0].strip().strip("'\"")
            return _placed(SQLSTATE.sub("", detail), place)
    text = STREAM_FAILED.sub("", CALLED.sub("", text)).strip()
    found = _by_class(text, where) or _by_words(text, where, options)
    if not found and CALLED.match(str(error)):
        found = _placed("Spark's Java says no cause; the lines before this one may", where)
    return found or type(error).__name__


@contextmanager
def concerning(where: str, options: Iterable[PipelineOption] = ()) -> Iterator[None]:
    """What is raised in this context names the element `where`, and the one of its `options`."""
    try:
        yield
    except Exception as error:
        raise ClientError(reason(error, where, given(options))) from None


def _placed(sentence: str, where: str, element: str = "") -> str:
    """A sentence after the elements that it concerns, from the outer one to the inner one."""
    if element:
        sentence = f"{element}: {sentence}"
    begin = where.partition(" ")[0]
    if not where or element in OF_PIPELINE or sentence.startswith(f"{begin}:"):
        return sentence
    return f"{where}: {sentence}"


def _by_class(text: str, where: str) -> str:
    """The text of an error of Spark's own classes, with the element that it concerns; empty for
    another error."""
    if WITHOUT_SCHEMA in text:
        wrong = "files of this format do not declare their columns; write a <Schema>"
        return _placed(wrong, where, "Schema")
    for condition, detail in sorted(CONDITION.findall(text), key=lambda one: "NO_HINT" in one[0]):
        detail = SQLSTATE.sub("", detail).strip()[:CAUSE_CHARS_MAX]
        if condition == "KAFKA_DATA_SOURCE_NOT_ENABLED":
            return _placed(KAFKA, where)
        if condition == "DATA_SOURCE_NOT_FOUND":
            return _placed(_no_format(detail), where, "Format")
        for begin, meant in ELEMENTS.items():
            if condition.startswith(begin):
                if condition in OF_DDL and where.startswith(("Source", "Static")):
                    meant = DDL  # the only text that is parsed there
                elif meant.element == "SQL" and where not in ("", "SQL", "Sink"):
                    return _placed(detail, where)
                return _placed(f"{detail.rstrip('.')}; {meant.instead}", where, meant.element)
    return ""


def _by_words(text: str, where: str, options: Iterable[str]) -> str:
    """The innermost cause of any other error, with the element that its words name."""
    inner = [*CAUSED.finditer(text), *RAISED.finditer(text)]
    causes = [text, *(one[1] for one in sorted(inner, key=lambda one: one.start(1)))]
    for mark, meant in OF_WORDS.items():
        if found := next((one for one in reversed(causes) if mark in one), None):
            wrong = f"{_cause(found).rstrip('.')}; {meant.instead}"
            return _placed(wrong, where, meant.element)
    known = CONDITION.search(text)
    cause = _cause(causes[-1]) if text else ""
    if known is not None and TRACEBACK not in known[2]:
        cause = f"[{known[1]}] {SQLSTATE.sub('', known[2])}".strip()[:CAUSE_CHARS_MAX]
    named = next((one for one in options if re.search(rf"(?i)\b{re.escape(one)}\b", cause)), None)
    return _placed(cause, where, "" if named is None else f"Option {named}") if cause else ""


def _cause(text: str) -> str:
    """The first line of a cause, without what wraps it."""
    line = SQLSTATE.sub("", WRAPPED.sub("", text.splitlines()[0])).strip()
    return (line or text.splitlines()[0])[:CAUSE_CHARS_MAX]


def _no_format(detail: str) -> str:
    name = detail.partition("data source: ")[2].partition(". ")[0].rstrip(". ")
    meant = nearest(name, [*KNOWN_FORMATS, *SPARKS_FORMATS])
    near = f"did you mean {meant}? " if meant not in (None, name) else ""
    return (
        f"Spark has no format {name}; {near}Add a package with "
        "<Setting Name='spark.jars.packages' Value='…'/>"
    )
