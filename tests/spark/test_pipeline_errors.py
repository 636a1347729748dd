"""What a user hears of an error: one sentence, with the element that it is about."""

import traceback
from io import StringIO
from logging import StreamHandler
from unittest.mock import Mock

import pytest

from sow.config.rules.spark_option_rules import FORMAT_OPTIONS
from sow.core.pipelines import Conflate, Pipeline, PipelineOption, Sink, Source
from sow.errors import BadFilter, ClientError, SowError
from sow.spark.http import ServerRefusal
from sow.spark.pipelines import (
    BUSY_MAX,
    EARLIER_RELEASE,
    KAFKA,
    TOO_BUSY,
    Running,
    concerning,
    reason,
)
from sow.spark.rows import DataLoss

pytestmark = [pytest.mark.spark, pytest.mark.edge]


def _to_its_end(running):
    running.start()
    running.query.awaitTermination()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sql": "SELECT nothing FROM source"}, "nothing"),
        ({"sql": "SELECT op FROM source", "conflate": ("/op",)}, "no column 'ts'"),
        ({"sql": "SELECT ts FROM source", "conflate": ("/id",)}, "no column 'id' for the key"),
        ({"sources": (Source(format="sow", topic="ordres"),)}, "did you mean orders"),
        ({"sources": (Source(format="rate"),)}, "has no end"),
        ({"conflate": ("/sym",)}, "1 records have no '/sym', which is a key"),
        ({"conflate": ("/it's",)}, "select it as a column in the SQL"),
        (
            {"sql": "SELECT op, ts FROM source", "conflate": ("/op",), "filter": "/px > 1"},
            "the filter reads /px, and there is no such column",
        ),
    ],
)
def test_a_mistake_is_one_sentence(spark, server, tmp_path, changes, says):
    changes = dict(changes)
    if "conflate" in changes:
        changes["conflate"] = Conflate(
            keys=changes["conflate"], interval_us=1_000_000, filter=changes.pop("filter", None)
        )
        before = server.get("/v1/log/extent").json["newest"]
        starting = (PipelineOption("startingBookmark", before),)
        changes["sources"] = (Source(format="sow", topic="orders", options=starting),)
    pipeline = Pipeline(
        **{
            "name": "wrong",
            "sources": (Source(format="sow", topic="orders"),),
            "sink": Sink(topic="loud"),
            **changes,
        }
    )
    server.publish("orders", {"id": 1})
    running = Running(pipeline, server.url, tmp_path, once=True, master=None)
    try:
        with pytest.raises(Exception, match=says) as raised:
            _to_its_end(running)
        assert "\n" not in reason(raised.value)
    finally:
        running.stop()


def test_a_format_that_spark_has_not_is_said_by_its_element(run):
    source = Source(format="parket", path="in")
    with pytest.raises(ClientError, match="Format: Spark has no format parket; did you mean parq"):
        run(Pipeline(name="near", sources=(source,), sink=Sink(topic="loud")))


def test_what_is_raised_is_not_written_down_too(spark):
    from pyspark.logger import PySparkLogger

    written = StringIO()
    logger, handler = PySparkLogger.getLogger("SQLQueryContextLogger"), StreamHandler(written)
    logger.addHandler(handler)
    try:
        with pytest.raises(Exception, match="nothing"):
            spark.sql("SELECT nothing FROM range(1)")
    finally:
        logger.removeHandler(handler)
    assert written.getvalue() == ""


SENTENCE = "http://host: there is no topic of that name"


@pytest.mark.parametrize(
    "error",
    [
        ServerRefusal(SENTENCE, {}),
        BadFilter(SENTENCE),
        ClientError(SENTENCE),
        SowError(SENTENCE),
        DataLoss(SENTENCE),
        ValueError(SENTENCE),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_sentence_of_ours_is_taken_out_of_what_spark_wraps_it_in(error):
    lines = "".join(traceback.format_exception(error))
    wrapped = f"[PYTHON_DATA_SOURCE_ERROR] Traceback:\n  File x\n{lines}\tat org.apache"
    assert reason(RuntimeError(wrapped)) == SENTENCE


def test_of_an_error_of_sparks_the_first_line_is_said():
    assert reason(RuntimeError("[PARSE] no table\n== SQL ==\nSELECT")) == "[PARSE] no table"


def test_an_error_without_words_is_named():
    assert reason(KeyError()) == "KeyError"


def test_a_missing_connector_for_kafka_is_said_with_the_setting_that_brings_it():
    assert reason(RuntimeError("Failed to find the data source: kafka. Deploy")) == KAFKA


def test_a_checkpoint_of_an_earlier_release_is_said_with_what_to_do():
    wrapped = (
        "assertion failed: There are [1] sources in the checkpoint offsets and now there are [2] "
        "sources requested by the query. Cannot continue."
    )
    assert reason(RuntimeError(wrapped)) == EARLIER_RELEASE


CALLED = "An error occurred while calling o55.load.\n: org.apache.spark.SparkClassNotFound: "


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            f"{CALLED}[DATA_SOURCE_NOT_FOUND] Failed to find the data source: parket. Make sure "
            "the provider name is correct. SQLSTATE: 42K02\n\tat org.apache.spark",
            "Format: Spark has no format parket; did you mean parquet? Add a package with "
            "<Setting Name='spark.jars.packages' Value='…'/>",
        ),
        (
            "[PATH_NOT_FOUND] Path does not exist: file:/x/y. SQLSTATE: 42K03",
            "Path: Path does not exist: file:/x/y; create it, or write where the files are; a "
            "relative path starts at the data directory",
        ),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted:\n"
            "Caused by: [FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error "
            "while reading file file:///a. Data type mismatches. SQLSTATE: KD001\n\tat org",
            "Schema: Encountered error while reading file file:///a. Data type mismatches; write "
            "the columns as the files have them, or leave Schema out",
        ),
        (
            "Schema must be specified when creating a streaming source DataFrame.",
            "Schema: files of this format do not declare their columns; write a <Schema>",
        ),
        (f"{CALLED}something else\n\tat org", "something else"),
        (
            "An error occurred while calling o55.load",
            "Spark's Java says no cause; the lines before this one may",
        ),
        (
            "[PYTHON_DATA_SOURCE_ERROR] Failed to read: Traceback (most recent call last):\n"
            '  File "/x/reader.py", line 1, in read\n    import sow\n    ^^^^^^^^^^\n'
            "ModuleNotFoundError: No module named 'sow'\n SQLSTATE: 38000\n\tat org",
            "ModuleNotFoundError: No module named 'sow'",
        ),
        (
            "An error occurred while calling o1.load.\n: java.net.UnknownHostException: nn1\n\tat",
            "nn1; no machine of this name is known here: mend the address",
        ),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: x\n"
            "Caused by: java.lang.OutOfMemoryError: Java heap space\n\tat x",
            "Setting: Java heap space; give spark.driver.memory or spark.executor.memory more",
        ),
        (
            "[FAILED_READ_FILE.FILE_NOT_EXIST] File a does not exist. SQLSTATE: KD001",
            "Path: File a does not exist; leave files there while they are read",
        ),
    ],
)
def test_an_error_of_sparks_own_names_the_element_that_it_is_about(text, says):
    assert reason(RuntimeError(text)) == says


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("[PATH_NOT_FOUND] No path x.", "Source in", "Source in: Path: No path x; create it"),
        ("[PARSE_SYNTAX_ERROR] Syntax error at 'b'.", "SQL", "SQL: Syntax error at 'b'; sow check"),
        ("[PARSE_SYNTAX_ERROR] Syntax error at 'b'.", "Schema", "Schema: Syntax error at 'b'."),
        ("[PARSE_SYNTAX_ERROR] Error at 'b'.", "Static x", "Static x: Schema: Error at 'b'; write"),
        (
            "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: append.",
            "Sink",
            "OutputMode: Invalid streaming output mode: append; write update, or a Watermark",
        ),
        (f"{CALLED}Invalid value 'x' for option 'y'", "Source", "Source: Invalid value 'x' for"),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due "
            "to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task "
            "0.0 in stage 1.0 (TID 1) (localhost executor driver): java.sql.SQLException: No "
            "suitable driver\n\tat org.x\nDriver stacktrace:\nCaused by: java.sql.SQLException: No "
            "suitable driver",
            "",
            "Option: No suitable driver; add its package: <Setting",
        ),
        (
            "An error occurred while calling o1.start. Trace:\n: java.lang.RuntimeException: x\n"
            "\tat x\nCaused by: java.lang.ClassNotFoundException: org.x.Driver\n\tat y",
            "Sink",
            "Setting: org.x.Driver; Spark lacks this class; add its package",
        ),
        ("outer\nCaused by: java.io.IOException: the disk\n\tat x", "", "the disk"),
        ("[STREAM_FAILED] Query [id = 1] terminated with exception: [OVERFLOW] No.", "",
         "[OVERFLOW] No."),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited", "", "Setting: Java gateway process"),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
            "[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018\n== SQL ==\nSELECT",
            "",
            "SQL: The value 'x' cannot be cast; use try_cast",
        ),
        (
            "[KAFKA_DATA_SOURCE_NOT_ENABLED] Failed to find data source: kafka.",
            "Source",
            "Source: Spark's connector for Kafka is missing; add <Setting",
        ),
        ("[AVRO_DATA_SOURCE_NOT_ENABLED] No avro.", "Source", "Source: Format: No avro; add its"),
        (
            "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: org.x.Mine. Make sure",
            "Sink",
            "Sink: Format: Spark has no format org.x.Mine; Add a package",
        ),
        (
            "[FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER] Encountered error while reading file a.",
            "Source",
            "Source: Format: Encountered error while reading file a; the files at Path",
        ),
        (
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file a. SQLSTATE: KD001\n"
            "Caused by: [MALFORMED_RECORD_IN_PARSING.X] Malformed records are detected: [null].",
            "",
            "Option mode: Malformed records are detected: [null]; write PERMISSIVE",
        ),
        ("[CODEC_NOT_AVAILABLE.X] The codec zip is not available.", "", "Option compression: The"),
        ("Parent path is not a directory: file:/a", "Sink", "Sink: Path: Parent path is not a"),
        ("Partition column nope not found", "Sink", "Sink: Option partitionBy: Partition column"),
        (
            "[NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING] Window function is not supported.",
            "Sink",
            "SQL: Window function is not supported; group by window",
        ),
        ("Sorting is not supported on streaming DataFrames/Datasets", "Sink", "SQL: Sorting is"),
        ("header flag can be true or false. SQLSTATE: XXKST", "", "header flag can be true or"),
        ("Python worker failed to connect back.", "", "Python worker failed to connect back; the"),
    ],
)  # fmt: skip
def test_an_error_is_placed_where_it_was_raised(text, where, says):
    assert reason(RuntimeError(text), where).startswith(says)


@pytest.mark.parametrize(
    ("module", "element"), [("writer", "Sink"), ("stream", "Source"), ("other", "http://host")]
)
def test_what_a_worker_raises_is_placed_by_where_it_does(module, element):
    text = f'File "/x/sow/spark/{module}.py", line 1\nsow.errors.ClientError: {SENTENCE}\n\tat org'
    assert reason(RuntimeError(text)).startswith(f"{element}:")


def query(error=None):
    """A query that ends, or fails with this error."""
    return Mock(awaitTermination=Mock(side_effect=error, return_value=True))


def test_a_query_begins_again_where_the_machine_was_too_busy_and_not_forever(monkeypatch, tmp_path):
    pipeline = Pipeline(name="p", sources=(Source(format="sow", topic="t"),), sink=Sink(topic="u"))
    busy = RuntimeError(f"[STREAM_FAILED] Query terminated with exception: {TOO_BUSY}.")

    def run(*queries):
        running, begun = Running(pipeline, "http://host", tmp_path, True, None), iter(queries)
        monkeypatch.setattr(running, "_begun", lambda _ends: next(begun))
        running._begin()
        while not running.has_ended(0.0):
            pass
        return list(begun)

    assert run(*[query(busy)] * BUSY_MAX, query(), "not begun") == ["not begun"]
    with pytest.raises(RuntimeError, match=TOO_BUSY):
        run(*[query(busy)] * (BUSY_MAX + 1), query())
    with pytest.raises(RuntimeError, match="the disk"):
        run(query(RuntimeError("the disk is full")), query())


def test_the_option_that_an_error_names_is_named():
    error = RuntimeError("Invalid value 'none' for option 'maxFilesPerTrigger', must be positive")
    said = reason(error, "Source", ["header", "maxfilespertrigger"])
    assert said.startswith("Source: Option maxfilespertrigger: Invalid value 'none' for")
    assert reason(error, "Source", ["header"]).startswith("Source: Invalid value")


def test_a_sentence_of_ours_is_placed_too_and_once():
    assert reason(ClientError("TimeColumn must be x"), "Source") == "Source: TimeColumn must be x"
    refused = pytest.raises(ClientError, match="Source: Schema: no")
    with refused, concerning("Source"), concerning("Schema"):
        raise ClientError("no")
    assert reason(ClientError("SQL: no"), "SQL") == "SQL: no"


def test_values_of_options_that_the_check_takes_are_those_that_spark_takes(spark):
    jvm, conf = spark._jvm, spark._jsparkSession.sessionState().conf()
    of_sources = jvm.org.apache.spark.sql.execution.datasources
    makers = {
        "csv": lambda given: jvm.org.apache.spark.sql.catalyst.csv.CSVOptions(given, True, "UTC"),
        "json": lambda given: jvm.org.apache.spark.sql.catalyst.json.JSONOptions(given, "UTC", "c"),
        "parquet": lambda given: of_sources.parquet.ParquetOptions(given, conf),
    }

    def is_taken(kind, name, value):
        try:
            makers[kind](jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({name: value}))
        except Exception:
            return False
        return True

    refused = 0
    for kind in makers:
        for name, values in FORMAT_OPTIONS[kind].items():
            # `snapy` is no number, no word, and more than one character.
            for value in (*values.words, "1", "|", "snapy"):
                if values.has(value):
                    assert is_taken(kind, name, value), (kind, name, value)
            refused += not (values.has("snapy") or is_taken(kind, name, "snapy"))
        assert not is_taken(kind, "compression", "snapy")
    assert refused > 20, "most of what the check refuses, Spark does"
